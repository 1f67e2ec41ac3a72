// SPDX-License-Identifier: GPL-2.0-only

//! The adaptive loop: once a second it gives the controller the facts of that second, and publishes
//! the controller's knobs to the worker. `tune` changes knobs here too.

use super::clock;
use super::fast_path_counters::FastPathCounters;
use super::mutex::lock;
use super::reading::Reading;
use super::shared::Shared;
use pandemonium_engine::adapting::{Adapting, Report, Sample, idle_per_mille};
use pandemonium_engine::knobs::{Amended, KeySet, Knob, KnobProfile, Table, Values};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use procfs::{CurrentSI, KernelStats};
use std::sync::{Arc, Mutex};

/// The controller, and the facts of the last second.
pub struct Adaptive {
    shared: Arc<Shared>,
    /// The profiles of the policy.
    profiles: &'static [KnobProfile],
    table: &'static Table,
    state: Mutex<State>,
}

struct State {
    control: Box<dyn Adapting>,
    profile: ProfileInForce,
    fast_path: FastPathCounters,
    cpu_idle: Option<u32>,
    /// When the loop last ran.
    ran: Stamp,
}

/// The profile in force.
#[derive(Clone, Debug, Default)]
pub struct ProfileInForce {
    /// `None` if the policy has no profiles.
    pub profile: Option<&'static KnobProfile>,
    /// By what it was chosen; empty for the defaults of the start.
    pub by: String,
}

impl ProfileInForce {
    /// Its name; `auto` stands for the defaults of a policy without profiles.
    pub fn name(&self) -> &'static str {
        self.profile.map_or("auto", |profile| profile.name)
    }

    /// The value that the profile gives to a knob, if it does, as it is written there.
    pub fn value_of(&self, knob: &Knob) -> Option<&'static str> {
        let (_, value) = self.assignments().find(|(name, _)| *name == knob.name)?;
        value.split('#').next().map(str::trim)
    }

    /// The knobs that the profile sets.
    pub fn keys(&self, table: &'static Table) -> KeySet {
        self.assignments().fold(KeySet::none(table), |keys, (name, _)| keys.with(name))
    }

    fn assignments(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let text = self.profile.map_or("", |profile| profile.knobs);
        text.lines().filter_map(|line| line.split_once('='))
    }
}

/// A change of knobs by the user: all of it applies or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The knobs to set, in lines `KEY=VALUE`.
    pub set: &'a str,
    /// The knobs to give back.
    pub release: KeySet,
    /// The profile to change to, and by what it is chosen.
    pub profile: Option<(&'static KnobProfile, &'a str)>,
}

/// The state of the loop, for statistics.
#[derive(Clone)]
pub struct Status {
    /// The values in force.
    pub values: Values,
    /// The knobs that the user has set.
    pub pinned: KeySet,
    /// The profile in force.
    pub profile: ProfileInForce,
    /// How the controller classifies the load.
    pub report: Report,
    /// The fast path's counters of the last second.
    pub fast_path: FastPathCounters,
    /// Idle time of the CPUs in the last second, in per mille.
    pub cpu_idle: Option<u32>,
}

impl Adaptive {
    /// That of a machine with four CPUs, on which options have set these knobs.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_four_cpus(shared: Arc<Shared>, chosen: KeySet) -> Adaptive {
        use pandemonium_engine::PolicyType;
        use pandemonium_policies::knobs::TABLE;
        use pandemonium_policies::{Pandemonium, profiles::PROFILES};
        Adaptive::new(shared, Pandemonium::adapting(4, TABLE.defaults(), chosen), PROFILES)
    }

    /// A loop that begins with the controller's values, and publishes them at once.
    pub fn new(
        shared: Arc<Shared>,
        control: Box<dyn Adapting>,
        profiles: &'static [KnobProfile],
    ) -> Adaptive {
        let values = control.values();
        shared.knobs.publish(&values);
        let fast_path = FastPathCounters::default();
        let profile = ProfileInForce { profile: profiles.first(), by: String::new() };
        let state = State { control, profile, fast_path, cpu_idle: None, ran: clock::now() };
        Adaptive { shared, profiles, table: values.table(), state: Mutex::new(state) }
    }

    /// The profiles that there are.
    pub fn profiles(&self) -> &'static [KnobProfile] {
        self.profiles
    }

    /// The table of the policy's knobs.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// Notes that the loop runs, also while there is nothing to adapt to.
    pub fn runs(&self, now: Stamp) {
        lock(&self.state).ran = now;
    }

    /// When the loop last ran.
    pub fn ran(&self) -> Stamp {
        lock(&self.state).ran
    }

    /// One step, with two readings that are about a second apart.
    pub fn step(&self, before: &Reading, after: &Reading, cpu_idle: Option<u32>) {
        let mut state = lock(&self.state);
        state.fast_path = after.fast_path.since(&before.fast_path);
        state.cpu_idle = cpu_idle;
        let sample = sample(before, after, cpu_idle);
        if state.control.step(after.at, &sample) {
            self.shared.knobs.publish(&state.control.values());
        }
    }

    /// Executes a change. The worker's next round uses the new values.
    pub fn tune(&self, change: &Change) -> Result<Amended, String> {
        let mut state = lock(&self.state);
        let mut changed = state.control.boxed();
        changed.release(change.release).map_err(|error| error.to_string())?;
        if let Some((profile, _)) = change.profile {
            changed.replace_profile(profile.knobs).map_err(|error| {
                let (name, why) = (profile.name, error.error);
                format!("the profile {name} contradicts a knob that you have set: {why}")
            })?;
        }
        let amended = changed.pin(change.set).map_err(|error| error.error.to_string())?;
        self.shared.knobs.publish(&changed.values());
        state.control = changed;
        if let Some((profile, by)) = change.profile {
            state.profile = ProfileInForce { profile: Some(profile), by: by.into() };
        }
        Ok(amended)
    }

    /// A CPU has gone on- or offline: now `cpus` are online.
    pub fn on_hotplug(&self, cpus: u32) {
        let mut state = lock(&self.state);
        state.control.on_hotplug(cpus);
        self.shared.knobs.publish(&state.control.values());
    }

    /// The current state.
    pub fn status(&self) -> Status {
        let state = lock(&self.state);
        Status {
            values: state.control.values(),
            pinned: state.control.pinned(),
            profile: state.profile.clone(),
            report: state.control.report(),
            fast_path: state.fast_path,
            cpu_idle: state.cpu_idle,
        }
    }
}

