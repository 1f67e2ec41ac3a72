// SPDX-License-Identifier: GPL-2.0-only

//! Reads a recording. The file is untrusted input: whatever is in it, reading takes a bounded
//! amount of memory, and time in proportion to the size of the file.

use super::differences::Unpacker;
use super::write::{Header, MAGIC, OLDEST, VERSION};
use crate::{Damage, Entry, WORDS_MAX, decode, length};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{self, BufReader, Read};

/// The last format in which zstd compresses all that follows the version, and entries are words.
pub const COMPRESSED: u32 = 11;

/// Longest header, in bytes. A real one has a few lines.
const HEADER_MAX: u32 = 1 << 20;
/// A compressed file may decompress to so many bytes, whatever its size,
const PLAIN_MIN: u64 = 64 << 20;
/// and to so many more for each of its bytes. A real one has some 15; one that was made to keep a
/// reader busy has more than ten thousand.
const EXPANSION_MAX: u64 = 500;

/// A recording, read entry by entry.
pub struct Recording<R: Read> {
    /// The header.
    pub header: Header,
    content: Content<R>,
    /// Entries read so far.
    entries: u64,
    finished: bool,
}

/// What follows the version.
enum Content<R: Read> {
    Differences(BufReader<R>, Unpacker),
    Compressed(Compressed<R>),
}

/// The content up to format [`COMPRESSED`].
struct Compressed<R: Read> {
    input: zstd::Decoder<'static, BufReader<Counted<R>>>,
    /// Bytes that were decompressed so far.
    plain: u64,
}

/// A reader that counts what was read.
struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl Recording<File> {
    /// Opens a recording file.
    pub fn open(path: &str) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
        Recording::new(file).with_context(|| path.to_owned())
    }
}

impl<R: Read> Recording<R> {
    /// Reads the start of a recording, up to the end of its header.
    pub fn new(mut input: R) -> Result<Self> {
        let mut start = [0; 12];
        input.read_exact(&mut start).context("this is no recording: the file is too short")?;
        ensure!(start[..8] == *MAGIC, "this is no recording of pandemonium_lab");
        let version = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        ensure!(
            (OLDEST..=VERSION).contains(&version),
            "the recording has format {version}, and this program reads {OLDEST} to {VERSION}"
        );
        let mut content = match version {
            ..=COMPRESSED => Content::Compressed(Compressed {
                input: zstd::Decoder::new(Counted { input, bytes: 0 })?,
                plain: 0,
            }),
            _ => Content::Differences(BufReader::new(input), Unpacker::new()),
        };
        let header = content.header()?;
        Ok(Recording { header, content, entries: 0, finished: false })
    }

    /// Entries read so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The next entry; `None` after the last entry of a complete recording.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        if self.finished {
            return Ok(None);
        }
        let number = self.entries;
        let mut words = [0; WORDS_MAX];
        let length = match &mut self.content {
            Content::Differences(input, unpacker) => unpacker.unpack(input, &mut words),
            Content::Compressed(content) => {
                content.ensure_is_real()?;
                content.entry(&mut words)
            }
        };
        let damaged = || format!("the recording is cut off or damaged at entry {number}");
        let entry = decode(&words[..length.with_context(damaged)?]);
        let entry = entry.map_err(|Damage| io::Error::from(io::ErrorKind::InvalidData));
        let entry = entry.with_context(damaged)?;
        if let Entry::Finished(count) = entry {
            ensure!(count == number, "the recording has {number} entries and should have {count}");
            self.finished = true;
            return Ok(None);
        }
        self.entries += 1;
        Ok(Some(entry))
    }
}

impl<R: Read> Content<R> {
    fn header(&mut self) -> Result<Header> {
        let input: &mut dyn Read = match self {
            Content::Differences(input, _) => input,
            Content::Compressed(content) => &mut content.input,
        };
        let mut size = [0; 4];
        input.read_exact(&mut size).context("the recording is cut off in its header")?;
        let size = u32::from_le_bytes(size);
        ensure!(size <= HEADER_MAX, "the recording's header is damaged");
        let mut json = vec![0; size as usize];
        input.read_exact(&mut json).context("the recording is cut off in its header")?;
        serde_json::from_slice(&json).context("the recording's header is damaged")
    }
}

impl<R: Read> Compressed<R> {
    fn ensure_is_real(&self) -> Result<()> {
        let most = PLAIN_MIN + EXPANSION_MAX * self.input.get_ref().get_ref().bytes;
        ensure!(
            self.plain <= most,
            "the recording is no real one: it decompresses to more than {EXPANSION_MAX} times its \
             size"
        );
        Ok(())
    }

    /// Reads the words of the next entry; returns their number.
    fn entry(&mut self, words: &mut [u64; WORDS_MAX]) -> io::Result<usize> {
        words[0] = self.word()?;
        let length = length(words[0]).map_err(|Damage| io::ErrorKind::InvalidData)?;
        for word in &mut words[1..length] {
            *word = self.word()?;
        }
        Ok(length)
    }

    fn word(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes)?;
        self.plain += bytes.len() as u64;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;

    /// Decompressing is cheap, so a small file could otherwise keep a reader busy for hours.
    #[test]
    fn a_file_that_decompresses_to_far_more_than_its_size_is_refused() {
        let header = Header { source: "x".into(), policy: "fifo".into(), redacted: false };
        let json = serde_json::to_vec(&header).unwrap();
        let mut words = [0; WORDS_MAX];
        let length = encode(&Entry::Dropped(7), &mut words);
        let entry: Vec<u8> = words[..length].iter().flat_map(|word| word.to_le_bytes()).collect();
        let count = PLAIN_MIN as usize / entry.len() + 600_000;
        let size = (json.len() as u32).to_le_bytes();
        let content = [&size[..], &json, &entry.repeat(count)].concat();
        let packed = zstd::encode_all(&content[..], 1).unwrap();
        let bytes = [MAGIC, &COMPRESSED.to_le_bytes()[..], &packed].concat();
        let plain = (count * entry.len()) as u64;
        let ratio = plain / bytes.len() as u64;
        assert!(ratio > EXPANSION_MAX, "the file is no bomb: it expands by {ratio}");
        let mut recording = Recording::new(&bytes[..]).unwrap();
        let error = loop {
            match recording.next_entry() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it was read to its end"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("more than 500 times its size"), "{error}");
    }
}
