// SPDX-License-Identifier: GPL-2.0-only

//! Regular timers for exact mode, which the guest's kernel does not notice.
//!
//! With virtual time the CPUs take turns on one host thread. A turn lasts until the machine's next
//! timer, divided by the number of CPUs: up to 2 ms in which the other CPUs do not run. So this
//! module starts timers of the machine's HPET that Linux does not use. They count periods with
//! their interrupts off, and each expiry ends a turn.
//!
//! At every timer QEMU (10.0, `rr_cpu_thread_fn`) also ends each CPU's next turn before it begins,
//! and divides the time that is then left until the next timer. Of two CPUs the first gets 1/2 +
//! 1/8 of the time between two timers, the second 1/4 + 1/8. If fewer nanoseconds than CPUs are
//! left at the end, the first CPU takes them and the second finds none left, so of four CPUs the
//! third begins after the timer. So timers at equal distances favour the same CPUs for ever. Which
//! CPU begins depends on the remainder of the last division; the pattern of distances below makes
//! it change.

use anyhow::{Context, Result, ensure};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

/// Physical address of the HPET on a PC.
const HPET: libc::off_t = 0xfed0_0000;
const SIZE: usize = 4096;

/// Offsets of the registers in bytes. The upper half of the first one is the counter's period in
/// femtoseconds.
const CAPABILITIES: usize = 0x00;
const CONFIGURATION: usize = 0x10;
const COUNTER: usize = 0xf0;
const TIMER: usize = 0x140;
const COMPARATOR: usize = 0x148;
const TIMER_STEP: usize = 0x20;

/// Bit of the configuration: the counter runs.
const RUNNING: u64 = 1;
/// Bits of a timer's configuration: periodic; the next write sets the first expiry, and the one
/// after it the period; a pin of the interrupt controller that nothing uses. The interrupt stays
/// off.
const PERIODIC: u64 = 1 << 3;
const SET_FIRST: u64 = 1 << 6;
const UNUSED_PIN: u64 = 23 << 9;

/// Times between two expiries in turn, for up to two CPUs and for more, where an instruction takes
/// one nanosecond. Where it takes more they are as many times longer. They were found by trying
/// patterns in a model of QEMU's loop, which agrees with the shares of hogs bound to one CPU each:
/// a half each of two CPUs, and 0.29, 0.24, 0.25 and 0.22 of the instructions on four. With an
/// expiry every 20 us the shares were 0.62 and 0.38, and 0.14, 0.14, 0.39 and 0.33. Shorter times
/// cost the host more, because each turn is an entry into the emulator.
const FOR_TWO: &[u64] = &[20, 20_000];
const FOR_MORE: &[u64] = &[6_670, 20, 20_000];
/// Time until the first expiry. All timers must be set before it.
const SOON_NS: u64 = 2_000_000;
/// Time until the expiry of a timer that is stopped: a day.
const NEVER_NS: u64 = 86_400_000_000_000;

/// Starts the timers for so many CPUs that take `instruction_ns` for each instruction.
pub fn start(cpus: usize, instruction_ns: u32) -> Result<()> {
    let registers = Registers::map()?;
    registers.write(CONFIGURATION, registers.read(CONFIGURATION) | RUNNING);
    let pattern = pattern(cpus);
    let ticks = |instructions| registers.ticks(instructions * u64::from(instruction_ns));
    let period = ticks(pattern.iter().sum())?;
    let mut first = registers.read(COUNTER) + registers.ticks(SOON_NS)?;
    for (timer, &pause) in pattern.iter().enumerate() {
        registers.start_timer(timer, first, period)?;
        first += ticks(pause)?;
    }
    Ok(())
}

/// Stops the timers of so many CPUs. The emulator wakes up at each: while the machine idles for
/// long, it takes a tenth of the time without them.
pub fn stop(cpus: usize) -> Result<()> {
    let registers = Registers::map()?;
    let never = registers.read(COUNTER) + registers.ticks(NEVER_NS)?;
    (0..pattern(cpus).len()).for_each(|timer| registers.stop_timer(timer, never));
    Ok(())
}

fn pattern(cpus: usize) -> &'static [u64] {
    if cpus <= 2 { FOR_TWO } else { FOR_MORE }
}

/// The mapped registers. They stay mapped, because the agent lives as long as the machine.
struct Registers(*mut u64);

impl Registers {
    fn map() -> Result<Registers> {
        Self::map_device().context(
            "mapping the HPET for the metronome: exact mode needs a kernel with /dev/mem \
             (CONFIG_DEVMEM)",
        )
    }

    fn map_device() -> std::io::Result<Registers> {
        let memory = OpenOptions::new().read(true).write(true).open("/dev/mem")?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: maps a page of a device that no other code of this process uses.
        let page = unsafe {
            let descriptor = memory.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), SIZE, access, libc::MAP_SHARED, descriptor, HPET)
        };
        if page == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Registers(page.cast()))
    }

    /// Starts a timer that expires at `first` and then in every period.
    fn start_timer(&self, timer: usize, first: u64, period: u64) -> Result<()> {
        let offset = timer * TIMER_STEP;
        self.write(TIMER + offset, PERIODIC | SET_FIRST | UNUSED_PIN);
        self.write(COMPARATOR + offset, first);
        self.write(COMPARATOR + offset, period);
        ensure!(self.read(COMPARATOR + offset) == first, "timer {timer} cannot be set");
        Ok(())
    }

    /// Makes a timer expire at `never` only.
    fn stop_timer(&self, timer: usize, never: u64) {
        let offset = timer * TIMER_STEP;
        self.write(TIMER + offset, UNUSED_PIN);
        self.write(COMPARATOR + offset, never);
    }

    /// A time in ticks of the counter.
    fn ticks(&self, ns: u64) -> Result<u64> {
        let femtoseconds = self.read(CAPABILITIES) >> 32;
        let is_valid = (1..=100_000_000).contains(&femtoseconds);
        ensure!(is_valid, "the machine has no HPET for the metronome");
        Ok((u128::from(ns) * 1_000_000 / u128::from(femtoseconds)) as u64)
    }

    fn read(&self, register: usize) -> u64 {
        // SAFETY: within the mapped page, and aligned: all registers are multiples of 8.
        unsafe { self.0.byte_add(register).read_volatile() }
    }

    fn write(&self, register: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.byte_add(register).write_volatile(value) }
    }
}