/// The facts of the interval between two readings.
fn sample(before: &Reading, after: &Reading, idle: Option<u32>) -> Sample {
    let (was, is) = (&before.numbers, &after.numbers);
    let fast_path = after.fast_path.since(&before.fast_path);
    let user = is.user_dispatches.saturating_sub(was.user_dispatches);
    let kernel = is.kernel_dispatches.saturating_sub(was.kernel_dispatches);
    Sample {
        elapsed: after.at.since(before.at),
        idle,
        dispatches: user + kernel,
        latency: Tier::ALL.map(|tier| fast_path.latency(tier)),
        sleep: fast_path.sleeps(),
        longrun: is.longrun != 0,
        burst: is.burst_rounds > was.burst_rounds,
    }
}

/// The idle time of all CPUs since the boot.
#[derive(Clone, Copy, Debug)]
pub struct IdleTime {
    at: Stamp,
    idle: Span,
    cpus: u32,
}

impl IdleTime {
    /// Reads `/proc/stat`. A CPU that waits for I/O is idle too: it has no task to run.
    pub fn read(at: Stamp) -> Option<IdleTime> {
        let stats = KernelStats::current().ok()?;
        let ticks = stats.total.idle + stats.total.iowait.unwrap_or(0);
        let tick = 1_000_000_000 / procfs::ticks_per_second();
        let idle = Span::from_nanos(ticks.saturating_mul(tick));
        Some(IdleTime { at, idle, cpus: u32::try_from(stats.cpu_time.len()).ok()? })
    }

