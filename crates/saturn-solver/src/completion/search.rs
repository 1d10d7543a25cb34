//! The anytime search: priced lists, then rounds of annealing until a limit is reached.
//!
//! The course of a round follows from the seed and the rounds before ([`Course`]). A stretch of
//! moves between two deals of the nodes counts only if it was finished.

use crate::completion::build::{Guide, Recipe, build};
use crate::completion::queue::{Fine, Merit, Queue};
use crate::completion::region::{Cooling, MOVES_PER_LOOK, Region};
use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::{Course, Limits};
use crate::lists::list::Lists;
use crate::lists::shares::{Share, collect, deal};
use crate::problem::tardiness::compare_tardiness;

/// With at most so many tasks, or with fewer nodes than this, every annealing is of the whole
/// problem.
const FEW_TASKS: usize = 30;
const FEW_NODES: usize = 8;
/// About how many modes times nodes are looked at for the first lists, and the most lists.
const EFFORT: usize = 20_000_000;
const MOST_LISTS: usize = 20;
/// The first lists are built even if the time is over, unless they take more looks than this. So many
/// looks take some milliseconds.
const LATE_EFFORT: usize = 1_000_000;

/// Moves for each task of the first annealing of one plan in shares, and the growth from each
/// annealing to the next.
const TOGETHER_PER_TASK: u64 = 1_500;
const GROWTH: f64 = 1.4;
/// The most moves of a share between two deals of the nodes, and the fewest deals of an annealing.
const LONGEST_STRETCH: u64 = 20_000;
const DEALS: u64 = 16;
/// First and last temperature of such an annealing, in mean costs of a task. Later annealings may
/// begin hotter.
const HOT: f64 = 0.02;
const COLD: f64 = 0.0005;
const HOTTER: f64 = 3.0;

/// Moves of the first annealings of the whole. Their number doubles in each round up to a limit for
/// each task, or a total limit, and every few rounds from there on.
const FIRST_ALONE: u64 = 512;
const SHORT_PER_TASK: u64 = 1_000;
const SHORT: u64 = 20_000;
const LONGEST_ALONE: u64 = 8_000_000;
const ROUNDS_PER_LENGTH: u64 = 2;

/// The price of a second of lateness, in mean weights: at first, at least and at most.
const FINE: f64 = 30.0;
const LEAST_FINE: f64 = 15.0;
const MOST_FINE: f64 = 1e6;
/// The most while only soft deadlines are missed.
const MOST_SOFT_FINE: f64 = 1e3;
/// The fee of a gang that ends too late at all, in seconds of lateness for each second of the mean
/// end.
const FEE: f64 = 0.002;

/// The best lists so far and their merit.
#[derive(Debug, Clone)]
struct Incumbent {
    merit: Merit,
    lists: Lists,
}

/// A search in progress.
pub(crate) struct Search<'a> {
    inputs: Inputs<'a>,
    pub(crate) course: Course,
    best: Incumbent,
    /// The present price of a second of lateness, in mean weights.
    fine: f64,
    stage: Stage,
}

/// The inputs of a search.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    queue: &'a Queue<'a>,
    guide: &'a Guide,
}

/// How far the search has come.
enum Stage {
    /// Annealings of the whole: their length, how long short annealings are, and rounds of that
    /// length so far.
    Alone { length: u64, short: u64, num_rounds: u64 },
    /// One annealing in shares: its moves, how hot it begins, moves of each share so far, and the
    /// lists. There are no lists before the first stretch.
    Together { length: f64, hotter: f64, done: u64, current: Option<(Lists, f64)> },
}

impl<'a> Search<'a> {
    /// Begins with lists of its own, or with `warm` if they are better.
    pub(crate) fn new(
        queue: &'a Queue<'a>,
        guide: &'a Guide,
        course: Course,
        warm: Option<Lists>,
        deadline: Deadline,
    ) -> Self {
        let inputs = Inputs { queue, guide };
        let num_tasks = queue.duties.len();
        let stage = if num_tasks <= FEW_TASKS || queue.model.nodes.len() < FEW_NODES {
            let short = SHORT.min(SHORT_PER_TASK * num_tasks as u64);
            Stage::Alone { length: FIRST_ALONE.min(short), short, num_rounds: 0 }
        } else {
            let length = (TOGETHER_PER_TASK * num_tasks as u64) as f64;
            Stage::Together { length, hotter: 1.0, done: 0, current: None }
        };
        let best = inputs.first_lists(course.dealer(), deadline);
        let mut search = Self { inputs, course, best, fine: FINE, stage };
        if let Some(lists) = warm {
            search.take(inputs.settled(lists));
        }
        search
    }

