// SPDX-License-Identifier: GPL-2.0-only

//! Rules, and the processes to which they apply.

use crate::domain::{CpuKinds, DomainWish};
use crate::file::{self, NiceRange, RawRule};
use crate::pattern::{OneOf, Pattern};
use crate::process::{Process, Processes, SchedClass};
use crate::users::Users;
use pandemonium_engine::task::{Tier, WEIGHT_DEFAULT, Weight};
use pandemonium_engine::time::Span;
use pandemonium_engine::treatment::{TREATMENTS_MAX, TierDemand, Treatment};
use pandemonium_trust::{Refused, Trusted, open_regular};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const FILE_MAX: u64 = 256 * 1024;
/// A longer slice raises a process: this is what tasks that compute get by default.
const SLICE_USUAL: Span = Span::from_millis(4);
/// Stands for the user at the machine in `raise_users`.
const LOGIN: &str = "@login";
/// The users whose processes may be raised if a file does not say.
const RAISED_BY_DEFAULT: [&str; 2] = ["root", LOGIN];

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// What it is about.
    pub about: String,
    /// Where it stands: file and line.
    pub place: String,
    /// What it demands besides a domain.
    treatment: Treatment,
    /// The domain that it demands, and whether that is strict.
    domain: Option<(DomainWish, bool)>,
    conditions: Conditions,
    /// The users whose processes it may raise.
    raises: Vec<String>,
}

#[derive(Debug)]
struct Conditions {
    name: Option<Vec<Pattern>>,
    executable: Option<Vec<Pattern>>,
    command: Option<Vec<Pattern>>,
    cgroup: Option<Vec<Pattern>>,
    unit: Option<Vec<Pattern>>,
    user: Option<Vec<String>>,
    nice: Option<NiceRange>,
    class: Option<Vec<SchedClass>>,
    parent: Option<Vec<Pattern>>,
    ancestor: Option<Vec<Pattern>>,
}

/// A process, and the rule for it.
#[derive(Debug)]
pub struct Found<'a> {
    /// The process.
    pub process: &'a Process,
    /// The place of the rule in [`Rules::rules`].
    pub rule: usize,
    /// All conditions hold, but the rule would raise the process of a user whom it must not raise.
    pub withheld: bool,
}

/// The rules of some files, in order.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Reads files. Of a folder it reads those that end in `.toml`, in the order of their names. An
    /// error is one sentence with the place.
    pub fn read(paths: &[PathBuf]) -> Result<Rules, String> {
        let mut rules = Rules::default();
        for path in paths {
            for file in files(path)? {
                let text = read(&file)?;
                rules.rules.extend(Rules::parse(&file.display().to_string(), &text)?.rules);
            }
        }
        if rules.rules.len() > TREATMENTS_MAX {
            let count = rules.rules.len();
            return Err(format!("there are {count} rules, at most {TREATMENTS_MAX} are possible"));
        }
        Ok(rules)
    }

    /// The rules of a file with this name and text.
    pub fn parse(file: &str, text: &str) -> Result<Rules, String> {
        let raw = file::parse(file, text)?;
        let raises = match raw.raise_users {
            Some(OneOf(users)) => users,
            None => RAISED_BY_DEFAULT.map(str::to_owned).to_vec(),
        };
        let rule = |raw: toml::Spanned<RawRule>| {
            let at = raw.span();
            let rule = Rule::of(raw.into_inner(), &raises);
            let (line, _) = file::place(text, at.start);
            let place = format!("{file}:{line}");
            rule.map(|rule| Rule { place, ..rule })
                .map_err(|what| file::complain(file, text, at, &what))
        };
        Ok(Rules { rules: raw.rule.into_iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// All rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The first rule for each process, in the order of their numbers, and before it those that are
    /// withheld.
    pub fn explain<'a>(&self, processes: &'a Processes, users: &Users) -> Vec<Found<'a>> {
        let mut all = Vec::new();
        for process in processes.iter() {
            for (number, rule) in self.rules.iter().enumerate() {
                if !rule.conditions.hold(process, processes, users) {
                    continue;
                }
                let withheld = !rule.may_treat(process, users);
                all.push(Found { process, rule: number, withheld });
                if !withheld {
                    break;
                }
            }
        }
        all
    }

    /// The processes to which a rule applies, by the users of this machine.
    pub fn apply<'a>(&self, processes: &'a Processes, users: &Users) -> Vec<Found<'a>> {
        let mut all = self.explain(processes, users);
        all.retain(|found| !found.withheld);
        all
    }
}

impl Rule {
    fn of(raw: RawRule, raises: &[String]) -> Result<Rule, String> {
        let (treatment, domain) = (raw.treatment()?, raw.domain()?);
        if raw.is_unconditional() {
            return Err("the rule has no condition, so it would apply to every process: for that \
                        there are knobs"
                .into());
        }
        Ok(Rule {
            about: raw.about,
            place: String::new(),
            treatment,
            domain,
            conditions: Conditions {
                name: raw.name.map(|it| it.0),
                executable: raw.executable.map(|it| it.0),
                command: raw.command.map(|it| it.0),
                cgroup: raw.cgroup.map(|it| it.0),
                unit: raw.unit.map(|it| it.0),
                user: raw.user.map(|it| it.0),
                nice: raw.nice,
                class: raw.class.map(|it| it.0),
                parent: raw.parent.map(|it| it.0),
                ancestor: raw.ancestor.map(|it| it.0),
            },
            raises: raises.to_vec(),
        })
    }

