// SPDX-License-Identifier: GPL-2.0-only

//! Every failure ends with one sentence and an exit code of its own.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, kernel, report, wakeups};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "errors",
        about: "a start without privileges, beside another scheduler, or with bad options is \
            refused with one sentence and an exit code of its own",
        once: true,
        run: errors,
        ..USUAL
    },
    Scenario {
        name: "two-starts",
        about: "two starts at the same time, ten times: one is refused with one sentence and exit \
            code 5, the other one schedules and answers requests for statistics",
        limit_s: 180,
        once: true,
        run: two_starts,
        ..USUAL
    },
    Scenario {
        name: "killed",
        about: "the worker process is killed, on an idle machine and on a busy one: the kernel's \
            own scheduler takes over, no wakeup waits for more than 200 ms meanwhile, and ours is \
            in charge again within 5 s, with a line that names the signal",
        run: killed,
        ..USUAL
    },
];

/// How long wakeups are measured around a kill, in seconds.
const KILL_S: u64 = 3;
/// The longest wakeup meanwhile.
const KILL_WORST_US: f64 = 200_000.0;
/// A user without privileges.
pub const NOBODY: u32 = 65534;
/// Exit code: wrong use.
pub const USAGE: i32 = 2;
/// Exit code: missing privileges.
pub const UNPRIVILEGED: i32 = 3;
const ALREADY_LOADED: i32 = 5;
const REFUSED: i32 = 6;
/// Exit code: the kernel has unloaded the scheduler.
pub const EJECTED: i32 = 7;
const LIMIT: Duration = Duration::from_secs(10);
/// From the death of the worker process to the kernel's own scheduler. If tasks wait, this must be
/// sooner than the kernel's watchdog, which fires after 5 s.
const BUSY_LIMIT: Duration = Duration::from_secs(3);
/// If no task waits, the killed process exits only at the backend's next heartbeat, and the kernel
/// then waits for RCU once for each of its BPF programs.
pub const IDLE_LIMIT: Duration = Duration::from_secs(15);

fn errors(guest: &Guest) -> Result<()> {
    let mut unprivileged = scheduler::command(guest, &[]);
    unprivileged.uid(NOBODY).gid(NOBODY);
    let parts = &["CAP_BPF", "CAP_SYS_NICE"];
    expect_refusal("without privileges", &mut unprivileged, UNPRIVILEGED, parts)?;
    let usage: [(&[&str], &[&str]); 5] = [
        (&["--slice-us", "0"], &["100", "100000"]),
        (&["--slice-us", "100001"], &["100", "100000"]),
        (&["--slice-us-min", "99"], &["100", "100000"]),
        (&["--policy", "nonsense"], &["nonsense"]),
        (&["--no-such-option"], &["--no-such-option"]),
    ];
    for (arguments, parts) in usage {
        expect_refusal(
            &arguments.join(" "),
            &mut scheduler::command(guest, arguments),
            USAGE,
            parts,
        )?;
    }
    let own_pids = &mut in_own_pids(scheduler::command(guest, &[]));
    expect_refusal("in a PID namespace of its own", own_pids, REFUSED, &["PID namespace"])?;
    let group = ["--stats-group", "no-such-group"];
    let parts = &["no-such-group", "/etc/group"];
    expect_refusal(&group.join(" "), &mut scheduler::command(guest, &group), USAGE, parts)?;
    ensure!(
        kernel::sched_ext_state()? == "disabled",
        "a refused start left sched_ext {}",
        kernel::sched_ext_state()?
    );
    let first = Scheduler::start(guest, &[])?;
    expect_refusal("beside another", &mut scheduler::command(guest, &[]), ALREADY_LOADED, &[])?;
    first.finish().context("the first instance, after the second was refused").map(drop)
}

