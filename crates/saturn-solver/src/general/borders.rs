//! The search over lists between borders, for problems whose tasks wait for each other or for times.
//!
//! Annealing lists is fast because nodes are independent of each other. Precedence couples them. A
//! plan at hand cuts the coupling: for a task and a task that waits for it, a *border* is drawn at a
//! time between the end of the first and the start of the second. Now the first must end by the
//! border, and the second must start no earlier. So each task has times of its own, and the lists of
//! all nodes are annealed with these times. Then the lists are played with all facts, and tasks no
//! longer wait for borders. The next borders are drawn in the plan that this gives.
//!
//! Borders that are drawn a little before or after the two tasks' times let plans change: the
//! annealing pays for what a task misses.
//!
//! Invariants: the course of the search depends on no limit.
//!
//! The search does not know host memory and the cost, and begins with no plan that has a gang on several
//! nodes.

use saturn_core::Objective;

use crate::completion::queue::{Aim, Duty, Fine, Queue, Target};
use crate::completion::region::{Cooling, Region};
use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::{Course, Limits};
use crate::general::anneal::Incumbent;
use crate::general::instance::Instance;
use crate::general::plain::queue;
use crate::general::play::{Choice, Genome, Player};
use crate::lists::list::{Entry, Lists};
use crate::problem::baselines::Pace;
use crate::problem::model::Model;
use crate::problem::tardiness::compare_tardiness;
use crate::problem::timeline::place_after;

/// Moves for each task of the first annealings, the growth from each round to the next, and the most
/// moves of an annealing.
const FIRST_PER_TASK: f64 = 50.0;
const GROWTH: f64 = 1.3;
const LONGEST: f64 = 400_000.0;
/// First temperatures, at least and at most, and the last temperature, in parts of the makespan.
const HOT: (f64, f64) = (0.0007, 0.007);
const COLD: f64 = 0.0001;
/// How far a border may be from the times of its two tasks, at least and at most, in parts of the
/// makespan. One annealing in so many has no such borders.
const REACH: (f64, f64) = (0.001, 0.03);
const EXACT_IN: usize = 3;
/// The price of a missed second, in seconds of the objective, at least and at most. And the fee of
/// missing a time at all, in missed seconds for each second of the makespan.
const FINE: (f64, f64) = (2.0, 30.0);
const FEE: f64 = 0.002;
/// What device-seconds may cost where the makespan counts, in device-seconds after the target.
const LOADS: [f64; 3] = [0.0, 0.02, 0.1];
/// How often a stream goes on from its own plan; otherwise from the best. With the makespan as
/// objective, plans of equal worth are many, and a stream's own plan is worth less.
const OWN: f64 = 0.9;
const OWN_OF_MAKESPAN: f64 = 0.3;
/// A stream's next plan may be worse than its last by this part.
const WORSE: f64 = 0.003;

/// The search in progress.
pub(crate) struct Search<'a> {
    instance: &'a Instance<'a>,
    /// With the arrivals of nodes.
    model: Model,
    pub(crate) course: Course,
    /// No plan ends earlier.
    low: f64,
    length: f64,
    /// Each stream's own plan.
    own: Vec<Option<Incumbent>>,
}

impl<'a> Search<'a> {
    /// `None` where no task waits for anything but devices, and where lists can't say the problem's
    /// facts or its objective.
    pub(crate) fn new(instance: &'a Instance<'a>, course: Course, low: f64) -> Option<Self> {
        let model = instance.model;
        let is_for_lists =
            instance.objective != Objective::Cost && !model.host_binds && !model.caps.bind();
        if !is_for_lists || !instance.has_times() {
            return None;
        }
        let mut model = model.clone();
        for (ready, node) in model.ready.iter_mut().zip(&instance.nodes) {
            ready.fill(node.from);
        }
        let length = FIRST_PER_TASK * instance.tasks.len() as f64;
        let own = vec![None; course.num_streams()];
        Some(Self { instance, model, course, low, length, own })
    }

