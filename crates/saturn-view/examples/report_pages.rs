//! Writes pages of made-up runs, for tests in a browser and for the bench: a run, a comparison of
//! two runs, and a run of many tasks. Of the first two runs it also writes the records with their
//! times, as a journal holds them.
//!
//! usage: `report_pages DIRECTORY [TASKS]`

use std::num::NonZeroU64;
use std::path::Path;

use saturn_core::{
    Finding, Inspection, Knobs, Node, Placement, PlanStatus, Strategy, TrialOutcome, Verdict, WHOLE,
};
use saturn_engine::{
    Allowed, AttemptEnd, AttemptId, BestEvaluation, DeviceKind, Evaluation, EvaluationSpec, Level,
    Mode, NodeId, Place, PlanSource, Policy, Purpose, Record, RunConfig, RunEnd, RunPlan, State,
    TaskEnd, TaskId, TaskSpec, TechniqueRef, Wishes,
};
use saturn_view::{History, LossPoint, Report, TaskMetrics, comparison_html, render_html};
use serde_json::json;

const TECHNIQUES: [&str; 4] = ["ddp", "fsdp", "pipeline", "tensor"];
const GPU_TYPE: &str = "NVIDIA H100 80GB HBM3";
const WIDTHS: [u32; 3] = [256, 512, 1024];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".to_owned());
    let num_many = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let sweep =
        |name, num_tasks, num_devices, pace| Sweep { name, num_tasks, num_devices, pace }.report();
    let (one, records) = sweep("sweep", 12, 4, 1.0);
    let (other, other_records) = sweep("sweep-on-two", 14, 2, 0.8);
    let (many, _) = sweep("many", num_many, 64, 1.0);
    let write = |name: &str, page: String| {
        if let Err(error) = std::fs::write(Path::new(&directory).join(name), page) {
            eprintln!("failed to write `{directory}/{name}`: {error}");
            std::process::exit(5);
        }
    };
    write("sweep.json", json!(records).to_string());
    write("sweep-on-two.json", json!(other_records).to_string());
    write("run.html", render_html(&one));
    write("many.html", render_html(&many));
    write("runs.html", comparison_html(&[one, other]));
}

/// A made-up sweep that trains without failures.
struct Sweep {
    name: &'static str,
    num_tasks: usize,
    num_devices: u32,
    /// A factor on all times.
    pace: f64,
}

/// The records so far, and the state and history that they give.
struct Told {
    state: State,
    history: History,
    records: Vec<(f64, Record)>,
}

impl Told {
    fn tell(&mut self, now_s: f64, record: &Record) {
        self.state.apply(record, now_s);
        self.history.record(&self.state, record, now_s);
        self.records.push((now_s, record.clone()));
    }
}

/// The place and time at which a task trains.
struct Slot {
    task: usize,
    devices: Vec<u32>,
    start_s: f64,
    end_s: f64,
}

