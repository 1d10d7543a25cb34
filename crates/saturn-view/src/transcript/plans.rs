//! Lines for plans: the first plan in full, later plans by their changes.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::PlanStatus;
use saturn_engine::{Place, PlanSource, RunPlan, State, TaskId};

use crate::facts::errors::covers_all;
use crate::facts::expect::Band;
use crate::facts::history::History;
use crate::layout::units::{count, duration, percent};
use crate::phrases::events;
use crate::phrases::words;
use crate::plans::table::{current_practice_claim, run_plan_claim, run_plan_lines};
use crate::transcript::writer::{INDENT, Transcript, more};

/// The most changes of a new plan that are listed one by one.
const MAX_CHANGES: usize = 8;

impl Transcript {
    pub(super) fn planned(
        &mut self,
        state: &State,
        history: &History,
        plan: &RunPlan,
        now_s: f64,
    ) -> Vec<String> {
        self.is_kept_told = false;
        let before = history.plans.iter().rev().nth(1);
        match before {
            Some(before) if !self.show_plan => {
                let mut lines = self.replanned(state, before, plan, now_s);
                lines.splice(1..1, self.of_all_tasks(state, history, plan));
                lines
            }
            _ => self.first_plan(state, history, plan, now_s),
        }
    }

    fn first_plan(
        &mut self,
        state: &State,
        history: &History,
        plan: &RunPlan,
        now_s: f64,
    ) -> Vec<String> {
        self.show_plan = false;
        let claim = format!("{}, {}", tasks_and_switches(plan), run_plan_claim(plan));
        let mut lines = vec![self.line(now_s, &self.paint.bold("plan"), &self.paint.bold(&claim))];
        lines.extend(events::extended(plan).map(|why| more(&why)));
        lines.extend(self.of_all_tasks(state, history, plan));
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
        let what = match plan.source {
            PlanSource::Solver => "new plan for",
            PlanSource::Extended { .. } => "plan extended to",
        };
        let proven = match plan.status {
            _ if plan.lower_bound_s <= 0.0 => String::new(),
            PlanStatus::Optimal => format!(", {}", words::plan_status(plan.status)),
            _ => format!(", gap {}", percent(plan.gap())),
        };
        let text =
            format!("{what} {}: {}{proven}", tasks_and_switches(plan), events::promise(plan));
        let mut lines = vec![self.line(now_s, &self.paint.bold("re-plan"), &text)];
        lines.extend(events::extended(plan).map(|why| more(&why)));
        let changes = self.changes(state, before, plan);
        let num_more = changes.len().saturating_sub(MAX_CHANGES);
        lines.extend(changes.iter().take(MAX_CHANGES).map(|change| more(change)));
        if num_more > 0 {
            lines.push(more(&format!("and {num_more} more changes")));
        }
        lines
    }

    /// How long the run is likely to take, and how long current practice would, each with the first
    /// plan of all tasks that has the figure. For a part of the tasks, neither figure says much.
    fn of_all_tasks(&mut self, state: &State, history: &History, plan: &RunPlan) -> Vec<String> {
        let mut lines = Vec::new();
        if !covers_all(state, plan) {
            return lines;
        }
        if !std::mem::replace(&mut self.told.length, true) {
            let [.., band] = Band::of(state, history);
            let (early_s, late_s) = band.around(plan.makespan_s, 0.0);
            let (early, late) = (duration(early_s), duration(late_s));
            lines.push(more(&format!("likely to take {early} to {late}, as four of five runs do")));
        }
        if let Some(practice_s) = plan.current_practice_s
            && !std::mem::replace(&mut self.told.practice, true)
        {
            let is_estimate = plan.practice_is_estimate;
            lines.push(more(&current_practice_claim(practice_s, plan.makespan_s, is_estimate)));
        }
        lines
    }

    /// Tasks that are new in a plan, or whose strategy or devices differ from the plan before.
    fn changes(&self, state: &State, before: &RunPlan, plan: &RunPlan) -> Vec<String> {
        if before.places.is_empty() {
            // If there were very many plans, some have lost their places.
            return Vec::new();
        }
        let (was, now) = (by_task(before), by_task(plan));
        let words = |places: &[&Place]| {
            let place = |place: &&Place| {
                let strategy = words::strategy(&place.strategy);
                format!("{strategy} on {}", words::devices(&state.cluster, &place.gang))
            };
            places.iter().map(place).collect::<Vec<_>>()
        };
        let mut changes = Vec::new();
        let mut told: BTreeSet<TaskId> = BTreeSet::new();
        for place in &plan.places {
            let task = place.task;
            let Some(now) = now.get(&task).filter(|_| told.insert(task)) else { continue };
            let now = words(now);
            let change = match was.get(&task).map(|was| words(was)) {
                None => format!("new: {}", now.join(", ")),
                // The new plan may consist only of the places of the old plan that are left.
                Some(was) if was.ends_with(&now) => continue,
                Some(was) => format!("{} → {}", was.join(", "), now.join(", ")),
            };
            changes.push(format!("{}  {change}", self.name(state, task)));
        }
        changes
    }

    /// A line that the plan in force was kept although another would end sooner. It appears once
    /// for each plan, and not at all if no better plan was found.
    pub(super) fn plan_kept(&mut self, left_s: f64, best_s: f64, now_s: f64) -> Option<String> {
        if self.is_kept_told || best_s >= left_s || duration(left_s) == duration(best_s) {
            return None;
        }
        self.is_kept_told = true;
        let text = format!("plan kept: {}", events::kept(left_s, best_s));
        Some(self.line(now_s, "re-plan", &text))
    }

    pub(super) fn not_solved(&self, state: &State, reason: &str, now_s: f64) -> String {
        let meanwhile = if state.plan.is_some() {
            "the plan in force goes on"
        } else {
            "tasks are placed one by one"
        };
        let text = format!("no plan from the solver, {meanwhile}: {}", words::first_line(reason));
        self.line(now_s, &self.paint.warn("re-plan"), &text)
    }
}

/// The places of each task, in the plan's order.
fn by_task(plan: &RunPlan) -> BTreeMap<TaskId, Vec<&Place>> {
    let mut places: BTreeMap<TaskId, Vec<&Place>> = BTreeMap::new();
    for place in &plan.places {
        places.entry(place.task).or_default().push(place);
    }
    places
}

/// `12 tasks`, `12 tasks, 3 switches in mid-run`.
fn tasks_and_switches(plan: &RunPlan) -> String {
    let tasks = count(plan.num_tasks(), "task");
    match plan.num_switches() {
        0 => tasks,
        switches => format!("{tasks}, {} in mid-run", count(switches, "switch")),
    }
}
