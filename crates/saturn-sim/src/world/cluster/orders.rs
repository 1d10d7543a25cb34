//! Orders to live gangs: where to stop, and to die at once.

use saturn_engine::AttemptId;

use crate::world::cluster::{DEATH_S, Happening, World};
use crate::world::faults::Fault;
use crate::world::gang::Phase;

impl World {
    /// Asks a gang to stop at a checkpoint.
    pub(crate) fn ask_to_stop(&mut self, attempt: AttemptId) {
        if self.stop_held(attempt) {
            return;
        }
        let Some(gang) = self.gangs.get(&attempt) else { return };
        if gang.fate.stop_delay_s > 0.0 {
            let at_s = self.now_s + gang.fate.stop_delay_s;
            self.hit(Fault::LateStop);
            self.heap.add(at_s, Happening::Stop(attempt));
        } else {
            self.hear_stop(attempt);
        }
    }

    pub(super) fn hear_stop(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if let Some(at) = gang.stops_at().filter(|_| gang.phase != Phase::Waiting) {
            gang.order.until_step = Some(gang.target().min(at));
        } else {
            gang.stops = true;
        }
        if gang.phase == Phase::Waiting {
            return self.begin_closing(attempt);
        }
        self.replan(attempt);
    }

    /// Tells a gang where to stop by itself.
    pub(crate) fn set_until(&mut self, attempt: AttemptId, step: Option<u64>) {
        if self.set_until_held(attempt, step) {
            return;
        }
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.order.until_step = step;
        self.replan(attempt);
    }

    /// A training gang's orders have changed: it finishes its present step first.
    pub(super) fn replan(&mut self, attempt: AttemptId) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if !matches!(gang.phase, Phase::Training { .. }) {
            return;
        }
        let in_step = gang.look_up(now_s);
        let more = if gang.stops || gang.step >= gang.target() {
            u64::from(in_step)
        } else {
            gang.next_steps()
        };
        self.train(attempt, more);
    }

    /// Kills all processes of a gang.
    pub(crate) fn kill_all(&mut self, attempt: AttemptId) {
        self.forget_held(attempt, -9);
        // Nothing on a dead node answers.
        let is_silent = self.gangs.get(&attempt).is_some_and(|gang| self.is_silent(gang));
        let Some(gang) = self.gangs.get_mut(&attempt).filter(|_| !is_silent) else { return };
        if gang.is_killed {
            return;
        }
        gang.is_killed = true;
        gang.phase = Phase::Still;
        gang.turn += 1;
        let outlives_s = gang.fate.outlives_kill_s;
        let ranks: Vec<u32> = gang.live.iter().copied().collect();
        for (index, rank) in ranks.iter().enumerate() {
            let extra_s = if index + 1 == ranks.len() { outlives_s } else { 0.0 };
            let at_s = self.now_s + DEATH_S + extra_s;
            if at_s.is_finite() {
                self.heap.add(at_s, Happening::Ends { attempt, rank: *rank, code: -9 });
            }
        }
        if outlives_s > 0.0 {
            self.hit(if outlives_s.is_finite() { Fault::Unkillable } else { Fault::Immortal });
        }
    }
}
