// SPDX-License-Identifier: GPL-2.0-only

//! A program in a terminal.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const SIZE: libc::winsize = libc::winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
const GLANCE: Duration = Duration::from_millis(5);

/// All that a program has written.
type Written = Arc<Mutex<Vec<u8>>>;

/// A program in a terminal of 120 columns and 40 rows. Dropping the value kills it.
pub struct Terminal {
    child: Child,
    started: Instant,
    written: Written,
}

impl Terminal {
    /// Starts the program.
    pub fn start(mut command: Command) -> Result<Terminal> {
        let (ours, its) = pair().context("opening a terminal")?;
        let command = command.env("TERM", "xterm-256color").stdin(its.try_clone()?);
        let command = command.stdout(its.try_clone()?).stderr(its);
        let started = Instant::now();
        let child = command.spawn().context("starting a program in a terminal")?;
        let written = Written::default();
        let all = Arc::clone(&written);
        thread::spawn(move || read(ours, &all));
        Ok(Terminal { child, started, written })
    }

    pub fn pid(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }

    /// Waits until the program has written this, and returns how long that took since its start.
    pub fn await_text(&self, text: &str, limit: Duration) -> Result<Duration> {
        loop {
            let took = self.started.elapsed();
            let said = self.said();
            if said.contains(text) {
                return Ok(took);
            }
            ensure!(took < limit, "after {took:?} the terminal does not show {text:?}: {said:?}");
            thread::sleep(GLANCE);
        }
    }

    fn said(&self) -> String {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of a new terminal.
fn pair() -> io::Result<(File, File)> {
    let (mut ours, mut its) = (-1, -1);
    let (name, settings) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: two places for descriptors, no name, the usual settings, and a size.
    match unsafe { libc::openpty(&mut ours, &mut its, name, settings, &SIZE) } {
        // SAFETY: two open descriptors that nothing else owns.
        0 => Ok(unsafe { (File::from_raw_fd(ours), File::from_raw_fd(its)) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads until the program ends.
fn read(mut ours: File, all: &Mutex<Vec<u8>>) {
    let mut part = [0; 4_096];
    while let Ok(length @ 1..) = ours.read(&mut part) {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(&part[..length]);
    }
}