    /// The share of idle time since an earlier reading, in per mille. `None` if a CPU went on- or
    /// offline, because the sum gained or lost its time.
    pub fn share_since(&self, earlier: &IdleTime) -> Option<u32> {
        let idle = self.idle.as_nanos().saturating_sub(earlier.idle.as_nanos());
        let elapsed = self.at.since(earlier.at);
        let share = idle_per_mille(Span::from_nanos(idle), elapsed, self.cpus);
        share.filter(|_| self.cpus == earlier.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_path_counters::tests::fast_path_counters;
    use crate::shared::Numbers;
    use pandemonium_engine::PolicyType;
    use pandemonium_policies::Pandemonium;
    use pandemonium_policies::knobs::{Knobs, TABLE};
    use pandemonium_policies::profiles::PROFILES;

    fn second(number: u64, numbers: Numbers, fast_path: FastPathCounters) -> Reading {
        let at = Stamp::from_nanos(number * 1_000_000_000);
        Reading { at, numbers, fast_path, ..Reading::default() }
    }

    fn adaptive(chosen: KeySet) -> (Adaptive, Arc<Shared>) {
        let shared = Arc::new(Shared::create().unwrap());
        let control = Pandemonium::adapting(8, TABLE.defaults(), chosen);
        (Adaptive::new(Arc::clone(&shared), control, PROFILES), shared)
    }

    #[test]
    fn a_sample_is_the_difference_of_two_readings() {
        let ms = Span::from_millis;
        let numbers = Numbers { user_dispatches: 5, kernel_dispatches: 7, ..Numbers::default() };
        let row = fast_path_counters(Tier::Batch, 10, ms(5), (3, ms(1)));
        let before = second(1, numbers, row);
        let more = Numbers {
            user_dispatches: 105,
            kernel_dispatches: 8,
            burst_rounds: 1,
            longrun: 1,
            ..numbers
        };
        let after = second(
            2,
            more,
            row.plus(&fast_path_counters(Tier::Interactive, 4, ms(2), (9, ms(50)))),
        );
        let seen = sample(&before, &after, Some(333));
        assert_eq!((seen.elapsed, seen.idle, seen.dispatches), (ms(1_000), Some(333), 101));
        assert_eq!(seen.latency[Tier::Batch.index()].p99(), Span::ZERO);
        assert_eq!(seen.latency[Tier::Interactive.index()].p99(), ms(2));
        assert_eq!(seen.sleep.counts, [0, 0, 9, 0]);
        assert!(seen.longrun && seen.burst);
        let later = sample(&after, &second(3, more, row), None);
        assert!(later.longrun && !later.burst, "the burst is over, the long run is not");
    }

    #[test]
    fn the_controller_s_changes_reach_the_worker() {
        let (adaptive, shared) = adaptive(Knobs::none());
        let mut seen = 0;
        let first = shared
            .knobs
            .newer(&TABLE, &mut seen)
            .expect("knobs are published before the worker starts");
        assert_eq!(first, adaptive.status().values);
        let at = |number| second(number, Numbers::default(), FastPathCounters::default());
        adaptive.step(&at(1), &at(2), Some(0));
        assert_eq!(
            shared.knobs.newer(&TABLE, &mut seen),
            None,
            "one second does not change the regime"
        );
        adaptive.step(&at(2), &at(3), Some(0));
        let heavy = shared.knobs.newer(&TABLE, &mut seen).unwrap();
        assert_eq!(adaptive.status().report.regime, "HEAVY");
        assert!(heavy.time("slice_us") > first.time("slice_us"));
        assert_eq!(adaptive.status().cpu_idle, Some(0));
    }

    #[test]
    fn the_user_s_knobs_reach_the_worker_all_or_none() {
        let (adaptive, shared) = adaptive(Knobs::none());
        let mut seen = 0;
        shared.knobs.newer(&TABLE, &mut seen).unwrap();
        let change = |set, release| Change { set, release, profile: None };
        adaptive.tune(&change("slice_us=750\nlag_scale=9", Knobs::none())).unwrap();
        let knobs = shared.knobs.newer(&TABLE, &mut seen).unwrap();
        let knobs = Knobs::of(&knobs);
        assert_eq!((knobs.slice, knobs.sleeper_credit_scale), (Span::from_micros(750), 9));
        let slice = Knobs::none().with("slice_us");
        let refused = adaptive.tune(&change("lag_scale=900", slice)).unwrap_err();
        assert_eq!(refused, "sleeper_credit_scale takes 1 to 64, not \"900\"");
        assert_eq!(shared.knobs.newer(&TABLE, &mut seen), None);
        assert!(adaptive.status().pinned.holds("slice_us"), "nothing was released");
        adaptive.tune(&change("", slice)).unwrap();
        assert_eq!(
            shared.knobs.newer(&TABLE, &mut seen).unwrap().time("slice_us"),
            Some(Span::from_millis(1))
        );
        assert!(!adaptive.status().pinned.holds("slice_us"));
    }

    #[test]
    fn a_profile_reaches_the_worker_unless_the_user_s_knobs_contradict_it() {
        let (adaptive, shared) = adaptive(Knobs::none());
        let mut seen = 0;
        shared.knobs.newer(&TABLE, &mut seen).unwrap();
        let named = |name| KnobProfile::find(PROFILES, name).unwrap();
        let change = |set, name| {
            let profile = Some((named(name), "tune"));
            adaptive.tune(&Change { set, release: Knobs::none(), profile })
        };
        change("batch_slice_us=3000", "gaming").unwrap();
        let knobs = Knobs::of(&shared.knobs.newer(&TABLE, &mut seen).unwrap());
        let micros = (knobs.slice.as_micros(), knobs.batch_slice.as_micros());
        assert_eq!(micros, (500, 3_000), "the user's value wins");
        assert_eq!(adaptive.status().pinned.len(), 1);
        assert_eq!(adaptive.status().profile.profile, Some(named("gaming")));
        let refused = change("slice_min_us=900", "gaming").unwrap_err();
        assert!(refused.contains("must not be above"), "{refused}");
        change("slice_min_us=900", "auto").unwrap();
        let refused = change("", "lowlatency").unwrap_err();
        assert!(refused.starts_with("the profile lowlatency contradicts a knob"), "{refused}");
        assert_eq!(adaptive.status().profile.profile, Some(named("auto")));
    }

    #[test]
    fn idle_time_is_a_share_of_the_same_cpus_time() {
        let at = |s: u64, idle_ms, cpus| IdleTime {
            at: Stamp::from_nanos(s * 1_000_000_000),
            idle: Span::from_millis(idle_ms),
            cpus,
        };
        assert_eq!(at(2, 1_500, 4).share_since(&at(1, 500, 4)), Some(250));
        assert_eq!(at(2, 1_500, 3).share_since(&at(1, 500, 4)), None);
        assert_eq!(at(2, 100, 4).share_since(&at(1, 500, 4)), Some(0), "the counter went back");
        assert!(IdleTime::read(Stamp::from_nanos(5)).is_some_and(|now| now.cpus > 0));
    }
}
