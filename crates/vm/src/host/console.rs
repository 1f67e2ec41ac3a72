// SPDX-License-Identifier: GPL-2.0-only

//! Reads the kernel's console log: warnings that turn a pass into a failure, and the last messages
//! of a guest that died.

use std::path::Path;

/// Words in the first line of a kernel warning or crash.
const TROUBLE: &[&str] = &["BUG:", "WARNING:", "Oops", "Kernel panic", "general protection fault"];
/// Messages just before a warning that is the kernel's own fault and not the scheduler's. There is
/// one: 6.12 miscounts the bandwidth of its fair server when a CPU goes offline while a sched_ext
/// scheduler is loaded. It was seen in two of three runs of a stock scx_rustland 1.1.4.
const KNOWN_FAULTS: &[&str] = &["dl_rq->running_bw > old"];
/// The opcode of a breakpoint. The printed instruction pointer is the byte after it.
const INT3: &str = "cc";
/// Prefix of the guest agent's own lines.
const OWN: &str = "vm| ";
const LAST_WORDS: usize = 6;

pub struct Console {
    lines: Vec<String>,
}

impl Console {
    pub fn read(path: &Path) -> Console {
        let bytes = std::fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let kernel_lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(OWN));
        Console { lines: kernel_lines.map(str::to_string).collect() }
    }

    /// The first line of a warning or a crash.
    pub fn trouble(&self) -> Option<&str> {
        self.troubles().next()
    }

    /// Known faults of the kernel, which do not fail a scenario but are reported.
    pub fn known_faults(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str).filter(|line| is_known_fault(line))
    }

    /// Finds the proof that QEMU executed code that was no longer in memory: the kernel died of a
    /// breakpoint (int3), and the code that it then prints has another instruction at that place.
    /// Kernels patch their own code behind such breakpoints. QEMU with a thread for each virtual
    /// CPU sometimes still executes a breakpoint that another CPU has just removed.
    pub fn emulators_fault(&self) -> Option<&str> {
        let (at, line) = self.lines.iter().enumerate().find(|(_, line)| is_trouble(line))?;
        let code = self.lines[at..].iter().find_map(|line| line.split_once("Code: "))?.1;
        let (before, _) = code.split_once('<')?;
        let ran_breakpoint = line.contains("Oops: int3");
        let holds_another = before.split_whitespace().next_back().is_some_and(|it| it != INT3);
        (ran_breakpoint && holds_another).then_some(line)
    }

    /// The kernel's warnings if it printed any, else its last lines.
    pub fn last_words(&self) -> String {
        let troubles: Vec<&str> = self.troubles().take(LAST_WORDS).collect();
        match (troubles.is_empty(), self.lines.len()) {
            (false, _) => troubles.join(" | "),
            (true, 0) => "the kernel printed nothing".into(),
            (true, count) => self.lines[count.saturating_sub(LAST_WORDS)..].join(" | "),
        }
    }

    fn troubles(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter().map(String::as_str);
        let before = std::iter::once("").chain(lines.clone());
        lines.zip(before).filter_map(|(line, before)| {
            (is_trouble(line) && !is_known_fault(before)).then_some(line)
        })
    }
}

fn is_trouble(line: &str) -> bool {
    TROUBLE.iter().any(|mark| line.contains(mark))
}

fn is_known_fault(line: &str) -> bool {
    KNOWN_FAULTS.iter().any(|fault| line.contains(fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn console(text: &str) -> Console {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("console-{process}-{number}.log"));
        std::fs::write(&path, text).expect("a temporary file");
        let console = Console::read(&path);
        std::fs::remove_file(&path).expect("the file can be removed");
        console
    }

    #[test]
    fn a_breakpoint_that_is_not_in_memory_is_the_emulators_fault() {
        let ghost = console(
            "[28.1] Oops: int3: 0000 [#1] SMP NOPTI\n\
             [28.2] RIP: 0010:__schedule+0x9f/0x1080\n\
             [28.3] Code: 00 00 0f 84 6c 0a 00 00 e9 <d5> 04 00 00 0f\n",
        );
        assert_eq!(ghost.emulators_fault(), Some("[28.1] Oops: int3: 0000 [#1] SMP NOPTI"));
        assert!(ghost.trouble().is_some(), "it still spoils a pass");
    }

    #[test]
    fn no_other_crash_is_the_emulators_fault() {
        let real = "[1.0] Oops: int3: 0000 [#1]\n[1.0] Code: 0f 84 6c 0a 00 00 cc <d5> 04 00";
        let without_code = "[1.0] Oops: int3: 0000 [#1]\n[1.0] Kernel panic - not syncing";
        let cut_off = "[1.0] Oops: int3: 0000 [#1]\n[1.0] Code: 0f 84 6c 0a";
        let null = "[1.0] Oops: 0002 [#1]\n[1.0] Code: 0f 84 6c 0a 00 00 e9 <d5> 04 00";
        let later = "[1.0] WARNING: at kernel/sched/ext.c\n[1.1] Code: 0f 0b <48> 8b\n\
             [2.0] Oops: int3: 0000 [#2]\n[2.0] Code: 00 e9 <d5> 04 00";
        for text in [real, without_code, cut_off, null, later, ""] {
            assert_eq!(console(text).emulators_fault(), None, "{text}");
        }
    }

    #[test]
    fn a_known_kernel_fault_is_reported_and_fails_nothing() {
        let fault = "[1.0] dl_rq->running_bw > old\n[1.0] WARNING: CPU: 1 PID: 0";
        assert_eq!(console(fault).trouble(), None);
        assert_eq!(console(fault).known_faults().count(), 1);
        let other = "[1.0] something else\n[1.0] WARNING: CPU: 1 PID: 0";
        assert_eq!(console(other).trouble(), Some("[1.0] WARNING: CPU: 1 PID: 0"));
        assert_eq!(console("vm| WARNING: the agent's own words").trouble(), None);
    }

    #[test]
    fn last_words_are_the_warnings_or_else_the_last_lines() {
        assert_eq!(console("").last_words(), "the kernel printed nothing");
        assert_eq!(console("a\nb\nBUG: c\nd").last_words(), "BUG: c");
        assert_eq!(console("a\n\nb").last_words(), "a | b");
    }
}
