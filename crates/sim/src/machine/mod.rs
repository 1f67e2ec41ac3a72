// SPDX-License-Identifier: GPL-2.0-only

//! The simulated machine: CPUs, tasks, the backend's BPF program, the fast path, and the scheduler
//! process, which needs a CPU like any task.
//!
//! The parts model `main.bpf.c` of the backend, `fast_path.bpf.c` and the kernel's `ext.c`.
//! docs/simulator.md lists what is left out.

mod cpu;
mod fast_path;
mod faults;
mod kernel;
pub mod limits;
mod orders;
mod program;
mod recheck;
pub mod rules;
mod scheduler;
mod stall;
mod state;

pub use faults::FaultPlan;
pub use state::KernelCounters;

use super::event_queue::{EventQueue, Plan};
use super::observer::{Event, Observer, Occupant, TaskId};
use super::random::Random;
use super::topology::{Cpus, Shape};
use super::workload::Workload;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use fast_path::Settings;
use limits::{DEFAULT_SLICE, HEARTBEAT, RING};
use orders::OrderSlot;
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::task::{Arrival, Pid};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{KernelRules, MachineView, Policy};
use recheck::Recheck;
use rules::Kicks;
use state::{Cpu, CpuRecord, Current, Down, Kick, Queue, Scheduler, Stage, Task, Where};

/// Where simulated time begins: far from zero, like the clock of a machine that is up for a while.
pub const START: Stamp = Stamp::from_nanos(EPOCH);
const EPOCH: u64 = 1 << 40;
/// The lowest pid of a simulated task.
const PID_FIRST: i32 = 1000;
const NO_SLOT: u32 = u32::MAX;

/// The cost of each operation, in simulated time.
///
/// The defaults were measured in the lab's exact time, one instruction per nanosecond: a wakeup
/// through user space took 13 us, 8 us of it in the scheduler process (docs/simulator.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Tick period: 4 ms with HZ=250.
    pub tick: Span,
    /// Each CPU's tick is late by up to this. The spread matters: CPUs that end their slices at the
    /// same moment all find the scheduler process busy (docs/simulator.md).
    pub tick_spread: Span,
    /// A context switch.
    pub switch: Span,
    /// From sending a kick until it reaches the CPU.
    pub interrupt: Span,
    /// An idle CPU's wakeup, in addition to the interrupt.
    pub idle_exit: Span,
    /// The waker's CPU time for a wakeup.
    pub wake: Span,
    /// An empty round of the scheduler process, including its system call.
    pub round: Span,
    /// Receiving one message.
    pub arrival: Span,
    /// Making one decision and sending it.
    pub decision: Span,
    /// A system call that picks an idle CPU or kicks a CPU.
    pub call: Span,
    /// Extra work after a migration to another second-level cache, last-level cache, or NUMA node:
    /// its data is not in the caches.
    pub moved: [Span; 3],
    /// A thread's speed while a sibling is busy, in percent.
    pub smt_percent: u32,
    /// How long the scheduler is unloaded after CPU hotplug.
    pub reload: Span,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            tick: Span::from_millis(4),
            tick_spread: Span::from_micros(60),
            switch: Span::from_nanos(1_500),
            interrupt: Span::from_nanos(1_000),
            idle_exit: Span::from_nanos(2_000),
            wake: Span::from_nanos(1_000),
            round: Span::from_nanos(5_000),
            arrival: Span::from_nanos(1_200),
            decision: Span::from_nanos(1_800),
            call: Span::from_nanos(1_000),
            moved: [Span::from_micros(2), Span::from_micros(10), Span::from_micros(25)],
            smt_percent: 60,
            reload: Span::from_millis(50),
        }
    }
}

/// A machine and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Its CPUs.
    pub shape: Shape,
    /// Its costs.
    pub costs: Costs,
    /// Whether the fast path is loaded.
    pub fast_path: bool,
    /// Whether the backend dispatches a wakee to an idle CPU without asking the policy.
    pub builtin_idle: bool,
    /// Slice of tasks that the backend dispatches without asking the policy.
    pub kernel_slice: Span,
    /// Whether the policy is told when a task exits.
    pub tells_exits: bool,
    /// The seed of all randomness.
    pub seed: u64,
    /// The faults to inject.
    pub faults: FaultPlan,
}

impl Setup {
    /// A machine as the driver configures it by default, without faults.
    pub fn new(shape: Shape, seed: u64) -> Setup {
        Setup {
            shape: shape.sane(),
            costs: Costs::default(),
            fast_path: true,
            builtin_idle: true,
            kernel_slice: Span::from_millis(1),
            tells_exits: true,
            seed,
            faults: FaultPlan::NONE,
        }
    }
}

