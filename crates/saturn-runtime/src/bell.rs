//! How other threads wake the driver: it has several things to look at, and waits for any of them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A bell that anyone may ring and one thread waits for. A ring while no one waits is not lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    pub(crate) fn ring(&self) {
        let (rung, changed) = &*self.0;
        *rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_one();
    }

    /// Waits until it is rung, or has been since the last call, but no longer than this.
    pub(crate) fn wait(&self, at_most: Duration) {
        let (rung, changed) = &*self.0;
        let rung = rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(rung, at_most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
