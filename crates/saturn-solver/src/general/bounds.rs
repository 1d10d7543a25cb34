//! Lower bounds with all facts of a problem, and proofs that it has no plan.
//!
//! **Critical path.** Let h_i be the earliest start of i: its release, and the earliest ends of its
//! predecessors. Then i ends no earlier than e_i, the least over its ways of max(h_i, arrival) +
//! runtime. Ways that would outlast their nodes are left out. Let q_i be the shortest runtimes on
//! the longest chain of tasks that wait for i. The last task ends no earlier than max e_i + q_i.
//!
//! **Area.** As in `bounds::area`, but in a plan of makespan T kind k has only λ_k·Σ
//! G_n·(min(until_n, T) − from_n) priced GPU-seconds. A way counts only if it can have ended by T −
//! q_i. The same holds for the tasks whose heads are at least some time t, with the GPU-seconds
//! from t on.
//!
//! The same holds for the tasks of one owner, with the devices of the owner's cap.
//!
//! **Completion.** Σ w_i·C_i ≥ Σ w_i·e_i. The bound by prices of devices over time
//! (`bounds::ascent`) is much better, and takes some time. For each task it counts all of its ways
//! with h_i, the arrivals and departures of their nodes and the latest end that deadlines allow. A
//! gang that stays starts at 0. Three things are simplified, which never makes the bound too high.
//! Precedence counts through h_i and the latest end alone. Places count through the arrivals and
//! departures of the nodes that they allow. A wide gang holds no more devices than it must.
//!
//! **Cost.** A node of G_n GPUs that is held for B seconds does at most G_n·B GPU-seconds of work.
//! So each GPU-second costs at least price_n/G_n. The bound is Σ_i of the least g·r·price_n/G_n
//! over the ways of i that can keep its deadline. It is also no less than the cost of any one task
//! alone.
//!
//! **No plan.** There is no plan of whole tasks if a task has no way that ends in time. There is none
//! either if the tasks that must have ended by t need more priced GPU-seconds than there are until t.
//! The plan checker verifies both.

use saturn_core::{Objective, Problem, Reason, Refutation};

use crate::bounds::ascent::{Ascent, Supply};
use crate::bounds::prices::{Job, Slot};
use crate::course::clock::Deadline;
use crate::general::instance::{Instance, SLACK, Way};
use crate::general::ways::{most_of, ways};

/// Shaved off so that rounding can't lift a bound above a true value.
const SAFETY: f64 = 1e-9;
/// Up to this many different heads or deadlines are looked at.
const MANY_TIMES: usize = 40;

/// No plan is below these numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) makespan: f64,
    pub(crate) completion: f64,
    pub(crate) cost: f64,
}

impl Bounds {
    pub(crate) fn of(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Makespan => self.makespan,
            Objective::Completion => self.completion,
            Objective::Cost => self.cost,
        }
    }
}

/// The ways of every task, and prices of GPU-seconds by kind.
pub(crate) struct Relaxation<'a> {
    instance: &'a Instance<'a>,
    prices: &'a [f64],
    ways: Vec<Vec<Way>>,
    /// At the deadline the bounds found so far must do.
    deadline: Deadline<'a>,
}

impl<'a> Relaxation<'a> {
    pub(crate) fn new(
        instance: &'a Instance<'a>,
        prices: &'a [f64],
        deadline: Deadline<'a>,
    ) -> Self {
        let num_tasks = instance.tasks.len();
        let most = most_of(num_tasks);
        // Even without time each mode has a way, so that there are bounds.
        let most_now = || if deadline.is_over() { 0 } else { most };
        let ways = (0..num_tasks).map(|task| ways(instance, task, most_now())).collect();
        Self { instance, prices, ways, deadline }
    }

    /// The ways of a task that can have ended by `limit`.
    fn by(&self, task: usize, limit: f64) -> impl Iterator<Item = &Way> {
        let can_end =
            move |way: &&Way| way.from + way.runtime <= limit.min(way.until) * (1.0 + SLACK);
        self.ways[task].iter().filter(can_end)
    }

    /// Least priced GPU-seconds of a task among ways that can have ended by `limit`; infinite
    /// without any.
    fn work(&self, task: usize, limit: f64) -> f64 {
        let work = |way: &Way| self.prices[way.kind] * f64::from(way.held) * way.runtime;
        self.by(task, limit).map(work).fold(f64::INFINITY, f64::min)
    }

    /// Priced GPU-seconds that there are between two times.
    fn room(&self, from: f64, to: f64) -> f64 {
        let nodes = self.instance.model.nodes.iter().zip(&self.instance.nodes);
        nodes
            .map(|(node, facts)| {
                let there = (to.min(facts.until) - from.max(facts.from)).max(0.0);
                self.prices[node.kind] * f64::from(node.gpus) * there
            })
            .sum()
    }

