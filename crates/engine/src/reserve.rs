// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a table has allocated for tasks that do not exist yet.
//!
//! A table allocates all its memory at the start, because a round may not allocate, and writes to
//! it record by record, from the front, as tasks appear. A driver may take the physical memory
//! behind the rest, as long as it puts it back before it [opens](crate::Waiting::open) these
//! records to the table.

use alloc::vec::Vec;
use core::ops::Range;

/// The memory of one array of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The address of the first record.
    start: usize,
    /// Bytes of a record.
    size: usize,
    /// Records that fit.
    capacity: usize,
}

impl Reserve {
    /// That of a vector.
    pub fn of<T>(records: &Vec<T>) -> Reserve {
        let start = records.as_ptr().addr();
        Reserve { start, size: size_of::<T>(), capacity: records.capacity() }
    }

    /// The addresses of these records, as far as they exist.
    pub fn addresses(&self, records: Range<u32>) -> Range<usize> {
        let address = |record: u32| self.start + self.size * self.capacity.min(record as usize);
        address(records.start)..address(records.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_end_with_the_memory() {
        let records = Vec::<u64>::with_capacity(10);
        let (reserve, start) = (Reserve::of(&records), records.as_ptr().addr());
        assert_eq!(reserve.addresses(2..5), start + 16..start + 40);
        assert_eq!(reserve.addresses(5..u32::MAX), start + 40..start + 8 * records.capacity());
    }
}
