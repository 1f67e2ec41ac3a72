// SPDX-License-Identifier: GPL-2.0-only

//! The scripts by which shells complete command lines.

use clap::Command;
use clap_complete::Shell;

/// The script for one program and one shell.
pub fn script(mut program: Command, shell: Shell) -> Vec<u8> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut script);
    match shell {
        Shell::Fish => with_values_in_fish(&String::from_utf8_lossy(&script)).into_bytes(),
        _ => script,
    }
}

/// clap's script for fish parses the words before the cursor. An option that waits for its value
/// makes that fail, so no value was offered. Now the words before that option are parsed then.
fn with_values_in_fish(script: &str) -> String {
    const FAILS: &str = "    or return\n";
    let (before, after) = script.split_once(FAILS).unwrap_or((script, ""));
    let parse = before.lines().next_back().unwrap_or_default().trim();
    format!(
        "{before}    or begin\n        set -e cmd[-1]\n        {parse}\n    end\n{FAILS}{after}"
    )
}

#[cfg(test)]
mod tests {
    use crate::cli::completions;
    use clap_complete::Shell;

    /// `pandemonium_vm distribution` completes lines in all three shells.
    #[test]
    fn the_script_for_fish_parses_again_without_an_option_that_lacks_its_value() {
        let script = String::from_utf8(completions(Shell::Fish)).unwrap();
        let parses: Vec<&str> =
            script.lines().map(str::trim).filter(|line| line.starts_with("argparse ")).collect();
        assert_eq!(parses.len(), 2, "{parses:?}");
        assert_eq!(parses[0], parses[1]);
        assert_eq!(script.matches("    or return\n").count(), 1);
    }
}