    /// The reasons found why `problem` has no plan without switches. `problem` is the problem that the
    /// instance was made of.
    pub(crate) fn refutations(&self, problem: &Problem) -> Vec<Reason> {
        let too_late = |task: usize, reason: String| Reason {
            task: Some(task),
            reason,
            refutation: Some(Refutation::TooLate),
        };
        let mut found = Vec::new();
        for (task, facts) in self.instance.tasks.iter().enumerate() {
            let after_head = |end: f64| end > facts.latest_end * (1.0 + SLACK);
            if facts.earliest_end.is_infinite() {
                // A failing predecessor is named on its own.
                if facts.head.is_finite() {
                    let reason = "no node that it may use is there long enough for any strategy";
                    found.push(too_late(task, reason.to_owned()));
                }
            } else if after_head(facts.earliest_end) {
                let cause = if facts.latest_end < facts.due {
                    "the tasks that wait for it have deadlines"
                } else {
                    "that is its deadline"
                };
                let [end, latest] = [facts.earliest_end, facts.latest_end].map(in_microseconds);
                let reason = format!("can't end before {end} s, but must by {latest} s: {cause}");
                found.push(too_late(task, reason));
            }
        }
        if found.is_empty() {
            found.extend(self.overfull(problem));
        }
        found
    }

    /// Whether the tasks that must have ended by some time need more GPU-seconds than there are
    /// until then.
    fn overfull(&self, problem: &Problem) -> Option<Reason> {
        let latest = |task: &usize| self.instance.tasks[*task].latest_end;
        let mut tasks: Vec<usize> =
            (0..self.ways.len()).filter(|task| latest(task).is_finite()).collect();
        tasks.sort_by(|left, right| latest(left).total_cmp(&latest(right)));
        let mut work = 0.0;
        for (index, task) in tasks.iter().enumerate() {
            // With many deadlines and nodes this takes long. Without a proof, nothing is claimed.
            if self.deadline.is_over() {
                break;
            }
            let limit = latest(task);
            work += self.work(*task, limit);
            let room = self.room(0.0, limit);
            if work > room * (1.0 + 1e-7) + 1e-9 {
                let reason = format!(
                    "the {} tasks that must have ended by {} s need at least {:.4} times the \
                     GPU-seconds that there are until then",
                    index + 1,
                    in_microseconds(limit),
                    work / room.max(1e-9),
                );
                let nodes = problem.cluster.nodes.iter().zip(&self.instance.model.nodes);
                let prices = nodes
                    .map(|(named, node)| (named.gpu_type.clone(), self.prices[node.kind]))
                    .collect();
                let refutation = Some(Refutation::Work { until_s: limit, prices });
                return Some(Reason { task: None, reason, refutation });
            }
        }
        None
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let makespan = self.makespan();
        Bounds { makespan, completion: self.completion(), cost: self.cost() }
    }

    fn makespan(&self) -> f64 {
        let tasks = &self.instance.tasks;
        let path = tasks.iter().map(|task| task.earliest_end + task.tail).fold(0.0, f64::max);
        let mut low = path * (1.0 - SAFETY);
        let mut heads: Vec<f64> = tasks.iter().map(|task| task.head).collect();
        heads.push(0.0);
        heads.sort_by(f64::total_cmp);
        heads.dedup();
        heads.truncate(MANY_TIMES);
        for head in heads {
            if self.deadline.is_over() {
                break;
            }
            low = low.max(self.area(head, low));
        }
        let caps = &self.instance.model.caps;
        for cap in 0..caps.max_gpus.len() {
            if self.deadline.is_over() {
                break;
            }
            low = low.max(self.area_of(cap, low));
        }
        low
    }

    /// The least makespan from `low` on at which the work of tasks with heads from `head` on fits.
    fn area(&self, head: f64, low: f64) -> f64 {
        let tasks = &self.instance.tasks;
        let later: Vec<usize> = (0..tasks.len()).filter(|task| tasks[*task].head >= head).collect();
        let work = |task: usize, limit: f64| self.work(task, limit);
        self.least(head, low, |makespan| {
            (self.sum(&later, work, makespan), self.room(head, makespan))
        })
    }

    /// The least makespan from `low` on at which the work of tasks that count on a cap fits into the
    /// devices that they may hold.
    fn area_of(&self, cap: usize, low: f64) -> f64 {
        let model = self.instance.model;
        let gpus = model.room_of(cap);
        let own: Vec<usize> = model.caps.tasks_of(cap).collect();
        let head = own.iter().map(|task| self.instance.tasks[*task].head);
        let head = head.fold(f64::INFINITY, f64::min);
        let area = |way: &Way| f64::from(way.held) * way.runtime;
        let work =
            |task: usize, limit: f64| self.by(task, limit).map(area).fold(f64::INFINITY, f64::min);
        self.least(head, low, |makespan| {
            (self.sum(&own, work, makespan), gpus * (makespan - head).max(0.0))
        })
    }

