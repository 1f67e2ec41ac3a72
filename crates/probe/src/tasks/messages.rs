// SPDX-License-Identifier: GPL-2.0-only

//! Many-to-many messages: in each group every sender writes to every receiver, over sockets.

use super::clock::now_ns;
use super::probe::{Probe, Slots};
use super::process::die_with_parent;
use anyhow::{Context, Result};
use std::os::fd::RawFd;

/// Senders of a group, and as many receivers.
pub const FAN: usize = 4;
const MESSAGE_BYTES: usize = 100;

/// Starts a probe that does this once: each sender writes `rounds` messages to each receiver. Its
/// one sample is the time from the first fork to the last exit.
pub fn start(groups: usize, rounds: u32) -> Result<Probe> {
    let sockets: Vec<(RawFd, RawFd)> =
        (0..groups * FAN).map(|_| socket_pair()).collect::<Result<_>>()?;
    let probe = Probe::start(1, |slots| measure(slots, &sockets, rounds));
    for end in sockets.iter().flat_map(|(near, far)| [near, far]) {
        // SAFETY: the ends made above; the tasks hold copies.
        unsafe { libc::close(*end) };
    }
    probe
}

fn measure(slots: &Slots, sockets: &[(RawFd, RawFd)], rounds: u32) {
    let begin = now_ns();
    for group in sockets.chunks(FAN) {
        for (_, far) in group {
            fork(|| receive(*far, rounds as usize * FAN * MESSAGE_BYTES));
        }
        for _ in group {
            fork(|| send(group, rounds));
        }
    }
    // SAFETY: waits for any child until there is none; the status is not wanted.
    while unsafe { libc::wait(std::ptr::null_mut()) } > 0 {}
    slots.store(0, now_ns() - begin);
}

fn fork(body: impl FnOnce()) {
    // SAFETY: the child runs `body`, which makes plain system calls, and exits.
    if unsafe { libc::fork() } == 0 {
        die_with_parent();
        body();
        unsafe { libc::_exit(0) }
    }
}

fn receive(from: RawFd, mut bytes: usize) {
    let mut message = [0_u8; MESSAGE_BYTES];
    while bytes > 0 {
        // SAFETY: the length is the buffer's.
        let got = unsafe { libc::read(from, message.as_mut_ptr().cast(), MESSAGE_BYTES) };
        match usize::try_from(got) {
            Ok(got) if got > 0 => bytes = bytes.saturating_sub(got),
            _ => return,
        }
    }
}

fn send(group: &[(RawFd, RawFd)], rounds: u32) {
    let message = [1_u8; MESSAGE_BYTES];
    for _ in 0..rounds {
        for (near, _) in group {
            // SAFETY: the length is the buffer's.
            if unsafe { libc::write(*near, message.as_ptr().cast(), MESSAGE_BYTES) } < 0 {
                return;
            }
        }
    }
}

/// Two connected stream sockets.
pub fn socket_pair() -> Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    let failed =
        unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) } != 0;
    if failed {
        return Err(std::io::Error::last_os_error()).context("making a pair of sockets");
    }
    Ok((ends[0], ends[1]))
}
