// SPDX-License-Identifier: GPL-2.0-only

//! BPF arrays that are mapped into this process, so that an access costs no system call.

use anyhow::{Context, Result, ensure};
use libbpf_rs::MapCore;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// An array of records shared with the kernel.
pub struct Mapped<T> {
    base: NonNull<T>,
    len: usize,
}

impl<T> Mapped<T> {
    /// Maps all of `map`, which must have `len` records.
    pub fn new(map: &impl MapCore, len: usize) -> Result<Self> {
        Self::with(map, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_POPULATE)
    }

    /// The same, to read it only.
    pub fn read_only(map: &impl MapCore, len: usize) -> Result<Self> {
        Self::with(map, len, libc::PROT_READ, 0)
    }

    fn with(map: &impl MapCore, len: usize, access: i32, flags: i32) -> Result<Self> {
        let fits = map.value_size() as usize == size_of::<T>() && map.max_entries() as usize == len;
        ensure!(fits, "the fast path was built with another layout");
        // SAFETY: a new mapping of a whole map, whose size was just checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<T>(),
                access,
                libc::MAP_SHARED | flags,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        let error = std::io::Error::last_os_error();
        ensure!(address != libc::MAP_FAILED, "cannot map the memory of the fast path: {error}");
        Ok(Mapped { base: NonNull::new(address.cast()).context("mapped at zero")?, len })
    }

    /// Private memory, all zero, for tests.
    #[cfg(test)]
    pub fn anonymous(len: usize) -> Self {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let size = len * size_of::<T>();
        // SAFETY: a new mapping, which `drop` unmaps.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), size, access, kind | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        Mapped { base: NonNull::new(address.cast()).unwrap(), len }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A pointer to a record.
    pub fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "the index is within the mapping");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(index) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}
