// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a process shares with its forks.

use anyhow::{Context, Result};
use std::ops::Deref;
use std::ptr::NonNull;

/// A type for which all bits zero is a value, and which may be written through a shared reference.
///
/// # Safety
/// Both must hold; in practice: structs and arrays of atomics.
pub unsafe trait Zeroed: Sync {}

// SAFETY: an atomic integer is its integer, and zero is one.
unsafe impl Zeroed for std::sync::atomic::AtomicU64 {}

/// A slice in a shared anonymous mapping, zeroed and backed by pages. Later writes cause no page
/// fault that could pass for a scheduling delay.
pub struct Shared<T: Zeroed> {
    start: NonNull<T>,
    count: usize,
}

impl<T: Zeroed> Shared<T> {
    /// Maps memory for so many values.
    pub fn new(count: usize) -> Result<Shared<T>> {
        let bytes = (count * size_of::<T>()).max(1);
        // SAFETY: a fresh mapping, placed by the kernel.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("mapping {bytes} shared bytes"));
        }
        Ok(Shared {
            start: NonNull::new(start.cast()).expect("a mapping never starts at 0"),
            count,
        })
    }
}

impl<T: Zeroed> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping lives as long as self, is zeroed, and T is sound when zeroed and
        // shared (see the trait).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Zeroed> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in new(), with its size; forks keep their own mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), (self.count * size_of::<T>()).max(1)) };
    }
}