    /// What it demands on this machine.
    pub fn treatment(&self, machine: &CpuKinds) -> Treatment {
        let domain = self.domain.as_ref().and_then(|(wish, strict)| wish.on(machine, *strict));
        Treatment { domain, ..self.treatment }
    }

    /// Whether it gives a process more than its behaviour may earn. A domain does not: each process
    /// may use the CPUs in it.
    pub fn raises(&self) -> bool {
        let Treatment { tier, slice, weight, domain: _ } = self.treatment;
        let by_tier = match tier {
            TierDemand::None | TierDemand::AtMost(_) => false,
            TierDemand::AtLeast(tier) | TierDemand::Fixed(tier) => tier > Tier::Batch,
        };
        let is_heavy = |weight: Weight| weight.get() > u64::from(WEIGHT_DEFAULT);
        by_tier || slice > SLICE_USUAL || weight.is_some_and(is_heavy)
    }

    /// Whether it may treat the process of this user: it does not raise it, or it names the user,
    /// or the file lists the user.
    fn may_treat(&self, process: &Process, users: &Users) -> bool {
        let is_listed = |user: &String| match user.as_str() {
            "*" => true,
            LOGIN => users.is_login(process.user),
            name => users.number(name) == Some(process.user),
        };
        !self.raises() || self.conditions.user.is_some() || self.raises.iter().any(is_listed)
    }
}

impl Conditions {
    fn hold(&self, process: &Process, processes: &Processes, users: &Users) -> bool {
        let is = |condition: &Option<Vec<Pattern>>, text: &str| {
            condition.as_ref().is_none_or(|any| any.iter().any(|pattern| pattern.matches(text)))
        };
        let named = |condition: &Option<Vec<Pattern>>, generations: usize| {
            let mut above = processes.ancestors(process).take(generations);
            condition.is_none() || above.any(|process| is(condition, &process.name))
        };
        let by_user =
            |any: &Vec<String>| any.iter().any(|user| users.number(user) == Some(process.user));
        // The cheap ones first: most rules fail there.
        is(&self.name, &process.name)
            && self
                .executable
                .as_ref()
                .is_none_or(|any| any.iter().any(|it| it.is_executable(process)))
            && self.user.as_ref().is_none_or(by_user)
            && self.nice.is_none_or(|NiceRange(low, high)| (low..=high).contains(&process.nice))
            && self.class.as_ref().is_none_or(|any| any.contains(&process.class))
            && is(&self.command, &process.command)
            && is(&self.cgroup, &process.cgroup)
            && (self.unit.is_none() || process.cgroup.split('/').any(|unit| is(&self.unit, unit)))
            && named(&self.parent, 1)
            && named(&self.ancestor, usize::MAX)
    }
}

impl Pattern {
    /// Whether the process executes this: a path if the pattern is one, else a file's name.
    fn is_executable(&self, process: &Process) -> bool {
        let path = process.executable.as_str();
        match self.has_slash() {
            true => self.matches(path),
            false => self.matches(path.rsplit('/').next().unwrap_or_default()),
        }
    }
}

/// What a rule demands, in words.
pub fn demand_text(rule: &Rule) -> String {
    let tier = |tier| match tier {
        Tier::Batch => "batch",
        Tier::Interactive => "interactive",
        Tier::LatCritical => "lat-critical",
    };
    let treatment = &rule.treatment;
    let demand = match treatment.tier {
        TierDemand::None => None,
        TierDemand::AtLeast(least) => Some(format!("at least {}", tier(least))),
        TierDemand::AtMost(most) => Some(format!("at most {}", tier(most))),
        TierDemand::Fixed(fixed) => Some(tier(fixed).into()),
    };
    let slice = Some(treatment.slice).filter(|slice| *slice > Span::ZERO);
    let slice = slice.map(|slice| format!("slice {slice}"));
    let weight = treatment.weight.map(|weight| format!("weight {}", weight.get()));
    let domain = rule.domain.as_ref().map(|(wish, strict)| {
        let only = if *strict { "only " } else { "" };
        format!("{only}on {wish}")
    });
    let all = demand.into_iter().chain(slice).chain(weight).chain(domain);
    all.collect::<Vec<_>>().join(", ")
}

fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let fail = |error| format!("cannot read the rules in {}: {error}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        files.push(entry.map_err(fail)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    match files.is_empty() {
        true => Err(format!("{} has no file that ends in .toml", path.display())),
        false => Ok(files),
    }
}

/// Reads a file. Root reads none that another user could have written, or could replace.
fn read(path: &Path) -> Result<String, String> {
    let name = path.display();
    let fail = |error: io::Error| format!("cannot read the rules in {name}: {error}");
    let root = Trusted::of_root();
    let file = open(path, root).map_err(|refused| match refused {
        Refused::Unopened(error) => fail(error),
        Refused::Distrusted(why) => why,
    })?;
    if root.is_none() && file.metadata().map_err(fail)?.permissions().mode() & 0o002 != 0 {
        return Err(format!(
            "every user may write to the rules in {name}: take that away with `chmod o-w {name}`"
        ));
    }
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    match text.len() as u64 > FILE_MAX {
        true => Err(format!("the rules in {name} are larger than {FILE_MAX} bytes")),
        false => Ok(text),
    }
}

fn open(path: &Path, root: Option<Trusted>) -> Result<File, Refused> {
    let real = match root {
        Some(root) => root.check("read the rules in", path)?,
        None => path.to_owned(),
    };
    Ok(open_regular(&real)?)
}

#[cfg(test)]
mod tests;
