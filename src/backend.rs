// SPDX-License-Identifier: GPL-2.0-only

//! The kernel as a [`Port`]: the BPF backend of `scx_rustland_core`.
//!
//! This is the only module that uses names generated for the backend. No round allocates: the
//! connector builds an error value when the ring is full, so the two calls of a round that may meet
//! a full ring go straight to libbpf here.

mod connector;
mod domains;
mod exit_texts;
mod offline;
mod orders;
mod performance;
mod stalls;

use self::domains::{CpuSets, Domains};
use self::offline::OfflineCpus;
pub use self::orders::OrderCounters;
pub use self::stalls::{StallCause, StallCounters};
use super::fast_path::{FastPath, Settings, occupant};
use super::fast_path_counters::FastPathCounters;
use super::{clock, syscall_program};
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Pid, Placement, RawArrival, Tier};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::topology::CpuMask;
use pandemonium_engine::{Full, MachineView, Port};
use pandemonium_host::ejection::Ejection;
use pandemonium_host::failure::Failure;
use std::mem::MaybeUninit;

#[allow(missing_docs, non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used)]
pub mod bpf_intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used)]
pub mod bpf_skel {
    include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
}

use self::connector::{BpfScheduler, QueuedTask, RL_CPU_ANY};
pub use libbpf_rs::OpenObject;
use libbpf_rs::libbpf_sys;

/// The setup of the backend, fixed while it is loaded.
#[derive(Clone, Debug)]
pub struct BackendSetup {
    /// The scheduler's name in the kernel: `/sys/kernel/sched_ext/root/ops`.
    pub name: String,
    /// The backend places a woken task on an idle CPU itself, and does not queue it to user space.
    pub builtin_idle: bool,
    /// Only tasks of the SCHED_EXT class are scheduled.
    pub partial: bool,
    /// The backend looks for idle CPUs in the task's NUMA node only.
    pub numa_local: bool,
    /// Bytes of the kernel's debug dump after an error.
    pub exit_dump_len: u32,
    /// Slice of tasks that the backend places itself, in nanoseconds.
    pub slice_ns: u64,
    /// The domain: CPUs that tasks prefer; none if there is no domain. A task outside the domain is
    /// queued to user space again at the end of its slice, if a CPU inside is idle.
    pub domain: CpuMask,
    /// Whether the user asks for a domain, also if it has all CPUs that are online.
    pub wants_domain: bool,
}

/// Why the backend was unloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A signal asked the process to end.
    Signal,
    /// The backend or the kernel asks for a restart: a CPU went on- or offline.
    Restart,
    /// The kernel ejected the scheduler.
    Ejected(Box<Ejection>),
}

/// The backend's counters since its load.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelCounters {
    /// Tasks that it placed itself.
    pub dispatches: u64,
    /// Decisions that it dropped.
    pub cancelled: u64,
    /// Decisions for which it used another CPU.
    pub bounced: u64,
    /// Tasks that found the ring to user space full.
    pub congested: u64,
}

/// What the scheduler process does, for the backend patches: `enum patch_activity` of
/// src/bpf/backend_limits.h. While it does not decide, the backend queues no task to it.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Activity {
    NotDeciding = bpf_intf::patch_activity_PATCH_NOT_DECIDING,
    Deciding = bpf_intf::patch_activity_PATCH_DECIDING,
    Resting = bpf_intf::patch_activity_PATCH_RESTING,
}

/// The loaded backend.
pub struct KernelPort<'cb> {
    /// The fast path: facts and kicks. `None` with `--full-user`, or if the kernel refuses it.
    fast: Option<FastPath<'cb>>,
    bpf: BpfScheduler<'cb>,
    view: MachineView,
    sets: CpuSets,
    domains: Domains,
    /// Whether the policy places all tasks, and needs to know which CPUs are idle and which are
    /// busy.
    places_all: bool,
    /// When the round began. The clock is read once for this, because on a machine with a slow
    /// clock each reading adds latency.
    begun: Stamp,
    /// When the round sent its first decision; read once too.
    sent: Option<Stamp>,
    /// Whether orders may be executed: the fast path observes wakeups and switches.
    may_order: bool,
    /// The backend's count of congestion when the first round began: before that a patch made it
    /// queue every task itself, which it counts as congestion.
    congested_before: Option<u64>,
    stalls: StallCounters,
    offline: OfflineCpus,
    /// Messages that were malformed, or that the ring could not deliver.
    pub malformed: u64,
}

