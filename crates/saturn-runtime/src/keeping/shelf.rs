//! A run's view of the store. Before tasks go to the engine, they get the stored trials that are
//! valid on the run's devices. The results of the run's own trials go back into the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use saturn_core::{ForecastErrors, Origin, Strategy, StrategyKey, Trained, Trial, TrialOutcome};
use saturn_engine::{DeviceKind, Group, NewTask, Record, RunConfig, State, TrialKey};
use saturn_store::{Platform, Store, is_key, is_like, with_causes};
use saturn_view::ErrorsOn;
use serde::{Deserialize, Serialize};

use crate::system::clock;

/// How wrong a run's forecasts and trials were, by the description of each type of its devices.
pub(crate) type ErrorsByHardware = BTreeMap<BTreeMap<String, String>, ErrorsOn>;

/// How a run uses the store; the journal keeps this for a resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreSettings {
    /// The Saturn home, if not the user's own.
    #[serde(default)]
    home: Option<PathBuf>,
    /// Whether the run uses stored trials. Its own results go into the store in any case.
    reuse: bool,
    /// The digests of techniques that are not Saturn's own, by name.
    #[serde(default)]
    pub(crate) techniques: BTreeMap<String, String>,
}

/// A run's view of the store.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    store: Store,
    platform: Platform,
    reuse: bool,
    /// The run's own name, which no other run ever had.
    run_id: String,
}

impl Shelf {
    /// The view of a run on this platform; `None` if the user has no home directory.
    pub(crate) fn open(settings: &StoreSettings, platform: Platform, run_id: &str) -> Option<Self> {
        let store = settings.home.as_deref().map(Store::at).or_else(Store::of_user)?;
        Some(Self { store, platform, reuse: settings.reuse, run_id: run_id.to_owned() })
    }

    /// The store.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// How wrong the forecasts of earlier runs on this run's devices were. A run that measures all
    /// trials anew gets them too, since they don't depend on its tasks.
    pub(crate) fn earlier_errors(&self) -> ForecastErrors {
        self.store.forecast_errors(&self.platform)
    }

    /// Keeps the errors of this run's forecasts and trials for later runs, by the devices on which they were
    /// made. Returns lines for the person.
    pub(crate) fn keep_errors(&self, errors: &ErrorsByHardware) -> Vec<String> {
        let mut lines = Vec::new();
        for (hardware, errors) in errors.iter().filter(|(hardware, _)| !hardware.is_empty()) {
            let ErrorsOn { forecasts, trials } = errors;
            let note = &mut |line| lines.push(line);
            let kept = self
                .store
                .add_forecast_errors(hardware, &self.run_id, forecasts, note)
                .and_then(|()| self.store.add_trial_errors(hardware, &self.run_id, trials, note));
            if let Err(error) = kept {
                let error = with_causes(&error);
                lines.push(format!("errors of forecasts are not kept for later runs: {error}"));
            }
        }
        lines
    }

