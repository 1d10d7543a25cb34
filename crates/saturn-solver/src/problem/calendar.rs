//! The calendar of one node: how many of its devices, or of its bytes of host memory, are free at any
//! time.
//!
//! A gang goes where enough devices are free for as long as it lasts, perhaps before gangs that
//! were placed earlier. So devices that idle while a gang waits for a release or another node are
//! not lost. The calendar counts devices without naming them: sorted by start, a gang can take any
//! devices that are free. Bytes are counted as devices are.

/// From `at` on, until the next step, so many devices are free.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    at: f64,
    free: u64,
}

/// A node's devices over time. No device is free before the first step; all are from the last on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Calendar {
    gpus: u64,
    /// Ascending in time.
    steps: Vec<Step>,
}

impl Calendar {
    /// An idle node of `gpus` devices that arrives at `from`.
    pub(crate) fn new(gpus: u64, from: f64) -> Self {
        Self { gpus, steps: vec![Step { at: from, free: gpus }] }
    }

    /// Makes it idle again, from `from` on.
    pub(crate) fn clear(&mut self, from: f64) {
        self.steps.clear();
        self.steps.push(Step { at: from, free: self.gpus });
    }

    /// When the node is wholly free for good.
    #[inline]
    pub(crate) fn end(&self) -> f64 {
        self.steps.last().map_or(0.0, |step| step.at)
    }

    /// From when on `gpus` devices are free for good.
    #[inline]
    pub(crate) fn free_for_good(&self, gpus: u64) -> f64 {
        let mut at = self.end();
        for step in self.steps.iter().rev().take_while(|step| step.free >= gpus) {
            at = step.at;
        }
        at
    }

    /// When each device is free for good, ascending.
    pub(crate) fn free_times(&self, times: &mut [f64]) {
        times.fill(self.steps.first().map_or(0.0, |step| step.at));
        let mut left = times.len();
        self.ends_after(f64::NEG_INFINITY, |at, gpus| {
            let first = left.saturating_sub(usize::try_from(gpus).unwrap_or(usize::MAX));
            times[first..left].fill(at);
            left = first;
        });
    }

    /// The first time from `ready` on at which `gpus` devices are free for `lasts` seconds. The
    /// node has that many devices.
    #[inline]
    pub(crate) fn earliest(&self, gpus: u64, ready: f64, lasts: f64) -> f64 {
        let steps = &self.steps;
        // Most gangs go near the end.
        let mut first = steps.len() - 1;
        while first > 0 && steps[first].at > ready {
            first -= 1;
        }
        let mut start = steps[first].at.max(ready);
        let mut at = first;
        while let Some(step) = steps.get(at) {
            if step.free < gpus {
                at += 1;
                start = steps.get(at).map_or(start, |next| next.at);
            } else if steps.get(at + 1).is_some_and(|next| next.at < start + lasts) {
                at += 1;
            } else {
                break;
            }
        }
        start
    }

    /// Takes `gpus` devices, which must be free, from `start` to `end`. In a calendar of bytes,
    /// running tasks may hold more bytes than there are: then all free bytes are taken.
    #[inline]
    pub(crate) fn hold(&mut self, gpus: u64, start: f64, end: f64) {
        if end <= start {
            return;
        }
        let first = self.split(start);
        let last = self.split(end);
        for step in &mut self.steps[first..last] {
            step.free = step.free.saturating_sub(gpus);
        }
    }

    /// Index of the step at `at`; adds a step if there is none.
    #[inline]
    fn split(&mut self, at: f64) -> usize {
        let mut before = self.steps.len();
        while before > 0 && self.steps[before - 1].at >= at {
            before -= 1;
        }
        if self.steps.get(before).is_none_or(|step| step.at > at) {
            let free = before.checked_sub(1).map_or(0, |one| self.steps[one].free);
            self.steps.insert(before, Step { at, free });
        }
        before
    }

    /// Tells `visit` of the devices that end after `limit`, the last first: a time, and how many
    /// devices end then. Each device counts as held until the last time at which so many are held.
    #[inline]
    pub(crate) fn ends_after(&self, limit: f64, mut visit: impl FnMut(f64, u64)) {
        let mut most = 0;
        for pair in self.steps.windows(2).rev() {
            if pair[1].at <= limit {
                break;
            }
            let held = self.gpus - pair[0].free;
            if held > most {
                visit(pair[1].at, held - most);
                most = held;
            }
        }
    }
}

/// The first time from `ready` on at which a node has `gpus` devices and `host` bytes of host memory
/// free for `lasts` seconds. It has so many of both.
#[inline]
pub(crate) fn earliest_with_memory(
    (devices, gpus): (&Calendar, u64),
    (memory, host): (&Calendar, u64),
    ready: f64,
    lasts: f64,
) -> f64 {
    let mut start = ready;
    loop {
        let of_devices = devices.earliest(gpus, start, lasts);
        start = memory.earliest(host, of_devices, lasts);
        if start <= of_devices {
            return start;
        }
    }
}

/// The first time from `ready` on at which a gang of that length can start on all its nodes.
/// `earliest` is when it could start on a single node.
#[inline]
pub(crate) fn earliest_on_all(
    parts: &[(usize, u32)],
    ready: f64,
    earliest: impl Fn(usize, u32, f64) -> f64,
) -> f64 {
    let mut start = ready;
    loop {
        let starts = parts.iter().map(|(node, gpus)| earliest(*node, *gpus, start));
        let latest = starts.fold(start, f64::max);
        if latest <= start {
            return start;
        }
        start = latest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_before_a_gang_is_used() {
        let mut calendar = Calendar::new(4, 1.0);
        calendar.hold(3, 10.0, 20.0);
        let starts = [
            calendar.earliest(4, 0.0, 9.0),
            calendar.earliest(4, 0.0, 9.5),
            calendar.earliest(1, 0.0, 100.0),
            calendar.earliest(2, 3.0, 7.5),
        ];
        assert_eq!(starts.map(|start| format!("{start}")), ["1", "20", "1", "20"]);
        calendar.hold(4, 1.0, 10.0);
        let mut ends = Vec::new();
        calendar.ends_after(0.0, |at, gpus| ends.push((at.to_bits(), gpus)));
        assert_eq!(ends, [(20f64.to_bits(), 3), (10f64.to_bits(), 1)]);
        assert_eq!(format!("{} {}", calendar.end(), calendar.free_for_good(1)), "20 10");
    }

    #[test]
    fn a_gang_starts_when_devices_and_memory_are_free_together() {
        let (mut devices, mut memory) = (Calendar::new(4, 0.0), Calendar::new(100, 0.0));
        devices.hold(4, 5.0, 10.0);
        memory.hold(60, 10.0, 20.0);
        let start = |host, lasts| {
            let start = earliest_with_memory((&devices, 1), (&memory, host), 0.0, lasts);
            format!("{start}")
        };
        assert_eq!(
            [start(50, 5.0), start(50, 6.0), start(40, 6.0), start(0, 5.5)],
            ["0", "20", "10", "10"]
        );
        // Running tasks may hold more than there is.
        memory.hold(60, 10.0, 15.0);
        memory.hold(90, 0.0, 12.0);
        let free: Vec<u64> = memory.steps.iter().map(|step| step.free).collect();
        assert_eq!(free, [10, 0, 0, 40, 100]);
    }
}
