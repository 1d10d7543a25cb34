//! Journals of earlier versions, in the records of this one.
//!
//! Version 1 knew one closed batch on a pool that came with the run's beginning. It named trials by
//! their position in a list that code laid out. The journal tells all the same what a position
//! meant. A trial's outcome follows the launch of an attempt for the same position, and that launch
//! names task and strategy.

use std::collections::BTreeMap;

use saturn_core::Node;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::facts::config::{RunConfig, TaskSpec};
use crate::facts::ids::{NodeId, TaskId};
use crate::facts::record::Record;

/// The version of journals. Version 2 has the present records. Version 3 stores each plan as its
/// differences from the plan before.
pub const VERSION: i64 = 3;

/// Why a journal of an earlier version can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationError {
    /// The row, from 1.
    pub row: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for MigrationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {}: {}", self.row, self.reason)
    }
}

impl std::error::Error for MigrationError {}

/// The records of a journal of version 1, each with the time at which it was made.
pub fn migrate_v1(
    rows: impl IntoIterator<Item = (Value, f64)>,
) -> Result<Vec<(Record, f64)>, MigrationError> {
    let mut migration = Migration::default();
    let mut records = Vec::new();
    for (index, (row, at_s)) in rows.into_iter().enumerate() {
        let made =
            migration.record(row).map_err(|reason| MigrationError { row: index + 1, reason })?;
        records.extend(made.into_iter().map(|record| (record, at_s)));
    }
    Ok(records)
}

/// What later rows of version 1 refer to.
#[derive(Default)]
struct Migration {
    /// Profile keys of the tasks, by number.
    groups: Vec<String>,
    /// Every node so far.
    nodes: Vec<Node>,
    /// The nodes of the present pool, by their position in it.
    present: Vec<NodeId>,
    /// What each position of a trial stands for: profile key and type of device.
    trials: BTreeMap<u64, (String, String)>,
}

impl Migration {
    fn record(&mut self, mut row: Value) -> Result<Vec<Record>, String> {
        let fields = row.as_object_mut().ok_or("it is no object")?;
        match fields.get("record").and_then(Value::as_str) {
            Some("began") => self.began(fields),
            Some("resumed") => self.resumed(fields),
            Some("launched") => self.launched(fields).map(|record| vec![record]),
            Some("tried") => self.tried(fields).map(|record| vec![record]),
            Some("planned") => {
                let plan = object(fields, "plan")?;
                let mut places: Vec<Value> = take(plan, "tasks")?;
                for place in &mut places {
                    let place = place.as_object_mut().ok_or("a place is no object")?;
                    self.rename_nodes(place)?;
                }
                plan.insert("places".to_owned(), Value::Array(places));
                read(row).map(|record| vec![record])
            }
            Some("excluded") => {
                let strategy: Map<String, Value> = take(fields, "strategy")?;
                for name in ["technique", "gpus"] {
                    let value = strategy.get(name).ok_or(format!("it has no `{name}`"))?;
                    fields.insert(name.to_owned(), value.clone());
                }
                read(row).map(|record| vec![record])
            }
            Some(_) => read(row).map(|record| vec![record]),
            None => Err("it names no record".to_owned()),
        }
    }

    /// The beginning held the pool and the tasks; and nothing more was to come.
    fn began(&mut self, fields: &mut Map<String, Value>) -> Result<Vec<Record>, String> {
        let config = object(fields, "config")?;
        let mut cluster: Map<String, Value> = take(config, "cluster")?;
        let tasks: Vec<TaskSpec> = take(config, "tasks")?;
        let config: RunConfig = read(Value::Object(config.clone()))?;
        let mut records = vec![Record::Began { config }];
        records.extend(self.pool_is(take(&mut cluster, "nodes")?));
        for spec in tasks {
            let task = TaskId(self.groups.len());
            self.groups.push(spec.profile_key.clone());
            records.push(Record::TaskAdded { task, spec });
        }
        records.push(Record::Closed);
        Ok(records)
    }

