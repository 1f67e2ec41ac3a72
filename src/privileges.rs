// SPDX-License-Identifier: GPL-2.0-only

//! Capabilities: each process keeps those that it still needs, and neither it nor a program that it
//! executes gets others again.
//!
//! A capability belongs to a thread. A process drops one before it starts further threads, or has
//! each of them drop it in a signal handler, which is why this makes the system calls itself: a
//! handler may not allocate.

use super::{clock, syscalls};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Numbers of capabilities (kernel ABI, `linux/capability.h`).
const DAC_OVERRIDE: u32 = 1;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const SYS_NICE: u32 = 23;
const SYS_RESOURCE: u32 = 24;
const PERFMON: u32 = 38;
const BPF: u32 = 39;
/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;
/// A thread that has not reacted to the signal by then does not run.
const PATIENCE: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(1);

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set(u64);

impl Set {
    const fn of(capabilities: &[u32]) -> Set {
        let (mut bits, mut at) = (0, 0);
        while at < capabilities.len() {
            bits |= 1 << capabilities[at];
            at += 1;
        }
        Set(bits)
    }
}

/// What a worker needs to load the backend. The supervisor may pass them on, and does not use them.
const LOADING: Set = Set::of(&[SYS_ADMIN, BPF, PERFMON, SYS_RESOURCE, SYS_NICE, IPC_LOCK]);
/// What a worker needs while it schedules: it runs BPF programs, and has more memory locked.
const SCHEDULING: Set = Set::of(&[BPF, PERFMON, SYS_NICE, IPC_LOCK]);
/// What the supervisor needs: real-time threads.
const SUPERVISING: Set = Set::of(&[SYS_NICE]);
/// Access to files of other users.
const FILES: Set = Set::of(&[DAC_OVERRIDE]);
const NONE: Set = Set::of(&[]);

/// In the supervisor, before it starts threads: the capabilities of a worker remain permitted, and
/// `SYS_NICE` alone is in effect. With `foreign_files`, access to files of other users as well.
pub fn supervise(foreign_files: bool) {
    let files = if foreign_files { FILES } else { NONE };
    forbid_new();
    keep(Set(LOADING.0 | files.0), Set(SUPERVISING.0 | files.0));
}

/// In a command that only reads, or asks the running scheduler: none but the access to files and to
/// a socket that belong to another user. Nor does it make system calls that it never needs.
pub fn ask() {
    forbid_new();
    keep(FILES, FILES);
    syscalls::supervise();
}

/// In such a command that from now on reads only what every user may: none.
pub fn keep_none() {
    keep(NONE, NONE);
}

/// In a worker that has loaded the backend, in all its threads. Returns whether all have done it.
pub fn schedule() -> bool {
    let done = in_other_threads(SCHEDULING);
    keep(SCHEDULING, SCHEDULING);
    done
}

/// Does something in the supervisor for which the kernel asks for `SYS_ADMIN`: opening a BPF map by
/// its number.
pub fn as_admin<T>(action: impl FnOnce() -> T) -> T {
    set_effective(SYS_ADMIN, true);
    let result = action();
    set_effective(SYS_ADMIN, false);
    result
}

/// Puts a permitted capability into effect, or out of it, in the calling thread.
fn set_effective(capability: u32, on: bool) {
    let header = Header { version: VERSION, thread: 0 };
    let mut halves = [Half::default(); 2];
    let (half, bit) = (capability as usize / 32, 1 << (capability % 32));
    // SAFETY: the kernel writes, and then reads, the two halves of version 3.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw const header, &raw mut halves) != 0 {
            return;
        }
        halves[half].effective &= !bit;
        if on {
            halves[half].effective |= halves[half].permitted & bit;
        }
        libc::syscall(libc::SYS_capset, &raw const header, &raw const halves);
    }
}

/// From now on no program that this process executes has more privileges than it.
fn forbid_new() {
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
}

/// The kernel's `struct __user_cap_data_struct`: half of three sets.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The kernel's `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    thread: i32,
}

/// Drops what is not in these sets, in the calling thread. Nothing that it lacks is added.
/// Async-signal-safe.
fn keep(permitted: Set, effective: Set) {
    let header = Header { version: VERSION, thread: 0 };
    let mut halves = [Half::default(); 2];
    // SAFETY: the kernel writes the two halves of version 3.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, &raw mut halves) } != 0 {
        return;
    }
    for (half, shift) in halves.iter_mut().zip([0, 32]) {
        half.permitted &= (permitted.0 >> shift) as u32;
        half.inheritable &= half.permitted;
        half.effective &= half.permitted & (effective.0 >> shift) as u32;
    }
    // SAFETY: the kernel reads the two halves. To drop capabilities is always allowed.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const halves) };
}

/// What [`drop_here`] keeps, and how often it has run.
static KEPT: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);

extern "C" fn drop_here(_signal: libc::c_int) {
    let kept = Set(KEPT.load(Ordering::Relaxed));
    keep(kept, kept);
    DONE.fetch_add(1, Ordering::Release);
}

/// Has the other threads of this process keep these only.
fn in_other_threads(kept: Set) -> bool {
    let signal = libc::SIGRTMIN();
    KEPT.store(kept.0, Ordering::Relaxed);
    // SAFETY: plain memory of its own type; the handler is async-signal-safe.
    let own = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = drop_here as extern "C" fn(libc::c_int) as usize;
        // A thread that waits in a system call goes on with it.
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
        (libc::getpid(), libc::gettid())
    };
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    // A thread that ends meanwhile needs no signal.
    // SAFETY: a plain system call, for threads of this process.
    let sent = ids.filter(|&id: &i32| {
        id != own.1 && unsafe { libc::syscall(libc::SYS_tgkill, own.0, id, signal) } == 0
    });
    let sent = sent.count() as u32;
    clock::wait_for(PATIENCE, GLANCE, || DONE.load(Ordering::Acquire) >= sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of the status of the calling thread, as a number.
    fn set(name: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
    }

    #[test]
    fn only_the_named_capabilities_remain_and_none_is_added() {
        // In a thread of its own: the other tests keep theirs.
        std::thread::spawn(|| {
            let before = set("CapPrm");
            keep(LOADING, SUPERVISING);
            assert_eq!(set("CapPrm"), before & LOADING.0);
            assert_eq!(set("CapEff"), before & SUPERVISING.0);
            assert_eq!(set("CapInh") & !LOADING.0, 0);
            keep(Set(!0), Set(!0));
            assert_eq!(set("CapPrm"), before & LOADING.0, "what is dropped stays so");
            keep(FILES, FILES);
            assert_eq!((set("CapPrm"), set("CapEff")), (0, 0));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_command_that_reads_has_no_more_than_it_needs() {
        std::thread::spawn(|| {
            let before = set("CapPrm");
            ask();
            assert_eq!((set("CapPrm"), set("CapEff")), (before & FILES.0, before & FILES.0));
            assert_eq!((set("Seccomp"), set("NoNewPrivs")), (2, 1));
            keep_none();
            assert_eq!((set("CapPrm"), set("CapEff"), set("CapInh")), (0, 0, 0));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_sets_have_the_numbers_of_the_kernel() {
        assert_eq!(LOADING.0, 0xc0_01a0_4000);
        assert_eq!(SCHEDULING.0, 0xc0_0080_4000);
        assert_eq!((SUPERVISING.0, FILES.0), (0x80_0000, 2));
    }
}
