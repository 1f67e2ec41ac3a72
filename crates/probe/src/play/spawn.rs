// SPDX-License-Identifier: GPL-2.0-only

//! How the tasks of a play come into being: a process for each row and a thread for each task of
//! it, or one process that keeps the jobs of a group going.

use super::player::{Player, World};
use super::seat::Row;
use crate::tasks::clock::sleep_until;
use crate::tasks::process::{die_with_parent, stand_still, take_name_of};
use crate::tasks::work;
use anyhow::{Result, bail, ensure};
use pandemonium_sim::workload::{Group, Place, Step};
use std::thread;

/// Stack of a thread: it computes and makes system calls.
const STACK: usize = 64 << 10;

/// The running processes of a group. Dropping the value kills them.
pub struct Processes(Vec<libc::pid_t>);

impl Processes {
    /// The number of processes.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for &pid in &self.0 {
            // SAFETY: children of this process, not yet waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        self.0.iter().for_each(|&pid| crate::tasks::load::end(pid));
    }
}

/// Starts the processes of a group; their tasks wait at the gate. This process has one thread.
pub fn start(world: &World, number: usize) -> Result<Processes> {
    let group = &world.workload.groups[number];
    ensure!(!group.kthread, "{}: kernel threads can be simulated only", group.comm);
    let mut processes = Processes(Vec::new());
    let exits = group.programs.iter().flatten().any(|step| *step == Step::Exit);
    let forks = group.programs.iter().flatten().any(|step| *step == Step::Fork);
    match () {
        () if group.forked => {}
        () if exits => processes.fork(world, group, |start| keep_jobs(world, number, start))?,
        () if group.threads && !forks => {
            processes.fork(world, group, |start| threads(world, number, 0..group.rows, start))?;
        }
        () => {
            for row in 0..group.rows {
                processes
                    .fork(world, group, |start| threads(world, number, row..row + 1, start))?;
            }
        }
    }
    Ok(processes)
}

impl Processes {
    /// Starts a process that waits at the gate and runs `body` from the start of its group on.
    fn fork(&mut self, world: &World, group: &Group, body: impl Fn(u64)) -> Result<()> {
        // SAFETY: this process has one thread; the child runs `body` and exits or is killed.
        match unsafe { libc::fork() } {
            -1 => bail!("starting {}: {}", group.comm, std::io::Error::last_os_error()),
            0 => {
                die_with_parent();
                set_class(world, group);
                let start = world.control.wait() + group.start.as_nanos();
                body(start);
                stand_still()
            }
            pid => self.0.push(pid),
        }
        Ok(())
    }
}

/// Plays some rows of a group, a thread for each task but the first, which is this one.
fn threads(world: &World, number: usize, rows: std::ops::Range<u32>, start: u64) {
    let group = &world.workload.groups[number];
    let made: Result<Vec<Row>> = rows.clone().map(|_| Row::new(group)).collect();
    let Ok(made) = made else { return world.control.count_failed() };
    let seats = || {
        rows.clone()
            .zip(&made)
            .flat_map(|(at, row)| (0..group.row).map(move |place| (at, row, place)))
    };
    let play = |(at, row, place): (u32, &Row, u32)| {
        // The order in which the simulator creates the tasks of a row.
        let index = u64::from(at * group.row + (group.row - 1 - place));
        set_up(world, group, index);
        sleep_until(start + u64::from(at) * group.spread.as_nanos());
        Player::new(world, row, number, place, index).play();
    };
    thread::scope(|scope| {
        for seat in seats().skip(1) {
            let thread = thread::Builder::new().stack_size(STACK);
            if thread.spawn_scoped(scope, move || play(seat)).is_err() {
                world.control.count_failed();
            }
        }
        seats().take(1).for_each(play);
    });
}

/// Keeps the tasks of a group going that exit: starts each again when it has ended.
fn keep_jobs(world: &World, number: usize, start: u64) {
    let group = &world.workload.groups[number];
    if group.threads {
        return keep_threads(world, number, start);
    }
    let mut next = 0;
    for row in 0..group.rows {
        sleep_until(start + u64::from(row) * group.spread.as_nanos());
        fork_job(world, number, next);
        next += 1;
    }
    // SAFETY: waits for any child until there is none; the status is not wanted.
    while unsafe { libc::wait(std::ptr::null_mut()) } > 0 {
        if group.again {
            fork_job(world, number, next);
            next += 1;
        }
    }
}

fn fork_job(world: &World, number: usize, index: u64) {
    // SAFETY: this process has one thread; the child plays its program and exits.
    match unsafe { libc::fork() } {
        -1 => world.control.count_failed(),
        0 => {
            die_with_parent();
            play_job(world, number, index);
            // SAFETY: plain exit.
            unsafe { libc::_exit(0) }
        }
        _ => {}
    }
}

/// The same with threads: one that waits for each that works.
fn keep_threads(world: &World, number: usize, start: u64) {
    let group = &world.workload.groups[number];
    let keep = |row: u32| {
        sleep_until(start + u64::from(row) * group.spread.as_nanos());
        for index in (u64::from(row)..).step_by(group.rows as usize) {
            let ended = thread::scope(|scope| {
                let builder = thread::Builder::new().stack_size(STACK);
                let job = builder.spawn_scoped(scope, || play_job(world, number, index));
                job.is_ok_and(|job| job.join().is_ok())
            });
            if !ended {
                world.control.count_failed();
                sleep_until(crate::tasks::clock::now_ns() + 1_000_000);
            }
            if !group.again {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for row in 0..group.rows {
            let keep = &keep;
            if thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || keep(row))
                .is_err()
            {
                world.control.count_failed();
            }
        }
    });
}

fn play_job(world: &World, number: usize, index: u64) {
    set_up(world, &world.workload.groups[number], index);
    Player::new(world, &Row::begun(None), number, 0, index).play();
}

/// Gives the calling thread the name and the CPUs of a task of the group.
fn set_up(world: &World, group: &Group, index: u64) {
    take_name_of(&group.comm.to_string());
    let cpus = world.cpus.len() as u32;
    let may = |cpu: u32| match group.place {
        Place::Anywhere => true,
        Place::Within(mask) => mask.holds(cpu),
        Place::OneEach => u64::from(cpu) == index % u64::from(cpus),
    };
    let allowed = (0..cpus).filter(|cpu| may(*cpu)).map(|cpu| world.cpus[cpu as usize]);
    if group.place != Place::Anywhere && !work::allow(allowed) {
        world.control.count_refused();
    }
}

/// Gives the process the nice value and the class of the group; threads and children inherit them.
fn set_class(world: &World, group: &Group) {
    let class = match (group.idle_class, group.batch_class) {
        (true, _) => libc::SCHED_IDLE,
        (_, true) => libc::SCHED_BATCH,
        _ => libc::SCHED_OTHER,
    };
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the caller; the parameter block lives on the stack.
    let refused = unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, i32::from(group.nice)) != 0
            || libc::sched_setscheduler(0, class, &priority) != 0
    };
    if refused {
        world.control.count_refused();
    }
}
