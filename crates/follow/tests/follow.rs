// SPDX-License-Identifier: GPL-2.0-only

//! The program beside a bus of its own and a socket like the scheduler's. Without dbus-daemon
//! nothing is tested here.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use zbus::blocking::{Connection, connection::Builder};

/// Longer than any of the steps takes.
const LIMIT: Duration = Duration::from_secs(20);

struct Power(String);

#[zbus::interface(name = "net.hadess.PowerProfiles")]
impl Power {
    #[zbus(property)]
    fn active_profile(&self) -> String {
        self.0.clone()
    }
}

struct Games(i32);

#[zbus::interface(name = "com.feralinteractive.GameMode")]
impl Games {
    #[zbus(property)]
    fn client_count(&self) -> i32 {
        self.0
    }
}

/// A child that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bus, its address, and the folder of this test.
fn bus(name: &str) -> Option<(Ends, String, PathBuf)> {
    let folder = std::env::temp_dir().join(format!("follow-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut daemon = Command::new("dbus-daemon");
    daemon.args(["--session", "--nofork", "--print-address"]);
    daemon.arg(format!("--address=unix:path={}/bus", folder.display())).stdout(Stdio::piped());
    let mut daemon = Ends(daemon.spawn().ok()?);
    let mut address = String::new();
    let printed = daemon.0.stdout.take().unwrap();
    BufReader::new(printed).read_line(&mut address).unwrap();
    Some((daemon, address.trim().into(), folder))
}

fn follow(address: &str, folder: &std::path::Path) -> Command {
    let mut follow = Command::new(env!("CARGO_BIN_EXE_pandemonium_follow"));
    follow.env("DBUS_SYSTEM_BUS_ADDRESS", address).env("DBUS_SESSION_BUS_ADDRESS", address);
    follow.arg("--socket").arg(folder.join("stats"));
    follow
}

/// Answers like the scheduler, and passes on what it is asked for.
fn serve(path: PathBuf) -> Receiver<String> {
    let (send, receive) = channel();
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let request: serde_json::Value = serde_json::from_str(&line).unwrap();
            let args = |key: &str| request["args"][key].as_str().unwrap_or_default().to_owned();
            send.send(format!("{} by {}", args("set"), args("by"))).unwrap();
            stream.write_all(b"{\"errno\":0,\"args\":{\"resp\":{\"knobs\":[]}}}\n").unwrap();
            kept.push(stream);
        }
    });
    receive
}

#[test]
fn the_profile_follows_the_power_profile_and_games() {
    let Some((_daemon, address, folder)) = bus("profiles") else { return };
    let (power_path, games_path) = ("/net/hadess/PowerProfiles", "/com/feralinteractive/GameMode");
    let power = Builder::address(address.as_str()).unwrap();
    let power = power.serve_at(power_path, Power("balanced".into())).unwrap();
    let power: Connection = power.name("net.hadess.PowerProfiles").unwrap().build().unwrap();
    let asked = serve(folder.join("stats"));
    let mut command = follow(&address, &folder);
    let _follower = Ends(command.stderr(Stdio::null()).spawn().unwrap());
    let next = || asked.recv_timeout(LIMIT).unwrap();
    assert_eq!(next(), "profile=auto by power profile balanced");

    let set_power = |profile: &str| {
        let server = power.object_server();
        let interface = server.interface::<_, Power>(power_path).unwrap();
        interface.get_mut().0 = profile.into();
        let changed = interface.get().active_profile_changed(interface.signal_emitter());
        zbus::block_on(changed).unwrap();
    };
    set_power("power-saver");
    assert_eq!(next(), "profile=powersave by power profile power-saver");
    set_power("performance");
    assert_eq!(next(), "profile=auto by power profile performance");

    // GameMode comes, with a game, and goes.
    let games = Builder::address(address.as_str()).unwrap();
    let games = games.serve_at(games_path, Games(1)).unwrap();
    let games: Connection = games.name("com.feralinteractive.GameMode").unwrap().build().unwrap();
    assert_eq!(next(), "profile=gaming by GameMode");
    games.close().unwrap();
    assert_eq!(next(), "profile=auto by power profile performance");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn once_prints_the_profile_and_a_missing_bus_is_an_error_in_words() {
    let Some((_daemon, address, folder)) = bus("once") else { return };
    let once = follow(&address, &folder).arg("--once").output().unwrap();
    let said = String::from_utf8(once.stdout).unwrap();
    assert_eq!(
        (once.status.code(), said.as_str()),
        (Some(0), "auto (by no power profile and no game)\n")
    );
    let nowhere = follow("unix:path=/nowhere/bus", &folder).output().unwrap();
    let said = String::from_utf8(nowhere.stderr).unwrap();
    assert_eq!(nowhere.status.code(), Some(1), "{said}");
    assert!(said.contains("the system bus cannot be reached") && said.contains("neither bus"));
    std::fs::remove_dir_all(&folder).unwrap();
}
