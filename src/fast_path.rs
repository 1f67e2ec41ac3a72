// SPDX-License-Identifier: GPL-2.0-only

//! The fast path: a second BPF object that runs beside the backend, and the memory that it shares
//! with user space (`src/bpf/fast_path.h`).

mod mapped;
mod news;
mod observed;
mod parts;
mod records;
pub mod refusal;

use self::mapped::Mapped;
use self::news::News;
pub use self::observed::{Observed, TaskRecords};
pub use self::parts::{Part, Parts, State};
use self::records::Records;
use super::fast_path_counters::{Event, FastPathCounters, Row, Stage};
use super::syscall_program;
use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, OpenObject, ProgramType};
use pandemonium_engine::facts::Facts;
use pandemonium_engine::fine::Fine;
use pandemonium_engine::task::{CpuId, Pid, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::{CpuMask, Topology};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

#[allow(missing_docs, non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used)]
mod fast_path_intf {
    include!(concat!(env!("OUT_DIR"), "/fast_path/bpf_intf.rs"));
}

#[allow(dead_code, clippy::all, clippy::pedantic, clippy::unwrap_used)]
mod fast_path_skel {
    include!(concat!(env!("OUT_DIR"), "/fast_path/fast_path_skel.rs"));
}

use fast_path_intf as abi;
use fast_path_skel::{FastPathSkel, FastPathSkelBuilder, OpenFastPathSkel};

/// Attempts to load the object, each without one more part.
pub const ATTEMPTS: usize = Part::ALL.len();
/// The highest number of CPUs; see `FP_CPUS`.
const CPUS: usize = abi::fp_limits_FP_CPUS as usize;

/// The loaded fast path.
pub struct FastPath<'obj> {
    /// Attached programs run as long as their links live.
    _links: Vec<Link>,
    skel: FastPathSkel<'obj>,
    missing: Parts,
    records: Records,
    counters: Mapped<abi::fp_counters>,
    shared: Mapped<abi::fp_settings>,
    settings: Settings,
    cpus: Mapped<abi::fp_cpu>,
    /// The CPUs that are online.
    online: CpuMask,
    news: News,
    /// Programs that were executed, by the news.
    execs: u64,
    /// Times of [`Stage::Received`].
    received: Fine,
    /// Times of [`Stage::Decided`].
    decided: Fine,
}

const _: () = assert!(abi::fp_event_FP_EVENTS as usize == Event::ALL.len());
const _: () = assert!(abi::fp_limits_FP_FINE_BUCKETS as usize == Fine::BUCKETS);

impl<'obj> FastPath<'obj> {
    /// Loads and attaches all parts that the kernel accepts. To be called before the process locks
    /// its memory.
    pub fn load(
        objects: &'obj mut [MaybeUninit<OpenObject>; ATTEMPTS],
        config: &Config,
        topology: &Topology,
    ) -> Result<Self> {
        let mut missing = Parts::default();
        for object in objects {
            refusal::take();
            match open(object, config, missing)?.load() {
                Ok(skel) => return FastPath::attach(skel, missing, config.online, topology),
                // Without a message that names another part, a further attempt would fail too.
                Err(error) => match refusal::take().filter(|part| !missing.has(*part)) {
                    Some(part) => missing.add(part),
                    None => return Err(error.into()),
                },
            }
            ensure!(missing != Parts::all(), "the kernel refused each of its parts");
        }
        bail!("the kernel refused it")
    }

    /// Attaches the programs, and maps the shared memory.
    fn attach(
        mut skel: FastPathSkel<'obj>,
        mut missing: Parts,
        online: CpuMask,
        topology: &Topology,
    ) -> Result<Self> {
        let cpus = Mapped::new(&skel.maps.cpus, rows())?;
        mark_offline(&cpus, &online);
        note_caches(&cpus, topology);
        let links = attach(&mut skel, &mut missing);
        let fast = FastPath {
            online,
            records: Records::new(&skel.maps.tasks, &skel.maps.hints)?,
            counters: Mapped::new(&skel.maps.counters, rows())?,
            shared: Mapped::new(&skel.maps.settings, 1)?,
            settings: Settings::default(),
            cpus,
            news: News::open(&skel.maps.news)?,
            execs: 0,
            received: Fine::default(),
            decided: Fine::default(),
            _links: links,
            skel,
            missing,
        };
        fast.store();
        Ok(fast)
    }

