// SPDX-License-Identifier: GPL-2.0-only

//! `tune`: the knobs of a running instance, asked for and changed over the statistics socket.
//!
//! A request has the target `tune` and the optional arguments `set`, lines `KEY=VALUE`, and
//! `release`, keys with spaces between them. The answer holds all knobs, or the sentence that says
//! why nothing was changed. The socket is its owner's alone, so whoever can ask may also change.

use super::adaptive::{Adaptive, Status};
use super::cli::TuneArguments;
use super::telemetry;
use anyhow::{Result, anyhow};
use pandemonium_engine::knobs::{self, Amended, KeySet};
use pandemonium_host::failure::Failure;
use scx_stats::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::ErrorKind;

/// The name of the request's target.
pub const TARGET: &str = "tune";
/// How long to wait for an answer, in milliseconds: on a machine whose scheduler hangs there is
/// none.
pub const PATIENCE_MS: u64 = 5_000;

/// One knob.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Knob {
    key: String,
    value: String,
    /// What it takes.
    range: String,
    /// What it does.
    about: String,
    /// Whether a person has set it, so that the adaptive loop leaves it alone.
    set: bool,
    /// The older name by which it was just set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
}

/// The answer.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Knobs(Vec<Knob>),
    Refused(String),
}

/// The server's side.
pub fn answer(adaptive: &Adaptive, args: &BTreeMap<String, String>) -> Result<Value> {
    let answer = match obey(adaptive, args) {
        Ok(amended) => Answer::Knobs(describe(&adaptive.status(), &amended)),
        Err(sentence) => Answer::Refused(sentence),
    };
    Ok(serde_json::to_value(answer)?)
}

fn obey(adaptive: &Adaptive, args: &BTreeMap<String, String>) -> Result<Amended, String> {
    let known = ["target", "set", "release"];
    if let Some(unknown) = args.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("{TARGET} knows no argument {unknown:?}"));
    }
    let text = |name| args.get(name).map(String::as_str).unwrap_or_default();
    let table = adaptive.status().values.table();
    let mut release = KeySet::none(table);
    for name in text("release").split_whitespace() {
        let knob = table.named(name).ok_or_else(|| format!("there is no knob {name:?}"))?;
        release = release.with(knob.name);
    }
    adaptive.tune(text("set"), release)
}

fn describe(status: &Status, amended: &Amended) -> Vec<Knob> {
    let knob = |(knob, word): (&'static knobs::Knob, u64)| {
        let renamed = amended.renamed.iter().find(|(_, new)| *new == knob.name);
        Knob {
            key: knob.name.into(),
            value: knob.show(word).to_string(),
            range: knob.range().to_string(),
            about: knob.about().into(),
            set: status.pinned.holds(knob.name),
            was: renamed.map(|(old, _)| (*old).into()),
        }
    };
    status.values.iter().map(knob).collect()
}

/// The client's side: asks, and prints.
pub fn run(arguments: &TuneArguments) -> Result<(), Failure> {
    if let Some(both) = arguments.release.iter().find(|key| {
        arguments.assignments.iter().any(|it| it.split('=').next() == Some(key.as_str()))
    }) {
        return Err(Failure::Usage(format!("{both} cannot be set and released at once")));
    }
    let mut client = StatsClient::new()
        .connect(Some(PATIENCE_MS))
        .map_err(|error| unconnected(error, "see or change its knobs", "tune"))?;
    let request = vec![
        ("target".into(), TARGET.into()),
        ("set".into(), arguments.assignments.join("\n")),
        ("release".into(), arguments.release.join(" ")),
    ];
    match client.request("stats", request).map_err(unanswered)? {
        Answer::Knobs(knobs) => {
            for (old, knob) in knobs.iter().filter_map(|knob| Some((knob.was.as_ref()?, knob))) {
                eprintln!("warning: {old} is called {} now", knob.key);
            }
            telemetry::print(report(&knobs, arguments).trim_end());
        }
        Answer::Refused(sentence) => return Err(Failure::Usage(sentence)),
    }
    Ok(())
}

fn report(knobs: &[Knob], arguments: &TuneArguments) -> String {
    let assigned = arguments.assignments.iter().filter_map(|text| text.split('=').next());
    let named: Vec<&str> =
        assigned.chain(arguments.release.iter().map(String::as_str)).map(str::trim).collect();
    let line = |knob: &Knob| {
        let mark = if knob.set { '*' } else { ' ' };
        let value = format!("{}={}", knob.key, knob.value);
        format!("{value:<28}{mark} {} Takes {}.\n", knob.about, knob.range)
    };
    if named.is_empty() {
        let all: String = knobs.iter().map(line).collect();
        return all + "* set by a person: the adaptive loop leaves it alone until --release\n";
    }
    let changed = knobs.iter().filter(|knob| named.contains(&knob.key.as_str()));
    changed.map(line).collect()
}

/// Why there is nobody to ask; `may` says what only the scheduler's user may do, and `how`.
pub fn unconnected(error: anyhow::Error, may: &str, how: &str) -> Failure {
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            Failure::Internal(anyhow!("no scheduler runs here that serves statistics"))
        }
        Some(ErrorKind::PermissionDenied) => Failure::Denied(format!(
            "only the user who runs the scheduler may {may}: `sudo scx_pandemonium_user {how}`"
        )),
        _ => Failure::Internal(error.context("cannot ask the running scheduler")),
    }
}

