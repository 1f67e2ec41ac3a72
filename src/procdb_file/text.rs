// SPDX-License-Identifier: GPL-2.0-only

//! The process database as a table, and as JSON.

use anyhow::Result;
use pandemonium_engine::procdb::codec;
use pandemonium_engine::procdb::{Minute, Profile, Votes};
use pandemonium_engine::task::{Tier, User};
use pandemonium_host::print::{is_unprintable, one_line};
use pandemonium_rules::Users;
use serde::Serialize;
use std::fmt::Write;

/// A table with a line for each program of each user.
pub fn show(profiles: &[Profile], users: &Users, when: Minute) -> String {
    let mut text = format!(
        "{:<15} {:<12} {:<13} {:>10} {:>8} {:>9} {:>6}  {}\n",
        "NAME", "USER", "TIER", "CONFIDENCE", "RUN", "WAKES/S", "SEEN", "LAST"
    );
    for profile in profiles {
        let doubt = if profile.prediction().is_some() { "" } else { "?" };
        let millihertz = profile.wake_freq.as_millihertz();
        let tier = format!("{}{doubt}", tier_name(profile.votes.dominant()));
        let confidence = profile.confidence().as_permille() / 10;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<15} {:<12} {tier:<13} {confidence:>8} % {:>8} {:>9} {:>6}  {}",
            profile.program.comm.to_string(),
            user_name(profile.program.user, users),
            profile.run.to_string(),
            format!("{}.{}", millihertz / 1_000, millihertz % 1_000 / 100),
            profile.observations,
            ago(when.minutes_since(profile.last_seen)),
        );
    }
    let confident = profiles.iter().filter(|profile| profile.prediction().is_some()).count();
    let _ = writeln!(
        text,
        "{} names, {confident} of them predicted (a tier with ? is not known well enough yet)",
        profiles.len()
    );
    text
}

/// A user by name, or by number. What was learned without users counts for those who have no
/// profile of the name.
fn user_name(user: User, users: &Users) -> String {
    if user.is_known() { one_line(&users.name(user.as_raw())).into_owned() } else { "(any)".into() }
}

/// A tier in one word.
pub fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Batch => "batch",
        Tier::Interactive => "interactive",
        Tier::LatCritical => "lat-critical",
    }
}

fn ago(minutes: u32) -> String {
    match minutes {
        0 => "just now".into(),
        1 => "a minute ago".into(),
        2..60 => format!("{minutes} minutes ago"),
        60..120 => "an hour ago".into(),
        120..1_440 => format!("{} hours ago", minutes / 60),
        1_440..2_880 => "a day ago".into(),
        _ => format!("{} days ago", minutes / 1_440),
    }
}

/// The database as JSON.
#[derive(Serialize)]
struct Export {
    /// Version of the file format that the fields follow.
    version: u32,
    profiles: Vec<ExportedProfile>,
}

#[derive(Serialize)]
struct ExportedProfile {
    name: String,
    /// `null` if it was learned without users.
    user: Option<u32>,
    tier: &'static str,
    predicted: bool,
    confidence_permille: u16,
    votes_batch: f64,
    votes_interactive: f64,
    votes_lat_critical: f64,
    run_ns: u64,
    run_dev_ns: u64,
    wakes_per_s: f64,
    switches_per_s: f64,
    observations: u32,
    last_seen_unix_s: u64,
}

/// The profiles as JSON.
pub fn export(profiles: &[Profile]) -> Result<String> {
    let votes = |raw: u32| f64::from(raw) / f64::from(Votes::ONE);
    let hertz = |millihertz: u32| f64::from(millihertz) / 1_000.0;
    let profiles = profiles.iter().map(|profile| {
        let [batch, interactive, lat_critical] = profile.votes.as_raw();
        ExportedProfile {
            name: String::from_utf8_lossy(profile.program.comm.as_bytes()).into_owned(),
            user: Some(profile.program.user).filter(|user| user.is_known()).map(User::as_raw),
            tier: tier_name(profile.votes.dominant()),
            predicted: profile.prediction().is_some(),
            confidence_permille: profile.confidence().as_permille(),
            votes_batch: votes(batch),
            votes_interactive: votes(interactive),
            votes_lat_critical: votes(lat_critical),
            run_ns: profile.run.as_nanos(),
            run_dev_ns: profile.run_dev.as_nanos(),
            wakes_per_s: hertz(profile.wake_freq.as_millihertz()),
            switches_per_s: hertz(profile.csw_rate.as_millihertz()),
            observations: profile.observations,
            last_seen_unix_s: u64::from(profile.last_seen.as_unix()) * 60,
        }
    });
    let export = Export { version: codec::VERSION, profiles: profiles.collect() };
    Ok(escape_unprintable(&serde_json::to_string_pretty(&export)?))
}

