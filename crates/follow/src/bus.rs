// SPDX-License-Identifier: GPL-2.0-only

//! Properties of services on a bus.
//!
//! A signal of the service, or a new owner of its name, says that the property may have changed.
//! Then it is read again, so no signal is interpreted. A service that does not run is not started:
//! no setting was made there. One that runs and does not answer, as at its start, is asked again.

use super::pauses::Pauses;
use anyhow::{Context, Result};
use nix::sys::socket::UnixAddr;
use rustbus::connection::ll_conn::force_finish_on_error;
use rustbus::connection::{Error, Timeout};
use rustbus::message_builder::MarshalledMessage;
use rustbus::wire::unmarshal::traits::Variant;
use rustbus::{MessageBuilder, MessageType, RpcConn, get_session_bus_path, get_system_bus_path};
use std::convert::Infallible;
use std::time::Duration;

/// The bus and its services answer at once, or hang.
const PATIENCE: Timeout = Timeout::Duration(Duration::from_secs(25));
/// The name of the bus on itself, and of its interface.
const BUS: &str = "org.freedesktop.DBus";

/// Finds the socket of a bus.
pub type Find = fn() -> Result<UnixAddr>;

/// The bus of the machine. Like every program, this one takes another from the environment.
pub fn system() -> Result<UnixAddr> {
    match std::env::var("DBUS_SYSTEM_BUS_ADDRESS") {
        Ok(address) => {
            let path = address.strip_prefix("unix:path=").context("it is no `unix:path=`")?;
            Ok(UnixAddr::new(path.split(',').next().unwrap_or_default())?)
        }
        Err(_) => Ok(get_system_bus_path()?),
    }
}

/// The bus of the user's session.
pub fn session() -> Result<UnixAddr> {
    Ok(get_session_bus_path()?)
}

/// A property of a service.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// The name of the service and of its interface.
    name: &'static str,
    path: &'static str,
    property: &'static str,
}

/// The power profile. power-profiles-daemon has had the first name since version 0.20; tuned-ppd
/// has both.
pub const POWER: &[Property] = &[
    Property {
        name: "org.freedesktop.UPower.PowerProfiles",
        path: "/org/freedesktop/UPower/PowerProfiles",
        property: "ActiveProfile",
    },
    Property {
        name: "net.hadess.PowerProfiles",
        path: "/net/hadess/PowerProfiles",
        property: "ActiveProfile",
    },
];

/// The number of registered games.
pub const GAMES: &[Property] = &[Property {
    name: "com.feralinteractive.GameMode",
    path: "/com/feralinteractive/GameMode",
    property: "ClientCount",
}];

/// The value of a property. One of a type that is not expected is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Count(u32),
}

/// What a service says of its property.
enum Answer {
    /// The service does not run, or its property is of a type that is not expected.
    Nothing,
    /// It runs, and refuses to answer or does not answer in time.
    Refused,
    Has(Value),
}

/// Calls `tell` with the value of the first of these properties that has a running service: once,
/// and again at each possible change. Returns only when the connection to the bus fails.
pub fn watch(
    find: Find,
    properties: &[Property],
    tell: &mut dyn FnMut(Option<Value>),
) -> Result<Infallible> {
    let mut bus = RpcConn::connect_to_path(find()?, PATIENCE).context("connecting to it")?;
    // This program serves no calls, and the library would keep them for ever.
    bus.set_filter(Box::new(|message| message.typ != MessageType::Call));
    for property in properties {
        listen(&mut bus, property)?;
    }
    let mut pauses = Pauses::default();
    loop {
        let answer = read_first(&mut bus, properties)?;
        let patience = match answer {
            Answer::Refused => Timeout::Duration(pauses.take()),
            Answer::Nothing | Answer::Has(_) => {
                pauses = Pauses::default();
                Timeout::Infinite
            }
        };
        tell(match answer {
            Answer::Has(value) => Some(value),
            Answer::Nothing | Answer::Refused => None,
        });
        match bus.wait_signal(patience) {
            // What was signalled by now needs one look.
            Ok(_) => while bus.try_get_signal().is_some() {},
            Err(Error::TimedOut) => {}
            Err(error) => return Err(error).context("waiting for a signal"),
        }
    }
}

/// What the first of these services says that has a value, or else whether one was refused.
fn read_first(bus: &mut RpcConn, properties: &[Property]) -> Result<Answer> {
    let mut answer = Answer::Nothing;
    for property in properties {
        match read(bus, property)? {
            Answer::Has(value) => return Ok(Answer::Has(value)),
            Answer::Refused => answer = Answer::Refused,
            Answer::Nothing => {}
        }
    }
    Ok(answer)
}

/// Has the bus send the signals of the service, and tell of a new owner of its name.
fn listen(bus: &mut RpcConn, property: &Property) -> Result<()> {
    let name = property.name;
    for rule in [
        format!("type='signal',sender='{name}',path='{}'", property.path),
        format!("type='signal',sender='{BUS}',member='NameOwnerChanged',arg0='{name}'"),
    ] {
        ask_bus(bus, "AddMatch", &rule)?.context("it gives no signals")?;
    }
    Ok(())
}

fn read(bus: &mut RpcConn, property: &Property) -> Result<Answer> {
    let Some(runs) = ask_bus(bus, "NameHasOwner", property.name)? else {
        return Ok(Answer::Refused);
    };
    if runs.body.parser().get::<bool>().ok() != Some(true) {
        return Ok(Answer::Nothing);
    }
    let get = MessageBuilder::new().call("Get").with_interface("org.freedesktop.DBus.Properties");
    let mut get = get.on(property.path).at(property.name).build();
    get.body.push_param(property.name).context("a text can be sent")?;
    get.body.push_param(property.property).context("a text can be sent")?;
    Ok(match call(bus, get)? {
        None => Answer::Refused,
        Some(reply) => value(&reply).map_or(Answer::Nothing, Answer::Has),
    })
}

fn value(reply: &MarshalledMessage) -> Option<Value> {
    let variant = reply.body.parser().get::<Variant>().ok()?;
    let count = || u32::try_from(variant.get::<i32>().ok()?).ok();
    let text = variant.get::<&str>().ok().map(|text| Value::Text(text.to_owned()));
    text.or_else(|| count().map(Value::Count))
}

/// Calls a method of the bus itself, with one text.
fn ask_bus(bus: &mut RpcConn, method: &str, text: &str) -> Result<Option<MarshalledMessage>> {
    let to_bus = MessageBuilder::new().call(method).with_interface(BUS);
    let mut message = to_bus.on("/org/freedesktop/DBus").at(BUS).build();
    message.body.push_param(text).context("a text can be sent")?;
    call(bus, message)
}

/// Sends a call, and returns the reply; `None` if what was called answers with an error, or not. An
/// error of this function is one of the connection.
fn call(bus: &mut RpcConn, mut message: MarshalledMessage) -> Result<Option<MarshalledMessage>> {
    let sent = bus.send_message(&mut message)?.write_all();
    let serial = sent.map_err(force_finish_on_error)?;
    match bus.wait_response(serial, PATIENCE) {
        Ok(reply) => Ok((reply.typ == MessageType::Reply).then_some(reply)),
        Err(Error::TimedOut) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
