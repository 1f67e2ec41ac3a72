// SPDX-License-Identifier: GPL-2.0-only

//! A reader of the output that has gone away changes nothing but the output.

use std::io::{PipeWriter, pipe};
use std::process::{Command, Stdio};

/// A pipe without a reader: a write to it fails.
fn closed() -> PipeWriter {
    pipe().expect("a pipe").1
}

fn exit_code(arguments: &[&str]) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
    // One command writes a database of a relative name.
    command.current_dir(env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).stdin(Stdio::null()).stdout(closed()).stderr(closed());
    command.status().expect("it starts").code()
}

#[test]
fn without_a_reader_of_its_output_every_command_ends_as_with_one() {
    let missing = "/nowhere/procdb.bin";
    let long = "x".repeat(200);
    for (arguments, code) in [
        (&["--no-such-option"][..], 2),
        (&["--knobs", "/nowhere/knobs"], 2),
        (&["procdb", "--procdb", missing, "show"], 0),
        (&["procdb", "--procdb", &long, "forget", "--all"], 0),
        (&["--version"], 0),
        (&["man"], 0),
        (&["completions", "bash"], 0),
    ] {
        assert_eq!(exit_code(arguments), Some(code), "{arguments:?}");
    }
}
