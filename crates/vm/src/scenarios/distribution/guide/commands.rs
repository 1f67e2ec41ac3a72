// SPDX-License-Identifier: GPL-2.0-only

//! The commands of the pages, and how each of them is run.

/// The pages in the order in which a reader takes them: the last one ends with the removal.
pub const PAGES: [(&str, &str); 3] = [
    ("README.md", include_str!("../../../../../../README.md")),
    ("docs/gaming.md", include_str!("../../../../../../docs/gaming.md")),
    ("docs/operating.md", include_str!("../../../../../../docs/operating.md")),
];
/// The folder of programs that are not installed.
const BUILT: &str = "target/release/";

/// When a command is run, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// To its end. It may end with this exit code too, because what it asks for need not be there.
    Any(i32),
    /// For some seconds, until Ctrl-C.
    Watches,
    /// While the unit runs, to its end.
    Beside,
    /// While the unit runs, for some seconds, until Ctrl-C.
    WatchesBeside,
    /// While the unit runs, to its end, and then the unit upgrades itself.
    Upgrades,
    /// While no scheduler runs, to its end.
    Alone,
    /// While no scheduler runs, for some seconds, until Ctrl-C.
    Measures,
    /// While no scheduler runs: it becomes one, until Ctrl-C.
    Schedules,
    /// By the user of the example in a session, to its end, and then the profile follows.
    Follows,
    /// It is not run, for this reason.
    Not(&'static str),
}

use How::{
    Alone, Any, Beside, Follows, Measures, Not, Schedules, Upgrades, Watches, WatchesBeside,
};

const BUILDS: &str = "it builds, and no compiler is here: every other command uses what it built";

/// The first line that begins a command says how it is run.
const COMMANDS: [(&str, How); 53] = [
    ("make run", Not("it boots a machine, and this is one")),
    ("make test", Not("it is the test that this is a part of")),
    ("make build", Not(BUILDS)),
    ("make deb", Not(BUILDS)),
    ("make static", Not(BUILDS)),
    ("sudo make install", Any(0)),
    ("sudo make uninstall", Alone),
    ("sudo apt install ", Any(0)),
    ("sudo groupadd ", Any(0)),
    ("sudo usermod ", Any(0)),
    ("sudo mkdir ", Any(0)),
    ("printf ", Any(0)),
    ("echo ", Any(0)),
    ("systemctl --user enable ", Follows),
    ("sudo systemctl daemon-reload", Any(0)),
    ("sudo systemctl restart ", Beside),
    ("sudo systemctl enable ", Beside),
    ("sudo systemctl kill ", Upgrades),
    ("sudo systemctl disable ", Beside),
    ("sudo rm -r /var/lib/scx_pandemonium_user", Alone),
    ("systemctl status ", Beside),
    ("journalctl ", Beside),
    ("sudo scx_pandemonium_user --stats ", Schedules),
    ("sudo scx_pandemonium_user --profile ", Schedules),
    ("sudo scx_pandemonium_user --policy ", Schedules),
    ("sudo scx_pandemonium_user --boost ", Schedules),
    ("sudo scx_pandemonium_user --rules ", Schedules),
    ("sudo scx_pandemonium_user --knobs ", Schedules),
    ("sudo scx_pandemonium_user --record ", Schedules),
    ("sudo scx_pandemonium_user --monitor ", WatchesBeside),
    ("sudo scx_pandemonium_user top --once", Beside),
    ("sudo scx_pandemonium_user top", WatchesBeside),
    ("sudo scx_pandemonium_user bench run --with ", Not("it needs a scheduler of another project")),
    ("sudo scx_pandemonium_user bench run", Measures),
    ("sudo scx_pandemonium_user check", Beside),
    ("sudo scx_pandemonium_user tune", Beside),
    ("sudo scx_pandemonium_user explain ", Beside),
    ("sudo scx_pandemonium_user metrics --textfile ", WatchesBeside),
    ("sudo scx_pandemonium_user metrics", Beside),
    // The program of the example need not have run.
    ("sudo scx_pandemonium_user procdb forget ", Any(1)),
    ("scx_pandemonium_user procdb ", Any(0)),
    ("scx_pandemonium_user rules test ", Any(0)),
    ("scx_pandemonium_user --help", Any(0)),
    ("scx_pandemonium_user --version", Any(0)),
    ("scx_pandemonium_user completions ", Any(0)),
    ("scx_pandemonium_user man ", Any(0)),
    ("pandemonium_lab run ", Any(0)),
    ("pandemonium_lab mixes ", Watches),
    ("pandemonium_lab search", Watches),
    ("pandemonium_lab new ", Any(0)),
    // Another policy decides otherwise, which is what the exit code says.
    ("pandemonium_lab replay bad.rec --policy ", Any(1)),
    ("pandemonium_lab replay ", Any(0)),
    // The program of the example did not run.
    ("pandemonium_lab explain ", Any(2)),
];

/// A command of a page.
#[derive(Clone, Debug)]
pub struct Listed {
    pub page: &'static str,
    /// Without its comment, and without the folder of programs that are not installed.
    pub line: String,
    /// `None` if the table does not have it.
    pub how: Option<How>,
}

/// The commands in blocks of shell, page by page. One that several pages have is listed once.
pub fn listed() -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    for (page, text) in PAGES {
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        let lines = blocks.flat_map(str::lines).filter_map(|line| line.split(" #").next());
        for line in lines.map(|line| line.trim().replace(BUILT, "")) {
            if !line.is_empty() && all.iter().all(|known| known.line != line) {
                let how = rule(&line).map(|number| COMMANDS[number].1);
                all.push(Listed { page, line, how });
            }
        }
    }
    all
}

/// The number of the table's line for a command.
fn rule(command: &str) -> Option<usize> {
    COMMANDS.iter().position(|(begin, _)| command.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_pages_has_a_rule_and_every_rule_a_command() {
        let listed = listed();
        let unknown: Vec<&Listed> = listed.iter().filter(|command| command.how.is_none()).collect();
        assert!(unknown.is_empty(), "say in COMMANDS how to run {unknown:?}");
        let used: Vec<usize> = listed.iter().filter_map(|command| rule(&command.line)).collect();
        for (number, (begin, _)) in COMMANDS.iter().enumerate() {
            assert!(used.contains(&number), "no command needs the rule for {begin:?}");
        }
        for (page, _) in PAGES {
            assert!(listed.iter().any(|command| command.page == page), "{page} has none");
        }
        let not = |command: &&Listed| matches!(command.how, Some(Not(_)));
        assert!(listed.iter().filter(not).count() * 4 < listed.len(), "most are run");
    }
}
