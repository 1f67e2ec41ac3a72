// SPDX-License-Identifier: GPL-2.0-only

//! A command that only reads keeps no privilege that it does not need.

use std::fs;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `CAP_DAC_OVERRIDE` (kernel ABI): access to files of other users.
const FILES: u64 = 1 << 1;
const NONE: u64 = 0;
const LIMIT: Duration = Duration::from_secs(20);

/// A pipe that takes no further byte.
fn full() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    // SAFETY: a plain system call, on an open pipe.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'.'; size as usize]).expect("room for all");
    (reader, writer)
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_dropped(status: &str, kept: u64) -> bool {
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
    };
    let lacks_others = |set| number(set).is_some_and(|set| set & !kept == 0);
    let is_filtered = number("Seccomp:") == Some(2) && number("NoNewPrivs:") == Some(1);
    lacks_others("CapEff:") && lacks_others("CapPrm:") && is_filtered
}

#[test]
fn a_command_that_reads_drops_what_it_does_not_need() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/rules");
    for (arguments, kept) in [
        (&["check"][..], NONE),
        (&["procdb", "--procdb", "/nowhere/procdb.bin", "show"], FILES),
        (&["rules", "test", "--rules", rules], NONE),
        // It waits for a scheduler.
        (&["--monitor", "1"], FILES),
    ] {
        // With what it prints it waits for a reader, and can be looked at.
        let (_reader, writer) = full();
        let mut command = Command::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
        command.args(arguments).stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
        let running = Running(command.spawn().expect("it starts"));
        let path = format!("/proc/{}/status", running.0.id());
        let status = || fs::read_to_string(&path).unwrap_or_default();
        let start = Instant::now();
        while !has_dropped(&status(), kept) && start.elapsed() < LIMIT {
            sleep(Duration::from_millis(10));
        }
        assert!(has_dropped(&status(), kept), "{arguments:?}: {}", status());
    }
}
