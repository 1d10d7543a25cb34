//! A lower bound on weighted completion: the dual of choosing a start for every task.
//!
//! Let kind k have c_k(t) devices at time t, and let a second of one of them cost λ_k(t) ≥ 0
//! ([`prices`](crate::bounds::prices)). No plan ever holds more devices than there are, so for its ends C_i
//!
//!   Σ w_i·C_i ≥ Σ w_i·C_i + Σ_k ∫ λ_k(t)·(devices of kind k held at t − c_k(t)) dt
//!            ≥ Σ_i (the least that task i costs at these prices) − Σ_k ∫ λ_k(t)·c_k(t) dt = L(λ).
//!
//! An owner's cap counts as a kind does: its price comes on top for the owner's tasks, which never hold
//! more devices.
//!
//! So any prices prove a bound by themselves, wherever the search for good prices stops. L is
//! concave in λ. The volume algorithm makes it large (Barahona and Anbil, Math. Programming 87,
//! 2000). A subgradient is the number of devices that the cheapest places of all tasks hold beyond
//! the existing devices. Steps go from the best prices along an average of the subgradients met.
//! The same average over the cheapest places is close to a solution of the linear program: it says
//! roughly when a task should start.
//!
//! The result of [`Ascent::climb`] depends on the number of rounds alone, never on the time. So
//! more time gives the same prices, or better prices.

use crate::bounds::fluid::fluid;
use crate::bounds::prices::{Job, Place, Prices, borders};
use crate::course::clock::Deadline;
use crate::course::rounds::in_threads;

/// Jobs whose cheapest places are looked for between two looks at the clock.
const JOBS_PER_LOOK: usize = 100;
/// Shaved off so that rounding can't lift the bound above a true value.
const SAFETY: f64 = 1e-9;
/// With fewer ways to run tasks than this a thread costs more than it helps.
const FEW_SLOTS: usize = 2_000;
/// Intervals to begin with, and at most.
const COARSE: usize = 15;
const FINE: usize = 60;
/// How much the best value should grow in a step, and how far a step goes towards that.
const GAIN: f64 = 0.05;
const FIRST_FACTOR: f64 = 0.5;
const MOST_FACTOR: f64 = 2.0;
/// Below this factor steps change nothing any more.
const LEAST_FACTOR: f64 = 1e-5;
/// The weight of a new subgradient in the average, at most, and the least that this falls to.
const FIRST_SHARE: f64 = 0.2;
const LEAST_SHARE: f64 = 0.005;
/// After so many rounds without a better value, steps get shorter.
const PATIENCE: usize = 20;
/// After so many rounds of little gain, a new subgradient counts less.
const SEASON: usize = 100;

/// Devices over time: how many a resource has, from when to when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Supply {
    /// A kind of device, or a cap.
    pub(crate) resource: usize,
    pub(crate) devices: f64,
    /// Seconds; the end may be infinite.
    pub(crate) from: f64,
    pub(crate) until: f64,
}

/// The search for good prices: can be stopped and taken up again.
#[derive(Debug, Clone)]
pub(crate) struct Ascent {
    jobs: Vec<Job>,
    supplies: Vec<Supply>,
    horizon: f64,
    /// Devices by resource and interval, on average over the interval.
    there: Vec<Vec<f64>>,
    /// Seconds of each interval.
    lengths: Vec<f64>,
    best: Prices,
    value: f64,
    trial: Prices,
    /// Devices held beyond those that there are, by resource and interval: at the prices tried
    /// last, and on average.
    excess: Vec<Vec<f64>>,
    mean_excess: Vec<Vec<f64>>,
    /// When each job starts and ends, on average.
    starts: Vec<f64>,
    ends: Vec<f64>,
    factor: f64,
    share: f64,
    num_rounds: usize,
    /// Rounds since the last better value, and the value at the last season's end.
    num_vain: usize,
    season_value: f64,
    threads: usize,
}

impl Ascent {
    /// `horizon` is when most of the work can have been done, seconds; `levels` are the prices of
    /// GPU-seconds by kind, to begin with. Caps cost nothing at first. The search begins on few
    /// intervals, which takes little time.
    pub(crate) fn new(jobs: Vec<Job>, supplies: Vec<Supply>, horizon: f64, levels: &[f64]) -> Self {
        let borders = borders(horizon, COARSE.min(fine(jobs.len())));
        let rates = fluid(&jobs, &supplies, &borders, levels);
        Self::with(jobs, supplies, horizon, Prices::new(borders, rates))
    }