/// The machine. It runs a workload and reports events to its observer.
pub struct Machine<W> {
    now: u64,
    setup: Setup,
    workload: Workload,
    event_queue: EventQueue,
    tasks: Vec<Task>,
    /// Slots of exited tasks, free for new ones.
    vacant: Vec<u32>,
    /// Slot by pid.
    by_pid: Vec<u32>,
    next_pid: usize,
    cpus: Vec<Cpu>,
    queues: Vec<Queue>,
    shared: Queue,
    /// The mean length of a turn of all tasks that the backend queues itself: `patch_turn`.
    turn: u64,
    /// Number of insertions into queues so far.
    order: u64,
    up: VecDeque<Arrival>,
    down: VecDeque<Down>,
    /// Decisions and kicks of the current round; they take effect when it ends.
    staged: Vec<Down>,
    staged_kicks: Vec<u32>,
    idle: Cpus,
    online: u32,
    running: u32,
    view: MachineView,
    scheduler: Scheduler,
    /// The fast path's settings.
    settings: Settings,
    /// The fast path's timers, by CPU.
    rechecks: Vec<Recheck>,
    /// The idle CPU that was woken last when the scheduler process left its CPU.
    woken_idle_cpu: u32,
    /// What the backend keeps of each task for orders, by slot.
    order_slots: Vec<OrderSlot>,
    /// The bounds on orders; `None` if no order is executed.
    bounds: Option<Bounds>,
    /// When the round began, by the policy's clock.
    begun: Stamp,
    /// The deficit that orders made so far: those executed while Batch work waited for a decision.
    /// At the maximum they no longer pass work that is due.
    order_deficit: u32,
    deficit_max: u32,
    /// Exited tasks that the policy has not been told of.
    gone: Vec<Pid>,
    /// Start times of a row's open measurements, by the slot of its first task.
    marks: BTreeMap<u32, VecDeque<u64>>,
    counters: KernelCounters,
    chance: Random,
    /// Tasks created so far in each group: the number seeds a task's random generator.
    created: Vec<u32>,
    /// Forked tasks of each group that are alive.
    children: Vec<u32>,
    /// The parent of each forked task, by slot: the exit wakes it.
    parents: BTreeMap<u32, Pid>,
    /// Whether faults are still injected.
    stormy: bool,
    observer: W,
}

impl<W: Observer> Machine<W> {
    /// An idle machine, ready to run `workload`.
    pub fn new(setup: Setup, workload: Workload, observer: W) -> Self {
        let cpus = setup.shape.cpus;
        let room = workload.tasks().max(1) as usize;
        let mut machine = Machine {
            now: EPOCH,
            event_queue: EventQueue::with_capacity(room + 4 * cpus as usize),
            tasks: Vec::with_capacity(room),
            vacant: Vec::new(),
            by_pid: alloc::vec![NO_SLOT; PID_FIRST as usize + (2 * room).next_power_of_two()],
            next_pid: PID_FIRST as usize,
            cpus: (0..cpus).map(|cpu| Cpu::new(setup.shape.speed(cpu))).collect(),
            queues: (0..cpus).map(|_| Queue::new()).collect(),
            shared: Queue::new(),
            turn: DEFAULT_SLICE,
            order: 0,
            up: VecDeque::with_capacity(RING),
            down: VecDeque::new(),
            staged: Vec::with_capacity(1),
            staged_kicks: Vec::new(),
            idle: Cpus::none(cpus),
            online: cpus,
            running: 0,
            view: MachineView::default(),
            scheduler: Scheduler::new(),
            settings: Settings::NONE,
            rechecks: alloc::vec![Recheck::default(); cpus as usize],
            woken_idle_cpu: 0,
            order_slots: Vec::with_capacity(room),
            bounds: None,
            begun: Stamp::default(),
            order_deficit: 0,
            deficit_max: 0,
            gone: Vec::new(),
            marks: BTreeMap::new(),
            counters: KernelCounters::default(),
            chance: Random::derive(setup.seed, u64::MAX),
            created: alloc::vec![0; workload.groups.len()],
            children: alloc::vec![0; workload.groups.len()],
            parents: BTreeMap::new(),
            stormy: setup.faults != FaultPlan::NONE,
            setup,
            workload,
            observer,
        };
        (0..cpus).for_each(|cpu| machine.idle.insert(cpu));
        machine.obey(&KernelRules::default());
        machine.begin_with_offline_cpus();
        machine.plan_the_workload();
        machine
    }

