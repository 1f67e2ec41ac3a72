// SPDX-License-Identifier: GPL-2.0-only

//! What the workers of a load do, each in a process of its own that never returns.
//!
//! They run between fork and kill in a copy of the agent whose locks may be held by threads that do
//! not exist there: so they allocate nothing, print nothing and use plain system calls.

use super::load::Slot;
use std::hint::black_box;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

/// One unit of a hog's work: some 200 us of one virtual GIPS, short against a slice and long
/// against the counting.
const HOG_ROUNDS: u32 = 50_000;
/// The scheduling class of sched_ext, for tasks that ask for it by themselves.
const SCHED_EXT: libc::c_int = 7;

/// Burns the CPU, counting units.
pub fn hog(slot: &Slot) -> ! {
    loop {
        burn(HOG_ROUNDS);
        slot.steps.fetch_add(1, Relaxed);
    }
}

/// The same, as a task that asked for sched_ext; a refusal shows as a worker without progress.
pub fn sched_ext_hog(slot: &Slot) -> ! {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the caller.
    if unsafe { libc::sched_setscheduler(0, SCHED_EXT, &priority) } != 0 {
        stand_still();
    }
    hog(slot)
}

/// The same, bound to one CPU; every unit that was finished elsewhere is a stray.
pub fn pinned_hog(slot: &Slot, cpu: usize) -> ! {
    // SAFETY: the set is plain data, filled before use; pid 0 is the caller.
    let failed = unsafe {
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut only);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &only)
    } != 0;
    if failed {
        stand_still();
    }
    loop {
        burn(HOG_ROUNDS);
        // SAFETY: asks for a number.
        if unsafe { libc::sched_getcpu() } != cpu as libc::c_int {
            slot.strays.fetch_add(1, Relaxed);
        }
        slot.steps.fetch_add(1, Relaxed);
    }
}

/// Sleeps and works a little, like a daemon.
pub fn sleeper(slot: &Slot, pause_us: u64) -> ! {
    let pause = libc::timespec {
        tv_sec: (pause_us / 1_000_000) as libc::time_t,
        tv_nsec: (pause_us % 1_000_000 * 1_000) as libc::c_long,
    };
    loop {
        // SAFETY: reads the pause only.
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
        burn(HOG_ROUNDS / 10);
        slot.steps.fetch_add(1, Relaxed);
    }
}

/// One side of a hand-off: answers each byte with a byte. The side that `serves` begins.
pub fn ping_pong(slot: &Slot, from: RawFd, to: RawFd, serves: bool) -> ! {
    let mut ball = [0_u8];
    if serves {
        write_byte(to, &ball);
    }
    loop {
        // SAFETY: one byte into a buffer of one byte.
        if unsafe { libc::read(from, ball.as_mut_ptr().cast(), 1) } != 1 {
            stand_still();
        }
        write_byte(to, &ball);
        slot.steps.fetch_add(1, Relaxed);
    }
}

fn write_byte(to: RawFd, ball: &[u8; 1]) {
    // SAFETY: one byte out of a buffer of one byte; a broken pipe shows as a worker without
    // progress.
    unsafe { libc::write(to, ball.as_ptr().cast(), 1) };
}

/// Makes children that end at once.
pub fn forker(slot: &Slot) -> ! {
    loop {
        // SAFETY: the child only exits.
        match unsafe { libc::fork() } {
            0 => unsafe { libc::_exit(0) },
            child => wait_for(child),
        }
        slot.steps.fetch_add(1, Relaxed);
    }
}

/// Makes children that become another program.
pub fn execer(slot: &Slot) -> ! {
    let program = c"/bin/busybox";
    let arguments = [program.as_ptr(), c"true".as_ptr(), std::ptr::null()];
    loop {
        // SAFETY: the child execs with terminated constants, or exits.
        match unsafe { libc::fork() } {
            0 => unsafe {
                libc::execv(program.as_ptr(), arguments.as_ptr());
                libc::_exit(127)
            },
            child => wait_for(child),
        }
        slot.steps.fetch_add(1, Relaxed);
    }
}

/// Touches `bytes` of memory page by page, over and over, to make the kernel look for memory
/// elsewhere.
pub fn toucher(slot: &Slot, bytes: usize) -> ! {
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
                    slot.steps.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

/// Arithmetic that the compiler cannot skip.
pub fn burn(rounds: u32) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

fn wait_for(child: libc::pid_t) {
    if child > 0 {
        // SAFETY: the status is not wanted.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}

/// For a worker that cannot do its work: it is then found by the watch, by name.
fn stand_still() -> ! {
    loop {
        // SAFETY: sleeps until a signal.
        unsafe { libc::pause() };
    }
}