impl<'cb> KernelPort<'cb> {
    /// Loads the backend. From here on all memory of the process is locked and `mmap` fails.
    pub fn load(
        open_object: &'cb mut MaybeUninit<OpenObject>,
        libbpf_options: Option<libbpf_sys::bpf_object_open_opts>,
        setup: &BackendSetup,
        fast: Option<FastPath<'cb>>,
        verbose: bool,
    ) -> Result<Self, Failure> {
        let bpf = BpfScheduler::init(
            open_object,
            libbpf_options,
            setup.exit_dump_len,
            setup.partial,
            verbose,
            setup.builtin_idle,
            setup.numa_local,
            setup.slice_ns,
            &setup.name,
        )
        .map_err(|error| Failure::Refused(format!("{error:#}")))?;
        let view = MachineView::default();
        let places_all = !setup.builtin_idle;
        let begun = clock::now();
        let may_order = setup.builtin_idle && fast.as_ref().is_some_and(FastPath::sees_all);
        let mut port = KernelPort {
            fast,
            bpf,
            view,
            sets: CpuSets::default(),
            domains: Domains::default(),
            places_all,
            begun,
            sent: None,
            may_order,
            congested_before: None,
            stalls: StallCounters::default(),
            offline: OfflineCpus::default(),
            malformed: 0,
        };
        // Without a fast path the policy does not see idle CPUs, and could not use the domain.
        if let (Some(_), Some(bss)) = (&port.fast, &mut port.bpf.skel.maps.bss_data) {
            bss.patch_set_words[bpf_intf::patch_set_numbers_PATCH_SET_PRIMARY as usize] =
                *setup.domain.words();
            bss.patch_has_domain = (!setup.domain.is_empty()).into();
            bss.order_bounds.nr_cpus = *scx_utils::NR_CPU_IDS as u32;
        }
        if let Some(bss) = &mut port.bpf.skel.maps.bss_data {
            bss.patch_wants_domain = setup.wants_domain.into();
            bss.patch_nr_groups = (*scx_utils::NR_CPU_IDS).div_ceil(64) as u32;
        }
        port.refresh_view();
        Ok(port)
    }

    /// Begins a round. Until [`rest`](Self::rest) the backend sees work for this process:
    /// otherwise, if it were preempted after it has emptied the ring, it would wait for the next
    /// message or the heartbeat. Returns whether CPUs have come or gone; true at first.
    pub fn begin(&mut self, now: Stamp) -> bool {
        self.begun = now;
        self.sent = None;
        *self.bpf.nr_scheduled_mut() = 1;
        if let Some(bss) = &mut self.bpf.skel.maps.bss_data {
            StallCounters::begin_round(bss);
        }
        self.set_activity(Activity::Deciding);
        self.congested_before.get_or_insert(*self.bpf.nr_sched_congested_mut());
        self.sets.take(&self.bpf);
        let has_changed = self.follow_hotplug();
        self.refresh_view();
        has_changed
    }

    /// Publishes what this process does: in the middle of a round a late kick must not replace it
    /// by a task that waits for its decisions.
    fn set_activity(&mut self, activity: Activity) {
        if let Some(bss) = &mut self.bpf.skel.maps.bss_data {
            let word = activity as u32;
            // SAFETY: a reference to live memory, written as volatile because the kernel reads it.
            unsafe { std::ptr::write_volatile(&mut bss.patch_activity, word) };
        }
    }

    /// Refreshes the view of the machine, by loads from memory shared with the kernel.
    fn refresh_view(&mut self) {
        let needs_occupancy = self.places_all || !self.domains.are_empty();
        let fast = self.fast.as_ref().filter(|fast| needs_occupancy || fast.saves_power());
        let (idle, busy) = fast.map(FastPath::occupancy).unwrap_or_default();
        let counts = self.bpf.skel.maps.bss_data.as_deref().map(orders::counts).unwrap_or_default();
        self.view = MachineView {
            cpus: *self.bpf.nr_online_cpus_mut() as u32,
            running: *self.bpf.nr_running_mut() as u32,
            // SAFETY: a plain call without arguments; no system call.
            here: CpuId::new(unsafe { libc::sched_getcpu() }),
            idle,
            busy,
            order_deficit: counts.order_deficit,
            queued: counts.queued,
        };
    }

    /// The next task that has exited. Returns `None` after a bounded number of tasks.
    pub fn next_exit(&mut self) -> Option<Pid> {
        self.fast.as_mut().and_then(FastPath::next_exit)
    }

