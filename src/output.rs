// SPDX-License-Identifier: GPL-2.0-only

//! What is printed. Once [`detach`]ed, a thread of its own writes, so that neither a full pipe nor
//! a stopped terminal holds up the supervisor: a line for which there is no room is dropped and
//! counted. If the reader has gone away, the scheduler goes on.

use pandemonium_host::print::printable;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Texts that may wait to be written.
const WAITING_MAX: usize = 256;
/// How long the end of the program waits until everything is written.
const LAST_WORDS: Duration = Duration::from_secs(1);

static PRINTER: OnceLock<SyncSender<Order>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Order {
    Write(Stream, String),
    /// Tells when everything before it is written.
    Tell(SyncSender<()>),
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

/// From now on a thread writes, and [`print`] never waits.
pub fn detach() {
    let (sender, orders) = sync_channel(WAITING_MAX);
    let printer = thread::Builder::new().name("printer".into());
    if printer.spawn(move || write_all(&orders)).is_ok() {
        // A second printer would end at once, with its channel.
        let _ = PRINTER.set(sender);
    }
}

/// Prints a line.
pub fn print(text: &str) {
    send(Stream::Out, format!("{text}\n"));
}

/// Prints a warning, to the standard error.
pub fn warn(text: &str) {
    send(Stream::Err, format!("warning: {text}\n"));
}

/// Prints an error, to the standard error.
pub fn error(text: &str) {
    send(Stream::Err, format!("error: {text}\n"));
}

/// Prints text that ends with its own newline, to the standard error.
pub fn explain(text: String) {
    send(Stream::Err, text);
}

/// Waits until everything is written, for a second at most.
pub fn finish() {
    let Some(printer) = PRINTER.get() else { return };
    let (sender, written) = sync_channel(1);
    if printer.try_send(Order::Tell(sender)).is_ok() {
        let _ = written.recv_timeout(LAST_WORDS);
    }
}

fn send(stream: Stream, text: String) {
    match PRINTER.get() {
        None => write(stream, &text),
        Some(printer) => {
            if printer.try_send(Order::Write(stream, text)).is_err() {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn write_all(orders: &Receiver<Order>) {
    for order in orders {
        match order {
            Order::Write(stream, text) => {
                write(stream, &text);
                match DROPPED.swap(0, Ordering::Relaxed) {
                    0 => {}
                    lines => write(stream, &format!("({lines} lines could not be printed)\n")),
                }
            }
            Order::Tell(sender) => {
                let _ = sender.send(());
            }
        }
    }
}

/// Whatever is printed is text only: it may hold names of tasks and messages of the kernel.
fn write(stream: Stream, text: &str) {
    let text = printable(text);
    let _ = match stream {
        Stream::Out => std::io::stdout().write_all(text.as_bytes()),
        Stream::Err => std::io::stderr().write_all(text.as_bytes()),
    };
}
