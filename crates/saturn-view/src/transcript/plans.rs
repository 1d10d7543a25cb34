//! What is said of plans: the first in full, later ones by what they change.

use std::collections::BTreeSet;

use saturn_engine::{PlannedTask, RunPlan, State, TaskId};

use super::{INDENT, Transcript, more};
use crate::plan_table::{current_practice_claim, run_plan_claim, run_plan_lines};
use crate::units::{count, duration, signed_percent};
use crate::words;

/// Changes of a re-plan that are listed one by one.
const MAX_CHANGES: usize = 8;

impl Transcript {
    pub(super) fn planned(&mut self, state: &State, plan: &RunPlan, now_s: f64) -> Vec<String> {
        let before = state.plans.iter().rev().nth(1);
        match before {
            Some(before) if !self.show_plan => self.replanned(state, before, plan, now_s),
            _ => self.first_plan(state, plan, now_s),
        }
    }

    fn first_plan(&mut self, state: &State, plan: &RunPlan, now_s: f64) -> Vec<String> {
        self.show_plan = false;
        let claim = format!("{}, {}", tasks_and_switches(plan), run_plan_claim(plan));
        let mut lines = vec![self.line(now_s, &self.paint.bold("plan"), &self.paint.bold(&claim))];
        if let Some(current_practice_s) = plan.current_practice_s {
            lines.push(more(&current_practice_claim(current_practice_s, plan.makespan_s)));
        }
        lines.push(String::new());
        let width = self.width.saturating_sub(INDENT);
        let table = run_plan_lines(state, plan, width, self.paint);
        lines.extend(table.iter().map(|line| more(line)));
        lines.push(String::new());
        lines
    }

    fn replanned(
        &mut self,
        state: &State,
        before: &RunPlan,
        plan: &RunPlan,
        now_s: f64,
    ) -> Vec<String> {
        let end_s = plan.at_s + plan.makespan_s;
        let instead = match self.expected_end_s {
            Some(expected_s) if expected_s > now_s && expected_s.is_finite() => format!(
                " instead of {} ({})",
                duration(expected_s - now_s),
                signed_percent((end_s - expected_s) / (expected_s - now_s)),
            ),
            _ => String::new(),
        };
        let text = format!(
            "new plan for {}: {} more{instead}; {}",
            tasks_and_switches(plan),
            duration(end_s - now_s),
            run_plan_claim(plan),
        );
        let mut lines = vec![self.line(now_s, &self.paint.bold("re-plan"), &text)];
        let changes = self.changes(state, before, plan);
        let num_more = changes.len().saturating_sub(MAX_CHANGES);
        lines.extend(changes.iter().take(MAX_CHANGES).map(|change| more(change)));
        if num_more > 0 {
            lines.push(more(&format!("and {num_more} more changes")));
        }
        lines
    }

    /// Tasks whose strategy or place differs between two plans.
    fn changes(&self, state: &State, before: &RunPlan, plan: &RunPlan) -> Vec<String> {
        let cluster = &state.config.cluster;
        let mut changes = Vec::new();
        let places = |plan: &RunPlan, task: TaskId| -> Vec<String> {
            let place = |planned: &PlannedTask| {
                let strategy = words::strategy(&planned.strategy);
                format!("{strategy} on {}", words::devices(cluster, &planned.gang))
            };
            plan.places_of(task).map(place).collect()
        };
        let tasks: BTreeSet<TaskId> = plan.tasks.iter().map(|planned| planned.task).collect();
        for task in tasks {
            let (was, now) = (places(before, task), places(plan, task));
            // What is left of the old plan may be all there is of the new one.
            if !was.is_empty() && !was.ends_with(&now) {
                let name = self.name(state, task);
                changes.push(format!("{name}  {} → {}", was.join(", "), now.join(", ")));
            }
        }
        changes
    }

    pub(super) fn plan_kept(&self, time_left_s: f64, best_s: f64, now_s: f64) -> String {
        let text = format!(
            "plan kept: {} more; the best other plan {}, switches included",
            duration(time_left_s),
            duration(best_s),
        );
        self.line(now_s, "re-plan", &text)
    }
}

/// `12 tasks`, `12 tasks, 3 switches in mid-run`.
fn tasks_and_switches(plan: &RunPlan) -> String {
    let tasks = count(plan.num_tasks(), "task");
    match plan.num_switches() {
        0 => tasks,
        switches => format!("{tasks}, {} in mid-run", count(switches, "switch")),
    }
}
