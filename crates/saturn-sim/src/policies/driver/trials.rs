//! Trials of strategies, where nothing is known at the beginning.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::cases::case::Way;
use crate::cases::error::PolicyError;
use crate::cases::outcome::Held;
use crate::policies::driver::Driver;

impl Driver<'_> {
    /// Has strategies of each group of jobs measured as soon as the group's first job has arrived.
    /// Strategies of groups with a job at the beginning are measured before this returns.
    pub(crate) fn measure_first(
        &mut self,
        is_wanted: impl Fn(usize, &Way) -> bool,
    ) -> Result<(), PolicyError> {
        let case = self.case;
        let mut wanted: BTreeMap<(&str, String, u32), (usize, Way)> = BTreeMap::new();
        for index in self.by_arrival.iter().copied() {
            let job = &case.jobs[index];
            for way in case.ways(index).into_iter().filter(|way| is_wanted(index, way)) {
                let key = (job.group.as_str(), way.technique.clone(), way.gpus);
                wanted.entry(key).or_insert((index, way));
            }
        }
        self.wanted = wanted.into_values().collect();
        self.wanted.sort_by_key(|(_, way)| Reverse(way.gpus));
        self.measure()
    }

    /// Measures the wanted strategies of jobs that have arrived, the widest first, side by side as
    /// devices are free. Until all are measured, nothing else is launched.
    pub(super) fn measure(&mut self) -> Result<(), PolicyError> {
        loop {
            let mut later = Vec::new();
            let mut is_waiting = false;
            for (job, way) in std::mem::take(&mut self.wanted) {
                let has_arrived = self.jobs[job].has_arrived;
                if let Some(node) = self.nodes_for(way.gpus).first().filter(|_| has_arrived) {
                    let gang = self.gang_on(*node, way.gpus);
                    self.begin(job, way, gang, None, Held::Trial)?;
                } else {
                    is_waiting |= has_arrived;
                    later.push((job, way));
                }
            }
            self.wanted = later;
            let is_trying = self.live.values().any(|live| live.held == Held::Trial);
            if !is_waiting && !is_trying {
                return Ok(());
            }
            self.wait_once(f64::INFINITY)?;
        }
    }
}