    /// The same search on as many intervals as the jobs deserve, from the prices at hand.
    pub(crate) fn refined(self) -> Self {
        let borders = borders(self.horizon, fine(self.jobs.len()));
        let rate = |resource: usize, pair: &[f64]| {
            let at = self.best.interval(f64::midpoint(pair[0], pair[1]));
            self.best.rates(resource).get(at).copied().unwrap_or(0.0)
        };
        let resources = 0..self.there.len();
        let rates =
            resources.map(|resource| borders.windows(2).map(|pair| rate(resource, pair)).collect());
        let prices = Prices::new(borders.clone(), rates.collect());
        Self::with(self.jobs, self.supplies, self.horizon, prices).on_threads(self.threads)
    }

    fn with(jobs: Vec<Job>, supplies: Vec<Supply>, horizon: f64, best: Prices) -> Self {
        let borders = best.borders();
        let there: Vec<Vec<f64>> = (0..best.num_resources())
            .map(|resource| {
                let of_resource = supplies.iter().filter(|supply| supply.resource == resource);
                let of_resource: Vec<&Supply> = of_resource.collect();
                let on_average = |pair: &[f64]| {
                    let there = |one: &&Supply| {
                        one.devices * (pair[1].min(one.until) - pair[0].max(one.from)).max(0.0)
                    };
                    of_resource.iter().map(there).sum::<f64>() / (pair[1] - pair[0])
                };
                borders.windows(2).map(on_average).collect()
            })
            .collect();
        let lengths: Vec<f64> = borders.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let none = vec![vec![0.0; lengths.len()]; there.len()];
        Self {
            supplies,
            horizon,
            trial: best.clone(),
            best,
            value: f64::NEG_INFINITY,
            excess: none.clone(),
            mean_excess: none,
            starts: vec![0.0; jobs.len()],
            ends: vec![0.0; jobs.len()],
            jobs,
            there,
            lengths,
            factor: FIRST_FACTOR,
            share: FIRST_SHARE,
            num_rounds: 0,
            num_vain: 0,
            season_value: f64::NEG_INFINITY,
            threads: 1,
        }
    }

    /// No plan is worth less; 0 before the first round.
    pub(crate) fn value(&self) -> f64 {
        self.value.max(0.0)
    }

    /// The prices that prove it.
    pub(crate) fn prices(&self) -> &Prices {
        &self.best
    }

    /// How many ways to run a task there are in all.
    pub(crate) fn num_slots(&self) -> usize {
        self.jobs.iter().map(|job| job.slots.len()).sum()
    }

    /// When each job starts and ends in the average of the places chosen, seconds.
    pub(crate) fn spans(&self) -> (&[f64], &[f64]) {
        (&self.starts, &self.ends)
    }

    /// Lets `threads` threads look for the cheapest places, if there is work enough. The value does
    /// not depend on their number.
    pub(crate) fn on_threads(self, threads: usize) -> Self {
        let is_small = self.num_slots() < FEW_SLOTS;
        Self { threads: if is_small { 1 } else { threads }, ..self }
    }

    /// Does `num_rounds` more rounds. Does fewer if the deadline comes first, or no round gains any
    /// more.
    pub(crate) fn climb(&mut self, num_rounds: usize, deadline: Deadline) {
        for _ in 0..num_rounds {
            if deadline.is_over() || self.factor < LEAST_FACTOR {
                return;
            }
            if self.round(deadline).is_none() {
                return;
            }
        }
    }

    /// `None` if the deadline came first: then the round is as if it had not begun.
    fn round(&mut self, deadline: Deadline) -> Option<()> {
        if self.num_rounds > 0 {
            self.step();
        }
        let mut places = Vec::with_capacity(self.jobs.len());
        let value = self.evaluate(&mut places, deadline)?;
        self.num_rounds += 1;
        let share = self.share_of_new();
        for (mean, new) in self.mean_excess.iter_mut().zip(&self.excess) {
            for (mean, new) in mean.iter_mut().zip(new) {
                *mean += share * (new - *mean);
            }
        }
        for (job, (start, end)) in places.into_iter().enumerate() {
            self.starts[job] += share * (start - self.starts[job]);
            self.ends[job] += share * (end - self.ends[job]);
        }
        if value > self.value {
            // The average still points uphill there: steps may be longer.
            if self.product(&self.excess, &self.mean_excess) > 0.0 {
                self.factor = (self.factor * 1.1).min(MOST_FACTOR);
            }
            self.value = value;
            self.best.clone_from(&self.trial);
            self.num_vain = 0;
        } else {
            self.num_vain += 1;
            if self.num_vain >= PATIENCE {
                self.factor *= 0.66;
                self.num_vain = 0;
            }
        }
        if self.num_rounds.is_multiple_of(SEASON) {
            if self.value < self.season_value + 1e-4 * self.value.abs() {
                self.share = (self.share * 0.5).max(LEAST_SHARE);
            }
            self.season_value = self.value;
        }
        Some(())
    }

