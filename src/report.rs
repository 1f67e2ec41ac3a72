// SPDX-License-Identifier: GPL-2.0-only

//! The report of an ejection, to attach to a bug: what the kernel said, the machine, the options,
//! the counters and the last seconds. It names no program and no file.
//!
//! It is a new file that only this user can read, in a directory that only this user and root can
//! change. There are at most [`REPORTS_MAX`], and none is ever overwritten.

use super::trusted;
use anyhow::{Context, Result, anyhow, bail};
use pandemonium_host::durable;
use pandemonium_host::ejection::Ejection;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Reports that are kept. A scheduler that is started again and again fills no disk.
const REPORTS_MAX: u32 = 9;
/// Longest report, in bytes.
const SIZE_MAX: usize = 192 * 1024;
/// Stands for a value on the command line that may name a program or a file.
const HIDDEN: &str = "(hidden)";

/// What a report holds besides the kernel's text.
pub struct Facts {
    /// The name and version of this program.
    pub version: String,
    /// The words of the command line, without the program.
    pub words: Vec<String>,
    /// The counters and the last seconds, in lines without names.
    pub counters: String,
}

/// Writes a report into the directory, and returns its path.
pub fn write(directory: &Path, ejection: &Ejection, facts: &Facts) -> Result<PathBuf> {
    put(directory, &compose(ejection, facts, &kernel()))
}

/// The text of a report.
fn compose(ejection: &Ejection, facts: &Facts, kernel: &str) -> String {
    let Facts { version, words, counters } = facts;
    let options = hide(words).join(" ");
    let mut text = format!(
        "The kernel unloaded the scheduler. This report names no program and no file.\n\n\
         version: {version}\nkernel: {kernel}\noptions: {options}\n\n{}\n\n{counters}\n",
        ejection.redacted()
    );
    if text.len() > SIZE_MAX {
        let end = (0..=SIZE_MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text += "\n(cut off here)\n";
    }
    text
}

/// The words, each hidden that is neither an option nor a number: a value may name a program or a
/// file. Hexadecimal digits count as a number only after `0x`: `cc` and `cafe` are names.
fn hide(words: &[String]) -> Vec<String> {
    let is_number = |text: &str| match text.strip_prefix("0x") {
        Some(mask) => mask.bytes().all(|byte| byte.is_ascii_hexdigit() || b",_".contains(&byte)),
        None => {
            text.starts_with(|c: char| c.is_ascii_digit())
                && text.bytes().all(|byte| byte.is_ascii_digit() || b".,:-".contains(&byte))
        }
    };
    let is_option = |text: &str| {
        let name = text.strip_prefix('-').unwrap_or_default();
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    let shown = |word: &String| match word.split_once('=') {
        _ if is_option(word) || is_number(word) => word.clone(),
        Some((name, value)) if is_option(name) && is_number(value) => word.clone(),
        Some((name, _)) if is_option(name) => format!("{name}={HIDDEN}"),
        _ => HIDDEN.into(),
    };
    words.iter().map(shown).collect()
}

/// The kernel's release.
fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Writes the text to the first name that is free.
fn put(path: &Path, text: &str) -> Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    let directory = trusted::directory(path).map_err(|refused| anyhow!("{refused}"))?;
    for number in 1..=REPORTS_MAX {
        let name = format!("ejected-{number}.txt");
        match create(&durable::inside(&directory).join(&name)) {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).and_then(|()| durable::flush(&file))?;
                return Ok(path.join(name));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).context("a file cannot be made"),
        }
    }
    bail!("there are {REPORTS_MAX} reports already: remove those that you do not need")
}

/// Creates a file that only this user can read. Whatever exists by this name, a link included, is
/// left alone.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(scratch: &Scratch) -> PathBuf {
        scratch.path().with_file_name("reports")
    }

    #[test]
    fn a_report_is_new_and_private_and_there_are_few() {
        let scratch = Scratch::new();
        let folder = folder(&scratch);
        let first = put(&folder, "one").unwrap();
        assert_eq!(first, folder.join("ejected-1.txt"));
        let mode = std::fs::metadata(&first).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        symlink("elsewhere", folder.join("ejected-2.txt")).unwrap();
        assert_eq!(put(&folder, "two").unwrap(), folder.join("ejected-3.txt"));
        assert!(!folder.join("elsewhere").exists(), "the link was followed");
        (4..=9).for_each(|_| drop(put(&folder, "more").unwrap()));
        let full = put(&folder, "none").unwrap_err().to_string();
        assert!(full.starts_with("there are 9 reports already"), "{full}");
        assert_eq!(std::fs::read(&first).unwrap(), b"one");
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let scratch = Scratch::new();
        let folder = folder(&scratch);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = put(&folder, "x").unwrap_err().to_string();
        assert!(refused.contains("can be written by every user"), "{refused}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_report_is_bounded_and_hides_what_the_command_line_names() {
        let words = "--boost game --boost cc --boost=cafe --boost 7d --procdb=/x/y -s 2000 \
                     --primary-domain=0-3 --urgent-cpus 0xff,00000000 -v";
        let facts = Facts {
            version: "1".into(),
            words: words.split_whitespace().map(str::to_owned).collect(),
            counters: "ä".repeat(SIZE_MAX),
        };
        let text = compose(&Ejection::default(), &facts, "7.3.4");
        let hidden = "--boost (hidden) --boost (hidden) --boost=(hidden) --boost (hidden) \
                      --procdb=(hidden) -s 2000 --primary-domain=0-3 --urgent-cpus 0xff,00000000 \
                      -v\n";
        assert!(text.contains(&format!("kernel: 7.3.4\noptions: {hidden}")), "{}", &text[..400]);
        assert!(text.len() < SIZE_MAX + 64 && text.ends_with("(cut off here)\n"));
    }
}
