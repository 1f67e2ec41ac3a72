// SPDX-License-Identifier: GPL-2.0-only

//! Runs other programs, and turns their failures into readable errors.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Lines of a program's error output that an error quotes.
const QUOTED_LINES: usize = 6;

/// Runs a program to its end and returns what it printed. The program dies with this process: a
/// build must not go on in a cache that is being cleaned.
pub fn output(command: &mut Command) -> Result<String> {
    die_with_us(command, libc::SIGTERM);
    let Output { status, stdout, stderr } = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", describe(command)))?;
    if !status.success() {
        let message = last_lines(&String::from_utf8_lossy(&stderr), QUOTED_LINES);
        bail!("{} failed ({status}): {message}", describe(command));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The kernel sends this signal to the child when the thread that started it exits.
pub fn die_with_us(command: &mut Command, signal: libc::c_int) {
    // SAFETY: only a system call between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, signal);
            Ok(())
        });
    }
}

/// Lowers the program's priority below every ordinary task of this machine.
pub fn lower_priority(command: &mut Command) {
    // SAFETY: only a system call between fork and exec. The kernel refuses no lower priority.
    unsafe {
        command.pre_exec(|| {
            libc::setpriority(libc::PRIO_PROCESS, 0, 10);
            Ok(())
        });
    }
}

/// The command line as it would be typed.
pub fn describe(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last lines that are not empty, in one line.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" | ")
}

/// Looks a program up in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
