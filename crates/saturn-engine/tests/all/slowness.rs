//! Nodes that become slow while tasks train: what is believed of strategies, tasks and nodes then.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::time::Duration;

use saturn_core::{Assignment, Knobs, Origin, Placement, Plan, PlanStatus, Strategy, Trial, WHOLE};
use saturn_engine::{
    Action, AttemptId, Command, Decision, Engine, Event, NewTask, Policy, RankReport, Record,
    SolveAnswer, SolveOrder, TaskId, TaskSpec, forecast,
};

use crate::run::inspection;
use crate::specs::{engine, measured, spec};

const STEPS: u64 = 10_000;
const INTERVAL_S: f64 = 1000.0;
/// Seconds a step by the trials, on one device.
const TRIED: [(&str, f64); 2] = [("ddp", 1.0), ("offload", 1.5)];
/// Steps between two reports.
const REPORT_STEPS: u64 = 10;

fn trial((technique, step_s): (&str, f64)) -> Trial {
    Trial {
        task: "t".to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: strategy(technique),
        outcome: Some(measured(step_s)),
        trained: None,
        origin: Origin::default(),
    }
}

fn strategy(technique: &str) -> Strategy {
    Strategy { technique: technique.to_owned(), gpus: 1, knobs: Knobs::new() }
}

