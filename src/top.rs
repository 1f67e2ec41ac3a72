// SPDX-License-Identifier: GPL-2.0-only

//! `top`: the tasks of the running scheduler, in a terminal or as text.

use super::cli::TopArguments;
use super::group_socket::Grant;
use super::{client, explain, output, task_list};
use anyhow::anyhow;
use pandemonium_host::failure::Failure;
use pandemonium_view::plain;
use pandemonium_view::tasks::TaskList;
use pandemonium_view::terminal::{self, Inputs};
use pandemonium_view::top::{Explain, News, Top};
use scx_stats::prelude::StatsClient;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// What a failure to connect says.
const WHAT: &str = "list its tasks";
const COMMAND: &str = "top";
/// Waits over this are told one by one in an explanation.
const OVER_US: u64 = 1_000;

/// Runs the command.
pub fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let interval = Duration::from_secs_f64(arguments.interval);
    if !arguments.once && client::has_terminal() {
        client::expect_permission(WHAT, COMMAND)?;
        return view(arguments, interval);
    }
    let mut client = client::connect_as(Grant::Statistics, WHAT, COMMAND)?;
    request(&mut client)?;
    loop {
        thread::sleep(interval);
        let list = request(&mut client)?;
        output::print(&plain::table(&list, arguments.sort, arguments.rows));
        if arguments.once {
            return Ok(());
        }
    }
}

fn request(client: &mut StatsClient) -> Result<TaskList, Failure> {
    let request = vec![("target".into(), task_list::TARGET.into())];
    let list = client.request::<TaskList>("stats", request);
    list.map_err(|error| Failure::Internal(error.context("the scheduler that runs lists no tasks")))
}

fn view(arguments: &TopArguments, interval: Duration) -> Result<(), Failure> {
    let (inputs, received) = Inputs::new();
    client::end_on_signal(&inputs)?;
    let (asked, questions) = channel();
    inputs.spawn(move |inputs| gather(inputs, interval, &questions));
    let mut top = Top::new(arguments.sort, client::palette());
    let ask = |question: Explain| {
        let _ = asked.send(question);
    };
    terminal::run(&mut top, &inputs, &received, ask).map_err(Failure::internal)
}

/// Passes on the tasks every interval, and what the view asks for at once.
fn gather(inputs: &Inputs<News>, interval: Duration, questions: &Receiver<Explain>) {
    let mut explained = None;
    let pause = |wait: Duration| loop {
        match questions.recv_timeout(wait) {
            Ok(Explain(pid)) => {
                explained = pid;
                answer(inputs, explained);
            }
            Err(RecvTimeoutError::Timeout) => {
                answer(inputs, explained);
                return true;
            }
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    };
    client::follow(Some(task_list::TARGET), interval, pause, |list| {
        inputs.news(list.map_or(News::Waiting, News::Tasks))
    });
}

/// Asks about the task that is explained, if one is, and passes the answer on.
fn answer(inputs: &Inputs<News>, pid: Option<i32>) {
    let Some(pid) = pid else { return };
    let lines = client::connect_now()
        .map_err(|error| {
            anyhow!(client::unconnected(error, "ask about a task", COMMAND).to_string())
        })
        .and_then(|mut client| explain::ask(&mut client, pid, OVER_US))
        .unwrap_or_else(|error| vec![error.to_string()]);
    inputs.news(News::Explained(pid, lines));
}