impl Sweep {
    fn report(&self) -> (Report, Vec<(f64, Record)>) {
        let technique = |name: &str| TechniqueRef {
            name: name.to_owned(),
            level: Level::Managed,
            import: None,
            pickle: None,
        };
        let config = RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cuda,
            device_memory_bytes: None,
            techniques: TECHNIQUES.map(technique).to_vec(),
            policy: Policy::default(),
        };
        let (state, history) = (State::new(config.clone()), History::default());
        let mut told = Told { state, history, records: Vec::new() };
        told.tell(0.0, &Record::Began { config });
        let spec = Node::new("node-0", self.num_devices, GPU_TYPE);
        told.tell(0.0, &Record::NodeJoined { node: NodeId(0), spec, host_memory_bytes: None });
        for task in 0..self.num_tasks {
            told.tell(0.0, &Record::TaskAdded { task: TaskId(task), spec: spec_of(task) });
        }
        told.tell(0.0, &Record::Closed);
        self.measure(&mut told);
        let slots = self.plan(&mut told);
        let end_s = self.train(&mut told, &slots);
        told.tell(end_s, &Record::RunEnded { end: RunEnd::Complete });
        let metrics = (0..self.num_tasks).map(|task| metrics(task, self.pace)).collect();
        (Report::build(&told.state, &told.history, self.name, metrics), told.records)
    }

    /// An inspection of every model, a trial of each strategy, and a trial that runs out of memory.
    fn measure(&self, told: &mut Told) {
        for group in 0..told.state.groups.len() {
            let (key, task) =
                (told.state.groups[group].key.clone(), told.state.groups[group].tasks[0].0);
            let inspection = inspection(task, self.num_devices);
            told.tell(0.5, &Record::Inspected { group: key.clone(), inspection });
            let tried = |name: &str, gpus: u32, outcome: TrialOutcome| Record::Tried {
                group: key.clone(),
                gpu_type: GPU_TYPE.to_owned(),
                strategy: strategy(name, gpus),
                outcome,
            };
            told.tell(1.0, &tried("ddp", 1, self.measured(task, 1, 1.0)));
            told.tell(1.5, &tried("fsdp", 2, self.measured(task, 2, 1.3)));
            let detail = format!("CUDA out of memory. Tried to allocate {}.00 GiB", 3 + group % 3);
            told.tell(2.0, &tried("fsdp", 1, TrialOutcome::OutOfMemory { detail }));
        }
    }

    fn measured(&self, task: usize, gpus: u32, factor: f64) -> TrialOutcome {
        TrialOutcome::Measured {
            step_s: step_s(task) * self.pace * factor / f64::from(gpus).sqrt(),
            setup_s: 0.5,
            checkpoint_s: Some(0.4),
            peak_memory_bytes: 4_120_000_000 * u64::from(WIDTHS[task % 3]) / 256 / u64::from(gpus),
            timed_steps: 30,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: Some(56),
            evaluation_s: Some(0.2),
        }
    }

    /// Puts each task on the devices that are free first. Every fifth task gets two devices.
    fn plan(&self, told: &mut Told) -> Vec<Slot> {
        let mut free_s = vec![3.0_f64; self.num_devices as usize];
        let mut slots = Vec::new();
        for task in 0..self.num_tasks {
            let width = if task % 5 == 4 { 2 } else { 1 };
            let mut order: Vec<usize> = (0..free_s.len()).collect();
            order.sort_by(|one, other| free_s[*one].total_cmp(&free_s[*other]));
            order.truncate(width);
            order.sort_unstable();
            let start_s = order.iter().map(|device| free_s[*device]).fold(0.0, f64::max);
            let end_s =
                start_s + steps(task) as f64 * step_s(task) * self.pace / (width as f64).sqrt();
            for device in &order {
                free_s[*device] = end_s;
            }
            let devices = order.iter().filter_map(|device| u32::try_from(*device).ok()).collect();
            slots.push(Slot { task, devices, start_s, end_s });
        }
        let places = slots.iter().map(|slot| Place {
            task: TaskId(slot.task),
            strategy: way(slot).into(),
            gang: vec![Placement { node: 0, devices: slot.devices.clone() }].into(),
            share: WHOLE,
            until_step: None,
            is_estimate: false,
            start_s: slot.start_s,
            end_s: slot.end_s,
        });
        let makespan_s = free_s.iter().copied().fold(0.0, f64::max) - 3.0;
        let plan = RunPlan {
            at_s: 3.0,
            source: PlanSource::Solver,
            status: PlanStatus::Feasible,
            makespan_s,
            lower_bound_s: makespan_s * 0.97,
            solve_s: 0.4,
            practice_is_estimate: false,
            current_practice_s: Some(makespan_s * 1.4),
            instead_of_s: None,
            places: places.collect(),
        };
        told.tell(3.0, &Record::Planned { plan: plan.into() });
        slots
    }

    /// Trains what was planned, a little late. Returns the end; records are in the order of time.
    fn train(&self, told: &mut Told, slots: &[Slot]) -> f64 {
        let mut records: Vec<(f64, Record)> = Vec::new();
        let late = |at_s: f64| 3.0 + (at_s - 3.0) * 1.04;
        for (slot, number) in slots.iter().zip(1..) {
            let (attempt, task) = (AttemptId(number), TaskId(slot.task));
            let (start_s, end_s) = (late(slot.start_s), late(slot.end_s) - 0.01);
            let gang = vec![Placement { node: 0, devices: slot.devices.clone() }];
            let (purpose, strategy, until_step) = (Purpose::Train, way(slot), None);
            let launched = Record::Launched { attempt, task, purpose, strategy, gang, until_step };
            records.push((start_s, launched));
            records.push((start_s + 0.2, Record::Started { attempt, step: 0, setup_s: 0.2 }));
            let evaluations = metrics(slot.task, self.pace).evaluations;
            let best = evaluations.last().map(|evaluation| BestEvaluation {
                metric: "eval_loss".to_owned(),
                evaluation: evaluation.clone(),
            });
            for evaluation in evaluations {
                let share = evaluation.step as f64 / steps(slot.task) as f64;
                let at_s = start_s + 0.2 + (end_s - start_s - 0.21) * share;
                records.push((
                    at_s,
                    Record::Evaluated {
                        attempt,
                        evaluation,
                        best: best.clone(),
                        evaluation_s: Some(0.2),
                    },
                ));
            }
            let end = AttemptEnd::Finished;
            records.push((
                end_s,
                Record::Ended { attempt, end, step: steps(slot.task), step_s: None },
            ));
            let loss = metrics(slot.task, self.pace).losses.last().map(|point| point.1);
            records.push((end_s, Record::TaskEnded { task, end: TaskEnd::Done { loss } }));
        }
        records.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (at_s, record) in &records {
            told.tell(*at_s, record);
        }
        records.last().map_or(3.0, |record| record.0)
    }
}

