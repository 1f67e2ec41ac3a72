// SPDX-License-Identifier: GPL-2.0-only

//! The fuzz target: reads any bytes as a recording and replays them under a policy. The outcome is
//! an error or a result, never a panic.
//!
//! The fuzzer calls it, and so does a test of the lab with mutants of its own.

use pandemonium_engine::PolicyInfo;
use pandemonium_policies::{Fifo, Pandemonium};
use pandemonium_record::file::read::Recording;
use pandemonium_record::file::repeat::{Policies, Replayed, repeat};
use pandemonium_record::file::write::{MAGIC, VERSION};

/// Bit 0 of the first byte says whether the rest is a file, or the decompressed content of a file,
/// because random bytes never pass the decompression. Bit 1 chooses the policy.
pub fn survive(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let file = match kind & 1 {
        0 => rest.to_vec(),
        _ => match zstd::encode_all(rest, 1) {
            Ok(packed) => [MAGIC, &VERSION.to_le_bytes()[..], &packed].concat(),
            Err(_) => return,
        },
    };
    let info =
        if kind & 2 == 0 { PolicyInfo::of::<Fifo>() } else { PolicyInfo::of::<Pandemonium>() };
    let policies = Policies { recorded: Some(info.knobs), replayed: info };
    if let Ok(mut recording) = Recording::new(&file[..]) {
        let _ = repeat(&mut recording, &policies, &[], &mut Replayed::default());
    }
}
