// SPDX-License-Identifier: GPL-2.0-only

//! Filters of system calls. The worker, once it schedules, may make those that it needs; the
//! supervisor, and so each worker while it loads, all but those that neither ever needs.
//!
//! A refused call fails with EPERM, and the kernel's log names it (`type=1326`). To kill the
//! process instead would be no safer for what it protects, and would cost the user the scheduler
//! where a library begins to make another call.
//!
//! `scx_rustland_core` already links libseccomp for a filter against `mmap`. That allocates, and
//! here all memory is locked, so these filters are made without it: a list of numbers needs no
//! more.

use super::output;
use std::io::{Error, Result};

/// `struct seccomp_data` (kernel ABI, `linux/seccomp.h`): the number of the call, the architecture,
/// and the lower halves of the first two arguments on a little-endian machine. The kernel reads no
/// more of the arguments that are checked here.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
/// `AUDIT_ARCH_*` of `linux/audit.h`. On other machines there is no filter.
#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OURS: u32 = 0;
/// Numbers from here on are those of x32, other calls by other numbers.
const X32: u32 = 0x4000_0000;
/// `BPF_PROG_RUN` of `linux/bpf.h`: runs a loaded program.
const BPF_PROG_RUN: u32 = 10;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// What a worker needs to schedule, to say why it ends, and to end, besides [`checked`] calls.
const SCHEDULING: [libc::c_long; 34] = [
    // Rounds, the clock where it is no memory, statistics.
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getcpu,
    libc::SYS_getrusage,
    // Threads that wait, the one that handles signals, and the one that locks memory.
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    // Messages, and what is open already.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    // The end: memory is given back, a bug is reported if there is a reader.
    libc::SYS_ppoll,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_munmap,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// A call that is allowed if the lower half of one argument has one of these values.
struct Checked {
    number: libc::c_long,
    /// Where the argument is in `struct seccomp_data`.
    argument: u32,
    values: Vec<u32>,
}

/// Calls that a worker needs in one form, and that reach beyond it in others. All others that do
/// (`kill`, `pidfd_send_signal`, `prctl`, `setpriority`, `sched_setscheduler`, `prlimit64`,
/// `process_vm_writev` and so on) are missing in [`SCHEDULING`].
fn checked() -> [Checked; 3] {
    [
        Checked { number: libc::SYS_bpf, argument: FIRST_ARGUMENT, values: vec![BPF_PROG_RUN] },
        // A panic that aborts signals its own thread. The user of the scheduler is mostly root,
        // which may signal every process.
        Checked {
            number: libc::SYS_tgkill,
            argument: FIRST_ARGUMENT,
            values: vec![std::process::id()],
        },
        // F_SETOWN and O_ASYNC have the kernel signal any process.
        Checked {
            number: libc::SYS_fcntl,
            argument: SECOND_ARGUMENT,
            values: [libc::F_GETFD, libc::F_GETFL].map(|command| command as u32).to_vec(),
        },
    ]
}

/// What a worker that schedules tries at its end, and may not: `scx_rustland_core` puts back a
/// kernel setting, which `compaction` does. It is refused without a note in the kernel's log.
const QUIETLY_REFUSED: [libc::c_long; 1] = [libc::SYS_openat];

/// What no process of this scheduler ever needs: other processes' memory, mounts and namespaces,
/// modules and other kernels, keys, clocks, names, hardware, and interfaces that were often a way
/// around such a list.
const NEVER: [libc::c_long; 54] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_remap_file_pages,
];

/// The same on one architecture: ports of hardware, and library calls of old.
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[libc::c_long] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[libc::c_long] = &[];

/// In the supervisor and in commands that read, before they start threads: those and all workers
/// inherit the filter. No program that they execute may gain privileges any more; see `privileges`.
/// Warns if the kernel has no filters.
pub fn supervise() {
    if let Err(error) = install(&supervising(), libc::SECCOMP_FILTER_FLAG_LOG) {
        output::warn(&format!("system calls that are never needed are not refused: {error}"));
    }
}

fn supervising() -> Vec<libc::sock_filter> {
    let never: Vec<u32> = NEVER.iter().chain(NEVER_HERE).map(|call| *call as u32).collect();
    REFUSE_LISTED.program(&never, &[])
}

