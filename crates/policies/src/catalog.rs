// SPDX-License-Identifier: GPL-2.0-only

//! The policies that a program offers: the one place that turns a name into a policy.

use crate::{Dropping, Fifo, Pandemonium, Vruntime};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use pandemonium_engine::{PolicyInfo, policies};

/// The policies that every program offers.
pub const BUILT_IN: &[PolicyInfo] = policies![Pandemonium, Fifo, Vruntime, Dropping<Pandemonium>];

/// A program's own policies, and the built-in ones.
#[derive(Clone, Copy, Debug)]
pub struct Catalog {
    own: &'static [PolicyInfo],
}

impl Catalog {
    /// The built-in policies and these, of which the first is the default.
    pub const fn new(own: &'static [PolicyInfo]) -> Catalog {
        Catalog { own }
    }

    /// All policies; a name that a program's own policy has is that one's.
    pub fn iter(&self) -> impl Iterator<Item = PolicyInfo> + use<> {
        let own = self.own;
        let is_own = move |info: &&PolicyInfo| own.iter().any(|mine| mine.name == info.name);
        own.iter().chain(BUILT_IN.iter().filter(move |info| !is_own(info))).copied()
    }

    /// The policy of this name.
    pub fn find(&self, name: &str) -> Result<PolicyInfo, String> {
        self.iter().find(|info| info.name == name).ok_or_else(|| {
            let shown = self.iter().filter(|info| !info.hidden).map(|info| info.name);
            format!(
                "there is no policy {name:?}; there are {}",
                shown.collect::<Vec<_>>().join(", ")
            )
        })
    }

    /// The policy that is meant when a person names none.
    pub fn default_policy(&self) -> PolicyInfo {
        self.own.first().copied().unwrap_or(BUILT_IN[0])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_name_is_found_and_an_unknown_one_says_which_there_are() {
        let catalog = Catalog::new(&[]);
        assert_eq!(catalog.find("fifo").unwrap().name, "fifo");
        assert_eq!(catalog.find("dropping").unwrap().name, "dropping");
        let error = catalog.find("magic").unwrap_err();
        assert_eq!(error, "there is no policy \"magic\"; there are pandemonium, fifo, vruntime");
        assert_eq!(catalog.default_policy().name, "pandemonium");
    }

    #[test]
    fn a_program_s_own_policies_come_first_and_are_never_shown_twice() {
        let catalog = Catalog::new(policies![Fifo]);
        assert_eq!(catalog.default_policy().name, "fifo");
        let names: Vec<_> = catalog.iter().map(|info| info.name).collect();
        assert_eq!(names, ["fifo", "pandemonium", "vruntime", "dropping"]);
    }
}
