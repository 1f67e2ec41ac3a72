// SPDX-License-Identifier: GPL-2.0-only

//! [`round`](pandemonium_engine::round) and the policies against a port without a
//! kernel.
//!
//! `script` generates the events of a machine, `world` runs them and writes a log, `checkers` read
//! the log. The tests are of properties of any script (`properties`), the round alone (`rounds`),
//! the order of tasks (`order`), shares of CPU time (`shares`), restarts (`restart`), treatments
//! (`assigned`), CPUs that come or go (`topology`), and the checkers themselves, which must be able
//! to fail (`checkers_fail`).

mod assigned;
mod checkers;
mod checkers_fail;
mod order;
mod properties;
mod restart;
mod rounds;
mod script;
mod shares;
mod topology;
mod world;