    /// Whether lists can say a plan: none of its gangs is on several nodes.
    pub(crate) fn may_begin_with(&self, plan: &Incumbent) -> bool {
        plan.genome.choices.iter().enumerate().all(|(task, choice)| match choice {
            Choice::Stay => self.instance.stay(task).is_none_or(|stay| stay.home().is_some()),
            Choice::Narrow { .. } => true,
            Choice::Wide { .. } => false,
        })
    }

    /// One annealing on each stream, from a plan that lists can say. Returns the plans that it found,
    /// and whether the round came to its end.
    pub(crate) fn round(&mut self, best: &Incumbent, limits: &Limits) -> (Vec<Incumbent>, bool) {
        let Self { instance, model, low, .. } = self;
        let (instance, model, low, deadline) = (*instance, &*model, *low, limits.deadline);
        let is_makespan = instance.objective == Objective::Makespan;
        let share = if is_makespan { OWN_OF_MAKESPAN } else { OWN };
        let mut dealer = self.course.dealer();
        let own = self.own.iter().map(|own| own.as_ref().filter(|_| dealer.unit() < share));
        let starts: Vec<&Incumbent> = own.map(|own| own.unwrap_or(best)).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let length = self.length as u64;
        let round = self.course.round(limits, starts, length, |start, random, most| {
            // A part of an annealing is worth nothing.
            let found = (most == length).then(|| {
                Annealing { instance, model, start, low, length, deadline }.run(random)
            })??;
            Some(if is_near(&found, start) { found } else { start.clone() })
        });
        if round.is_whole {
            self.length = (self.length * GROWTH).min(LONGEST);
            self.own.clone_from(&round.results);
        }
        (round.results.into_iter().flatten().collect(), round.is_whole)
    }
}

/// Whether a plan is good enough for a stream to go on from it.
fn is_near(found: &Incumbent, start: &Incumbent) -> bool {
    let (found, start) = (&found.worth, &start.worth);
    found.beats(start)
        || found.is_valid()
            && compare_tardiness(found.tardiness, start.tardiness).is_le()
            && found.value <= start.value * (1.0 + WORSE)
}

/// One annealing of the lists of all nodes.
struct Annealing<'a> {
    instance: &'a Instance<'a>,
    model: &'a Model,
    start: &'a Incumbent,
    low: f64,
    /// Moves.
    length: u64,
    deadline: Deadline<'a>,
}

impl Annealing<'_> {
    /// `None` if the deadline comes first.
    fn run(&self, random: &mut Random) -> Option<Incumbent> {
        let Self { instance, start: Incumbent { worth, genome }, .. } = *self;
        let mut player = Player::new(instance, Pace::Packed);
        player.play(genome);
        let lists = lists(instance, &player, genome)?;
        let least = self.low.min(worth.makespan);
        let target = least + (worth.makespan - least) * random.unit();
        let is_makespan = instance.objective == Objective::Makespan;
        let aim = if is_makespan {
            let load = LOADS[random.below(LOADS.len())];
            Aim::By(Target { end: target, load, worth: instance.worth.clone() })
        } else {
            Aim::Ends
        };
        let by = is_makespan.then_some(target);
        let mut queue = queue(instance, self.model, aim);
        draw_borders(instance, &player, by, &mut queue.duties, random);
        // What a second of a mean task costs.
        let a_second = if is_makespan {
            let devices = lists.iter().flatten().map(|entry| f64::from(entry.gpus));
            devices.sum::<f64>() / instance.tasks.len() as f64
        } else {
            queue.mean_weight()
        };
        let rate = a_second * random.log_between(FINE.0, FINE.1);
        let fine = Fine { fee: rate * FEE * worth.makespan, rate };
        let unit = a_second * worth.makespan;
        let cooling = Cooling {
            from: unit * random.log_between(HOT.0, HOT.1),
            to: unit * COLD,
            num_moves: self.length,
        };
        let nodes: Vec<usize> = (0..lists.len()).collect();
        let mut region = Region::new(&queue, fine, &nodes, lists);
        region.run(cooling, 0..self.length, None, self.deadline, random);
        if self.deadline.is_over() {
            return None;
        }
        let found = genome_of(instance, &queue, &region.into_lists());
        let genome = player.by_start(found);
        let (worth, genome) = player.put_back(genome);
        Some(Incumbent { worth, genome })
    }
}

