//! Gangs that train beside each other on a node, and so take longer.
//!
//! If the world's factor for neighbours is 1, nothing here does anything.

use saturn_engine::{AttemptId, Purpose};

use crate::world::cluster::World;
use crate::world::gang::LiveGang;

impl World {
    /// Sets the pace of every gang by whether another gang is on a node of it. To be called whenever
    /// a gang has begun or gone.
    pub(super) fn settle_neighbours(&mut self) {
        if self.neighbours <= 1.0 {
            return;
        }
        let trains = |gang: &LiveGang| gang.order.purpose != Purpose::Inspection;
        let changed = |(attempt, gang): (&AttemptId, &LiveGang)| {
            let nodes = || gang.order.gang.iter().map(|part| part.node);
            let mut others = self.gangs.iter().filter(|(other, _)| *other != attempt);
            let has_neighbour = others.any(|(_, other)| {
                trains(other) && other.order.gang.iter().any(|part| nodes().any(|n| n == part.node))
            });
            let factor = if has_neighbour { self.neighbours } else { 1.0 };
            (factor.total_cmp(&gang.beside).is_ne()).then_some((*attempt, factor))
        };
        let changed: Vec<(AttemptId, f64)> = self.gangs.iter().filter_map(changed).collect();
        for (attempt, factor) in changed {
            if let Some(gang) = self.gangs.get_mut(&attempt) {
                let before = std::mem::replace(&mut gang.beside, factor);
                self.change_pace(attempt, factor / before);
            }
        }
    }
}
