// SPDX-License-Identifier: GPL-2.0-only

//! [`round`](pandemonium_engine::round) and the policies against a port without a
//! kernel.
//!
//! `script` generates what a machine may do, `world` plays it and writes a log, `judge` reads the
//! log. The rest are tests: what must hold in any script (`properties`), of the round alone
//! (`rounds`), for who goes first (`order`), for who gets how much (`shares`), over a restart
//! (`restart`), and of the judges, which must be able to say no (`judges`).

mod judge;
mod judges;
mod order;
mod properties;
mod restart;
mod rounds;
mod script;
mod shares;
mod world;
