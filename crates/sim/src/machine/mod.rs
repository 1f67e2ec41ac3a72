// SPDX-License-Identifier: GPL-2.0-only

//! The simulated machine: CPUs, tasks, the backend's half of the contract, the fast path, and the
//! scheduler process, which needs a CPU like everybody else.
//!
//! What each part does is what `main.bpf.c` of the backend, `fast_path.bpf.c` and the kernel's
//! `ext.c` do; docs/simulator.md says what is left out.

mod cpu;
mod fast_path;
mod faults;
mod kernel;
pub mod limits;
mod program;
pub mod rules;
mod scheduler;
mod state;
mod stranded;
mod watch;

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
use limits::{HEARTBEAT, RING};
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::task::{Arrival, Pid};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{MachineView, Policy};
use state::{Cpu, Current, Down, Kick, Occupied, Queue, Scheduler, Stage, Task, Where};
use watch::Watch;

/// Where simulated time begins: far from zero, as the clock of a machine that has been up.
pub const START: Stamp = Stamp::from_nanos(EPOCH);
const EPOCH: u64 = 1 << 40;
/// The first pid that a simulated task gets.
const PID_FIRST: i32 = 1000;
const NO_SLOT: u32 = u32::MAX;

/// What things cost, in simulated time.
///
/// The defaults are measured in the lab's exact time, one instruction a nanosecond, where a wake-up
/// through user space took 13 us, 8 us of it in the scheduler process (docs/simulator.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From one tick to the next: 4 ms with HZ=250.
    pub tick: Span,
    /// The CPUs take their ticks within so long of each other. How long matters: all that lose
    /// their task at the same moment find the scheduler process busy (docs/simulator.md).
    pub tick_spread: Span,
    /// From one task to another on a CPU.
    pub switch: Span,
    /// Until an interrupt has reached another CPU.
    pub interrupt: Span,
    /// Until an idle CPU is awake, on top of the interrupt.
    pub idle_exit: Span,
    /// What a wake-up costs the waker.
    pub wake: Span,
    /// A round of the scheduler process that does nothing, its system call included.
    pub round: Span,
    /// To take in one message.
    pub arrival: Span,
    /// To make one decision and send it.
    pub decision: Span,
    /// A system call that asks for an idle CPU or for an interrupt.
    pub call: Span,
    /// Work that a task has more after it has moved to another second-level cache, last-level
    /// cache, or memory node.
    pub moved: [Span; 3],
    /// Speed that a thread keeps while its core's other thread is busy, in percent.
    pub smt_percent: u32,
    /// How long the machine does without us while CPUs come or go.
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

/// A machine and how it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Its CPUs.
    pub shape: Shape,
    /// Its costs.
    pub costs: Costs,
    /// Whether the fast path is loaded.
    pub fast_path: bool,
    /// Whether wake-ups that find an idle CPU are placed by the kernel half.
    pub builtin_idle: bool,
    /// Slice of tasks that the kernel half places by itself.
    pub kernel_slice: Span,
    /// Whether the policy is told of tasks that end.
    pub tells_exits: bool,
    /// From which all chance follows.
    pub seed: u64,
    /// What goes wrong on purpose.
    pub faults: FaultPlan,
}