/// A task's spec. Tasks differ in family, width and learning rate; tasks that differ only in
/// learning rate are a group.
fn spec_of(task: usize) -> TaskSpec {
    let (family, width) = (["gpt", "vit", "llama"][task / 3 % 3], WIDTHS[task % 3]);
    let lr = [1e-4, 3e-4, 1e-3][task / 9 % 3];
    // A large sweep has more models, not only more learning rates.
    let size = task / 27;
    let key = format!("{family}-w{width}-s{size}");
    let name = format!("{key}-lr{lr:e}");
    let mut parameters = Knobs::new();
    parameters.insert("lr".to_owned(), json!(lr));
    parameters.insert("width".to_owned(), json!(width));
    parameters.insert("family".to_owned(), json!(family));
    TaskSpec {
        dir: format!("tasks/{name}"),
        name,
        steps: Some(steps(task)),
        epochs: None,
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: None,
        allowed: Allowed::default(),
        profile_key: key,
        measured: Vec::new(),
        wishes: Wishes::default(),
        evaluation: Some(EvaluationSpec { every_steps: None }),
        parameters,
        goal: None,
        is_rest: false,
        start_step: 0,
        owner: None,
    }
}

fn steps(task: usize) -> u64 {
    300 + 100 * (task as u64 % 4)
}

fn step_s(task: usize) -> f64 {
    0.02 * f64::from(WIDTHS[task % 3]).sqrt() / 16.0 * [1.0, 0.7, 1.6][task / 3 % 3]
}

fn strategy(technique: &str, gpus: u32) -> Strategy {
    Strategy { technique: technique.to_owned(), gpus, knobs: Knobs::new() }
}

fn way(slot: &Slot) -> Strategy {
    if slot.devices.len() == 1 { strategy("ddp", 1) } else { strategy("fsdp", 2) }
}

/// Made-up findings: a `vit` has nothing that a pipeline could cut, and the widest models fit no
/// single device under `tensor`.
fn inspection(task: usize, num_devices: u32) -> Inspection {
    let width = WIDTHS[task % 3];
    let counts = [1, 2, 4, 8].into_iter().filter(|gpus| *gpus <= num_devices);
    let verdicts = counts.flat_map(|gpus| {
        TECHNIQUES.map(|technique| Verdict {
            technique: technique.to_owned(),
            gpus,
            gpu_type: GPU_TYPE.to_owned(),
            finding: match technique {
                "pipeline" if task / 3 % 3 == 1 || gpus == 1 => Finding::NotApplicable {
                    reason: "no run of equal layers that it could cut into stages".to_owned(),
                },
                "tensor" if width == 1024 && gpus == 1 => Finding::OutOfMemory {
                    detail: "it needs 93.1 GB at the very least, and a device has 79.2 GB"
                        .to_owned(),
                },
                _ => Finding::CanRun { least_memory_bytes: Some(2_000_000_000), knob_sets: 2 },
            },
        })
    });
    let parameters = u64::from(width).pow(2) * 144;
    Inspection {
        parameters,
        parameter_bytes: parameters * 4,
        trainable_bytes: parameters * 4,
        layers: Some(12),
        checkpoint_bytes: parameters * 12,
        optimizer_state_ratio: 2.0,
        batches_per_epoch: Some(56),
        verdicts: verdicts.collect(),
    }
}

/// Losses that fall with the noise of batches, and an evaluation every fiftieth step.
fn metrics(task: usize, pace: f64) -> TaskMetrics {
    let floor = 1.2 + 0.13 * (task % 7) as f64 + 0.1 * pace;
    let at = |step: u64| floor + 3.5 * (-6.0 * step as f64 / steps(task) as f64).exp();
    let noise = |step: u64| ((step * 7919 + task as u64 * 31) % 101) as f64 / 101.0 - 0.5;
    let losses: Vec<LossPoint> = (1..=steps(task))
        .step_by(2)
        .map(|step| (step, at(step) * (1.0 + 0.12 * noise(step))))
        .collect();
    let evaluations = (1..=steps(task) / 50).map(|index| {
        let step = index * 50;
        let loss = at(step) * 1.06;
        let metrics = [("eval_loss", loss), ("accuracy", 1.0 / loss)];
        Evaluation {
            step,
            metrics: metrics.map(|(name, value)| (name.to_owned(), Some(value))).into(),
        }
    });
    TaskMetrics { evaluations: evaluations.collect(), ..TaskMetrics::from(losses) }
}