    fn resumed(&mut self, fields: &mut Map<String, Value>) -> Result<Vec<Record>, String> {
        let mut cluster: Map<String, Value> = take(fields, "cluster")?;
        let mut records = vec![read(Value::Object(fields.clone()))?];
        records.extend(self.pool_is(take(&mut cluster, "nodes")?));
        Ok(records)
    }

    /// The records that make the pool one of these nodes.
    fn pool_is(&mut self, nodes: Vec<Node>) -> Vec<Record> {
        let mut records = Vec::new();
        let is =
            |node: &Node, other: &Node| node.name == other.name && node.gpu_type == other.gpu_type;
        for id in std::mem::take(&mut self.present) {
            let node = &self.nodes[id.0];
            if !nodes.iter().any(|one| one == node) {
                let reason = "it was not there when the run was resumed".to_owned();
                records.push(Record::NodeLeft { node: id, reason });
            }
        }
        for spec in nodes {
            let known = self.nodes.iter().position(|node| is(node, &spec));
            let node = NodeId(known.unwrap_or(self.nodes.len()));
            self.present.push(node);
            if known.is_some_and(|index| self.nodes[index] == spec)
                && !records.iter().any(
                    |record| matches!(record, Record::NodeLeft { node: left, .. } if *left == node),
                )
            {
                continue;
            }
            if known.is_some() {
                self.nodes[node.0] = spec.clone();
            } else {
                self.nodes.push(spec.clone());
            }
            records.push(Record::NodeJoined { node, spec, host_memory_bytes: None });
        }
        records
    }

    fn launched(&mut self, fields: &mut Map<String, Value>) -> Result<Record, String> {
        self.rename_nodes(fields)?;
        let trial = fields.get("purpose").and_then(|purpose| purpose.get("trial"));
        if let Some(trial) = trial.and_then(Value::as_u64) {
            let task: usize = read(fields.get("task").cloned().unwrap_or_default())?;
            let group = self.groups.get(task).ok_or(format!("there is no task {task}"))?;
            let node = fields["gang"].get(0).and_then(|part| part["node"].as_u64()).unwrap_or(0);
            let gpu_type = usize::try_from(node).ok().and_then(|node| self.nodes.get(node));
            let gpu_type = gpu_type.map(|node| node.gpu_type.clone()).unwrap_or_default();
            self.trials.insert(trial, (group.clone(), gpu_type));
            fields.insert("purpose".to_owned(), json!("trial"));
        }
        read(Value::Object(fields.clone()))
    }

    fn tried(&mut self, fields: &mut Map<String, Value>) -> Result<Record, String> {
        let trial: u64 = take(fields, "trial")?;
        let known = self.trials.get(&trial);
        let (group, gpu_type) = known.ok_or(format!("trial {trial} was never launched"))?;
        fields.insert("group".to_owned(), json!(group));
        fields.insert("gpu_type".to_owned(), json!(gpu_type));
        read(Value::Object(fields.clone()))
    }

    /// Placements named nodes by their position in the pool of the moment.
    fn rename_nodes(&self, fields: &mut Map<String, Value>) -> Result<(), String> {
        let Some(Value::Array(gang)) = fields.get_mut("gang") else {
            return Err("it has no `gang`".to_owned());
        };
        for part in gang {
            let position = part.get("node").and_then(Value::as_u64);
            let position = position.and_then(|node| usize::try_from(node).ok());
            let id = position.and_then(|position| self.present.get(position));
            let id = id.ok_or("its gang is on a node that is not there")?;
            part["node"] = json!(id.0);
        }
        Ok(())
    }
}

fn object<'a>(
    fields: &'a mut Map<String, Value>,
    name: &str,
) -> Result<&'a mut Map<String, Value>, String> {
    fields.get_mut(name).and_then(Value::as_object_mut).ok_or(format!("it has no `{name}`"))
}

