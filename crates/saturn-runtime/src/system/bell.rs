//! How other threads wake the driver, which waits for any of several things.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A bell that any thread may ring and that one thread waits for. A ring is kept until that thread
/// waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    pub(crate) fn ring(&self) {
        let (rung, changed) = &*self.0;
        *rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_one();
    }

    /// Waits until the bell rings, but no longer than `at_most`. Returns at once if the bell has
    /// rung since the last call.
    pub(crate) fn wait(&self, at_most: Duration) {
        let (rung, changed) = &*self.0;
        let rung = rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(rung, at_most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
