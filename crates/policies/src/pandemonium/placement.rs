// SPDX-License-Identifier: GPL-2.0-only

//! Placement: the CPU on which a task is to run.

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
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::{CpuMask, Domain, Topology};

/// With `low_power`, so many Batch tasks wait in the queue of a busy CPU before an idle CPU is
/// woken. Chosen: then three tasks share a CPU, which slows one hog and two less busy tasks hardly
/// at all.
const SAVING_DEPTH: u32 = 2;

/// Longest total slice of the tasks sent to a CPU's own queue in one round, behind which one more
/// task is sent there. No other CPU serves that queue, so behind long slices an urgent task waits
/// while other CPUs run less urgent tasks. Chosen: twice the time after which the fast path kicks a
/// CPU for a stranded task.
const AHEAD_MAX: Span = Span::from_micros(200);

/// The tasks sent to one CPU's own queue recently.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// How many tasks, as far as known.
    tasks: u32,
    /// When the last of them was sent.
    at: Stamp,
    /// When the CPU has run all of them if each uses up its slice.
    through: Stamp,
    /// The total slice of those sent in the same round as the last one.
    together: Span,
    /// The highest tier among them.
    tier: Tier,
}

/// Places tasks, and records how many it sent to each CPU.
pub struct Placer {
    topology: Topology,
    domain: Option<Domain>,
    sent: Vec<Sent>,
    /// The state before the last [`note`](Placer::note), to restore it if the dispatch is refused.
    before: Option<(CpuId, Sent)>,
}

/// What a placement depends on besides the task.
pub struct PlacementContext<'a> {
    /// The time of the round.
    pub now: Stamp,
    /// The state of the machine at this time.
    pub view: &'a MachineView,
    /// The detected mode: burst, long run, or neither.
    pub mode: Mode,
    /// The limits of the machine.
    pub limits: &'a Scaling,
    /// The knobs.
    pub knobs: &'a Knobs,
}

/// Where a task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub placement: Placement,
    /// The running task there must be preempted for it.
    pub kick: bool,
}

impl Placed {
    /// In the CPU's own queue, until the CPU serves it.
    fn at(cpu: CpuId) -> Placed {
        Placed { placement: Placement::Cpu(cpu), kick: false }
    }

    /// Where the task goes by its own request.
    fn usual(request: &Request, view: &MachineView, knobs: &Knobs) -> Placed {
        let (placement, kick) = usual_place(request, view, knobs.place_rules());
        Placed { placement, kick }
    }
}

impl Placer {
    /// A placer for this machine and domain.
    pub fn new(setup: &Setup) -> Placer {
        Placer {
            topology: setup.topology.with_room(),
            domain: setup.domain,
            sent: vec![Sent::default(); CPUS_MAX as usize],
            before: None,
        }
    }

    /// From now on the CPUs share what this topology says.
    pub fn follow_topology(&mut self, topology: &Topology) {
        self.topology.refill(topology.places().iter().copied());
    }

    /// Whether there is a domain.
    pub fn has_domain(&self) -> bool {
        self.domain.is_some()
    }

    /// Where the task goes. The result is that of [`usual_place`], unless a limit, a mode or a
    /// domain changes it: the task's `own`, else that of all tasks. `is_lone_wakee` tells whether
    /// the task has not run since it woke up and no other task waits for a decision.
    pub fn place(
        &self,
        request: &Request,
        tier: Tier,
        own: Option<&Domain>,
        context: &PlacementContext,
        is_lone_wakee: impl FnOnce() -> bool,
    ) -> Placed {
        let (view, knobs) = (context.view, context.knobs);
        let domain = own.or(self.domain.as_ref());
        if let Some(cpu) = domain.and_then(|it| self.place_in_domain(it, request, context)) {
            // The CPU on which the process decides is free when the round ends.
            let is_here = view.here == Some(cpu);
            let kick = request.kicked == Some(cpu) && !is_here && knobs.rules.preempt;
            return Placed { placement: Placement::Cpu(cpu), kick };
        }
        let near = match view.here {
            Some(here) if knobs.affinity == Affinity::Off => here,
            _ => request.cpu,
        };
        let anywhere = Placed { placement: Placement::Any { near }, kick: false };
        let usual = Placed::usual(request, view, knobs);
        // The depth gate comes before low power, which may choose the CPU of the scheduler process:
        // a full queue gets no further task in any mode.
        if !self.passes_depth_gate(usual.placement, request, tier, context) {
            return anywhere;
        }
        // Low power comes before the rest: the shared DSQ may wake an idle CPU, and an interrupted
        // CPU was interrupted only for the scheduler process.
        let saves = knobs.rules.low_power && tier == Tier::Batch;
        if saves && would_wake(request, view, is_lone_wakee) {
            return self.awake(request, context).map_or(anywhere, Placed::at);
        }
        let Placement::Cpu(_) = usual.placement else { return anywhere };
        // Wakees that an order queued wait in the shared DSQ, which a CPU serves after its own. A
        // CPU that is kicked for the task takes it at once.
        let is_beside_orders =
            tier == Tier::Batch && request.kicked.is_some() && knobs.gives_orders();
        if is_beside_orders && !usual.kick { anywhere } else { usual }
    }

