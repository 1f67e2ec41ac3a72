// SPDX-License-Identifier: GPL-2.0-only

//! What `make install` and `make deb` install, and that nothing is left when it is removed.
//!
//! They install what lies beside the program under test, so cargo must have built with
//! `--workspace`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NAME: &str = "scx_pandemonium_user";
/// The parts of an installation, which are packages of their own.
const PARTS: [&str; 2] = ["scheduler", "tools"];
/// Of the files of a part; measured of stripped programs of a release.
const BYTES_MAX: u64 = 12_000_000;

/// Where the programs of the workspace are.
fn programs() -> PathBuf {
    let ours = Path::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
    ours.parent().expect("a program lies in a folder").to_path_buf()
}

/// A folder, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("packaging-{name}-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for the test");
        Folder(folder)
    }

    fn text(&self, path: &str) -> String {
        let found = fs::read_to_string(self.0.join(path));
        found.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Size and mode of every file below, by path.
    fn files(&self) -> BTreeMap<String, (u64, u32)> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.0.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).expect("the folder can be read").flatten() {
                let (path, about) = (entry.path(), entry.metadata().expect("the file is there"));
                if about.is_dir() {
                    open.push(path);
                } else {
                    let name = path.strip_prefix(&self.0).expect("it lies below");
                    let mode = about.permissions().mode() & 0o777;
                    files.insert(name.to_string_lossy().into_owned(), (about.len(), mode));
                }
            }
        }
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A script of `packaging`, in another folder than the repository.
fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    command.current_dir(std::env::temp_dir());
    for variable in ["DESTDIR", "PREFIX", "PARTS"] {
        command.env_remove(variable);
    }
    command
}

fn install(what: &str, root: &Path, prefix: &str) -> Output {
    let mut command = script("packaging/install");
    command.arg(what).arg(programs()).env("DESTDIR", root).env("PREFIX", prefix);
    command.output().expect("a shell runs")
}

#[track_caller]
fn succeeds(what: &str, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{said}\n{error}", output.status);
    said
}

fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

#[test]
fn what_is_installed_works_and_is_removed_without_a_rest() {
    let root = Folder::new("install");
    succeeds("install", &install("install", &root.0, "/usr"));
    let files = root.files();
    for (path, mode) in [
        ("usr/bin/scx_pandemonium_user", 0o755),
        ("usr/bin/pandemonium_bench", 0o755),
        ("usr/bin/pandemonium_follow", 0o755),
        ("usr/bin/pandemonium_lab", 0o755),
        ("usr/bin/pandemonium_probe", 0o755),
        ("usr/share/scx_pandemonium_user/rules/games.toml", 0o644),
        ("usr/share/scx_pandemonium_user/grafana-dashboard.json", 0o644),
        ("usr/lib/systemd/system/scx_pandemonium_user.service", 0o644),
        ("usr/lib/systemd/user/pandemonium_follow.service", 0o644),
        ("usr/share/man/man1/scx_pandemonium_user.1.gz", 0o644),
        ("usr/share/man/man1/pandemonium_bench.1.gz", 0o644),
        ("usr/share/man/man1/pandemonium_follow.1.gz", 0o644),
        ("usr/share/man/man1/pandemonium_lab.1.gz", 0o644),
        ("usr/share/man/man1/pandemonium_probe.1.gz", 0o644),
        ("usr/share/bash-completion/completions/scx_pandemonium_user", 0o644),
        ("usr/share/zsh/site-functions/_scx_pandemonium_user", 0o644),
        ("usr/share/fish/vendor_completions.d/scx_pandemonium_user.fish", 0o644),
        ("usr/share/doc/scx_pandemonium_user/README.md.gz", 0o644),
        ("usr/share/doc/scx_pandemonium_user/docs/operating.md.gz", 0o644),
    ] {
        let (size, found) = files.get(path).unwrap_or_else(|| panic!("{path} is missing"));
        assert!(*size > 0 && *found == mode, "{path}: {size} bytes, mode {found:o}");
    }
    let unit = root.text("usr/lib/systemd/system/scx_pandemonium_user.service");
    assert!(
        unit.contains("exec /usr/bin/scx_pandemonium_user") && !unit.contains("@PREFIX@"),
        "{unit}"
    );
    let program =
        Command::new(root.0.join("usr/bin").join(NAME)).args(["probe", "--help"]).output();
    assert!(succeeds("the installed program", &program.expect("it runs")).contains("Usage"));

    let rules = Command::new(root.0.join("usr/bin").join(NAME)).args(["rules", "test"]).output();
    let said = succeeds("the installed rules", &rules.expect("it runs"));
    assert!(said.contains(" rules; "), "{said}");

    succeeds("a second installation", &install("install", &root.0, "/usr"));
    assert_eq!(root.files(), files, "a second installation changes the files");
    fs::write(root.0.join("usr/bin/other"), "").expect("another file");
    succeeds("uninstall", &install("uninstall", &root.0, "/usr"));
    assert_eq!(root.files().into_keys().collect::<Vec<_>>(), ["usr/bin/other"]);
    fs::remove_file(root.0.join("usr/bin/other")).expect("it is there");
    succeeds("another uninstall", &install("uninstall", &root.0, "/usr"));
    assert_eq!(fs::read_dir(&root.0).map(Iterator::count).ok(), Some(0), "folders are left");
}