/// The gangs of a played plan by node, in order of start; `None` if one is on several nodes.
fn lists(instance: &Instance, player: &Player, genome: &Genome) -> Option<Lists> {
    let model = instance.model;
    let mut lists: Lists = vec![Vec::new(); model.nodes.len()];
    for (task, choice) in genome.choices.iter().enumerate() {
        if let (Choice::Stay, Some(stay)) = (choice, instance.stay(task)) {
            lists[stay.home()?].push(Entry::staying(task, stay));
        }
    }
    let mut order: Vec<usize> = (0..instance.tasks.len()).collect();
    order.sort_by(|left, right| player.starts[*left].total_cmp(&player.starts[*right]));
    for task in order {
        match genome.choices[task] {
            Choice::Stay => {}
            Choice::Narrow { node, mode } => {
                let entry = Entry::new(task, mode, &model.mode_on(task, node, mode));
                lists[node].push(entry);
            }
            Choice::Wide { .. } => return None,
        }
    }
    Some(lists)
}

/// Draws borders in a played plan, and keeps the times of tasks between them. `by` is the time by which
/// all tasks should end, if that is the objective.
fn draw_borders(
    instance: &Instance,
    player: &Player,
    by: Option<f64>,
    duties: &mut [Duty],
    random: &mut Random,
) {
    let tasks = &instance.tasks;
    let is_exact = random.below(EXACT_IN) == 0;
    let reach = if is_exact { 0.0 } else { random.log_between(REACH.0, REACH.1) };
    let reach = reach * player.makespan;
    for (task, facts) in tasks.iter().enumerate() {
        for &before in &facts.after {
            let (end, start) = (player.ends[before], player.starts[task]);
            let drawn = end + (start - end) * random.unit() + reach * (2.0 * random.unit() - 1.0);
            // What waits for the border must be able to end in time.
            let latest = by.map_or(f64::INFINITY, |by| by - facts.shortest - facts.tail);
            let border = drawn.min(latest).max(tasks[before].earliest_end);
            duties[task].release = duties[task].release.max(border);
            duties[before].due = duties[before].due.min(border);
        }
    }
}

/// Lists as an order by start.
fn genome_of(instance: &Instance, queue: &Queue, lists: &Lists) -> Genome {
    let num_tasks = instance.tasks.len();
    let mut choices = vec![Choice::Stay; num_tasks];
    let mut starts: Vec<(f64, usize)> = Vec::with_capacity(num_tasks);
    for (node, list) in lists.iter().enumerate() {
        let mut free = queue.model.ready[node].clone();
        for entry in list {
            let task = entry.task as usize;
            let release = queue.duties[task].release;
            let start = place_after(&mut free, usize::from(entry.gpus), release, entry.runtime);
            if let Some(mode) = entry.mode() {
                choices[task] = Choice::Narrow { node, mode };
            }
            if !instance.tasks[task].is_fixed {
                starts.push((start, task));
            }
        }
    }
    starts.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    let order = starts.into_iter().map(|(_, task)| task).collect();
    Genome { order, choices, backfills: true }
}

#[cfg(test)]
mod tests {
    use saturn_core::{Candidate, Cluster, Node, Problem, ProblemTask};

    use super::*;
    use crate::course::clock::FrozenClock;
    use crate::general::construct::{construct, ranks, recipes};

    /// Tasks on two nodes of four devices. Every second task waits for the task before it, and some
    /// are released late.
    fn problem(random: &mut Random) -> Problem {
        let task = |index: usize| {
            let runtime_s = random.log_between(10.0, 200.0);
            let strategies = [1, 2, 4].map(|gpus| Candidate {
                technique: "ddp".into(),
                gpus,
                gpu_type: None,
                runtime_s: runtime_s / f64::from(gpus).powf(0.8),
                pack: false,
                host_bytes: 0,
                relative_error: 0.0,
            });
            let after = (index % 2 == 1).then(|| format!("t{}", index - 1));
            let release_s = if index.is_multiple_of(3) { 100.0 * random.unit() } else { 0.0 };
            let after = after.into_iter().collect();
            let name = format!("t{index}");
            ProblemTask { after, release_s, ..ProblemTask::new(name, strategies.to_vec()) }
        };
        let tasks = (0..14).map(task).collect();
        let nodes = (0..2).map(|index| Node::new(format!("n{index}"), 4, "a100")).collect();
        Problem { cluster: Cluster { nodes }, tasks, ..Problem::default() }
    }

