// SPDX-License-Identifier: GPL-2.0-only

//! Tasks that execute a program: this one, which then plays the steps that are its arguments.

use crate::tasks::clock::{now_ns, sleep_until};
use crate::tasks::process::take_name_of;
use crate::tasks::work::{self, THIS_PROGRAM};
use anyhow::{Context, Result, bail};
use std::ffi::CString;

/// The argument that makes this program play a task that was executed: its name and its steps.
pub const EXECUTED: &str = "executed";

/// Executes this program to play the steps in `words`, after the name. Returns if that fails.
pub fn become_program(words: &[String]) {
    let words = ["probe", EXECUTED].into_iter().chain(words.iter().map(String::as_str));
    let words: Vec<CString> = words.filter_map(|word| CString::new(word).ok()).collect();
    let pointers = words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]);
    let pointers: Vec<*const libc::c_char> = pointers.collect();
    // SAFETY: terminated strings, and a list of them that ends in null.
    unsafe { libc::execv(THIS_PROGRAM.as_ptr(), pointers.as_ptr()) };
}

/// The life of a task that was executed: a name, then work in rounds and sleeps in nanoseconds.
///
/// # Errors
///
/// If a word is no step.
pub fn executed(mut words: impl Iterator<Item = String>) -> Result<()> {
    take_name_of(&words.next().context("a name is missing")?);
    for word in words {
        let number =
            |text: &str| text.parse::<u64>().with_context(|| format!("{word:?} is no step"));
        match word.split_at_checked(1) {
            Some(("w", rounds)) => work::burn(number(rounds)?.min(u64::from(u32::MAX)) as u32),
            Some(("s", ns)) => sleep_until(now_ns() + number(ns)?),
            _ => bail!("{word:?} is no step"),
        }
    }
    Ok(())
}
