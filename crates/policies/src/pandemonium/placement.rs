// SPDX-License-Identifier: GPL-2.0-only

//! Where a task shall run.

use crate::knobs::{Affinity, Knobs};
use crate::scaling::Scaling;
use alloc::vec;
use alloc::vec::Vec;
use pandemonium_engine::MachineView;
use pandemonium_engine::Mode;
use pandemonium_engine::Setup;
use pandemonium_engine::placement::{may_use, usual_place};
use pandemonium_engine::runqueue::{Runqueue, Slot};
use pandemonium_engine::task::{CPUS_MAX, CpuId, Placement, Request, Tier};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::topology::{Domain, Topology};

/// Tasks looked at for one whose cache is near: the first of a queue and the four that lie next to
/// it in the heap.
const LOOK_AHEAD: usize = 5;

/// So many Batch tasks wait for a busy CPU before another one is woken for them, when power is to
/// be saved. Chosen: three share a CPU, which a hog and two lighter ones hardly notice.
const SAVING_DEPTH: u32 = 2;

/// How long a task may have to stand behind others that were sent to a CPU's own queue in the same
/// round. Behind such as run for a moment it runs at once; behind a longer one it would wait beside
/// CPUs that run less urgent tasks, since nobody else serves that queue. Chosen: twice what passes
/// until somebody looks after those who are left over (src/bpf/leftover.bpf.h).
const AHEAD_MAX: Span = Span::from_micros(200);

/// What was sent to one CPU's own queue lately.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// How many tasks, as far as we know.
    tasks: u32,
    /// When the last of them was.
    at: Stamp,
    /// When the CPU is through with them if each uses up its slice.
    through: Stamp,
    /// The slices of those sent in the same round as the last one.
    together: Span,
}

/// Places tasks. Knows the machine, and what it has sent where.
pub struct Placer {
    topology: Topology,
    domain: Option<Domain>,
    sent: Vec<Sent>,
    /// What [`note`](Placer::note) changed last, for the case that it is refused.
    before: Option<(CpuId, Sent)>,
}

/// Everything that the place of a task depends on besides the task.
pub struct PlacementContext<'a> {
    /// The time of the round.
    pub now: Stamp,
    /// The machine at this time.
    pub view: &'a MachineView,
    /// What is going on beyond single tasks.
    pub mode: Mode,
    /// The limits of the machine.
    pub limits: &'a Scaling,
    /// The settings.
    pub knobs: &'a Knobs,
}

impl Placer {
    /// For a machine and a user's wishes.
    pub fn new(setup: &Setup) -> Placer {
        Placer {
            topology: setup.topology.clone(),
            domain: setup.domain,
            sent: vec![Sent::default(); CPUS_MAX as usize],
            before: None,
        }
    }

    /// Where the task goes, and whether somebody has to be interrupted for it there: as [`place`]
    /// says, unless a limit, a mode or the domain says otherwise.
    pub fn place(
        &self,
        request: &Request,
        tier: Tier,
        context: &PlacementContext,
    ) -> (Placement, bool) {
        if let Some(cpu) = self.place_in_domain(request, context) {
            return (
                Placement::Cpu(cpu),
                request.kicked == Some(cpu) && context.knobs.rules.preempt,
            );
        }
        let (view, knobs) = (context.view, context.knobs);
        let anywhere = !knobs.rules.affinity || knobs.affinity == Affinity::Off;
        let near = if anywhere { view.here.unwrap_or(request.cpu) } else { request.cpu };
        let some_idle = view.running < view.cpus;
        match usual_place(request, view, knobs.place_rules()) {
            (Placement::Cpu(cpu), _)
                if request.kicked.is_some()
                    && knobs.rules.depth_gate
                    && !self.has_space(cpu, context) =>
            {
                (Placement::Any { near }, false)
            }
            _ if knobs.rules.low_power && some_idle && tier == Tier::Batch => {
                let awake = self.awake(request, context);
                (awake.map_or(Placement::Any { near }, Placement::Cpu), false)
            }
            (Placement::Any { .. }, _) => (Placement::Any { near }, false),
            placed => placed,
        }
    }

