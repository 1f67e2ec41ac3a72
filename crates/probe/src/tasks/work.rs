// SPDX-License-Identifier: GPL-2.0-only

//! What the workers of a load do, each in a process of its own that never returns.
//!
//! They run between fork and kill in a copy of the agent whose locks may be held by threads that do
//! not exist there: so they allocate nothing, print nothing and use plain system calls.

use super::clock::{now_ns, sleep_until};
use super::load::Slot;
use std::ffi::CStr;
use std::hint::black_box;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

/// One unit of a hog's work: some 200 us of one virtual GIPS, short against a slice and long
/// against the counting.
pub const HOG_ROUNDS: u32 = 50_000;
/// The program that runs, for children that start it anew, and what it is told then.
pub const THIS_PROGRAM: &CStr = c"/proc/self/exe";
pub const BURN: &CStr = c"burn";
/// The scheduling class of sched_ext, for tasks that ask for it by themselves.
pub const SCHED_EXT: libc::c_int = 7;

/// Burns the CPU, counting units.
pub fn hog(slot: &Slot) -> ! {
    loop {
        burn(HOG_ROUNDS);
        slot.done();
    }
}

/// The same with a clock: it notes the longest time that a unit took, and so the longest time that
/// nobody let it run.
pub fn timed_hog(slot: &Slot) -> ! {
    let mut last = now_ns();
    loop {
        burn(HOG_ROUNDS);
        let now = now_ns();
        slot.longest_ns.fetch_max(now - last, Relaxed);
        last = now;
        slot.done();
    }
}

/// The same with a nice value; without it, a worker without progress.
pub fn nice_hog(slot: &Slot, nice: i32) -> ! {
    // SAFETY: 0 is the caller.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } != 0 {
        stand_still();
    }
    hog(slot)
}

/// The same, as a task that asked for a scheduling class; a refusal shows as a worker that does not
/// get on.
pub fn hog_of_class(slot: &Slot, class: libc::c_int) -> ! {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the caller.
    if unsafe { libc::sched_setscheduler(0, class, &priority) } != 0 {
        stand_still();
    }
    hog(slot)
}

/// The same, bound to one CPU; every unit that was finished elsewhere is a stray.
pub fn pinned_hog(slot: &Slot, cpu: usize) -> ! {
    if !stay_on(cpu) {
        stand_still();
    }
    slot.belongs_to(1 << cpu);
    hog(slot)
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
        slot.done();
    }
}

/// The same, allowed on some CPUs only, a bit for each of the first 64. A refusal shows as a worker
/// without progress.
pub fn bound_sleeper(slot: &Slot, pause_us: u64, cpus: u64) -> ! {
    let allowed: [usize; 64] = std::array::from_fn(|cpu| cpu);
    if !allow(allowed.iter().copied().filter(|cpu| cpus >> cpu & 1 == 1)) {
        stand_still();
    }
    slot.belongs_to(cpus);
    sleeper(slot, pause_us)
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
        slot.done();
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
        // SAFETY: the child only looks where it is and exits.
        match unsafe { libc::fork() } {
            0 => unsafe {
                slot.look_around();
                libc::_exit(0)
            },
            child => wait_for(child),
        }
        slot.done();
    }
}

/// Works a little in each period, and makes up for what it missed: it asks for the same under every
/// scheduler.
pub fn periodic(slot: &Slot, period_us: u64) -> ! {
    let mut due = now_ns();
    loop {
        due += period_us * 1_000;
        sleep_until(due);
        burn(HOG_ROUNDS / 10);
        slot.done();
    }
}

/// Makes many children at once in each period, each of which works a little.
pub fn storm(slot: &Slot, children: u32, period_us: u64) -> ! {
    storm_of(slot, children, period_us, || burn(HOG_ROUNDS / 2))
}

/// The same with children that become a program of their own, which works so many rounds: this
/// very one, told to burn.
pub fn exec_storm(slot: &Slot, children: u32, period_us: u64, rounds: u32) -> ! {
    let mut digits = [0_u8; 16];
    let arguments =
        [c"probe".as_ptr(), BURN.as_ptr(), decimal(rounds, &mut digits), std::ptr::null()];
    // SAFETY: plain system calls with terminated strings; where it cannot exec, the child exits.
    storm_of(slot, children, period_us, || unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::execv(THIS_PROGRAM.as_ptr(), arguments.as_ptr());
    })
}

/// A storm of children that do `child` and exit. It waits for them all, and makes up for what it
/// missed.
fn storm_of(slot: &Slot, children: u32, period_us: u64, child: impl Fn()) -> ! {
    let mut due = now_ns();
    loop {
        due += period_us * 1_000;
        sleep_until(due);
        for _ in 0..children {
            // SAFETY: the child does its work, which returns only if it is done, and exits.
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
        slot.done();
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
                    slot.done();
                }
            }
        }
    }
}

/// Arithmetic that the compiler cannot skip, and compiles once: inlined, a round would cost more
/// in one place than in another, and work calibrated in one would not be the same in the other.
#[inline(never)]
pub fn burn(rounds: u32) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Binds the caller to one CPU; false if that is not there.
pub fn stay_on(cpu: usize) -> bool {
    allow([cpu])
}

/// Frees the caller again.
pub fn stay_anywhere() {
    // What the machine does not have is left out by the kernel.
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

fn allow(cpus: impl IntoIterator<Item = usize>) -> bool {
    // SAFETY: the set is plain data, filled before use; pid 0 is the caller.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.into_iter().for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

/// Until the child has ended.
pub fn wait_for(child: libc::pid_t) {
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
