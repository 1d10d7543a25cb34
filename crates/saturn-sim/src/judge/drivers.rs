//! What of the books outlives a driver that dies, and what begins anew with the next.

use saturn_engine::{AttemptId, RankReport, Undead};

use crate::judge::books::Books;
use crate::judge::duty::Duty;
use crate::judge::outside::Outside;
use crate::workloads::truth::PEAK_MEMORY_BYTES;

impl Books {
    pub(super) fn driver_died(&mut self, living: &[AttemptId]) {
        self.duties.clear();
        // The driver may have died before it recorded which devices other programs use.
        self.outside = Outside::default();
        self.asked.clear();
        self.open_solves.clear();
        self.newest_solve = 0;
        self.undead = std::mem::take(&mut self.outlive);
        let undead = &self.undead;
        self.used.retain(|_, user| living.contains(user) || undead.contains(user));
        for (id, one) in &mut self.attempts {
            one.is_left = false;
            if living.contains(id) {
                // The next driver hears again how ranks come to their ends.
                one.outlives = true;
                // It is told again what the last driver may not have told.
                (one.until_due, one.stop_performed) = (true, false);
                one.waits_at = one.is_let_on.then_some(0);
                (one.num_exits, one.cause, one.death) = (0, None, None);
                one.failed_ranks.clear();
                one.said.retain(|report| {
                    !matches!(report, RankReport::Finished { .. } | RankReport::Stopped { .. })
                });
            } else {
                one.is_lost = true;
                if !undead.contains(id) {
                    one.live.clear();
                }
            }
        }
    }

    /// The next driver is told that processes of attempts that are over live on: their devices are not
    /// used until the processes have ended.
    pub(super) fn note_undead(&mut self, undead: &[Undead]) {
        for told in undead {
            let Some(one) = self.attempts.get_mut(&told.attempt) else { continue };
            (one.is_left, one.num_ranks, one.num_exits) = (true, told.num_ranks, 0);
            self.duties.push(Duty::SetAside(told.attempt));
        }
    }

    /// The next driver takes on all attempts that have outlived the last one, and no others.
    pub(super) fn adopted(&mut self, adopted: &[AttemptId]) {
        let outlived = self.attempts.iter().filter(|(_, one)| one.outlives);
        let outlived: Vec<AttemptId> = outlived.map(|(id, _)| *id).collect();
        if outlived != adopted {
            let what = format!("{adopted:?} of {outlived:?}");
            self.wrong("what outlives its driver goes on", what);
        }
        for one in self.attempts.values_mut() {
            one.outlives = false;
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
        self.outside = Outside::default();
        self.suspects.clear();
        self.accusers.clear();
        self.accused.clear();
        self.rests_until_s.clear();
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