/// Together the parts are the whole, and none is large.
#[test]
fn each_part_is_installed_by_itself() {
    let whole = Folder::new("whole");
    succeeds("install", &install("install", &whole.0, "/usr"));
    let mut parts = BTreeMap::new();
    for part in PARTS {
        let root = Folder::new(part);
        let mut command = script("packaging/install");
        command.arg("install").arg(programs()).env("DESTDIR", &root.0).env("PREFIX", "/usr");
        succeeds(part, &command.env("PARTS", part).output().expect("a shell runs"));
        let files = root.files();
        let bytes: u64 = files.values().map(|(size, _)| size).sum();
        println!("{part}: {bytes} bytes");
        assert!(cfg!(debug_assertions) || bytes <= BYTES_MAX, "{part}: {bytes} bytes");
        let count = parts.len() + files.len();
        parts.extend(files);
        assert_eq!(parts.len(), count, "a file is in two parts");
    }
    assert_eq!(parts, whole.files());
    let mut command = script("packaging/install");
    let output = command.arg("install").arg(programs()).env("PARTS", "all").output();
    let message = String::from_utf8_lossy(&output.expect("a shell runs").stderr).into_owned();
    assert!(message.contains("not all"), "{message}");
}

#[test]
fn an_installation_is_refused_in_words() {
    let root = Folder::new("refused");
    for (prefix, word) in [("usr", "slash"), ("/usr;x", "character")] {
        let output = install("install", &root.0, prefix);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(word), "{message}");
    }
    let mut unbuilt = script("packaging/install");
    let output = unbuilt.arg("install").arg(&root.0).env("DESTDIR", &root.0).output();
    let message = String::from_utf8_lossy(&output.expect("a shell runs").stderr).into_owned();
    assert!(message.contains("make build"), "{message}");
    assert!(root.files().is_empty(), "a refused installation left files");
}

/// The shells say whether they can read what is installed, where they are installed.
#[test]
fn shells_read_the_completions() {
    let root = Folder::new("completions");
    succeeds("install", &install("install", &root.0, "/usr"));
    for (shell, path) in [
        ("bash", "bash-completion/completions/scx_pandemonium_user"),
        ("zsh", "zsh/site-functions/_scx_pandemonium_user"),
        ("fish", "fish/vendor_completions.d/scx_pandemonium_user.fish"),
    ] {
        let script = root.0.join("usr/share").join(path);
        let text = fs::read_to_string(&script).expect("it is installed");
        assert!(text.contains("primary-domain") && text.contains("check"), "{shell}");
        if has(shell) {
            let read = Command::new(shell).arg("-n").arg(&script).output().expect("it runs");
            succeeds(shell, &read);
        }
    }
}

