// SPDX-License-Identifier: GPL-2.0-only

//! Why the kernel ejected the worker, from the worker to the supervisor, which tells it.

use pandemonium_host::ejection::{DUMP_MAX, Ejection, MESSAGE_MAX, REASON_MAX};
use std::sync::atomic::{AtomicU64, Ordering};

/// The last ejection. The worker writes it once, before it ends, and the supervisor reads it
/// afterwards.
#[repr(C)]
pub struct EjectionCell {
    /// The exit kind, an `enum scx_exit_kind`; 0 if there was no ejection.
    kind: AtomicU64,
    /// The longest gap between rounds (ns).
    gap_ns: AtomicU64,
    reason: Text<{ 1 + REASON_MAX / 8 }>,
    message: Text<{ 1 + MESSAGE_MAX / 8 }>,
    dump: Text<{ 1 + DUMP_MAX / 8 }>,
}

/// The length in bytes, and the bytes.
#[repr(C)]
struct Text<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Text<WORDS> {
    /// Stores as much of the text as fits.
    fn store(&self, text: &str) {
        let [length, words @ ..] = &self.0[..] else { return };
        length.store(text.len() as u64, Ordering::Relaxed);
        for (cell, bytes) in words.iter().zip(text.as_bytes().chunks(8)) {
            let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            cell.store(word, Ordering::Relaxed);
        }
    }

    fn load(&self) -> String {
        let [length, words @ ..] = &self.0[..] else { return String::new() };
        let length = (length.load(Ordering::Relaxed) as usize).min(8 * words.len());
        let words = words[..length.div_ceil(8)].iter().map(|word| word.load(Ordering::Relaxed));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl EjectionCell {
    /// Stores an ejection.
    pub fn store(&self, ejection: &Ejection) {
        self.reason.store(&ejection.reason);
        self.message.store(&ejection.message);
        self.dump.store(&ejection.dump);
        self.gap_ns.store(ejection.gap_ns, Ordering::Relaxed);
        self.kind.store(u64::from(ejection.kind), Ordering::Release);
    }

    /// Takes the ejection, if there was one.
    pub fn take(&self) -> Option<Ejection> {
        let kind = self.kind.swap(0, Ordering::Acquire) as u32;
        (kind != 0).then(|| Ejection {
            kind,
            reason: self.reason.load(),
            message: self.message.load(),
            dump: self.dump.load(),
            gap_ns: self.gap_ns.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;

    #[test]
    fn the_supervisor_takes_what_the_worker_stored_once() {
        let shared = Shared::create().unwrap();
        assert_eq!(shared.ejection.take(), None);
        let ejection = Ejection {
            kind: 1026,
            reason: "runnable task stall".into(),
            message: "hög[7] failed to run for 5.001s".into(),
            dump: "x".repeat(DUMP_MAX - 1),
            gap_ns: 7,
        };
        shared.ejection.store(&ejection);
        assert_eq!(shared.ejection.take(), Some(ejection.clone()));
        assert_eq!(shared.ejection.take(), None);
        let long = Ejection { dump: "ä".repeat(DUMP_MAX), ..ejection };
        shared.ejection.store(&long);
        assert_eq!(shared.ejection.take().unwrap().dump.len(), DUMP_MAX);
    }
}
