// SPDX-License-Identifier: GPL-2.0-only

//! Knobs: changed while the scheduler runs, and read from a file at the start.

use super::errors::{NOBODY, UNPRIVILEGED, USAGE, expect_refusal};
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::{self, LOAD_LIMIT, Scheduler};
use crate::guest::wait::wait_for;
use crate::guest::{Guest, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use scx_stats::prelude::{StatsClient, StatsErrno};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "tune",
        about: "changing a knob while hogs run changes how often they are switched; a value out of \
            range, or another user, changes nothing; a group reads statistics, one chooses the \
            profile, and only that; a member that sends a line without end, or connects without \
            end, ends nothing",
        once: true,
        run: tune,
        ..USUAL
    },
    Scenario {
        name: "options",
        about: "a file of knobs is used, and a wrong line in it is refused by its number; a domain \
            without an online CPU is refused",
        limit_s: 90,
        once: true,
        run: options,
        ..USUAL
    },
];

/// A client waits for a server that the scheduler under test schedules.
const LIMIT: Duration = Duration::from_secs(10);
/// Time between the two readings of a rate.
const WINDOW: Duration = Duration::from_secs(3);

/// Runs the program as a client that must succeed, and returns what it prints.
pub fn ask(guest: &Guest, arguments: &[&str]) -> Result<String> {
    let what = arguments.join(" ");
    report::progress(format!("asking: {what}"));
    let mut child = scheduler::command(guest, arguments).spawn().context("starting a client")?;
    let Some(status) = scheduler::wait_with_limit(&mut child, LIMIT)? else {
        let _ = child.kill();
        bail!("{what}: no answer within {} s", LIMIT.as_secs());
    };
    let (mut said, mut message) = (String::new(), String::new());
    child.stdout.take().context("stdout is piped")?.read_to_string(&mut said)?;
    child.stderr.take().context("stderr is piped")?.read_to_string(&mut message)?;
    ensure!(status.success(), "{what}: {status}, printing: {message}");
    Ok(said)
}

fn tune(guest: &Guest) -> Result<()> {
    let groups = ["--stats-group", "nogroup", "--profile-group", "nogroup"];
    let scheduler = Scheduler::start(guest, &groups)?;
    let _load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    let refused: [(&[&str], &[&str]); 4] = [
        (&["tune", "batch_slice_us=99"], &["batch_slice_us", "100 to 100000"]),
        (&["tune", "speed=9"], &["no knob", "speed"]),
        (&["tune", "--release", "speed"], &["no knob", "speed"]),
        (&["tune", "slice_us=200", "slice_min_us=300"], &["must not be above"]),
    ];
    for (arguments, parts) in refused {
        let command = &mut scheduler::command(guest, arguments);
        expect_refusal(&arguments.join(" "), command, USAGE, parts)?;
    }
    let mut unprivileged = scheduler::command(guest, &["tune", "lag_scale=9"]);
    unprivileged.uid(NOBODY).gid(NOBODY);
    let what = "tune without privileges";
    expect_refusal(what, &mut unprivileged, UNPRIVILEGED, &["only the user"])?;
    group_reads(guest)?;
    group_chooses(guest, &scheduler)?;
    for socket in [STATISTICS, PROFILE] {
        group_floods(guest, &scheduler, socket).with_context(|| format!("flooding {socket}"))?;
    }
    ensure!(scheduler.statistics()?.count("nr_knobs_set")? == 0, "a refused knob was set");

    // Two slices. Only the second is longer than a tick, at which the kernel ends slices.
    let mut rates = Vec::new();
    for slice in ["batch_slice_us=4000", "batch_slice_us=40000"] {
        let said = ask(guest, &["tune", slice])?;
        report::note(said.trim());
        ensure!(said.starts_with(slice) && said.contains('*'), "tune {slice} printed: {said}");
        rates.push(requeues_per_second(&scheduler)?);
    }
    report::note(format!("requeues a second with 4 ms and 40 ms: {rates:?}"));
    ensure!(rates[1] < rates[0] / 2, "a slice ten times as long changed little: {rates:?}");
    let all = ask(guest, &["tune"])?;
    ensure!(all.contains("batch_slice_us=40000") && all.contains("rule.deficit=on"), "{all}");
    ask(guest, &["tune", "--release", "batch_slice_us"])?;
    ensure!(scheduler.statistics()?.count("nr_knobs_set")? == 0, "a released knob is still set");
    let ended = scheduler.finish()?;
    let last = ended.output.iter().rfind(|line| line.starts_with("[KNOBS]"));
    report::note(last.context("the last line on knobs is missing")?.as_str());
    Ok(())
}