    pub(crate) fn lists(&self) -> &Lists {
        &self.best.lists
    }

    /// Goes on until a limit is reached or the value meets its bound.
    pub(crate) fn advance(&mut self, limits: &Limits) {
        while !self.is_optimal(limits) && !self.course.is_over(limits) {
            match self.stage {
                Stage::Alone { .. } => self.anneal_alone(limits),
                Stage::Together { .. } => self.anneal_together(limits),
            }
        }
    }

    /// Whether no lists are better.
    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        let Merit { missed, value, .. } = self.best.merit;
        missed <= 0.0 && !self.is_tardy() && limits.are_met_by(value)
    }

    /// Whether the best plan may be tardier than it must.
    fn is_tardy(&self) -> bool {
        let least = self.inputs.queue.least_tardiness;
        compare_tardiness(self.best.merit.tardiness, least).is_gt()
    }

    fn take(&mut self, found: Incumbent) {
        if found.merit.beats(self.best.merit) {
            self.best = found;
        }
    }

    /// The fine of the next round: higher while the best plan is late, otherwise lower.
    fn next_fine(&mut self) {
        self.fine = if self.best.merit.missed > 0.0 {
            (self.fine * 2.0).min(MOST_FINE)
        } else if self.is_tardy() {
            // It may be that no plan is less tardy. Then too high a fine would only hide the value.
            (self.fine * 2.0).min(MOST_SOFT_FINE.max(self.fine))
        } else {
            (self.fine * 0.8).max(LEAST_FINE)
        };
    }

    /// A round in which each stream anneals the whole problem from the best lists or from new
    /// lists.
    fn anneal_alone(&mut self, limits: &Limits) {
        let Stage::Alone { length, short, num_rounds } = &mut self.stage else { return };
        let (inputs, best, fine, span) = (self.inputs, &self.best, self.fine, *length);
        let items = vec![(); self.course.num_streams()];
        let round = self.course.round(limits, items, span, |(), random, most| {
            inputs.anneal_once(best, fine, span, most, limits.deadline, random)
        });
        if round.is_whole {
            *num_rounds += 1;
            if *length < *short || *num_rounds == ROUNDS_PER_LENGTH {
                let most = if *length < *short { *short } else { LONGEST_ALONE };
                *length = (*length * 2).min(most);
                *num_rounds = 0;
            }
        }
        for found in round.results.into_iter().flatten() {
            self.take(found);
        }
        if round.is_whole {
            self.next_fine();
        }
    }

    /// A stretch of an annealing of the best lists, each share of the nodes by itself.
    fn anneal_together(&mut self, limits: &Limits) {
        let Stage::Together { length, hotter, done, current } = &mut self.stage else { return };
        let inputs = self.inputs;
        // Of the lists that the annealing began with.
        let (lists, value) =
            current.get_or_insert_with(|| (self.best.lists.clone(), self.best.merit.value));
        let unit = *value / inputs.queue.duties.len() as f64;
        let fine = inputs.fine(self.fine, *value);
        let shares = deal(&self.course, lists);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let each = (*length as u64).div_ceil(shares.len() as u64);
        let cooling = Cooling { from: unit * HOT * *hotter, to: unit * COLD, num_moves: each };
        let span = each.div_ceil(DEALS).clamp(1, LONGEST_STRETCH).min(each - *done);
        let round = self.course.round(limits, shares, span, |share, random, most| {
            // A part of a stretch is worth nothing.
            let span = *done..*done + if most == span { span } else { 0 };
            let mut region = Region::new(inputs.queue, fine, &share.nodes, share.lists);
            region.run(cooling, span, None, limits.deadline, random);
            Share { nodes: share.nodes, lists: region.into_lists() }
        });
        if !round.is_whole {
            return;
        }
        collect(round.results, lists);
        *done += span;
        let found = inputs.queue.merit(lists);
        let found = found.beats(self.best.merit).then(|| lists.clone());
        let is_over = *done >= each;
        if is_over {
            *length *= GROWTH;
            *hotter = self.course.dealer().log_between(1.0, HOTTER);
            (*done, *current) = (0, None);
        }
        if let Some(lists) = found {
            self.take(inputs.settled(lists));
        }
        if is_over {
            self.next_fine();
        }
    }
}

