// SPDX-License-Identifier: GPL-2.0-only

//! The command line.

use super::choice::Performance;
use clap::Parser;
use std::path::PathBuf;

/// Gives the running scheduler the profile that the desktop asks for.
///
/// While GameMode has a game, `gaming`; else by the power profile: `powersave` for power-saver,
/// `auto` for balanced, `lowlatency` for performance. It needs no root: start the scheduler with
/// --profile-group and a group of this user.
#[derive(Clone, Debug, Parser)]
#[command(name = "pandemonium_follow", version, max_term_width = 100)]
pub struct Options {
    /// The scheduler's profile while the power profile is performance
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    pub performance: Performance,

    /// The socket of the scheduler's --profile-group
    #[arg(
        long,
        value_name = "PATH",
        hide = true,
        default_value = "/var/run/scx/root/scx_pandemonium_user.profile/tune"
    )]
    pub socket: PathBuf,
}
