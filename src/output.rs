// SPDX-License-Identifier: GPL-2.0-only

//! What is printed. Once [`detach`]ed, a thread of its own writes, so that neither a full pipe nor
//! a stopped terminal holds up the supervisor: a line for which there is no room is dropped and
//! counted. If the reader has gone away, the scheduler goes on.
//!
//! The worker has no such thread. A text of it waits for its reader for a second at most, and what
//! the scheduling thread says is [`hold`]ed until the scheduler is unloaded.

use pandemonium_host::print::printable;
use std::cell::RefCell;
use std::io::Write;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Texts that may wait to be written.
const WAITING_MAX: usize = 256;
/// How long the end of the program waits until everything is written, and a worker for a reader.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A pipe that may be written to has room for a page (pipe(7)): so much does not wait.
const PIECE: usize = 4096;

static PRINTER: OnceLock<SyncSender<Order>> = OnceLock::new();
/// Texts that were not printed.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Whether a text is dropped if its reader does not take it in time.
static DROPS_UNREAD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What this thread has said since [`hold`].
    static HELD: RefCell<Option<Vec<(Stream, String)>>> = const { RefCell::new(None) };
}

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

impl Stream {
    fn descriptor(self) -> RawFd {
        match self {
            Stream::Out => libc::STDOUT_FILENO,
            Stream::Err => libc::STDERR_FILENO,
        }
    }
}

/// From now on a thread writes, and [`print`] never waits.
pub fn detach() {
    let (sender, orders) = sync_channel(WAITING_MAX);
    let printer = thread::Builder::new().name("printer".into());
    if printer.spawn(move || write_all(&orders, &DROPPED, write)).is_ok() {
        // A second printer would end at once, with its channel.
        let _ = PRINTER.set(sender);
    }
}

/// From now on a text that no reader takes within a second is dropped, in a process without a
/// printer.
pub fn drop_unread() {
    DROPS_UNREAD.store(true, Ordering::Relaxed);
}

/// From now on what the calling thread says is kept, because no task may wait for a reader.
pub fn hold() {
    HELD.set(Some(Vec::new()));
}

/// Prints what has been kept. From now on the calling thread prints at once.
pub fn release() {
    for (stream, text) in HELD.take().into_iter().flatten() {
        send(stream, text);
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

/// The texts that the printer had no room for.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
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
    let Some(text) = keep(stream, text) else { return };
    match PRINTER.get() {
        None => write(stream, &text),
        Some(printer) => order(printer, &DROPPED, stream, text),
    }
}

/// Orders the text from the printer, or counts it as dropped.
fn order(printer: &SyncSender<Order>, dropped: &AtomicU64, stream: Stream, text: String) {
    if printer.try_send(Order::Write(stream, text)).is_err() {
        dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps the text if the calling thread holds what it says. Otherwise returns it.
fn keep(stream: Stream, text: String) -> Option<String> {
    HELD.with_borrow_mut(|held| match held {
        Some(held) => {
            held.push((stream, text));
            None
        }
        None => Some(text),
    })
}

fn write_all(orders: &Receiver<Order>, dropped: &AtomicU64, mut write: impl FnMut(Stream, &str)) {
    let mut told = 0;
    for order in orders {
        match order {
            Order::Write(stream, text) => {
                write(stream, &text);
                let lines = dropped.load(Ordering::Relaxed);
                if lines > told {
                    let since = lines - told;
                    write(stream, &format!("({since} lines could not be printed)\n"));
                }
                told = lines;
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
    if !DROPS_UNREAD.load(Ordering::Relaxed) {
        let _ = write_bytes(stream, text.as_bytes());
        return;
    }
    for piece in text.as_bytes().chunks(PIECE) {
        if !has_room(stream.descriptor(), LAST_WORDS) || write_bytes(stream, piece).is_err() {
            return;
        }
    }
}

fn write_bytes(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Out => std::io::stdout().write_all(bytes),
        Stream::Err => std::io::stderr().write_all(bytes),
    }
}

/// Whether a write would not wait, now or within the limit. One that must fail does not wait.
fn has_room(descriptor: RawFd, limit: Duration) -> bool {
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos() as libc::c_long,
    };
    // SAFETY: one descriptor, a limit, and no set of signals.
    unsafe { libc::ppoll(&mut wanted, 1, &limit, std::ptr::null()) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    #[test]
    fn a_full_pipe_is_waited_for_no_longer_than_the_limit() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let limit = Duration::from_millis(20);
        assert!(has_room(writer.as_raw_fd(), limit));
        // SAFETY: a plain system call, on an open pipe.
        let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
        writer.write_all(&vec![b'x'; size as usize]).expect("room for all");
        let start = Instant::now();
        assert!(!has_room(writer.as_raw_fd(), limit));
        assert!(start.elapsed() >= limit);
        drop(reader);
        assert!(has_room(writer.as_raw_fd(), limit), "a write fails at once");
    }

    #[test]
    fn texts_without_room_are_counted_and_told_once() {
        let (printer, orders) = sync_channel(2);
        let dropped = AtomicU64::new(0);
        for number in 1..=5 {
            order(&printer, &dropped, Stream::Out, format!("text {number}\n"));
        }
        drop(printer);
        let mut printed = String::new();
        write_all(&orders, &dropped, |_, text| printed.push_str(text));
        assert_eq!(printed, "text 1\n(3 lines could not be printed)\ntext 2\n");
        assert_eq!(dropped.into_inner(), 3);
    }

    #[test]
    fn what_a_thread_holds_is_kept_in_order_until_it_is_released() {
        let kept = |text: &str| keep(Stream::Err, text.into()).is_none();
        assert!(!kept("before"));
        hold();
        assert!(kept("first") && kept("second"));
        let held = HELD.take().into_iter().flatten().map(|(_, text)| text);
        assert_eq!(held.collect::<Vec<_>>(), ["first", "second"]);
        assert!(!kept("after"));
    }
}
