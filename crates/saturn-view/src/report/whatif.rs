//! How long and how dear a workload would be on pools of several sizes, as data; as a table
//! (`whatif_text.rs`) and as a page (`html/whatif.rs`): what `saturn whatif` shows.
//!
//! Seconds are those of plans. Fields are only ever added within one `version`.

use saturn_core::Plan;
use serde::Serialize;

use crate::report::whatif_run::OfRun;

/// The version that is written.
pub const VERSION: u32 = 1;
pub(crate) const HOUR_S: f64 = 3600.0;
/// If the makespan exceeds the longest task by at most this share, that task determines it.
const NEARLY: f64 = 0.01;
/// Values that differ by a smaller share than this are equal.
const ROUNDING: f64 = 1e-9;

/// What is asked about the sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// What the workload is called.
    pub workload: String,
    /// The number of its tasks.
    pub num_tasks: usize,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// The price of a node for an hour, in any currency.
    pub price_per_hour: Option<f64>,
    /// By when all tasks should be done, seconds.
    pub deadline_s: Option<f64>,
    /// Mean seconds after which a node is taken away, where nodes are spot nodes.
    pub reclaimed_every_s: Option<f64>,
    /// The run in progress whose remaining work is planned. Its nodes are part of every size;
    /// `gpus_per_node` is for the further nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<OfRun>,
}

impl Asked {
    /// GPUs of so many nodes.
    fn gpus(&self, nodes: usize) -> u32 {
        let (present, gpus) = self.run.as_ref().map_or((0, 0), |run| (run.nodes, run.gpus));
        let further = u32::try_from(nodes.saturating_sub(present)).unwrap_or(u32::MAX);
        further.saturating_mul(self.gpus_per_node).saturating_add(gpus)
    }

    /// A number of nodes with its plan, where the task with the number `longest` is the longest.
    /// `before` is the size before with its makespan.
    pub fn size(
        &self,
        nodes: usize,
        plan: &Plan,
        longest: usize,
        before: Option<(usize, f64)>,
    ) -> Size {
        let gpus = self.gpus(nodes);
        let planned = plan.is_usable().then(|| planned(self, nodes, gpus, plan, before));
        let ends_s = plan.assignments.iter().filter(|one| one.task == longest);
        let ends_s = ends_s.map(|one| one.end_s).reduce(f64::max).filter(|_| self.run.is_some());
        let planned = planned.map(|one| Planned { longest_ends_s: ends_s, ..one });
        Size { nodes, gpus, planned, misses_tasks_deadline: false, is_unexplained: false }
    }
}

/// A workload on pools of several sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Whatif {
    /// 1.
    pub version: u32,
    /// What was asked.
    #[serde(flatten)]
    pub asked: Asked,
    /// Whether it was stopped before every size was planned.
    pub is_partial: bool,
    /// The task that no number of nodes makes shorter, and from how many nodes on it alone counts.
    pub longest: Longest,
    /// The number of nodes at which node-hours times makespan is least: the knee.
    pub knee: Option<Knee>,
    /// The number of nodes that costs least, of those that meet the deadline if there is one.
    pub cheapest_nodes: Option<usize>,
    /// The sizes that were asked for, ascending.
    pub sizes: Vec<Size>,
}

/// The task whose fastest strategy takes longest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Longest {
    /// Its name.
    pub task: String,
    /// Seconds under its fastest strategy.
    pub fastest_s: f64,
    /// From so many nodes on the makespan is at most 1% above that, so more nodes don't help.
    pub bounds_from_nodes: Option<usize>,
}

/// Beyond this number of nodes, node-hours grow faster than the makespan shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Knee {
    /// The number of nodes.
    pub nodes: usize,
    /// Whether the knee may lie beyond: it is the largest size that was asked for, and no single
    /// task determines the makespan there.
    pub may_lie_beyond: bool,
}

/// A number of nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Size {
    /// How many nodes.
    pub nodes: usize,
    /// GPUs of all of them.
    pub gpus: u32,
    /// The plan in numbers; null if some task does not fit so few nodes, or would miss its own
    /// deadline.
    #[serde(flatten)]
    pub planned: Option<Planned>,
    /// There is no plan because some task would miss its own deadline.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub misses_tasks_deadline: bool,
    /// There is no plan, and Ctrl-C came before it was known why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unexplained: bool,
}

