// SPDX-License-Identifier: GPL-2.0-only

//! What the fast path tells of tasks that end or begin another program.

use super::abi;
use anyhow::{Context, Result};
use libbpf_rs::{MapCore, libbpf_sys};
use pandemonium_engine::task::Pid;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// News taken in before a round: what is left then waits for the next one, since nothing depends
/// on it but memory.
pub const MOST: usize = 64;

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It runs another program now.
    Exec,
    /// It is gone.
    Exit,
}

/// The reading end of the ring.
pub struct News {
    ring: NonNull<libbpf_sys::ring_buffer>,
    /// On the heap, because the ring keeps its address.
    read: Box<Read>,
}

/// News taken out of the ring, and how many of them were handed on.
struct Read {
    news: [(i32, u32); MOST],
    taken: usize,
    given: usize,
}

impl News {
    /// Opens the ring of the map. It maps memory, so it is to be done before that is locked.
    pub fn open(map: &impl MapCore) -> Result<News> {
        let mut read = Box::new(Read { news: [(0, 0); MOST], taken: 0, given: 0 });
        let context = (&raw mut *read).cast();
        let fd = map.as_fd().as_raw_fd();
        // SAFETY: the descriptor is that of a ring, and `read` lives as long as the ring.
        let ring =
            unsafe { libbpf_sys::ring_buffer__new(fd, Some(take), context, std::ptr::null()) };
        Ok(News { ring: NonNull::new(ring).context("cannot read its ring")?, read })
    }

    /// The next news, if there is any.
    pub fn next(&mut self) -> Option<(Pid, Kind)> {
        if self.read.given == self.read.taken {
            (self.read.given, self.read.taken) = (0, 0);
            // SAFETY: the ring lives as long as `self`. It hands at most so many to `take`, which
            // is all it has room for.
            unsafe { libbpf_sys::ring_buffer__consume_n(self.ring.as_ptr(), MOST as u64) };
        }
        let (pid, kind) = *self.read.news[..self.read.taken].get(self.read.given)?;
        self.read.given += 1;
        let kind = if kind == abi::fp_news_kind_FP_EXEC { Kind::Exec } else { Kind::Exit };
        Some((Pid::new(pid)?, kind))
    }
}

impl Drop for News {
    fn drop(&mut self) {
        // SAFETY: made by `open`, and used by nobody else.
        unsafe { libbpf_sys::ring_buffer__free(self.ring.as_ptr()) };
    }
}

/// Called by libbpf for each news in the ring.
unsafe extern "C" fn take(
    context: *mut c_void,
    data: *mut c_void,
    size: libbpf_sys::size_t,
) -> c_int {
    // SAFETY: `context` is the `Read` that `open` passed, which nothing else refers to during the
    // call; `data` has `size` bytes.
    unsafe {
        let read = &mut *context.cast::<Read>();
        if size >= size_of::<abi::fp_news>() as u64 && read.taken < read.news.len() {
            let news = data.cast::<abi::fp_news>().read();
            read.news[read.taken] = (news.pid, news.kind);
            read.taken += 1;
        }
    }
    0
}
