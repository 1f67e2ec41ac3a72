// SPDX-License-Identifier: GPL-2.0-only

//! What the workers of a load do, each in a process of its own, in functions that never return.
//!
//! A worker is a fork of a process with several threads, and a lock of a thread that was not copied
//! stays held for ever. So workers allocate nothing, print nothing and use plain system calls.

use super::clock::{now_ns, sleep_until};
use super::process::{die_with_parent, stand_still};
use super::slot::Slot;
use std::ffi::CStr;
use std::hint::black_box;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

/// One unit of a hog's work: some 200 us at one virtual GIPS, short against a slice and long
/// against the counting.
pub const HOG_ROUNDS: u32 = 50_000;
/// The running program, for children that exec it again.
pub(crate) const THIS_PROGRAM: &CStr = c"/proc/self/exe";
/// The argument that makes this program burn CPU time and exit.
pub(crate) const BURN: &CStr = c"burn";
/// The scheduling class of sched_ext, for tasks that ask for it.
pub(crate) const SCHED_EXT: libc::c_int = 7;

/// Uses the CPU without pause, and counts units.
pub(crate) fn hog(slot: &Slot) -> ! {
    loop {
        burn(HOG_ROUNDS);
        slot.done();
    }
}

/// A hog that records the longest time that a unit took, and so the longest time that it waited for
/// a CPU.
pub(crate) fn timed_hog(slot: &Slot) -> ! {
    let mut last = now_ns();
    loop {
        burn(HOG_ROUNDS);
        let now = now_ns();
        slot.longest_ns.fetch_max(now - last, Relaxed);
        last = now;
        slot.done();
    }
}

/// A hog with a nice value. If the kernel refuses the value, the worker makes no progress.
pub(crate) fn nice_hog(slot: &Slot, nice: i32) -> ! {
    // SAFETY: 0 is the caller.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } != 0 {
        stand_still();
    }
    hog(slot)
}

/// A hog that asks for a scheduling class. If the kernel refuses, the worker makes no progress.
pub(crate) fn hog_of_class(slot: &Slot, class: libc::c_int) -> ! {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the caller.
    if unsafe { libc::sched_setscheduler(0, class, &priority) } != 0 {
        stand_still();
    }
    hog(slot)
}

/// A hog bound to one CPU. Every unit that it finishes elsewhere is a stray.
pub(crate) fn pinned_hog(slot: &Slot, cpu: usize) -> ! {
    if !stay_on(cpu) {
        stand_still();
    }
    slot.belongs_to(1 << cpu);
    hog(slot)
}

/// Sleeps and works a little, like a daemon.
pub(crate) fn sleeper(slot: &Slot, pause_us: u64) -> ! {
    let pause = libc::timespec {
        tv_sec: (pause_us / 1_000_000) as libc::time_t,
        tv_nsec: (pause_us % 1_000_000 * 1_000) as libc::c_long,
    };
    loop {
        // SAFETY: reads the pause only.
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
        burn(HOG_ROUNDS / 10);
        slot.done();
    }
}

/// A sleeper that is allowed on some CPUs only, a bit for each of the first 64. If the kernel
/// refuses, the worker makes no progress.
pub(crate) fn bound_sleeper(slot: &Slot, pause_us: u64, cpus: u64) -> ! {
    let allowed: [usize; 64] = std::array::from_fn(|cpu| cpu);
    if !allow(allowed.iter().copied().filter(|cpu| cpus >> cpu & 1 == 1)) {
        stand_still();
    }
    slot.belongs_to(cpus);
    sleeper(slot, pause_us)
}

/// One side of a pair: answers each byte with a byte. The side that `serves` sends the first one.
pub(crate) fn ping_pong(slot: &Slot, from: RawFd, to: RawFd, serves: bool) -> ! {
    let mut byte = [0_u8];
    if serves {
        write_byte(to, &byte);
    }
    loop {
        // SAFETY: one byte into a buffer of one byte.
        if unsafe { libc::read(from, byte.as_mut_ptr().cast(), 1) } != 1 {
            stand_still();
        }
        write_byte(to, &byte);
        slot.done();
    }
}

fn write_byte(to: RawFd, byte: &[u8; 1]) {
    // SAFETY: one byte out of a buffer of one byte; a broken pipe shows as a worker without
    // progress.
    unsafe { libc::write(to, byte.as_ptr().cast(), 1) };
}

/// Forks children that exit at once, one after the other.
pub(crate) fn forker(slot: &Slot) -> ! {
    loop {
        // SAFETY: the child reads its CPU number and exits.
        match unsafe { libc::fork() } {
            0 => unsafe {
                slot.count_stray();
                libc::_exit(0)
            },
            child => wait_for(child),
        }
        slot.done();
    }
}