/// A run of two devices of one node, whose tasks train on virtual time.
struct Run {
    engine: Engine,
    now_s: f64,
    /// Live attempts: finished steps, and seconds a step.
    gangs: Vec<(AttemptId, u64, f64)>,
    records: Vec<Record>,
    /// The last problem that was asked about.
    asked: Option<SolveOrder>,
    techniques: [&'static str; 2],
}

impl Run {
    /// Tasks, each with its group; the first two train at once by these techniques.
    fn of(tasks: &[(&str, &str)], techniques: [&'static str; 2]) -> Self {
        let policy = Policy { interval_s: INTERVAL_S, ..Policy::default() };
        let engine = engine(&TRIED.map(|(name, _)| name), 2, policy);
        let (gangs, records, asked) = Default::default();
        let mut run = Self { engine, now_s: 0.0, gangs, records, asked, techniques };
        run.submit(tasks);
        run
    }

    /// Tasks, each with its group, which train at once if there is a device.
    fn submit(&mut self, tasks: &[(&str, &str)]) {
        let new = |(name, group): &(&str, &str)| NewTask {
            spec: TaskSpec {
                steps: Some(STEPS),
                gpu_range: Some(vec![1]),
                profile_key: (*group).to_owned(),
                measured: TRIED.map(trial).to_vec(),
                ..spec(name)
            },
            after: Vec::new(),
        };
        let mut tasks: Vec<NewTask> = tasks.iter().map(new).collect();
        // Idle devices would be given to a faster strategy than the answer's.
        for (task, technique) in tasks.iter_mut().zip(self.techniques) {
            if technique != "ddp" {
                task.spec.allowed.techniques = Some(vec![technique.to_owned()]);
            }
        }
        let num_known = self.gangs.len();
        let request = self.tell(Event::Command { command: Command::Submit { tasks } });
        let order = self.asked.clone().expect("all is measured");
        let answer = Ok(answer(&order, self.techniques));
        self.tell(Event::Solved { request: request.expect("a plan is asked for"), answer });
        for index in num_known..self.gangs.len() {
            let attempt = self.gangs[index].0;
            self.say(attempt, RankReport::Started { step: 0, setup_s: 2.0 });
            self.say(attempt, RankReport::Progress { step: 1, loss: None, step_s: None });
        }
    }

    /// The number of the plan that is asked for by this, if one is.
    fn tell(&mut self, event: Event) -> Option<u64> {
        let Decision { records, actions, .. } = self.engine.handle(event, self.now_s);
        self.records.extend(records);
        let mut request = None;
        for action in actions {
            match action {
                Action::Launch { attempt, .. } => self.gangs.push((attempt, 1, 1.0)),
                Action::Solve { request: number, order } => {
                    self.asked = Some(*order);
                    request = Some(number);
                }
                _ => {}
            }
        }
        request
    }

    fn say(&mut self, attempt: AttemptId, report: RankReport) -> Option<u64> {
        self.tell(Event::Reported { attempt, rank: 0, report })
    }

    /// Trains until so many seconds have passed. Solves fail meanwhile, so the plan stays.
    fn train_s(&mut self, seconds: f64) {
        let mut due_s: Vec<f64> = vec![self.now_s; self.gangs.len()];
        let until_s = self.now_s + seconds;
        loop {
            for (due_s, (_, _, step_s)) in due_s.iter_mut().zip(&self.gangs) {
                if *due_s <= self.now_s {
                    *due_s += REPORT_STEPS as f64 * step_s;
                }
            }
            self.now_s = due_s.iter().copied().fold(f64::INFINITY, f64::min);
            if self.now_s > until_s {
                return;
            }
            for (index, due_s) in due_s.iter().enumerate() {
                if *due_s > self.now_s {
                    continue;
                }
                self.gangs[index].1 += REPORT_STEPS;
                let (attempt, step, _) = self.gangs[index];
                let report = RankReport::Progress { step, loss: None, step_s: None };
                let request = self.say(attempt, report);
                let request = request.or_else(|| self.tell(Event::Tick));
                if let Some(request) = request {
                    self.tell(Event::Solved { request, answer: Err("none".to_owned()) });
                }
            }
        }
    }

    /// So many reports of both attempts. The first takes `step_s` for a step, the second a second.
    fn report(&mut self, number: u64, step_s: f64) {
        for _ in 0..number {
            let taken_s = REPORT_STEPS as f64 * step_s;
            self.now_s += taken_s;
            for (index, steps) in
                [(0, REPORT_STEPS), (1, Duration::from_secs_f64(taken_s).as_secs())]
            {
                self.gangs[index].1 += steps;
                let (attempt, step, _) = self.gangs[index];
                let report = RankReport::Progress { step, loss: None, step_s: None };
                if let Some(request) = self.say(attempt, report) {
                    self.tell(Event::Solved { request, answer: Err("none".to_owned()) });
                }
            }
        }
    }

    /// Steps of an attempt take so long from now on.
    fn pace(&mut self, index: usize, step_s: f64) {
        self.gangs[index].2 = step_s;
    }

    fn step_s(&self, task: usize, technique: &str) -> f64 {
        let step_s = self.engine.state().step_s(TaskId(task), &strategy(technique), "cpu");
        step_s.expect("it is measured")
    }

    fn factor(&self) -> Option<f64> {
        self.engine.state().nodes[0].slowness.map(|one| one.factor)
    }

    /// How long a task that waits is expected to train, seconds.
    fn waiting_s(&self, task: usize) -> f64 {
        let (start_s, end_s) = forecast(self.engine.state(), self.now_s).tasks[&TaskId(task)];
        end_s - start_s
    }

    /// Seconds that a task has left by a technique, in the problem that was asked about last.
    fn runtime_s(&self, task: usize, technique: &str) -> f64 {
        let order = self.asked.as_ref().expect("a plan was asked for");
        let mut all = order.problem.tasks[task].strategies.iter();
        all.find(|one| *one.technique == *technique).expect("it was measured").runtime_s
    }

    /// How many of the recorded steps took more than `least_s` seconds each.
    fn num_slow(&self, least_s: f64) -> u64 {
        let slow = |record: &Record| match record {
            Record::Clocked { trained, .. } if trained.step_s > least_s => trained.steps,
            Record::Observed { step_s, .. } if *step_s > least_s => 1,
            _ => 0,
        };
        self.records.iter().map(slow).sum()
    }
}

/// The first two tasks on a device each by these techniques, the others behind the first by `ddp`.
fn answer(order: &SolveOrder, techniques: [&str; 2]) -> SolveAnswer {
    let mut free_s = [0.0, 0.0];
    let tasks = order.problem.tasks.iter().enumerate();
    let assignments = tasks.map(|(task, spec)| {
        let technique = techniques.get(task).copied().unwrap_or("ddp");
        let mut all = spec.strategies.iter();
        let strategy = all.position(|one| *one.technique == *technique).expect("it was measured");
        let device = usize::from(task == 1);
        let start_s = free_s[device];
        free_s[device] += spec.strategies[strategy].runtime_s;
        let gang = vec![Placement { node: 0, devices: vec![u32::from(task == 1)] }];
        Assignment { task, strategy, gang, share: WHOLE, start_s, end_s: free_s[device] }
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    SolveAnswer {
        plan: Plan { status: PlanStatus::Feasible, ..plan },
        current_practice_s: None,
        practice_is_estimate: false,
        optimistic: None,
    }
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 0.03
}

#[test]
fn a_slow_node_slows_every_strategy_of_its_task_alike() {
    let mut run = Run::of(&[("a", "k"), ("b", "k")], ["ddp", "offload"]);
    run.pace(1, 1.5);
    run.train_s(300.0);
    assert_eq!(run.factor(), None);
    // Both strategies have trained on the node while it was well, and one task is left.
    let (attempt, ..) = run.gangs.remove(1);
    run.tell(Event::Command { command: Command::Cancel { task: "b".to_owned(), by: None } });
    run.tell(Event::RankExited { attempt, rank: 0, code: 1, last_words: String::new() });
    run.pace(0, 2.0);
    run.train_s(1500.0);
    assert!(near(run.factor().expect("it is slow"), 2.0), "{:?}", run.factor());
    // The other strategy gains nothing by having trained before.
    assert!(near(run.step_s(0, "ddp"), 1.0), "{}", run.step_s(0, "ddp"));
    assert!(near(run.step_s(0, "offload"), 1.5), "{}", run.step_s(0, "offload"));
    // Nor is it kept for later runs that the node was slow.
    assert_eq!(run.num_slow(1.6), 0);
}

#[test]
fn a_slow_node_slows_other_tasks_that_are_planned_on_it() {
    let mut run = Run::of(&[("a", "k"), ("b", "l"), ("c", "m")], ["ddp", "offload"]);
    run.pace(1, 1.5);
    run.train_s(300.0);
    let before_s = run.waiting_s(2);
    run.pace(0, 2.0);
    run.pace(1, 3.0);
    run.train_s(12_000.0);
    // It is expected to be slow for as long again, beyond where the other task begins.
    assert!(near(run.factor().expect("it is slow"), 2.0), "{:?}", run.factor());
    let state = run.engine.state();
    let until_s = state.nodes[0].slowness.expect("it is slow").until_s();
    assert!((until_s - run.now_s - 12_000.0).abs() < 400.0, "{until_s} {}", run.now_s);
    let (start_s, end_s) = forecast(state, run.now_s).tasks[&TaskId(2)];
    let slow_s = (until_s - start_s).max(0.0);
    assert!(slow_s > 0.0 && near(end_s - start_s, before_s + slow_s / 2.0), "{start_s} {end_s}");
}

#[test]
fn a_node_that_is_well_again_is_noticed() {
    let mut run = Run::of(&[("a", "k"), ("b", "l")], ["ddp", "ddp"]);
    run.train_s(300.0);
    (0..2).for_each(|index| run.pace(index, 2.0));
    run.train_s(1000.0);
    assert!(run.factor().is_some());
    (0..2).for_each(|index| run.pace(index, 1.0));
    run.train_s(300.0);
    assert_eq!(run.factor(), None);
    assert!(near(run.step_s(0, "ddp"), 1.0) && run.num_slow(1.1) == 0);
}

#[test]
fn what_was_slow_from_the_beginning_is_corrected_once_its_node_is_well() {
    let mut run = Run::of(&[("a", "k")], ["ddp", "ddp"]);
    // Nobody can tell a slow node from a wrong profile, so all strategies are believed to be slow.
    run.pace(0, 2.0);
    run.train_s(2500.0);
    assert!(near(run.step_s(0, "ddp"), 2.0), "{}", run.step_s(0, "ddp"));
    assert!(run.step_s(0, "offload") > 2.5 && run.factor().is_none());
    run.pace(0, 1.0);
    run.train_s(2500.0);
    assert!(near(run.step_s(0, "ddp"), 1.0) && near(run.step_s(0, "offload"), 1.5));
}

#[test]
fn what_slows_a_task_as_another_comes_is_no_slow_node() {
    let mut run = Run::of(&[("a", "k")], ["ddp", "ddp"]);
    run.train_s(300.0);
    let (attempt, ..) = run.gangs[0];
    run.submit(&[("b", "l")]);
    run.pace(0, 1.5);
    run.train_s(3000.0);
    assert!(run.gangs.len() == 2 && run.gangs[0].0 == attempt, "{:?}", run.gangs);
    assert_eq!(run.factor(), None);
    assert!(run.step_s(0, "ddp") > 1.4 && run.num_slow(1.4) > 0, "{}", run.step_s(0, "ddp"));
}

#[test]
fn a_task_that_becomes_slow_alone_is_slow_itself() {
    let mut run = Run::of(&[("a", "k"), ("b", "l")], ["ddp", "ddp"]);
    run.train_s(300.0);
    run.pace(0, 2.0);
    run.train_s(2500.0);
    assert_eq!(run.factor(), None);
    assert!(near(run.step_s(0, "ddp"), 2.0) && near(run.step_s(1, "ddp"), 1.0));
    assert!(run.num_slow(1.9) > 0, "it is put on record");
}

#[test]
fn steps_beside_an_inspection_do_not_come_back_with_a_new_pace() {
    let mut run = Run::of(&[("a", "k"), ("b", "l")], ["ddp", "ddp"]);
    run.report(30, 1.0);
    run.report(2, 2.0);
    let spec = TaskSpec { profile_key: "other".to_owned(), ..spec("c") };
    let tasks = vec![NewTask { spec, after: Vec::new() }];
    run.tell(Event::Command { command: Command::Submit { tasks } });
    let (look, ..) = run.gangs.pop().expect("its model is inspected");
    run.report(1, 6.0);
    run.say(look, RankReport::Inspected { inspection: Box::new(inspection(1, 1)) });
    let gone = Event::RankExited { attempt: look, rank: 0, code: 0, last_words: String::new() };
    run.tell(gone);
    run.gangs.truncate(2);
    run.report(12, 2.0);
    assert_eq!(run.factor(), None);
    let step_s = run.step_s(0, "ddp");
    assert!(near(step_s, 2.0), "{step_s}");
    let attempt = &run.engine.state().attempts[&run.gangs[0].0];
    assert_eq!(attempt.warm.map(|mark| mark.step), Some(301), "the new pace begins there");
    assert_eq!(attempt.beside_inspections.steps, REPORT_STEPS);
}

#[test]
fn a_wrong_profile_is_seen_as_one_and_another_strategy_pays() {
    let mut run = Run::of(&[("a", "k"), ("b", "k")], ["ddp", "offload"]);
    run.pace(0, 4.0);
    run.pace(1, 1.6);
    run.train_s(2500.0);
    assert_eq!(run.factor(), None);
    let step_s = (run.step_s(0, "ddp"), run.step_s(0, "offload"));
    assert!(near(step_s.0, 4.0) && near(step_s.1, 1.6), "{step_s:?}");
    assert!(run.runtime_s(0, "offload") < 0.5 * run.runtime_s(0, "ddp"));
}

#[test]
fn a_strategy_that_trains_as_tried_is_not_corrected_as_another_was() {
    let mut run = Run::of(&[("a", "k"), ("b", "k")], ["ddp", "offload"]);
    run.pace(0, 4.0);
    run.pace(1, 1.5);
    run.train_s(2500.0);
    assert!(near(run.step_s(0, "ddp"), 4.0), "{}", run.step_s(0, "ddp"));
    // For a task that does not train under it, too.
    assert!(near(run.step_s(0, "offload"), 1.5), "{}", run.step_s(0, "offload"));
}

#[test]
fn a_task_that_begins_on_a_slow_node_is_no_proof_that_the_node_is_well() {
    let mut run = Run::of(&[("a", "k")], ["ddp", "offload"]);
    run.train_s(300.0);
    run.pace(0, 2.0);
    run.train_s(3000.0);
    assert!(near(run.factor().expect("it is slow"), 2.0), "{:?}", run.factor());
    // Its strategy was measured, and has not trained in this run.
    run.submit(&[("b", "l")]);
    run.pace(1, 3.0);
    run.train_s(1000.0);
    assert!(near(run.factor().expect("it is slow"), 2.0), "{:?}", run.factor());
    assert!(near(run.step_s(0, "ddp"), 1.0) && near(run.step_s(1, "offload"), 1.5));
    assert_eq!(run.num_slow(1.6), 0, "nothing slow is kept for later runs");
}