/// What the plan of a size comes to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Planned {
    /// When the last task is done, seconds.
    pub makespan_s: f64,
    /// No plan ends earlier, seconds.
    pub lower_bound_s: f64,
    /// Hours times nodes: all are held until the last task is done.
    pub node_hours: f64,
    /// Their price.
    pub cost: Option<f64>,
    /// The share of the GPUs' time until the last task is done that tasks hold.
    pub utilisation: f64,
    /// Seconds that each node beyond those of the size before it saves.
    pub saved_per_node_s: Option<f64>,
    /// Whether all is done by the deadline.
    pub meets_deadline: Option<bool>,
    /// When the longest task is done, seconds; only of a run in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ends_s: Option<f64>,
}

/// Seconds times devices that a plan holds.
fn device_s(plan: &Plan) -> f64 {
    let held = plan.assignments.iter().map(|one| {
        let num_devices: usize = one.gang.iter().map(|part| part.devices.len()).sum();
        num_devices as f64 * (one.end_s - one.start_s)
    });
    held.sum()
}

impl Whatif {
    /// The answer for plans by number of nodes, ascending. `longest` is the number and the name of
    /// the task whose fastest strategy takes longest, with its seconds.
    pub fn of(
        asked: Asked,
        (longest, task, fastest_s): (usize, &str, f64),
        plans: &[(usize, &Plan)],
        is_partial: bool,
    ) -> Self {
        let mut sizes: Vec<Size> = Vec::with_capacity(plans.len());
        let mut before: Option<(usize, f64)> = None;
        for &(nodes, plan) in plans {
            let size = asked.size(nodes, plan, longest, before);
            before = size.planned.map(|planned| (nodes, planned.makespan_s)).or(before);
            sizes.push(size);
        }
        let all = || sizes.iter().filter_map(|one| Some((one.nodes, one.planned?)));
        let is_bound = |planned: &Planned| planned.makespan_s <= fastest_s * (1.0 + NEARLY);
        let bounds_from_nodes = all().find(|one| is_bound(&one.1)).map(|one| one.0);
        let is_in_time = |planned: &Planned| planned.meets_deadline != Some(false);
        let in_time = all().filter(|one| is_in_time(&one.1));
        // Of equally dear sizes the largest is the fastest.
        let hours_in_time: Vec<_> = in_time.map(|one| (one.0, one.1.node_hours)).collect();
        Self {
            version: VERSION,
            is_partial,
            longest: Longest { task: task.to_owned(), fastest_s, bounds_from_nodes },
            knee: knee(&all().collect::<Vec<_>>(), bounds_from_nodes.is_some()),
            cheapest_nodes: least(hours_in_time.into_iter().rev()),
            asked,
            sizes,
        }
    }

    /// The data as text for programs.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises. If it did not, this would give an empty
        // object.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }

    /// Whether a deadline was asked for that no size meets.
    pub fn is_late(&self) -> bool {
        self.asked.deadline_s.is_some() && self.cheapest_nodes.is_none() && !self.is_partial
    }

    /// What the plan of so many nodes comes to.
    pub(crate) fn planned(&self, nodes: usize) -> Option<&Planned> {
        self.sizes.iter().find(|size| size.nodes == nodes)?.planned.as_ref()
    }
}

fn planned(
    asked: &Asked,
    nodes: usize,
    gpus: u32,
    plan: &Plan,
    before: Option<(usize, f64)>,
) -> Planned {
    let makespan_s = plan.makespan_s;
    let node_hours = nodes as f64 * makespan_s / HOUR_S;
    Planned {
        makespan_s,
        lower_bound_s: plan.lower_bound_s,
        node_hours,
        cost: asked.price_per_hour.map(|price| price * node_hours),
        utilisation: device_s(plan) / (f64::from(gpus) * makespan_s).max(1e-9),
        saved_per_node_s: before.map(|(fewer, before_s)| {
            (before_s - makespan_s) / nodes.saturating_sub(fewer).max(1) as f64
        }),
        meets_deadline: asked.deadline_s.map(|deadline_s| makespan_s <= deadline_s),
        longest_ends_s: None,
    }
}