    /// The programs that were executed, as far as that was reported.
    pub fn execs(&self) -> u64 {
        self.fast.as_ref().map_or(0, FastPath::execs)
    }

    /// Tells the backend the settings, by stores if something has changed.
    pub fn set(&mut self, settings: Settings) {
        if let Some(bss) = &mut self.bpf.skel.maps.bss_data {
            stalls::set_slice(bss, settings.batch_slice);
            performance::lower(bss, settings.lowered);
            // Without a fast path the policy does not see which CPUs are busy.
            performance::save_power(bss, !settings.wakes_idle && self.fast.is_some());
        }
        if let Some(fast) = &mut self.fast {
            fast.set(settings);
        }
    }

    /// Ends a round: publishes that tasks still wait for a decision, the most urgent of which is of
    /// this tier, and gives up the CPU. The backend runs this process again at the next dispatch.
    /// If only Batch tasks wait, and orders are executed, it does so when no decided task is left.
    pub fn rest(&mut self, waiting: Option<Tier>) {
        if let Some(bss) = &mut self.bpf.skel.maps.bss_data {
            orders::rest(bss, waiting);
            self.stalls.end_round(bss);
        }
        self.set_activity(Activity::Resting);
        self.bpf.notify_complete(0);
    }

    /// Whether there is a reason to stop.
    pub fn ended(&self) -> bool {
        self.bpf.signalled() || self.exit_kind() != 0
    }

    /// The backend's counters.
    pub fn counters(&mut self) -> KernelCounters {
        KernelCounters {
            dispatches: *self.bpf.nr_kernel_dispatches_mut(),
            cancelled: *self.bpf.nr_cancel_dispatches_mut(),
            bounced: *self.bpf.nr_bounce_dispatches_mut(),
            congested: *self.bpf.nr_sched_congested_mut()
                - self.congested_before.unwrap_or_default(),
        }
    }

    /// The counters of standing orders.
    pub fn order_counters(&self) -> OrderCounters {
        self.bpf.skel.maps.bss_data.as_deref().map(orders::counters).unwrap_or_default()
    }

    /// How often a CPU was asked for another performance.
    pub fn performance_changes(&self) -> u64 {
        self.bpf.skel.maps.bss_data.as_deref().map_or(0, performance::changes)
    }

    /// The stalls of this process.
    pub fn stall_counters(&self) -> StallCounters {
        self.stalls
    }

    /// The fast path's counters, if it is loaded.
    pub fn fast_path_counters(&self) -> Option<FastPathCounters> {
        self.fast.as_ref().map(FastPath::counters)
    }

    /// Unloads the backend, and returns why it ended.
    pub fn unload(mut self) -> End {
        // While it unloads, the kernel always writes a reason: only one from before counts.
        let by_kernel = self.exit_kind() != 0;
        self.set_activity(Activity::NotDeciding);
        self.bpf.unload();
        if !by_kernel {
            return End::Signal;
        }
        let Some(data) = self.bpf.skel.maps.data_data.as_deref() else { return End::Signal };
        let info = scx_utils::UserExitInfo::new(
            &data.uei.kind,
            &data.uei.exit_code,
            std::ptr::null(),
            // It panics on text that is not UTF-8, and `text` reads the text itself.
            c"".as_ptr(),
            c"".as_ptr(),
            std::ptr::null(),
        );
        if info.should_restart() {
            return End::Restart;
        }
        End::Ejected(Box::new(Ejection {
            kind: data.uei.kind as u32,
            reason: exit_texts::text(&data.uei.reason),
            message: exit_texts::text(&data.uei.msg),
            dump: exit_texts::dump().unwrap_or_default(),
            gap_ns: 0,
        }))
    }

    fn exit_kind(&self) -> i32 {
        let data = self.bpf.skel.maps.data_data.as_deref();
        // SAFETY: a reference to live memory, read as volatile because the kernel writes it.
        data.map_or(0, |data| unsafe { std::ptr::read_volatile(&data.uei.kind) })
    }

    /// The CPU for a decision: for any placement an idle CPU, if there may be one, else
    /// `RL_CPU_ANY`.
    fn resolve(&self, pid: Pid, placement: Placement) -> i32 {
        match placement {
            Placement::Cpu(cpu) => cpu.as_raw(),
            // For `RL_CPU_ANY` the backend wakes the task's previous CPU only, so another idle CPU
            // has to be named.
            Placement::Any { near } if self.view.running + 1 < self.view.cpus => {
                self.claim_idle(pid, near).unwrap_or(RL_CPU_ANY)
            }
            Placement::Any { .. } => RL_CPU_ANY,
        }
    }

