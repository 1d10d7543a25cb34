//! Switches in mid-run that only move a task from device to device.

use std::collections::BTreeMap;

use crate::facts::plan::Place;

/// Whether a task is to be switched between places under the same strategy. Such a switch only
/// makes room for others; the task itself becomes no faster.
pub(crate) fn switches_idly(places: &[Place]) -> bool {
    let mut last = BTreeMap::new();
    places.iter().any(|place| {
        let before = last.insert(place.task, &place.strategy);
        before.is_some_and(|before| *before == place.strategy)
    })
}

/// The same places, but each task stays in one place for as long as its strategy is the same.
pub(crate) fn without_idle_switches(places: &[Place]) -> Vec<Place> {
    let mut kept: Vec<Place> = Vec::new();
    for place in places {
        let before = kept.iter_mut().rev().find(|one| one.task == place.task);
        match before {
            Some(before) if before.strategy == place.strategy => {
                before.share += place.share;
                before.until_step = place.until_step;
            }
            _ => kept.push(place.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use saturn_core::{Knobs, Placement, Strategy};

    use super::*;
    use crate::facts::ids::TaskId;

    /// Half of a task on one device.
    fn half(task: usize, technique: &str, device: u32, until_step: Option<u64>) -> Place {
        let (technique, knobs) = (technique.into(), Knobs::new());
        Place {
            task: TaskId(task),
            strategy: Arc::new(Strategy { technique, gpus: 1, knobs }),
            gang: vec![Placement { node: 0, devices: vec![device] }],
            share: 0.5,
            until_step,
            is_estimate: false,
            start_s: 0.0,
            end_s: 0.0,
        }
    }

    #[test]
    fn a_switch_from_device_to_device_under_one_strategy_is_left_out() {
        let idle = [half(0, "ddp", 0, Some(50)), half(1, "ddp", 2, None), half(0, "ddp", 1, None)];
        assert!(switches_idly(&idle));
        let kept = without_idle_switches(&idle);
        let whole = Place { share: 1.0, ..half(0, "ddp", 0, None) };
        assert_eq!(kept, [whole, half(1, "ddp", 2, None)]);
    }

    #[test]
    fn a_switch_to_another_strategy_is_kept() {
        let real = [half(0, "ddp", 0, Some(50)), half(0, "offload", 1, None)];
        assert!(!switches_idly(&real));
        assert_eq!(without_idle_switches(&real), real);
    }
}
