// SPDX-License-Identifier: GPL-2.0-only

//! CPUs of different speed, and the speed that a CPU is asked for.

use super::domain::permille_outside;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::statistics::tune;
use crate::guest::{Guest, boot, metronome, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "urgent-cpus",
        about: "two of four CPUs are made slow by what the kernel's files say of them: urgent \
            tasks run on the fast ones, also those that were Batch before, Batch tasks on all, \
            and when the files change the preference follows without a restart. In exact mode: on \
            a busy host a CPU that is woken counts as busy for long",
        cpus: Some(4),
        limit_s: 120,
        exact: true,
        once: true,
        run: urgent_cpus,
        ..USUAL
    },
    Scenario {
        name: "frequency",
        about: "under the profile powersave a CPU is asked for less performance while it runs a \
            Batch task, and for all of it while it runs a LatCritical one; under auto the kernel \
            is asked for nothing",
        cpus: Some(2),
        exact: true,
        once: true,
        run: frequency,
        ..USUAL
    },
];

/// CPUs 0 and 1, and CPUs 2 and 3, as bits.
const FIRST_TWO: u64 = 0b0011;
const LAST_TWO: u64 = 0b1100;
/// The capacities of a fast and a slow CPU. Those of a hybrid machine differ as much.
const FAST: u32 = 1_024;
const SLOW: u32 = 400;
/// By then the tasks are classified.
const SETTLE: Duration = Duration::from_secs(1);
/// A task that was Batch counts as such for a quarter of a second: if one of two is, that is 66 of
/// 1000 units.
const WINDOW: Duration = Duration::from_secs(2);
/// The supervisor reads the kernel's files every 30 s.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(40);
/// On an idle machine the worker has a round in two seconds. This is three times that.
const NEXT_ROUND: Duration = Duration::from_secs(6);
const GLANCE: Duration = Duration::from_millis(250);
/// A task that wakes up while both fast CPUs are busy takes a slow one. Without a preference half
/// of the work is done there.
const STRAYS_MAX_PERMILLE: u64 = 100;
/// Four hogs on four CPUs do half of their work on the slow ones.
const HOGS_MIN_PERMILLE: u64 = 400;
const CPUS: &str = "/sys/devices/system/cpu";

/// Makes the CPUs in `fast` fast and the others slow: a copy of each CPU's folder with another
/// capacity takes its place.
fn set_capacities(guest: &Guest, fast: u64) -> Result<()> {
    for cpu in 0..guest.cpus {
        let capacity = if fast >> cpu & 1 == 1 { FAST } else { SLOW };
        let (folder, copy) = (format!("{CPUS}/cpu{cpu}"), format!("/tmp/cpu{cpu}"));
        if !Path::new(&copy).exists() {
            copy_folder(Path::new(&folder), Path::new(&copy))?;
            boot::mount(&copy, &folder, "", libc::MS_BIND)?;
        }
        let file = format!("{folder}/cpu_capacity");
        fs::write(&file, format!("{capacity}\n")).with_context(|| format!("writing {file}"))?;
    }
    Ok(())
}

/// Copies the files that can be read. Links lead elsewhere, and are left out.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(entry.path())
        {
            fs::write(&target, bytes)?;
        }
    }
    Ok(())
}

