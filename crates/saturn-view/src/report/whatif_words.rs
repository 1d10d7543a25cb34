//! What `saturn whatif` says of sizes in words: marks beside the numbers, answers and warnings.

use std::fmt::Write as _;

use saturn_core::names::escape_terminal;

use crate::layout::units::{count, duration, significant};
use crate::report::whatif::{Knee, Longest, Size, Whatif};

impl Size {
    /// Why there is no plan.
    fn why_none(&self) -> &'static str {
        if self.is_unexplained {
            "no plan; interrupted before the reason was found"
        } else if self.misses_tasks_deadline {
            "misses a task's deadline"
        } else {
            "a task does not fit"
        }
    }
}

impl Whatif {
    /// What was asked, in a line.
    pub(crate) fn headline(&self) -> String {
        let asked = &self.asked;
        let tasks = count(asked.num_tasks, "task");
        if let Some(run) = &asked.run {
            return run.headline(&tasks, asked.gpus_per_node);
        }
        let mut line =
            format!("{tasks} on nodes of {}", count(asked.gpus_per_node as usize, "GPU"));
        if let Some(every_s) = asked.reclaimed_every_s {
            let _ = write!(line, ", each reclaimed every {}", duration(every_s));
        }
        line
    }

    /// The sizes as they are shown, each with what there is to say beside its numbers.
    pub(crate) fn rows(&self) -> Vec<(&Size, String)> {
        let run = self.asked.run.as_ref();
        let with_all_tasks = run
            .filter(|run| !run.cancelled.is_empty())
            .and_then(|run| run.with_all_tasks.as_ref())
            .map(|size| match size.planned {
                Some(_) => (size, "as it is".to_owned()),
                None => (size, format!("as it is, {}", size.why_none())),
            });
        let sizes = self.sizes.iter().map(|size| (size, self.marks(size)));
        with_all_tasks.into_iter().chain(sizes).collect()
    }

    /// Whether this is one of the sizes that were asked for.
    pub(crate) fn is_size(&self, size: &Size) -> bool {
        self.sizes.iter().any(|one| std::ptr::eq(one, size))
    }

    /// The last cell of a size's row: words such as `knee`, or why the size has no plan.
    fn marks(&self, size: &Size) -> String {
        let Some(planned) = &size.planned else { return size.why_none().to_owned() };
        let mut marks = Vec::new();
        if let Some(run) = self.asked.run.as_ref().filter(|run| run.nodes == size.nodes) {
            marks.push(run.mark());
        }
        if self.knee.is_some_and(|knee| knee.nodes == size.nodes) {
            marks.push("knee");
        }
        if self.cheapest_nodes == Some(size.nodes) {
            marks.push("cheapest");
        }
        if planned.meets_deadline == Some(false) {
            marks.push("late");
        }
        if self.longest.bounds_from_nodes.is_some_and(|from| from <= size.nodes) {
            marks.push("longest task");
        }
        marks.join(", ")
    }

    /// The answers in sentences, the warnings apart.
    pub(crate) fn answers(&self) -> (Vec<String>, Vec<String>) {
        let first_s = self.sizes.first().and_then(|size| Some(size.planned?.makespan_s));
        let of_run = self.asked.run.as_ref().map(|run| run.answers(first_s));
        let (mut answers, mut warnings) = of_run.unwrap_or_default();
        if let Some(Knee { nodes, may_lie_beyond }) = self.knee {
            let more = if may_lie_beyond {
                "further nodes may still pay: this is the largest size that was asked for"
            } else if self.longest.bounds_from_nodes.is_some_and(|from| from <= nodes) {
                "beyond the knee a further node saves nothing"
            } else {
                "beyond the knee node-hours grow faster than the makespan shrinks"
            };
            answers.push(format!("knee: {}; {more}", count(nodes, "node")));
        }
        if let Some((nodes, planned)) =
            self.cheapest_nodes.and_then(|nodes| Some((nodes, self.planned(nodes)?)))
        {
            let within = self.asked.deadline_s.map(|s| format!(" within {}", duration(s)));
            let cost = planned.cost.map(|cost| format!(", {cost:.2}")).unwrap_or_default();
            answers.push(format!(
                "cheapest{}: {}; {}, {} node-hours{cost}",
                within.unwrap_or_default(),
                count(nodes, "node"),
                duration(planned.makespan_s),
                significant(planned.node_hours),
            ));
        }
        warnings.extend(self.lateness());
        let Longest { task, fastest_s, bounds_from_nodes } = &self.longest;
        if let Some(nodes) = bounds_from_nodes {
            warnings.push(format!(
                "the longest task bounds the makespan from {} on: `{}` takes {} under its fastest \
                 strategy, so more nodes can't help",
                count(*nodes, "node"),
                escape_terminal(task),
                duration(*fastest_s),
            ));
        }
        if self.is_partial {
            warnings.push("interrupted: only the sizes above were planned".to_owned());
        }
        (answers, warnings)
    }

    /// Why no size meets the deadline.
    fn lateness(&self) -> Option<String> {
        let deadline_s = self.asked.deadline_s.filter(|_| self.is_late())?;
        let last = self.sizes.iter().rev().find_map(|size| Some((size.nodes, size.planned?)))?;
        let due = duration(deadline_s);
        let Longest { task, fastest_s, .. } = &self.longest;
        Some(if *fastest_s > deadline_s {
            let (task, takes) = (escape_terminal(task), duration(*fastest_s));
            format!("no number of nodes meets {due}: `{task}` alone takes {takes}")
        } else if last.1.lower_bound_s > deadline_s {
            let bound = duration(last.1.lower_bound_s);
            format!("{} can't meet {due}: the lower bound is {bound}", count(last.0, "node"))
        } else {
            format!("no plan was found that meets {due}; the lower bound does not rule it out")
        })
    }
}