/// In a worker that has loaded the backend, for all its threads.
///
/// # Errors
///
/// If the kernel has no filters, or a thread has one that this one has not.
pub fn schedule() -> Result<()> {
    let quietly = QUIETLY_REFUSED.map(|call| call as u32);
    let all_threads = libc::SECCOMP_FILTER_FLAG_TSYNC;
    install(&REFUSE_LISTED.program(&quietly, &[]), all_threads)?;
    install(&scheduling(), all_threads | libc::SECCOMP_FILTER_FLAG_LOG)
}

fn scheduling() -> Vec<libc::sock_filter> {
    let listed = SCHEDULING.iter().chain(&QUIETLY_REFUSED).map(|call| *call as u32);
    let filter = Filter { listed: ALLOW, rest: REFUSE };
    filter.program(&listed.collect::<Vec<_>>(), &checked())
}

/// What becomes of the calls of a list, and of all others.
struct Filter {
    listed: u32,
    rest: u32,
}

const REFUSE_LISTED: Filter = Filter { listed: REFUSE, rest: ALLOW };

impl Filter {
    /// As a program of classic BPF, for a list of these numbers and of calls that are on it with
    /// some arguments. Calls by the numbers of another architecture are refused.
    fn program(&self, numbers: &[u32], checked: &[Checked]) -> Vec<libc::sock_filter> {
        let mut steps = vec![
            load(ARCHITECTURE),
            equal(OURS, 1, 0),
            answer(REFUSE),
            load(NUMBER),
            step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
            answer(REFUSE),
        ];
        for Checked { number, argument, values } in checked {
            let count = values.len() as u8;
            // Past the load, the comparisons and both answers.
            steps.extend([equal(*number as u32, 0, count + 3), load(*argument)]);
            let matches = (0..count).zip(values);
            steps.extend(matches.map(|(at, value)| equal(*value, count - at, 0)));
            steps.extend([answer(self.rest), answer(self.listed)]);
        }
        // A jump passes at most 255 steps.
        debug_assert!(numbers.len() < 255, "{} calls", numbers.len());
        for (at, number) in numbers.iter().enumerate() {
            steps.push(equal(*number, (numbers.len() - at) as u8, 0));
        }
        steps.extend([answer(self.rest), answer(self.listed)]);
        steps
    }
}

fn load(offset: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value)
}

fn answer(value: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}

fn step(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k: value }
}

