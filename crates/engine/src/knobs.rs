// SPDX-License-Identifier: GPL-2.0-only

//! Everything about the policy that can be changed while it runs, and how a person says so.
//!
//! [`Knobs`] holds values and, in [`Rules`], a switch for every mechanism. The registry gives each
//! of them a name, a range and a sentence: it is what reads a file of knobs, answers `tune`, and
//! prints. A value read through it is always within its range, and no value contradicts another.
//!
//! Numbers come from PANDEMONIUM 5.4.13, "Tuning Knobs", unless a constant says otherwise.

mod registry;
mod text;

pub use registry::{KEYS, Key, KeySet, keys};
pub use text::{FileError, KnobError};

use crate::time::Span;
use registry::Field;

/// Ceiling of a Batch slice while nothing can interrupt a task before its slice ends: the backend
/// kicks idle CPUs only, so whoever wakes up waits for the rest of a running slice. 4 ms is one
/// tick of a kernel with HZ=250, below which the kernel does not enforce a slice anyway.
pub const BATCH_SLICE: Span = Span::from_millis(4);
/// Ceiling of a Batch slice where a running task can be interrupted: the README's number.
pub const BATCH_SLICE_PREEMPTIBLE: Span = Span::from_millis(20);

/// Whether a task is placed near the CPU on which it ran last, by second-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affinity {
    /// Anywhere.
    Off,
    /// Near, if a CPU there is idle; else anywhere.
    #[default]
    Weak,
    /// Near, even if that means to wait a little for it.
    Strong,
}

impl Affinity {
    /// All modes, in the order of their numbers 0, 1, 2.
    pub const ALL: [Affinity; 3] = [Affinity::Off, Affinity::Weak, Affinity::Strong];

    const fn name(self) -> &'static str {
        match self {
            Affinity::Off => "off",
            Affinity::Weak => "weak",
            Affinity::Strong => "strong",
        }
    }
}

/// Settings that a person or the controller may change while the scheduler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Longest slice of an Interactive or LatCritical task.
    pub slice: Span,
    /// Shortest slice of any task.
    pub slice_min: Span,
    /// A Batch task that has run so long gives way to an Interactive one that waits.
    pub preempt_thresh: Span,
    /// How much credit a task that wakes often is given for having slept.
    pub lag_scale: u32,
    /// Longest slice of a Batch task: [`BATCH_SLICE`] says why this is below the README's 20 ms.
    pub batch_slice: Span,
    /// Longest slice of everybody during a burst, or while batch work has waited for seconds.
    pub burst_slice: Span,
    /// An Interactive task that usually runs so long without a sleep is treated as Batch.
    pub cpu_bound_thresh: Span,
    /// From this score on (0 to 255) a task is LatCritical.
    pub lat_cri_high: u32,
    /// From this score on a task is Interactive, below it Batch.
    pub lat_cri_low: u32,
    /// Placement by cache.
    pub affinity: Affinity,
    /// Batch work that has waited longer is rescued.
    pub sojourn_thresh: Span,
    /// Send a task that may run on one CPU only to that CPU's own queue. Off, it competes in the
    /// shared queue by its key, and other CPUs step over it.
    pub percpu_local: bool,
    /// Which mechanisms are at work.
    pub rules: Rules,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            slice: Span::from_millis(1),
            slice_min: Span::from_micros(100),
            preempt_thresh: Span::from_millis(1),
            lag_scale: 4,
            batch_slice: BATCH_SLICE,
            burst_slice: Span::from_millis(1),
            cpu_bound_thresh: Span::from_micros(2_500),
            lat_cri_high: 32,
            lat_cri_low: 8,
            affinity: Affinity::Weak,
            sojourn_thresh: Span::from_millis(5),
            percpu_local: false,
            rules: Rules::default(),
        }
    }
}

/// From one list: the switches, their defaults and their entries in the registry, so that no
/// mechanism can have the one without the others.
macro_rules! rules {
    ($(#[doc = $doc:literal] $name:ident: $default:literal,)*) => {
        /// A switch for every mechanism, so that an experiment can tell what each is worth.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Rules {
            $(#[doc = $doc] pub $name: bool,)*
        }

        impl Default for Rules {
            fn default() -> Self {
                Rules { $($name: $default,)* }
            }
        }

        static RULES: &[Key] = &[$(Key {
            name: concat!("rule.", stringify!($name)),
            doc: $doc.trim_ascii(),
            field: Field::Switch(|knobs| &mut knobs.rules.$name),
        },)*];
    };
}

rules! {
    /// Tiers follow behaviour; off, every task is Interactive unless its name says more.
    classifier: true,
    /// Programs that draw the screen are LatCritical by name.
    compositors: true,
    /// Workqueue threads, and kernel threads that nobody made nice, are never below Interactive.
    kworker_floor: true,
    /// A task that sleeps often enough to draw frames, or runs for moments only, is never Batch.
    frame_floor: true,
    /// A task that uses up its slices for longer than it usually runs is Batch until it sleeps.
    cpu_bound_demotion: true,
    /// Sleep earns credit in virtual time, within a limit.
    lag: true,
    /// CPU time since the last wake-up counts against a task only up to a limit.
    awake_cap: true,
    /// No Batch task is queued further behind than a limit.
    vtime_ceiling: true,
    /// Work that overflowed into shared queues is served once it has aged.
    overflow_rescue: true,
    /// After a budget of other dispatches waiting Batch work gets one.
    deficit: true,
    /// Batch work is served once it has waited for the hard limit.
    starvation_rescue: true,
    /// Batch work is served once it has waited for the adaptive threshold.
    codel_rescue: true,
    /// While Batch work gets next to nothing, whoever takes a large share is Batch.
    batch_starvation: true,
    /// Batch work that has waited for seconds changes budget, slices and placement.
    longrun: true,
    /// A sudden rise of the rate of enqueues is a burst.
    burst_cusum: true,
    /// Very many wake-ups at once are a burst.
    burst_wakeups: true,
    /// A task is placed near its cache, as the affinity knob says.
    affinity: true,
    /// Queues and placement follow the memory nodes of the machine.
    numa: true,
    /// Few tasks may wait in one CPU's own queue.
    depth_gate: true,
    /// A task woken by one that is about to sleep takes its CPU.
    sync_wakeups: true,
    /// While CPUs are free, tasks run in the order of their arrival.
    fifo_mode: false,
    /// Batch work leaves CPUs idle rather than waking them.
    low_power: false,
    /// A running task may be interrupted for one that is more urgent.
    preempt: true,
    /// The controller changes knobs once a second.
    adaptive: true,
    /// What was learned of a program is applied when its name appears.
    procdb: true,
}
