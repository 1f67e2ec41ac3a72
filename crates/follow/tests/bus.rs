// SPDX-License-Identifier: GPL-2.0-only

//! The program on a bus of its own, with services and a scheduler that the test plays.

use nix::sys::socket::UnixAddr;
use rustbus::connection::ll_conn::force_finish_on_error;
use rustbus::connection::{Error, Timeout};
use rustbus::message_builder::MarshalledMessage;
use rustbus::standard_messages::{DBUS_NAME_FLAG_DO_NOT_QUEUE, request_name, unknown_method};
use rustbus::{MessageBuilder, RpcConn};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// On a busy machine a process waits for a CPU.
const PATIENCE: Duration = Duration::from_secs(60);
const AT_ONCE: Timeout = Timeout::Duration(PATIENCE);
const POWER: Property = Property {
    name: "org.freedesktop.UPower.PowerProfiles",
    path: "/org/freedesktop/UPower/PowerProfiles",
};
const GAMES: Property =
    Property { name: "com.feralinteractive.GameMode", path: "/com/feralinteractive/GameMode" };

#[derive(Clone, Copy)]
struct Property {
    name: &'static str,
    path: &'static str,
}

/// A folder for sockets, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("follow-{name}-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for the test");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    /// Ends it, and returns what it has said.
    fn end(mut self) -> String {
        self.0.kill().expect("it runs");
        let mut said = String::new();
        let errors = self.0.stderr.as_mut().expect("it is piped");
        errors.read_to_string(&mut said).expect("it prints text");
        said
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a bus that knows no services, and returns its address.
fn bus(folder: &Path) -> (Process, String) {
    let address = format!("unix:path={}", folder.join("bus").display());
    let config = format!(
        "<busconfig><type>session</type><listen>{address}</listen><auth>EXTERNAL</auth>\
         <policy context='default'><allow own='*'/><allow send_destination='*'/>\
         <allow receive_sender='*'/></policy></busconfig>"
    );
    let file = folder.join("bus.conf");
    fs::write(&file, config).expect("a configuration");
    let mut command = Command::new("dbus-daemon");
    command.arg(format!("--config-file={}", file.display()));
    command.args(["--nofork", "--nopidfile", "--print-address=1"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("dbus-daemon is installed: see .ci/setup");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    said.read_line(&mut String::new()).expect("it prints its address when it listens");
    (Process(child), address)
}

/// What a property has.
#[derive(Clone, Copy)]
enum Value {
    Text(&'static str),
    Count(i32),
    /// A text, except at the first call, which is refused.
    TextLater(&'static str),
}

/// A service with one property. It ends when this is dropped.
struct Service {
    changes: Sender<Value>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    fn start(address: &str, of: Property, value: Value) -> Service {
        let path = address.strip_prefix("unix:path=").expect("it is a path");
        let mut bus = RpcConn::connect_to_path(UnixAddr::new(path).expect("a short path"), AT_ONCE)
            .expect("a bus");
        let mut wish = request_name(of.name, DBUS_NAME_FLAG_DO_NOT_QUEUE);
        let serial = send(&mut bus, &mut wish);
        bus.wait_response(serial, AT_ONCE).expect("the name is free");
        let (changes, changed) = channel();
        let thread = thread::spawn(move || serve(bus, of, value, &changed));
        Service { changes, thread: Some(thread) }
    }

    fn change(&self, value: Value) {
        self.changes.send(value).expect("the service runs");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.changes = channel().0;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn send(bus: &mut RpcConn, message: &mut MarshalledMessage) -> u32 {
    let sent = bus.send_message(message).expect("a bus").write_all();
    sent.map_err(force_finish_on_error).expect("a bus")
}

/// Answers calls, and says each change as power-profiles-daemon and GameMode do: without its value.
fn serve(mut bus: RpcConn, of: Property, mut value: Value, changes: &Receiver<Value>) {
    loop {
        match changes.try_recv() {
            Ok(next) => {
                value = next;
                let to_all = MessageBuilder::new();
                let properties = "org.freedesktop.DBus.Properties";
                let mut signal = to_all.signal(properties, "PropertiesChanged", of.path).build();
                signal.body.push_param(of.name).expect("a text");
                send(&mut bus, &mut signal);
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        let call = match bus.wait_call(Timeout::Duration(Duration::from_millis(20))) {
            Ok(call) => call,
            Err(Error::TimedOut) => continue,
            Err(_) => return,
        };
        let mut reply = call.dynheader.make_response();
        match value {
            Value::Text(text) => reply.body.push_variant(text).expect("a text"),
            Value::Count(count) => reply.body.push_variant(count).expect("a number"),
            Value::TextLater(text) => {
                value = Value::Text(text);
                reply = unknown_method(&call.dynheader);
            }
        }
        send(&mut bus, &mut reply);
    }
}

/// A scheduler, as the members of its group see it.
struct Scheduler {
    ends: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<UnixStream>>>,
    socket: PathBuf,
}

impl Scheduler {
    /// Sends each profile that it is asked for, and by what; it refuses `refused`.
    fn start(socket: &Path, asked: Sender<(String, String)>, refused: &'static str) -> Scheduler {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("a socket");
        let (ends, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (ended, connections) = (Arc::clone(&ends), Arc::clone(&open));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                connections
                    .lock()
                    .expect("no thread panics")
                    .push(stream.try_clone().expect("an open socket"));
                let asked = asked.clone();
                thread::spawn(move || respond(stream, &asked, refused));
            }
        });
        Scheduler { ends, open, socket: socket.to_path_buf() }
    }

    /// Ends as a process does: its connections are closed, and nothing listens.
    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.socket);
        for stream in self.open.lock().expect("no thread panics").drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn respond(stream: UnixStream, asked: &Sender<(String, String)>, refused: &str) {
    let mut writer = stream.try_clone().expect("an open socket");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let request: serde_json::Value = serde_json::from_str(&line).expect("a request is JSON");
        assert_eq!(
            (&request["req"], &request["args"]["target"]),
            (&json!("stats"), &json!("tune"))
        );
        let text = |name: &str| request["args"][name].as_str().unwrap_or_default().to_owned();
        let response = match text("set").ends_with(refused) {
            true => json!({ "refused": "it contradicts a knob" }),
            false => json!({ "knobs": [] }),
        };
        let _ = writeln!(writer, "{}", json!({ "errno": 0, "args": { "resp": response } }));
        let _ = asked.send((text("set"), text("by")));
    }
}

fn follower(address: &str, socket: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pandemonium_follow"));
    command.arg("--socket").arg(socket);
    command.env("DBUS_SYSTEM_BUS_ADDRESS", address).env("DBUS_SESSION_BUS_ADDRESS", address);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    Process(command.spawn().expect("the program starts"))
}

#[track_caller]
fn expect(asked: &Receiver<(String, String)>, profile: &str, by: &str) {
    let (set, because) = asked.recv_timeout(PATIENCE).expect("it asks for a profile");
    assert_eq!((set, &*because), (format!("profile={profile}"), by));
}

#[test]
fn the_scheduler_gets_the_profile_of_the_desktop() {
    let folder = Folder::new("desktop");
    let (daemon, address) = bus(&folder.0);
    let socket = folder.0.join("tune");
    let (sender, asked) = channel();
    let scheduler = Scheduler::start(&socket, sender.clone(), "none");
    let power = Service::start(&address, POWER, Value::Text("balanced"));
    let follower = follower(&address, &socket);
    expect(&asked, "auto", "power profile balanced");
    power.change(Value::Text("power-saver"));
    expect(&asked, "powersave", "power profile power-saver");
    power.change(Value::Text("power-saver"));
    let games = Service::start(&address, GAMES, Value::Count(0));
    games.change(Value::Count(1));
    expect(&asked, "gaming", "GameMode");
    games.change(Value::Count(0));
    expect(&asked, "powersave", "power profile power-saver");
    power.change(Value::Text("performance"));
    expect(&asked, "lowlatency", "power profile performance");

    scheduler.end();
    let next = Scheduler::start(&socket, sender, "gaming");
    expect(&asked, "lowlatency", "power profile performance");
    games.change(Value::Count(2));
    expect(&asked, "gaming", "GameMode");
    drop(games);
    expect(&asked, "lowlatency", "power profile performance");

    drop(daemon);
    expect(&asked, "auto", "the end of the last game");
    let (_daemon, address) = bus(&folder.0);
    let _power = Service::start(&address, POWER, Value::Text("power-saver"));
    expect(&asked, "powersave", "power profile power-saver");
    assert!(asked.try_recv().is_err(), "it asks only when something has changed");
    let said = follower.end();
    for bus in ["the system bus", "the session bus"] {
        assert!(said.contains(&format!("{bus} cannot be followed")), "{said}");
    }
    assert!(said.contains("it contradicts a knob"), "{said}");
    next.end();
}

#[test]
fn a_service_that_refuses_to_answer_is_asked_again() {
    let folder = Folder::new("refusal");
    let (_daemon, address) = bus(&folder.0);
    let socket = folder.0.join("tune");
    let (sender, asked) = channel();
    let scheduler = Scheduler::start(&socket, sender, "none");
    let _power = Service::start(&address, POWER, Value::TextLater("power-saver"));
    let _follower = follower(&address, &socket);
    expect(&asked, "powersave", "power profile power-saver");
    scheduler.end();
}