/// A user, and the group of that user, which is not the one of the options.
const NO_MEMBER: u32 = 1_234;

/// A command of this user, in the user's own group only.
fn command_of(guest: &Guest, user: u32, arguments: &[&str]) -> Command {
    let mut command = scheduler::command(guest, arguments);
    command.uid(user).gid(user);
    command
}

/// A member of the group reads statistics, and may neither ask nor change anything; a user who is
/// no member may not read either.
fn group_reads(guest: &Guest) -> Result<()> {
    for arguments in [&["metrics"][..], &["top", "--once"]] {
        let what = format!("{} by a group", arguments.join(" "));
        let mut child =
            command_of(guest, NOBODY, arguments).spawn().context("starting a client")?;
        let status = scheduler::wait_with_limit(&mut child, LIMIT)?;
        let mut message = String::new();
        child.stderr.take().context("stderr is piped")?.read_to_string(&mut message)?;
        ensure!(status.is_some_and(|status| status.success()), "{what}: {status:?}: {message}");
        let what = format!("{} by a user outside the group", arguments.join(" "));
        let mut refused = command_of(guest, NO_MEMBER, arguments);
        expect_refusal(&what, &mut refused, UNPRIVILEGED, &["only the user"])?;
    }
    let mut asks = command_of(guest, NOBODY, &["explain", "1"]);
    expect_refusal("explain by a group", &mut asks, UNPRIVILEGED, &["only the user"])?;
    // Not by the program, which does not try: by the socket itself.
    let answer = request_of_group(STATISTICS, &[("target", "tune"), ("set", "lag_scale=9")]);
    ensure!(answer.is_err(), "the socket of the group takes knobs: {answer:?}");
    Ok(())
}

/// A member of the group chooses the profile, and has no other request; a user outside the
/// group may not choose either.
fn group_chooses(guest: &Guest, scheduler: &Scheduler) -> Result<()> {
    for profile in ["profile=server", "profile=auto"] {
        let mut member = command_of(guest, NOBODY, &["tune", profile]);
        let mut child = member.spawn().context("starting a client")?;
        let status = scheduler::wait_with_limit(&mut child, LIMIT)?;
        ensure!(status.is_some_and(|it| it.success()), "tune {profile} by a group: {status:?}");
        let now = scheduler.statistics()?;
        ensure!(profile.ends_with(now.text("profile")?), "it is {}", now.text("profile")?);
    }
    let mut refused = command_of(guest, NO_MEMBER, &["tune", "profile=server"]);
    let what = "tune profile by a user outside the group";
    expect_refusal(what, &mut refused, UNPRIVILEGED, &["only the user"])?;
    let knob = request_of_group(PROFILE, &[("target", "tune"), ("set", "lag_scale=9")])?;
    ensure!(knob.get("refused").is_some(), "the socket for the profile takes knobs: {knob}");
    for other in [&[][..], &[("target", "explain"), ("pid", "1")]] {
        let answer = request_of_group(PROFILE, other);
        ensure!(answer.is_err(), "the socket for the profile says {answer:?}");
    }
    Ok(())
}

/// More than the supervisor could keep, and more than it reads of one request.
const ENDLESS: usize = 100 << 20;
const READ_MAX: usize = 4 << 20;
/// Connections at once, and the most file descriptors that the supervisor then has.
const CONNECTIONS: usize = 200;
const DESCRIPTORS_MAX: usize = 120;

/// A member sends a line without end, half a line, and connects as often as it can. The scheduler
/// goes on, and its user's request is answered.
fn group_floods(guest: &Guest, scheduler: &Scheduler, socket: &str) -> Result<()> {
    let connect = || UnixStream::connect(path_of_group(socket)).context("connecting");
    let (mut endless, mut half) = (connect()?, connect()?);
    endless.set_write_timeout(Some(LIMIT))?;
    let piece = vec![b'x'; 64 << 10];
    let pieces = (0..ENDLESS / piece.len()).take_while(|_| endless.write_all(&piece).is_ok());
    let sent = pieces.count() * piece.len();
    ensure!(sent <= READ_MAX, "it took {} KiB of one line", sent >> 10);
    half.write_all(b"{\"req\":")?;
    let connections = (0..CONNECTIONS).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    let all = ask(guest, &["tune"])?;
    ensure!(all.contains("batch_slice_us"), "{all}");
    scheduler.expect_in_charge()?;
    let folder = format!("/proc/{}/fd", scheduler.pid());
    let descriptors = fs::read_dir(folder).context("reading descriptors")?.count();
    report::note(format!("{} connections, {descriptors} descriptors", connections.len()));
    ensure!(descriptors <= DESCRIPTORS_MAX, "the supervisor has {descriptors} descriptors");
    drop((endless, half, connections));
    // Their places are free as soon as their threads have run.
    let is_free = || Ok(is_served(request_of_group(socket, &[("target", "none")])));
    wait_for("a free place for a client", LIMIT, is_free).map(drop)
}