    /// The parts that the kernel refused.
    pub fn missing(&self) -> Parts {
        self.missing
    }

    /// The kernel's numbers of the maps of task records and of hints, for [`TaskRecords::open`].
    pub fn task_maps(&self) -> Option<[u32; 2]> {
        let maps = [&self.skel.maps.tasks, &self.skel.maps.hints];
        let [tasks, hints] = maps.map(|map| map.info().ok().map(|info| info.info.id));
        Some([tasks?, hints?])
    }

    /// Whether it observes every wakeup and switch, so that facts are complete.
    pub fn sees_all(&self) -> bool {
        let seen = [Part::Wakeups, Part::NewTasks, Part::Switches, Part::Execs];
        seen.iter().all(|part| !self.missing.has(*part))
    }

    /// User space has received a message about a task: notes that for the kernel, and returns the
    /// task's facts.
    pub fn receive(&mut self, pid: Pid, now: Stamp) -> Option<Facts> {
        let (facts, waited) = self.records.receive(pid, now)?;
        if let Some(waited) = waited {
            self.received.record(waited);
        }
        Some(facts)
    }

    /// User space sends a decision about a task: notes its tier and the time for the kernel.
    pub fn sent(&mut self, pid: Pid, tier: Tier, now: Stamp) {
        if let Some(took) = self.records.sent(pid, tier, now) {
            self.decided.record(took);
        }
    }

    /// The programs that were executed, as far as news of them were read.
    pub fn execs(&self) -> u64 {
        self.execs
    }

    /// The next task that has exited. Reads a bounded number of news.
    pub fn next_exit(&mut self) -> Option<Pid> {
        for _ in 0..news::READ_MAX {
            let (pid, kind) = self.news.next()?;
            self.execs += u64::from(kind == news::Kind::Exec);
            if self.records.take_news(pid, kind) {
                return Some(pid);
            }
        }
        None
    }

    /// The idle CPUs, and those that run a SCHED_EXT task. A CPU that has not switched since the
    /// load is in neither.
    pub fn occupancy(&self) -> (CpuMask, CpuMask) {
        let (mut idle, mut busy) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for cpu in (0..self.cpus.len() as i32).filter_map(CpuId::new) {
            // SAFETY: points into the mapping; any bytes are valid integers. A record that changes
            // meanwhile costs a less than perfect choice.
            let record = unsafe { std::ptr::read_volatile(self.cpus.at(cpu.as_raw() as usize)) };
            match record.occupant {
                _ if record.since == 0 => {}
                abi::fp_occupant_FP_IDLE => idle.insert(cpu),
                abi::fp_occupant_FP_BATCH..=abi::fp_occupant_FP_LAT_CRITICAL => busy.insert(cpu),
                _ => {}
            }
        }
        (idle, busy)
    }

    /// Whether a task waits rather than wake an idle CPU.
    pub fn saves_power(&self) -> bool {
        !self.settings.wakes_idle
    }

    /// Changes the settings.
    pub fn set(&mut self, new: Settings) {
        if new != self.settings {
            self.settings = new;
            self.store();
        }
    }

    /// These CPUs are offline now.
    pub fn set_offline(&mut self, offline: &CpuMask) {
        let online = CpuMask::first(rows() as u32).without(offline);
        if online != self.online {
            self.online = online;
            mark_offline(&self.cpus, &online);
            self.store();
        }
    }

    /// From now on the CPUs share the caches of this topology.
    pub fn follow_topology(&self, topology: &Topology) {
        note_caches(&self.cpus, topology);
    }

