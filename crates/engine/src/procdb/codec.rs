// SPDX-License-Identifier: GPL-2.0-only

//! Profiles as bytes, for a file or for memory shared with another process.
//!
//! ```text
//! version 4, this program's, little endian:
//!   magic "PANDEMDB" | version u32 | count u32 | count entries of 72 bytes | checksum u64
//!
//! entry: nine words of 64 bits
//!   0, 1  name, padded with zeros        5  votes: batch | interactive << 32
//!   2     run, ns                        6  votes: lat_critical | observations << 32
//!   3     deviation of run, ns           7  last seen, minutes | misses << 32
//!   4     wakes | switches << 32, mHz    8  user, 0xffff_ffff if unknown
//!
//! version 3, read only: the same without word 8
//!
//! versions 1 and 2, PANDEMONIUM's, read only:
//!   magic "PDDB" | version u32 | count u32 | count entries
//!   entry: name 16, tier 1, padding 7, run u64,
//!          version 2 only: deviation u64, wakes u64, switches u64, both in 100 ms
//!          observations u32, votes u32
//! ```
//!
//! Entries of versions 1 to 3 do not tell the user, so they are of an unknown one.
//!
//! PANDEMONIUM's versions have no checksum. The magic of this program's versions differs from
//! theirs in more than one bit, so a damaged file is not read as one of theirs.
//!
//! Any program may have written the bytes. So the decoder allocates nothing before it has checked
//! the count against the length, and it clamps numbers that are out of range.

use super::{Minute, Profile, Program, Rate, Votes};
use crate::task::{COMM_LEN, Comm, Tier, User};
use crate::time::Span;
use alloc::vec::Vec;
use core::fmt;

/// First bytes of versions 3 and 4.
pub const MAGIC: [u8; 8] = *b"PANDEMDB";
/// The version that is written.
pub const VERSION: u32 = 4;
/// Words of an entry.
pub const WORDS: usize = 9;
/// Words of an entry of version 3.
pub const WORDS_WITHOUT_USER: usize = 8;
/// Bytes of an entry.
pub const ENTRY_LEN: usize = WORDS * 8;
/// Bytes before the first entry.
pub const HEADER_LEN: usize = 16;
/// Bytes after the last entry.
pub const CHECKSUM_LEN: usize = 8;

/// First bytes of PANDEMONIUM's files.
const ORIGINAL_MAGIC: [u8; 4] = *b"PDDB";
/// Bytes before the first entry of PANDEMONIUM's files.
const ORIGINAL_HEADER_LEN: usize = 12;
/// Bytes of an entry of PANDEMONIUM's versions 1 and 2.
const ORIGINAL_ENTRY_LEN: [usize; 2] = [40, 64];
/// Most votes that an imported entry of PANDEMONIUM gets, all for the tier that it names.
///
/// PANDEMONIUM's votes never fade, and its file stores only the tier with the most votes, so a mix
/// of six to four is read as ten of ten. Three votes are the fewest that predict: with them an
/// imported entry predicts at once, and two observations that disagree end the prediction.
const ORIGINAL_VOTES_MAX: u32 = 3;