    /// An idle CPU that the task may use, close to `near`. One system call.
    fn claim_idle(&self, pid: Pid, near: CpuId) -> Option<i32> {
        let mut argument =
            bpf_intf::task_cpu_arg { pid: pid.as_raw(), cpu: near.as_raw(), flags: 0 };
        let cpu = syscall_program::run(&self.bpf.skel.progs.rs_select_cpu, &mut argument);
        cpu.filter(|cpu| *cpu >= 0)
    }
}

/// The key of the decision. Its low bits tell the backend the tier.
fn key(dispatch: &Dispatch) -> u64 {
    let key = dispatch.vtime.as_raw() & !u64::from(bpf_intf::backend_limits_PATCH_KEY_TIER);
    key | u64::from(occupant(dispatch.tier))
}

impl Port for KernelPort<'_> {
    fn recv(&mut self) -> Option<Arrival> {
        loop {
            let asked = self.bpf.skel.maps.bss_data.as_deref().map_or(0, stalls::asked);
            match self.bpf.dequeue_task() {
                Ok(Some(task)) => match raw(&task).decode() {
                    Ok(mut arrival) => {
                        let fast = self.fast.as_mut();
                        arrival.facts = fast.and_then(|fast| fast.receive(arrival.pid, self.begun));
                        let bss = self.bpf.skel.maps.bss_data.as_mut();
                        if let (Some(facts), Some(bss)) = (&mut arrival.facts, bss) {
                            orders::add_facts(bss, arrival.pid, facts);
                        }
                        return Some(arrival);
                    }
                    Err(_) => self.malformed += 1,
                },
                Ok(None) => {
                    self.stalls.note_empty(asked);
                    return None;
                }
                Err(_) => {
                    self.malformed += 1;
                    return None;
                }
            }
        }
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        let cpu = self.resolve(dispatch.pid, dispatch.placement);
        let ring = self.bpf.user_ring();
        let size = size_of::<bpf_intf::dispatched_task_ctx>() as u32;
        // SAFETY: the ring lives as long as `self`; it returns null or `size` writable bytes,
        // aligned to eight, which are submitted before anything else touches the ring.
        unsafe {
            let sample = libbpf_sys::user_ring_buffer__reserve(ring, size);
            if sample.is_null() {
                return Err(Full);
            }
            // Before the kernel can act on the decision.
            if let Some(fast) = &mut self.fast {
                let now = *self.sent.get_or_insert_with(clock::now);
                fast.sent(dispatch.pid, dispatch.tier, now);
                if let Some(bss) = &mut self.bpf.skel.maps.bss_data {
                    orders::post(bss, dispatch, self.begun);
                }
            }
            sample.cast::<bpf_intf::dispatched_task_ctx>().write(bpf_intf::dispatched_task_ctx {
                pid: dispatch.pid.as_raw(),
                cpu,
                flags: 0,
                slice_ns: dispatch.slice.as_nanos(),
                vtime: key(dispatch),
                enq_cnt: dispatch.ticket.0,
            });
            libbpf_sys::user_ring_buffer__submit(ring, sample);
        }
        Ok(())
    }

    /// The backend kicks idle CPUs only, so without a fast path this does nothing.
    fn kick(&mut self, cpu: CpuId) {
        if let Some(fast) = &self.fast {
            fast.kick(cpu);
        }
    }

    fn publish(&mut self, bounds: Option<&Bounds>) {
        let may_order = self.may_order;
        if let Some(bss) = &mut self.bpf.skel.maps.bss_data {
            orders::publish(bss, bounds.filter(|_| may_order));
        }
    }

    fn view(&self) -> &MachineView {
        &self.view
    }
}

fn raw(task: &QueuedTask) -> RawArrival {
    RawArrival {
        pid: task.pid,
        cpu: task.cpu,
        nr_cpus_allowed: task.nr_cpus_allowed,
        flags: task.flags,
        start_ts: task.start_ts,
        stop_ts: task.stop_ts,
        exec_runtime: task.exec_runtime,
        weight: task.weight,
        enq_cnt: task.enq_cnt,
        comm: task.comm.map(|letter| letter as u8),
    }
}