/// Has the program run in a PID namespace of its own, in which a process must be forked.
fn in_own_pids(mut command: Command) -> Command {
    // SAFETY: plain system calls between fork and exec, on memory of this process's own.
    unsafe {
        command.pre_exec(|| {
            if libc::unshare(libc::CLONE_NEWPID) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            match libc::fork() {
                0 => Ok(()),
                child => {
                    let mut status = 0;
                    libc::waitpid(child, &mut status, 0);
                    libc::_exit(libc::WEXITSTATUS(status))
                }
            }
        });
    }
    command
}

/// Runs a program that must exit with this code and print one sentence on stderr that contains each
/// of the parts.
pub fn expect_refusal(what: &str, command: &mut Command, code: i32, parts: &[&str]) -> Result<()> {
    report::progress(format!("starting what must be refused: {what}"));
    let mut child = command.spawn().with_context(|| format!("{what}: starting it"))?;
    let Some(status) = scheduler::wait_with_limit(&mut child, LIMIT)? else {
        let _ = child.kill();
        bail!("{what}: not refused, still running after {} s", LIMIT.as_secs());
    };
    let mut message = String::new();
    child.stderr.take().context("stderr is piped")?.read_to_string(&mut message)?;
    let sentence = message.trim();
    report::note(format!("{what}: {sentence}"));
    ensure!(
        status.code() == Some(code),
        "{what}: {status}, not exit code {code}, with the message: {sentence}"
    );
    ensure!(!sentence.is_empty(), "{what}: refused without a message");
    ensure!(
        !sentence.contains("panicked") && !sentence.contains("backtrace"),
        "{what}: a panic: {sentence}"
    );
    ensure!(
        sentence.lines().count() == 1,
        "{what}: more than one line: {}",
        sentence.replace('\n', " | ")
    );
    for part in parts {
        ensure!(sentence.contains(part), "{what}: the message does not say {part}: {sentence}");
    }
    Ok(())
}

fn two_starts(guest: &Guest) -> Result<()> {
    for round in 1..=10 {
        report::progress(format!("round {round} of 10"));
        one_of_two(guest).with_context(|| format!("in round {round} of 10"))?;
    }
    Ok(())
}

fn one_of_two(guest: &Guest) -> Result<()> {
    let (survivor, refused) = Scheduler::start_twice(guest)?;
    report::note(refused.describe());
    ensure!(refused.status.code() == Some(ALREADY_LOADED), "not exit code {ALREADY_LOADED}");
    ensure!(refused.output.len() == 1, "not one sentence: {}", refused.describe());
    survivor.statistics().context("the one that schedules, after the other was refused")?;
    survivor.finish().map(drop)
}

fn killed(guest: &Guest) -> Result<()> {
    for (how, hogs, limit) in [("idle", 0, IDLE_LIMIT), ("busy", 2 * guest.cpus, BUSY_LIMIT)] {
        let load = Load::start(&vec![Kind::Hog; hogs])?;
        let scheduler = Scheduler::start(guest, &[])?;
        std::thread::sleep(Duration::from_secs(1));
        let statistics = scheduler.statistics()?;
        let health = statistics.text("health")?;
        ensure!(health != "starting", "{how} machine: no decision within a second");
        let probe = wakeups::start(KILL_S)?;
        let back = scheduler.replace_worker(limit).with_context(|| format!("{how} machine"));
        let worst = probe.finish()?.worst_us();
        report::note(format!(
            "{how} machine: the longest wakeup took {worst:.0} us, and ours was back after {:.0?}",
            back?
        ));
        ensure!(worst <= KILL_WORST_US, "{how} machine: a wakeup waited for {worst:.0} us");
        expect_replaced(&scheduler)?;
        drop(load);
        scheduler.finish()?;
    }
    Ok(())
}

/// It says which signal killed the worker, and counts the restart.
fn expect_replaced(scheduler: &Scheduler) -> Result<()> {
    let told = scheduler.printed();
    let names_it = told.iter().any(|line| line.contains("killed by signal 9"));
    ensure!(names_it, "no line names the signal: {}", told.join(" | "));
    let restarts = scheduler.statistics()?.count("restarts")?;
    ensure!(restarts == 1, "restarts are {restarts}, not 1");
    Ok(())
}
