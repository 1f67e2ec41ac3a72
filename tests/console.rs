// SPDX-License-Identifier: GPL-2.0-only

//! What the VM harness makes of a kernel's console: forgiving the wrong line would hide every fault
//! of ours.

#[path = "vm/host/console.rs"]
mod console;

use console::Console;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

fn console(text: &str) -> Console {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("console-{}.log", COUNT.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a file in the target folder");
    Console::read(&path)
}

#[test]
fn a_breakpoint_that_memory_does_not_hold_is_the_emulators_fault() {
    let ghost = console(
        "[28.1] Oops: int3: 0000 [#1] SMP NOPTI\n\
         [28.2] RIP: 0010:__schedule+0x9f/0x1080\n\
         [28.3] Code: 00 00 0f 84 6c 0a 00 00 e9 <d5> 04 00 00 0f\n",
    );
    assert_eq!(ghost.emulators_fault(), Some("[28.1] Oops: int3: 0000 [#1] SMP NOPTI"));
    assert!(ghost.trouble().is_some(), "it still spoils a pass");
}

#[test]
fn no_other_death_is() {
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
fn a_known_fault_is_forgiven_and_mentioned() {
    let fault = "[1.0] dl_rq->running_bw > old\n[1.0] WARNING: CPU: 1 PID: 0";
    assert_eq!(console(fault).trouble(), None);
    assert_eq!(console(fault).known_faults().count(), 1);
    let other = "[1.0] something else\n[1.0] WARNING: CPU: 1 PID: 0";
    assert_eq!(console(other).trouble(), Some("[1.0] WARNING: CPU: 1 PID: 0"));
    assert_eq!(console("vm| WARNING: the agent's own words").trouble(), None);
}

#[test]
fn last_words_are_the_trouble_or_else_the_last_lines() {
    assert_eq!(console("").last_words(), "the kernel said nothing");
    assert_eq!(console("a\nb\nBUG: c\nd").last_words(), "BUG: c");
    assert_eq!(console("a\n\nb").last_words(), "a | b");
}