    fn plan_the_workload(&mut self) {
        for (group, of) in self.workload.groups.iter().enumerate() {
            let group = group as u32;
            if of.rows > 0 && !of.forked {
                let at = EPOCH + of.start.as_nanos();
                self.event_queue.add(at, Plan::StartRow { group, row: 0 });
            }
            if let Some(stop) = of.stop {
                self.event_queue.add(EPOCH + stop.as_nanos(), Plan::StopGroup { group });
            }
        }
        self.event_queue.add(EPOCH + HEARTBEAT, Plan::Heartbeat);
        self.plan_faults();
    }

    /// Runs until `end` after the start, with `policy`. `renew` makes the policy of a scheduler
    /// that is loaded again.
    pub fn run<Q: Policy>(&mut self, end: Span, policy: &mut Q, renew: &mut dyn FnMut() -> Q) {
        let end = EPOCH + end.as_nanos();
        while let Some((at, plan)) = self.event_queue.pop_until(end) {
            self.now = self.now.max(at);
            self.counters.events += 1;
            match plan {
                Plan::Timer { task, generation } => self.timer(task, generation),
                Plan::Cpu { cpu, generation } => self.cpu_is_due(cpu, generation),
                Plan::Kick { cpu } => self.kick_arrives(cpu),
                Plan::Recheck { cpu } => self.recheck(cpu),
                Plan::Round => self.round_is_due(policy),
                Plan::Heartbeat => self.heartbeat(),
                Plan::StartRow { group, row } => self.start_row(group, row),
                Plan::StopGroup { group } => self.end_group(group),
                Plan::Fault => self.inject_faults(),
                Plan::Thaw => self.thaw(),
                Plan::Stall { round } => self.stall(round),
                Plan::Reload => self.reload(policy, renew),
            }
        }
        self.now = self.now.max(end);
        (0..self.setup.shape.cpus).for_each(|cpu| self.settle(cpu));
    }

    /// Gives the fast path the policy's rules for it.
    pub fn obey(&mut self, rules: &KernelRules) {
        self.settings.apply_rules(rules);
    }

    /// Stops fault injection and ends all faults that last.
    pub fn calm(&mut self) {
        self.stormy = false;
        self.cpus.iter_mut().for_each(|cpu| cpu.skew = 0);
        if self.scheduler.stage != Stage::Frozen {
            self.scheduler.stop = None;
        }
        self.thaw();
        self.emit(Event::Calm);
    }

    /// Simulated time since the start.
    pub fn elapsed(&self) -> Span {
        Span::from_nanos(self.now - EPOCH)
    }

    /// The counters of the backend and the fast path.
    pub fn counters(&self) -> &KernelCounters {
        &self.counters
    }

    /// Number of tasks that are alive.
    pub fn nr_tasks(&self) -> usize {
        self.tasks.iter().filter(|task| task.place != Where::Vacant).count()
    }

    /// The workload that it runs.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The observer.
    pub fn observer(&mut self) -> &mut W {
        &mut self.observer
    }

    /// Ends the machine and returns its observer.
    pub fn into_observer(self) -> W {
        self.observer
    }

    fn emit(&mut self, event: Event) {
        self.observer.saw(Stamp::from_nanos(self.now), &event);
    }

    fn id(&self, slot: u32) -> TaskId {
        self.tasks[slot as usize].id(slot)
    }

    fn task(&mut self, slot: u32) -> &mut Task {
        &mut self.tasks[slot as usize]
    }

    fn occupant(&self, current: Current) -> Occupant {
        match current {
            Current::Idle => Occupant::Idle,
            Current::Scheduler => Occupant::Scheduler,
            Current::Task(slot) => Occupant::Task(self.id(slot), self.tasks[slot as usize].tier()),
        }
    }

    /// The slot of the task with this pid.
    fn slot_of(&self, pid: Pid) -> Option<u32> {
        let slot = *self.by_pid.get(pid.as_raw() as usize)?;
        (slot != NO_SLOT).then_some(slot)
    }
}

impl Cpu {
    fn new(speed: u64) -> Cpu {
        Cpu {
            current: Current::Idle,
            generation: 0,
            started: 0,
            works_from: 0,
            speed,
            kick: Kick::None,
            seen: CpuRecord::default(),
            online: true,
            left: false,
            skew: 0,
            local: None,
            handed_to: None,
            looked: 0,
            looked_shared: 0,
            looked_own: 0,
            order_kicks: Kicks::default(),
        }
    }
}

impl Scheduler {
    fn new() -> Scheduler {
        Scheduler {
            stage: Stage::Queued,
            cpu: 0,
            needed: false,
            pending: 0,
            urgent: false,
            ran: EPOCH,
            took: 0,
            sent: 0,
            calls: 0,
            stop: None,
            is_stalled: false,
        }
    }
}

impl Where {
    fn cpu(self) -> Option<u32> {
        if let Where::Cpu(cpu) = self { Some(u32::from(cpu)) } else { None }
    }
}
