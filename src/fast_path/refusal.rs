// SPDX-License-Identifier: GPL-2.0-only

//! Which part a kernel refused. libbpf loads all programs of an object or none, and only its
//! complaint says which one it was.

use super::Part;
use libbpf_rs::PrintLevel;
use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<Part>> = Mutex::new(None);

/// To be told everything that libbpf says.
pub fn overhear(level: PrintLevel, text: &str) {
    if let (PrintLevel::Warn, Some(part)) = (level, blamed(text)) {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
    }
}

/// The part whose program was complained of last, since this was last asked.
pub fn take() -> Option<Part> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The part that a complaint is about: `libbpf: prog 'fp_switch': failed to load: -EACCES`.
fn blamed(text: &str) -> Option<Part> {
    let (name, _) = text.split_once("prog '")?.1.split_once('\'')?;
    Part::of(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_names_a_program() {
        let real = "libbpf: prog 'fp_watch_switch': BPF program load failed: Permission denied\n";
        assert_eq!(blamed(real), Some(Part::Timers));
        assert_eq!(blamed("libbpf: prog 'rustland_enqueue': failed to load: -13"), None);
        assert_eq!(blamed("libbpf: failed to load object 'fast_path_bpf'"), None);
    }
}
