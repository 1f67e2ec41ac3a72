// SPDX-License-Identifier: GPL-2.0-only

//! The engine of a CPU scheduler in user space: the types that travel between kernel and policy,
//! the round that joins the two, and what policies are made of.
//!
//! ```text
//! kernel --ring--> decode --> on_arrival --> queue --> next --> dispatch --user ring--> kernel
//!                    task      policy       runqueue   policy    round
//! ```
//!
//! A [`Policy`] decides and does nothing else. The crate is `no_std`, has no dependency and forbids
//! unsafe code, so a clock, a file, a thread, a lock or a hash map does not even resolve here: time
//! is an argument, one [`Stamp`](time::Stamp) a round, and equal inputs give equal decisions on
//! every machine. What touches the kernel is an implementation of [`Port`] somewhere else.
//!
//! A whole policy, first come, first served, and one round of it:
//!
//! ```
//! use pandemonium_engine::prelude::*;
//! use pandemonium_engine::task::RawArrival;
//! use pandemonium_engine::{Full, Limits, Port, round};
//!
//! struct Fifo {
//!     table: TaskTable<()>,
//!     queue: Runqueue,
//! }
//!
//! impl Policy for Fifo {
//!     fn arrive(&mut self, now: Stamp, arrival: Arrival, _view: &MachineView) {
//!         if let Some(slot) = self.table.enter(now, arrival).to_queue() {
//!             self.queue.insert(slot, Vtime::from_raw(now.as_nanos()));
//!         }
//!     }
//!     fn next(&mut self, _now: Stamp, view: &MachineView) -> Option<Dispatch> {
//!         let (slot, key) = self.queue.pop()?;
//!         let slice = Span::from_millis(4);
//!         Some(self.table.leave(slot).dispatch(view, Tier::Interactive, slice, key))
//!     }
//!     fn refused(&mut self, dispatch: Dispatch) {
//!         self.table.put_back(&dispatch, &mut self.queue);
//!     }
//!     fn exit(&mut self, pid: Pid) {
//!         self.table.remove(pid, &mut self.queue);
//!     }
//!     fn waiting(&self) -> &dyn Waiting {
//!         &self.table
//!     }
//! }
//!
//! /// One message, and the decisions that come back.
//! struct Machine(Option<Arrival>, Vec<Dispatch>);
//!
//! impl Port for Machine {
//!     fn recv(&mut self) -> Option<Arrival> {
//!         self.0.take()
//!     }
//!     fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
//!         self.1.push(*dispatch);
//!         Ok(())
//!     }
//!     fn kick(&mut self, _cpu: CpuId) {}
//!     fn view(&self) -> &MachineView {
//!         const { &MachineView::NONE }
//!     }
//! }
//!
//! let arrival = RawArrival { pid: 7, weight: 100, ..RawArrival::default() }.decode().unwrap();
//! let mut machine = Machine(Some(arrival), Vec::new());
//! let mut policy = Fifo { table: TaskTable::new(16), queue: Runqueue::new(16) };
//! let done = round(Stamp::from_nanos(1), &mut machine, &mut policy, Limits::KERNEL);
//! assert_eq!((done.sent, machine.1[0].pid.as_raw()), (1, 7));
//! ```
//!
//! Reading order: [`time`] and [`task`] are the vocabulary; [`policy`], [`port`] and
//! [`round`](mod@round) are the seam between policy and mechanism; [`runqueue`], [`table`] and
//! [`procdb`] are what policies are built from.

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]
#![warn(missing_docs)]

extern crate alloc;

pub mod adapting;
pub mod durations;
pub mod explaining;
pub mod facts;
pub mod fates;
pub mod fine;
pub mod histogram;
mod index;
pub mod knobs;
pub mod learning;
mod list;
pub mod orders;
pub mod placement;
pub mod policy;
pub mod port;
pub mod prelude;
pub mod procdb;
pub mod registry;
pub mod reserve;
pub mod round;
pub mod runqueue;
pub mod setup;
pub mod table;
pub mod task;
pub mod text;
mod tier;
pub mod time;
pub mod topology;
pub mod treatment;
mod usual;

pub use explaining::Explaining;
pub use learning::{Learning, Memo};
pub use orders::Order;
pub use policy::{KernelRules, Mode, Policy, StandingOrders, Waiting};
pub use port::{Full, MachineView, Port};
pub use registry::{PolicyInfo, PolicyType};
pub use round::{Limits, Round, round};
pub use setup::{NAMES_MAX, Setup, TASKS_MAX};