    /// A CPU that need not be woken for the task: one that runs somebody else, the one where
    /// fewest wait, best its last one; else the one on which we decide, which may have been idle.
    fn awake(&self, request: &Request, context: &PlacementContext) -> Option<CpuId> {
        let may = |cpu: &CpuId| may_use(request, *cpu);
        let busy = (0..64).filter_map(CpuId::new).filter(|cpu| context.view.busy.contains(*cpu));
        let waiting = |cpu: &CpuId| self.waiting_at(*cpu, context);
        let open = busy.filter(may).filter(|cpu| waiting(cpu) < SAVING_DEPTH);
        open.min_by_key(|cpu| (waiting(cpu), self.farness(*cpu, request)))
            .or(context.view.here.filter(may))
    }

    /// The CPU of the domain where the task goes; `None` if there is no domain, if the task may
    /// not run in it, or if it is saturated and tasks may overflow.
    ///
    /// An idle CPU comes first, near the last one; then the one that was interrupted for the task,
    /// the one on which we decide, and, if the domain is strict, the one that is through with what
    /// it has soonest. CPUs beyond the first 64 are not known to be idle.
    fn place_in_domain(&self, request: &Request, context: &PlacementContext) -> Option<CpuId> {
        let domain = self.domain.as_ref()?;
        let may = |cpu: &CpuId| match request.allowed {
            Some(allowed) if cpu.as_raw() < 64 => allowed.contains(*cpu),
            _ => request.cpus_allowed >= context.view.cpus,
        };
        let usable = || domain.cpus.iter().filter(may);
        if request.cpus_allowed == 1 || usable().next().is_none() {
            return None;
        }
        let free = |cpu: &CpuId| self.waiting_at(*cpu, context) == 0;
        let idle = usable().filter(|cpu| context.view.idle.contains(*cpu)).filter(free);
        let worse =
            |cpu: &CpuId| (self.has_busy_sibling(*cpu, context), self.farness(*cpu, request));
        let inside = |cpu: &CpuId| domain.cpus.contains(*cpu) && may(cpu);
        idle.min_by_key(worse)
            .or(context.view.here.filter(inside).filter(free))
            .or(request.kicked.filter(inside))
            .or_else(|| {
                let soonest = |cpu: &CpuId| self.sent[cpu.as_raw() as usize].through;
                usable().filter(|_| domain.strict).min_by_key(soonest)
            })
    }

    /// How far the CPU is from where the task ran last: there, on its cache, or elsewhere.
    fn farness(&self, cpu: CpuId, request: &Request) -> (bool, bool) {
        (cpu != request.cpu, !self.topology.shares_l2(cpu, request.cpu))
    }

    /// Whether the CPU shares its core (SMT) with one that is not idle: half a core is slower than
    /// a whole one with a cold cache. Of the first 64 CPUs.
    fn has_busy_sibling(&self, cpu: CpuId, context: &PlacementContext) -> bool {
        let core = self.topology.place(cpu).core;
        let others = (0..self.topology.cpus().min(64)).filter_map(|cpu| CpuId::new(cpu as i32));
        let mut siblings =
            others.filter(|other| *other != cpu && self.topology.place(*other).core == core);
        siblings.any(|sibling| !context.view.idle.contains(sibling))
    }

    /// Whether one more task may wait in the CPU's own queue: behind few, and not for long.
    fn has_space(&self, cpu: CpuId, context: &PlacementContext) -> bool {
        let sent = self.sent[cpu.as_raw() as usize];
        if sent.at == context.now && sent.together > AHEAD_MAX {
            return false;
        }
        let depth = match context.mode.shallow_queues() {
            true => context.limits.private_depth_burst,
            false => context.limits.private_depth,
        };
        self.waiting_at(cpu, context) < depth
    }

    /// How many tasks that we sent to the CPU's own queue may still be in it. After a slice the
    /// CPU has come by at its queue.
    fn waiting_at(&self, cpu: CpuId, context: &PlacementContext) -> u32 {
        let sent = self.sent[cpu.as_raw() as usize];
        if context.now.since(sent.at) >= context.knobs.slice { 0 } else { sent.tasks }
    }

