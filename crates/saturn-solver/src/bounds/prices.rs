//! Prices of devices over time, and the least that a task costs at such prices.
//!
//! A [`Job`] is a task as the bound on weighted completion sees it: the weight w of its end, and
//! [`Slot`]s. A slot is a number h of devices of one kind for p seconds, with the earliest and the
//! latest start. At prices λ_k(t) of a device of kind k at time t a job costs at least
//!
//!   min over its slots and their starts s of w·(s + p) + h·∫ λ_k(t) dt from s to s + p.
//!
//! If the task's owner has a cap, λ_k(t) + μ(t) stands in place of λ_k(t): μ is the price of the devices
//! that the owner may hold at once. Kinds and caps are *resources*; the kinds come first.
//!
//! The prices are constant between borders in time, and 0 behind the last border. A start of a slot
//! is *critical* if the start or the end of the run meets a border. Between two critical starts the
//! cost is linear, so its minimum is at a critical start or at a limit of the slot. So looking at
//! those starts alone is exact in continuous time.

/// The last regular border. Another interval behind it, half as long, catches later ends.
const BEYOND: f64 = 1.5;
/// Borders are denser early, where more tasks end: they lie at this power of even steps.
const SKEW: f64 = 1.5;

/// A way to run a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slot {
    pub(crate) kind: usize,
    /// Devices held.
    pub(crate) held: f64,
    /// Seconds.
    pub(crate) runtime: f64,
    /// The earliest and the latest start, seconds; the latest may be infinite.
    pub(crate) first: f64,
    pub(crate) last: f64,
}

/// A task: the weight of its end, and every way to run it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub(crate) weight: f64,
    pub(crate) slots: Vec<Slot>,
    /// The resource of its owner's cap, if that may bind.
    pub(crate) cap: Option<usize>,
}

/// Where a job costs least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) cost: f64,
    /// Index into the job's slots.
    pub(crate) slot: usize,
    /// Seconds.
    pub(crate) start: f64,
}

/// λ and μ: the price of a second of one device, by resource and time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prices {
    /// Ascending, the first of them 0, seconds.
    borders: Vec<f64>,
    /// By resource and interval between two borders.
    rates: Vec<Vec<f64>>,
    /// By resource and border: the integral of the price up to there.
    sums: Vec<Vec<f64>>,
}

impl Prices {
    pub(crate) fn new(borders: Vec<f64>, rates: Vec<Vec<f64>>) -> Self {
        let sums = rates.iter().map(|_| vec![0.0; borders.len()]).collect();
        let mut prices = Self { borders, rates, sums };
        prices.sum_up();
        prices
    }

    fn sum_up(&mut self) {
        for (rates, sums) in self.rates.iter().zip(&mut self.sums) {
            for (at, rate) in rates.iter().enumerate() {
                sums[at + 1] = sums[at] + rate * (self.borders[at + 1] - self.borders[at]);
            }
        }
    }

    /// Sets every price by resource and interval.
    pub(crate) fn set(&mut self, price: impl Fn(usize, usize) -> f64) {
        for (resource, rates) in self.rates.iter_mut().enumerate() {
            for (at, rate) in rates.iter_mut().enumerate() {
                *rate = price(resource, at);
            }
        }
        self.sum_up();
    }

    pub(crate) fn borders(&self) -> &[f64] {
        &self.borders
    }

    pub(crate) fn num_resources(&self) -> usize {
        self.rates.len()
    }

    /// The prices of a resource, by interval.
    pub(crate) fn rates(&self, resource: usize) -> &[f64] {
        &self.rates[resource]
    }

    /// Index of the interval that a time is in; the number of intervals behind the last border.
    #[inline]
    pub(crate) fn interval(&self, time: f64) -> usize {
        self.borders.partition_point(|border| *border <= time).saturating_sub(1)
    }

    /// The cost of one device of a resource from 0 up to `time`.
    #[inline]
    pub(crate) fn integral(&self, resource: usize, time: f64) -> f64 {
        self.up_to(resource, self.interval(time), time)
    }

    /// The same where the interval of `time` is known.
    #[inline]
    fn up_to(&self, resource: usize, interval: usize, time: f64) -> f64 {
        let rate = self.rates[resource].get(interval).copied().unwrap_or(0.0);
        self.sums[resource][interval] + rate * (time - self.borders[interval])
    }