    /// Gives tasks the stored trials that are valid here, unless the tasks bring trials of the same
    /// strategies. Returns lines for the person: how many trials, and files that could not be used.
    pub(crate) fn recall(&self, tasks: &mut [NewTask], config: &RunConfig) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.reuse {
            return lines;
        }
        let mut known: BTreeMap<String, Vec<Trial>> = BTreeMap::new();
        let mut recalled = BTreeSet::new();
        for NewTask { spec, .. } in tasks {
            let key = &spec.profile_key;
            if !is_key(key) {
                continue;
            }
            let trials = known
                .entry(key.clone())
                .or_insert_with(|| self.store.read(key, &mut |line| lines.push(line)));
            for gpu_type in self.platform.gpu_types() {
                let mut here: Vec<&Trial> = trials
                    .iter()
                    .filter(|trial| {
                        trial.device_memory_bytes == config.device_memory_bytes
                            && config.technique(&trial.strategy.technique).is_some()
                            && self.platform.is_held_by(trial, gpu_type)
                    })
                    .collect();
                // Trials that were measured on this platform precede trials that name no hardware
                // or software.
                here.sort_by_key(|trial| {
                    (trial.origin.hardware.is_none(), trial.origin.software.is_none())
                });
                for trial in here {
                    let is_known = spec.measured.iter().any(|own| {
                        let is_guess = spec.is_rest && own.trained.is_none();
                        !is_guess
                            && (own.outcome.is_some() || trial.outcome.is_none())
                            && own.strategy.key() == trial.strategy.key()
                            && own.origin.node_gpus == trial.origin.node_gpus
                            && own.gpu_type.as_deref().is_none_or(|there| there == gpu_type)
                    });
                    if is_known || !spec.allows(&trial.strategy) {
                        continue;
                    }
                    if !spec.is_rest {
                        recalled.insert((key.clone(), gpu_type, trial.strategy.key()));
                    }
                    let (task, gpu_type) = (spec.name.clone(), Some(gpu_type.to_owned()));
                    spec.measured.push(Trial { task, gpu_type, ..trial.clone() });
                }
            }
        }
        if !recalled.is_empty() {
            let trials = if recalled.len() == 1 { "trial is" } else { "trials are" };
            let directory = self.store.directory().display();
            lines.push(format!(
                "{} {trials} known from earlier runs ({directory}); profile=\"none\" measures anew",
                recalled.len()
            ));
        }
        lines
    }

    /// Stores results of a killed run's trials that are not in the store yet. Results of training
    /// are left out, since the next intervals report them again.
    pub(crate) fn catch_up(&self, state: &State) -> Vec<String> {
        let mut lines = Vec::new();
        let mut missing = Vec::new();
        for group in &state.groups {
            // What the inspection rules out was never run as a trial.
            let found = group.inspection.found.as_ref();
            let is_ruled_out = |key: &TrialKey| {
                let TrialKey { strategy: StrategyKey { technique, gpus }, gpu_type } = key;
                found.is_some_and(|found| found.outcome_of(technique, *gpus, gpu_type).is_some())
            };
            let own = group.trials.iter();
            let own = own.filter(|(key, trial)| trial.reused.is_none() && !is_ruled_out(key));
            let found = own.filter_map(|(key, trial)| {
                let outcome = trial.outcome.as_ref()?;
                self.worth_keeping(state, group, &key.gpu_type, &trial.strategy, outcome)
            });
            let found: Vec<Trial> = found.collect();
            if found.is_empty() || !is_key(&group.key) {
                continue;
            }
            let kept = self.store.read(&group.key, &mut |line| lines.push(line));
            let is_missing = |trial: &Trial| !kept.iter().any(|one| is_like(one, trial));
            missing.extend(found.into_iter().filter(is_missing));
        }
        if let Err(error) = self.store.add(missing, &mut |line| lines.push(line)) {
            lines.push(format!("trials are not kept for later runs: {}", with_causes(&error)));
        }
        lines
    }

    /// The trial to store after a record. Most records give none.
    pub(super) fn trial_to_store(&self, state: &State, record: &Record) -> Option<Trial> {
        let now_unix_s = Some(clock::unix_s());
        match record {
            Record::Tried { group, gpu_type, strategy, outcome } => {
                let group = state.groups.iter().find(|one| one.key == *group)?;
                let mut trial = self.worth_keeping(state, group, gpu_type, strategy, outcome)?;
                trial.origin.measured_unix_s = now_unix_s;
                Some(trial)
            }
            Record::Clocked { attempt, trained } => {
                let attempt = state.attempts.get(attempt)?;
                let (group, gpu_type) =
                    (state.group_of(attempt.task), state.gang_type(&attempt.gang));
                let trained = Trained { measured_unix_s: now_unix_s, ..*trained };
                let trial = self.unknown(state, group, gpu_type, &attempt.strategy)?;
                Some(Trial { trained: Some(trained), ..trial })
            }
            _ => None,
        }
    }

    fn worth_keeping(
        &self,
        state: &State,
        group: &Group,
        gpu_type: &str,
        strategy: &Strategy,
        outcome: &TrialOutcome,
    ) -> Option<Trial> {
        let limit = state.config.device_memory_bytes;
        let is_kept = match outcome {
            // A failure may be repaired later, or may be chance.
            TrialOutcome::Failed { .. } => false,
            // Without a limit, a CPU slot has the memory that was free on the machine. That says
            // nothing about later runs.
            TrialOutcome::OutOfMemory { .. } => {
                limit.is_some() || state.config.device_kind == DeviceKind::Cuda
            }
            TrialOutcome::Measured { .. } | TrialOutcome::NotApplicable { .. } => true,
        };
        let trial = self.unknown(state, group, gpu_type, strategy).filter(|_| is_kept)?;
        Some(Trial { outcome: Some(outcome.clone()), ..trial })
    }

    /// A trial of this strategy and group on this platform, without results.
    fn unknown(
        &self,
        state: &State,
        group: &Group,
        gpu_type: &str,
        strategy: &Strategy,
    ) -> Option<Trial> {
        let origin = self.platform.origin(gpu_type, &strategy.technique)?;
        Some(Trial {
            task: state.name(*group.tasks.first()?).to_owned(),
            profile_key: Some(group.key.clone()),
            gpu_type: Some(gpu_type.to_owned()),
            device_memory_bytes: state.config.device_memory_bytes,
            strategy: strategy.clone(),
            outcome: None,
            trained: None,
            origin: Origin { node_gpus: state.exceeded_width(gpu_type, strategy.gpus), ..origin },
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use saturn_core::{Cluster, Knobs, Node};
    use saturn_engine::{Command, Engine, Event, Level, Mode, Policy, TaskSpec, TechniqueRef};
    use tempfile::TempDir;

    use super::*;

    fn key() -> String {
        "a".repeat(64)
    }

    /// A run on CPU slots with the technique `ddp`.
    pub(crate) fn config() -> RunConfig {
        let technique = TechniqueRef {
            name: "ddp".to_owned(),
            level: Level::Managed,
            import: None,
            pickle: None,
        };
        RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cpu,
            device_memory_bytes: None,
            techniques: vec![technique],
            policy: Policy::default(),
        }
    }

    /// The guess that a rest brings with it.
    fn guess() -> Trial {
        let guess = serde_json::json!({
            "task": "t", "profile_key": key(), "gpu_type": "cpu", "technique": "ddp", "gpus": 1,
            "hardware": "a processor", "outcome": "measured", "step_s": 5.0, "setup_s": 1.0,
            "peak_memory_bytes": 9, "timed_steps": 3,
        });
        serde_json::from_value(guess).unwrap()
    }

    #[test]
    fn a_trial_is_out_of_memory_for_later_runs_only_where_devices_have_their_own() {
        let dir = TempDir::new().unwrap();
        let settings = serde_json::json!({"home": dir.path(), "reuse": true});
        let platform = serde_json::json!({
            "hardware": {"cpu": "a device"}, "software": {}, "techniques": {},
        });
        let shelf = Shelf::open(
            &serde_json::from_value(settings).unwrap(),
            serde_json::from_value(platform).unwrap(),
            "a run",
        );
        let is_kept = |device_kind: DeviceKind, outcome: &TrialOutcome| {
            let mut engine = Engine::new(RunConfig { device_kind, ..config() });
            let cluster = Cluster { nodes: vec![Node::new("host", 1, "cpu")] };
            engine.handle(Event::Begin { cluster }, 0.0);
            let spec = serde_json::json!({
                "name": "t", "dir": "d", "steps": 1, "epochs": null, "gpu_range": [1],
                "profile_key": key(),
            });
            let spec = serde_json::from_value(spec).unwrap();
            let tasks = vec![NewTask { spec, after: Vec::new() }];
            engine.handle(Event::Command { command: Command::Submit { tasks } }, 0.0);
            let (state, shelf) = (engine.state(), shelf.as_ref().unwrap());
            let strategy = Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() };
            shelf.worth_keeping(state, &state.groups[0], "cpu", &strategy, outcome).is_some()
        };
        let of_device = TrialOutcome::OutOfMemory { detail: "CUDA out of memory".to_owned() };
        // What becomes of a trial whose rank fails with the kind `host_memory`.
        let error = "DataLoader worker is killed by signal: Killed".to_owned();
        let of_host = TrialOutcome::Failed { error, traceback: String::new() };
        assert!(is_kept(DeviceKind::Cuda, &of_device));
        assert!(!is_kept(DeviceKind::Cpu, &of_device));
        assert!(!is_kept(DeviceKind::Cuda, &of_host));
    }

    #[test]
    fn what_rests_took_in_earlier_runs_is_told_beside_the_guess_that_a_rest_brings() {
        let dir = TempDir::new().unwrap();
        let guess = guess();
        let found =
            Trained { step_s: 40.0, steps: 100, relative_error: 0.02, measured_unix_s: Some(7) };
        let trained = Trial { outcome: None, trained: Some(found), ..guess.clone() };
        let added = Store::at(dir.path()).add(vec![trained], &mut |line| panic!("{line}")).unwrap();
        assert_eq!(added.new, 1);
        let settings = serde_json::json!({"home": dir.path(), "reuse": true});
        let platform = serde_json::json!({
            "hardware": {"cpu": "a processor"}, "software": {}, "techniques": {},
        });
        let shelf = Shelf::open(
            &serde_json::from_value(settings).unwrap(),
            serde_json::from_value(platform).unwrap(),
            "a run",
        );
        let config = config();
        let recalled = |is_rest: bool| {
            let spec = serde_json::json!({
                "name": "a-rest", "dir": "d", "steps": 1, "epochs": null, "gpu_range": [1],
                "profile_key": key(), "is_rest": is_rest,
            });
            let mut spec: TaskSpec = serde_json::from_value(spec).unwrap();
            spec.measured = vec![guess.clone()];
            let mut tasks = [NewTask { spec, after: Vec::new() }];
            let lines = shelf.as_ref().unwrap().recall(&mut tasks, &config);
            assert_eq!(lines, Vec::<String>::new());
            let measured = tasks[0].spec.measured.iter();
            measured.filter_map(|one| one.trained.map(|trained| trained.step_s)).collect::<Vec<_>>()
        };
        assert_eq!(recalled(true), [40.0]);
        assert!(recalled(false).is_empty());
    }
}
