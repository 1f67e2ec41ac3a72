// SPDX-License-Identifier: GPL-2.0-only

//! Round trips: two tasks that send a message to and fro, each sleeping until the other has sent.

use super::clock::{SECOND_NS, now_ns};
use super::load::{self, pipe};
use super::memory::Shared;
use super::probe::{Probe, Samples, Slots};
use super::process::die_with_parent;
use super::work;
use anyhow::{Context, Result, bail};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// More round trips in a second than any scheduler makes in exact mode, where one takes 17 us on an
/// idle machine. On a faster machine the measurement ends early.
const TRIPS_PER_S_MAX: u64 = 70_000;
/// The first round trips fault pages in; they are not counted.
const WARM_UP: usize = 100;

/// What carries the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Pipe,
    Socket,
    Eventfd,
    Futex,
}

/// A running pair.
pub struct Pair {
    left: Probe,
    right: libc::pid_t,
}

/// Starts a pair with pipes that measures for `seconds` and then ends.
pub fn start(cpus: usize, seconds: u64) -> Result<Pair> {
    start_via(Via::Pipe, cpus, seconds * SECOND_NS)
}

/// Starts a pair that measures for this long over pipes, sockets, eventfds or futexes.
///
/// Both tasks start on the first two CPUs and may then migrate. Where hogs ran before, each starts
/// beside a hog. Without this start the kernel's own scheduler sometimes gives the pair a CPU of
/// its own and sometimes not, and its figures differ by a factor of 20.
pub(crate) fn start_via(via: Via, cpus: usize, run_ns: u64) -> Result<Pair> {
    let lines = Lines::new(via)?;
    // SAFETY: the child answers until it is killed or the other task is gone.
    let right = match unsafe { libc::fork() } {
        -1 => bail!("starting a pair: {}", std::io::Error::last_os_error()),
        0 => unsafe {
            die_with_parent();
            begin_on(1 % cpus);
            while lines.receive(THERE) && lines.send(BACK) {}
            libc::_exit(0)
        },
        pid => pid,
    };
    let samples_max = (run_ns * TRIPS_PER_S_MAX / SECOND_NS).max(1);
    let left = Probe::start(samples_max as usize, |slots| {
        begin_on(0);
        measure(slots, &lines, run_ns);
    });
    match left {
        Ok(left) => Ok(Pair { left, right }),
        Err(error) => {
            load::end(right);
            Err(error)
        }
    }
}

impl Pair {
    /// Waits for the measurement to end: the time of each round trip.
    pub fn finish(self) -> Result<Samples> {
        let samples = self.left.finish();
        load::end(self.right);
        samples
    }
}

fn measure(slots: &Slots, lines: &Lines, run_ns: u64) {
    let mut end = u64::MAX;
    for number in 0..WARM_UP + slots.len() {
        let start = now_ns();
        if start > end || !lines.send(THERE) || !lines.receive(BACK) {
            return;
        }
        match number.checked_sub(WARM_UP) {
            Some(number) => slots.store(number, now_ns() - start),
            None => end = now_ns() + run_ns,
        }
    }
}

/// Moves the caller to a CPU, then allows it all of them again.
fn begin_on(cpu: usize) {
    work::stay_on(cpu);
    work::stay_anywhere();
}

/// The two directions.
const THERE: usize = 0;
const BACK: usize = 1;

/// The channels of both directions.
enum Lines {
    /// Reading end and writing end, and the size of a message.
    Files([(RawFd, RawFd); 2], usize),
    /// One word each: the number of messages sent and not yet received. One task waits for each.
    Words(Shared<AtomicU64>),
}

impl Lines {
    fn new(via: Via) -> Result<Lines> {
        Ok(match via {
            Via::Pipe => Lines::Files([pipe()?, pipe()?], 1),
            Via::Socket => {
                let (near, far) = super::messages::socket_pair()?;
                Lines::Files([(far, near), (near, far)], 1)
            }
            Via::Eventfd => {
                let (there, back) = (eventfd()?, eventfd()?);
                Lines::Files([(there, there), (back, back)], 8)
            }
            Via::Futex => Lines::Words(Shared::new(2)?),
        })
    }

    fn send(&self, way: usize) -> bool {
        // An eventfd needs eight bytes that are not zero; pipes and sockets send the first byte.
        let ball = 1_u64.to_ne_bytes();
        match self {
            // SAFETY: at most as many bytes as the buffer has.
            Lines::Files(ends, bytes) => unsafe {
                libc::write(ends[way].1, ball.as_ptr().cast(), *bytes) == *bytes as isize
            },
            Lines::Words(words) => {
                words[way].fetch_add(1, Release);
                futex(&words[way], libc::FUTEX_WAKE, 1);
                true
            }
        }
    }

    fn receive(&self, way: usize) -> bool {
        let mut ball = [0_u8; 8];
        match self {
            // SAFETY: at most as many bytes as the buffer has.
            Lines::Files(ends, bytes) => unsafe {
                libc::read(ends[way].0, ball.as_mut_ptr().cast(), *bytes) == *bytes as isize
            },
            Lines::Words(words) => {
                // Only this task receives from this word, so the count cannot fall meanwhile.
                while words[way].load(Acquire) == 0 {
                    futex(&words[way], libc::FUTEX_WAIT, 0);
                }
                words[way].fetch_sub(1, Release);
                true
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let Lines::Files(ends, _) = self else { return };
        let mut all: Vec<RawFd> = ends.iter().flat_map(|(read, write)| [*read, *write]).collect();
        all.sort_unstable();
        all.dedup();
        for end in all {
            // SAFETY: the ends made above; the two tasks hold copies.
            unsafe { libc::close(end) };
        }
    }
}

fn eventfd() -> Result<RawFd> {
    // SAFETY: asks for a descriptor.
    let fd = unsafe { libc::eventfd(0, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("making an eventfd");
    }
    Ok(fd)
}

/// The kernel compares four bytes: the lower half of the word, wherever this machine stores it.
fn futex(word: &AtomicU64, operation: libc::c_int, value: u32) {
    let address = word.as_ptr().cast::<u32>();
    let lower = if cfg!(target_endian = "little") { 0 } else { 1 };
    // SAFETY: the word outlives the call; there is no timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            address.add(lower),
            operation,
            value,
            std::ptr::null::<libc::timespec>(),
        );
    }
}
