// SPDX-License-Identifier: GPL-2.0-only

//! Users by name, and the user at the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// Users of this machine.
#[derive(Clone, Debug, Default)]
pub struct Users {
    names: BTreeMap<String, u32>,
    login: BTreeSet<u32>,
    /// The time of the last change of the file that names them, and its size.
    known: Option<(SystemTime, u64)>,
}

impl Users {
    /// The users in `/etc/passwd`; at the machine are those of whom a session is active at a seat,
    /// and the one that called `sudo`.
    pub fn read() -> Users {
        let mut users = Users::default();
        users.refresh();
        users
    }

    /// The same again, of which only what has changed is read.
    pub fn refresh(&mut self) {
        let file = fs::metadata("/etc/passwd").ok();
        let known = file.and_then(|file| Some((file.modified().ok()?, file.len())));
        if known.is_none() || known != self.known {
            let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
            *self = Users { known, ..Users::of(&passwd, BTreeSet::new()) };
        }
        let at_seats = at_seats(Path::new("/run/systemd/seats"));
        self.login.clear();
        self.login.extend(at_seats.chain(pandemonium_trust::sudo_user()));
    }

    /// The users of such a file, and those at the machine.
    pub fn of(passwd: &str, login: BTreeSet<u32>) -> Users {
        let user = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            Some((name, fields.nth(1)?.parse().ok()?))
        };
        Users { names: passwd.lines().filter_map(user).collect(), login, known: None }
    }

    /// The number of a user, given by name or number.
    pub fn number(&self, text: &str) -> Option<u32> {
        self.names.get(text).copied().or_else(|| text.parse().ok())
    }

    /// The name of a user, or else the number.
    pub fn name(&self, number: u32) -> String {
        let found = self.names.iter().find(|(_, known)| **known == number);
        found.map_or_else(|| number.to_string(), |(name, _)| name.clone())
    }

    /// Whether the user is at the machine.
    pub fn is_login(&self, number: u32) -> bool {
        self.login.contains(&number)
    }
}

/// The users of whom a session is active at a seat.
fn at_seats(folder: &Path) -> impl Iterator<Item = u32> {
    let seats = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = seats.filter_map(|seat| fs::read_to_string(seat.path()).ok());
    texts.filter_map(|text| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("ACTIVE_UID="))?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::Scratch;

    #[test]
    fn a_user_has_a_name_a_number_and_perhaps_a_seat() {
        let passwd = "root:x:0:0::/:/bin/sh\nbroken\nalice:x:1000:1000::/:/bin/sh\n";
        let users = Users::of(passwd, [1000].into());
        assert_eq!([users.number("root"), users.number("alice")], [Some(0), Some(1000)]);
        assert_eq!([users.number("77"), users.number("bob")], [Some(77), None]);
        assert_eq!([users.name(1000), users.name(5)], ["alice", "5"]);
        assert!(users.is_login(1000) && !users.is_login(0));

        let Scratch(seats) = &Scratch::new("seats");
        fs::write(seats.join("seat0"), "IS_SEAT0=1\nACTIVE=2\nACTIVE_UID=1000\n").unwrap();
        fs::write(seats.join("seat1"), "ACTIVE_UID=\n").unwrap();
        assert_eq!(at_seats(seats).collect::<Vec<_>>(), [1000]);
        fs::remove_dir_all(seats).unwrap();
        assert_eq!(at_seats(seats).count(), 0, "without a seat manager there is none");
    }
}
