// SPDX-License-Identifier: GPL-2.0-only

//! The policies that this program offers.

use pandemonium_engine::PolicyInfo;
use pandemonium_policies::Catalog;
use std::sync::OnceLock;

static CATALOG: OnceLock<Catalog> = OnceLock::new();

/// The policies that this program offers; set before the command line is read.
pub fn offer(own: &'static [PolicyInfo]) {
    CATALOG.get_or_init(|| Catalog::new(own));
}

/// The policies that this program offers.
pub fn catalog() -> Catalog {
    *CATALOG.get_or_init(|| Catalog::new(&[]))
}

/// The policies that were named, or the default.
pub fn chosen(named: &[PolicyInfo]) -> Vec<PolicyInfo> {
    if named.is_empty() { vec![catalog().default_policy()] } else { named.to_vec() }
}