/// Whether a client had a place, which asked for a target that does not exist.
fn is_served(answer: Result<serde_json::Value>) -> bool {
    answer.is_err_and(|it| matches!(it.downcast_ref(), Some(StatsErrno(libc::EINVAL))))
}

/// The sockets of groups.
const STATISTICS: &str = "group/stats";
const PROFILE: &str = "profile/tune";

fn path_of_group(socket: &str) -> String {
    format!("/var/run/scx/root/scx_pandemonium_user.{socket}")
}

/// Sends a request to the socket of a group.
fn request_of_group(socket: &str, arguments: &[(&str, &str)]) -> Result<serde_json::Value> {
    let mut client = StatsClient::new().set_path(path_of_group(socket)).connect(Some(5_000))?;
    let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    client.request("stats", arguments.iter().map(own).collect())
}

fn requeues_per_second(scheduler: &Scheduler) -> Result<u64> {
    // Until the slices dispatched with the old knob have ended.
    std::thread::sleep(Duration::from_millis(500));
    let before = scheduler.statistics()?.count("nr_requeues")?;
    std::thread::sleep(WINDOW);
    Ok((scheduler.statistics()?.count("nr_requeues")? - before) / WINDOW.as_secs())
}

fn options(guest: &Guest) -> Result<()> {
    let file = "/tmp/knobs";
    fs::write(file, "# longer\nlag_scale=9\n\nslice_us=99\n").context("writing knobs")?;
    let beyond = format!("{}-70", guest.cpus);
    let refused: [(&[&str], &[&str]); 6] = [
        (&["--knobs", file], &[file, "line 4", "slice_us", "100 to 100000"]),
        (&["--knobs", "/tmp/none"], &["/tmp/none", "No such file"]),
        (&["--primary-domain", &beyond], &["names no CPU that is online"]),
        (&["--primary-domain", "powersave"], &["powersave", "of one kind"]),
        (&["--primary-domain", "0-"], &["0-3,8,10-20:2"]),
        (&["--domain-strict"], &["--primary-domain"]),
    ];
    for (arguments, parts) in refused {
        let command: &mut Command = &mut scheduler::command(guest, arguments);
        expect_refusal(&arguments.join(" "), command, USAGE, parts)?;
    }

    fs::write(file, "lag_scale=9 # longer\nrule.adaptive=off\n").context("writing knobs")?;
    let scheduler = Scheduler::start(guest, &["--knobs", file])?;
    let all = ask(guest, &["tune"])?;
    let marked = |key: &str| all.lines().any(|line| line.starts_with(key) && line.contains('*'));
    ensure!(
        marked("sleeper_credit_scale=9") && marked("rule.adaptive=off"),
        "the file was not used: {all}"
    );
    let regime = scheduler.statistics()?.text("regime")?.to_owned();
    ensure!(regime == "FIXED", "without the adaptive loop the regime is {regime}");
    scheduler.finish()?;
    prints_what_happened(guest)
}

/// With `--verbose` it prints a line a second, and at the end the log and the last state of the
/// adaptive loop.
fn prints_what_happened(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--verbose", "--dump-log"])?;
    let lines = || scheduler.printed().iter().filter(|line| line.starts_with("d/s:")).count();
    // The scheduler first locks its memory, and prints nothing before its first round.
    let took = wait_for("a line of statistics", LOAD_LIMIT, || Ok(lines() > 0))?;
    report::note(format!("the first line of statistics came after {took:.1?}"));
    std::thread::sleep(Duration::from_secs(4));
    let more = lines();
    // Every second, or every other second on an idle machine.
    ensure!((1..=5).contains(&more), "{more} lines of statistics in 4 s");
    let said = scheduler.finish()?.output;
    let find = |begin: &str| {
        let found = said.iter().rfind(|line| line.trim_start().starts_with(begin));
        found.with_context(|| format!("at the end it did not print {begin}: {}", said.join(" | ")))
    };
    find("[KNOBS] regime=")?;
    find("TIME      D/S")?;
    report::note(said.last().context("the summary is missing")?.as_str());
    ensure!(said.last().is_some_and(|line| line.contains(" seconds in ")), "no summary");
    Ok(())
}