    /// Notes that a task was sent, with this slice.
    pub fn note(&mut self, placement: Placement, slice: Span, context: &PlacementContext) {
        self.before = None;
        let Placement::Cpu(cpu) = placement else { return };
        let tasks = self.waiting_at(cpu, context) + 1;
        let cell = &mut self.sent[cpu.as_raw() as usize];
        self.before = Some((cpu, *cell));
        let through = cell.through.max(context.now) + slice;
        let before = if cell.at == context.now { cell.together } else { Span::ZERO };
        *cell = Sent { tasks, at: context.now, through, together: before + slice };
    }

    /// The last [`note`](Placer::note) was premature: the task was not sent.
    pub fn forget(&mut self) {
        if let Some((cpu, before)) = self.before.take() {
            self.sent[cpu.as_raw() as usize] = before;
        }
    }

    /// The first task of the queue, or one right behind it whose cache or memory is near the CPU
    /// that becomes free. Near pays for a little patience only: `last_cpu` tells where a task ran.
    pub fn nearest(
        &self,
        queue: &Runqueue,
        context: &PlacementContext,
        last_cpu: impl Fn(Slot) -> Option<CpuId>,
    ) -> Option<Slot> {
        let (first, key) = queue.peek()?;
        let Some(here) = context.view.here else { return Some(first) };
        let strong = context.knobs.rules.affinity
            && context.knobs.affinity == Affinity::Strong
            && !context.mode.weak_affinity();
        let node = context.knobs.rules.numa && self.topology.nodes() > 1;
        if !strong && !node {
            return Some(first);
        }
        let patience = key.after(patience(context.knobs));
        let rank = |slot: Slot| -> u8 {
            let Some(cpu) = last_cpu(slot) else { return 2 };
            match () {
                () if strong && self.topology.shares_l2(cpu, here) => 0,
                () if node && self.topology.place(cpu).node == self.topology.place(here).node => 1,
                () => 2,
            }
        };
        let near = queue.front(LOOK_AHEAD).filter(|(_, key)| *key <= patience);
        let best: Option<(u8, Vtime, Slot)> =
            near.map(|(slot, key)| (rank(slot), key, slot)).min_by_key(|(rank, key, slot)| {
                // Of equal rank and key the first keeps its place.
                (*rank, *key, *slot != first)
            });
        best.map(|(_, _, slot)| slot)
    }
}

