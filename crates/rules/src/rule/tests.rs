// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::process::tests::Scratch;
use pandemonium_engine::topology::{CpuMask, Domain};
use std::os::unix::fs::{MetadataExt, chown};

fn users() -> Users {
    let passwd = "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nmallory:x:1001:1001::/:/x\n";
    Users::of(passwd, [1000].into())
}

/// Number and place of the rule for each process; a withheld one counts from 100 on.
fn applied(rules: &str, processes: &Processes) -> Vec<(i32, usize)> {
    let rules = Rules::parse("x.toml", rules).unwrap();
    let found = rules.explain(processes, &users());
    found.iter().map(|it| (it.process.pid, it.rule + 100 * usize::from(it.withheld))).collect()
}

/// The processes 1000 of alice and 1001 of mallory, each with the pid as the uid.
fn processes(name: &str) -> (Scratch, Processes) {
    let proc = Scratch::new(name);
    proc.put(1000, ("steam", 1, 0, 1));
    proc.put(1001, ("game.exe", 1000, 5, 2));
    let mut processes = Processes::below(&proc.0);
    processes.refresh();
    (proc, processes)
}

#[test]
fn each_condition_selects_the_processes_of_which_it_holds() {
    let (_proc, processes) = processes("conditions");
    let selects = |condition: &str| -> Vec<i32> {
        let rule = format!("[[rule]]\nabout = 'x'\n{condition}\ntier_at_most = 'batch'\n");
        applied(&rule, &processes).iter().map(|(pid, _)| *pid).collect()
    };
    for condition in ["name = 'steam'", "nice = 0", "user = 'alice'", "user = ['root', '1000']"] {
        assert_eq!(selects(condition), [1000], "{condition}");
    }
    for condition in [
        "name = ['*.exe', 'other']",
        "parent = 'steam'",
        "ancestor = 'st*'",
        "nice = '1..19'",
        "user = 'mallory'\nname = '*'",
    ] {
        assert_eq!(selects(condition), [1001], "{condition}");
    }
    for condition in [
        "executable = 'x'",
        "executable = '/usr/bin/*'",
        "command = '*--flag*'",
        "cgroup = '/user.slice/*'",
        "unit = 'a.scope'",
        "class = ['idle', 'batch']",
    ] {
        assert_eq!(selects(condition), [1000, 1001], "{condition}");
    }
    for condition in ["executable = '/bin/x'", "class = 'other'", "unit = 'a'", "ancestor = 'x'"] {
        assert_eq!(selects(condition), [0; 0], "{condition}");
    }
}

#[test]
fn the_first_rule_applies() {
    let (_proc, processes) = processes("first");
    let rules = "[[rule]]\nabout = '1'\nname = 'steam'\ntier = 'batch'\n\
                 [[rule]]\nabout = '2'\nname = '*'\nweight = 50\n";
    assert_eq!(applied(rules, &processes), [(1000, 0), (1001, 1)]);
}

#[test]
fn a_rule_raises_only_processes_of_listed_users_or_of_those_that_it_names() {
    let (_proc, processes) = processes("raise");
    let with = |head: &str, demand: &str| {
        let rule = format!("{head}\n[[rule]]\nabout = 'x'\nname = '*'\n{demand}\n");
        applied(&rule, &processes)
    };
    let (both, withheld) = ([(1000, 0), (1001, 0)], [(1000, 0), (1001, 100)]);
    for lowers in
        ["tier = 'batch'", "tier_at_most = 'interactive'", "weight = 100", "slice_us = 4000"]
    {
        assert_eq!(with("", lowers), both, "{lowers}");
    }
    for raises in [
        "tier = 'interactive'",
        "tier_at_least = 'interactive'",
        "weight = 101",
        "slice_us = 4001",
        "tier_at_most = 'batch'\nweight = 200",
    ] {
        assert_eq!(with("", raises), withheld, "{raises}: alice is at the machine");
    }
    let raises = "tier = 'lat-critical'";
    assert_eq!(with("raise_users = ['mallory']", raises), [(1000, 100), (1001, 0)]);
    assert_eq!(with("raise_users = '*'", raises), both);
    assert_eq!(with("", &format!("user = ['alice', 'mallory']\n{raises}")), both);
}

