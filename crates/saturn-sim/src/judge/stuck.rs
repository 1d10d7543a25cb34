//! Rules on runs that end for want of devices.
//!
//! Written from the engine's promise. On one machine, a run ends as stopped if every task that is
//! left needs more devices than there are. Each of these tasks is told what it needs.

use saturn_core::StrategyKey;
use saturn_engine::TaskId;

use crate::judge::books::Books;

impl Books {
    /// Nobody asked the run to stop, and it has ended with tasks left.
    pub(super) fn ended_for_want_of_devices(&mut self) {
        let rule = "a run ends for want of devices where there will be none";
        if self.config.policy.pool_may_grow || !self.is_closed {
            return self.wrong(rule, "more may come".to_owned());
        }
        let open: Vec<TaskId> =
            (0..self.tasks.len()).map(TaskId).filter(|id| self.tasks[id.0].end.is_none()).collect();
        for id in &open {
            // A task that comes after another is not asked about.
            let waits = self.tasks[id.0].after.iter().any(|before| open.contains(before));
            if !waits && let Err(what) = self.check_needs_more(*id) {
                return self.wrong(rule, format!("{}: {what}", self.tasks[id.0].name));
            }
        }
        if open.is_empty() || self.attempts.values().any(|one| one.end.is_none()) {
            self.wrong(rule, "it was not over".to_owned());
        }
    }

    /// Checks that a task needs more devices than there are, and was told so. The error says which
    /// of the two is wrong.
    fn check_needs_more(&self, id: TaskId) -> Result<(), String> {
        let task = &self.tasks[id.0];
        if task.why_it_rests().is_some() {
            return Err("it rests".to_owned());
        }
        let told = self.noted.iter().find(|(of, _)| *of == id).map(|(_, text)| text.as_str());
        let told =
            told.and_then(|text| text.strip_prefix("needs more devices than the pool has ("));
        let told = told.and_then(|text| text.strip_suffix("): resume the run on a larger pool"));
        let told: Vec<&str> = told.ok_or("it is not told what it needs")?.split(", or ").collect();
        let has = |gpus: u32, gpu_type: &str| {
            self.nodes.iter().any(|(_, of_type, there)| of_type == gpu_type && *there >= gpus)
        };
        for one in &told {
            let (gpus, of_type) = one.split_once(" of type ").ok_or(format!("it is told {one}"))?;
            let gpus: u32 = gpus.parse().map_err(|_| format!("it is told {one}"))?;
            if has(gpus, of_type) {
                return Err(format!("there are {one}"));
            }
        }
        let is_allowed = |key: &StrategyKey| {
            !task.excluded.contains(key)
                && task.gpu_range.as_ref().is_none_or(|range| range.contains(&key.gpus))
        };
        let known = self.measured.get(&task.group).into_iter().flatten();
        for (key, of_type) in known.filter(|(key, _)| is_allowed(key)) {
            let needed = format!("{} of type {of_type}", key.gpus);
            if !told.contains(&needed.as_str()) {
                return Err(format!("it is not told of {needed}"));
            }
        }
        Ok(())
    }
}
