//! What is said of plans: the first in full, later ones by what they change.

use saturn_engine::{RunPlan, State};

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
        let claim = format!("{}, {}", count(plan.tasks.len(), "task"), run_plan_claim(plan));
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
            count(plan.tasks.len(), "task"),
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
        for now in &plan.tasks {
            let Some(was) = before.tasks.iter().find(|one| one.task == now.task) else { continue };
            let is_same = was.strategy.technique == now.strategy.technique
                && was.strategy.gpus == now.strategy.gpus
                && was.gang == now.gang;
            if !is_same {
                changes.push(format!(
                    "{}  {} on {} → {} on {}",
                    self.name(state, now.task),
                    words::strategy(&was.strategy),
                    words::devices(cluster, &was.gang),
                    words::strategy(&now.strategy),
                    words::devices(cluster, &now.gang),
                ));
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