    /// Does `test` with plans of random problems, under both objectives.
    fn with_plans(test: impl Fn(&Instance, &Incumbent, &mut Random)) {
        for seed in 0..40 {
            let mut random = Random::new(seed, 0);
            let problem = problem(&mut random);
            let model = Model::new(&problem);
            for objective in [Objective::Makespan, Objective::Completion] {
                let instance = Instance::new(&problem, &model, objective, &[1.0]);
                let mut player = Player::new(&instance, Pace::Packed);
                let recipe = recipes(objective, 1.0)[0];
                let rank = ranks(&instance, recipe.rule);
                let until = Deadline::new(&FrozenClock, 1.0);
                let built = construct(&mut player, recipe, &rank, until, &|_, _| true, true);
                let genome = player.by_start(built.unwrap());
                let worth = player.worth(&genome, f64::INFINITY);
                test(&instance, &Incumbent { worth, genome }, &mut random);
            }
        }
    }

    #[test]
    fn what_waits_starts_behind_the_border_by_which_the_other_ends() {
        with_plans(|instance, plan, random| {
            let mut player = Player::new(instance, Pace::Packed);
            player.play(&plan.genome);
            let by = (instance.objective == Objective::Makespan).then_some(plan.worth.makespan);
            let mut duties = queue(instance, instance.model, Aim::Ends).duties;
            draw_borders(instance, &player, by, &mut duties, random);
            for (task, facts) in instance.tasks.iter().enumerate() {
                assert!(duties[task].release >= facts.head);
                assert!(duties[task].due >= facts.earliest_end);
                for &before in &facts.after {
                    assert!(duties[before].due <= duties[task].release, "{duties:?}");
                }
            }
        });
    }

    #[test]
    fn the_lists_of_a_plan_are_no_worse_than_the_plan() {
        with_plans(|instance, plan, _| {
            let mut player = Player::new(instance, Pace::Packed);
            player.play(&plan.genome);
            let lists = lists(instance, &player, &plan.genome).unwrap();
            let times = player.starts.iter().zip(&instance.tasks);
            let duty = |(start, task): (&f64, &crate::general::instance::TaskFacts)| Duty {
                weight: task.weight,
                release: *start,
                due: f64::INFINITY,
                wished: f64::INFINITY,
                late_price: 0.0,
            };
            let queue = Queue {
                model: instance.model,
                duties: times.map(duty).collect(),
                until: vec![f64::INFINITY; lists.len()],
                aim: Aim::Ends,
                least_tardiness: 0.0,
                late_price: 1.0,
            };
            let again = player.worth(&genome_of(instance, &queue, &lists), f64::INFINITY);
            assert!(!plan.worth.beats(&again), "{:?} {again:?}", plan.worth);
        });
    }

    #[test]
    fn rounds_find_better_plans_of_most_problems() {
        let num_better = std::cell::Cell::new(0);
        with_plans(|instance, plan, _| {
            let course = Course::new(1, 1);
            let mut search = Search::new(instance, course, 1.0).unwrap();
            let limits = Limits::new(Deadline::new(&FrozenClock, 1.0), None, 1);
            let (found, is_whole) = search.round(plan, &limits);
            assert!(is_whole);
            let mut player = Player::new(instance, Pace::Packed);
            for one in &found {
                let worth = player.worth(&one.genome, f64::INFINITY);
                assert!((worth.value - one.worth.value).abs() <= 1e-9 * worth.value);
            }
            let is_better = found.iter().any(|one| one.worth.beats(&plan.worth));
            num_better.set(num_better.get() + u32::from(is_better));
        });
        assert!(num_better.get() > 60, "{} of 80", num_better.get());
    }
}
