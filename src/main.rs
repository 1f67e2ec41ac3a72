// SPDX-License-Identifier: GPL-2.0-only

//! `scx_pandemonium_user`: schedules this machine by the policies of `pandemonium_policies`.

fn main() -> std::process::ExitCode {
    scx_pandemonium_user::main(&[])
}