/// Works a little in each period, and catches up on periods that it missed: it demands the same
/// work under every scheduler.
pub(crate) fn periodic(slot: &Slot, period_us: u64) -> ! {
    let mut due = now_ns();
    loop {
        due += period_us * 1_000;
        sleep_until(due);
        burn(HOG_ROUNDS / 10);
        slot.done();
    }
}

/// Forks several children at once in each period; each child works a little.
pub(crate) fn storm(slot: &Slot, children: u32, period_us: u64) -> ! {
    storm_of(slot, children, period_us, || burn(HOG_ROUNDS / 2))
}

/// A storm of children that exec a program, which works for so many rounds. The program is this one
/// with the argument `BURN`.
pub(crate) fn exec_storm(slot: &Slot, children: u32, period_us: u64, rounds: u32) -> ! {
    let mut digits = [0_u8; 16];
    let arguments =
        [c"probe".as_ptr(), BURN.as_ptr(), decimal(rounds, &mut digits), std::ptr::null()];
    // SAFETY: plain system calls with terminated strings; if the exec fails, the child exits.
    storm_of(slot, children, period_us, || unsafe {
        die_with_parent();
        libc::execv(THIS_PROGRAM.as_ptr(), arguments.as_ptr());
    })
}

/// Forks children that exec another program, one in each period.
pub(crate) fn execer(slot: &Slot, period_us: u64) -> ! {
    let program = c"/bin/busybox";
    let arguments = [program.as_ptr(), c"true".as_ptr(), std::ptr::null()];
    // SAFETY: a plain system call with terminated constants; if the exec fails, the child exits.
    storm_of(slot, 1, period_us, || unsafe {
        libc::execv(program.as_ptr(), arguments.as_ptr());
    })
}

/// A storm of children that run `child` and exit. It waits for all of them, and catches up on
/// periods that it missed.
fn storm_of(slot: &Slot, children: u32, period_us: u64, child: impl Fn()) -> ! {
    let mut due = now_ns();
    loop {
        due += period_us * 1_000;
        sleep_until(due);
        for _ in 0..children {
            // SAFETY: the child does its work and exits.
            if unsafe { libc::fork() } == 0 {
                child();
                unsafe { libc::_exit(0) }
            }
        }
        // SAFETY: waits for any child until there is none; the status is not wanted.
        while unsafe { libc::wait(std::ptr::null_mut()) } > 0 {}
        (0..children).for_each(|_| slot.done());
    }
}

/// A number as a terminated string.
fn decimal(mut number: u32, digits: &mut [u8; 16]) -> *const libc::c_char {
    let mut at = digits.len() - 1;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return digits[at..].as_ptr().cast();
        }
    }
}

/// Touches `bytes` of memory page by page, over and over, so that the kernel reclaims other pages.
pub(crate) fn toucher(slot: &Slot, bytes: usize) -> ! {
    const PAGE: usize = 4096;
    // SAFETY: a fresh private mapping; each write stays inside it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            stand_still();
        }
        loop {
            for page in 0..bytes / PAGE {
                start.cast::<u8>().add(page * PAGE).write_volatile(page as u8);
                if page % 256 == 0 {
                    slot.done();
                }
            }
        }
    }
}

/// Arithmetic that the compiler cannot skip. It is never inlined: inlined copies would cost
/// different time a round, and a calibration of one copy would not fit another.
#[inline(never)]
pub fn burn(rounds: u32) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Binds the caller to one CPU. Returns false if that CPU does not exist.
pub fn stay_on(cpu: usize) -> bool {
    allow([cpu])
}

/// Allows the caller every CPU again.
pub(crate) fn stay_anywhere() {
    // The kernel ignores CPUs that the machine does not have.
    let all: [usize; libc::CPU_SETSIZE as usize] = std::array::from_fn(|cpu| cpu);
    allow(all);
}

/// The CPUs on which the caller may run.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: room for one set, which the kernel fills; pid 0 is the caller.
    let (failed, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0, set)
    };
    // SAFETY: below the size of the set.
    let is_in = |cpu: &usize| !failed && unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_in).collect()
}

/// Binds the caller to these CPUs. Returns false if none of them exists.
pub(crate) fn allow(cpus: impl IntoIterator<Item = usize>) -> bool {
    // SAFETY: the set is plain data, filled before use; pid 0 is the caller.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.into_iter().for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

/// Waits until the child has exited.
pub(crate) fn wait_for(child: libc::pid_t) {
    if child > 0 {
        // SAFETY: the status is not wanted.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}
