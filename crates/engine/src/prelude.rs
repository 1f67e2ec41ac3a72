// SPDX-License-Identifier: GPL-2.0-only

//! What a policy usually names: `use pandemonium_engine::prelude::*;`

pub use crate::explaining::Explaining;
pub use crate::knobs::{Kind, Table, Values};
pub use crate::learning::Learning;
pub use crate::orders::Order;
pub use crate::policy::{KernelRules, Policy, StandingOrders, Waiting};
pub use crate::port::MachineView;
pub use crate::registry::{Counter, PolicyType};
pub use crate::runqueue::{Runqueue, Slot};
pub use crate::setup::{Setup, TASKS_MAX};
pub use crate::table::{Entered, TaskTable};
pub use crate::task::{Arrival, Cause, CpuId, Dispatch, Pid, Placement, Reason, Request, Tier};
pub use crate::time::{Span, Stamp, Vtime};
pub use crate::{knobs, policies};
