// SPDX-License-Identifier: GPL-2.0-only

//! The program `pandemonium_bench`.

fn main() -> std::process::ExitCode {
    pandemonium_bench::main()
}
