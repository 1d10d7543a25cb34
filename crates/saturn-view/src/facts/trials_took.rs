//! How many trials a run has had, and what they took.

/// Counts and times of all trials together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TrialsTook {
    /// Trials that have ended.
    number: u32,
    /// Their seconds from launch to end, summed.
    taken_s: f64,
    /// The device-seconds that they held.
    held_s: f64,
    /// Trials that run now.
    live: u32,
    /// The time since when some trial has been running, seconds.
    since_s: f64,
    /// Seconds before that time during which some trial ran.
    busy_s: f64,
}

impl TrialsTook {
    pub(super) fn began(&mut self, now_s: f64) {
        if self.live == 0 {
            self.since_s = now_s;
        }
        self.live += 1;
    }

    pub(super) fn ended(&mut self, gpus: u32, taken_s: f64, now_s: f64) {
        self.number += 1;
        self.taken_s += taken_s;
        self.held_s += f64::from(gpus) * taken_s;
        self.live = self.live.saturating_sub(1);
        if self.live == 0 {
            self.busy_s += now_s - self.since_s;
        }
    }

    /// Mean seconds of a trial from launch to end; `None` before a trial has ended.
    pub(super) fn mean_s(&self) -> Option<f64> {
        (self.number > 0).then(|| self.taken_s / f64::from(self.number))
    }

    /// The mean number of devices that trials held while any trial ran. `running_s` is the
    /// device-seconds of trials that run now. `None` before a trial has run for a while.
    pub(super) fn devices(&self, running_s: f64, now_s: f64) -> Option<f64> {
        let since = if self.live > 0 { now_s - self.since_s } else { 0.0 };
        let busy_s = self.busy_s + since;
        (busy_s > 0.0).then(|| (self.held_s + running_s) / busy_s)
    }
}
