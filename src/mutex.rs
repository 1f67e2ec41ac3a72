// SPDX-License-Identifier: GPL-2.0-only

//! Mutexes of the supervisor.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of the thread that held it: what these protect is complete
/// after every statement.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