    /// Whether the depth gate lets the task into the own queue of its CPU. The gate is only for
    /// tasks for which a CPU was interrupted.
    fn passes_depth_gate(
        &self,
        placement: Placement,
        request: &Request,
        tier: Tier,
        context: &PlacementContext,
    ) -> bool {
        let Placement::Cpu(cpu) = placement else { return true };
        let is_gated = request.kicked.is_some() && context.knobs.rules.depth_gate;
        !is_gated || self.has_space(cpu, tier, context)
    }

    /// A CPU that need not be woken for the task: the busy CPU with the fewest waiting tasks, of
    /// equals the nearest to the task's last CPU; else the CPU of the scheduler process.
    fn awake(&self, request: &Request, context: &PlacementContext) -> Option<CpuId> {
        let may = |cpu: &CpuId| may_use(request, *cpu);
        let busy = context.view.busy.iter();
        let waiting = |cpu: &CpuId| self.waiting_at(*cpu, context);
        let open = busy.filter(may).filter(|cpu| waiting(cpu) < SAVING_DEPTH);
        open.min_by_key(|cpu| (waiting(cpu), self.farness(*cpu, request)))
            .or(context.view.here.filter(may))
    }

    /// The CPU of the domain for the task; `None` if the task may not run in it, or if all its CPUs
    /// are busy and the domain is not strict.
    ///
    /// In this order: an idle CPU near the task's last one; the CPU of the scheduler process; the
    /// CPU that was kicked for the task; and, if the domain is strict, of those that run a task of
    /// this scheduler the CPU that has run its queued tasks soonest.
    fn place_in_domain(
        &self,
        domain: &Domain,
        request: &Request,
        context: &PlacementContext,
    ) -> Option<CpuId> {
        let may = |cpu: &CpuId| match request.allowed {
            Some(allowed) => allowed.contains(*cpu),
            None => request.cpus_allowed >= context.view.cpus,
        };
        let usable = || domain.cpus.iter().filter(may);
        if request.cpus_allowed == 1 || usable().next().is_none() {
            return None;
        }
        let free = |cpu: &CpuId| self.waiting_at(*cpu, context) == 0;
        let idle = usable().filter(|cpu| context.view.idle.contains(*cpu)).filter(free);
        let busy_cores = self.busy_cores(context);
        let has_busy_sibling =
            |cpu: CpuId| self.core(cpu).is_some_and(|core| busy_cores.contains(core));
        let worse = |cpu: &CpuId| (has_busy_sibling(*cpu), self.farness(*cpu, request));
        let inside = |cpu: &CpuId| domain.cpus.contains(*cpu) && may(cpu);
        idle.min_by_key(worse)
            .or(context.view.here.filter(inside).filter(free))
            .or(request.kicked.filter(inside))
            .or_else(|| {
                // A CPU that runs no task of this scheduler may be offline, or a real-time task's.
                let soonest = |cpu: &CpuId| {
                    let is_ours = context.view.busy.contains(*cpu);
                    (!is_ours, self.sent[cpu.as_raw() as usize].through)
                };
                usable().filter(|_| domain.strict).min_by_key(soonest)
            })
    }

