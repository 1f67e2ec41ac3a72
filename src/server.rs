// SPDX-License-Identifier: GPL-2.0-only

//! A server of the `scx_stats` protocol: a request is a line of JSON, and so is its response.
//!
//! The server of that library takes lines of any length from any number of clients. This process
//! allocates from an arena of 64 MiB and ends if that is full, and with it the scheduler: a member
//! of a group that may only read could end it. So here requests, clients and waits are bounded.

use super::mutex::lock;
use super::output;
use anyhow::{Context, Result, bail};
use scx_stats::prelude::{StatsMeta, StatsRequest};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Bytes of a request, with its newline.
const REQUEST_MAX: usize = 64 << 10;
/// Bytes that are written at once: the clock is read in between.
const WRITE_MAX: usize = 16 << 10;
/// Clients without a place that can still read why. A connection that is closed at once would
/// refuse the request, and the client would not read.
const TURNED_AWAY_MAX: usize = 8;
/// The pause after a client could not be accepted. While there is no free file descriptor the next
/// attempt fails at once too, and a real-time thread would keep its CPU.
const PAUSE: Duration = Duration::from_millis(100);
/// The target of a request that names none.
const TOP: &str = "top";

/// The arguments of a request.
pub type Arguments = BTreeMap<String, String>;

/// Makes the responses of one target to one client, as whole lines.
type Responder = Box<dyn FnMut(&Arguments) -> Result<Vec<u8>>>;
type Opener = Box<dyn Fn() -> Responder + Send + Sync>;

/// What the clients of a socket can ask for.
#[derive(Default)]
pub struct Targets {
    meta: BTreeMap<String, StatsMeta>,
    openers: BTreeMap<&'static str, Opener>,
}

impl Targets {
    /// These, and the description of a struct that responses have.
    pub fn describe(mut self, meta: StatsMeta) -> Targets {
        self.meta.insert(meta.name.clone(), meta);
        self
    }

    /// These and one more. `open` makes what responds to one client.
    pub fn add<R, T>(
        mut self,
        name: &'static str,
        open: impl Fn() -> R + Send + Sync + 'static,
    ) -> Targets
    where
        R: FnMut(&Arguments) -> Result<T> + 'static,
        T: Serialize,
    {
        let open = move || {
            let mut respond = open();
            Box::new(move |args: &Arguments| line(0, &respond(args)?)) as Responder
        };
        self.openers.insert(name, Box::new(open));
        self
    }
}

/// The requests of one client. Each target is opened at the first request for it.
pub struct Session<'t> {
    targets: &'t Targets,
    responders: BTreeMap<&'t str, Responder>,
}

impl<'t> Session<'t> {
    /// A client that has not asked yet.
    pub fn of(targets: &'t Targets) -> Session<'t> {
        Session { targets, responders: BTreeMap::new() }
    }

    /// The response to a line.
    pub fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        self.execute(request).unwrap_or_else(|error| refusal(libc::EINVAL, &format!("{error:#}")))
    }

    fn execute(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let request: StatsRequest =
            serde_json::from_slice(request).context("this is no request of scx_stats")?;
        match request.req.as_str() {
            "stats" => {
                let name = request.args.get("target").map_or(TOP, String::as_str);
                let target = self.targets.openers.get_key_value(name);
                let (&name, open) = target.context("there is no such target")?;
                self.responders.entry(name).or_insert_with(open)(&request.args)
            }
            "stats_meta" => line(0, &self.targets.meta),
            _ => bail!("the requests are stats and stats_meta"),
        }
    }
}

/// What a socket gives its clients.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Clients at once.
    clients: usize,
    /// How long a client may take for a request that it has begun, and for reading a response.
    patience: Duration,
    /// Whether one request is executed after the other.
    in_turn: bool,
}

impl Limits {
    /// For the user that runs the scheduler. No request waits for another one, so that a change of
    /// knobs is early.
    pub const USER: Limits =
        Limits { clients: 64, patience: Duration::from_secs(5), in_turn: false };
    /// For the members of a group. All of them together take the memory and the CPU time of one
    /// request.
    pub const GROUP: Limits =
        Limits { clients: 16, patience: Duration::from_secs(5), in_turn: true };
}

