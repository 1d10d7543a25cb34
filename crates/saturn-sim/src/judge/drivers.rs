//! What of the books outlives a driver that dies, and what begins anew with the next.

use crate::judge::books::Books;
use crate::workloads::truth::PEAK_MEMORY_BYTES;

impl Books {
    pub(super) fn driver_died(&mut self) {
        self.duties.clear();
        self.asked.clear();
        self.open_solves.clear();
        self.newest_solve = 0;
        self.used.clear();
        for one in self.attempts.values_mut() {
            one.is_lost = true;
            one.live.clear();
        }
    }

    pub(super) fn resumed(&mut self, device_memory_bytes: Option<u64>) {
        // Strategies that needed more than there is now must be measured anew.
        if device_memory_bytes.is_some_and(|limit| limit < PEAK_MEMORY_BYTES) {
            self.measured.clear();
        }
        // A wider limit of memory lets excluded strategies be tried again.
        let before = std::mem::replace(&mut self.config.device_memory_bytes, device_memory_bytes);
        let is_wider =
            before.is_some_and(|before| device_memory_bytes.is_none_or(|limit| limit > before));
        if before != device_memory_bytes {
            // Whether the strategies fit is asked anew.
            self.ruled_out.clear();
        }
        self.failed_looks.clear();
        self.set_aside.clear();
        self.suspects.clear();
        self.accusers.clear();
        self.ended = None;
        self.is_interrupted = false;
        for task in &mut self.tasks {
            task.failures = 0;
            task.failed.forgotten();
            task.not_before_s = 0.0;
            if is_wider {
                task.excluded.clear();
            }
        }
    }
}
