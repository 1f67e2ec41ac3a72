// SPDX-License-Identifier: GPL-2.0-only

//! Reads the state of the kernel and of sched_ext, and changes what a scenario needs.

use anyhow::{Context, Result, bail};
use std::fs;
use std::time::{Duration, Instant};

const STATE: &str = "/sys/kernel/sched_ext/state";
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
const LOADS: &str = "/sys/kernel/sched_ext/enable_seq";
/// The shares that deadline servers guarantee to sched_ext tasks.
const SHARES: &str = "/sys/kernel/debug/sched/ext_server";
/// Time between two reads of a state while waiting for it.
const GLANCE: Duration = Duration::from_millis(20);

pub fn release() -> Result<String> {
    read("/proc/sys/kernel/osrelease")
}

pub fn online_cpus() -> Result<usize> {
    // SAFETY: asks for a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(cpus).context("counting the online CPUs")
}

/// `disabled`, `enabling`, `enabled` or `disabling`.
pub fn sched_ext_state() -> Result<String> {
    read(STATE)
}

/// Name of the loaded scheduler. The file exists only while one is loaded.
pub fn sched_ext_ops() -> Result<String> {
    read(OPS)
}

/// How many schedulers have been loaded since the boot.
pub fn sched_ext_loads() -> Result<u64> {
    let text = read(LOADS)?;
    text.parse().with_context(|| format!("reading {text:?}"))
}

/// Waits for a state of sched_ext. The error names the state that it was in instead.
pub fn wait_for_state(wanted: &str, limit: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        let state = sched_ext_state()?;
        if state == wanted {
            return Ok(());
        }
        if start.elapsed() > limit {
            bail!("sched_ext is {state}, not {wanted}, after {} s", limit.as_secs());
        }
        std::thread::sleep(GLANCE);
    }
}

/// Whether the kernel has a function of this name.
pub fn has_symbol(name: &str) -> Result<bool> {
    let symbols = read("/proc/kallsyms")?;
    Ok(symbols.lines().any(|line| line.split(' ').nth(2) == Some(name)))
}

/// Whether sched_ext tasks get a share of a CPU on which ordinary tasks never sleep.
pub fn guarantees_sched_ext_a_share() -> bool {
    fs::metadata(SHARES).is_ok()
}

/// Lets tasks of higher classes take a whole CPU from sched_ext tasks, as every kernel before 7.0
/// does.
pub fn withhold_share(cpu: usize) -> Result<()> {
    if !guarantees_sched_ext_a_share() {
        return Ok(());
    }
    let path = format!("{SHARES}/cpu{cpu}/runtime");
    fs::write(&path, "0").with_context(|| format!("writing {path}"))
}

/// Bytes of memory available to programs.
pub fn available_memory() -> Result<usize> {
    memory_bytes("MemAvailable:")
}

/// Bytes of the disk to swap to that are free.
pub fn free_swap() -> Result<usize> {
    memory_bytes("SwapFree:")
}

fn memory_bytes(name: &str) -> Result<usize> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .with_context(|| format!("/proc/meminfo has no {name}"))?;
    Ok(kib.trim().parse::<usize>().with_context(|| format!("reading {kib:?}"))? << 10)
}

/// Switches a CPU offline or online.
pub fn set_online(cpu: usize, online: bool) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&path, if online { "1" } else { "0" }).with_context(|| format!("writing {path}"))
}

/// Triggers a SysRq key. Returns false if this kernel has none.
pub fn sysrq(key: char) -> bool {
    // The default masks most keys; 1 allows all of them.
    let _ = fs::write("/proc/sys/kernel/sysrq", "1");
    fs::write("/proc/sysrq-trigger", key.to_string()).is_ok()
}

/// The kernel's log so far.
pub fn messages() -> String {
    const READ_ALL: libc::c_int = 3;
    let mut text = vec![0_u8; 1 << 20];
    // SAFETY: the length is the buffer's.
    let length =
        unsafe { libc::klogctl(READ_ALL, text.as_mut_ptr().cast(), text.len() as libc::c_int) };
    text.truncate(usize::try_from(length).unwrap_or(0));
    String::from_utf8_lossy(&text).into_owned()
}

/// Fails if the sched_ext watchdog has seen a task that waited for seconds.
pub fn expect_no_stall() -> Result<()> {
    match messages().lines().find(|line| line.contains("runnable task stall")) {
        Some(line) => bail!("the kernel reports a stalled task: {line}"),
        None => Ok(()),
    }
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(text.trim().to_string())
}