fn urgent_cpus(guest: &Guest) -> Result<()> {
    set_capacities(guest, LAST_TWO)?;
    let scheduler = Scheduler::start(guest, &[])?;
    expect_printed(&scheduler, "urgent tasks prefer the CPUs 2-3", SETTLE)?;
    let permille = permille_outside(&scheduler, &LIGHT, LAST_TWO, WINDOW)?;
    report::note(format!("of 1000 units of urgent work {permille} were done on slow CPUs"));
    ensure!(permille <= STRAYS_MAX_PERMILLE, "{permille} of 1000 units were done on slow CPUs");
    let busy = [Kind::Hog; 4];
    let permille = permille_outside(&scheduler, &busy, LAST_TWO, WINDOW)?;
    report::note(format!("of 1000 units of four hogs {permille}"));
    ensure!(
        permille >= HOGS_MIN_PERMILLE,
        "four hogs leave slow CPUs idle: {permille} of 1000 units there"
    );
    let permille = permille_outside(&scheduler, &LOADING, LAST_TWO, WINDOW)?;
    report::note(format!("of 1000 units after loading {permille} on slow CPUs"));
    ensure!(permille <= STRAYS_MAX_PERMILLE, "after loading {permille} of 1000 units on slow CPUs");

    set_capacities(guest, FIRST_TWO)?;
    metronome::stop(guest.cpus)?;
    expect_printed(&scheduler, "CPUs have changed: urgent tasks prefer 0-1", FOLLOWS_WITHIN)?;
    sleep(NEXT_ROUND);
    metronome::start(guest.cpus, guest.instruction_ns)?;
    let permille = permille_outside(&scheduler, &LIGHT, FIRST_TWO, WINDOW)?;
    report::note(format!("after the change {permille}"));
    ensure!(permille <= STRAYS_MAX_PERMILLE, "{permille} of 1000 units on CPUs that became slow");
    ensure!(scheduler.statistics()?.count("restarts")? == 0, "the scheduler was started again");
    scheduler.finish().map(drop)
}

/// Tasks that sleep most of the time: two fit on two CPUs.
const LIGHT: [Kind; 2] = [Kind::Sleeper { pause_us: 3_000 }; 2];

/// They compete for the CPUs at first, and become Batch. Then all fit on two CPUs.
const LOADING: [Kind; 8] = [Kind::Loader { work_us: 200_000, pause_us: 5_000 }; 8];

fn expect_printed(scheduler: &Scheduler, what: &str, limit: Duration) -> Result<()> {
    let start = Instant::now();
    while !scheduler.printed().iter().any(|line| line.contains(what)) {
        let printed = scheduler.printed();
        ensure!(start.elapsed() < limit, "it has not printed {what:?}, but {printed:?}");
        sleep(GLANCE);
    }
    Ok(())
}

/// How often the kernel is asked within the window.
fn asked(scheduler: &Scheduler) -> Result<u64> {
    let count = || scheduler.statistics()?.count("nr_performance_changes");
    sleep(SETTLE);
    let before = count()?;
    sleep(ASKED_WINDOW);
    Ok(count()? - before)
}

/// The statistics are a second old at most, so the counts are those of two to four seconds.
const ASKED_WINDOW: Duration = Duration::from_secs(3);
/// A sleeper of 3 ms wakes up some 300 times a second.
const ASKED_MIN: u64 = 1_000;
/// Statistics and the kernel's threads wake up now and then, and the process decides at the ends of
/// slices: some 50 times a second, where hogs and sleepers together make a thousand.
const ASKED_MAX_ALONE: u64 = 300;

fn frequency(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--profile", "powersave"])?;
    let hogs = Load::start(&vec![Kind::Hog; guest.cpus])?;
    let alone = asked(&scheduler)?;
    let sleepers = Load::start(&LIGHT)?;
    let beside = asked(&scheduler)?;
    tune("profile=auto", "the scenario")?;
    let auto = asked(&scheduler)?;
    report::note(format!(
        "in {ASKED_WINDOW:?} the kernel was asked {alone} times beside hogs, {beside} beside \
         sleepers too, {auto} under auto"
    ));
    ensure!(alone <= ASKED_MAX_ALONE, "beside hogs alone the kernel was asked {alone} times");
    ensure!(beside >= ASKED_MIN, "beside sleepers the kernel was asked {beside} times only");
    ensure!(auto == 0, "under auto the kernel was asked {auto} times");
    drop((hogs, sleepers));
    scheduler.finish().map(drop)
}