    /// Sets the prices to try next.
    fn step(&mut self) {
        // Where a price is 0 and devices idle there is nothing to be gained by a step.
        let mut norm = 1e-12;
        for (resource, mean) in self.mean_excess.iter().enumerate() {
            let rates = self.best.rates(resource);
            for ((mean, rate), length) in mean.iter().zip(rates).zip(&self.lengths) {
                if *rate > 0.0 || *mean > 0.0 {
                    norm += mean * mean * length;
                }
            }
        }
        let step = self.factor * GAIN * self.value.abs().max(1e-9) / norm;
        let (best, mean) = (&self.best, &self.mean_excess);
        self.trial
            .set(|resource, at| (best.rates(resource)[at] + step * mean[resource][at]).max(0.0));
    }

    /// How much the new subgradient counts: the share that makes the average shortest, within
    /// limits.
    fn share_of_new(&self) -> f64 {
        if self.num_rounds == 1 {
            return 1.0;
        }
        let (new, mean) = (&self.excess, &self.mean_excess);
        let (both, means) = (self.product(new, mean), self.product(mean, mean));
        let apart = self.product(new, new) - 2.0 * both + means;
        let best = if apart > 0.0 { (means - both) / apart } else { self.share };
        best.clamp(self.share / 10.0, self.share)
    }

    fn product(&self, left: &[Vec<f64>], right: &[Vec<f64>]) -> f64 {
        let of_resource = |(left, right): (&Vec<f64>, &Vec<f64>)| {
            let terms = left.iter().zip(right).zip(&self.lengths);
            terms.map(|((left, right), length)| left * right * length).sum::<f64>()
        };
        left.iter().zip(right).map(of_resource).sum()
    }

    /// L at the prices tried, with the spans of the cheapest places and the devices that they hold
    /// beyond the existing devices; `None` if the deadline comes first.
    fn evaluate(&mut self, spans: &mut Vec<(f64, f64)>, deadline: Deadline) -> Option<f64> {
        let trial = &self.trial;
        let size = self.jobs.len().div_ceil(self.threads).max(1);
        let shares: Vec<&[Job]> = self.jobs.chunks(size).collect();
        let places = in_threads(self.threads, shares, |jobs| {
            let places = jobs.chunks(JOBS_PER_LOOK).map_while(|jobs| {
                (!deadline.is_over()).then(|| jobs.iter().map(|job| trial.least(job)))
            });
            places.flatten().collect::<Vec<Option<Place>>>()
        });
        if places.iter().map(Vec::len).sum::<usize>() < self.jobs.len() {
            return None;
        }
        let mut paid = 0.0;
        for (resource, there) in self.there.iter().enumerate() {
            let rates = self.trial.rates(resource);
            for at in 0..there.len() {
                self.excess[resource][at] = -there[at];
                paid += rates[at] * there[at] * self.lengths[at];
            }
        }
        let mut cost = 0.0;
        let borders = self.trial.borders();
        for (job, place) in self.jobs.iter().zip(places.into_iter().flatten()) {
            let Some(place) = place else {
                spans.push((0.0, 0.0));
                continue;
            };
            cost += place.cost;
            let slot = job.slots[place.slot];
            let (start, end) = (place.start, place.start + slot.runtime);
            for resource in [slot.kind].into_iter().chain(job.cap) {
                let excess = &mut self.excess[resource];
                let mut at = self.trial.interval(start);
                while at < self.lengths.len() && borders[at] < end {
                    let inside = end.min(borders[at + 1]) - start.max(borders[at]);
                    excess[at] += slot.held * inside / self.lengths[at];
                    at += 1;
                }
            }
            spans.push((start, end));
        }
        Some(cost - paid - SAFETY * (cost + paid))
    }
}