/// The flags of another scheduler in `/etc/default/scx` are not for this one.
#[test]
fn the_unit_takes_only_its_own_flags() {
    let unit = source("packaging/scx_pandemonium_user.service.in");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '"));
    let line = start.and_then(|line| line.strip_suffix('\'')).expect("a shell starts it");
    let line = line.replace("$$", "$").replace("exec @PREFIX@/bin/", "echo ");
    let started = |scheduler: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).env("SCX_SCHEDULER", scheduler).env("SCX_FLAGS", "--stats 60 -v");
        succeeds("the line of the unit", &shell.output().expect("a shell runs"))
    };
    assert_eq!(started(NAME), "scx_pandemonium_user --stats 60 -v\n");
    assert_eq!(started("/usr/bin/scx_pandemonium_user"), "scx_pandemonium_user --stats 60 -v\n");
    assert_eq!(started("scx_cosmos"), "scx_pandemonium_user\n");
}

/// A copy of the unit in the folder, as it is installed below /usr.
fn unit_in(folder: &Folder, name: &str) -> PathBuf {
    let unit = folder.0.join(format!("{name}.service"));
    let text = source(&format!("packaging/{name}.service.in")).replace("@PREFIX@", "/usr");
    fs::write(&unit, text).expect("a copy of the unit");
    unit
}

/// What systemd-analyze says about what has this name.
fn complaints(name: &str, verify: &mut Command) -> Vec<String> {
    let output = verify.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    // The program is not installed where the unit will look for it.
    let is_absent = |line: &&str| line.contains("is not executable: No such file");
    let about_it = |line: &&str| line.contains(name) && !is_absent(line);
    said.lines().filter(about_it).map(str::to_owned).collect()
}

#[test]
fn systemd_accepts_the_unit() {
    if !has("systemd-analyze") {
        return;
    }
    let root = Folder::new("unit");
    let unit = unit_in(&root, NAME);
    let mut verify = Command::new("systemd-analyze");
    let complaints = complaints(NAME, verify.args(["verify", "--man=no"]).arg(&unit));
    // Debian 12 has systemd 252, which knows no growing delay and says that it ignores it.
    let known = |line: &&String| line.contains("RestartSteps") || line.contains("RestartMaxDelay");
    let unknown: Vec<&String> = complaints.iter().filter(|line| !known(line)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");

    let mut security = Command::new("systemd-analyze");
    let rated = security.args(["security", "--offline=true", "--threshold=40", "--no-pager"]);
    succeeds("its exposure", &rated.arg(&unit).output().expect("it runs"));
}

#[test]
fn systemd_accepts_the_unit_of_a_session() {
    if !has("systemd-analyze") {
        return;
    }
    let root = Folder::new("session");
    let unit = unit_in(&root, "pandemonium_follow");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--user", "verify", "--man=no"]).arg(&unit).env("XDG_RUNTIME_DIR", &root.0);
    assert_eq!(complaints("pandemonium", &mut verify), Vec::<String>::new());
}

/// Builds the packages, and installs and purges that of the scheduler below a folder.
#[test]
fn a_debian_package_is_installed_and_purged_without_a_rest() {
    if !has("dpkg-query") {
        return;
    }
    let folder = Folder::new("deb");
    let built = script("packaging/deb").arg(programs()).arg(&folder.0).output();
    succeeds("building the package", &built.expect("a shell runs"));
    let packages: Vec<PathBuf> =
        folder.files().into_keys().map(|name| folder.0.join(name)).collect();
    let [tools, package] = packages.as_slice() else { panic!("{packages:?}") };
    let field_of = |package: &Path, name: &str| {
        let output = Command::new("dpkg-deb").arg("--field").arg(package).arg(name).output();
        succeeds(name, &output.expect("dpkg-deb runs")).trim().to_owned()
    };
    assert_eq!(field_of(tools, "Package"), "scx-pandemonium-user-tools");
    let field = |name: &str| field_of(package, name);
    assert!(field("Suggests").contains(&field_of(tools, "Package")), "{}", field("Suggests"));
    assert_eq!(field("Package"), "scx-pandemonium-user");
    assert_eq!(field("Version"), env!("CARGO_PKG_VERSION"));
    for library in ["libc6", "libelf1", "libseccomp2", "zlib1g"] {
        assert!(field("Depends").contains(library), "{}", field("Depends"));
    }
    for package in &packages {
        let kib: u64 = field_of(package, "Installed-Size").parse().expect("a number");
        println!("{}: {kib} KiB", field_of(package, "Package"));
        assert!(cfg!(debug_assertions) || kib * 1024 <= BYTES_MAX, "{kib} KiB");
    }

    let root = Folder::new("root");
    for database in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.0.join("var/lib/dpkg").join(database)).expect("a database");
    }
    fs::write(root.0.join("var/lib/dpkg/status"), "").expect("a database");
    let dpkg = |what: &str, of: &Path| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.0.display()))
            .args(["--force-depends", "--force-not-root"]);
        dpkg.args(["--force-script-chrootless", "--log=/dev/null", what]).arg(of);
        succeeds(what, &dpkg.output().expect("dpkg runs"))
    };
    dpkg("--install", package);
    let version = Command::new(root.0.join("usr/bin").join(NAME)).arg("--version").output();
    assert!(succeeds("the program", &version.expect("it runs")).contains(&field("Version")));
    let files = root.files();
    assert!(files.contains_key("usr/share/doc/scx-pandemonium-user/copyright"), "{files:?}");

    let learned = root.0.join("var/lib/scx_pandemonium_user");
    fs::create_dir_all(&learned).expect("what a run leaves");
    fs::write(learned.join("procdb.bin"), "x").expect("what a run leaves");
    let wants = root.0.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).expect("what systemctl enable leaves");
    fs::write(wants.join("scx_pandemonium_user.service"), "").expect("the link");
    let running = root.0.join("run/scx/root");
    fs::create_dir_all(&running).expect("what a run leaves");
    fs::write(running.join("scx_pandemonium_user.lock"), "").expect("the lock of an instance");
    fs::write(running.join("stats"), "").expect("the socket of the statistics");
    fs::create_dir(running.join("scx_pandemonium_user.profile")).expect("the socket of a group");
    dpkg("--remove", Path::new("scx-pandemonium-user"));
    assert!(!root.0.join("run/scx").exists(), "the folder of the lock is left");
    assert!(learned.join("procdb.bin").exists(), "removing is not purging");
    dpkg("--purge", Path::new("scx-pandemonium-user"));
    let rest: Vec<String> = root.files().into_keys().collect();
    let rest: Vec<&String> = rest.iter().filter(|path| !path.starts_with("var/lib/dpkg")).collect();
    assert!(rest.is_empty() && !learned.exists(), "left behind: {rest:?}");
}

