// SPDX-License-Identifier: GPL-2.0-only

//! BPF programs of type `syscall`: user space runs them. One system call, without an allocation.

use libbpf_rs::libbpf_sys;
use std::os::fd::{AsFd, AsRawFd};

/// Runs a loaded program with `argument` as its context, and returns what it returns; `None` if the
/// kernel refuses to run it.
pub fn run<T>(program: &impl AsFd, argument: &mut T) -> Option<i32> {
    // SAFETY: all-zero is how libbpf wants its options before they are filled in.
    let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as u64;
    if size_of::<T>() > 0 {
        options.ctx_in = (&raw mut *argument).cast();
        options.ctx_size_in = size_of::<T>() as u32;
    }
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the descriptor is that of a loaded program, and the argument outlives the call.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(fd, &mut options) };
    (result == 0).then_some(options.retval as i32)
}
