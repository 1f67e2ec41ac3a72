// SPDX-License-Identifier: GPL-2.0-only

//! Reads the kernel's console log: trouble that spoils a pass, and the last words of a guest that
//! died.

use std::path::Path;

/// Marks of a kernel in trouble.
const TROUBLE: &[&str] = &["BUG:", "WARNING:", "Oops", "Kernel panic", "general protection fault"];
/// What a kernel says just before a warning that is its own fault, and that says nothing about the
/// scheduler. The only one: 6.12 miscounts the bandwidth of its fair server when a CPU goes offline
/// while a sched_ext scheduler is loaded. Seen in two of three runs of a stock scx_rustland 1.1.4.
const KNOWN_FAULTS: &[&str] = &["dl_rq->running_bw > old"];
/// The opcode of a breakpoint. The instruction pointer that is printed stands behind it.
const INT3: &str = "cc";
/// Lines that the guest agent wrote there itself.
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

    /// The first line that must not be there.
    pub fn trouble(&self) -> Option<&str> {
        self.troubles().next()
    }

    /// Faults of the kernel that are known and forgiven, to be mentioned all the same.
    pub fn known_faults(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str).filter(|line| is_known_fault(line))
    }

    /// Proof that QEMU ran code which was not in memory any more: the kernel died of a breakpoint
    /// (int3), and the code that it then prints has another instruction there. Kernels rewrite
    /// their own code behind such breakpoints, and QEMU, with a thread for each virtual CPU, now
    /// and then goes on with a breakpoint that another CPU has just removed.
    pub fn emulators_fault(&self) -> Option<&str> {
        let (at, line) = self.lines.iter().enumerate().find(|(_, line)| is_trouble(line))?;
        let code = self.lines[at..].iter().find_map(|line| line.split_once("Code: "))?.1;
        let (before, _) = code.split_once('<')?;
        let ran_breakpoint = line.contains("Oops: int3");
        let holds_another = before.split_whitespace().next_back().is_some_and(|it| it != INT3);
        (ran_breakpoint && holds_another).then_some(line)
    }

    /// What the kernel said in the end: its trouble if it had any, else its last lines.
    pub fn last_words(&self) -> String {
        let troubles: Vec<&str> = self.troubles().take(LAST_WORDS).collect();
        match (troubles.is_empty(), self.lines.len()) {
            (false, _) => troubles.join(" | "),
            (true, 0) => "the kernel said nothing".into(),
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
