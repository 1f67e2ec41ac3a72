// SPDX-License-Identifier: GPL-2.0-only

//! D-Bus: properties of services, followed by their signals. No service is started for it.

use std::sync::mpsc::Sender;
use std::thread;
use zbus::blocking::{Connection, MessageIterator, fdo::DBusProxy};
use zbus::message::Type;
use zbus::names::BusName;
use zbus::zvariant::OwnedValue;
use zbus::{MatchRule, Result};

/// A bus.
#[derive(Clone, Copy, Debug)]
pub enum Bus {
    System,
    Session,
}

/// A property of a service.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    pub service: &'static str,
    pub path: &'static str,
    pub interface: &'static str,
    pub name: &'static str,
}

/// The power profile under its names, the newer one first.
pub const POWER: [Property; 2] = [
    Property {
        service: "org.freedesktop.UPower.PowerProfiles",
        path: "/org/freedesktop/UPower/PowerProfiles",
        interface: "org.freedesktop.UPower.PowerProfiles",
        name: "ActiveProfile",
    },
    Property {
        service: "net.hadess.PowerProfiles",
        path: "/net/hadess/PowerProfiles",
        interface: "net.hadess.PowerProfiles",
        name: "ActiveProfile",
    },
];
/// The number of games.
pub const GAMES: [Property; 1] = [Property {
    service: "com.feralinteractive.GameMode",
    path: "/com/feralinteractive/GameMode",
    interface: "com.feralinteractive.GameMode",
    name: "ClientCount",
}];

/// A bus to which some properties are followed.
pub struct Watch {
    bus: Bus,
    properties: &'static [Property],
    connection: Connection,
    signals: MessageIterator,
}

impl Watch {
    /// Connects to the bus, and asks it for signals about the properties.
    pub fn start(bus: Bus, properties: &'static [Property]) -> Result<Watch> {
        let connection = match bus {
            Bus::System => Connection::system(),
            Bus::Session => Connection::session(),
        }?;
        // Before the rules, so that no signal comes in between.
        let signals = MessageIterator::from(&connection);
        let proxy = DBusProxy::new(&connection)?;
        for property in properties {
            let changed = MatchRule::builder()
                .msg_type(Type::Signal)
                .sender(property.service)?
                .path(property.path)?
                .interface("org.freedesktop.DBus.Properties")?
                .build();
            let came_or_went = MatchRule::builder()
                .msg_type(Type::Signal)
                .sender("org.freedesktop.DBus")?
                .member("NameOwnerChanged")?
                .arg(0, property.service)?
                .build();
            proxy.add_match_rule(changed)?;
            proxy.add_match_rule(came_or_went)?;
        }
        Ok(Watch { bus, properties, connection, signals })
    }

    /// The value of the first property of which the service runs.
    pub fn value(&self) -> Option<OwnedValue> {
        self.properties.iter().find_map(|property| self.read(property).ok().flatten())
    }

    fn read(&self, property: &Property) -> Result<Option<OwnedValue>> {
        let name = BusName::try_from(property.service)?;
        if !DBusProxy::new(&self.connection)?.name_has_owner(name)? {
            return Ok(None);
        }
        let reply = self.connection.call_method(
            Some(property.service),
            property.path,
            Some("org.freedesktop.DBus.Properties"),
            "Get",
            &(property.interface, property.name),
        )?;
        reply.body().deserialize::<OwnedValue>().map(Some)
    }

    /// Sends the value after each signal, from a thread that ends with the bus or the receiver. At
    /// the end of the bus it sends that.
    pub fn run(mut self, send: Sender<(Bus, Option<Option<OwnedValue>>)>) {
        thread::spawn(move || {
            while let Some(message) = self.signals.next() {
                let is_signal = message.is_ok_and(|message| message.message_type() == Type::Signal);
                if is_signal && send.send((self.bus, Some(self.value()))).is_err() {
                    return;
                }
            }
            let _ = send.send((self.bus, None));
        });
    }
}
