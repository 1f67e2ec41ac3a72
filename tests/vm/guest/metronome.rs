// SPDX-License-Identifier: GPL-2.0-only

//! A steady beat for exact mode, invisible to the guest.
//!
//! With virtual time the CPUs take turns on one host thread. A turn lasts until the next timer of
//! the machine, divided by the number of CPUs: up to 2 ms in which the others stand still. The
//! third timer of the machine's HPET, which Linux leaves alone, cuts turns short: it counts periods
//! with its interrupt switched off.

use anyhow::{Context, Result, ensure};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

/// Where a PC has its HPET.
const HPET: libc::off_t = 0xfed0_0000;
const SIZE: usize = 4096;

/// Registers, in bytes from the beginning. The counter's period is the upper half of the first, in
/// femtoseconds.
const CAPABILITIES: usize = 0x00;
const CONFIGURATION: usize = 0x10;
const COUNTER: usize = 0xf0;
const TIMER: usize = 0x140;
const COMPARATOR: usize = 0x148;

/// In the configuration: the counter runs.
const RUNNING: u64 = 1;
/// In a timer's: periodic; the next write sets the first beat, and the one after it the period; a
/// pin of the interrupt controller that nothing uses. The interrupt itself stays off.
const PERIODIC: u64 = 1 << 3;
const SET_FIRST: u64 = 1 << 6;
const UNUSED_PIN: u64 = 23 << 9;

/// The CPUs share this between two beats. Shorter costs the host time: each turn is an entry into
/// the emulator.
const BEAT_NS: u64 = 20_000;
/// Beats until the first one: the period has to be written before it.
const SOON: u64 = 100;

pub fn start() -> Result<()> {
    let registers = Registers::map().context(
        "mapping the HPET for the metronome: exact mode needs a kernel with /dev/mem \
         (CONFIG_DEVMEM)",
    )?;
    let femtoseconds = registers.read(CAPABILITIES) >> 32;
    ensure!((1..=100_000_000).contains(&femtoseconds), "the machine has no HPET for the metronome");
    let beat = BEAT_NS * 1_000_000 / femtoseconds;
    registers.write(CONFIGURATION, registers.read(CONFIGURATION) | RUNNING);
    registers.write(TIMER, PERIODIC | SET_FIRST | UNUSED_PIN);
    let first = registers.read(COUNTER) + beat * SOON;
    registers.write(COMPARATOR, first);
    registers.write(COMPARATOR, beat);
    ensure!(registers.read(COMPARATOR) == first, "the metronome cannot be set");
    Ok(())
}

/// The mapped registers. They stay mapped: the agent lives as long as the machine.
struct Registers(*mut u64);

impl Registers {
    fn map() -> std::io::Result<Registers> {
        let memory = OpenOptions::new().read(true).write(true).open("/dev/mem")?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: maps a page of a device, of which nothing else in this process knows.
        let page = unsafe {
            let descriptor = memory.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), SIZE, access, libc::MAP_SHARED, descriptor, HPET)
        };
        if page == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Registers(page.cast()))
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
