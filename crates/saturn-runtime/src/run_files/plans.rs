//! Rows of the journal. A plan is stored as its differences from the plan before it.
//!
//! A plan of ten thousand tasks is two megabytes, and a new plan is adopted whenever a task gets
//! its first place. Most places of the new plan are also in the plan before, unchanged, at other
//! times, or on other devices. The new plan's row refers to these places by their numbers. Rows are
//! therefore written and read in order. The records that are read are the records that were written,
//! to the last bit.

use std::sync::Arc;

use saturn_engine::{Record, RunPlan};
use serde::{Deserialize, Serialize};

use crate::run_files::plan_parts::{Part, joined, parts};

/// The beginning of each row that holds a plan by its differences.
const MARK: &str = r#"{"record":"replanned","#;

/// Writes or reads the rows of one journal, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    /// The plan that the last row with a plan holds.
    last: Option<Arc<RunPlan>>,
}

/// A plan by its differences: a row like the row of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename = "replanned")]
struct Changed {
    /// The plan, without its places.
    plan: RunPlan,
    /// Its places, in their order.
    places: Vec<Part>,
}

impl Rows {
    /// To write the rows that follow these records.
    pub(super) fn after(records: &[(Record, f64)]) -> Self {
        Self { last: records.iter().rev().find_map(|(record, _)| plan_of(record)) }
    }

    /// The row of the next record.
    pub(super) fn write(&mut self, record: &Record) -> serde_json::Result<String> {
        let Some(plan) = plan_of(record) else { return serde_json::to_string(record) };
        let before = self.last.replace(Arc::clone(&plan));
        let parts = before.map(|before| parts(&before.places, &plan.places)).unwrap_or_default();
        if !parts.iter().any(|part| !matches!(part, Part::New(_))) {
            return serde_json::to_string(record);
        }
        serde_json::to_string(&Changed { plan: plan.without_places(), places: parts })
    }

    /// The record of the next row, or what is wrong with the row.
    pub(super) fn read(&mut self, row: &str) -> Result<Record, String> {
        let record = if row.starts_with(MARK) {
            let changed: Changed = serde_json::from_str(row).map_err(|error| error.to_string())?;
            let before = self.last.as_ref().ok_or("there is no plan before it")?;
            let places = joined(&before.places, changed.places)
                .ok_or("the plan before it has fewer places")?;
            Record::Planned { plan: Arc::new(RunPlan { places, ..changed.plan }) }
        } else {
            serde_json::from_str(row).map_err(|error| error.to_string())?
        };
        if let Some(plan) = plan_of(&record) {
            self.last = Some(plan);
        }
        Ok(record)
    }
}