/// A file of the repository.
fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_spec_lists_what_is_installed() {
    let spec = source("packaging/scx_pandemonium_user.spec");
    let version = spec.lines().find_map(|line| line.strip_prefix("Version:"));
    assert_eq!(version.map(str::trim), Some(env!("CARGO_PKG_VERSION")));
    let (_, list) = spec.split_once("%files\n").expect("it has a list of files");
    let macros = [
        ("%{name}", NAME),
        ("%{_bindir}", "usr/bin"),
        ("%{_unitdir}", "usr/lib/systemd/system"),
        ("%{_userunitdir}", "usr/lib/systemd/user"),
        ("%{_mandir}", "usr/share/man"),
        ("%{_docdir}", "usr/share/doc"),
        ("%{_datadir}", "usr/share"),
    ];
    let expand = |line: &str| {
        macros.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value))
    };
    let is_path = |line: &&str| line.starts_with("%{");
    let listed: Vec<String> = list.lines().filter(is_path).map(expand).collect();
    let root = Folder::new("spec");
    succeeds("install", &install("install", &root.0, "/usr"));
    let files: Vec<String> = root.files().into_keys().collect();
    let unlisted = files.iter().find(|file| !listed.iter().any(|path| file.starts_with(path)));
    assert_eq!(unlisted, None, "is installed and not listed");
    let missing = listed.iter().find(|path| !root.0.join(path).exists());
    assert_eq!(missing, None, "is listed and not installed");
}

#[test]
fn the_pkgbuild_is_of_this_version_and_can_be_read() {
    let pkgbuild = source("packaging/PKGBUILD");
    assert!(pkgbuild.contains(concat!("pkgver=", env!("CARGO_PKG_VERSION"), "\n")), "{pkgbuild}");
    for part in PARTS {
        let installs =
            format!("PARTS={part} DESTDIR=$pkgdir PREFIX=/usr packaging/install install");
        assert!(pkgbuild.contains(&installs), "{part}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/PKGBUILD");
    if has("bash") {
        let read = Command::new("bash").arg("-n").arg(path).output().expect("it runs");
        succeeds("bash", &read);
    }
}
