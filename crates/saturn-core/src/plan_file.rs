//! Writes a plan as a file.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::objective::Objective;
use crate::plan::{Assignment, Plan};
use crate::problem::Problem;

impl Plan {
    /// The plan as a file, with an assignment on each line. `problem` must be the problem that was
    /// solved; its names are used.
    ///
    /// Without a plan, its values and `gap` are null. `reasons` then says why there is none, and
    /// names the task that each reason concerns, if any.
    pub fn to_json(&self, problem: &Problem) -> String {
        let usable = self.is_usable();
        let known = |value: f64| json!(usable.then_some(value));
        let mut fields = vec![
            ("version", json!(1)),
            ("status", json!(self.status)),
            ("ended", json!(self.ended)),
            ("objective", json!(self.objective)),
            ("makespan_s", known(self.makespan_s)),
            ("lower_bound_s", json!(self.lower_bound_s)),
            ("completion_s", known(self.completion_s)),
        ];
        if self.objective == Objective::Completion {
            fields.push(("completion_bound_s", json!(self.completion_bound_s)));
        }
        fields.push(("cost", known(self.cost)));
        if self.objective == Objective::Cost {
            fields.push(("cost_bound", json!(self.cost_bound)));
        }
        if problem.tasks.iter().any(|task| task.late_price.is_some()) {
            fields.push(("tardiness", known(self.tardiness)));
            fields.push(("tardiness_bound", json!(self.tardiness_bound)));
        }
        fields.push(("gap", known(self.gap())));
        fields.extend(self.lateness(problem).map(|lateness| ("lateness", json!(lateness))));
        fields.extend(self.robust.as_ref().map(|robust| ("robust", json!(robust))));
        fields.push(("solve_s", json!(self.solve_s)));
        if !usable {
            let reasons: Vec<Value> = self
                .reasons
                .iter()
                .map(|one| {
                    let task = one.task.and_then(|task| problem.tasks.get(task));
                    let name = task.map(|task| &task.name);
                    json!({ "task": name, "reason": one.reason, "refutation": one.refutation })
                })
                .collect();
            fields.push(("reasons", Value::Array(reasons)));
        }
        let mut file = String::from("{\n");
        for (name, value) in fields {
            let _infallible = writeln!(file, "  \"{name}\": {value},");
        }
        file.push_str("  \"assignments\": [");
        for (index, assignment) in self.assignments.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _infallible = write!(file, "{comma}\n    {}", rendered(assignment, problem));
        }
        file.push_str("\n  ]\n}\n");
        file
    }
}

/// An assignment on one line, with fields in the order of the format.
fn rendered(assignment: &Assignment, problem: &Problem) -> String {
    let task = &problem.tasks[assignment.task];
    let strategy = &task.strategies[assignment.strategy];
    let placement: Vec<String> = assignment
        .gang
        .iter()
        .map(|part| {
            let node = json!(problem.cluster.nodes[part.node].name);
            format!("{{\"node\": {node}, \"devices\": {}}}", json!(part.devices))
        })
        .collect();
    let share = if assignment.is_segment() {
        format!("\"share\": {}, ", json!(assignment.share))
    } else {
        String::new()
    };
    format!(
        "{{\"task\": {}, \"technique\": {}, \"gpus\": {}, \"placement\": [{}], \
         {share}\"start_s\": {}, \"end_s\": {}}}",
        json!(task.name),
        json!(strategy.technique),
        strategy.gpus,
        placement.join(", "),
        json!(assignment.start_s),
        json!(assignment.end_s),
    )
}
