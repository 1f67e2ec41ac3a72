// SPDX-License-Identifier: GPL-2.0-only

//! Which part the kernel refused. libbpf loads all programs of an object or none, and only its
//! message names the refused program.

use super::Part;
use libbpf_rs::PrintLevel;
use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<Part>> = Mutex::new(None);

/// Searches a message of libbpf for the name of a program. To be called with every message.
pub fn search(level: PrintLevel, text: &str) {
    if let (PrintLevel::Warn, Some(part)) = (level, part_named(text)) {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
    }
}

/// The part whose program was last named since the previous call.
pub fn take() -> Option<Part> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The part whose program a message names: `libbpf: prog 'fp_switch': failed to load: -EACCES`.
fn part_named(text: &str) -> Option<Part> {
    let (name, _) = text.split_once("prog '")?.1.split_once('\'')?;
    Part::of(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_program() {
        let real = "libbpf: prog 'fp_prepare': BPF program load failed: Permission denied\n";
        assert_eq!(part_named(real), Some(Part::Timers));
        assert_eq!(part_named("libbpf: prog 'rustland_enqueue': failed to load: -13"), None);
        assert_eq!(part_named("libbpf: failed to load object 'fast_path_bpf'"), None);
    }
}