impl Setup {
    /// A machine as the driver sets it up by default, with nothing going wrong.
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

/// The machine. It runs a workload and shows what happens to its observer.
pub struct Machine<W> {
    now: u64,
    setup: Setup,
    workload: Workload,
    event_queue: EventQueue,
    tasks: Vec<Task>,
    /// Slots that were used and are empty again.
    vacant: Vec<u32>,
    /// Slot by pid.
    by_pid: Vec<u32>,
    next_pid: usize,
    cpus: Vec<Cpu>,
    queues: Vec<Queue>,
    shared: Queue,
    /// Number of insertions into queues so far.
    order: u64,
    up: VecDeque<Arrival>,
    down: VecDeque<Down>,
    /// What the present round sends, and whom it interrupts.
    staged: Vec<Down>,
    staged_kicks: Vec<u32>,
    idle: Cpus,
    online: u32,
    running: u32,
    view: MachineView,
    scheduler: Scheduler,
    /// What the fast path is told, its timers, and the CPUs that were interrupted in vain.
    settings: Settings,
    watches: Vec<Watch>,
    missed: u64,
    /// For whom the policy decided, of those above Batch, since the process left a CPU.
    decided: Vec<Pid>,
    /// Tasks of whose end the policy has to be told.
    gone: Vec<Pid>,
    /// When the measured times of a row began that have not ended, by the slot of its first task.
    marks: BTreeMap<u32, VecDeque<u64>>,
    counters: KernelCounters,
    chance: Random,
    /// Births so far of each group, which give each task a chance of its own.
    births: Vec<u32>,
    /// Tasks of each group that were forked and live.
    children: Vec<u32>,
    /// Who is told of the end of a task that was forked, by slot.
    parents: BTreeMap<u32, Pid>,
    /// Whether things may still go wrong on purpose.
    stormy: bool,
    observer: W,
}

impl<W: Observer> Machine<W> {
    /// A machine at rest that is about to run `workload`.
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
            watches: alloc::vec![Watch::default(); cpus as usize],
            missed: 0,
            decided: Vec::new(),
            gone: Vec::new(),
            marks: BTreeMap::new(),
            counters: KernelCounters::default(),
            chance: Random::derive(setup.seed, u64::MAX),
            births: alloc::vec![0; workload.groups.len()],
            children: alloc::vec![0; workload.groups.len()],
            parents: BTreeMap::new(),
            stormy: setup.faults != FaultPlan::NONE,
            setup,
            workload,
            observer,
        };
        (0..cpus).for_each(|cpu| machine.idle.insert(cpu));
        machine.tune(&Knobs::default());
        machine.plan_the_workload();
        machine
    }

    fn plan_the_workload(&mut self) {
        for (group, of) in self.workload.groups.iter().enumerate() {
            let group = group as u32;
            if of.rows > 0 && !of.forked {
                let at = EPOCH + of.start.as_nanos();
                self.event_queue.add(at, Plan::Birth { group, row: 0 });
            }
            if let Some(stop) = of.stop {
                self.event_queue.add(EPOCH + stop.as_nanos(), Plan::Death { group });
            }
        }
        self.event_queue.add(EPOCH + HEARTBEAT, Plan::Heartbeat);
        self.plan_faults();
    }

    /// Runs until `end` after the start, with `policy`. `renew` makes the policy with which a
    /// scheduler begins that is loaded anew.
    pub fn run<Q: Policy>(&mut self, end: Span, policy: &mut Q, renew: &mut dyn FnMut() -> Q) {
        let end = EPOCH + end.as_nanos();
        while let Some((at, plan)) = self.event_queue.pop_until(end) {
            self.now = self.now.max(at);
            self.counters.events += 1;
            match plan {
                Plan::Timer { task, generation } => self.timer(task, generation),
                Plan::Cpu { cpu, generation } => self.cpu_is_due(cpu, generation),
                Plan::Kick { cpu } => self.kick_arrives(cpu),
                Plan::Patrol { cpu } => self.patrol(cpu),
                Plan::Round => self.round_is_due(policy),
                Plan::Heartbeat => self.heartbeat(),
                Plan::Birth { group, row } => self.birth(group, row),
                Plan::Death { group } => self.end_group(group),
                Plan::Fault => self.something_goes_wrong(),
                Plan::Thaw => self.thaw(),
                Plan::Reload => self.reload(policy, renew),
            }
        }
        self.now = self.now.max(end);
        (0..self.setup.shape.cpus).for_each(|cpu| self.settle(cpu));
    }

    /// The settings that the policy was given, as far as they concern the fast path.
    pub fn tune(&mut self, knobs: &Knobs) {
        self.settings.take_up(knobs);
    }

    /// From now on nothing goes wrong on purpose: what is broken is mended.
    pub fn calm(&mut self) {
        self.stormy = false;
        self.cpus.iter_mut().for_each(|cpu| cpu.skew = 0);
        self.scheduler.freeze = None;
        self.thaw();
        self.emit(Event::Calm);
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Span {
        Span::from_nanos(self.now - EPOCH)
    }

    /// What the kernel half has counted.
    pub fn counters(&self) -> &KernelCounters {
        &self.counters
    }

    /// Tasks that are alive.
    pub fn nr_tasks(&self) -> usize {
        self.tasks.iter().filter(|task| task.place != Where::Nowhere).count()
    }

    /// What it runs.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Who watches it.
    pub fn observer(&mut self) -> &mut W {
        &mut self.observer
    }

    /// Who watched it.
    pub fn into_witness(self) -> W {
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

    /// The slot of the task that has this pid.
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
            seen: Occupied::default(),
            online: true,
            skew: 0,
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
            ran: EPOCH,
            took: 0,
            sent: 0,
            calls: 0,
            freeze: None,
        }
    }
}

impl Where {
    fn cpu(self) -> Option<u32> {
        if let Where::Cpu(cpu) = self { Some(u32::from(cpu)) } else { None }
    }
}