/// Serves the targets until the process ends. Replaces the socket of an earlier scheduler. The
/// threads have the scheduling policy of the calling one.
pub fn launch(targets: Targets, limits: Limits, path: &Path) -> Result<()> {
    let shown = path.display();
    let folder = path.parent().context("a socket is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("deleting {shown}"));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("creating the socket {shown}"))?;
    let server = Arc::new(Server { targets, limits, turn: Mutex::new(()) });
    thread::Builder::new().spawn(move || server.serve_all(listener.incoming()))?;
    Ok(())
}

struct Server {
    targets: Targets,
    limits: Limits,
    /// Held while a request is executed in turn.
    turn: Mutex<()>,
}

impl Server {
    /// Serves each client in a thread of its own, while there are places.
    fn serve_all(self: &Arc<Self>, clients: impl Iterator<Item = io::Result<UnixStream>>) {
        // Each client that has a place holds it.
        let place = Arc::new(());
        let mut turned_away = VecDeque::new();
        let mut has_warned = false;
        for client in clients {
            let admitted = match client {
                Ok(client) if Arc::strong_count(&place) > self.limits.clients => {
                    self.turn_away(client, &mut turned_away);
                    Ok(())
                }
                Ok(client) => self.admit(client, Arc::clone(&place)),
                Err(error) => Err(error),
            };
            let Err(error) = admitted else { continue };
            // Once: clients could fill the log.
            if !has_warned {
                has_warned = true;
                output::warn(&format!("a client that asks for statistics is not served: {error}"));
            }
            thread::sleep(PAUSE);
        }
    }

    fn admit(self: &Arc<Self>, client: UnixStream, place: Arc<()>) -> io::Result<()> {
        let server = Arc::clone(self);
        let serve = move || {
            let _place = place;
            server.serve(&client);
        };
        thread::Builder::new().spawn(serve).map(drop)
    }

    /// Tells a client that there is no place for it. Waits for nothing.
    fn turn_away(&self, client: UnixStream, turned_away: &mut VecDeque<UnixStream>) {
        let clients = self.limits.clients;
        let told = refusal(
            libc::EBUSY,
            &format!("{clients} clients are connected, and no more are served: try again later"),
        );
        let is_told = client.set_nonblocking(true).is_ok() && (&client).write_all(&told).is_ok();
        if is_told && client.shutdown(Shutdown::Write).is_ok() {
            if turned_away.len() == TURNED_AWAY_MAX {
                turned_away.pop_front();
            }
            turned_away.push_back(client);
        }
    }

    /// Serves one client until it leaves, or asks for more than it gets.
    fn serve(&self, client: &UnixStream) {
        let mut reader = BufReader::new(client);
        let mut session = Session::of(&self.targets);
        loop {
            let request = match next_request(&mut reader, self.limits.patience) {
                Ok(request) if request.is_empty() => return,
                Ok(request) => request,
                Err((errno, sentence)) => {
                    let _ = write(client, &refusal(errno, &sentence), self.limits.patience);
                    return;
                }
            };
            let response = {
                let _turn = self.limits.in_turn.then(|| lock(&self.turn));
                session.answer(&request)
            };
            drop(request);
            if write(client, &response, self.limits.patience).is_err() {
                return;
            }
        }
    }
}

/// The next request, or nothing if the client has left. A client may be silent between two requests
/// for as long as it likes. The error is a number and a sentence.
fn next_request(
    reader: &mut BufReader<&UnixStream>,
    patience: Duration,
) -> Result<Vec<u8>, (libc::c_int, String)> {
    let too_slow =
        || (libc::ETIMEDOUT, format!("half a request came, and no more within {patience:?}"));
    let mut request = Vec::new();
    let mut due: Option<Instant> = None;
    loop {
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) || reader.get_ref().set_read_timeout(left).is_err() {
            return Err(too_slow());
        }
        let got = match reader.fill_buf() {
            Ok(got) => got,
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => continue,
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(too_slow()),
                _ => return Ok(Vec::new()),
            },
        };
        let end = got.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(got.len(), |at| at + 1);
        if request.len() + count > REQUEST_MAX {
            return Err((libc::EMSGSIZE, format!("a request has at most {REQUEST_MAX} bytes")));
        }
        // The last request of a client may have no newline.
        let is_whole = end.is_some() || got.is_empty();
        request.extend_from_slice(&got[..count]);
        reader.consume(count);
        if is_whole {
            return Ok(request);
        }
        due.get_or_insert_with(|| Instant::now() + patience);
    }
}