fn take<T: DeserializeOwned>(fields: &mut Map<String, Value>, name: &str) -> Result<T, String> {
    let value = fields.remove(name).ok_or(format!("it has no `{name}`"))?;
    serde_json::from_value(value).map_err(|error| format!("its `{name}`: {error}"))
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::record::{Purpose, RunEnd};
    use crate::state::run::State;

    fn journal() -> Vec<(Value, f64)> {
        let task = |name: &str, key: &str| {
            json!({"name": name, "dir": format!("tasks/{name}"), "steps": 100, "epochs": null,
                   "gpu_range": null, "profile_key": key})
        };
        let strategy = json!({"technique": "ddp", "gpus": 1, "knobs": {}});
        let measured = json!({"outcome": "measured", "step_s": 0.1, "setup_s": 0.5,
                              "peak_memory_bytes": 1, "timed_steps": 3});
        let gang = json!([{"node": 0, "devices": [0]}]);
        let place = json!({"task": 1, "strategy": strategy, "gang": gang, "share": 1.0,
                           "start_s": 2.0, "end_s": 12.0});
        let cluster = |gpus: u32| json!({"nodes": [{"name": "n", "gpus": gpus, "type": "cpu"}]});
        let policy = json!({"interval_s": 10.0, "checkpoint_every_s": 5.0, "warmup_steps": 1,
            "timed_steps": 3, "max_failures": 3, "backoff_s": 1.0, "stall_s": 60.0, "min_gain": 0.05,
            "solver_time_limit_s": 2.0, "seed": 0});
        let rows = [
            json!({"record": "began", "config": {
                "mode": "orchestrate", "device_kind": "cpu", "cluster": cluster(2),
                "techniques": [{"name": "ddp", "level": "managed", "import": null, "pickle": null}],
                "tasks": [task("a", "k"), task("b", "other")], "policy": policy}}),
            json!({"record": "launched", "attempt": 1, "task": 1, "purpose": {"trial": 7},
                   "strategy": strategy, "gang": gang}),
            json!({"record": "tried", "trial": 7, "strategy": strategy, "outcome": measured}),
            json!({"record": "ended", "attempt": 1, "end": {"how": "finished"}, "step": 0}),
            json!({"record": "planned", "plan": {"at_s": 2.0, "status": "feasible",
                   "makespan_s": 10.0, "lower_bound_s": 9.0, "solve_s": 0.1,
                   "current_practice_s": null, "tasks": [place]}}),
            json!({"record": "excluded", "task": 0, "strategy": strategy, "reason": "too large"}),
            json!({"record": "resumed", "cluster": cluster(1), "device_memory_bytes": 5}),
            json!({"record": "run_ended", "end": "interrupted"}),
        ];
        rows.into_iter().zip([0.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 4.0]).collect()
    }

    #[test]
    fn positions_become_names_and_the_batch_is_closed() {
        let records = migrate_v1(journal()).unwrap();
        let Some((Record::Began { config }, _)) = records.first() else { panic!("it begins") };
        let mut state = State::new(config.clone());
        for (record, at_s) in &records {
            state.apply(record, *at_s);
        }
        assert_eq!(state.tasks.len(), 2);
        assert!(state.is_closed);
        assert!(!state.is_measured(TaskId(0)), "the trial was of the other group");
        assert!(state.is_measured(TaskId(1)));
        assert_eq!(state.tasks[0].excluded.len(), 1);
        let planned = records.iter().find_map(|(record, _)| match record {
            Record::Planned { plan } => Some(plan.places.len()),
            _ => None,
        });
        assert_eq!(planned, Some(1));
        assert_eq!(state.num_devices(), 1, "the pool shrank at the resume");
        assert_eq!(state.ended, Some(RunEnd::Interrupted));
        assert!(
            records.iter().any(|(record, _)| matches!(
                record,
                Record::Launched { purpose: Purpose::Trial, .. }
            ))
        );
    }

    #[test]
    fn a_row_that_makes_no_sense_is_named() {
        let mut rows = journal();
        rows[2].0["trial"] = json!(8);
        let error = migrate_v1(rows).unwrap_err();
        assert_eq!(error.to_string(), "record 3: trial 8 was never launched");
    }
}