#[test]
fn a_withheld_rule_leaves_the_process_to_the_next_one() {
    let (_proc, processes) = processes("withheld");
    let rules = "[[rule]]\nabout = '1'\nname = '*.exe'\ntier = 'interactive'\n\
                 [[rule]]\nabout = '2'\nname = '*'\ntier_at_most = 'interactive'\n";
    assert_eq!(applied(rules, &processes), [(1000, 1), (1001, 100), (1001, 1)]);
}

#[test]
fn an_error_names_file_line_and_column_and_says_what_is_allowed() {
    let error = |text: &str| Rules::parse("r.toml", text).unwrap_err();
    let rule = "[[rule]]\nabout = 'x'\nname = 'a'\n";
    for (line, place, part) in [
        ("tier = 'urgent'", "line 4, column 8", "`lat-critical`"),
        ("slice_us = 99", "line 4, column 12", "99 is not within 100 to 100000"),
        ("weight = -1", "line 4, column 10", "-1 is not within 1 to 10000"),
        ("cpus = '0-3'", "line 4, column 1", "unknown field `cpus`"),
        ("domain = 'fast'", "line 4, column 10", "performance, powersave or a list of CPUs"),
        ("domain = '3-0'", "line 4, column 10", "list of CPUs"),
        ("tier = 'batch'\ndomain_strict = true", "line 1, column 1", "goes with a domain"),
        ("tier = 'batch'\nnice = 20", "line 5, column 8", "from -20 to 19"),
        ("tier = 'batch'\nnice = '5..'", "line 5, column 8", "from -20 to 19"),
        ("tier = 'batch'\nclass = 'fifo'", "line 5, column 9", "other, batch, idle or ext"),
        ("tier = 'batch'\nunit = []", "line 5, column 8", "an empty list"),
        ("tier = ", "line 4, column 8", ""),
        ("", "line 1, column 1", "demands nothing"),
        ("tier = 'batch'\ntier_at_most = 'batch'", "line 1, column 1", "give one of tier"),
    ] {
        let error = error(&format!("{rule}{line}"));
        assert!(error.starts_with(&format!("r.toml: {place}: ")), "{line}: {error}");
        assert!(error.contains(part) && !error.contains('\n'), "{line}: {error}");
    }
    assert!(error("[[rule]]\nabout = 'x'\ntier = 'batch'\n").contains("no condition"));
    assert!(error("[[rule]]\nname = 'x'\ntier = 'batch'\n").contains("about"));
}

