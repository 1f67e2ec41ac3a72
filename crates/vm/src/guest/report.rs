// SPDX-License-Identifier: GPL-2.0-only

//! Sends messages to the host, and lines to the console log.

use crate::protocol::{GUEST_PORT, Message};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, OnceLock};

/// Opened once by the agent, and shared with its reader threads. Forked workers do not report.
static PORT: OnceLock<Mutex<File>> = OnceLock::new();

/// Opens the port in raw mode, so that the terminal layer neither echoes nor rewrites line ends.
pub fn open() {
    // Without O_NONBLOCK the open may wait for a carrier for ever.
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(GUEST_PORT)
        .expect("the second serial port exists");
    // SAFETY: termios is plain data, and the descriptor is open for the whole block.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(port.as_raw_fd(), &mut settings) == 0 {
            libc::cfmakeraw(&mut settings);
            libc::cfsetspeed(&mut settings, libc::B115200);
            settings.c_cflag |= libc::CLOCAL;
            libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &settings);
        }
        libc::fcntl(port.as_raw_fd(), libc::F_SETFL, 0);
    }
    let _ = PORT.set(Mutex::new(port));
}

fn send(message: &Message) {
    let mut line = serde_json::to_string(message).expect("messages are strings and finite numbers");
    line.push('\n');
    let port = PORT.get().expect("report::open comes first");
    let mut port = port.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // A failure of the port itself cannot be reported. The host then sees a guest without a
    // verdict.
    let _ = port.write_all(line.as_bytes());
}

pub fn hello(kernel: &str, cpus: usize) {
    send(&Message::Hello { kernel: kernel.into(), cpus });
}

pub fn progress(text: impl Into<String>) {
    send(&Message::Progress { text: text.into() });
}

pub fn note(text: impl Into<String>) {
    send(&Message::Note { text: text.into() });
}

pub fn metric(name: impl Into<String>, value: f64) {
    send(&Message::Metric { name: name.into(), value });
}

pub fn results(piece: serde_json::Value) {
    send(&Message::Results { piece });
}

pub fn telemetry(line: impl Into<String>) {
    send(&Message::Telemetry { line: line.into() });
}

pub fn pass() {
    send(&Message::Pass);
}

pub fn fail(reason: &str) {
    send(&Message::Fail { reason: reason.into() });
}

/// Writes a line to the console log only.
pub fn log(text: &str) {
    if let Ok(mut console) = OpenOptions::new().write(true).open("/dev/console") {
        let _ = writeln!(console, "vm| {text}");
    }
}
