// SPDX-License-Identifier: GPL-2.0-only

//! The adaptive loop: once a second it computes [`Knobs`] from a [`Sample`] of the last interval.
//!
//! ```text
//! idle share ------> regime (two intervals in a row) ----> profile, scaled by the CPU count
//! latencies -------> P99 above the ceiling? -------------> slice: tighten, later relax
//! sleeps ----------> share of waits for I/O -------------> batch slice, a quarter up or down
//! dispatches ------> time between two -------------------> threshold of the CoDel rescue
//! longrun ---------> weak affinity, batch slice of the regime
//!                                                          knobs set by a user stay as set
//! ```
//!
//! [`Controller`]'s step is a function of state, time and a sample. It reads no clock and no file,
//! so any thread or test can run it. [`detect`] is the part of the loop that a policy calls for
//! each message, because a burst is over within a second.
//!
//! Idle is the share of time in which CPUs had nothing to run. PANDEMONIUM 5.4.13 used a share of
//! dispatches instead, which never exceeded 50 %.

pub mod detect;
pub mod regime;
pub mod tune;

use crate::knobs::{Affinity, Knobs};
use crate::scaling::Scaling;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use pandemonium_engine::adapting::{Adapting, Report};
pub use pandemonium_engine::adapting::{INTERVAL, Sample, idle_per_mille};
use pandemonium_engine::histogram::Latencies;
use pandemonium_engine::knobs::{Amended, FileError, KeySet, KnobError, Layers, Values};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use regime::{Detector, Profile, Regime};
use tune::{Reflex, Sojourn, sleep_adjusted, spikes, stability, worth_a_line};

/// After a pause longer than this, for example after suspend, counts of intervals in a row start at
/// zero. Chosen: five intervals.
pub const GAP: Span = Span::from_millis(5_000);

/// The adaptive loop.
#[derive(Clone, Debug)]
pub struct Controller {
    limits: Scaling,
    /// The knobs of the start, of the profile and of the user.
    layers: Layers,
    /// The knobs in force without the loop: the values of `layers`.
    wanted: Knobs,
    /// The knobs in force.
    knobs: Knobs,
    regime: Detector,
    reflex: Reflex,
    sojourn: Sojourn,
    longrun: bool,
    io_percent: Option<u32>,
    stability: u32,
    /// Intervals by [`Regime::index`].
    ticks: [u64; 3],
    stepped: Option<Stamp>,
}

impl Controller {
    /// A loop for `cpus` CPUs that never changes the keys in `pinned`.
    ///
    /// `start.batch_slice` is the longest slice of any regime, because it is the longest that the
    /// backend can handle. On a machine that waits for I/O a Batch task gets a quarter more.
    ///
    /// # Panics
    ///
    /// If `start` does not pass [`Knobs::check`].
    pub fn new(cpus: u32, start: Knobs, pinned: KeySet) -> Controller {
        assert!(start.check().is_ok(), "the knobs of the start are valid");
        let limits = Scaling::new(cpus);
        let mut controller = Controller {
            limits,
            layers: Layers::new(start.values(), pinned),
            wanted: start,
            knobs: start,
            regime: Detector::default(),
            reflex: Reflex::new(&Profile::scaled(Regime::default(), &limits)),
            sojourn: Sojourn::new(&limits),
            longrun: false,
            io_percent: None,
            stability: 0,
            ticks: [0; 3],
            stepped: None,
        };
        controller.knobs = controller.compose();
        controller
    }

    /// The knobs in force. Before the first step they are those of MIXED.
    pub const fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// The present regime.
    pub const fn regime(&self) -> Regime {
        self.regime.regime()
    }

    fn follow_layers(&mut self) {
        self.wanted = Knobs::of(&self.layers.values());
        self.knobs = self.compose();
    }

    fn adapt(&mut self, now: Stamp, sample: &Sample) {
        if self.stepped.replace(now).is_some_and(|before| now.since(before) > GAP) {
            self.regime.interrupt();
            self.reflex.interrupt();
        }
        let changed = sample.idle.is_some_and(|idle| self.regime.observe(idle));
        let (regime, profile) = (self.regime(), self.profile());
        self.ticks[regime.index()] += 1;

        let all = sample.latency.iter().fold(Latencies::default(), |sum, tier| sum.plus(tier));
        let (p99, ceiling) = (all.p99(), regime.p99_ceiling());
        let spike = spikes(p99, sample.latency[Tier::Interactive.index()].p99(), ceiling);
        let mut tightened = false;
        if changed || self.layers.held().holds("slice_us") {
            self.reflex.reset(&profile);
        } else {
            tightened = self.reflex.observe(regime, &profile, spike);
        }

        self.longrun = sample.longrun && self.wanted.rules.longrun;
        self.io_percent = sample.sleep.io_percent();
        self.sojourn.observe(sample.dispatches, sample.elapsed, &self.limits);
        let eventful = changed || tightened || sample.burst;
        self.stability = stability(self.stability, eventful, p99, ceiling);
    }

