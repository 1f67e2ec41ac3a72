// SPDX-License-Identifier: GPL-2.0-only

//! The fast path: a BPF object of our own that runs beside the backend, and the memory through
//! which it tells what it sees (`src/bpf/fast_path.h`).

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, OpenObject, libbpf_sys};
use scx_pandemonium_user::control::histogram::Latencies;
use scx_pandemonium_user::facts::{CpuSet, Facts};
use scx_pandemonium_user::task::{CpuId, Pid, Tier};
use scx_pandemonium_user::time::{Span, Stamp};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

#[allow(missing_docs, non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::unwrap_used)]
mod fast_path_intf {
    include!(concat!(env!("OUT_DIR"), "/fast_path/bpf_intf.rs"));
}

#[allow(dead_code, clippy::all, clippy::unwrap_used)]
mod fast_path_skel {
    include!(concat!(env!("OUT_DIR"), "/fast_path/fast_path_skel.rs"));
}

use fast_path_intf as abi;
use fast_path_skel::{FastPathSkel, FastPathSkelBuilder};

/// Task records; see `FP_TASKS`.
const TASKS: usize = abi::fp_limits_FP_TASKS as usize;
/// Rows of counters; see `FP_CPUS`.
const CPUS: usize = abi::fp_limits_FP_CPUS as usize;
/// Kernel ABI: task flags of `linux/sched.h`, policy of `uapi/linux/sched.h`.
const PF_KTHREAD: u32 = 0x0020_0000;
const PF_WQ_WORKER: u32 = 0x0000_0020;
const SCHED_IDLE: u16 = 5;

/// The loaded fast path.
pub struct FastPath<'obj> {
    skel: FastPathSkel<'obj>,
    tasks: Mapped<abi::fp_task, TASKS>,
    hints: Mapped<abi::fp_hint, TASKS>,
    counters: Mapped<abi::fp_counters, CPUS>,
}

/// What the fast path has counted, over all CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastCounters {
    /// CPUs it interrupted for a wake-up.
    pub kicks: u64,
    /// CPUs it interrupted because the policy asked.
    pub asked: u64,
    /// Wake-up to running, by tier.
    pub latency: [Latencies; 3],
}

impl<'obj> FastPath<'obj> {
    /// Loads and attaches it. To be called before memory is locked. Without `kicks` it only
    /// observes.
    pub fn load(object: &'obj mut MaybeUninit<OpenObject>, kicks: bool) -> Result<Self> {
        let mut open = FastPathSkelBuilder::default().open(object)?;
        let constants = open.maps.rodata_data.as_mut().context("the object has no constants")?;
        constants.scheduler_tgid = std::process::id();
        constants.nr_cpus = *scx_utils::NR_CPU_IDS as u32;
        // The flag's number is the running kernel's business; without it a kick that should
        // preempt would silently be a plain one.
        let preempt = scx_utils::compat::read_enum("scx_kick_flags", "SCX_KICK_PREEMPT")?;
        constants.kick_flags = if kicks { preempt } else { 0 };
        let mut skel = open.load()?;
        skel.attach()?;
        let tasks = Mapped::new(&skel.maps.tasks)?;
        let hints = Mapped::new(&skel.maps.hints)?;
        let counters = Mapped::new(&skel.maps.counters)?;
        Ok(FastPath { skel, tasks, hints, counters })
    }

    /// What is known of a task; `None` if its record tells of somebody else, or is being written.
    pub fn facts(&self, pid: Pid) -> Option<Facts> {
        let record = self.tasks.at(pid.as_raw() as usize % TASKS);
        // SAFETY: `record` points into the mapping, which lives as long as `self`. The kernel may
        // write while we read, so the copy is only believed if the sequence number was even and
        // did not change meanwhile; any bytes are valid integers.
        let task = unsafe {
            let seq = AtomicU32::from_ptr(&raw mut (*record).seq);
            let before = seq.load(Ordering::Acquire);
            let copy = std::ptr::read_volatile(record);
            fence(Ordering::Acquire);
            if before & 1 == 1 || seq.load(Ordering::Relaxed) != before {
                return None;
            }
            copy
        };
        (task.pid == pid.as_raw()).then(|| Facts {
            wakeups: task.wakeups,
            voluntary: task.voluntary,
            involuntary: task.involuntary,
            cpu_time: Span::from_nanos(task.cpu_ns),
            woken: Stamp::from_nanos(task.woken),
            slept: Span::from_nanos(task.slept_ns),
            kthread: task.flags & PF_KTHREAD != 0,
            workqueue: task.flags & PF_WQ_WORKER != 0,
            idle_class: task.policy == SCHED_IDLE,
            nice: task.nice,
            allowed: CpuSet(task.allowed),
            kicked: CpuId::new(task.kicked_cpu),
        })
    }

    /// Tells the kernel what the policy thinks of a task.
    pub fn hint(&self, pid: Pid, tier: Tier) {
        let hint = abi::fp_hint { pid: pid.as_raw(), tier: 1 + tier.index() as u32 };
        // SAFETY: points into the mapping. A kernel that reads half a hint sees one of another
        // pid, which it ignores, or a tier that is one decision old.
        unsafe { std::ptr::write_volatile(self.hints.at(pid.as_raw() as usize % TASKS), hint) };
    }

    /// Interrupts whoever runs on `cpu`. One system call.
    pub fn kick(&self, cpu: CpuId) {
        let mut argument = abi::fp_kick_arg { cpu: cpu.as_raw() };
        // SAFETY: all-zero is how libbpf wants its options before they are filled in.
        let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as u64;
        options.ctx_in = (&raw mut argument).cast();
        options.ctx_size_in = size_of_val(&argument) as u32;
        let fd = self.skel.progs.fp_kick.as_fd().as_raw_fd();
        // SAFETY: the descriptor is that of a loaded program, and the argument outlives the call.
        unsafe { libbpf_sys::bpf_prog_test_run_opts(fd, &mut options) };
    }

    /// The counters, summed over the CPUs that the machine can have.
    pub fn counters(&self) -> FastCounters {
        let mut sum = FastCounters::default();
        for cpu in 0..(*scx_utils::NR_CPU_IDS).min(CPUS) {
            // SAFETY: points into the mapping; any bytes are valid integers.
            let row = unsafe { std::ptr::read_volatile(self.counters.at(cpu)) };
            sum.kicks += row.kicks;
            sum.asked += row.asked;
            for (tier, counts) in sum.latency.iter_mut().zip(row.wake_latency) {
                for (total, count) in tier.counts.iter_mut().zip(counts) {
                    *total += count;
                }
            }
        }
        sum
    }
}

/// An array of `N` records shared with the kernel.
struct Mapped<T, const N: usize> {
    base: NonNull<T>,
}

impl<T, const N: usize> Mapped<T, N> {
    fn new(map: &impl MapCore) -> Result<Self> {
        let fits = map.value_size() as usize == size_of::<T>() && map.max_entries() as usize == N;
        ensure!(fits, "the fast path was built with another layout");
        // SAFETY: a new mapping of a whole map, whose size was just checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                N * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        let error = std::io::Error::last_os_error();
        ensure!(address != libc::MAP_FAILED, "cannot map what it observes: {error}");
        Ok(Mapped { base: NonNull::new(address.cast()).context("mapped at zero")? })
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < N, "callers index with what they mapped");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(index) }
    }
}

impl<T, const N: usize> Drop for Mapped<T, N> {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), N * size_of::<T>()) };
    }
}