/// For how much virtual time a task waits for one whose cache is near.
fn patience(knobs: &Knobs) -> Span {
    knobs.slice
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::facts::CpuSet;
    use pandemonium_engine::task::{Pid, Ticket};
    use pandemonium_engine::topology::CpuPlace;

    fn cpu(number: i32) -> CpuId {
        CpuId::new(number).unwrap()
    }

    /// A task that ran on CPU 1 and may use CPUs 1 and 2.
    fn request(kicked: Option<i32>) -> Request {
        Request {
            pid: Pid::new(1).unwrap(),
            ticket: Ticket(2),
            cpu: cpu(1),
            cpus_allowed: 2,
            allowed: Some(CpuSet(0b110)),
            kicked: kicked.map(cpu),
        }
    }

    fn view(here: i32) -> MachineView {
        MachineView { cpus: 4, running: 4, here: Some(cpu(here)), ..MachineView::default() }
    }

    const ANYWHERE: (Placement, bool) = (Placement::Any { near: CpuId::new(1).unwrap() }, false);

    /// What a placer says, which has sent `sent` tasks to CPU 2, 100 us ago.
    fn placed(
        sent: u32,
        tier: Tier,
        request: &Request,
        view: &MachineView,
        knobs: &Knobs,
    ) -> (Placement, bool) {
        let limits = Scaling::new(4);
        let context = |now, knobs| PlacementContext {
            now: Stamp::from_nanos(now),
            view,
            mode: Mode::default(),
            limits: &limits,
            knobs,
        };
        let usual = Knobs::default();
        let mut placer = Placer::new(&Setup::of_cpus(4));
        for _ in 0..sent {
            placer.note(Placement::Cpu(cpu(2)), usual.slice, &context(1 << 30, &usual));
        }
        placer.place(request, tier, &context((1 << 30) + 100_000, knobs))
    }

    #[test]
    fn a_task_somebody_was_interrupted_for_goes_where_we_decide_if_it_may() {
        let knobs = Knobs::default();
        let place = |request: &Request, view: &MachineView, knobs: &Knobs| {
            usual_place(request, view, knobs.place_rules())
        };
        let placed = |here| place(&request(Some(1)), &view(here), &knobs);
        assert_eq!(placed(2), (Placement::Cpu(cpu(2)), false));
        // We are on a CPU that it may not use: the interrupted one has to be interrupted again.
        assert_eq!(placed(3), (Placement::Cpu(cpu(1)), true));
        let unknown = Request { allowed: None, ..request(Some(1)) };
        assert_eq!(place(&unknown, &view(2), &knobs), (Placement::Cpu(cpu(1)), true));
        let mut gentle = knobs;
        gentle.rules.preempt = false;
        assert_eq!(place(&unknown, &view(2), &gentle), (Placement::Cpu(cpu(1)), false));
    }

    #[test]
    fn all_others_go_where_a_cpu_is_free_unless_they_belong_to_one() {
        let local = Knobs { percpu_local: true, ..Knobs::default() };
        let bound = Request { cpus_allowed: 1, ..request(None) };
        assert_eq!(place(&request(None), &view(2), &local), ANYWHERE);
        assert_eq!(place(&bound, &view(2), &Knobs::default()), ANYWHERE);
        assert_eq!(place(&bound, &view(2), &local), (Placement::Cpu(cpu(1)), false));
    }

    /// Two were kicked for and are decided in one round: the CPU is free for the first of them.
    #[test]
    fn nobody_stands_in_line_behind_a_long_slice_of_the_same_round() {
        let (knobs, limits, view) = (Knobs::default(), Scaling::new(4), view(2));
        let context = |at: u64| PlacementContext {
            now: Stamp::from_nanos((1 << 30) + at),
            view: &view,
            mode: Mode::default(),
            limits: &limits,
            knobs: &knobs,
        };
        let second = |slice_us, later| {
            let mut placer = Placer::new(&Setup::of_cpus(4));
            placer.note(Placement::Cpu(cpu(2)), Span::from_micros(slice_us), &context(0));
            placer.place(&request(Some(1)), Tier::LatCritical, &context(later))
        };
        assert_eq!(second(150, 0), (Placement::Cpu(cpu(2)), false));
        assert_eq!(second(1_000, 0), ANYWHERE);
        assert_eq!(second(1_000, 20_000), (Placement::Cpu(cpu(2)), false), "another round");
    }

    #[test]
    fn a_full_queue_sends_the_next_one_elsewhere() {
        let (kicked, view, knobs) = (request(Some(2)), view(2), Knobs::default());
        let here = (Placement::Cpu(cpu(2)), false);
        let at_depth = |sent, knobs: &Knobs| placed(sent, Tier::Interactive, &kicked, &view, knobs);
        assert_eq!([at_depth(1, &knobs), at_depth(2, &knobs)], [here, ANYWHERE]);
        let mut open = knobs;
        open.rules.depth_gate = false;
        assert_eq!(at_depth(2, &open), here);
        // 100 us are a whole slice now, so the CPU has come by at its queue.
        let quick = Knobs { slice: Span::from_micros(100), ..knobs };
        assert_eq!(at_depth(2, &quick), here);
    }

    #[test]
    fn low_power_wakes_no_cpu_for_batch() {
        let mut saving = Knobs::default();
        saving.rules.low_power = true;
        let idle = MachineView { running: 2, ..view(2) };
        let here = (Placement::Cpu(cpu(2)), false);
        let asked = |tier, view: &MachineView, knobs| placed(0, tier, &request(None), view, knobs);
        assert_eq!(asked(Tier::Batch, &idle, &saving), here);
        let beside = MachineView { busy: CpuSet(0b1010), ..idle };
        let on_one = (Placement::Cpu(cpu(1)), false);
        assert_eq!(asked(Tier::Batch, &beside, &saving), on_one, "1 is busy, and it may not use 3");
        let kicked = placed(0, Tier::Batch, &request(Some(2)), &beside, &saving);
        assert_eq!(kicked, on_one, "2 was only interrupted so that we decide");
        assert_eq!(asked(Tier::LatCritical, &idle, &saving), ANYWHERE);
        assert_eq!(asked(Tier::Batch, &view(2), &saving), ANYWHERE, "no CPU sleeps");
        assert_eq!(asked(Tier::Batch, &idle, &Knobs::default()), ANYWHERE);
    }

    #[test]
    fn affinity_off_starts_looking_where_we_are() {
        let off = Knobs { affinity: Affinity::Off, ..Knobs::default() };
        let near_here = (Placement::Any { near: cpu(3) }, false);
        assert_eq!(placed(0, Tier::Batch, &request(None), &view(3), &off), near_here);
    }

    /// CPUs 0 and 1 share a cache, and so do 2 and 3; 4 to 7 are on another node.
    fn topology() -> Topology {
        let place = |number: u16| CpuPlace {
            core: number,
            l2: number / 2,
            llc: number / 4,
            node: number / 4,
        };
        Topology::new((0..8).map(place).collect())
    }

    #[test]
    fn a_task_near_the_free_cpu_goes_before_one_that_is_hardly_more_urgent() {
        let placer = Placer::new(&Setup { topology: topology(), ..Setup::of_cpus(8) });
        let mut queue = Runqueue::new(8);
        // Slot and last CPU are the same number; slot 6 was first, 3 and 2 soon after, 1 late.
        for (slot, us) in [(6, 0), (3, 500), (2, 900), (1, 1_500)] {
            queue.insert(Slot(slot), Vtime::START.after(Span::from_micros(us)));
        }
        let limits = Scaling::new(8);
        let picked = |here, affinity, longrun| {
            let knobs = Knobs { affinity, ..Knobs::default() };
            let view = MachineView { here: Some(cpu(here)), ..view(0) };
            let mode = Mode { burst: false, longrun };
            let now = Stamp::default();
            let context =
                PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
            placer.nearest(&queue, &context, |slot| CpuId::new(slot.0 as i32)).unwrap().0
        };
        assert_eq!(picked(2, Affinity::Strong, false), 3, "shares the cache with 2 and 3");
        assert_eq!(picked(0, Affinity::Strong, false), 3, "1 is too late, 3 is on the node");
        assert_eq!(picked(7, Affinity::Strong, false), 6);
        assert_eq!(picked(2, Affinity::Weak, false), 3, "the node counts all the same");
        assert_eq!(picked(4, Affinity::Off, true), 6);
        let flat = Placer::new(&Setup::of_cpus(8));
        let knobs = Knobs { affinity: Affinity::Weak, ..Knobs::default() };
        let (view, now) = (view(2), Stamp::default());
        let mode = Mode::default();
        let context = PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
        assert_eq!(flat.nearest(&queue, &context, |_| Some(cpu(2))), Some(Slot(6)));
    }

    /// CPUs 0 and 2 are the domain; the task ran on CPU 1 and may use all four but 3.
    fn in_domain(strict: bool, request: &Request, view: &MachineView, sent: &[i32]) -> Option<i32> {
        let domain = Domain { cpus: [cpu(0), cpu(2)].into_iter().collect(), strict };
        let setup = Setup { domain: Some(domain), ..Setup::of_cpus(4) };
        let (limits, knobs) = (Scaling::new(4), Knobs::default());
        let now = Stamp::from_nanos(1 << 30);
        let mode = Mode::default();
        let context = PlacementContext { now, view, mode, limits: &limits, knobs: &knobs };
        let mut placer = Placer::new(&setup);
        for &number in sent {
            placer.note(Placement::Cpu(cpu(number)), knobs.slice, &context);
        }
        placer.place_in_domain(request, &context).map(CpuId::as_raw)
    }

    #[test]
    fn tasks_stay_in_the_domain_until_it_is_saturated() {
        let wide = Request { cpus_allowed: 3, allowed: Some(CpuSet(0b0111)), ..request(None) };
        let idle = |mask, here| MachineView { idle: CpuSet(mask), ..view(here) };
        assert_eq!(in_domain(false, &wide, &idle(0b1110, 1), &[]), Some(2), "not 1 or 3");
        assert_eq!(in_domain(false, &wide, &idle(0b0101, 1), &[]), Some(0));
        assert_eq!(in_domain(false, &wide, &idle(0b0101, 1), &[0]), Some(2), "0 was just sent one");
        assert_eq!(in_domain(false, &wide, &idle(0b0010, 2), &[]), Some(2), "we are in it");
        assert_eq!(in_domain(false, &wide, &idle(0b0010, 1), &[]), None, "saturated");
        let kicked = Request { kicked: Some(cpu(0)), ..wide };
        assert_eq!(in_domain(false, &kicked, &idle(0b0010, 1), &[]), Some(0));
        let narrow = Request { allowed: Some(CpuSet(0b1010)), ..wide };
        assert_eq!(in_domain(false, &narrow, &idle(0b1111, 1), &[]), None, "it may not go in");
    }

    /// CPUs 0 and 1 are one core, 2 and 3 another.
    #[test]
    fn a_whole_core_comes_before_half_of_one() {
        let place = |number: u16| CpuPlace { core: number / 2, l2: number / 2, llc: 0, node: 0 };
        let topology = Topology::new((0..4).map(place).collect());
        let domain = Some(Domain { cpus: (0..4).map(cpu).collect(), strict: false });
        let placer = Placer::new(&Setup { topology, domain, ..Setup::of_cpus(4) });
        let (limits, knobs) = (Scaling::new(4), Knobs::default());
        let placed = |idle| {
            let view = MachineView { idle: CpuSet(idle), ..view(0) };
            let (now, mode) = (Stamp::from_nanos(1 << 30), Mode::default());
            let context =
                PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
            let request =
                Request { cpus_allowed: 4, allowed: Some(CpuSet(0b1111)), ..request(None) };
            placer.place_in_domain(&request, &context).map(CpuId::as_raw)
        };
        assert_eq!(request(None).cpu, cpu(1));
        assert_eq!(placed(0b1111), Some(1), "where it ran");
        assert_eq!(placed(0b1110), Some(2), "0 is busy");
        assert_eq!(placed(0b1010), Some(1), "no core is whole");
    }

    #[test]
    fn a_strict_domain_never_overflows_but_pinned_tasks_run() {
        let wide = Request { cpus_allowed: 4, allowed: Some(CpuSet(0b1111)), ..request(None) };
        let idle = MachineView { idle: CpuSet(0b1010), ..view(1) };
        assert_eq!(in_domain(true, &wide, &idle, &[]), Some(0));
        assert_eq!(in_domain(true, &wide, &idle, &[0]), Some(2), "through sooner");
        assert_eq!(in_domain(true, &wide, &idle, &[0, 2, 2]), Some(0));
        let pinned = Request { cpus_allowed: 1, allowed: Some(CpuSet(0b1000)), ..wide };
        assert_eq!(in_domain(true, &pinned, &idle, &[]), None);
        let unknown = Request { allowed: None, ..wide };
        assert_eq!(in_domain(true, &unknown, &idle, &[]), Some(0), "as many CPUs as there are");
    }

    #[test]
    fn a_refused_task_leaves_no_trace() {
        let limits = Scaling::new(2);
        let knobs = Knobs::default();
        let view = view(2);
        let now = Stamp::from_nanos(1 << 30);
        let mode = Mode::default();
        let context = PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
        let mut placer = Placer::new(&Setup::of_cpus(2));
        placer.note(Placement::Cpu(cpu(2)), knobs.slice, &context);
        assert!(!placer.has_space(cpu(2), &context));
        placer.forget();
        assert!(placer.has_space(cpu(2), &context));
    }
}