fn install(steps: &[libc::sock_filter], flags: libc::c_ulong) -> Result<()> {
    if OURS == 0 {
        return Ok(());
    }
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_ptr().cast_mut() };
    let operation = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program and its steps outlive the call, which does not change them.
    match unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program) } {
        0 => Ok(()),
        -1 => Err(Error::last_os_error()),
        thread => Err(Error::other(format!("thread {thread} has another filter"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::thread;

    /// What a thread of its own finds out: a filter is for good.
    fn in_thread<T: Send>(action: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: a plain system call, for the calling thread.
                unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
                action()
            });
            thread.join().unwrap()
        })
    }

    fn errno(call: libc::c_long, arguments: [libc::c_long; 3]) -> i32 {
        let [a, b, c] = arguments;
        // SAFETY: the calls below have arguments that are wrong or harmless.
        let result = unsafe { libc::syscall(call, a, b, c) };
        if result == -1 { Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
    }

    #[test]
    fn what_no_process_needs_is_refused_and_the_rest_goes_on() {
        let [ptrace, mount, keyctl, x32, opened] = in_thread(|| {
            install(&supervising(), libc::SECCOMP_FILTER_FLAG_LOG).unwrap();
            [
                errno(libc::SYS_ptrace, [-1, -1, 0]),
                errno(libc::SYS_mount, [0, 0, 0]),
                errno(libc::SYS_keyctl, [-1, 0, 0]),
                errno(libc::SYS_getpid | libc::c_long::from(X32), [0, 0, 0]),
                i32::from(File::open("/proc/self/status").is_ok()),
            ]
        });
        assert_eq!([ptrace, mount, keyctl, x32], [libc::EPERM; 4]);
        assert_eq!(opened, 1);
    }

    #[test]
    fn a_worker_that_schedules_runs_programs_and_opens_nothing() {
        let found = in_thread(|| {
            // Without the flag for all threads: other tests run in them.
            install(&scheduling(), 0).unwrap();
            let run = libc::c_long::from(BPF_PROG_RUN);
            [
                errno(libc::SYS_sched_yield, [0, 0, 0]),
                // An unknown program, not a refusal.
                i32::from(errno(libc::SYS_bpf, [run, 0, 0]) != libc::EPERM),
                errno(libc::SYS_bpf, [0, 0, 0]),
                errno(libc::SYS_execve, [0, 0, 0]),
                errno(libc::SYS_socket, [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0]),
                errno(libc::SYS_clone, [0, 0, 0]),
                errno(libc::SYS_kill, [0, 0, 0]),
                errno(libc::SYS_mprotect, [0, 0, 0]),
            ]
        });
        assert_eq!(found[..2], [0, i32::from(unprivileged_bpf_is_told())]);
        assert!(found[2..].iter().all(|errno| *errno == libc::EPERM), "{found:?}");
        let opened = in_thread(|| {
            let quietly = QUIETLY_REFUSED.map(|call| call as u32);
            install(&REFUSE_LISTED.program(&quietly, &[]), 0).unwrap();
            File::open("/proc/self/status").err().and_then(|error| error.raw_os_error())
        });
        assert_eq!(opened, Some(libc::EPERM));
    }

    #[test]
    fn a_worker_that_schedules_signals_its_own_threads_only() {
        // SAFETY: plain system calls.
        let (own, parent) = unsafe { (libc::getpid(), libc::getppid()) };
        let [own, parent] = [own, parent].map(libc::c_long::from);
        let output = libc::c_long::from(libc::STDOUT_FILENO);
        let [is_open, set_owner, set_flags] =
            [libc::F_GETFD, libc::F_SETOWN, libc::F_SETFL].map(libc::c_long::from);
        // Signal 0 is only a question.
        let of = |process| [process, process, 0];
        let in_filter = |call: libc::c_long, arguments| {
            in_thread(|| {
                install(&scheduling(), 0).unwrap();
                errno(call, arguments)
            })
        };
        assert_eq!(errno(libc::SYS_tgkill, of(parent)), 0, "the filter is what refuses it");
        assert_eq!(in_filter(libc::SYS_tgkill, of(own)), 0);
        assert_eq!(in_filter(libc::SYS_tgkill, of(parent)), libc::EPERM);
        assert_eq!(in_filter(libc::SYS_tgkill, of(1)), libc::EPERM);
        assert_eq!(in_filter(libc::SYS_fcntl, [output, is_open, 0]), 0);
        assert_eq!(in_filter(libc::SYS_fcntl, [output, set_owner, parent]), libc::EPERM);
        let asynchronous = libc::c_long::from(libc::O_ASYNC);
        assert_eq!(in_filter(libc::SYS_fcntl, [output, set_flags, asynchronous]), libc::EPERM);
        for call in [
            libc::SYS_tkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
            libc::SYS_pidfd_open,
            libc::SYS_pidfd_send_signal,
            libc::SYS_prctl,
            libc::SYS_prlimit64,
            libc::SYS_setpriority,
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setattr,
            libc::SYS_sched_setaffinity,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
        ] {
            assert_eq!(in_filter(call, [-1, -1, -1]), libc::EPERM, "call {call}");
        }
    }

    /// Whether the kernel tells an unprivileged caller of `bpf` that the program is unknown. It
    /// does not where only root may use `bpf`.
    fn unprivileged_bpf_is_told() -> bool {
        errno(libc::SYS_bpf, [BPF_PROG_RUN.into(), 0, 0]) != libc::EPERM
    }

    #[test]
    fn no_call_is_allowed_and_never_needed_at_once() {
        let checked = checked().map(|call| call.number);
        let allowed = SCHEDULING.iter().chain(&checked);
        let mut all: Vec<_> = NEVER.iter().chain(NEVER_HERE).chain(allowed).collect();
        let before = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), before);
    }
}
