// SPDX-License-Identifier: GPL-2.0-only

//! The trial before an upgrade: the new program reads the options and loads its BPF programs, as a
//! process of its own, while the old one schedules. Only attaching to the kernel is left out, which
//! can do one scheduler at a time.

use super::candidate::Candidate;
use super::handover::{FORMAT, anonymous};
use crate::cli::Options;
use crate::{output, settings, worker};
use anyhow::{Context, Result, bail};
use pandemonium_host::failure::Failure;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// The option that asks for a trial; see [`Options`].
const OPTION: &str = "--upgrade-trial";
/// How long a trial may take. On a busy machine it takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(10);
/// The longest output that is read.
const OUTPUT_MAX: u64 = 1 << 20;

/// The last line of a program that can take over. Another format of the handover is another line.
fn ready() -> String {
    format!("ready to take over: format {FORMAT}")
}

/// The new program's side: loads everything, attaches nothing, and says that it is ready.
pub fn run(options: &Options) -> Result<(), Failure> {
    settings::check(options)?;
    worker::load_only(options)?;
    output::print(&ready());
    Ok(())
}

/// The old program's side: fails unless the candidate passes its trial.
pub fn of(candidate: &Candidate) -> Result<()> {
    let path = candidate.path().display();
    let output = anonymous()?;
    let mut command = candidate.command();
    command.arg(OPTION).stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("{path} cannot be executed"))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{path} has not loaded within {} s", PATIENCE.as_secs())
            }
            None => thread::sleep(GLANCE),
        }
    };
    let last = last_line(output)?;
    match status.success() && last == ready() {
        true => Ok(()),
        false if last.is_empty() => bail!("{path} cannot take over ({status})"),
        false => bail!("{path} cannot take over ({status}): {last}"),
    }
}

/// The last line of the output that says anything.
fn last_line(mut output: File) -> Result<String> {
    output.rewind()?;
    let mut bytes = Vec::new();
    output.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(last.trim_start_matches("error: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_program_that_does_not_say_that_it_is_ready_is_no_upgrade() {
        let refusal = |program: &str| {
            of(&Candidate::open(Path::new(program)).unwrap()).unwrap_err().to_string()
        };
        assert!(refusal("/bin/true").contains("cannot take over"), "a program of another kind");
        assert!(refusal("/bin/false").contains("exit status: 1"));
        assert!(refusal("/etc/passwd").contains("cannot be executed"), "no program");
    }
}