    fn store(&self) {
        let (new, settings) = (&self.settings, self.shared.at(0));
        let waiting = new.waiting.map_or(abi::fp_occupant_FP_IDLE, occupant);
        // SAFETY: points into the mapping. The kernel reads each field by itself, and any mix of
        // old and new ones is valid.
        unsafe {
            (&raw mut (*settings).preempt_thresh_ns).write_volatile(new.preempt_thresh.as_nanos());
            (&raw mut (*settings).batch_slice_ns).write_volatile(new.batch_slice.as_nanos());
            (&raw mut (*settings).burst).write_volatile(new.burst as u32);
            (&raw mut (*settings).hand_off).write_volatile(new.hand_off as u32);
            (&raw mut (*settings).waiting).write_volatile(waiting);
            (&raw mut (*settings).wakes_idle).write_volatile(new.wakes_idle as u32);
            (&raw mut (*settings).nr_waiting).write_volatile(new.nr_waiting);
            (&raw mut (*settings).nr_online).write_volatile(self.online.count());
            let preempt = new.preempt && !self.missing.has(Part::Switches);
            (&raw mut (*settings).preempt).write_volatile(preempt as u32);
        }
    }

    /// Kicks `cpu`, with a system call.
    pub fn kick(&self, cpu: CpuId) {
        if self.missing.has(Part::Asking) {
            return;
        }
        let mut argument = abi::fp_kick_arg { cpu: cpu.as_raw() };
        // After a failure the task waits for the tick.
        syscall_program::run(&self.skel.progs.fp_kick, &mut argument);
    }

    /// The sums of the counters over all possible CPUs.
    pub fn counters(&self) -> FastPathCounters {
        let mut sum = FastPathCounters::default();
        sum.add_stage(Stage::Received, &self.received);
        sum.add_stage(Stage::Decided, &self.decided);
        sum.add_event(Event::Stolen, self.records.stolen_hints.get());
        for cpu in 0..self.counters.len() {
            // SAFETY: points into the mapping; any bytes are valid integers, and the kernel writes
            // each of them at once.
            let row = unsafe { &*self.counters.at(cpu) };
            sum.add(&Row {
                latency: &row.wake_latency,
                sleep: &row.sleep,
                l2_hits: &row.l2_hits,
                l2_misses: &row.l2_misses,
                waits: &row.wait,
                starts: &row.start,
                events: &row.events,
            });
        }
        sum
    }
}

/// The configuration of the fast path, fixed while it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The domain: CPUs that tasks prefer; none if there is no domain.
    pub domain: CpuMask,
    /// The CPUs that are online at the load. No other one is kicked, or waited for.
    pub online: CpuMask,
    /// Parts that the kernel is to refuse, for tests.
    pub broken: Parts,
}

/// The settings of the fast path. The default has no kicks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether CPUs are kicked at all.
    pub preempt: bool,
    /// Whether wakers are trusted to hand over their CPU.
    pub hand_off: bool,
    /// A Batch task that has run for less than this is not preempted by another Batch task.
    pub preempt_thresh: Span,
    /// Whether there is a burst of wakeups: then the threshold counts as zero.
    pub burst: bool,
    /// The longest slice of a Batch task.
    pub batch_slice: Span,
    /// Whether an idle CPU is woken when the process leaves its CPU while tasks wait, and for each
    /// Batch task.
    pub wakes_idle: bool,
    /// The highest tier of which a task waits for a decision. Interactive stands for LatCritical
    /// too.
    pub waiting: Option<Tier>,
    /// How many tasks the policy holds, in whole steps of 64, so that it rarely changes.
    pub nr_waiting: u32,
    /// By how much the performance of a CPU is lowered while it runs a task of each tier, in
    /// percent of its highest.
    pub lowered: [u32; Tier::ALL.len()],
}

/// Records by CPU that this machine needs: one for every CPU that it may ever have.
fn rows() -> usize {
    (*scx_utils::NR_CPU_IDS).clamp(1, CPUS)
}

