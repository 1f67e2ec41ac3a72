// SPDX-License-Identifier: GPL-2.0-only

//! News of tasks that exit or execute another program, from the fast path.

use super::abi;
use anyhow::{Context, Result};
use libbpf_rs::{MapCore, libbpf_sys};
use pandemonium_engine::task::Pid;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// News read before a round. The rest waits for the next round: only the memory of a record depends
/// on them.
pub const READ_MAX: usize = 64;

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has executed another program.
    Exec,
    /// It has exited.
    Exit,
}

/// The reading end of the ring.
pub struct News {
    ring: NonNull<libbpf_sys::ring_buffer>,
    /// On the heap, because the ring keeps its address.
    read: Box<Read>,
}

/// News read from the ring.
struct Read {
    news: [(i32, u32); READ_MAX],
    /// Their number.
    taken: usize,
    /// How many of them `next` has returned.
    given: usize,
}

impl News {
    /// Opens the ring of the map. To be called before the process locks its memory, since it maps
    /// some.
    pub fn open(map: &impl MapCore) -> Result<News> {
        let mut read = Box::new(Read { news: [(0, 0); READ_MAX], taken: 0, given: 0 });
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
            // SAFETY: the ring lives as long as `self`. It passes at most READ_MAX news to `take`,
            // which has room for them.
            unsafe { libbpf_sys::ring_buffer__consume_n(self.ring.as_ptr(), READ_MAX as u64) };
        }
        let (pid, kind) = *self.read.news[..self.read.taken].get(self.read.given)?;
        self.read.given += 1;
        let kind = if kind == abi::fp_news_kind_FP_EXEC { Kind::Exec } else { Kind::Exit };
        Some((Pid::new(pid)?, kind))
    }
}

impl Drop for News {
    fn drop(&mut self) {
        // SAFETY: created by `open`, and used only here.
        unsafe { libbpf_sys::ring_buffer__free(self.ring.as_ptr()) };
    }
}

/// libbpf calls this for each news in the ring.
unsafe extern "C" fn take(
    context: *mut c_void,
    data: *mut c_void,
    size: libbpf_sys::size_t,
) -> c_int {
    // SAFETY: `context` is the `Read` that `open` passed, and there is no other reference to it
    // during the call. `data` has `size` bytes.
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
