//! The search of a general problem: a search over lists, which don't know all facts, a search over
//! lists between borders, and a search over orders, which know them.
//!
//! The searches take turns, and each turn is longer than the turn before. At the end of its
//! turn, and only then, the search over lists has its lists played with all facts. So a longer
//! search plays the same lists too.

use crate::completion::queue::Queue;
use crate::course::rounds::Limits;
use crate::general::anneal;
use crate::general::borders;
use crate::general::instance::Instance;
use crate::general::plain::{self, Ask, Rest};
use crate::general::play::Genome;

/// Moves for each task of the search over lists in the first cycle, and the growth from each
/// cycle's end to the next.
const FIRST_PER_TASK: u64 = 500;
const GROWTH: f64 = 1.5;
/// Moves of lists between borders, for each move of the search over lists.
const BORDERS: f64 = 4.0;
/// The share of the work for lists.
const LISTS: f64 = 0.4;
/// The same with more tasks than this, if the lists know all facts but the wide gangs.
const MANY_LISTS: f64 = 0.9;
const MANY_TASKS: usize = 80;
/// A move of an order takes as long as this many moves of lists, for each task.
const MOVES_PER_TASK: f64 = 0.5;

pub(crate) struct Search<'a> {
    instance: &'a Instance<'a>,
    /// Whether lists know all facts of the problem.
    is_for_lists: bool,
    lists: Vec<(&'a Rest, plain::Search<'a>)>,
    borders: Option<borders::Search<'a>>,
    pub(crate) orders: anneal::Search<'a>,
    share: f64,
    /// Lists that are worth no more than this are optimal. A bound that grows with time would
    /// change the course.
    low_of_lists: f64,
    /// The number of moves of each search over lists at which this cycle is over for lists.
    goal: u64,
}

