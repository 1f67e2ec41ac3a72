// SPDX-License-Identifier: GPL-2.0-only

//! The reasons for which a program fails, each with one sentence and one exit code.

use std::fmt;
use std::process::ExitCode;

/// Why the program ends. Each variant maps to an exit code (README, "Exit codes"), and its message
/// says what to do next.
#[derive(Debug)]
pub enum Failure {
    /// An unexpected error.
    Internal(anyhow::Error),
    /// Options that contradict each other. clap reports all other usage errors, with the same code.
    Usage(String),
    /// The process is not root and lacks the capabilities that loading a scheduler needs.
    Unprivileged,
    /// This user may not do this.
    Denied(String),
    /// The kernel has no sched_ext.
    NoSchedExt,
    /// Another sched_ext scheduler is loaded.
    Occupied(String),
    /// The kernel refused to load the scheduler's BPF programs.
    Refused(String),
    /// The kernel unloaded the scheduler while it ran.
    Ejected(String),
}

impl Failure {
    /// Wraps an error that has no class of its own.
    pub fn internal(error: impl Into<anyhow::Error>) -> Failure {
        Failure::Internal(error.into())
    }

    /// The process exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Internal(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unprivileged | Failure::Denied(_) => 3,
            Failure::NoSchedExt => 4,
            Failure::Occupied(_) => 5,
            Failure::Refused(_) => 6,
            Failure::Ejected(_) => 7,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Internal(error) => write!(f, "{error:#}"),
            Failure::Usage(sentence) | Failure::Denied(sentence) => f.write_str(sentence),
            Failure::Unprivileged => f.write_str(
                "loading a scheduler needs root: run `sudo scx_pandemonium_user`, or grant \
                 CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE",
            ),
            Failure::NoSchedExt => f.write_str(
                "this kernel has no sched_ext: boot one from 6.12 on that was built with \
                 CONFIG_SCHED_CLASS_EXT=y, or try the scheduler in a virtual machine: `make run`",
            ),
            Failure::Occupied(name) => write!(
                f,
                "the sched_ext scheduler {name:?} is already loaded: stop it first (only one can \
                 be loaded at a time)",
            ),
            Failure::Refused(reason) => {
                write!(f, "the kernel refused to load the scheduler: {reason}")
            }
            Failure::Ejected(reason) => write!(
                f,
                "the kernel unloaded the scheduler, and its own scheduler has taken over: {reason}",
            ),
        }
    }
}