fn plan_of(record: &Record) -> Option<Arc<RunPlan>> {
    match record {
        Record::Planned { plan } => Some(Arc::clone(plan)),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::run_files::plan_parts::moved;
    use proptest::prelude::*;
    use saturn_core::{Knobs, Placement, PlanStatus, Strategy as Chosen};
    use saturn_engine::{Place, PlanSource, TaskId};

    fn place() -> impl Strategy<Value = Place> {
        let times = (0_u32..4, 0_u32..4);
        (0_usize..5, 1_u32..3, 0_u32..3, prop::option::of(1_u64..3), times, any::<bool>()).prop_map(
            |(task, gpus, device, until_step, (start, length), is_estimate)| Place {
                task: TaskId(task),
                strategy: Arc::new(Chosen {
                    technique: "ddp".to_owned(),
                    gpus,
                    knobs: Knobs::new(),
                }),
                gang: vec![Placement { node: 0, devices: vec![device] }].into(),
                share: 1.0 / 3.0,
                until_step,
                is_estimate,
                start_s: f64::from(start) / 3.0,
                end_s: f64::from(start + length) / 3.0,
            },
        )
    }

    pub(crate) fn planned(places: Vec<Place>) -> Record {
        let plan = RunPlan {
            at_s: 0.1,
            source: PlanSource::Solver,
            status: PlanStatus::Feasible,
            makespan_s: 1.0 / 3.0,
            lower_bound_s: 0.0,
            solve_s: 0.2,
            current_practice_s: None,
            practice_is_estimate: false,
            instead_of_s: Some(0.7),
            places,
        };
        Record::Planned { plan: Arc::new(plan) }
    }

    fn record() -> impl Strategy<Value = Record> {
        prop_oneof![
            4 => prop::collection::vec(place(), 0..12).prop_map(planned),
            1 => Just(Record::Interrupted { at_once: false }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(
            records in prop::collection::vec(record(), 0..8),
            reopened in 0_usize..8,
        ) {
            let (mut writer, mut reader) = (Rows::default(), Rows::default());
            let mut read: Vec<(Record, f64)> = Vec::new();
            for (number, record) in records.iter().enumerate() {
                if number == reopened {
                    writer = Rows::after(&read);
                }
                let row = writer.write(record).expect("it is data");
                read.push((reader.read(&row).expect("it was just written"), 0.0));
            }
            let read: Vec<Record> = read.into_iter().map(|(record, _)| record).collect();
            prop_assert_eq!(read, records);
        }
    }

    pub(crate) fn at(task: usize, start_s: f64) -> Place {
        Place {
            task: TaskId(task),
            strategy: Arc::new(Chosen {
                technique: "fsdp".to_owned(),
                gpus: 2,
                knobs: Knobs::new(),
            }),
            gang: vec![Placement { node: 0, devices: vec![0, 1] }].into(),
            share: 1.0,
            until_step: None,
            is_estimate: false,
            start_s,
            end_s: start_s + 1.5,
        }
    }

    #[test]
    fn a_plan_that_a_task_was_put_behind_is_a_line_and_one_elsewhere_or_at_other_times_is_short() {
        let many: Vec<Place> = (0..1000).map(|task| at(task, 2.0)).collect();
        let mut rows = Rows::default();
        let whole = rows.write(&planned(many.clone())).unwrap();
        let mut longer = many[1..].to_vec();
        longer.push(at(1000, 3.5));
        let extended = rows.write(&planned(longer.clone())).unwrap();
        assert!(extended.contains(r#""places":[[1,999],{"task":1000,"#), "{extended}");
        let later: Vec<Place> = longer.iter().map(|one| moved(one, 4.0, 5.5)).collect();
        let again = rows.write(&planned(later.clone())).unwrap();
        assert!(again.contains(r#""places":[[0,4.0,5.5],[1,4.0,5.5],"#), "{again}");
        assert!(extended.len() < 600 && again.len() * 6 < whole.len());
        let on_others = |one: &Place| Place {
            gang: vec![Placement { node: 1, devices: vec![0, 1] }].into(),
            ..moved(one, 6.0, 7.5)
        };
        let elsewhere = rows.write(&planned(later.iter().map(on_others).collect())).unwrap();
        let begins = r#""places":[[0,[{"node":1,"devices":[0,1]}],6.0,7.5],[1,"#;
        assert!(elsewhere.contains(begins), "{elsewhere}");
        assert!(elsewhere.len() * 3 < whole.len());
    }

    #[test]
    fn a_row_that_refers_to_what_is_not_there_is_damage() {
        let mut rows = Rows::default();
        let first = rows.write(&planned(vec![at(0, 1.0)])).unwrap();
        let second = rows.write(&planned(vec![at(0, 1.0)])).unwrap();
        assert!(second.starts_with(MARK));
        let told = Rows::default().read(&second).unwrap_err();
        assert_eq!(told, "there is no plan before it");
        let mut reader = Rows::default();
        reader.read(&first).unwrap();
        let gang = r#"[3,[{"node":0,"devices":[0]}],1.0,2.0]"#;
        for wrong in ["[1,1]", "[0,2]", "[18446744073709551615,2]", "[3,1.0,2.0]", gang] {
            let row = second.replace("[0,1]", wrong);
            assert!(row.contains(wrong));
            let told = reader.clone().read(&row).unwrap_err();
            assert_eq!(told, "the plan before it has fewer places");
        }
        for (wrong, why) in [
            ("[0.5,1]", "the number of a place is no whole number"),
            ("[0,1,1.0,2.0]", "a part of a plan is none of those that there are"),
            (r"[0,[],1.0]", "a part of a plan is none of those that there are"),
            ("[0,1.0,2.0,3.0,4.0]", "invalid length 5"),
        ] {
            let told = reader.clone().read(&second.replace("[0,1]", wrong)).unwrap_err();
            assert!(told.starts_with(why), "{told}");
        }
    }
}