/// How many intervals `num_jobs` jobs deserve.
fn fine(num_jobs: usize) -> usize {
    (4 * num_jobs).clamp(12, FINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::prices::Slot;
    use crate::course::clock::FrozenClock;
    use crate::course::random::Random;

    fn random_jobs(random: &mut Random, num_jobs: usize) -> Vec<Job> {
        let job = |random: &mut Random| {
            let slots = (0..=random.below(3)).map(|_| {
                let first = if random.below(2) == 0 { 0.0 } else { 5.0 * random.unit() };
                Slot {
                    kind: random.below(2),
                    held: (1 + random.below(3)) as f64,
                    runtime: 0.5 + 4.0 * random.unit(),
                    first,
                    last: if random.below(4) == 0 { first + 3.0 } else { f64::INFINITY },
                }
            });
            let slots = slots.collect();
            let cap = (random.below(3) == 0).then_some(2);
            Job { weight: 0.5 + random.unit(), slots, cap }
        };
        (0..num_jobs).map(|_| job(random)).collect()
    }

    /// L(λ) from its definition: every start of a fine grid and at every border, integrals by sums.
    fn by_definition(jobs: &[Job], supplies: &[Supply], prices: &Prices) -> f64 {
        let borders = prices.borders();
        let paid = |resource: usize, from: f64, to: f64| -> f64 {
            let pairs = borders.windows(2).zip(prices.rates(resource));
            pairs.map(|(pair, rate)| (to.min(pair[1]) - from.max(pair[0])).max(0.0) * rate).sum()
        };
        let end = borders[borders.len() - 1];
        let least = |job: &Job| {
            let mut least = f64::INFINITY;
            for slot in &job.slots {
                let grid = (0..200).map(|step| slot.first + end * f64::from(step) / 200.0);
                let meets = borders.iter().flat_map(|time| [*time, time - slot.runtime]);
                let limits = [slot.first, slot.last].into_iter();
                let starts = grid.chain(meets).chain(limits);
                for start in
                    starts.filter(|start| (slot.first..=slot.last.min(1e9)).contains(start))
                {
                    let ends = start + slot.runtime;
                    let of_cap = job.cap.map_or(0.0, |cap| paid(cap, start, ends));
                    let held = slot.held * (paid(slot.kind, start, ends) + of_cap);
                    least = least.min(job.weight * ends + held);
                }
            }
            least
        };
        let there: f64 =
            supplies.iter().map(|one| one.devices * paid(one.resource, one.from, one.until)).sum();
        jobs.iter().map(least).sum::<f64>() - there
    }

    #[test]
    fn a_bound_is_what_its_prices_prove() {
        let mut random = Random::new(3, 0);
        for _ in 0..40 {
            let num_jobs = 1 + random.below(12);
            let jobs = random_jobs(&mut random, num_jobs);
            let until = if random.below(2) == 0 { f64::INFINITY } else { 9.0 };
            let supplies = [
                Supply { resource: 0, devices: 3.0, from: 0.0, until },
                Supply { resource: 1, devices: 2.0, from: 1.5, until: f64::INFINITY },
                Supply { resource: 2, devices: 1.0, from: 0.0, until: f64::INFINITY },
            ];
            let mut ascent =
                Ascent::new(jobs.clone(), supplies.to_vec(), 6.0, &[1.0, 0.8]).refined();
            let mut before = 0.0;
            for _ in 0..4 {
                ascent.climb(25, Deadline::new(&FrozenClock, 1.0));
                let value = by_definition(&jobs, &supplies, ascent.prices());
                assert!(ascent.value <= value, "{} {value}", ascent.value);
                let least = value - 1e-7 * value.abs().max(1.0);
                assert!(ascent.value >= least, "{} {value}", ascent.value);
                assert!(ascent.value() >= before);
                before = ascent.value();
            }
        }
    }

    /// One device and jobs of one mode: the least sum of ends is known. It runs the job first that
    /// is weightiest for its runtime, and the dual of the fluid loses little of it.
    #[test]
    fn one_device_is_bounded_tightly() {
        let slot = |runtime| Slot { kind: 0, held: 1.0, runtime, first: 0.0, last: f64::INFINITY };
        let job = |at: u32| Job { weight: 1.0, slots: vec![slot(f64::from(at))], cap: None };
        let jobs: Vec<Job> = (1..=20).map(job).collect();
        let optimum: f64 = (1..=20).map(|at| f64::from(at * (at + 1)) / 2.0).sum();
        let supply = Supply { resource: 0, devices: 1.0, from: 0.0, until: f64::INFINITY };
        let mut ascent = Ascent::new(jobs, vec![supply], 210.0, &[1.0]).refined();
        ascent.climb(600, Deadline::new(&FrozenClock, 1.0));
        assert!(ascent.value() <= optimum);
        assert!(ascent.value() >= 0.99 * optimum, "{} {optimum}", ascent.value());
    }

    /// Is over once it has been asked so many times.
    struct Over(std::sync::atomic::AtomicU64);

    impl crate::course::clock::Clock for Over {
        fn elapsed_s(&self) -> f64 {
            let asked = self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            if asked > 0 && asked < 1_000 { 0.0 } else { f64::INFINITY }
        }
    }

    #[test]
    fn a_round_of_many_jobs_ends_with_the_time() {
        let jobs = random_jobs(&mut Random::new(5, 0), 30 * JOBS_PER_LOOK);
        let supply = |resource| Supply { resource, devices: 8.0, from: 0.0, until: f64::INFINITY };
        let rounds_within = |looks: u64| {
            let mut ascent =
                Ascent::new(jobs.clone(), (0..3).map(supply).collect(), 1_000.0, &[1.0, 1.0]);
            ascent.climb(100, Deadline::new(&Over(looks.into()), 1.0));
            (ascent.num_rounds, ascent.value())
        };
        let (none, whole) = (rounds_within(20), rounds_within(45));
        assert_eq!((none.0, whole.0), (0, 1), "a round looks at the clock 31 times");
        assert!(none.1 < whole.1);
    }
}
