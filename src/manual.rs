// SPDX-License-Identifier: GPL-2.0-only

//! The manual page: one for the program and all of its commands, so that it names no page that does
//! not exist.

use clap::Command;
use clap_mangen::Man;
use std::io::{Result, Write};

/// Pages that are installed beside this one.
const SEE_ALSO: &str = ".SH SEE ALSO\npandemonium_bench(1), pandemonium_probe(1)\n";

/// The page of a program, for `man`.
pub fn page(program: Command) -> Vec<u8> {
    let mut page = Vec::new();
    write(program, &mut page).expect("writing to memory does not fail");
    page
}

fn write(program: Command, page: &mut Vec<u8>) -> Result<()> {
    let name = program.get_name().to_owned();
    let commands: Vec<Command> = program.get_subcommands().cloned().collect();
    let man = Man::new(program);
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    writeln!(page, ".SH COMMANDS")?;
    for command in commands {
        write_command(command, &name, page)?;
    }
    write!(page, "{SEE_ALSO}")
}

/// A command, or each of its own commands if it has some.
fn write_command(command: Command, parent: &str, page: &mut Vec<u8>) -> Result<()> {
    if command.is_hide_set() {
        return Ok(());
    }
    let name = format!("{parent} {}", command.get_name());
    let commands: Vec<Command> = command.get_subcommands().cloned().collect();
    let man = Man::new(command.bin_name(&name).disable_help_flag(true));
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    writeln!(page, ".SS \"{}\"", name.replace('-', "\\-"))?;
    page.write_all(without_titles(&text).as_bytes())?;
    commands.into_iter().try_for_each(|command| write_command(command, &name, page))
}

/// A page without the titles of its sections, which become paragraphs.
fn without_titles(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page);
    // Every rendering defines the apostrophe; the page has done so.
    let lines = text.lines().filter(|line| !line.starts_with(".ie ") && !line.starts_with(".el "));
    let plain = |line: &str| match line.starts_with(".SH") {
        true => ".PP\n".to_owned(),
        false => format!("{line}\n"),
    };
    lines.map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Options;
    use clap::CommandFactory;

    const NAME: &str = "scx_pandemonium_user";

    #[test]
    fn the_page_has_every_command_and_names_no_page_that_is_not_installed() {
        let page = String::from_utf8(page(Options::command())).unwrap().replace("\\-", "-");
        let installer = include_str!("../packaging/install");
        let pages = page.split("(1)").map(|before| before.rsplit([' ', '\n']).next().unwrap());
        let named: Vec<&str> = pages.filter(|name| name.contains("pandemonium")).collect();
        assert!(named.len() >= 2, "{page}");
        for name in named {
            let file = format!("share/man/man1/{name}.1.gz").replace(NAME, "$name");
            assert!(installer.contains(&file), "{name} is not installed");
        }
        for command in Options::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let title = format!(".SS \"{} {}\"\n", NAME, command.get_name());
            assert!(page.contains(&title), "{title}");
        }
        for part in ["procdb forget", "rules test", "--textfile", "--over-us"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains(" man\"\n"), "a hidden command is shown");
    }
}
