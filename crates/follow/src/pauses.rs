// SPDX-License-Identifier: GPL-2.0-only

//! Pauses between attempts: short at first, because most faults pass soon, and then longer and
//! longer, because a laptop should sleep.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// The next pause.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST)
    }
}

impl Pauses {
    /// The pause before the next attempt. That after it is twice as long.
    pub fn take(&mut self) -> Duration {
        let next = (self.0 * 2).min(LONGEST);
        std::mem::replace(&mut self.0, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..11).map(|_| pauses.take().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }
}
