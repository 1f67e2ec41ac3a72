// SPDX-License-Identifier: GPL-2.0-only

//! The shells of a Debian complete our commands, with the files that the package has installed.

use super::machine::{run, tail};
use crate::guest::{Guest, report};
use anyhow::{Context, Result, ensure};
use std::fs;

/// What is typed behind the name of the program, and the word that the last one becomes.
const LINES: [(&str, &str); 6] = [
    ("--profile-g", "--profile-group"),
    ("expl", "explain"),
    ("--profile ga", "gaming"),
    ("--policy fif", "fifo"),
    ("procdb exp", "export"),
    ("top --sort wak", "wakeups"),
];
const PROGRAM: &str = "scx_pandemonium_user";
/// Of the shells. They write into it.
const HOME: &str = "/run/vm/home";

/// A shell, and how to have it complete lines.
struct Shell {
    /// The command. A script and the lines follow.
    command: &'static str,
    /// Prints the completions of each line, a line for each.
    script: &'static str,
    /// What the package has installed for it.
    file: &'static str,
}

const SHELLS: [Shell; 3] = [
    // bash-completion finds the file, and the function in it is called as the shell calls it.
    Shell {
        command: "bash",
        script: r#"
. /usr/share/bash-completion/bash_completion
for line; do
    read -ra COMP_WORDS <<<"$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    _comp_load -- "${COMP_WORDS[0]}"
    function=$(complete -p "${COMP_WORDS[0]}")
    function=${function##*-F }
    ${function%% *} "${COMP_WORDS[0]}" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
    echo "${COMPREPLY[@]}"
done"#,
        file: "/usr/share/bash-completion/completions/scx_pandemonium_user",
    },
    Shell {
        command: "fish",
        script: r"
for line in $argv
    echo (complete --do-complete $line | string split --fields 1 \t)
end",
        file: "/usr/share/fish/vendor_completions.d/scx_pandemonium_user.fish",
    },
    // The line is typed into an interactive shell, with a Tab behind it. Ctrl-O writes down what is
    // there then.
    Shell {
        command: "zsh -f",
        script: r#"
zmodload zsh/zpty
said=$(mktemp)
zpty typed zsh -f -i || exit
zpty -w typed "autoload -Uz compinit; compinit -u -D
says() { print -r -- \$BUFFER >>$said; BUFFER=; }
zle -N says; bindkey '^O' says; print RE''ADY"
zpty -r typed begun '*READY*'
for line; do
    zpty -w -n typed $line$'\t\x0f'
    count=$((count + 1))
    repeat 300; do
        [[ $(wc -l <$said) -lt $count ]] || break
        zpty -r -t typed printed
        sleep 0.1
    done
done
cat $said; rm $said"#,
        file: "/usr/share/zsh/vendor-completions/_scx_pandemonium_user",
    },
];

/// Every shell completes every line with its file, and none of them with an empty one.
pub fn complete(_: &Guest) -> Result<()> {
    fs::create_dir_all(HOME).context("a home for the shells")?;
    for shell in &SHELLS {
        let name = shell.command;
        let completed = shell.complete()?;
        for ((line, word), words) in LINES.iter().zip(&completed) {
            ensure!(words.iter().any(|it| it == word), "{name}: `{line}` becomes {words:?}");
        }
        let script = fs::read(shell.file).with_context(|| format!("reading {}", shell.file))?;
        fs::write(shell.file, "").context("emptying a file")?;
        let without = shell.complete();
        fs::write(shell.file, &script).context("filling a file")?;
        for ((line, word), words) in LINES.iter().zip(&without?) {
            ensure!(words.iter().all(|it| it != word), "{name}: `{line}` needs no file of ours");
        }
        report::note(format!("{name} completes {} lines", LINES.len()));
    }
    Ok(())
}

impl Shell {
    /// The words that each line may become, or the whole line that it has become.
    fn complete(&self) -> Result<Vec<Vec<String>>> {
        let script = format!("{HOME}/script");
        fs::write(&script, self.script).context("writing a script")?;
        let lines: String = LINES.iter().map(|(line, _)| format!(" '{PROGRAM} {line}'")).collect();
        // What a shell complains about is no completion.
        let ran = run(&format!(
            "cd {HOME} && HOME={HOME} TERM=dumb {} {script}{lines} 2>errors",
            self.command
        ))?;
        let errors = fs::read_to_string(format!("{HOME}/errors")).unwrap_or_default();
        let completed: Vec<Vec<String>> = ran
            .output
            .lines()
            .map(|line| {
                line.split_whitespace().map(|word| word.trim_end_matches('=').into()).collect()
            })
            .collect();
        ensure!(
            completed.len() == LINES.len(),
            "{} completes {} of {} lines: {} {}",
            self.command,
            completed.len(),
            LINES.len(),
            tail(&ran.output),
            tail(&errors)
        );
        Ok(completed)
    }
}
