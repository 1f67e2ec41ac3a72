// SPDX-License-Identifier: GPL-2.0-only

//! Any bytes as a recording: read, and replayed under a policy, they are an error or a result.
//!
//! The fuzzer calls this, and so does a test of the lab, which makes mutants by itself.

use pandemonium_engine::Policy;
use pandemonium_engine::Setup;
use pandemonium_policies::{Fifo, Pandemonium};
use pandemonium_record::file::read::Recording;
use pandemonium_record::file::repeat::{Replayed, repeat};
use pandemonium_record::file::write::{MAGIC, VERSION};

/// The first byte says whether the others are a file, or what is behind a file's compression, which
/// nobody would get through by chance; and which policy gets them.
pub fn survive(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let file = match kind & 1 {
        0 => rest.to_vec(),
        _ => match zstd::encode_all(rest, 1) {
            Ok(packed) => [MAGIC, &VERSION.to_le_bytes()[..], &packed].concat(),
            Err(_) => return,
        },
    };
    match kind & 2 {
        0 => replay(&file, |_: &Setup| Fifo::new()),
        _ => replay(&file, Pandemonium::new),
    }
}

fn replay<Q: Policy>(file: &[u8], make: impl Fn(&Setup) -> Q) {
    if let Ok(mut recording) = Recording::new(file) {
        let _ = repeat(&mut recording, make, &[], &mut Replayed::default());
    }
}
