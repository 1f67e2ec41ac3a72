// SPDX-License-Identifier: GPL-2.0-only

//! A file that is written by a thread of its own: a disk that is slow for a moment does not delay
//! the thread that empties the ring, which is small because its memory is locked.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Most pieces that wait for the disk. A piece is what is given to `write` at once, 64 KiB of a
/// recording: all of them take 4 MiB, the entries of a second if it has 50,000 decisions.
const PIECES: usize = 64;

pub struct Disk {
    /// `None` as soon as the thread is to end.
    pieces: Option<SyncSender<Vec<u8>>>,
    /// `None` as soon as it has ended.
    thread: Option<JoinHandle<io::Result<File>>>,
}

impl Disk {
    /// Starts the thread.
    pub fn new(mut file: File) -> Self {
        let (pieces, next) = sync_channel::<Vec<u8>>(PIECES);
        let thread = thread::spawn(move || {
            for piece in next {
                file.write_all(&piece)?;
            }
            Ok(file)
        });
        Disk { pieces: Some(pieces), thread: Some(thread) }
    }

    /// Waits until all is written.
    pub fn finish(mut self) -> io::Result<File> {
        self.end()
    }

    fn end(&mut self) -> io::Result<File> {
        self.pieces = None;
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        ended.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl Write for Disk {
    /// Waits while too many pieces wait. After an error nothing more is written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.pieces.as_ref().is_some_and(|pieces| pieces.send(bytes.into()).is_ok());
        if !sent {
            self.end()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read, pipe};
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    fn disk_of_pipe() -> (PipeReader, Disk) {
        let (reader, writer) = pipe().unwrap();
        (reader, Disk::new(File::from(OwnedFd::from(writer))))
    }

    #[test]
    fn a_disk_that_does_not_go_on_holds_up_nothing_while_there_is_room() {
        let (mut reader, mut disk) = disk_of_pipe();
        let piece = vec![7; 64 << 10];
        let start = Instant::now();
        // The thread writes the first one, and a pipe holds 64 KiB.
        (0..PIECES).for_each(|_| disk.write_all(&piece).unwrap());
        assert!(start.elapsed() < Duration::from_secs(10));
        let reading = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all.len()
        });
        disk.write_all(b"the last").unwrap();
        drop(disk.finish().unwrap());
        assert_eq!(reading.join().unwrap(), PIECES * piece.len() + 8);
    }

    #[test]
    fn an_error_of_the_file_is_returned() {
        let (reader, mut disk) = disk_of_pipe();
        drop(reader);
        let error = (0..).find_map(|_| disk.write_all(b"a piece").err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let full = File::create("/dev/full").unwrap();
        let mut disk = Disk::new(full);
        disk.write_all(b"a piece").unwrap();
        assert_eq!(disk.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
