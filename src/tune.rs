// SPDX-License-Identifier: GPL-2.0-only

//! `tune`: shows and changes the knobs of the running scheduler, over the statistics socket.
//!
//! A request has the target `tune` and the optional arguments `set`, lines `KEY=VALUE`, `release`,
//! keys with spaces between them, and `by`, what asks for it. Among the lines may be
//! `profile=NAME`; the line `rules=reload` stands alone.
//!
//! The response has the knobs that the request names, and with a profile those of the profile, or
//! all if it changes nothing; the profile comes first. Or it is a sentence that says why nothing
//! was changed. Only the scheduler's user can connect to the socket, so every client may change
//! knobs. The socket of `--profile-group` takes requests for the profile alone, and responds with
//! that.

use super::adaptive::{Adaptive, Change, Status};
use super::cli::TuneArguments;
use super::group_socket::Grant;
use super::rules::RuleKeeper;
use super::{client, output, process};
use anyhow::{Result, anyhow};
use pandemonium_engine::knobs::{self, Amended, KeySet, KnobProfile};
use pandemonium_host::failure::Failure;
use pandemonium_host::print::one_line;
use scx_stats::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The name of the request's target.
pub const TARGET: &str = "tune";
/// The line that reads the rules for processes again. It stands alone.
const RELOAD: &str = "rules=reload";
/// The key of the profile among the lines to set.
const PROFILE: &str = "profile";

/// What the marks in a list of all knobs mean.
const LEGEND: &str = "* set by the user, + by the profile: the adaptive loop leaves it alone until \
                      --release or another profile\n";

/// One knob.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Knob {
    key: String,
    value: String,
    /// The values that it takes.
    range: String,
    /// What it does.
    about: String,
    /// Whether the user has set it. The adaptive loop leaves such a knob alone.
    set: bool,
    /// The value in the profile in force. It applies, and the adaptive loop leaves it alone, unless
    /// the user has set the knob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    /// The old name by which this request set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
}

/// The response to a request.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    Knobs(Vec<Knob>),
    Refused(String),
}

/// The server's side.
pub fn respond(
    adaptive: &Adaptive,
    rules: Option<&RuleKeeper>,
    args: &BTreeMap<String, String>,
) -> Result<Value> {
    if args.get("set").is_some_and(|set| set == RELOAD) {
        return Ok(serde_json::to_value(reload(rules))?);
    }
    let response = match execute(adaptive, args) {
        Ok(executed) => Response::Knobs(executed.describe(adaptive, &adaptive.status())),
        Err(sentence) => Response::Refused(sentence),
    };
    Ok(serde_json::to_value(response)?)
}

/// The same for members of a group who may see and choose the profile.
pub fn respond_with_profile(adaptive: &Adaptive, args: &BTreeMap<String, String>) -> Result<Value> {
    let response = match is_about_profile(args) {
        true => execute(adaptive, args)
            .map(|_| profile(adaptive, &adaptive.status()).into_iter().collect()),
        false => Err("your group may choose the profile, and change nothing else".into()),
    };
    Ok(serde_json::to_value(response.map_or_else(Response::Refused, Response::Knobs))?)
}

/// Whether a request changes nothing but the profile.
fn is_about_profile(args: &BTreeMap<String, String>) -> bool {
    let sets_others = args.get("set").is_some_and(|set| !set.lines().all(is_profile));
    let releases = args.get("release").is_some_and(|keys| !keys.trim().is_empty());
    !sets_others && !releases
}

/// Whether a line to set is about the profile.
fn is_profile(line: &str) -> bool {
    line.split('=').next().map(str::trim) == Some(PROFILE)
}

/// Reads the rules for processes again. That takes too long for a real-time thread.
fn reload(rules: Option<&RuleKeeper>) -> Response {
    process::make_this_ordinary();
    let none = || "the scheduler was started without rules: give it a file with --rules".into();
    match rules.ok_or_else(none).and_then(|rules| rules.reload().map(|_| rules.counts())) {
        Ok((rules, processes)) => Response::Knobs(vec![Knob {
            key: "rules".into(),
            value: rules.to_string(),
            range: "reload".into(),
            about: format!("Rules, which apply to {processes} processes now."),
            set: true,
            profile: None,
            was: None,
        }]),
        Err(sentence) => Response::Refused(sentence),
    }
}