/// JSON with every unprintable character but the newline escaped. serde_json leaves those from DEL
/// on as they are, which a terminal may take for the beginning of a command.
fn escape_unprintable(json: &str) -> String {
    let escaped = |c: char| match c {
        c if is_unprintable(c) && c != '\n' => {
            let units = &mut [0; 2];
            c.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
        c => c.to_string(),
    };
    json.chars().map(escaped).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use pandemonium_engine::procdb::{Observation, Program, Rate};
    use pandemonium_engine::task::Comm;
    use pandemonium_engine::time::Span;

    pub const WHEN: Minute = Minute::from_unix(30_000_000);

    /// A profile with so many observations.
    pub fn known(comm: &str, observations: u32) -> Profile {
        let program = Program { comm: Comm::from_text(comm), user: User::new(1_000) };
        let mut profile = Profile::unseen(program);
        for _ in 0..observations {
            let seen = Observation {
                program,
                tier: Tier::LatCritical,
                run: Span::from_micros(250),
                wake_freq: Rate::from_millihertz(60_049),
                ..Observation::default()
            };
            profile.learn(WHEN, &seen);
        }
        profile
    }

    #[test]
    fn the_table_shows_every_program_without_control_characters() {
        let mut profiles = [known("pipewire", 5), known("new", 1), known("\x1b[2J\nevil", 0)];
        profiles[1].program.user = User::new(77);
        profiles[2].program.user = User::UNKNOWN;
        let users = Users::of("alice:x:1000:1000::/:/bin/sh\n", [].into());
        let later = WHEN.later(Span::from_millis(3 * 3_600_000));
        let expected = "\
NAME            USER         TIER          CONFIDENCE      RUN   WAKES/S   SEEN  LAST
pipewire        alice        lat-critical       100 %    250us      60.0      5  3 hours ago
new             77           lat-critical?        0 %    250us      60.0      1  3 hours ago
?[2J?evil       (any)        lat-critical?        0 %      0ns       0.0      0  20833 days ago
3 names, 1 of them predicted (a tier with ? is not known well enough yet)
";
        assert_eq!(show(&profiles, &users, later), expected);
        let words = [0, 1, 2, 59, 60, 120, 1_439, 1_440, 2_880].map(ago);
        assert_eq!(words[..4], ["just now", "a minute ago", "2 minutes ago", "59 minutes ago"]);
        assert_eq!(
            words[4..],
            ["an hour ago", "2 hours ago", "23 hours ago", "a day ago", "2 days ago"]
        );
    }

    #[test]
    fn the_export_is_json_with_units_in_its_names() {
        let name = "\x1b\"\n\x7f\u{9b}\u{202e}\u{e0041}";
        let text = export(&[known(name, 5)]).unwrap();
        assert!(!text.contains(|c: char| is_unprintable(c) && c != '\n'), "{text:?}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["version"], 4);
        let first = &json["profiles"][0];
        assert_eq!(first["name"], name);
        assert_eq!(first["user"], 1_000);
        assert_eq!(first["tier"], "lat-critical");
        assert_eq!(first["predicted"], true);
        assert_eq!(first["confidence_permille"], 1000);
        assert_eq!(first["run_ns"], 250_000);
        assert_eq!(first["wakes_per_s"], 60.049);
        assert_eq!(first["last_seen_unix_s"], 1_800_000_000);
        assert!(first["votes_lat_critical"].as_f64().is_some_and(|votes| votes > 4.0));
    }
}
