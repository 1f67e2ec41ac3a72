// SPDX-License-Identifier: GPL-2.0-only

//! Numbers as a person writes them.

pub(super) fn read_digits(word: &str) -> Option<u64> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

/// Nanoseconds, of microseconds with up to three decimals.
pub(super) fn read_micros(word: &str) -> Option<u64> {
    let (whole, part) = match word.split_once('.') {
        Some((whole, part)) if (1..=3).contains(&part.len()) => (whole, part),
        Some(_) => return None,
        None => (word, "0"),
    };
    let padding = 10u64.pow(3 - part.len() as u32);
    read_digits(whole)?.checked_mul(1_000)?.checked_add(read_digits(part)? * padding)
}
