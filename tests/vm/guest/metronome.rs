// SPDX-License-Identifier: GPL-2.0-only

//! A steady tick for exact mode, invisible to the guest.
//!
//! With virtual time the CPUs take turns on one host thread, and a turn lasts until the next timer
//! of the machine: up to 2 ms in which the others stand still. The periodic interrupt of the
//! real-time clock at 8192 Hz cuts the turns to at most 122 us shared by all CPUs. The kernel was
//! told (`initcall_blacklist=cmos_init`) to leave that clock alone, so nobody ever handles the
//! interrupt.

use anyhow::{Context, Result};

/// Index and data port of the clock.
const INDEX: u16 = 0x70;
const DATA: u16 = 0x71;
const REGISTER_A: u8 = 0x0a;
const REGISTER_B: u8 = 0x0b;
/// Low four bits of register A: 32768 Hz >> (3 - 1) = 8192 Hz, the fastest it has.
const RATE_8192_HZ: u8 = 3;
/// Bit 6 of register B: periodic interrupt on.
const PERIODIC: u8 = 1 << 6;

pub fn start() -> Result<()> {
    // SAFETY: asks for port access for this thread only.
    if unsafe { libc::syscall(libc::SYS_iopl, 3) } != 0 {
        return Err(std::io::Error::last_os_error())
            .context("asking for port access to set the metronome");
    }
    let a = read(REGISTER_A);
    write(REGISTER_A, (a & 0xf0) | RATE_8192_HZ);
    let b = read(REGISTER_B);
    write(REGISTER_B, b | PERIODIC);
    // SAFETY: gives the access back.
    unsafe { libc::syscall(libc::SYS_iopl, 0) };
    Ok(())
}

fn read(register: u8) -> u8 {
    port_out(INDEX, register);
    port_in(DATA)
}

fn write(register: u8, value: u8) {
    port_out(INDEX, register);
    port_out(DATA, value);
}

fn port_out(port: u16, value: u8) {
    // SAFETY: iopl(3) holds, and these two ports touch the clock only.
    unsafe { std::arch::asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

fn port_in(port: u16) -> u8 {
    let value;
    // SAFETY: as above.
    unsafe { std::arch::asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) }
    value
}