/// The server of another scheduler does not know the target, and says so with an error number.
fn unanswered(error: anyhow::Error) -> Failure {
    Failure::Internal(match error.downcast_ref::<StatsErrno>() {
        Some(StatsErrno(libc::EINVAL)) => anyhow!("the scheduler that runs has no knobs to tune"),
        _ => error.context("the running scheduler gave no answer"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;
    use pandemonium_engine::PolicyType;
    use pandemonium_policies::Pandemonium;
    use pandemonium_policies::knobs::{Knobs, TABLE};
    use std::sync::Arc;

    fn adaptive() -> Arc<Adaptive> {
        let shared = Arc::new(Shared::create().unwrap());
        let chosen = Knobs::none().with("affinity");
        let control = Pandemonium::adapting(4, TABLE.defaults(), chosen);
        Arc::new(Adaptive::new(shared, control))
    }

    fn ask(adaptive: &Adaptive, args: &[(&str, &str)]) -> Result<Vec<Knob>, String> {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let answer = answer(adaptive, &args.iter().map(own).collect()).unwrap();
        match serde_json::from_value(answer).unwrap() {
            Answer::Knobs(knobs) => Ok(knobs),
            Answer::Refused(sentence) => Err(sentence),
        }
    }

    fn told(assignments: &[&str], release: &[&str]) -> TuneArguments {
        let own = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        TuneArguments { assignments: own(assignments), release: own(release) }
    }

    #[test]
    fn all_knobs_come_with_value_range_meaning_and_mark() {
        let knobs = ask(&adaptive(), &[("target", "tune")]).unwrap();
        assert_eq!(knobs.len(), TABLE.len());
        let text = report(&knobs, &told(&[], &[]));
        assert_eq!(text.lines().count(), TABLE.len() + 1);
        assert!(text.lines().all(|line| line.len() < 140));
        let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap();
        assert_eq!(
            line("sleeper_credit_scale"),
            "sleeper_credit_scale=4        How much credit sleep earns a task that wakes often. \
             Takes 1 to 64."
        );
        assert!(line("affinity=weak").contains("* Placement"));
    }

    #[test]
    fn what_was_changed_is_what_is_printed() {
        let adaptive = adaptive();
        let knobs = ask(&adaptive, &[("set", "slice_us=750"), ("release", "affinity")]).unwrap();
        let text = report(&knobs, &told(&["slice_us=750"], &["affinity"]));
        let lines: Vec<&str> = text.lines().map(|line| &line[..30]).collect();
        assert_eq!(lines, ["slice_us=750                * ", "affinity=strong               "]);
    }

    #[test]
    fn a_refusal_changes_nothing_and_says_why() {
        let adaptive = adaptive();
        let before = ask(&adaptive, &[]).unwrap();
        for (args, sentence) in [
            (("set", "slice_us=99"), "slice_us takes 100 to 100000 microseconds, not \"99\""),
            (("set", "speed=9"), "there is no knob \"speed\""),
            (("set", "lag_scale"), "\"lag_scale\" is not of the form KEY=VALUE"),
            (("release", "speed"), "there is no knob \"speed\""),
            (("sett", ""), "tune knows no argument \"sett\""),
        ] {
            assert_eq!(ask(&adaptive, &[args]).unwrap_err(), sentence);
        }
        assert_eq!(ask(&adaptive, &[]).unwrap(), before);
    }

    /// Through a real socket and the server of `scx_stats`.
    #[test]
    fn the_sentence_survives_the_socket() {
        let path = std::env::temp_dir().join(format!("pandemonium-tune-{}", std::process::id()));
        let adaptive = adaptive();
        let serve = move |args: &BTreeMap<String, String>, _: (&_, &_)| answer(&adaptive, args);
        let data = StatsServerData::<(), ()>::new().add_stats(TARGET, Box::new(serve));
        let _server = StatsServer::new(data).set_path(&path).launch().unwrap();
        let mut client = StatsClient::new().set_path(&path).connect(Some(PATIENCE_MS)).unwrap();
        let mut ask = |target: &str, set: &str| {
            let args = vec![("target".into(), target.into()), ("set".into(), set.into())];
            client.request::<Answer>("stats", args)
        };
        let refusal = "lag_scale takes 1 to 64, not \"99\"";
        assert!(
            matches!(ask(TARGET, "lag_scale=9"), Ok(Answer::Knobs(knobs)) if knobs.len() == TABLE.len())
        );
        assert_eq!(ask(TARGET, "lag_scale=99").unwrap(), Answer::Refused(refusal.into()));
        let other = unanswered(ask("other", "").unwrap_err());
        assert_eq!(other.to_string(), "the scheduler that runs has no knobs to tune");
        let nobody = StatsClient::new().set_path("/nowhere/socket").connect(None).err().unwrap();
        assert!(
            unconnected(nobody, "ask", "tune").to_string().starts_with("no scheduler runs here")
        );
    }
}