/// Why bytes are not a process database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They begin with neither magic.
    Foreign,
    /// They end before the header does.
    Truncated,
    /// This program does not know the version.
    Version(u32),
    /// The length does not fit the number of entries.
    Length {
        /// The number of entries that the header states.
        entries: u32,
        /// The number of bytes.
        bytes: usize,
    },
    /// The checksum does not match the content.
    Checksum,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Foreign => f.write_str("it is not a process database"),
            DecodeError::Truncated => f.write_str("it ends before its header does"),
            DecodeError::Version(version) => {
                write!(f, "it has version {version}, and this program reads 1 to {VERSION}")
            }
            DecodeError::Length { entries, bytes } => {
                write!(f, "its {bytes} bytes do not fit the {entries} entries it promises")
            }
            DecodeError::Checksum => f.write_str("it is damaged: its checksum does not match"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// An entry as words, for memory that is shared word by word.
pub fn pack(profile: &Profile) -> [u64; WORDS] {
    let [low, high] = profile.program.comm.to_words();
    let [batch, interactive, lat_critical] = profile.votes.as_raw();
    [
        low,
        high,
        profile.run.as_nanos(),
        profile.run_dev.as_nanos(),
        pair(profile.wake_freq.as_millihertz(), profile.csw_rate.as_millihertz()),
        pair(batch, interactive),
        pair(lat_critical, profile.observations),
        pair(profile.last_seen.as_unix(), u32::from(profile.misses)),
        u64::from(profile.program.user.as_raw()),
    ]
}

/// The profile of an entry. Any words are a profile, because numbers out of range are clamped.
pub fn unpack(words: &[u64; WORDS]) -> Profile {
    let (wakes, switches) = unpair(words[4]);
    let (batch, interactive) = unpair(words[5]);
    let (lat_critical, observations) = unpair(words[6]);
    let (minute, misses) = unpair(words[7]);
    Profile {
        program: Program { comm: Comm::from_words([words[0], words[1]]), user: user(words[8]) },
        votes: Votes::from_raw([batch, interactive, lat_critical]),
        run: Span::from_nanos(words[2]),
        run_dev: Span::from_nanos(words[3]),
        wake_freq: Rate::from_millihertz(wakes),
        csw_rate: Rate::from_millihertz(switches),
        observations,
        last_seen: Minute::from_unix(minute),
        misses: misses.min(u32::from(u8::MAX)) as u8,
    }
}

/// An entry of version 3 as one of this version.
pub fn without_user(words: [u64; WORDS_WITHOUT_USER]) -> [u64; WORDS] {
    let mut whole = [u64::from(User::UNKNOWN.as_raw()); WORDS];
    whole[..WORDS_WITHOUT_USER].copy_from_slice(&words);
    whole
}

/// The user of a word. A number that no user can have is that of none.
fn user(word: u64) -> User {
    u32::try_from(word).map_or(User::UNKNOWN, User::new)
}

/// Encodes a database.
pub fn encode(profiles: &[Profile]) -> Vec<u8> {
    let count = u32::try_from(profiles.len()).expect("a database holds at most 2^20 programs");
    let mut bytes = Vec::with_capacity(HEADER_LEN + profiles.len() * ENTRY_LEN + CHECKSUM_LEN);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    for profile in profiles {
        bytes.extend(pack(profile).into_iter().flat_map(u64::to_le_bytes));
    }
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Decodes a database of version 3 or 4, or of PANDEMONIUM.
///
/// PANDEMONIUM does not store when a name was seen, so its entries count as seen at `when`.
pub fn decode(bytes: &[u8], when: Minute) -> Result<Vec<Profile>, DecodeError> {
    if bytes.starts_with(&MAGIC) {
        decode_ours(bytes)
    } else if bytes.starts_with(&ORIGINAL_MAGIC) {
        decode_original(bytes, when)
    } else if MAGIC.starts_with(bytes) || ORIGINAL_MAGIC.starts_with(bytes) {
        Err(DecodeError::Truncated)
    } else {
        Err(DecodeError::Foreign)
    }
}

fn decode_ours(bytes: &[u8]) -> Result<Vec<Profile>, DecodeError> {
    let header = bytes.get(MAGIC.len()..HEADER_LEN).ok_or(DecodeError::Truncated)?;
    let (version, entries) = unpair(word(header));
    let words = match version {
        VERSION => WORDS,
        3 => WORDS_WITHOUT_USER,
        _ => return Err(DecodeError::Version(version)),
    };
    let wrong_length = DecodeError::Length { entries, bytes: bytes.len() };
    let body = &bytes[HEADER_LEN..];
    // 2^32 entries of 72 bytes cannot overflow 64 bits.
    if body.len() as u64 != u64::from(entries) * (words * 8) as u64 + CHECKSUM_LEN as u64 {
        return Err(wrong_length);
    }
    let (summed, sum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    if checksum(summed) != word(sum) {
        return Err(DecodeError::Checksum);
    }
    Ok(summed[HEADER_LEN..].chunks_exact(words * 8).map(entry).collect())
}

/// Decodes an entry of version 3 or 4.
fn entry(bytes: &[u8]) -> Profile {
    let mut words = without_user([0; WORDS_WITHOUT_USER]);
    for (word_of, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word_of = word(chunk);
    }
    unpack(&words)
}

fn decode_original(bytes: &[u8], when: Minute) -> Result<Vec<Profile>, DecodeError> {
    let header = bytes.get(ORIGINAL_MAGIC.len()..ORIGINAL_HEADER_LEN);
    let (version, entries) = unpair(word(header.ok_or(DecodeError::Truncated)?));
    let len = match version {
        1 | 2 => ORIGINAL_ENTRY_LEN[version as usize - 1],
        _ => return Err(DecodeError::Version(version)),
    };
    // PANDEMONIUM ignores bytes after the entries, so they are valid.
    let body = &bytes[ORIGINAL_HEADER_LEN..];
    if (body.len() as u64) < u64::from(entries) * len as u64 {
        return Err(DecodeError::Length { entries, bytes: bytes.len() });
    }
    let read = |bytes| original_entry(bytes, when);
    Ok(body.chunks_exact(len).take(entries as usize).map(read).collect())
}

/// Decodes an entry of PANDEMONIUM. One of 40 bytes is of version 1, which has no deviation and no
/// rates; they become zero.
fn original_entry(bytes: &[u8], when: Minute) -> Profile {
    let mut name = [0; COMM_LEN];
    name.copy_from_slice(&bytes[..COMM_LEN]);
    let tier = Tier::ALL[usize::from(bytes[16]).min(Tier::ALL.len() - 1)];
    let detailed = bytes.len() == ORIGINAL_ENTRY_LEN[1];
    let detail = |at: usize| if detailed { word(&bytes[at..at + 8]) } else { 0 };
    let (observations, votes) = unpair(word(&bytes[bytes.len() - 8..]));
    let mut counts = [0; 3];
    counts[tier.index()] = votes.min(ORIGINAL_VOTES_MAX);
    Profile {
        program: Program { comm: Comm::from_kernel(name), user: User::UNKNOWN },
        votes: Votes::fresh(counts),
        run: Span::from_nanos(word(&bytes[24..32])),
        run_dev: Span::from_nanos(detail(32)),
        wake_freq: Rate::from_per_100ms(detail(40)),
        csw_rate: Rate::from_per_100ms(detail(48)),
        observations,
        last_seen: when,
        misses: 0,
    }
}

/// FNV-1a of 64 bits. Each step is a bijection of the sum so far, so two inputs that differ in one
/// byte never have the same sum. It detects damage; it does not prevent forgery.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Packs two numbers of 32 bits into one word, the first in the lower half.
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Reads a slice of eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