    /// How far the CPU is from the task's last CPU: the same, one with the same cache, or another.
    fn farness(&self, cpu: CpuId, request: &Request) -> (bool, bool) {
        (cpu != request.cpu, !self.topology.shares_l2(cpu, request.cpu))
    }

    /// The cores with a CPU that is not idle. An idle CPU of such a core has a busy SMT sibling:
    /// half a core is slower than a whole core with a cold cache.
    fn busy_cores(&self, context: &PlacementContext) -> CpuMask {
        let cpus = (0..self.topology.cpus() as i32).filter_map(CpuId::new);
        let busy = cpus.filter(|cpu| !context.view.idle.contains(*cpu));
        busy.filter_map(|cpu| self.core(cpu)).collect()
    }

    /// The core of a CPU, if it is known. There are no more cores than CPUs.
    fn core(&self, cpu: CpuId) -> Option<CpuId> {
        CpuId::new(self.topology.place(cpu).core.into())
    }

    /// Whether one more task may wait in the CPU's own queue: few tasks are in it, and their slices
    /// are short. A task of a higher tier comes before all of them. In the shared queue it would
    /// come after them, because a CPU serves its own queue first.
    fn has_space(&self, cpu: CpuId, tier: Tier, context: &PlacementContext) -> bool {
        let sent = self.sent[cpu.as_raw() as usize];
        if tier > sent.tier {
            return true;
        }
        if sent.at == context.now && sent.together > AHEAD_MAX {
            return false;
        }
        // During a burst one task at most, so that its tasks spread over all CPUs.
        let depth = if context.mode.shallow_queues() { 1 } else { context.limits.private_depth };
        self.waiting_at(cpu, context) < depth
    }

    /// How many of the tasks sent to the CPU's own queue may still be in it. After a slice the CPU
    /// has served its queue.
    fn waiting_at(&self, cpu: CpuId, context: &PlacementContext) -> u32 {
        let sent = self.sent[cpu.as_raw() as usize];
        if context.now.since(sent.at) >= context.knobs.slice { 0 } else { sent.tasks }
    }

    /// Records that a task of this tier was sent with this slice.
    pub fn note(
        &mut self,
        placement: Placement,
        tier: Tier,
        slice: Span,
        context: &PlacementContext,
    ) {
        self.before = None;
        let Placement::Cpu(cpu) = placement else { return };
        let waiting = self.waiting_at(cpu, context);
        let cell = &mut self.sent[cpu.as_raw() as usize];
        let tier = if waiting == 0 { tier } else { cell.tier.max(tier) };
        self.before = Some((cpu, *cell));
        let through = cell.through.max(context.now) + slice;
        let together = if cell.at == context.now { cell.together } else { Span::ZERO } + slice;
        *cell = Sent { tasks: waiting + 1, at: context.now, through, together, tier };
    }

    /// Undoes the last [`note`](Placer::note), because the dispatch was refused.
    pub fn forget(&mut self) {
        if let Some((cpu, before)) = self.before.take() {
            self.sent[cpu.as_raw() as usize] = before;
        }
    }

    /// The first task of the queue, or a task shortly behind it with its cache or memory nearer to
    /// the CPU of the scheduler process, which becomes free. `last_cpu` returns the last CPU of a
    /// task.
    pub fn nearest(
        &self,
        queue: &Runqueue,
        context: &PlacementContext,
        last_cpu: impl Fn(Slot) -> Option<CpuId>,
    ) -> Option<Slot> {
        let (first, key) = queue.peek()?;
        let Some(here) = context.view.here else { return Some(first) };
        let strong = context.knobs.affinity == Affinity::Strong && !context.mode.weak_affinity();
        let node = context.knobs.rules.numa && self.topology.nodes() > 1;
        if !strong && !node {
            return Some(first);
        }
        // So far in virtual time a task may overtake the first one because it is near.
        let last_key = key.after(context.knobs.slice);
        let rank = |slot: Slot| -> u8 {
            let Some(cpu) = last_cpu(slot) else { return 2 };
            match () {
                () if strong && self.topology.shares_l2(cpu, here) => 0,
                () if node && self.topology.place(cpu).node == self.topology.place(here).node => 1,
                () => 2,
            }
        };
        // Of equal rank the first task comes first.
        let near = queue.front().take_while(|(_, key)| *key <= last_key);
        near.map(|(slot, _)| slot).min_by_key(|slot| rank(*slot))
    }
}