/// A request that has been executed.
struct Executed {
    amended: Amended,
    /// The knobs that it sets or releases, and whether it chooses a profile.
    named: KeySet,
    profile: bool,
}

impl Executed {
    /// What the response tells: what the request is about.
    fn describe(&self, adaptive: &Adaptive, status: &Status) -> Vec<Knob> {
        let table = status.values.table();
        let is_about_all = self.named.is_empty() && !self.profile;
        let keys = match self.profile {
            _ if is_about_all => KeySet::all(table),
            true => self.named.union(status.profile.keys(table)),
            false => self.named,
        };
        let profile = profile(adaptive, status).filter(|_| is_about_all || self.profile);
        let words =
            keys.iter().map(|knob| (knob, status.values.get(knob.name).unwrap_or_default()));
        let knobs = words.map(|(knob, word)| describe(knob, word, status, &self.amended));
        profile.into_iter().chain(knobs).collect()
    }
}

fn execute(adaptive: &Adaptive, args: &BTreeMap<String, String>) -> Result<Executed, String> {
    let known = ["target", "set", "release", "by"];
    if let Some(unknown) = args.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("{TARGET} has no argument {unknown:?}"));
    }
    let text = |name| args.get(name).map(String::as_str).unwrap_or_default();
    let table = adaptive.table();
    let mut release = KeySet::none(table);
    for name in text("release").split_whitespace() {
        let knob = table.named(name).ok_or_else(|| format!("there is no knob {name:?}"))?;
        release = release.with(knob.name);
    }
    let (chosen, knobs): (Vec<&str>, Vec<&str>) =
        text("set").lines().partition(|line| is_profile(line));
    let profile = match chosen.as_slice() {
        [] => None,
        [line] => {
            let (_, name) = line.split_once('=').ok_or(format!("{line:?} is no {PROFILE}=NAME"))?;
            let by = Some(text("by")).filter(|by| !by.is_empty()).unwrap_or(TARGET);
            Some((KnobProfile::find(adaptive.profiles(), name.trim())?, clip(by)))
        }
        _ => return Err(format!("{PROFILE} is given twice")),
    };
    let profile = profile.as_ref().map(|(profile, by)| (*profile, by.as_str()));
    let amended = adaptive.tune(&Change { set: &knobs.join("\n"), release, profile })?;
    let named = amended.named.union(release);
    Ok(Executed { amended, named, profile: profile.is_some() })
}

/// As much of what asks as statistics show, in one line.
fn clip(by: &str) -> String {
    one_line(by).chars().take(60).collect()
}

/// The profile in force, as a knob.
fn profile(adaptive: &Adaptive, status: &Status) -> Option<Knob> {
    let names: Vec<&str> = adaptive.profiles().iter().map(|profile| profile.name).collect();
    let in_force = status.profile.profile?;
    Some(Knob {
        key: PROFILE.into(),
        value: in_force.name.into(),
        range: names.join(", "),
        about: format!("{}.", in_force.about),
        set: !status.profile.by.is_empty(),
        profile: None,
        was: None,
    })
}

fn describe(knob: &'static knobs::Knob, word: u64, status: &Status, amended: &Amended) -> Knob {
    let renamed = amended.renamed.iter().find(|(_, new)| *new == knob.name);
    Knob {
        key: knob.name.into(),
        value: knob.show(word).to_string(),
        range: knob.range().to_string(),
        about: knob.about().into(),
        set: status.pinned.holds(knob.name),
        profile: status.profile.value_of(knob).map(str::to_owned),
        was: renamed.map(|(old, _)| (*old).into()),
    }
}

/// The client's side: sends the request, and prints the response.
pub fn run(arguments: &TuneArguments) -> Result<(), Failure> {
    if let Some(both) = arguments.release.iter().find(|key| {
        arguments.assignments.iter().any(|it| it.split('=').next() == Some(key.as_str()))
    }) {
        return Err(Failure::Usage(format!("{both} cannot be set and released at once")));
    }
    let is_for_group = !arguments.assignments.is_empty()
        && arguments.release.is_empty()
        && arguments.assignments.iter().all(|line| is_profile(line));
    let mut client = match is_for_group {
        true => client::connect_as(Grant::Profile, "change its profile", "tune")?,
        false => client::connect("see or change its knobs", "tune")?,
    };
    let request = vec![
        ("target".into(), TARGET.into()),
        ("set".into(), arguments.assignments.join("\n")),
        ("release".into(), arguments.release.join(" ")),
    ];
    match client.request("stats", request).map_err(no_response)? {
        Response::Knobs(knobs) => {
            for (old, knob) in knobs.iter().filter_map(|knob| Some((knob.was.as_ref()?, knob))) {
                output::warn(&format!("the knob {old} is now named {}", knob.key));
            }
            output::print(report(&knobs, arguments).trim_end());
        }
        Response::Refused(sentence) => return Err(Failure::Usage(sentence)),
    }
    Ok(())
}