impl Inputs<'_> {
    /// The price of lateness at `times` the mean weight a second.
    fn fine(&self, times: f64, value: f64) -> Fine {
        let mean = self.queue.mean_weight();
        let rate = mean * times;
        let mean_end = value / (mean * self.queue.duties.len().max(1) as f64);
        Fine { fee: rate * FEE * mean_end, rate }
    }

    /// The best of some lists built by the guide's prices; fewer lists if they take long. If the time is
    /// over already, only the first lists are built, or none if that would take long.
    fn first_lists(&self, mut random: Random, deadline: Deadline) -> Incumbent {
        let model = self.queue.model;
        let num_ways: usize = model
            .tasks
            .iter()
            .map(|task| task.modes.iter().map(Vec::len).sum::<usize>() * model.nodes.len())
            .sum();
        let num_lists = (EFFORT / num_ways.max(1)).clamp(1, MOST_LISTS);
        let fine = self.fine(FINE, self.guide.bound());
        let worst = Merit { missed: f64::INFINITY, ..Merit::default() };
        let mut best = Incumbent { merit: worst, lists: Lists::new() };
        for stays in [true, false].into_iter().take(1 + usize::from(model.has_running())) {
            let recipes = [1.0, 0.85, 1.2, 0.7].into_iter().flat_map(|thrift| {
                [0.5, 0.0, 1.0, 0.25, 0.75].map(|point| Recipe {
                    point,
                    thrift,
                    stays,
                    jitter: 0.0,
                    is_by_deadline: false,
                })
            });
            let by_deadline = [1.0, 0.5, 0.1].map(|thrift| Recipe {
                point: 0.5,
                thrift,
                stays,
                jitter: 0.0,
                is_by_deadline: true,
            });
            let by_deadline = by_deadline.into_iter().filter(|_| self.has_wishes()).take(num_lists);
            for recipe in recipes.take(num_lists).chain(by_deadline) {
                let is_first = best.lists.is_empty() && num_ways <= LATE_EFFORT;
                let until = if is_first { deadline.without_end() } else { deadline };
                let lists = build(self.queue, self.guide, fine, recipe, until, &mut random);
                let Some(lists) = lists else { return best };
                let found = self.settled(lists);
                if found.merit.beats(best.merit) {
                    best = found;
                }
                if deadline.is_over() {
                    return best;
                }
            }
        }
        best
    }

    /// Whether any task has a soft deadline.
    fn has_wishes(&self) -> bool {
        self.queue.duties.iter().any(|duty| duty.wished.is_finite())
    }

    /// `most` moves of an annealing of the whole.
    fn anneal_once(
        &self,
        best: &Incumbent,
        fine: f64,
        length: u64,
        most: u64,
        deadline: Deadline,
        random: &mut Random,
    ) -> Option<Incumbent> {
        let num_tasks = self.queue.duties.len();
        let unit = best.merit.value / num_tasks.max(1) as f64;
        let fine = self.fine(fine, best.merit.value);
        let lists = if random.below(2) == 0 {
            let recipe = Recipe {
                point: random.unit(),
                thrift: random.log_between(0.5, 1.5),
                stays: random.below(4) > 0,
                jitter: 0.5 * random.unit(),
                is_by_deadline: self.has_wishes() && random.below(2) == 0,
            };
            build(self.queue, self.guide, fine, recipe, deadline, random)?
        } else {
            best.lists.clone()
        };
        // A task is a large share of the whole where there are few.
        let hottest = if num_tasks <= FEW_TASKS / 2 { 0.5 } else { 0.1 };
        let cooling = Cooling {
            from: unit * random.log_between(0.01, hottest),
            to: unit * COLD * 0.5,
            num_moves: length,
        };
        let nodes: Vec<usize> = (0..lists.len()).collect();
        let mut region = Region::new(self.queue, fine, &nodes, lists);
        // A multiple of the moves between two looks at the clock. So a search that is cut short
        // takes the same moves as a whole search up to there.
        let span = 0..most / MOVES_PER_LOOK * MOVES_PER_LOOK;
        let found = region.run(cooling, span, Some(best.merit), deadline, random);
        found.map(|(merit, lists)| Incumbent { merit, lists })
    }

    fn settled(&self, lists: Lists) -> Incumbent {
        let (merit, lists) = self.queue.settled(lists);
        Incumbent { merit, lists }
    }
}
