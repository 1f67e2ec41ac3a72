// SPDX-License-Identifier: GPL-2.0-only

//! What a policy says of a task, in sentences for people.

use crate::task::Pid;
use core::fmt;

/// A policy that explains. It offers itself by [`Policy::explaining`](crate::Policy::explaining).
pub trait Explaining {
    /// Writes what the task is to the policy and why, in one or two sentences, and nothing if the
    /// policy does not know the task. One look-up; it allocates nothing.
    fn explain(&self, pid: Pid, out: &mut dyn fmt::Write) -> fmt::Result;
}

/// Longest explanation, in bytes. Chosen: three sentences.
pub const TEXT_MAX: usize = 504;

/// A text of bounded length that needs no allocation: what does not fit is cut off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BoundedText {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

impl Default for BoundedText {
    fn default() -> Self {
        BoundedText { bytes: [0; TEXT_MAX], len: 0 }
    }
}

impl BoundedText {
    /// Words of [`to_words`](Self::to_words).
    pub const WORDS: usize = TEXT_MAX / 8 + 1;

    /// What was written.
    pub fn as_str(&self) -> &str {
        let whole = &self.bytes[..self.len];
        match core::str::from_utf8(whole) {
            Ok(text) => text,
            // Cut within a letter, or from memory that held something else.
            Err(error) => core::str::from_utf8(&whole[..error.valid_up_to()]).unwrap_or_default(),
        }
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The text as words, for memory that processes share.
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        words[0] = self.len as u64;
        for (word, bytes) in words[1..].iter_mut().zip(self.bytes.chunks(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        words
    }

    /// The text of such words, which may be any.
    pub fn from_words(words: &[u64; Self::WORDS]) -> BoundedText {
        let len = (words[0] as usize).min(TEXT_MAX);
        let mut text = BoundedText { len, ..BoundedText::default() };
        for (word, bytes) in words[1..].iter().zip(text.bytes.chunks_mut(8)) {
            let of_word = word.to_le_bytes();
            bytes.copy_from_slice(&of_word[..bytes.len()]);
        }
        text
    }
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kept = text.len().min(TEXT_MAX - self.len);
        self.bytes[self.len..self.len + kept].copy_from_slice(&text.as_bytes()[..kept]);
        self.len += kept;
        Ok(())
    }
}

impl fmt::Debug for BoundedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::fmt::Write as _;
    use std::string::String;

    #[test]
    fn a_text_comes_back_from_its_words_and_is_cut_at_a_letter() {
        let mut text = BoundedText::default();
        assert!(text.is_empty());
        write!(text, "cc1 is {:?}", 7).unwrap();
        assert_eq!(BoundedText::from_words(&text.to_words()).as_str(), "cc1 is 7");
        let mut long = BoundedText::default();
        write!(long, "x{}", "ä".repeat(TEXT_MAX)).unwrap();
        let expected: String =
            core::iter::once('x').chain(core::iter::repeat_n('ä', 251)).collect();
        assert_eq!(long.as_str(), expected);
        assert_eq!(BoundedText::from_words(&[u64::MAX; BoundedText::WORDS]).as_str(), "");
    }
}