    /// Where a job costs least; `None` where it has no slot.
    pub(crate) fn least(&self, job: &Job) -> Option<Place> {
        let mut best: Option<Place> = None;
        for (slot, shape) in job.slots.iter().enumerate() {
            let most = best.map_or(f64::INFINITY, |best| best.cost);
            if let Some((cost, start)) = self.sweep(job, shape, most) {
                best = Some(Place { cost, slot, start });
            }
        }
        best
    }

    /// The least cost of a slot and its start, if the cost is below `most`.
    fn sweep(&self, job: &Job, slot: &Slot, most: f64) -> Option<(f64, f64)> {
        let (weight, cap) = (job.weight, job.cap);
        let num_intervals = self.borders.len() - 1;
        let Slot { kind, held, runtime, first, last } = *slot;
        let mut start = first;
        let (mut from, mut to) = (self.interval(start), self.interval(start + runtime));
        let mut best: Option<(f64, f64)> = None;
        let mut least = most;
        loop {
            let end = start + runtime;
            // From here on the end alone costs too much.
            if weight * end >= least {
                return best;
            }
            let mut paid = self.up_to(kind, to, end) - self.up_to(kind, from, start);
            if let Some(cap) = cap {
                paid += self.up_to(cap, to, end) - self.up_to(cap, from, start);
            }
            let cost = weight * end + held * paid;
            if cost < least {
                least = cost;
                best = Some((cost, start));
            }
            if start >= last || from >= num_intervals {
                return best;
            }
            let by_start = self.borders[from + 1];
            let by_end =
                if to < num_intervals { self.borders[to + 1] - runtime } else { f64::INFINITY };
            if by_start.min(by_end) >= last {
                start = last;
            } else if by_end < by_start {
                to += 1;
                start = by_end.max(start);
            } else {
                from += 1;
                start = by_start;
            }
        }
    }
}

/// Borders of so many intervals up to beyond `horizon`, seconds.
pub(crate) fn borders(horizon: f64, num_intervals: usize) -> Vec<f64> {
    let mut borders: Vec<f64> = (0..=num_intervals)
        .map(|at| horizon * BEYOND * (at as f64 / num_intervals as f64).powf(SKEW))
        .collect();
    borders.push(horizon * BEYOND * 1.5);
    borders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::random::Random;

    /// The cost of a slot from a start, by summing over the intervals.
    fn cost_from(prices: &Prices, job: &Job, slot: &Slot, start: f64) -> f64 {
        let end = start + slot.runtime;
        let of_resource = |resource: usize| {
            let borders = prices.borders().windows(2).zip(prices.rates(resource));
            let inside = |pair: &[f64]| (end.min(pair[1]) - start.max(pair[0])).max(0.0);
            borders.map(|(pair, rate)| inside(pair) * rate).sum::<f64>()
        };
        let paid = of_resource(slot.kind) + job.cap.map_or(0.0, of_resource);
        job.weight * end + slot.held * paid
    }

    #[test]
    fn no_start_costs_less_than_the_least() {
        let mut random = Random::new(7, 0);
        for _ in 0..400 {
            let num_intervals = 1 + random.below(9);
            let mut borders = vec![0.0];
            for _ in 0..num_intervals {
                borders.push(borders[borders.len() - 1] + 0.2 + 3.0 * random.unit());
            }
            let end = borders[num_intervals];
            let mut rates = || (0..num_intervals).map(|_| 5.0 * random.unit()).collect();
            let prices = Prices::new(borders, vec![rates(), rates()]);
            let first = end * random.unit();
            let last =
                if random.below(2) == 0 { f64::INFINITY } else { first + end * random.unit() };
            let slot = Slot {
                kind: 0,
                held: (1 + random.below(8)) as f64,
                runtime: 0.1 + end * random.unit(),
                first,
                last,
            };
            let weight = 0.1 + 4.0 * random.unit();
            let cap = (random.below(2) == 0).then_some(1);
            let job = Job { weight, slots: vec![slot], cap };
            let place = prices.least(&job).unwrap();
            let own = cost_from(&prices, &job, &slot, place.start);
            assert!((own - place.cost).abs() <= 1e-9 * own, "{place:?} {own}");
            assert!((first..=last).contains(&place.start));
            let until = last.min(end + 1.0).max(first);
            for step in 0..=500 {
                let start = first + (until - first) * f64::from(step) / 500.0;
                let cost = cost_from(&prices, &job, &slot, start);
                assert!(
                    cost >= place.cost * (1.0 - 1e-9),
                    "{slot:?} from {start}: {cost} {place:?}"
                );
            }
        }
    }
}