    /// The work of tasks in a plan of this makespan. `work` is that of a task that must have ended by a
    /// given time.
    fn sum(&self, tasks: &[usize], work: impl Fn(usize, f64) -> f64, makespan: f64) -> f64 {
        tasks.iter().map(|task| work(*task, makespan - self.instance.tasks[*task].tail)).sum()
    }

    /// The least makespan from `low` on at which the work fits the room. `sides` says how much there is of
    /// both within a makespan. Work that begins at `head`.
    fn least(&self, head: f64, low: f64, sides: impl Fn(f64) -> (f64, f64)) -> f64 {
        let fits = |makespan: f64| {
            let (work, room) = sides(makespan);
            work <= room * (1.0 + SLACK)
        };
        if fits(low) {
            return low;
        }
        let (mut refuted, mut high) = (low, (low - head).max(1e-3) * 1.5 + head);
        for _ in 0..60 {
            if self.deadline.is_over() || fits(high) {
                break;
            }
            refuted = high;
            high = head + (high - head) * 1.5;
        }
        for _ in 0..50 {
            if self.deadline.is_over() {
                break;
            }
            let middle = f64::midpoint(refuted, high);
            if fits(middle) {
                high = middle;
            } else {
                refuted = middle;
            }
        }
        refuted * (1.0 - SAFETY)
    }

    fn completion(&self) -> f64 {
        let tasks = &self.instance.tasks;
        let earliest: f64 = tasks.iter().map(|task| task.weight * task.earliest_end).sum();
        earliest * (1.0 - SAFETY)
    }

    /// The search for prices of devices over time that bound weighted completion. By `horizon` most
    /// of the work can have been done.
    pub(crate) fn ascent(&self, horizon: f64) -> Ascent {
        let model = self.instance.model;
        let job = |(task, facts): (usize, &crate::general::instance::TaskFacts)| {
            let slots = self.by(task, facts.latest_end).map(|way| Slot {
                kind: way.kind,
                held: f64::from(way.held),
                runtime: way.runtime,
                first: way.from,
                last: (way.until.min(facts.latest_end) - way.runtime).max(way.from),
            });
            Job { weight: facts.weight, slots: slots.collect(), cap: model.cap_resource(task) }
        };
        let jobs = self.instance.tasks.iter().enumerate().map(job).collect();
        let nodes = model.nodes.iter().zip(&self.instance.nodes).map(|(node, facts)| Supply {
            resource: node.kind,
            devices: f64::from(node.gpus),
            from: facts.from,
            until: facts.until,
        });
        let caps = (0..model.caps.max_gpus.len()).map(|cap| Supply {
            resource: model.num_kinds + cap,
            devices: model.room_of(cap),
            from: 0.0,
            until: f64::INFINITY,
        });
        let supplies = nodes.chain(caps).collect();
        Ascent::new(jobs, supplies, horizon.max(1e-6), self.prices)
    }

    fn cost(&self) -> f64 {
        let least = |task: usize, price: &dyn Fn(&Way) -> f64| {
            let ways = self.by(task, self.instance.tasks[task].latest_end);
            ways.map(|way| price(way) * way.runtime).fold(f64::INFINITY, f64::min)
        };
        let all = 0..self.ways.len();
        let shares: f64 = all.clone().map(|task| least(task, &|way| way.share)).sum();
        let alone = all.map(|task| least(task, &|way| way.alone)).fold(0.0, f64::max);
        shares.max(alone) * (1.0 - SAFETY)
    }
}

/// A time rounded for a message, seconds. Slack that was added for comparisons disappears.
fn in_microseconds(time_s: f64) -> f64 {
    (time_s * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::clock::FrozenClock;
    use crate::general::ways::tests::staggered;
    use crate::problem::model::Model;

    #[test]
    fn without_time_bounds_are_lower_and_take_one_way_of_each_mode() {
        let mut problem = staggered(40);
        let task = problem.tasks[0].clone();
        let named =
            |index: usize| saturn_core::ProblemTask { name: format!("t{index}"), ..task.clone() };
        problem.tasks = (0..400).map(named).collect();
        let model = Model::new(&problem);
        let instance = Instance::new(&problem, &model, Objective::Makespan, &[1.0]);
        let bounds_within = |seconds: f64| {
            let deadline = Deadline::new(&FrozenClock, seconds);
            let relaxation = Relaxation::new(&instance, &[1.0], deadline);
            (relaxation.ways.iter().map(Vec::len).sum::<usize>(), relaxation.bounds())
        };
        let ((few, early), (many, late)) = (bounds_within(0.0), bounds_within(1.0));
        assert!(few == 4 * 400 && many > 10 * few, "{few} {many} ways");
        assert!(early.makespan < late.makespan && early.makespan > 0.0, "{early:?} {late:?}");
        assert!(early.cost <= late.cost && early.cost > 0.0, "{early:?} {late:?}");
    }
}
