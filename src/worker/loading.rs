// SPDX-License-Identifier: GPL-2.0-only

//! Loads the fast path and the backend, and gives this process the memory and the privileges with
//! which it schedules.

use super::{Prepared, Start};
use crate::backend::{BackendSetup, KernelPort, OpenObject};
use crate::cli::Options;
use crate::compaction::Compaction;
use crate::fast_path::{self, Config, FastPath, State};
use crate::memory::{self, Ahead, TableMemory, Unused};
use crate::{clock, libbpf_print, output, privileges, process};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::topology::CpuMask;
use pandemonium_engine::{Policy, Setup};
use pandemonium_host::failure::Failure;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Where libbpf keeps the objects, for as long as something of them is loaded.
pub struct Objects {
    fast_path: [MaybeUninit<OpenObject>; fast_path::ATTEMPTS],
    backend: MaybeUninit<OpenObject>,
}

impl Default for Objects {
    fn default() -> Self {
        Objects {
            fast_path: [const { MaybeUninit::uninit() }; fast_path::ATTEMPTS],
            backend: MaybeUninit::uninit(),
        }
    }
}

/// What is loaded. To drop it unloads the scheduler.
pub struct Loaded<'obj> {
    pub ahead: Ahead,
    pub port: KernelPort<'obj>,
    /// A kernel setting that is to be restored at the end.
    pub compaction: Option<Compaction>,
    pub fast_path: State,
    /// When the backend began to load.
    pub since: Stamp,
}

/// Loads everything, and takes over from an earlier worker. Why in this order:
/// [`schedule`](super::schedule).
pub fn load<'obj>(
    options: &Options,
    start: &Start,
    prepared: &Prepared,
    objects: &'obj mut Objects,
) -> Result<Loaded<'obj>, Failure> {
    let policy = &*prepared.policy;
    libbpf_print::set(options.verbose);
    let setup = backend_setup(options, start.setup, policy);
    let fast = load_fast_path(options, start, &mut objects.fast_path);
    prepared.housekeeping.shared.tasks.set_maps(fast.as_ref().and_then(FastPath::task_maps));
    let fast_path = state(options, fast.as_ref());
    let since = clock::now();
    let libbpf_options = options.libbpf.clone().into_bpf_open_opts();
    let table_memory = TableMemory::of(policy.waiting());
    let served = Arc::clone(&table_memory);
    let helper = process::start_helper(move || served.serve()).map_err(Failure::internal)?;
    let unused = Unused::set_aside(&table_memory);
    let compaction = Compaction::open();
    let backend = &mut objects.backend;
    let port = KernelPort::load(backend, libbpf_options, &setup, fast, options.verbose)?;
    unused.give_back(memory::for_dump(setup.exit_dump_len, options.prints_dump()));
    if !privileges::schedule() {
        output::warn("a thread of the scheduling process keeps privileges that it does not need");
    }
    let ahead = Ahead::of(table_memory, helper, policy.waiting());
    Ok(Loaded { ahead, port, compaction, fast_path, since })
}

/// The state of the fast path, for statistics.
fn state(options: &Options, fast: Option<&FastPath>) -> State {
    match fast {
        Some(fast) => State::Loaded { without: fast.missing() },
        None if options.full_user => State::None,
        None => State::Refused,
    }
}

fn backend_setup(options: &Options, setup: &Setup, policy: &dyn Policy) -> BackendSetup {
    BackendSetup {
        name: process::scheduler_name(),
        // The backend does not know of a domain: then the policy places every task.
        builtin_idle: !options.full_user && setup.domain.is_none(),
        partial: options.partial,
        numa_local: options.numa_local,
        exit_dump_len: options.dump_length(),
        slice_ns: policy.kernel_rules(clock::now()).idle_slice.as_nanos(),
        domain: preferred(setup),
        wants_domain: options.primary_domain.is_some(),
    }
}

/// The CPUs that tasks prefer; none if there is no domain.
fn preferred(setup: &Setup) -> CpuMask {
    setup.domain.as_ref().map_or(CpuMask::EMPTY, |domain| domain.cpus)
}

/// Loads the fast path, except with `--full-user`. Without it the policy decides on messages alone,
/// and a woken task waits for the next tick.
fn load_fast_path<'obj>(
    options: &Options,
    start: &Start,
    objects: &'obj mut [MaybeUninit<OpenObject>; fast_path::ATTEMPTS],
) -> Option<FastPath<'obj>> {
    if options.full_user {
        return None;
    }
    let broken = options.break_fast_path.iter().copied().collect();
    let config = Config { broken, domain: preferred(start.setup), online: start.online };
    let fast = FastPath::load(objects, &config, &start.setup.topology)
        .inspect_err(|error| {
            output::warn(&format!(
                "the fast path could not be loaded, so a task that wakes up on a busy machine \
                 waits for the next tick: {error:#}"
            ));
        })
        .ok()?;
    for part in fast.missing().iter() {
        output::warn(&format!(
            "the kernel refused a part of the fast path ({}): {}",
            part.programs().join(", "),
            part.loss()
        ));
    }
    Some(fast)
}