/// The knee of the execution time-efficiency profile (Eager, Zahorjan and Lazowska, "Speedup versus
/// efficiency in parallel systems", IEEE Trans. Computers 38(3), 1989): where the ratio of efficiency
/// to execution time is greatest, which is where node-hours times makespan is least. It depends on
/// no price, and not on which larger sizes were asked for.
fn knee(sizes: &[(usize, Planned)], is_bound: bool) -> Option<Knee> {
    let last = sizes.last().filter(|_| sizes.len() > 1)?.0;
    let nodes = least(sizes.iter().map(|one| (one.0, one.1.node_hours * one.1.makespan_s)))?;
    Some(Knee { nodes, may_lie_beyond: nodes == last && !is_bound })
}

/// The number of nodes with the least value; of equal ones the first.
fn least(values: impl Iterator<Item = (usize, f64)>) -> Option<usize> {
    values.reduce(|a, b| if b.1 < a.1 * (1.0 - ROUNDING) { b } else { a }).map(|one| one.0)
}

#[cfg(test)]
mod tests {
    use saturn_core::{Assignment, Objective, Placement, PlanStatus};

    use super::*;
    use crate::layout::paint::Paint;
    use crate::whatif_text;

    /// A plan of one gang of four devices, half of a node.
    fn plan(makespan_s: f64, lower_bound_s: f64) -> Plan {
        let gang = vec![Placement { node: 0, devices: vec![0, 1, 2, 3] }];
        let one =
            Assignment { task: 0, strategy: 0, gang, share: 1.0, start_s: 0.0, end_s: makespan_s };
        Plan {
            status: PlanStatus::Feasible,
            makespan_s,
            lower_bound_s,
            assignments: vec![one],
            ..Plan::none(Objective::Makespan)
        }
    }

    fn whatif(plans: &[(usize, Plan)], deadline_s: Option<f64>) -> Whatif {
        let asked = Asked {
            workload: "w\u{1b}[31m".to_owned(),
            num_tasks: 3,
            gpus_per_node: 8,
            price_per_hour: Some(10.0),
            deadline_s,
            reclaimed_every_s: None,
            run: None,
        };
        let plans: Vec<_> = plans.iter().map(|(nodes, plan)| (*nodes, plan)).collect();
        Whatif::of(asked, (0, "long", 3600.0), &plans, false)
    }

    fn hours(all: &[(usize, f64)]) -> Vec<(usize, Plan)> {
        all.iter().map(|(nodes, h)| (*nodes, plan(h * HOUR_S, h * HOUR_S * 0.9))).collect()
    }

    #[test]
    fn numbers_of_a_size_are_those_of_its_plan() {
        let found = whatif(&hours(&[(1, 8.0), (2, 4.0), (4, 3.0)]), Some(5.0 * HOUR_S));
        let [one, two, four] = [0, 1, 2].map(|index| found.sizes[index].planned.unwrap());
        assert_eq!((one.node_hours, one.cost, one.utilisation), (8.0, Some(80.0), 0.5));
        assert_eq!((one.saved_per_node_s, two.saved_per_node_s), (None, Some(4.0 * HOUR_S)));
        assert_eq!(four.saved_per_node_s, Some(HOUR_S / 2.0));
        assert_eq!((one.meets_deadline, two.meets_deadline), (Some(false), Some(true)));
        // One node is as dear and late; of those in time two nodes cost 80 and four 120.
        assert_eq!(found.cheapest_nodes, Some(2));
        // 64, 32 and 36 node-hours times hours.
        assert_eq!(found.knee, Some(Knee { nodes: 2, may_lie_beyond: false }));
        assert_eq!(found.longest.bounds_from_nodes, None);
        // Of equally dear sizes the faster; and one that the longest task bounds is no open end.
        assert_eq!(whatif(&hours(&[(1, 8.0), (2, 4.0)]), None).cheapest_nodes, Some(2));
        let bound = whatif(&hours(&[(1, 8.0), (8, 1.0)]), None);
        assert_eq!(bound.knee, Some(Knee { nodes: 8, may_lie_beyond: false }));
    }