#[test]
fn a_file_that_every_user_may_write_is_refused_and_a_folder_is_read_in_order() {
    let Scratch(folder) = &Scratch::new("files");
    let put = |name: &str, about: &str| {
        let rule = format!("[[rule]]\nabout = '{about}'\nname = 'x'\nweight = 2\n");
        fs::write(folder.join(name), rule).unwrap();
    };
    put("b.toml", "second");
    put("a.toml", "first");
    put("c.txt", "none");
    let read = || Rules::read(std::slice::from_ref(folder));
    let abouts: Vec<String> = read().unwrap().rules().iter().map(|it| it.about.clone()).collect();
    assert_eq!(abouts, ["first", "second"]);
    fs::set_permissions(folder.join("b.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    let refused = read().unwrap_err();
    assert!(refused.contains("every user") && refused.contains("b.toml"), "{refused}");
    fs::remove_dir_all(folder).unwrap();
    assert!(read().unwrap_err().contains("No such file"));
}

/// A folder with the file `x.toml`, below the sticky folder of temporary files.
impl Scratch {
    fn with_rules(name: &str) -> Scratch {
        let scratch = Scratch::new(name);
        fs::write(scratch.file(), "[[rule]]\nabout = 'x'\nname = 'x'\nweight = 2\n").unwrap();
        scratch
    }

    fn file(&self) -> PathBuf {
        self.0.join("x.toml")
    }

    fn read(&self) -> Result<usize, String> {
        Rules::read(&[self.file()]).map(|rules| rules.rules().len())
    }
}

#[test]
fn root_reads_no_rules_that_another_user_could_have_written() {
    let scratch = Scratch::with_rules("foreign");
    assert_eq!(scratch.read(), Ok(1));
    let is_root = fs::metadata(scratch.file()).unwrap().uid() == 0;
    if !is_root {
        return;
    }
    let sticky = std::env::temp_dir().join(format!("rules-sticky-{}.toml", std::process::id()));
    fs::copy(scratch.file(), &sticky).unwrap();
    let in_sticky = Rules::read(std::slice::from_ref(&sticky));
    fs::remove_file(&sticky).unwrap();
    assert!(in_sticky.is_ok(), "root's own file beside those of others: {in_sticky:?}");
    let refused = |place: &Path, why: &str| {
        let refused = scratch.read().unwrap_err();
        let file = scratch.file();
        let begin = format!("root does not read the rules in {}: ", file.display());
        assert!(refused.starts_with(&begin), "{refused}");
        assert!(refused.contains(&format!("{} {why}; let root own", place.display())), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
    };
    for place in [scratch.file(), scratch.0.clone()] {
        chown(&place, Some(4_711), None).unwrap();
        refused(&place, "belongs to user 4711");
        chown(&place, Some(0), Some(4_711)).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o775)).unwrap();
        refused(&place, "can be written by group 4711");
        chown(&place, Some(0), Some(0)).unwrap();
        assert_eq!(scratch.read(), Ok(1), "root's group may write");
    }
}

#[test]
fn a_fifo_among_the_rules_is_refused_without_waiting_for_a_writer() {
    let scratch = Scratch::with_rules("fifo");
    fs::remove_file(scratch.file()).unwrap();
    let made = std::process::Command::new("mkfifo").arg(scratch.file()).status().unwrap();
    assert!(made.success());
    let refused = scratch.read().unwrap_err();
    assert!(refused.ends_with("x.toml: it is not a regular file"), "{refused}");
}

#[test]
fn the_shipped_rules_are_valid_and_raise_for_listed_users_only() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/rules");
    let rules = Rules::read(&[folder]).unwrap();
    assert!(rules.rules().len() >= 10);
    assert!(rules.rules().iter().all(|rule| rule.raises == RAISED_BY_DEFAULT));
    let matching = |process: Process| {
        let proc = Scratch::new("shipped");
        let none = Processes::below(&proc.0);
        let number =
            rules.rules.iter().position(|it| it.conditions.hold(&process, &none, &users()));
        number.map(|number| demand_text(&rules.rules[number]))
    };
    let of = |path: &str| Process { executable: path.into(), ..Process::default() };
    assert_eq!(matching(of("/usr/bin/pipewire")).as_deref(), Some("at least lat-critical"));
    assert_eq!(
        matching(of("/usr/lib/gcc/x86_64-linux-gnu/14/cc1plus")).as_deref(),
        Some("at most batch")
    );
    assert_eq!(
        matching(of("/opt/wine/bin/wine64-preloader")).as_deref(),
        Some("at least interactive")
    );
    assert_eq!(matching(of("/usr/bin/bash")), None);
}

#[test]
fn a_domain_is_told_as_demanded_and_raises_no_process() {
    let rule = "[[rule]]\nabout = 'x'\nname = 'a'\ndomain = 'powersave'\ndomain_strict = true\n";
    let rules = Rules::parse("r.toml", rule).unwrap();
    let [rule] = rules.rules() else { panic!("one rule") };
    assert_eq!((demand_text(rule).as_str(), rule.raises()), ("only on powersave", false));
    let cpus = |text: &str| CpuMask::parse(text).unwrap();
    let machine = CpuKinds { online: cpus("0-3"), slow: cpus("2-3") };
    let domain = Some(Domain { cpus: cpus("2-3"), strict: true });
    assert_eq!(rule.treatment(&machine), Treatment { domain, ..Treatment::default() });
}
