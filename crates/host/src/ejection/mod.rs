// SPDX-License-Identifier: GPL-2.0-only

//! Why the kernel ejected a sched_ext scheduler: the cause and the culprit in one sentence, and
//! what the kernel says without the names of tasks, for a report.
//!
//! All of it is pure: the texts come from the kernel's `struct scx_exit_info`. Tasks choose their
//! names, so the texts may hold anything.

mod dump;
mod redact;
mod stall;

use crate::print::{one_line, printable};
use redact::Names;

/// Longest reason that is kept, in bytes: as long as the kernel's.
pub const REASON_MAX: usize = 128;
/// Longest message that is kept, in bytes.
pub const MESSAGE_MAX: usize = 1_024;
/// Longest dump that is kept, in bytes, and the length that the kernel is asked for: four times its
/// usual one. The kernel cuts off a longer dump, and then the stalled task may be missing. A
/// runnable task with ten lines of stack takes 500 bytes, so 250 of them fit.
pub const DUMP_MAX: usize = 128 * 1_024;
/// A shorter gap between rounds is not worth a mention: on an idle machine the scheduling process
/// runs every one to two seconds.
const GAP_NOTED_NS: u64 = 2_500_000_000;

/// Kinds of an exit (`enum scx_exit_kind`).
const SYSRQ: u32 = 67;
const ERROR: u32 = 1_024;
const ERROR_BPF: u32 = 1_025;
const STALL: u32 = 1_026;

/// What the kernel says of an ejection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ejection {
    /// The kind of the exit (`enum scx_exit_kind`).
    pub kind: u32,
    /// The kernel's name of the kind.
    pub reason: String,
    /// The kernel's message, perhaps empty.
    pub message: String,
    /// The kernel's debug dump, perhaps empty or cut off.
    pub dump: String,
    /// The longest time for which the scheduling process made no decision before, in nanoseconds.
    pub gap_ns: u64,
}

impl Ejection {
    /// Cause and culprit, in one line that controls no terminal.
    pub fn sentence(&self) -> String {
        let cause = match self.kind {
            SYSRQ => Some("the SysRq key S asked for it".to_owned()),
            ERROR => Some("the kernel found a fault of the scheduler".to_owned()),
            ERROR_BPF => Some("the scheduler's backend found a fault".to_owned()),
            STALL => stall::describe(&self.message, &self.dump),
            _ => None,
        };
        let kernel = match (self.reason.trim(), self.message.trim()) {
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        let mut text = match cause {
            Some(cause) => format!("{cause} ({kernel})"),
            None => kernel,
        };
        if self.gap_ns >= GAP_NOTED_NS {
            let ms = self.gap_ns / 1_000_000;
            text += &format!("; before that the scheduling process had decided nothing for {ms}ms");
        }
        one_line(&text).into_owned()
    }

    /// The kernel's dump for a terminal, with a bar before each line: a newline in a task's name
    /// must not begin a line that looks like ours.
    pub fn quoted_dump(&self) -> String {
        self.dump.lines().map(|line| format!("| {line}\n")).collect()
    }

    /// Everything that the kernel says, in lines, without names of tasks.
    pub fn redacted(&self) -> String {
        let mut names = Names::of(&self.dump);
        let message = names.sentence(self.message.trim());
        let (kind, reason) = (self.kind, self.reason.trim());
        let text = format!(
            "kind: {kind}\nreason: {}\nmessage: {}\ngap_ms: {}\n\n{}",
            one_line(reason),
            one_line(&message),
            self.gap_ns / 1_000_000,
            names.dump(&self.dump)
        );
        printable(&text).replace('\t', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form of Linux 6.12, beside a real-time task that computes. Composed by hand.
    pub const REAL_TIME: &str = include_str!("../../../fuzz/seeds/ejection/real-time-6.12");
    /// In the form of Linux 7.3: a bound task that waits for the scheduling process. By hand.
    pub const BOUND: &str = include_str!("../../../fuzz/seeds/ejection/bound-7.3");

    /// The form of the fuzz target's seeds: reason, message, dump.
    pub fn recorded(text: &str) -> Ejection {
        let mut parts = text.splitn(3, '\n');
        let mut next = || parts.next().unwrap_or_default().to_owned();
        Ejection { kind: STALL, reason: next(), message: next(), dump: next(), gap_ns: 0 }
    }

    #[test]
    fn a_stall_is_told_with_its_task_its_queue_and_the_real_time_task() {
        assert_eq!(
            recorded(REAL_TIME).sentence(),
            "compile (pid 812) did not run for 5.120 s: it waited in the queue of CPU 1, may run \
             on CPU 1 only, and the real-time task spinner (pid 790) had that CPU (runnable task \
             stall: compile[812] failed to run for 5.120s)"
        );
        let late = Ejection { gap_ns: 5_244_000_000, ..recorded(BOUND) };
        assert_eq!(
            late.sentence(),
            "my editor (pid 4711) did not run for 5.031 s: it waited for a decision of the \
             scheduling process, may run on 2 CPUs (0, 1), and no real-time task had them; CPU 1 \
             was idle (runnable task stall: my editor[4711] failed to run for 5.031s); before that \
             the scheduling process had decided nothing for 5244ms"
        );
    }

    #[test]
    fn other_ends_are_told_in_words_with_the_kernel_s_text() {
        let end = |kind, reason: &str, message: &str| {
            Ejection { kind, reason: reason.into(), message: message.into(), ..Ejection::default() }
                .sentence()
        };
        assert_eq!(
            end(SYSRQ, "disabled by sysrq-S", ""),
            "the SysRq key S asked for it (disabled by sysrq-S)"
        );
        assert_eq!(
            end(ERROR, "runtime error", "invalid CPU 99"),
            "the kernel found a fault of the scheduler (runtime error: invalid CPU 99)"
        );
        assert_eq!(end(STALL, "runnable task stall", "odd"), "runnable task stall: odd");
        assert_eq!(end(9, "new", ""), "new");
        assert_eq!(end(9, "\x1b[2J", "a\nb"), "?[2J: a?b");
    }

    #[test]
    fn a_name_in_the_dump_begins_no_line_of_ours() {
        let dump = "CPU 0   : nr_run=1\n  R x\nwarning: y\r\nz[9] -5ms\n".to_owned();
        let quoted = Ejection { dump, ..Ejection::default() }.quoted_dump();
        assert_eq!(quoted, "| CPU 0   : nr_run=1\n|   R x\n| warning: y\n| z[9] -5ms\n");
    }

    #[test]
    fn a_report_has_what_happened_and_no_name() {
        for (text, names) in [(REAL_TIME, ["compile", "spinner"]), (BOUND, ["editor", "browser"])] {
            let ejection = recorded(text);
            assert!(names.iter().all(|name| ejection.dump.contains(name)));
            let report = ejection.redacted();
            assert!(!names.iter().any(|name| report.contains(name)), "{report}");
            assert!(report.contains("message: task-"), "{report}");
            assert!(report.contains("dsq_id=") && report.contains("CPU 0   : nr_run="), "{report}");
            // The dump repeats the message.
            assert!(report.ends_with("names may be in them: 1 lines)\n"), "{report}");
        }
    }
}
