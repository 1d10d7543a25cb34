//! How each record changes the state.
//!
//! [`State::apply`] is the only way in which a run's durable state changes. It never fails: a
//! record that names something unknown (a damaged journal) changes nothing.

use std::sync::Arc;

use crate::facts::plan::RunPlan;
use crate::facts::record::Record;
use crate::state::order::Order;
use crate::state::run::State;

impl State {
    /// Applies a record that was made at `now_s`.
    pub fn apply(&mut self, record: &Record, now_s: f64) {
        self.now_s = self.now_s.max(now_s);
        match record {
            Record::Began { .. }
            | Record::Solved { .. }
            | Record::PlanKept { .. }
            | Record::NotSolved { .. }
            | Record::DriverStarted { .. }
            | Record::StoodStill { .. }
            | Record::Noted { .. } => {}
            Record::Resumed { device_memory_bytes, machines, .. } => {
                self.apply_resumed(*device_memory_bytes, machines.clone());
            }
            Record::NodeJoined { node, spec, host_memory_bytes } => {
                self.apply_joined(*node, spec, *host_memory_bytes);
            }
            Record::NodeLeft { node, .. } => self.apply_left(*node),
            Record::SetAside { node, devices, reason, absolved } => {
                self.apply_set_aside(*node, devices, reason, absolved);
            }
            Record::TakenBack { node, devices, .. } => {
                self.with_devices(*node, devices, |device| {
                    device.set_aside = None;
                    device.suspects.clear();
                });
                self.learn_occupancy(*node);
                self.learn_usable_breadths();
                self.version += 1;
            }
            Record::TaskAdded { task, spec } => self.apply_added(*task, spec, now_s),
            Record::Closed => self.is_closed = true,
            Record::Wished { task, wishes } => {
                let wishes = self.known_wishes(wishes);
                self.with_task(*task, |task| task.spec.wishes = wishes);
                self.note_followers(*task);
            }
            Record::Paused { task } => {
                self.with_task(*task, |task| task.is_paused = true);
            }
            Record::Unpaused { task } => self.with_task(*task, |task| task.is_paused = false),
            Record::OwnerLeft { uid } => self.apply_owner(*uid, true),
            Record::OwnerCame { uid } => self.apply_owner(*uid, false),
            Record::Shared { sharing } => self.apply_shared(sharing),
            Record::Guaranteed { tasks, .. } => self.apply_guaranteed(tasks),
            Record::Judged { task, judgement } => self.apply_judged(*task, judgement),
            Record::Launched { .. } => self.apply_launch(record, now_s),
            Record::Started { attempt, step, setup_s } => {
                self.apply_started(*attempt, *step, *setup_s, now_s);
            }
            Record::Checkpointed { attempt, step, save_s, blocked_s, loss } => {
                self.apply_checkpoint(*attempt, (*step, *loss), (*save_s, *blocked_s), now_s);
            }
            Record::Evaluated { attempt, evaluation, best, evaluation_s } => {
                self.apply_evaluated(*attempt, evaluation, best.as_ref(), *evaluation_s, now_s);
            }
            Record::Inspected { group, inspection } => self.apply_inspected(group, inspection),
            Record::Tried { group, gpu_type, strategy, outcome } => {
                self.apply_tried(group, gpu_type, strategy, outcome);
            }
            Record::WentOn { attempt, step } => self.apply_went_on(*attempt, *step, now_s),
            Record::TrialsChosen { trials, .. } => self.apply_chosen(trials),
            Record::Observed { group, gpu_type, strategy, step_s } => {
                self.apply_observed(group, gpu_type, strategy, *step_s);
            }
            Record::Clocked { attempt, trained } => self.apply_clocked(*attempt, *trained),
            Record::Planned { plan } => self.apply_planned(plan),
            Record::Stopping { attempt, reason } => self.apply_stopping(*attempt, *reason, now_s),
            Record::Until { attempt, step } => {
                if let Some(state) = self.attempts.get_mut(attempt) {
                    state.until_step = *step;
                }
            }
            Record::Ended { attempt, end, step, step_s } => {
                self.apply_end(*attempt, end, *step, (*step_s, now_s));
            }
            Record::Retrying { task, not_before_s, counts } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.failures += u32::from(*counts);
                    task.not_before_s = *not_before_s;
                }
            }
            Record::Excluded { task, key, reason } => {
                self.with_task(*task, |task| task.excluded.push((key.clone(), reason.clone())));
                if task.0 < self.tasks.len() {
                    self.want_trials_for(*task);
                    self.close_trials_without_task(self.tasks[task.0].group);
                }
            }
            Record::TaskEnded { task, end } => self.apply_task_end(*task, end),
            Record::Interrupted { at_once } => self.interrupted = Some(*at_once),
            Record::RunEnded { end } => self.ended = Some(*end),
        }
    }

    fn apply_planned(&mut self, plan: &Arc<RunPlan>) {
        let mut plan = Arc::clone(plan);
        if plan.places.iter().any(|place| place.task.0 >= self.tasks.len()) {
            let places = &mut Arc::make_mut(&mut plan).places;
            places.retain(|place| place.task.0 < self.tasks.len());
        }
        self.order = Order::of(&self.nodes, &plan);
        self.plan = Some(plan);
        self.num_plans += 1;
    }
}
