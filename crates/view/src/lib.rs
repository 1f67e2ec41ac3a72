// SPDX-License-Identifier: GPL-2.0-only

//! Terminal views of a scheduler that runs: [`monitor`] shows it over time, [`top`] its tasks.
//!
//! | module | content |
//! |---|---|
//! | [`sample`], [`tasks`] | what the scheduler's statistics socket says, as plain data |
//! | [`history`], [`changes`] | the last samples, and what changed from one to the next |
//! | [`monitor`], [`top`] | the views: a model that takes news and keys, and its drawing |
//! | [`plain`] | tasks as text, for a pipe |
//! | [`terminal`] | the loop, which is the only part that touches a terminal |
//!
//! Models and drawings are pure: time is an argument, and a test draws them into memory.
//!
//! ```
//! use pandemonium_view::monitor::{Monitor, News};
//! use pandemonium_view::sample::Sample;
//! use pandemonium_view::style::Palette;
//! use pandemonium_view::terminal::{View, drawn};
//! use std::time::Duration;
//!
//! let mut view = Monitor::new(Duration::from_secs(1), Palette::plain());
//! let sample = Sample { health: "ok".into(), policy: "fifo".into(), ..Sample::default() };
//! view.news(News::Sample(Duration::from_secs(1), Box::new(sample)));
//! assert!(drawn(&view, 80, 24).contains("health: ok"));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod canvas;
pub mod changes;
pub mod history;
pub mod monitor;
pub mod plain;
pub mod sample;
pub mod style;
pub mod tasks;
pub mod terminal;
pub mod top;