    #[test]
    fn the_knee_is_where_node_hours_times_makespan_are_least() {
        // A serial part: hours are 1 + 9 / nodes. The least of nodes * hours^2 is at nine nodes.
        let amdahl: Vec<(usize, f64)> = (1..=16).map(|n| (n, 1.0 + 9.0 / n as f64)).collect();
        let found = whatif(&hours(&amdahl), None);
        assert_eq!(found.knee, Some(Knee { nodes: 9, may_lie_beyond: false }));
        // Larger sizes don't move it; with too few it is the last.
        assert_eq!(whatif(&hours(&amdahl[..12]), None).knee, found.knee);
        assert_eq!(
            whatif(&hours(&amdahl[..5]), None).knee,
            Some(Knee { nodes: 5, may_lie_beyond: true })
        );
        assert_eq!(whatif(&hours(&amdahl[..1]), None).knee, None);
        // Perfect scaling has none before the end, no scaling has it at the beginning.
        let perfect: Vec<_> = (1..=4).map(|n| (n, 12.0 / n as f64)).collect();
        assert!(whatif(&hours(&perfect), None).knee.unwrap().may_lie_beyond);
        let flat: Vec<_> = (1..=4).map(|n| (n, 2.0)).collect();
        assert_eq!(whatif(&hours(&flat), None).knee.unwrap().nodes, 1);
    }

    #[test]
    fn a_deadline_that_no_size_meets_is_explained() {
        for (deadline_h, why) in [
            (0.5, "no number of nodes meets 30 min 00 s: `long` alone takes 1 h 00 min"),
            (1.5, "2 nodes can't meet 1 h 30 min: the lower bound is 1 h 48 min"),
            (1.9, "no plan was found that meets 1 h 54 min; the lower bound does not rule it out"),
        ] {
            let found = whatif(&hours(&[(1, 4.0), (2, 2.0)]), Some(deadline_h * HOUR_S));
            assert!(found.is_late());
            assert_eq!(found.answers().1, [why]);
        }
    }

    #[test]
    fn a_size_of_which_nobody_knows_why_it_has_no_plan_says_so() {
        let mut plans = hours(&[(2, 4.0)]);
        plans.insert(0, (1, Plan::none(Objective::Makespan)));
        let mut found = whatif(&plans, None);
        assert!(whatif_text(&found, 200, Paint::PLAIN).contains("a task does not fit"));
        found.sizes[0].is_unexplained = true;
        let text = whatif_text(&found, 200, Paint::PLAIN);
        assert!(text.contains("interrupted before the reason was found"), "{text}");
        assert!(!text.contains("a task does not fit"), "{text}");
    }

    #[test]
    fn charts_of_a_short_run_are_in_seconds() {
        let found = whatif(&hours(&[(1, 0.01), (2, 0.005)]), None);
        let page = crate::whatif_html(&found);
        assert!(page.contains("The seconds until the last task is done"), "{page}");
        assert!(page.contains("[1,36") && page.contains("[2,18"), "{page}");
    }

    #[test]
    fn the_text_has_marks_and_warnings_and_no_control_characters() {
        let mut plans = hours(&[(2, 4.0), (3, 2.0), (4, 1.005), (5, 1.0)]);
        plans.insert(0, (1, Plan::none(Objective::Makespan)));
        let found = whatif(&plans, Some(3.0 * HOUR_S));
        let text = whatif_text(&found, 200, Paint::PLAIN);
        insta::assert_snapshot!(text);
        let page = crate::whatif_html(&found);
        assert!(
            page.contains("hours by number of nodes") && page.contains("cost by number of nodes")
        );
        assert!(page.contains("the longest task bounds the makespan from 4 nodes on"));
        assert!(!page.contains('\u{1b}') && !page.contains("NaN"));
        let nothing = whatif(&[], None);
        assert!(whatif_text(&nothing, 80, Paint::PLAIN).contains("3 tasks on nodes of 8 GPUs"));
        assert!(crate::whatif_html(&nothing).contains("Longest task"));
    }
}