    /// Forgets all samples. While the loop is switched off, every step does this.
    fn start_over(&mut self) {
        self.regime = Detector::default();
        let profile = self.profile();
        self.reflex.reset(&profile);
        self.sojourn = Sojourn::new(&self.limits);
        self.longrun = false;
        self.io_percent = None;
        self.stability = 0;
        self.stepped = None;
    }

    fn profile(&self) -> Profile {
        Profile::scaled(self.regime(), &self.limits)
    }

    /// Computes the knobs from the state of the loop. The user's knobs override it.
    fn compose(&self) -> Knobs {
        if !self.wanted.rules.adaptive {
            return self.wanted;
        }
        let profile = self.profile();
        let batch = profile.batch.min(self.wanted.batch_slice);
        let batch = if self.longrun { batch } else { sleep_adjusted(batch, self.io_percent) };
        let shortest = self.wanted.slice_min;
        let mut knobs = Knobs {
            slice: self.reflex.slice.min(self.wanted.batch_slice).max(shortest),
            preempt_thresh: self.reflex.preempt,
            sleeper_credit_scale: profile.sleeper_credit,
            batch_slice: batch.max(shortest),
            cpu_bound_thresh: profile.cpu_bound,
            affinity: if self.longrun { Affinity::Weak } else { profile.affinity },
            sojourn_thresh: self.sojourn.thresh,
            ..self.wanted
        };
        keep_pinned(&mut knobs, &self.wanted, self.layers.held());
        if !self.layers.chosen().holds("slice_us") {
            // A profile's slice is no longer than the longest slice that the user wants.
            knobs.slice = knobs.slice.min(knobs.batch_slice).max(shortest);
        }
        knobs
    }

    /// The controller's part of the line that is printed at the end: `[KNOBS] regime=MIXED
    /// slice_ns=1000000 ... ticks=L:0/M:42/H:3`. Without the loop the regime is `FIXED`, and the
    /// fields that only the loop changes are omitted.
    fn last_words(&self) -> String {
        let knobs = &self.knobs;
        let regime = if knobs.rules.adaptive { self.regime().name() } else { "FIXED" };
        let mut line = format!(
            "[KNOBS] regime={regime} slice_ns={} batch_ns={} preempt_ns={} demotion_ns={} \
             sleeper_credit_scale={}",
            knobs.slice.as_nanos(),
            knobs.batch_slice.as_nanos(),
            knobs.preempt_thresh.as_nanos(),
            knobs.cpu_bound_thresh.as_nanos(),
            knobs.sleeper_credit_scale,
        );
        if knobs.rules.adaptive {
            let (tightened, events) = (self.reflex.tightened(&self.profile()), self.reflex.events);
            let [light, mixed, heavy] = self.ticks;
            line += &format!(
                " tightened={tightened} tighten_events={events} ticks=L:{light}/M:{mixed}/H:{heavy}"
            );
        }
        line
    }
}

/// Sets the knobs in `pinned` to the values of the user or the profile.
fn keep_pinned(knobs: &mut Knobs, wanted: &Knobs, pinned: KeySet) {
    if pinned.is_empty() {
        return;
    }
    let (mut values, wanted) = (knobs.values(), wanted.values());
    for knob in pinned.iter() {
        if let Some(word) = wanted.get(knob.name) {
            values.put(knob.name, word);
        }
    }
    *knobs = Knobs::of(&values);
}

impl Adapting for Controller {
    fn values(&self) -> Values {
        self.knobs.values()
    }

    fn pinned(&self) -> KeySet {
        self.layers.chosen()
    }

    fn pin(&mut self, text: &str) -> Result<Amended, FileError> {
        let amended = self.layers.set(text)?;
        if !amended.named.is_empty() {
            self.follow_layers();
        }
        Ok(amended)
    }

    fn release(&mut self, keys: KeySet) -> Result<(), KnobError> {
        if !keys.is_empty() {
            self.layers.release(keys)?;
            self.follow_layers();
        }
        Ok(())
    }

    fn replace_profile(&mut self, text: &str) -> Result<(), FileError> {
        self.layers.replace_profile(text)?;
        self.follow_layers();
        Ok(())
    }

    fn step(&mut self, now: Stamp, sample: &Sample) -> bool {
        let before = self.knobs;
        if self.wanted.rules.adaptive {
            self.adapt(now, sample);
        } else {
            self.start_over();
        }
        self.knobs = self.compose();
        self.knobs != before
    }

    /// The limits follow the new number, and the loop starts over.
    fn on_hotplug(&mut self, cpus: u32) {
        self.limits = Scaling::new(cpus);
        self.start_over();
        self.knobs = self.compose();
    }

    fn report(&self) -> Report {
        Report {
            regime: if self.wanted.rules.adaptive { self.regime().name() } else { "" },
            stability: self.stability,
            tightened: self.reflex.tightened(&self.profile()),
            tighten_events: self.reflex.events,
            wait_limit: self.limits.starvation,
            worth_a_line: worth_a_line(self.stability, self.ticks.iter().sum()),
            last_words: self.last_words(),
        }
    }

    fn boxed(&self) -> Box<dyn Adapting> {
        Box::new(self.clone())
    }
}
