//! The course of a search: rounds whose size no limit changes.
//!
//! A round is some items of work, each of a nominal number of moves. Each item has a stream of
//! random numbers, which the seed, the round and the item determine. The items of a round do not
//! see each other's results, so any number of threads may do them in any order. The results of a
//! whole round decide the next round. Limits only decide how many rounds there are, and how much of
//! the last round is done. Of a cut round, only plans count that a longer search meets too. So
//! **more time, more moves and more threads are never worse**.

use std::sync::Mutex;
use std::thread;

use crate::course::clock::Deadline;
use crate::course::random::Random;

/// Items of a round, at least: enough for the threads of most machines. More threads than this make
/// more items, and so another course.
const LEAST_STREAMS: usize = 8;
/// Items of a round, at most.
const MOST_STREAMS: usize = 64;

/// Where a search stops; its course goes on from there if it is asked to.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) deadline: Deadline<'a>,
    /// Moves since the search began.
    pub(crate) max_moves: Option<u64>,
    /// No round begins after so many moves since the search began.
    pub(crate) rests_at: u64,
    pub(crate) threads: usize,
    /// A plan that is worth no more is optimal.
    pub(crate) low: f64,
    /// A plan that is worth less is reason to stop; 0 for none.
    pub(crate) enough: f64,
}

impl<'a> Limits<'a> {
    /// Until a deadline, or so many moves.
    pub(crate) fn new(deadline: Deadline<'a>, max_moves: Option<u64>, threads: usize) -> Self {
        Self { deadline, max_moves, rests_at: u64::MAX, threads, low: 0.0, enough: 0.0 }
    }

    /// Whether a plan of this value is reason to stop.
    pub(crate) fn are_met_by(&self, value: f64) -> bool {
        value <= self.low * (1.0 + 1e-9) || value < self.enough
    }
}

/// How far a search has come.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    seed: u64,
    num_streams: usize,
    num_rounds: u64,
    /// Moves of whole rounds, by their nominal sizes.
    num_moves: u64,
    /// The limit on moves that cut a round short.
    cut_at: u64,
}

/// The results of a round.
pub(crate) struct Round<R> {
    /// In the order of the items; fewer where the limit on moves came before an item.
    pub(crate) results: Vec<R>,
    /// Whether every item was done to its end. Otherwise the round is as if it had not begun, but
    /// for the plans that it met.
    pub(crate) is_whole: bool,
}

impl Course {
    pub(crate) fn new(seed: u64, threads: usize) -> Self {
        let num_streams = threads.next_multiple_of(LEAST_STREAMS).min(MOST_STREAMS);
        Self { seed, num_streams, num_rounds: 0, num_moves: 0, cut_at: 0 }
    }

    pub(crate) fn num_moves(&self) -> u64 {
        self.num_moves
    }

    /// Items of a round that share nothing.
    pub(crate) fn num_streams(&self) -> usize {
        self.num_streams
    }

    /// In how many shares `num_nodes` nodes are dealt to the items of a round.
    pub(crate) fn num_shares(&self, num_nodes: usize) -> usize {
        const NODES_OF_A_SHARE: usize = 4;
        (num_nodes / NODES_OF_A_SHARE).clamp(num_nodes.clamp(1, 2), self.num_streams)
    }

    /// Random numbers for preparing the next round.
    pub(crate) fn dealer(&self) -> Random {
        self.stream(MOST_STREAMS)
    }

    fn stream(&self, item: usize) -> Random {
        Random::new(self.seed, self.num_rounds * (MOST_STREAMS as u64 + 1) + item as u64)
    }

    pub(crate) fn is_over(&self, limits: &Limits) -> bool {
        self.num_moves >= limits.rests_at
            || limits.max_moves.is_some_and(|most| most <= self.num_moves.max(self.cut_at))
            || limits.deadline.is_over()
    }

    /// Leaves out a round without results.
    pub(crate) fn pass(&mut self) {
        self.num_rounds += 1;
    }

    /// Does a round of items of `length` moves each. `work` is told how many moves it may make.
    /// The moves themselves must not depend on this number.
    pub(crate) fn round<T: Send, R: Send>(
        &mut self,
        limits: &Limits,
        items: Vec<T>,
        length: u64,
        work: impl Fn(T, &mut Random, u64) -> R + Sync,
    ) -> Round<R> {
        let left = limits.max_moves.map_or(u64::MAX, |most| most.saturating_sub(self.num_moves));
        let num_items = items.len() as u64;
        let allowed = |index: usize| left.saturating_sub(index as u64 * length).min(length);
        let items = items.into_iter().enumerate();
        let items = items.map(|(index, item)| (index, allowed(index), item));
        let items = items.filter(|(_, most, _)| *most > 0).collect();
        let results = in_threads(limits.threads, items, |(index, most, item)| {
            work(item, &mut self.stream(index), most)
        });
        let is_whole = left >= num_items * length && !limits.deadline.is_over();
        if is_whole {
            self.num_rounds += 1;
            self.num_moves += num_items * length;
        } else if let Some(most) = limits.max_moves {
            self.cut_at = most;
        }
        Round { results, is_whole }
    }
}

/// Does `work` on each item, on `threads` threads, this thread among them; results in order.
pub(crate) fn in_threads<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let others = threads.min(items.len()).saturating_sub(1);
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let left = Mutex::new(items.into_iter().zip(&mut results));
    let take = || left.lock().ok().and_then(|mut left| left.next());
    let do_some = || {
        while let Some((item, result)) = take() {
            *result = Some(work(item));
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(do_some);
        }
        do_some();
    });
    drop(left);
    results.into_iter().flatten().collect()
}
