// SPDX-License-Identifier: GPL-2.0-only

//! What the scheduler uses where the kernel has it, and does without elsewhere.

use super::facts::Facts;
use super::finding::{Finding, Level};
use super::kernel_names::FEATURES;

/// The finding; `None` without sched_ext or BTF, which are others.
pub fn features(facts: &Facts) -> Option<Finding> {
    facts.preflight.state.as_ref()?;
    let names = facts.names.as_ref()?;
    let missing = FEATURES.iter().filter(|(name, ..)| !names.contains(name));
    let missing: Vec<String> =
        missing.map(|(_, since, what)| format!("{what} (Linux {since})")).collect();
    let (level, found, advice) = match missing.as_slice() {
        [] => (Level::Ok, "all that the scheduler uses is there".into(), None),
        _ => {
            let advice = "boot a newer kernel if you need that; everything else is the same";
            (Level::Note, format!("not here: {}", missing.join("; ")), Some(advice.into()))
        }
    };
    Some(Finding { topic: "newer kernels", level, found, advice })
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::good;
    use super::*;

    #[test]
    fn each_feature_that_is_missing_is_named_with_its_version() {
        assert_eq!(features(&good()).unwrap().level, Level::Ok);
        for (name, since, what) in FEATURES {
            let mut facts = good();
            facts.names.as_mut().unwrap().remove(name);
            let finding = features(&facts).unwrap();
            assert_eq!((finding.level, finding.topic), (Level::Note, "newer kernels"));
            assert_eq!(finding.found, format!("not here: {what} (Linux {since})"));
        }
        let unknown = Facts { names: None, ..good() };
        assert!(features(&unknown).is_none());
    }
}