/// Marks every CPU that is not online. Without the mark its record is that of an idle CPU: the
/// first choice of every wakeup, with a DSQ that no CPU serves. A CPU that has come back idles
/// until its first switch.
fn mark_offline(cpus: &Mapped<abi::fp_cpu>, online: &CpuMask) {
    for cpu in (0..cpus.len() as i32).filter_map(CpuId::new) {
        let (record, is_offline) = (cpus.at(cpu.as_raw() as usize), !online.contains(cpu));
        let (idle, offline) = (abi::fp_occupant_FP_IDLE, abi::fp_occupant_FP_OFFLINE);
        let (old, new) = if is_offline { (idle, offline) } else { (offline, idle) };
        // SAFETY: points into the mapping. Only user space writes the first field, and the CPU
        // itself writes the second one too, as one word.
        unsafe {
            (&raw mut (*record).offline).write_volatile(is_offline.into());
            let occupant = AtomicU32::from_ptr(&raw mut (*record).occupant);
            let _ = occupant.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Notes the second-level cache of each CPU. An unknown one counts as the CPU's own: the numbers of
/// known caches are far lower.
fn note_caches(cpus: &Mapped<abi::fp_cpu>, topology: &Topology) {
    for cpu in (0..cpus.len() as i32).filter_map(CpuId::new) {
        let own = 1 << 15 | cpu.as_raw() as u16;
        let l2 = Some(topology.place(cpu).l2).filter(|l2| *l2 != u16::MAX).unwrap_or(own);
        let record = cpus.at(cpu.as_raw() as usize);
        // SAFETY: points into the mapping. Only user space writes this field.
        unsafe { (&raw mut (*record).l2).write_volatile(l2) };
    }
}

/// The number of a tier in memory shared with the kernel.
pub fn occupant(tier: Tier) -> u32 {
    match tier {
        Tier::Batch => abi::fp_occupant_FP_BATCH,
        Tier::Interactive => abi::fp_occupant_FP_INTERACTIVE,
        Tier::LatCritical => abi::fp_occupant_FP_LAT_CRITICAL,
    }
}

/// The interval of the kernel's tick: the resolution of the coarse clock.
fn tick() -> Span {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes only into `tick`.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut tick) };
    Span::from_nanos(tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64)
}

/// Opens the object and sets its constants. Leaves out the parts in `without`, and makes the kernel
/// refuse those in `config.broken`.
fn open<'obj>(
    object: &'obj mut MaybeUninit<OpenObject>,
    config: &Config,
    without: Parts,
) -> Result<OpenFastPathSkel<'obj>> {
    let mut open = FastPathSkelBuilder::default().open(object)?;
    let constants = open.maps.rodata_data.as_mut().context("the object has no constants")?;
    constants.scheduler_tgid = std::process::id();
    constants.nr_cpus = *scx_utils::NR_CPU_IDS as u32;
    for map in [&mut open.maps.cpus, &mut open.maps.counters, &mut open.maps.rechecks] {
        map.set_max_entries(rows() as u32)?;
    }
    constants.tick_ns = tick().as_nanos();
    constants.has_timers = !without.has(Part::Timers) && !config.broken.has(Part::Timers);
    constants.domain = *config.domain.words();
    constants.has_domain = !config.domain.is_empty();
    // The running kernel defines the flag's number. With a wrong one a kick would not preempt.
    let preempt = scx_utils::compat::read_enum("scx_kick_flags", "SCX_KICK_PREEMPT")?;
    constants.kick_flags = preempt;
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let part = Part::of(&name).context("a program belongs to no part")?;
        program.set_autoload(!without.has(part));
        if config.broken.has(part) {
            // None of the programs is valid as this type.
            program.set_prog_type(ProgramType::SkLookup);
        }
    }
    Ok(open)
}

/// Attaches the loaded programs, part by part. A part with a failure is missing as a whole.
fn attach(skel: &mut FastPathSkel, missing: &mut Parts) -> Vec<Link> {
    let mut links = Vec::new();
    let refused = *missing;
    for part in Part::ALL.into_iter().filter(|part| !refused.has(*part)) {
        let prepared = part != Part::Timers
            || syscall_program::run(&skel.progs.fp_prepare, &mut ()) == Some(0);
        let programs = skel.object_mut().progs_mut().filter(|program| {
            let is_member = part.programs().iter().any(|name| program.name() == *name);
            is_member && program.prog_type() == ProgramType::Tracing
        });
        let attached = programs.map(|program| program.attach()).collect::<Result<Vec<_>, _>>();
        match attached {
            Ok(attached) if prepared => links.extend(attached),
            _ => missing.add(part),
        }
    }
    links
}
