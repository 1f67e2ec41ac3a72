// SPDX-License-Identifier: GPL-2.0-only

//! The reasons for which a program fails, each with one sentence and one exit code.

use super::print::one_line;
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
    /// The process lacks these capabilities, some of which loading a scheduler needs.
    Unprivileged(Vec<&'static str>),
    /// This user may not do this.
    Denied(String),
    /// The kernel has no sched_ext.
    NoSchedExt,
    /// Another sched_ext scheduler is loaded.
    Occupied(String),
    /// Another instance of this program runs, or starts at the same time.
    AlreadyRuns,
    /// This process has a PID namespace of its own.
    OwnPids,
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
        ExitCode::from(self.code())
    }

    /// The number of the process exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Internal(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unprivileged(_) | Failure::Denied(_) => 3,
            Failure::NoSchedExt => 4,
            Failure::Occupied(_) | Failure::AlreadyRuns => 5,
            Failure::Refused(_) | Failure::OwnPids => 6,
            Failure::Ejected(_) => 7,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Internal(error) => write!(f, "{error:#}"),
            Failure::Usage(sentence) | Failure::Denied(sentence) => f.write_str(sentence),
            Failure::Unprivileged(names) => write!(
                f,
                "this process may not load a scheduler, because it lacks {}: run \
                 `sudo scx_pandemonium_user`, or grant them",
                names.join(", ")
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
            Failure::AlreadyRuns => f.write_str(
                "scx_pandemonium_user already runs here, or another start of it is under way: stop \
                 it first (only one can be loaded at a time)",
            ),
            Failure::OwnPids => f.write_str(
                "this process has a PID namespace of its own, as in a container, and the kernel \
                 names tasks by other numbers: start it on the host, or in a container that shares \
                 the host's (`--pid=host`)",
            ),
            Failure::Refused(reason) => {
                write!(f, "the kernel refused to load the scheduler: {}", one_line(reason))
            }
            Failure::Ejected(reason) => write!(
                f,
                "the kernel unloaded the scheduler, and its own scheduler has taken over: {}",
                one_line(reason)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_text_stays_in_one_line_and_controls_no_terminal() {
        // The kernel names the task that did not run, and a task can have any name.
        let stall = "runnable task stall (\x1b]0;x\x07\n[4711] failed to run for 5.001s)";
        let name = "evil\x1b[2J";
        let all = [
            Failure::Ejected(stall.into()),
            Failure::Refused(stall.into()),
            Failure::Occupied(name.into()),
        ];
        for failure in all.map(|failure| failure.to_string()) {
            assert!(!failure.contains(char::is_control), "{failure:?}");
        }
    }
}