/// Whether an idle CPU would be woken for the task. That of the scheduler process would idle too
/// after a round for a lone wakee: a task that it has interrupted would wait for a decision. Not
/// while decided tasks wait in the shared queue: a CPU serves its own queue first, so tasks that
/// may use no idle CPU would starve there.
fn would_wake(request: &Request, view: &MachineView, is_lone_wakee: impl FnOnce() -> bool) -> bool {
    let mut others = view.idle.iter().filter(|cpu| view.here != Some(*cpu));
    let may_use_here = || view.here.is_some_and(|here| may_use(request, here));
    view.queued == 0
        && (others.any(|cpu| may_use(request, cpu)) || may_use_here() && is_lone_wakee())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::facts::CpuSet;
    use pandemonium_engine::task::{Pid, Ticket};
    use pandemonium_engine::time::Vtime;
    use pandemonium_engine::topology::CpuPlace;

    fn cpu(number: i32) -> CpuId {
        CpuId::new(number).unwrap()
    }

    fn cpus(bits: u64) -> CpuMask {
        (0..64).filter(|number| bits >> number & 1 == 1).map(cpu).collect()
    }

    /// A task that ran on CPU 1 and may use CPUs 1 and 2.
    fn request(kicked: Option<i32>) -> Request {
        Request {
            pid: Pid::new(1).unwrap(),
            ticket: Ticket(2),
            cpu: cpu(1),
            cpus_allowed: 2,
            allowed: Some(CpuSet::first_64(0b110)),
            kicked: kicked.map(cpu),
        }
    }

    fn view(here: i32) -> MachineView {
        MachineView { cpus: 4, running: 4, here: Some(cpu(here)), ..MachineView::default() }
    }

    const ANYWHERE: Placed =
        Placed { placement: Placement::Any { near: CpuId::new(1).unwrap() }, kick: false };

    fn at(number: i32) -> Placed {
        Placed::at(cpu(number))
    }

    fn kicked_at(number: i32) -> Placed {
        Placed { kick: true, ..at(number) }
    }

    /// The placement by a placer that sent `sent` tasks to CPU 2 100 us ago.
    fn placed(
        sent: u32,
        tier: Tier,
        request: &Request,
        view: &MachineView,
        knobs: &Knobs,
    ) -> Placed {
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
            let then = context(1 << 30, &usual);
            placer.note(Placement::Cpu(cpu(2)), Tier::LatCritical, usual.slice, &then);
        }
        placer.place(request, tier, None, &context((1 << 30) + 100_000, knobs), || false)
    }

    #[test]
    fn after_a_kick_the_task_goes_to_the_cpu_of_the_scheduler_process_if_allowed() {
        let knobs = Knobs::default();
        let placed = |here| Placed::usual(&request(Some(1)), &view(here), &knobs);
        assert_eq!(placed(2), at(2));
        // The task may not use that CPU, so the interrupted CPU is interrupted again.
        assert_eq!(placed(3), kicked_at(1));
        let unknown = Request { allowed: None, ..request(Some(1)) };
        assert_eq!(Placed::usual(&unknown, &view(2), &knobs), kicked_at(1));
        let mut no_preempt = knobs;
        no_preempt.rules.preempt = false;
        assert_eq!(Placed::usual(&unknown, &view(2), &no_preempt), at(1));
    }

    #[test]
    fn without_a_kick_the_task_goes_to_any_cpu_unless_it_is_bound_to_one() {
        let local = Knobs { percpu_local: true, ..Knobs::default() };
        let bound = Request { cpus_allowed: 1, ..request(None) };
        assert_eq!(Placed::usual(&request(None), &view(2), &local), ANYWHERE);
        assert_eq!(Placed::usual(&bound, &view(2), &Knobs::default()), ANYWHERE);
        assert_eq!(Placed::usual(&bound, &view(2), &local), at(1));
    }

    /// A CPU serves its own queue first, and wakees that an order queued are in the shared one.
    #[test]
    fn with_orders_a_batch_task_waits_in_no_own_queue_unless_that_cpu_is_kicked() {
        let mut without = Knobs::default();
        without.rules.orders = false;
        let placed_at =
            |here, tier, knobs: &Knobs| placed(0, tier, &request(Some(1)), &view(here), knobs);
        let (own, with) = (at(2), Knobs::default());
        assert_eq!(placed_at(2, Tier::Batch, &without), own);
        assert_eq!(placed_at(2, Tier::Batch, &with), ANYWHERE);
        assert_eq!(placed_at(2, Tier::Interactive, &with), own);
        assert_eq!(placed_at(3, Tier::Batch, &with), kicked_at(1));
    }

    /// Two tasks with a kick are decided in one round. The CPU is free for the first of them.
    #[test]
    fn no_task_is_queued_behind_a_long_slice_of_the_same_round() {
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
            let slice = Span::from_micros(slice_us);
            placer.note(Placement::Cpu(cpu(2)), Tier::LatCritical, slice, &context(0));
            placer.place(&request(Some(1)), Tier::LatCritical, None, &context(later), || false)
        };
        assert_eq!(second(150, 0), at(2));
        assert_eq!(second(1_000, 0), ANYWHERE);
        assert_eq!(second(1_000, 20_000), at(2), "another round");
    }

    #[test]
    fn a_full_queue_sends_the_next_task_elsewhere() {
        let (kicked, view, knobs) = (request(Some(2)), view(2), Knobs::default());
        let here = at(2);
        let at_depth = |sent, knobs: &Knobs| placed(sent, Tier::Interactive, &kicked, &view, knobs);
        assert_eq!([at_depth(1, &knobs), at_depth(2, &knobs)], [here, ANYWHERE]);
        let mut open = knobs;
        open.rules.depth_gate = false;
        assert_eq!(at_depth(2, &open), here);
        // 100 us are a whole slice here, so the CPU has served its queue.
        let quick = Knobs { slice: Span::from_micros(100), ..knobs };
        assert_eq!(at_depth(2, &quick), here);
    }

    #[test]
    fn low_power_wakes_no_cpu_for_batch() {
        let mut saving = Knobs::default();
        saving.rules.low_power = true;
        let idle = MachineView { running: 2, idle: cpus(0b10), ..view(2) };
        let here = at(2);
        let asked = |tier, view: &MachineView, knobs| placed(0, tier, &request(None), view, knobs);
        assert_eq!(asked(Tier::Batch, &idle, &saving), here);
        let beside = MachineView { idle: cpus(0b100), busy: cpus(0b1010), ..view(0) };
        let on_one = at(1);
        assert_eq!(
            asked(Tier::Batch, &beside, &saving),
            on_one,
            "1 is busy, and the task may not use 3"
        );
        let kicked = placed(0, Tier::Batch, &request(Some(2)), &beside, &saving);
        assert_eq!(kicked, on_one, "2 was interrupted only for the scheduler process");
        assert_eq!(asked(Tier::LatCritical, &idle, &saving), ANYWHERE);
        assert_eq!(asked(Tier::Batch, &view(2), &saving), ANYWHERE, "no CPU is idle");
        let bound = MachineView { idle: cpus(0b1001), ..beside };
        assert_eq!(asked(Tier::Batch, &bound, &saving), ANYWHERE, "the task may use no idle CPU");
        let alone = MachineView { here: Some(cpu(2)), ..beside };
        assert_eq!(asked(Tier::Batch, &alone, &saving), ANYWHERE, "2 is awake");
        assert!(would_wake(&request(None), &alone, || true), "2 is awake for this task only");
        let queued = MachineView { queued: 1, ..beside };
        assert_eq!(asked(Tier::Batch, &queued, &saving), ANYWHERE, "another task would starve");
        assert_eq!(asked(Tier::Batch, &idle, &Knobs::default()), ANYWHERE);
    }

    #[test]
    fn with_affinity_off_the_search_starts_at_the_cpu_of_the_scheduler_process() {
        let off = Knobs { affinity: Affinity::Off, ..Knobs::default() };
        let near_here = Placed { placement: Placement::Any { near: cpu(3) }, kick: false };
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
    fn a_task_near_the_free_cpu_overtakes_one_with_a_slightly_smaller_key() {
        let placer = Placer::new(&Setup { topology: topology(), ..Setup::of_cpus(8) });
        let mut queue = Runqueue::new(8);
        // Slot and last CPU have the same number. The keys order 6, then 3 and 2 shortly after,
        // then 1.
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
        assert_eq!(picked(0, Affinity::Strong, false), 3, "1 is too far behind, 3 is on the node");
        assert_eq!(picked(7, Affinity::Strong, false), 6);
        assert_eq!(picked(2, Affinity::Weak, false), 3, "the node counts without the cache");
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
        let (limits, knobs) = (Scaling::new(4), Knobs::default());
        let now = Stamp::from_nanos(1 << 30);
        let mode = Mode::default();
        let context = PlacementContext { now, view, mode, limits: &limits, knobs: &knobs };
        let mut placer = Placer::new(&Setup::of_cpus(4));
        for &number in sent {
            placer.note(Placement::Cpu(cpu(number)), Tier::Batch, knobs.slice, &context);
        }
        placer.place_in_domain(&domain, request, &context).map(CpuId::as_raw)
    }

    #[test]
    fn tasks_stay_in_the_domain_until_it_is_saturated() {
        let wide =
            Request { cpus_allowed: 3, allowed: Some(CpuSet::first_64(0b0111)), ..request(None) };
        let idle = |mask, here| MachineView { idle: cpus(mask), ..view(here) };
        assert_eq!(in_domain(false, &wide, &idle(0b1110, 1), &[]), Some(2), "not 1 or 3");
        assert_eq!(in_domain(false, &wide, &idle(0b0101, 1), &[]), Some(0));
        assert_eq!(
            in_domain(false, &wide, &idle(0b0101, 1), &[0]),
            Some(2),
            "a task was just sent to 0"
        );
        assert_eq!(
            in_domain(false, &wide, &idle(0b0010, 2), &[]),
            Some(2),
            "2 runs the scheduler process"
        );
        assert_eq!(in_domain(false, &wide, &idle(0b0010, 1), &[]), None, "saturated");
        let kicked = Request { kicked: Some(cpu(0)), ..wide };
        assert_eq!(in_domain(false, &kicked, &idle(0b0010, 1), &[]), Some(0));
        let narrow = Request { allowed: Some(CpuSet::first_64(0b1010)), ..wide };
        assert_eq!(
            in_domain(false, &narrow, &idle(0b1111, 1), &[]),
            None,
            "it may not use the domain"
        );
    }

    /// CPUs 0 and 1 are one core, 2 and 3 another.
    #[test]
    fn an_idle_core_comes_before_an_idle_sibling_of_a_busy_cpu() {
        let place = |number: u16| CpuPlace { core: number / 2, l2: number / 2, llc: 0, node: 0 };
        let topology = Topology::new((0..4).map(place).collect());
        let domain = Domain { cpus: (0..4).map(cpu).collect(), strict: false };
        let placer = Placer::new(&Setup { topology, ..Setup::of_cpus(4) });
        let (limits, knobs) = (Scaling::new(4), Knobs::default());
        let placed = |idle| {
            let view = MachineView { idle: cpus(idle), ..view(0) };
            let (now, mode) = (Stamp::from_nanos(1 << 30), Mode::default());
            let context =
                PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
            let request = Request {
                cpus_allowed: 4,
                allowed: Some(CpuSet::first_64(0b1111)),
                ..request(None)
            };
            placer.place_in_domain(&domain, &request, &context).map(CpuId::as_raw)
        };
        assert_eq!(request(None).cpu, cpu(1));
        assert_eq!(placed(0b1111), Some(1), "where it ran");
        assert_eq!(placed(0b1110), Some(2), "0 is busy");
        assert_eq!(placed(0b1010), Some(1), "no core is idle");
    }

    #[test]
    fn a_domain_of_its_own_replaces_that_of_all_tasks() {
        let of = |number| Domain { cpus: [cpu(number)].into_iter().collect(), strict: true };
        let placer = Placer::new(&Setup { domain: Some(of(0)), ..Setup::of_cpus(4) });
        let (limits, knobs, view) = (Scaling::new(4), Knobs::default(), view(1));
        let (now, mode) = (Stamp::from_nanos(1 << 30), Mode::default());
        let context = PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
        let request = Request { cpus_allowed: 4, allowed: Some(CpuSet::ALL), ..request(None) };
        let placed = |own| placer.place(&request, Tier::Batch, own, &context, || false);
        assert_eq!(placed(None), at(0));
        assert_eq!(placed(Some(&of(3))), at(3));
    }

    #[test]
    fn in_a_domain_too_the_cpu_of_the_scheduler_process_is_not_kicked() {
        let domain = Domain { cpus: cpus(0b100), strict: true };
        let placer = Placer::new(&Setup { domain: Some(domain), ..Setup::of_cpus(4) });
        let (limits, knobs) = (Scaling::new(4), Knobs::default());
        let (now, mode) = (Stamp::from_nanos(1 << 30), Mode::default());
        let placed = |here| {
            let view = view(here);
            let context =
                PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
            placer.place(&request(Some(2)), Tier::LatCritical, None, &context, || false)
        };
        assert_eq!(placed(2), at(2));
        assert_eq!(placed(1), kicked_at(2));
    }

    #[test]
    fn tasks_never_leave_a_strict_domain_unless_they_are_pinned_outside() {
        let wide =
            Request { cpus_allowed: 4, allowed: Some(CpuSet::first_64(0b1111)), ..request(None) };
        let idle = MachineView { idle: cpus(0b1010), ..view(1) };
        assert_eq!(in_domain(true, &wide, &idle, &[]), Some(0));
        assert_eq!(in_domain(true, &wide, &idle, &[0]), Some(2), "2 is free sooner");
        assert_eq!(in_domain(true, &wide, &idle, &[0, 2, 2]), Some(0));
        let without_0 = MachineView { busy: cpus(0b0100), ..idle };
        assert_eq!(in_domain(true, &wide, &without_0, &[2]), Some(2), "0 is offline");
        let pinned = Request { cpus_allowed: 1, allowed: Some(CpuSet::first_64(0b1000)), ..wide };
        assert_eq!(in_domain(true, &pinned, &idle, &[]), None);
        let unknown = Request { allowed: None, ..wide };
        assert_eq!(in_domain(true, &unknown, &idle, &[]), Some(0), "it may use all CPUs");
    }

    #[test]
    fn a_refused_dispatch_is_not_counted() {
        let limits = Scaling::new(2);
        let knobs = Knobs::default();
        let view = view(2);
        let now = Stamp::from_nanos(1 << 30);
        let mode = Mode::default();
        let context = PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
        let mut placer = Placer::new(&Setup::of_cpus(2));
        let has_space = |placer: &Placer, tier| placer.has_space(cpu(2), tier, &context);
        placer.note(Placement::Cpu(cpu(2)), Tier::Interactive, knobs.slice, &context);
        assert!(!has_space(&placer, Tier::Interactive));
        placer.forget();
        assert!(has_space(&placer, Tier::Interactive));
    }

    /// New tasks fill the queue of the CPU that is kicked for an urgent wakee.
    #[test]
    fn a_task_goes_into_a_full_queue_of_lower_tiers() {
        let (limits, knobs, view) = (Scaling::new(4), Knobs::default(), view(2));
        let now = Stamp::from_nanos(1 << 30);
        let mode = Mode::default();
        let context = PlacementContext { now, view: &view, mode, limits: &limits, knobs: &knobs };
        let mut placer = Placer::new(&Setup::of_cpus(4));
        let mut send = |tier| {
            let placed = placer.place(&request(Some(1)), tier, None, &context, || false);
            placer.note(placed.placement, tier, knobs.slice, &context);
            placed
        };
        let own = at(2);
        assert_eq!([send(Tier::Interactive), send(Tier::Interactive)], [own, ANYWHERE]);
        assert_eq!([send(Tier::LatCritical), send(Tier::LatCritical)], [own, ANYWHERE]);
        assert_eq!(send(Tier::Interactive), ANYWHERE);
    }
}