fn report(knobs: &[Knob], arguments: &TuneArguments) -> String {
    let lines = knobs.iter().map(line).collect();
    match arguments.assignments.is_empty() && arguments.release.is_empty() {
        true => lines + LEGEND,
        false => lines,
    }
}

fn line(knob: &Knob) -> String {
    let mark = match &knob.profile {
        _ if knob.set => '*',
        Some(_) => '+',
        None => ' ',
    };
    let value = format!("{}={}", knob.key, knob.value);
    let overruled = match &knob.profile {
        Some(value) if knob.set => format!(" The profile's {value} does not apply."),
        _ => String::new(),
    };
    format!("{value:<28}{mark} {} Takes {}.{overruled}\n", knob.about, knob.range)
}

/// The server of another scheduler does not have the target, and responds with an error number.
fn no_response(error: anyhow::Error) -> Failure {
    Failure::Internal(match error.downcast_ref::<StatsErrno>() {
        Some(StatsErrno(libc::EINVAL)) => anyhow!("the scheduler that runs has no knobs to tune"),
        _ => error.context("the running scheduler did not respond"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{PATIENCE_MS, unconnected};
    use crate::procdb_file::tests::Scratch;
    use crate::server::{self, Arguments, Limits, Targets};
    use crate::shared::Shared;
    use pandemonium_policies::knobs::{Knobs, TABLE};
    use std::sync::Arc;

    fn adaptive() -> Arc<Adaptive> {
        let shared = Arc::new(Shared::create().unwrap());
        Arc::new(Adaptive::of_four_cpus(shared, Knobs::none().with("affinity")))
    }

    fn ask(adaptive: &Adaptive, args: &[(&str, &str)]) -> Result<Vec<Knob>, String> {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let response = respond(adaptive, None, &args.iter().map(own).collect()).unwrap();
        match serde_json::from_value(response).unwrap() {
            Response::Knobs(knobs) => Ok(knobs),
            Response::Refused(sentence) => Err(sentence),
        }
    }

    fn arguments(assignments: &[&str], release: &[&str]) -> TuneArguments {
        let own = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        TuneArguments { assignments: own(assignments), release: own(release) }
    }

    #[test]
    fn the_report_shows_value_meaning_range_and_mark_of_every_knob() {
        let knobs = ask(&adaptive(), &[("target", "tune")]).unwrap();
        assert_eq!(knobs.len(), TABLE.len() + 1, "the profile is one more");
        let text = report(&knobs, &arguments(&[], &[]));
        assert_eq!(text.lines().count(), TABLE.len() + 2);
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
    fn only_changed_knobs_are_printed() {
        let adaptive = adaptive();
        let knobs = ask(&adaptive, &[("set", "slice_us=750"), ("release", "affinity")]).unwrap();
        let text = report(&knobs, &arguments(&["slice_us=750"], &["affinity"]));
        let lines: Vec<&str> = text.lines().map(|line| &line[..30]).collect();
        assert_eq!(lines, ["slice_us=750                * ", "affinity=strong               "]);
    }

    #[test]
    fn a_profile_is_printed_with_its_knobs_and_with_those_of_the_user_that_win() {
        let adaptive = adaptive();
        let set = [("set", "profile=gaming\nbatch_slice_us=3000"), ("by", "power\nsaver")];
        let knobs = ask(&adaptive, &set).unwrap();
        let text = report(&knobs, &arguments(&["profile=gaming"], &[]));
        let begins: Vec<&str> = text.lines().map(|line| &line[..30]).collect();
        assert_eq!(
            begins,
            [
                "profile=gaming              * ",
                "slice_us=500                + ",
                "batch_slice_us=3000         * ",
                "burst_slice_us=500          + ",
            ]
        );
        assert!(text.contains("The profile's 2000 does not apply."), "{text}");
        assert_eq!(adaptive.status().profile.by, "power?saver");
        let twice = ask(&adaptive, &[("set", "profile=auto\nprofile=server")]).unwrap_err();
        assert_eq!(twice, "profile is given twice");
        let unknown = ask(&adaptive, &[("set", "profile=turbo")]).unwrap_err();
        assert!(unknown.ends_with("there are auto, gaming, lowlatency, powersave, server"));
        assert_eq!(adaptive.status().profile.name(), "gaming", "a refusal changes nothing");
    }

    #[test]
    fn a_group_sees_and_chooses_the_profile_and_nothing_else() {
        let adaptive = adaptive();
        let ask = |args: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
            let response =
                respond_with_profile(&adaptive, &args.iter().map(own).collect()).unwrap();
            match serde_json::from_value(response).unwrap() {
                Response::Knobs(knobs) => {
                    Ok(knobs.into_iter().map(|it| (it.key, it.value)).collect::<Vec<_>>())
                }
                Response::Refused(sentence) => Err(sentence),
            }
        };
        let only = |name: &str| Ok(vec![("profile".to_owned(), name.to_owned())]);
        assert_eq!(ask(&[]), only("auto"));
        assert_eq!(ask(&[("set", "profile=gaming"), ("by", "GameMode")]), only("gaming"));
        assert_eq!(adaptive.status().profile.by, "GameMode");
        let before = adaptive.status().values;
        for args in [
            [("set", "slice_us=200"), ("by", "")],
            [("set", "profile=server\nslice_us=200"), ("by", "")],
            [("set", "profile=server\n\nslice_us=200"), ("by", "")],
            [("set", "rules=reload"), ("by", "")],
            [("set", "profile=server"), ("release", "affinity")],
        ] {
            let refused = ask(&args).unwrap_err();
            assert_eq!(refused, "your group may choose the profile, and change nothing else");
        }
        assert!(ask(&[("set", "profile=turbo")]).unwrap_err().contains("there are auto, gaming"));
        assert_eq!((ask(&[]), adaptive.status().values), (only("gaming"), before));
    }

    #[test]
    fn a_refused_request_changes_nothing_and_says_why() {
        let adaptive = adaptive();
        let before = ask(&adaptive, &[]).unwrap();
        for (args, sentence) in [
            (("set", "slice_us=99"), "slice_us takes 100 to 100000 microseconds, not \"99\""),
            (("set", "speed=9"), "there is no knob \"speed\""),
            (("set", "lag_scale"), "\"lag_scale\" is not of the form KEY=VALUE"),
            (("release", "speed"), "there is no knob \"speed\""),
            (
                ("set", "rules=reload"),
                "the scheduler was started without rules: give it a file with --rules",
            ),
            (("sett", ""), "tune has no argument \"sett\""),
        ] {
            assert_eq!(ask(&adaptive, &[args]).unwrap_err(), sentence);
        }
        assert_eq!(ask(&adaptive, &[]).unwrap(), before);
    }

    /// Through a real socket and the client of `scx_stats`.
    #[test]
    fn a_refusal_reaches_the_client_through_the_socket() {
        let folder = Scratch::new();
        let path = folder.path().with_file_name("stats");
        let adaptive = adaptive();
        let open = move || {
            let adaptive = Arc::clone(&adaptive);
            move |args: &Arguments| respond(&adaptive, None, args)
        };
        server::launch(Targets::default().add(TARGET, open), Limits::USER, &path).unwrap();
        let mut client = StatsClient::new().set_path(&path).connect(Some(PATIENCE_MS)).unwrap();
        let mut ask = |target: &str, set: &str| {
            let args = vec![("target".into(), target.into()), ("set".into(), set.into())];
            client.request::<Response>("stats", args)
        };
        let refusal = "sleeper_credit_scale takes 1 to 64, not \"99\"";
        match ask(TARGET, "lag_scale=9") {
            Ok(Response::Knobs(knobs)) => assert_eq!(knobs[0].was.as_deref(), Some("lag_scale")),
            other => panic!("{other:?}"),
        }
        assert_eq!(ask(TARGET, "lag_scale=99").unwrap(), Response::Refused(refusal.into()));
        let other = no_response(ask("other", "").unwrap_err());
        assert_eq!(other.to_string(), "the scheduler that runs has no knobs to tune");
        let refused = StatsClient::new().set_path("/nowhere/socket").connect(None).err().unwrap();
        assert!(
            unconnected(refused, "ask", "tune").to_string().starts_with("no scheduler runs here")
        );
    }
}
