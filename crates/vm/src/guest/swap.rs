// SPDX-License-Identifier: GPL-2.0-only

//! Memory on a disk.

use anyhow::{Context, Result, ensure};
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// The only disk of a scenario that asks for one.
const DISK: &str = "/dev/nvme0n1";
const PAGE: u64 = 4096;
/// The header of an area (kernel ABI, `union swap_header`): from this byte on, version and number
/// of the last page; the name at the end of the first page.
const INFORMATION: u64 = 1024;
const NAME: &[u8; 10] = b"SWAPSPACE2";

/// Has the kernel swap to the disk. Returns the bytes of it.
pub fn begin() -> Result<usize> {
    let mut disk = OpenOptions::new().read(true).write(true).open(DISK);
    let disk = disk.as_mut().ok().with_context(|| format!("there is no {DISK} to swap to"))?;
    let bytes = disk.seek(SeekFrom::End(0)).context("asking for the size of the disk")?;
    let last_page = u32::try_from(bytes / PAGE - 1).context("a disk of terabytes")?;
    let [version, last_page] = [1_u32, last_page].map(u32::to_ne_bytes);
    disk.write_all_at(&[version, last_page].concat(), INFORMATION)
        .context("writing to the disk")?;
    disk.write_all_at(NAME, PAGE - NAME.len() as u64).context("writing to the disk")?;
    disk.flush().and_then(|()| disk.sync_all()).context("writing to the disk")?;
    let path = std::ffi::CString::new(DISK).context("a name without a zero byte")?;
    // SAFETY: a terminated string that outlives the call.
    let done = unsafe { libc::swapon(path.as_ptr(), 0) } == 0;
    ensure!(done, "swapping to {DISK}: {}", std::io::Error::last_os_error());
    Ok(bytes as usize)
}
