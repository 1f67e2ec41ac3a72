// SPDX-License-Identifier: GPL-2.0-only

//! The systemd unit that is installed takes from the scheduler what it does not need. The guest has
//! no systemd, so the scenario reads the unit and does the same to itself and its children.

use crate::guest::load::{Kind, Load};
use crate::guest::memory::{Memory, RESIDENT_MAX, expect_small_supervisor};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use libc::{c_int, c_ulong};
use std::fs;
use std::time::Duration;

pub const ALL: &[Scenario] = &[Scenario {
    name: "unit",
    about: "with no more capabilities, socket families and kinds of memory than its systemd unit \
        allows, the scheduler starts, schedules a load with the whole fast path, and stops; its \
        processes keep no capability that they do not need, the kernel refuses them no system \
        call, and the worker holds at most 48 MiB, the supervisor at most 24",
    once: true,
    run: unit,
    ..USUAL
}];

const UNIT: &str = include_str!("../../../../packaging/scx_pandemonium_user.service.in");
/// Numbers of capabilities (kernel ABI).
const CAPABILITIES: [(&str, u32); 6] = [
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_NICE", 23),
    ("CAP_SYS_RESOURCE", 24),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
];
const LAST_CAPABILITY: u32 = 40;
/// Memory that was writable does not become executable, nor does it begin as both (since 6.3).
const PR_SET_MDWE: c_int = 65;
const PR_MDWE_REFUSE_EXEC_GAIN: c_ulong = 1;
/// The filters of system calls: this scenario's and the supervisor's; in the worker that of
/// scx_rustland_core and two of its own as well.
const SUPERVISOR_FILTERS: &str = "Seccomp_filters:\t2";
const WORKER_FILTERS: &str = "Seccomp_filters:\t5";
/// What the kernel's log says of each system call that a filter refuses.
const REFUSED: &str = "type=1326";
/// While a worker runs, the kernel must not move its pages.
const COMPACTION: &str = "/proc/sys/vm/compact_unevictable_allowed";

fn unit(guest: &Guest) -> Result<()> {
    let kept = confine()?;
    let before = fs::read_to_string(COMPACTION)?;
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    let work = load.steps_in(Duration::from_secs(3));
    ensure!(work.iter().all(|&steps| steps > 0), "a hog makes no progress: {work:?}");
    drop(load);
    // The worker drops capabilities before its first round, after the kernel has loaded it.
    let statistics = scheduler.statistics()?;
    expect_privileges(&scheduler, kept)?;
    let (health, fast_path) = (statistics.text("health")?, statistics.text("fast_path")?);
    report::note(format!("health: {health}; fast path: {fast_path}"));
    ensure!(fast_path == "loaded", "the fast path is {fast_path}");
    let compaction = fs::read_to_string(COMPACTION)?;
    ensure!(compaction.trim() == "0", "the kernel may move the scheduler's pages");
    Memory::of_scheduler(&scheduler)?.expect_at_most(RESIDENT_MAX)?;
    expect_small_supervisor(&scheduler)?;
    scheduler.finish()?;
    let after = fs::read_to_string(COMPACTION)?;
    ensure!(after == before, "after the end the kernel's setting is {after}, not {before}");
    expect_no_refused_call()
}

/// The filters of the scheduler's processes have refused nothing that these need. The kernel's log
/// has the call that this scenario's own filter has refused, if it tells of such calls at all.
fn expect_no_refused_call() -> Result<()> {
    let messages = kernel::messages();
    let own = format!(" pid={} ", std::process::id());
    let refused = messages.lines().filter(|line| line.contains(REFUSED));
    let (ours, others): (Vec<_>, Vec<_>) = refused.partition(|line| line.contains(&own));
    report::note(format!("refused calls in the kernel's log: {} of this scenario", ours.len()));
    match others.first() {
        Some(line) => bail!("a process needs a call that is refused: {line}"),
        None => Ok(()),
    }
}

/// Every thread of the worker keeps what scheduling needs; the supervisor keeps what the next
/// worker needs, and uses of it what real-time threads need.
fn expect_privileges(scheduler: &Scheduler, kept: u64) -> Result<()> {
    let [ipc_lock, _, sys_nice, _, perfmon, bpf] = CAPABILITIES.map(|(_, bit)| 1_u64 << bit);
    let scheduling = ipc_lock | sys_nice | perfmon | bpf;
    let expected = [
        (scheduler.worker()?, scheduling, scheduling, WORKER_FILTERS),
        (scheduler.pid(), kept, sys_nice, SUPERVISOR_FILTERS),
    ];
    for (process, permitted, effective, further) in expected {
        for thread in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
            // A thread that has ended meanwhile has no status.
            let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
            let (permitted, effective) =
                (format!("CapPrm:\t{permitted:016x}"), format!("CapEff:\t{effective:016x}"));
            for line in [&permitted, &effective, "NoNewPrivs:\t1", further] {
                ensure!(status.contains(line), "a thread's status has no {line:?}: {status}");
            }
        }
    }
    Ok(())
}

/// The value of a setting of the unit.
fn setting(name: &str) -> Result<&'static str> {
    let mut values = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.next().with_context(|| format!("the unit does not set {name}"))
}

/// Does to this thread, and so to the programs that it starts, what the unit asks for. Returns the
/// capabilities that they have.
fn confine() -> Result<u64> {
    let mut kept = 0_u64;
    for word in setting("CapabilityBoundingSet")?.split_whitespace() {
        let known = CAPABILITIES.iter().find(|(name, _)| *name == word);
        kept |= 1 << known.with_context(|| format!("{word} has no number here"))?.1;
    }
    for bit in (0..=LAST_CAPABILITY).filter(|bit| kept >> bit & 1 == 0) {
        control(libc::PR_CAPBSET_DROP, c_ulong::from(bit))?;
    }
    ensure!(setting("NoNewPrivileges")? == "yes", "the unit allows new privileges");
    control(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    ensure!(setting("MemoryDenyWriteExecute")? == "yes", "the unit allows W+X memory");
    control(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN)?;
    match setting("RestrictAddressFamilies")? {
        "AF_UNIX" => allow_unix_sockets_only()?,
        other => bail!("the scenario restricts no sockets to {other}"),
    }
    // SAFETY: a plain system call.
    let refused = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) } < 0;
    ensure!(refused, "the filter lets an Internet socket through");
    Ok(kept)
}

fn control(what: c_int, value: c_ulong) -> Result<()> {
    let none: c_ulong = 0;
    // SAFETY: these requests take numbers.
    let failed = unsafe { libc::prctl(what, value, none, none, none) } != 0;
    match failed {
        true => Err(std::io::Error::last_os_error()).with_context(|| format!("prctl {what}")),
        false => Ok(()),
    }
}

/// Has the kernel refuse sockets of other families, as systemd does.
fn allow_unix_sockets_only() -> Result<()> {
    // In `struct seccomp_data`: the number of the system call, the low half of its first argument.
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = 16;
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = |value, yes, no| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let mut filter = [
        load(NUMBER),
        equal(libc::SYS_socket as u32, 0, 3),
        load(FIRST_ARGUMENT),
        equal(libc::AF_UNIX as u32, 1, 0),
        answer(libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (mode, log) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_LOG);
    // SAFETY: the program and its steps outlive the call.
    let failed = unsafe { libc::syscall(libc::SYS_seccomp, mode, log, &raw const program) } != 0;
    match failed {
        true => Err(std::io::Error::last_os_error()).context("setting a seccomp filter"),
        false => Ok(()),
    }
}

fn step(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k: value }
}