/// Writes a response, which the client must read in time.
fn write(mut client: &UnixStream, mut response: &[u8], patience: Duration) -> io::Result<()> {
    let due = Instant::now() + patience;
    while !response.is_empty() {
        let left = due.saturating_duration_since(Instant::now());
        // A duration of zero is an error here, and so ends this.
        client.set_write_timeout(Some(left))?;
        match client.write(&response[..response.len().min(WRITE_MAX)]) {
            Ok(written) => response = &response[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A response in the protocol; a number other than 0 tells an error.
#[derive(Serialize)]
struct Response<'r, T: ?Sized> {
    errno: libc::c_int,
    args: Resp<'r, T>,
}

#[derive(Serialize)]
struct Resp<'r, T: ?Sized> {
    resp: &'r T,
}

fn line<T: Serialize + ?Sized>(errno: libc::c_int, resp: &T) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Response { errno, args: Resp { resp } })?;
    line.push(b'\n');
    Ok(line)
}

fn refusal(errno: libc::c_int, sentence: &str) -> Vec<u8> {
    line(errno, sentence).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::PATIENCE_MS;
    use crate::procdb_file::tests::Scratch;
    use scx_stats::prelude::{StatsClient, StatsErrno};
    use std::io::Read;
    use std::path::PathBuf;

    const REQUEST: &[u8] = b"{\"req\":\"stats\"}\n";
    const BRIEF: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(10);

    /// A socket in a folder of its own. `top` responds with the arguments, `long` with 1 MiB.
    struct Socket {
        _folder: Scratch,
        path: PathBuf,
    }

    impl Socket {
        fn of(limits: Limits) -> Socket {
            let folder = Scratch::new();
            let path = folder.path().with_file_name("stats");
            let targets = Targets::default()
                .add(TOP, || |args: &Arguments| Ok(args.clone()))
                .add("long", || |_: &Arguments| Ok("x".repeat(1 << 20)));
            launch(targets, limits, &path).unwrap();
            Socket { _folder: folder, path }
        }

        fn connect(&self) -> UnixStream {
            let client = UnixStream::connect(&self.path).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            client.set_write_timeout(Some(LONG)).unwrap();
            client
        }

        /// What a client of `scx_stats` that has no connection yet gets.
        fn ask(&self) -> Result<Arguments> {
            let client = StatsClient::new().set_path(&self.path);
            client.connect(Some(PATIENCE_MS))?.request("stats", vec![("a".into(), "b".into())])
        }

        /// Asks until a place is free.
        fn await_place(&self) {
            let start = Instant::now();
            while self.ask().is_err() {
                assert!(start.elapsed() < LONG, "no place is free after {LONG:?}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// The next line that a client gets: its error number, and what it says.
    fn told(client: &UnixStream) -> (i64, String) {
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        let response: serde_json::Value = serde_json::from_str(&line).unwrap();
        (response["errno"].as_i64().unwrap(), response["args"]["resp"].to_string())
    }

    #[test]
    fn a_line_without_end_is_refused_and_takes_no_memory() {
        let socket = Socket::of(Limits::GROUP);
        let mut member = socket.connect();
        let piece = [b'x'; REQUEST_MAX];
        // 100 MiB; the kernel buffers some of it.
        let sent = (0..1_600).take_while(|_| member.write_all(&piece).is_ok()).count();
        assert!(sent < 32, "the server took {sent} pieces of 64 KiB");
        let (errno, sentence) = told(&member);
        assert_eq!(errno, i64::from(libc::EMSGSIZE), "{sentence}");
        assert!(sentence.contains("at most 65536 bytes"), "{sentence}");
        assert_eq!(socket.ask().unwrap()["a"], "b");
    }

    #[test]
    fn a_request_of_the_largest_size_is_answered() {
        let socket = Socket::of(Limits::GROUP);
        let mut client = socket.connect();
        let rest = REQUEST_MAX - REQUEST.len();
        client.write_all(&b" ".repeat(rest)).unwrap();
        client.write_all(REQUEST).unwrap();
        assert_eq!(told(&client), (0, "{}".into()));
    }

    #[test]
    fn of_200_clients_only_so_many_are_served_as_there_are_places() {
        let socket = Socket::of(Limits::GROUP);
        let clients: Vec<UnixStream> = (0..200).map(|_| socket.connect()).collect();
        let (served, others) = clients.split_at(Limits::GROUP.clients);
        for mut client in others {
            let (errno, sentence) = told(client);
            assert_eq!(errno, i64::from(libc::EBUSY), "{sentence}");
            assert!(sentence.contains("16 clients are connected"), "{sentence}");
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is over");
        }
        let refused = socket.ask().unwrap_err();
        assert!(matches!(refused.downcast_ref(), Some(StatsErrno(libc::EBUSY))), "{refused:?}");
        for mut client in served {
            client.write_all(REQUEST).unwrap();
            assert_eq!(told(client), (0, "{}".into()));
        }
        drop(clients);
        socket.await_place();
    }

    #[test]
    fn half_a_request_is_waited_for_briefly_and_a_silent_client_for_long() {
        let socket = Socket::of(Limits { patience: BRIEF, ..Limits::GROUP });
        let (mut silent, mut slow) = (socket.connect(), socket.connect());
        let start = Instant::now();
        // Each byte alone would be early enough.
        while slow.write_all(b" ").is_ok() {
            assert!(start.elapsed() < LONG, "the server still waits after {LONG:?}");
            thread::sleep(BRIEF / 10);
        }
        let (errno, sentence) = told(&slow);
        assert_eq!(errno, i64::from(libc::ETIMEDOUT), "{sentence}");
        thread::sleep(BRIEF);
        silent.write_all(REQUEST).unwrap();
        assert_eq!(told(&silent), (0, "{}".into()));
    }

    #[test]
    fn a_client_that_reads_no_response_loses_its_place() {
        let socket = Socket::of(Limits { clients: 1, patience: BRIEF, ..Limits::GROUP });
        let mut deaf = socket.connect();
        deaf.write_all(b"{\"req\":\"stats\",\"args\":{\"target\":\"long\"}}\n").unwrap();
        socket.await_place();
    }

    #[test]
    fn requests_may_come_together_and_the_last_one_without_a_newline() {
        let socket = Socket::of(Limits::USER);
        let mut client = socket.connect();
        client.write_all(&[REQUEST, REQUEST.trim_ascii_end()].concat()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "{\"errno\":0,\"args\":{\"resp\":{}}}\n".repeat(2));
    }

    #[test]
    fn a_wrong_request_is_an_error_and_does_not_end_the_connection() {
        let targets = Targets::default().add(TOP, || |_: &Arguments| Ok(()));
        let mut session = Session::of(&targets);
        let wrong: [&[u8]; 5] = [
            b"\n",
            b"\xff\n",
            b"{\"req\":\"stop\"}\n",
            b"{\"req\":\"stats\",\"args\":{\"target\":\"tune\"}}\n",
            b"{\"req\":\"stats\",\"args\":{\"target\":1}}\n",
        ];
        for request in wrong {
            let response = String::from_utf8(session.answer(request)).unwrap();
            assert!(response.starts_with("{\"errno\":22,\"args\":{\"resp\":\""), "{response}");
        }
        assert_eq!(session.answer(REQUEST), b"{\"errno\":0,\"args\":{\"resp\":null}}\n");
    }

    #[test]
    fn after_a_client_that_cannot_be_accepted_there_is_a_pause() {
        let targets = Targets::default();
        let server = Arc::new(Server { targets, limits: Limits::USER, turn: Mutex::new(()) });
        let full = || io::Error::from_raw_os_error(libc::EMFILE);
        let start = Instant::now();
        server.serve_all((0..3).map(|_| Err(full())));
        assert!(start.elapsed() >= 3 * PAUSE, "{:?}", start.elapsed());
    }
}