impl<'a> Search<'a> {
    /// Begins with plans of its own and with `warm`.
    pub(crate) fn new(
        instance: &'a Instance<'a>,
        rests: &'a [Rest],
        queues: &'a [Queue<'a>],
        is_for_lists: bool,
        ask: &Ask<'a>,
        warm: Vec<Genome>,
    ) -> Self {
        let has_starts = !rests.is_empty() || !warm.is_empty();
        let (course, low) = (ask.course.clone(), ask.bound.makespan);
        let mut orders = anneal::Search::new(instance, course, low, has_starts);
        let lists = rests.iter().zip(queues);
        let lists: Vec<_> =
            lists.map(|(rest, queue)| (rest, plain::Search::new(rest, queue, ask))).collect();
        if !is_for_lists {
            let starts = lists.iter().filter(|(_, search)| !search.lists().is_empty());
            let starts = starts.map(|(rest, search)| rest.genome(instance, search.lists()));
            starts.chain(warm).for_each(|genome| orders.offer(genome));
        }
        let num_tasks = instance.tasks.len();
        let is_many = num_tasks > MANY_TASKS && !instance.has_times();
        let share = if is_many { MANY_LISTS } else { LISTS };
        let goal = FIRST_PER_TASK * num_tasks as u64;
        let borders = || borders::Search::new(instance, ask.course.clone(), low);
        let borders = if is_for_lists { None } else { borders() };
        let low_of_lists = if ask.guide.is_some() { 0.0 } else { low };
        Self { instance, is_for_lists, lists, borders, orders, share, low_of_lists, goal }
    }

    /// Goes on until a limit is reached or the objective meets its bound.
    pub(crate) fn advance(&mut self, limits: &Limits) {
        if self.is_for_lists {
            return self.lists.iter_mut().for_each(|(_, search)| search.advance(limits));
        }
        if self.lists.is_empty() {
            return self.orders.advance(limits);
        }
        // With many tasks, a round of orders takes longest.
        let lists_begin = self.instance.tasks.len() > MANY_TASKS;
        while !self.is_optimal(limits) && self.has_time(limits) {
            let is_done = if lists_begin {
                self.advance_lists(limits)
                    && self.advance_borders(limits)
                    && self.advance_orders(limits)
            } else {
                self.advance_orders(limits)
                    && self.advance_lists(limits)
                    && self.advance_borders(limits)
            };
            if !is_done {
                return;
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
            let next = (self.goal as f64 * GROWTH) as u64;
            self.goal = next;
        }
    }

    /// The part of a cycle for lists; returns whether it came to its end.
    fn advance_lists(&mut self, limits: &Limits) -> bool {
        for at in 0..self.lists.len() {
            let left = self.left(limits);
            let (rest, search) = &mut self.lists[at];
            let max_moves = left.map(|left| search.num_moves() + left);
            let before = search.num_moves();
            let (rests_at, low) = (self.goal, self.low_of_lists);
            let limits = Limits { max_moves, rests_at, low, ..*limits };
            search.advance(&limits);
            if search.num_moves() < rests_at && !search.is_optimal(&limits) {
                return false;
            }
            if search.num_moves() > before {
                self.orders.offer(rest.genome(self.instance, search.lists()));
            }
        }
        true
    }

    /// The part of a cycle for lists between borders; returns whether it came to its end.
    fn advance_borders(&mut self, limits: &Limits) -> bool {
        let left = self.left(limits);
        let Some(borders) = &mut self.borders else { return true };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let rests_at = (self.goal as f64 * BORDERS) as u64;
        let max_moves = left.map(|left| borders.course.num_moves() + left);
        let limits = Limits { max_moves, rests_at, ..*limits };
        while !borders.course.is_over(&limits) {
            let best = self.orders.best.as_ref().filter(|best| borders.may_begin_with(best));
            let Some(best) = best else { return true };
            let (found, _) = borders.round(best, &limits);
            for found in found {
                self.orders.take(found);
            }
            if self.orders.is_optimal(&limits) {
                return false;
            }
        }
        borders.course.num_moves() >= rests_at
    }

    /// The part of a cycle for orders; returns whether it came to its end.
    fn advance_orders(&mut self, limits: &Limits) -> bool {
        let per_move = self.moves_per_move();
        let of_lists = (self.goal * self.lists.len() as u64) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let rests_at = (of_lists * (1.0 / self.share - 1.0)) as u64 / per_move;
        let done = self.orders.course.num_moves();
        let max_moves = self.left(limits).map(|left| done + left / per_move);
        self.orders.advance(&Limits { max_moves, rests_at, ..*limits });
        self.orders.course.num_moves() >= rests_at
    }

    /// The moves of lists that a move of orders counts as, by their times.
    fn moves_per_move(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let moves = (self.instance.tasks.len() as f64 * MOVES_PER_TASK) as u64;
        moves.max(1)
    }

    /// Between borders too.
    fn moves_of_lists(&self) -> u64 {
        let between = self.borders.as_ref().map_or(0, |borders| borders.course.num_moves());
        self.lists.iter().map(|(_, search)| search.num_moves()).sum::<u64>() + between
    }

    /// Moves so far, counted in moves of the search over orders. If only lists are searched, they
    /// are counted in moves of the search over lists.
    pub(crate) fn num_moves(&self) -> u64 {
        let of_lists = self.moves_of_lists();
        if self.is_for_lists {
            of_lists
        } else {
            self.orders.course.num_moves() + of_lists / self.moves_per_move()
        }
    }

    /// The remaining moves of lists.
    fn left(&self, limits: &Limits) -> Option<u64> {
        let per_move = self.moves_per_move();
        let done = self.moves_of_lists() + self.orders.course.num_moves() * per_move;
        limits.max_moves.map(|most| (most.saturating_mul(per_move)).saturating_sub(done))
    }

    fn has_time(&self, limits: &Limits) -> bool {
        !limits.deadline.is_over()
            && self.left(limits) != Some(0)
            && self.num_moves() < limits.rests_at
    }

    /// Whether no plan is better.
    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        match self.lists.first() {
            Some((_, search)) if self.is_for_lists => search.is_optimal(limits),
            _ => self.orders.is_optimal(limits),
        }
    }

    /// The lists, if they hold the whole problem.
    pub(crate) fn for_lists(&self) -> Option<(&'a Rest, &plain::Search<'a>)> {
        let (rest, search) = self.lists.first().filter(|_| self.is_for_lists)?;
        Some((rest, search))
    }
}
