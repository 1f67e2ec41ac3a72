// SPDX-License-Identifier: GPL-2.0-only

//! A second look at processes that have not changed takes no lock of the allocator: only the list
//! of what was found is allocated. One test, because the count is that of the whole program.

use pandemonium_rules::{Processes, Rules, Users};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rules by each condition that looks at a text.
const RULES: &str = "
[[rule]]
about = 'texts'
name = ['no*such', '?']
executable = '*/no/such'
tier = 'batch'
[[rule]]
about = 'longer texts'
command = '*--no-such-flag*'
cgroup = '*no-such.slice*'
unit = 'no-such-*.scope'
ancestor = 'no-such'
user = 'no-such'
tier = 'batch'
";

#[test]
fn a_look_at_processes_that_have_not_changed_hardly_allocates() {
    let rules = Rules::parse("rules.toml", RULES).expect("valid rules");
    let (mut processes, mut users) = (Processes::default(), Users::read());
    // Each fact is read again within ten looks. Other programs of this machine may begin and end.
    let mut counts: Vec<usize> = (0..12)
        .map(|_| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            processes.refresh();
            users.refresh();
            drop(rules.apply(&processes, &users));
            ALLOCATIONS.load(Ordering::Relaxed) - before
        })
        .collect();
    let first = counts.remove(0);
    counts.sort_unstable();
    let usual = counts[counts.len() / 2];
    assert!(first >= processes.iter().count(), "the first look allocates: {first}");
    assert!(usual <= 8, "{usual} allocations at the median, {counts:?}");
}
