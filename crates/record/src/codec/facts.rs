// SPDX-License-Identifier: GPL-2.0-only

//! What is known of a task as words.

use super::{Damage, WordReader, WordWriter, cpu_bits, cpu_or_none, pid_bits, pid_or_none, small};
use pandemonium_engine::facts::{CpuSet, Facts};
use pandemonium_engine::task::User;
use pandemonium_engine::topology::WORDS;

/// Writes the facts, as the last part of an entry.
pub(super) fn put(out: &mut WordWriter, facts: &Facts) {
    let Facts {
        wakeups,
        voluntary,
        involuntary,
        cpu_time,
        woken,
        slept,
        kthread,
        workqueue,
        idle_class,
        nice,
        allowed,
        kicked,
        handed_off,
        waker,
        process,
        user,
        last_cpu,
        run_interval,
        stopped,
        orders,
        ordered,
        preempted,
    } = *facts;
    out.put(wakeups);
    out.put(voluntary);
    out.put(involuntary);
    out.put(cpu_time.as_nanos());
    out.put(woken.as_nanos());
    out.put(slept.as_nanos());
    out.put(allowed.bits());
    let flags = [kthread, workqueue, idle_class, handed_off].into_iter().rev();
    let flags = flags.fold(0, |bits, flag| bits << 1 | u64::from(flag));
    let group = u64::from(allowed.group() as u8);
    out.put(
        flags << 48
            | group << 40
            | u64::from(nice as u8) << 32
            | cpu_bits(last_cpu) << 16
            | cpu_bits(kicked),
    );
    out.put(pid_bits(waker) << 32 | pid_bits(process));
    out.put(run_interval.as_nanos());
    out.put(stopped.as_nanos());
    out.put(u64::from(orders) << 32 | pid_bits(preempted));
    out.put(ordered.as_nanos());
    if user.is_known() {
        out.put(u64::from(user.as_raw()));
    }
}

/// Reads the facts, with the word of the user if the entry has one.
pub(super) fn take(input: &mut WordReader) -> Result<Facts, Damage> {
    let [wakeups, voluntary, involuntary] = [input.take()?, input.take()?, input.take()?];
    let (cpu_time, woken, slept) = (input.span()?, input.stamp()?, input.span()?);
    let bits = input.take()?;
    let rest = input.take()?;
    let allowed = match (rest >> 40) as u8 {
        u8::MAX => CpuSet::of_group(CpuSet::ALL_GROUPS, bits),
        group if usize::from(group) < WORDS => CpuSet::of_group(group.into(), bits),
        _ => return Err(Damage),
    };
    let flag = |bit: u32| rest >> (48 + bit) & 1 == 1;
    let pids = input.take()?;
    let (run_interval, stopped) = (input.span()?, input.stamp()?);
    let executed = input.take()?;
    Ok(Facts {
        wakeups,
        voluntary,
        involuntary,
        cpu_time,
        woken,
        slept,
        kthread: flag(0),
        workqueue: flag(1),
        idle_class: flag(2),
        handed_off: flag(3),
        nice: (rest >> 32) as u8 as i8,
        allowed,
        kicked: cpu_or_none(rest)?,
        last_cpu: cpu_or_none(rest >> 16)?,
        waker: pid_or_none(pids >> 32),
        process: pid_or_none(pids),
        run_interval,
        stopped,
        preempted: pid_or_none(executed),
        orders: (executed >> 32) as u32,
        ordered: input.stamp()?,
        // Recordings of format 7 do not tell it.
        user: match input.0.next() {
            None => User::UNKNOWN,
            Some(word) => known_user(*word)?,
        },
    })
}

fn known_user(word: u64) -> Result<User, Damage> {
    small(word).map(User::new).ok().filter(|user| user.is_known()).ok_or(Damage)
}
