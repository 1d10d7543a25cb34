//! People who share a run: what their tasks weigh, and what each person is guaranteed.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use saturn_core::{
    Assignment, Cluster, Knobs, Node, Objective, Placement, Plan, PlanStatus, WHOLE,
};
use saturn_engine::{
    Action, AttemptEnd, AttemptId, Command, Decision, Engine, Event, NewTask, Owner, Policy,
    Purpose, RankReport, Record, RunConfig, Sharing, SolveAnswer, SolveOrder, StopReason, TaskId,
    Wishes,
};

use crate::staying::{config, script, submit};

/// A pool of four devices. All tasks take 1000 s on a device, and are measured.
pub(crate) struct Pool {
    pub(crate) engine: Engine,
    now_s: f64,
    records: Vec<(Record, f64)>,
    /// The questions that were put to the solver.
    orders: Vec<SolveOrder>,
}

pub(crate) fn sharing(shares: &[(&str, f64)]) -> Sharing {
    let shares = shares.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
    Sharing { shares, host: "host".to_owned(), ..Sharing::default() }
}

/// A task of the person of this number; 0: of the host.
pub(crate) fn task(uid: u32, name: &str) -> NewTask {
    let mut task = script(name, true, true);
    task.spec.owner = (uid > 0).then(|| Owner { uid, name: format!("p{uid}") });
    task.spec.gpu_range = Some(vec![1]);
    task
}

fn with_priority(priority: i32, mut task: NewTask) -> NewTask {
    task.spec.wishes.priority = priority;
    task
}

impl Pool {
    pub(crate) fn new(sharing: Sharing) -> Self {
        let policy = Policy { sharing: Some(sharing), ..config().policy };
        let engine = Engine::new(RunConfig { policy, ..config() });
        let mut pool = Self { engine, now_s: 0.0, records: Vec::new(), orders: Vec::new() };
        let nodes = vec![Node::new("n", 4, "cpu")];
        pool.tell(Event::Begin { cluster: Cluster { nodes } });
        pool
    }

    /// Tells the engine of an event, and answers all questions that come of it: each task starts on
    /// the device that is free first, in the order of the problem.
    pub(crate) fn tell(&mut self, event: Event) {
        let Decision { records, refusal, actions } = self.engine.handle(event, self.now_s);
        assert_eq!(refusal, None);
        assert!(self.engine.state().is_kept_up(), "after {records:?}");
        self.records.extend(records.into_iter().map(|record| (record, self.now_s)));
        for action in actions {
            if let Action::Solve { request, order } = action {
                let answer = Ok(in_order(&order));
                self.orders.push(*order);
                self.tell(Event::Solved { request, answer });
            }
        }
    }

    pub(crate) fn at(&mut self, now_s: f64) -> &mut Self {
        self.now_s = now_s;
        self
    }

    pub(crate) fn submit(&mut self, tasks: Vec<NewTask>) {
        self.tell(submit(tasks));
        self.tell(Event::Tick);
    }

    /// The questions about one person's tasks, and the others.
    pub(crate) fn asked(&self) -> (Vec<&SolveOrder>, Vec<&SolveOrder>) {
        let is_alone = |order: &&SolveOrder| {
            order.problem.cluster.nodes.iter().map(|node| node.gpus).sum::<u32>() < 4
        };
        self.orders.iter().partition(is_alone)
    }

    /// Weights and deadlines in the last question about all tasks, by name.
    fn stakes(&self) -> BTreeMap<&str, (f64, Option<f64>)> {
        let order = self.asked().1.last().copied().expect("a plan was asked for");
        assert_eq!(order.objective, Objective::Completion);
        let tasks = order.problem.tasks.iter();
        tasks.map(|task| (task.name.as_str(), (task.weight, task.deadline_s))).collect()
    }

    /// The sum of the weights of a person's tasks, whose names begin so.
    fn weight(&self, prefix: &str) -> f64 {
        let of = |(name, (weight, _)): (&str, (f64, _))| name.starts_with(prefix).then_some(weight);
        self.stakes().into_iter().filter_map(of).sum()
    }

    pub(crate) fn attempt_of(&self, name: &str) -> AttemptId {
        let state = self.engine.state();
        let task = state.task_named(name).expect("it is there");
        state.attempt_of(task).expect("it trains").0
    }

    pub(crate) fn train(&mut self, name: &str) {
        let attempt = self.attempt_of(name);
        let report = RankReport::Started { step: 0, setup_s: 0.0 };
        self.tell(Event::Reported { attempt, rank: 0, report });
    }
}

fn in_order(order: &SolveOrder) -> SolveAnswer {
    let problem = &order.problem;
    let mut free: Vec<(f64, usize, u32)> = Vec::new();
    for (node, spec) in problem.cluster.nodes.iter().enumerate() {
        free.extend((0..spec.gpus).map(|device| (0.0, node, device)));
    }
    let mut tasks: Vec<usize> = (0..problem.tasks.len()).collect();
    tasks.sort_by_key(|task| problem.tasks[*task].running.is_none());
    let mut assignments = Vec::new();
    for task in tasks {
        let of = &problem.tasks[task];
        let held = of.running.as_ref().map(|running| running.placement[0].devices[0]);
        let can = |one: &&mut (f64, usize, u32)| held.is_none_or(|device| device == one.2);
        let first = free.iter_mut().filter(can).min_by(|a, b| a.0.total_cmp(&b.0));
        let first = first.expect("there is a device");
        let start_s = first.0.max(of.release_s);
        let end_s = start_s + of.strategies[0].runtime_s;
        first.0 = end_s;
        let gang = vec![Placement { node: first.1, devices: vec![first.2] }];
        assignments.push(Assignment { task, strategy: 0, gang, share: WHOLE, start_s, end_s });
    }
    let plan = Plan::of(problem, order.objective, assignments);
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    SolveAnswer { plan, current_practice_s: None, practice_is_estimate: false, optimistic: None }
}

#[test]
fn people_weigh_the_same_however_many_tasks_they_have() {
    let mut pool = Pool::new(sharing(&[]));
    pool.submit(vec![task(1, "a1"), task(1, "a2"), task(1, "a3"), task(2, "b1")]);
    let (a, b) = (pool.weight("a"), pool.weight("b"));
    assert!((a - b).abs() < 1e-9 * a, "{a} {b}");
    let mut pool = Pool::new(sharing(&[("p1", 3.0)]));
    pool.submit(vec![task(1, "a1"), task(1, "a2"), task(2, "b1"), task(0, "host")]);
    let (a, b, host) = (pool.weight("a"), pool.weight("b"), pool.weight("host"));
    assert!((a - 3.0 * b).abs() < 1e-9 * a && (host - b).abs() < 1e-9 * a, "{a} {b} {host}");
}

#[test]
fn a_priority_orders_ones_own_tasks_alone() {
    let mut pool = Pool::new(sharing(&[]));
    let first = with_priority(5, task(1, "a1"));
    pool.submit(vec![first, task(1, "a2"), task(2, "b1"), task(2, "b2")]);
    let stakes = pool.stakes();
    assert!(stakes["a1"].0 > 100.0 * stakes["a2"].0);
    let (a, b) = (pool.weight("a"), pool.weight("b"));
    assert!((a - b).abs() < 1e-9 * a, "{a} {b}");
}

#[test]
fn who_has_used_the_pool_weighs_less_until_that_is_long_ago() {
    let mut pool = Pool::new(Sharing { half_life_s: 1000.0, ..sharing(&[]) });
    pool.submit(vec![task(1, "a1")]);
    pool.train("a1");
    pool.at(500.0).submit(vec![task(1, "a2"), task(2, "b1")]);
    let (a, b) = (pool.weight("a"), pool.weight("b"));
    // It has held one of four devices for half a half-life: 500 of the 5770 device-seconds that a pool
    // that is always full would count, of which the share is a half.
    let used = 1000.0 / std::f64::consts::LN_2 * (1.0 - 0.5_f64.sqrt());
    let fair = 4.0 * 1000.0 / std::f64::consts::LN_2 / 2.0;
    let expected = (-used / fair).exp2();
    assert!((a / b - expected).abs() < 1e-6, "{} {expected}", a / b);
    let attempt = pool.attempt_of("a1");
    let report = RankReport::Finished { step: 1000, loss: None };
    pool.at(1000.0).tell(Event::Reported { attempt, rank: 0, report });
    let exited = Event::RankExited { attempt, rank: 0, code: 0, last_words: String::new() };
    pool.tell(exited);
    let used_s = |pool: &Pool, now_s: f64| {
        let sharing = pool.engine.state().config.policy.sharing.clone().expect("it is shared");
        pool.engine.state().used_s(&sharing, now_s)[&Some(1)]
    };
    let at_end = used_s(&pool, 1000.0);
    // `a2` trains too.
    assert!(at_end > 1000.0 / std::f64::consts::LN_2 * 0.5, "{at_end}");
}

#[test]
fn each_person_is_guaranteed_the_end_that_a_share_alone_would_give() {
    let mut pool = Pool::new(sharing(&[]));
    pool.submit((0..4).map(|n| task(1, &format!("a{n}"))).chain([task(2, "b0")]).collect());
    let (alone, _) = pool.asked();
    let asked: Vec<(u32, usize)> = alone
        .iter()
        .map(|order| (order.problem.cluster.nodes[0].gpus, order.problem.tasks.len()))
        .collect();
    assert_eq!(asked, [(2, 4), (2, 1)], "half of the four devices each");
    // On two devices two of four tasks wait for the first two. A twentieth is slack.
    let deadlines: Vec<f64> =
        pool.stakes().values().map(|stake| stake.1.expect("it has a deadline")).collect();
    let runtime_s = alone[0].problem.tasks[0].strategies[0].runtime_s;
    let expected = [1.0, 1.0, 2.0, 2.0, 1.0].map(|times| 1.05 * times * runtime_s);
    for (deadline_s, expected_s) in deadlines.iter().zip(expected) {
        assert!((deadline_s - expected_s).abs() < 1e-6, "{deadlines:?} {expected:?}");
    }
}

#[test]
fn a_guarantee_changes_only_with_ones_own_tasks_and_with_the_share() {
    let mut pool = Pool::new(sharing(&[("p3", 2.0)]));
    pool.submit(vec![task(1, "a0"), task(1, "a1"), task(2, "b0")]);
    assert_eq!(pool.asked().0.len(), 2);
    let by_s = |pool: &Pool, task: usize| {
        let guarantee = pool.engine.state().task(TaskId(task)).guarantee.clone();
        guarantee.expect("it has one").by_s
    };
    let before_s = by_s(&pool, 0);
    pool.at(60.0).tell(Event::Tick);
    pool.at(120.0).tell(Event::Tick);
    assert!(pool.asked().1.len() > 1, "at intervals only the plan of all is made anew");
    assert_eq!(pool.asked().0.len(), 2);
    pool.at(130.0).submit(vec![task(2, "b1")]);
    assert_eq!(pool.asked().0.len(), 3);
    assert!((by_s(&pool, 0) - before_s).abs() < 1e-9, "another person's task changes nothing");
    pool.at(140.0).submit(vec![task(3, "c0")]);
    let gpus: Vec<u32> =
        pool.asked().0[3..].iter().map(|order| order.problem.cluster.nodes[0].gpus).collect();
    assert_eq!(gpus, [1, 1, 2], "a quarter of four devices, and a half");
    assert!((by_s(&pool, 0) - before_s).abs() < 1e-6, "it goes on on the device that is left");
    let waits_s = by_s(&pool, 1) - before_s;
    let left_s = before_s - 140.0;
    assert!((waits_s - left_s).abs() < 1e-6, "{waits_s} {left_s}: what was done alone counts");
}

#[test]
fn time_in_which_a_task_is_paused_does_not_count_as_trained_alone() {
    let mut pool = Pool::new(sharing(&[]));
    pool.submit(vec![task(1, "a0"), task(2, "b0")]);
    let guarantee = |pool: &Pool| pool.engine.state().task(TaskId(0)).guarantee.clone();
    let first = guarantee(&pool).expect("it has one");
    let runtime_s = first.by_s - first.start_s;
    let told = |command: Command| Event::Command { command };
    pool.at(100.0).tell(told(Command::Pause { task: "a0".to_owned() }));
    assert_eq!(guarantee(&pool), None, "nobody can count on it");
    pool.at(5000.0).tell(told(Command::Unpause { task: "a0".to_owned() }));
    pool.tell(Event::Tick);
    let again = guarantee(&pool).expect("it has one again");
    let expected_s = 5000.0 + runtime_s - 100.0;
    assert!((again.by_s - expected_s).abs() < 1e-6, "{} {expected_s}", again.by_s);
}

#[test]
fn a_task_that_is_too_wide_for_the_share_takes_so_much_longer_alone() {
    let mut pool = Pool::new(sharing(&[("p2", 3.0)]));
    let mut wide = task(1, "a0");
    wide.spec.gpu_range = Some(vec![2]);
    pool.submit(vec![wide, task(2, "b0")]);
    let (alone, _) = pool.asked();
    let option = &alone[0].problem.tasks[0].strategies[0];
    assert_eq!(option.gpus, 1, "a quarter of four devices");
    assert!((option.runtime_s - 1000.0).abs() < 1e-6, "twice the 500 s of two devices");
}

#[test]
fn deadlines_of_ones_own_count_in_ones_own_plan_alone() {
    let mut pool = Pool::new(sharing(&[]));
    let mut due = task(1, "a0");
    due.spec.wishes = Wishes { deadline_s: Some(900.0), ..Wishes::default() };
    pool.submit(vec![due, task(2, "b0")]);
    let (alone, _) = pool.asked();
    assert_eq!(alone[0].problem.tasks[0].deadline_s, Some(900.0));
    assert!(alone[0].problem.tasks[0].late_price.is_some(), "it may be missed");
    let deadline_s = pool.stakes()["a0"].1.expect("that of the share");
    assert!(deadline_s > 1000.0, "nobody else is held up for it: {deadline_s}");
}

#[test]
fn a_task_that_was_moved_is_left_where_it_is_for_half_an_hour() {
    let mut pool = Pool::new(sharing(&[]));
    pool.submit(vec![task(1, "a0")]);
    pool.train("a0");
    let is_movable = |pool: &mut Pool, now_s: f64| {
        pool.at(now_s).tell(Event::Tick);
        let order = pool.asked().1.last().copied().expect("a plan was asked for");
        let running = order.problem.tasks[0].running.as_ref().expect("it trains");
        running.movable
    };
    pool.submit(vec![task(2, "b0")]);
    assert!(is_movable(&mut pool, 100.0));
    let mut records: Vec<(Record, f64)> = pool.records.clone();
    let attempt = pool.attempt_of("a0");
    let reason = StopReason::Replan;
    records.push((Record::Stopping { attempt, reason }, 200.0));
    let end = AttemptEnd::Stopped;
    records.push((Record::Ended { attempt, end, step: 100, step_s: None }, 200.0));
    let state = |records: &[(Record, f64)]| {
        let restored = Engine::restore(records.iter().map(|(record, now_s)| (record, *now_s)));
        restored.expect("it has begun").state().clone()
    };
    let after = state(&records);
    assert_eq!(after.task(TaskId(0)).moved_s, Some(200.0));
    let again = pool.records.iter().find_map(|(record, _)| match record {
        Record::Launched { task: TaskId(0), purpose: Purpose::Train, .. } => Some(record.clone()),
        _ => None,
    });
    let Some(Record::Launched { task, purpose, strategy, gang, until_step, .. }) = again else {
        panic!("it was launched");
    };
    let attempt = AttemptId(99);
    records.push((Record::Launched { attempt, task, purpose, strategy, gang, until_step }, 201.0));
    let lately = state(&records);
    assert!(lately.is_to_stay(&lately.attempts[&attempt]));
    records.push((Record::Closed, 200.0 + 1801.0));
    let later = state(&records);
    assert!(!later.is_to_stay(&later.attempts[&attempt]));
}

/// A task of a kind that nobody has measured.
fn unmeasured(uid: u32, name: &str) -> NewTask {
    let mut task = task(uid, name);
    task.spec.measured.clear();
    task
}

/// A full pool in which the people of these numbers hold a device with each of these tasks.
fn full(sharing: Sharing, people: [u32; 4]) -> Pool {
    let mut pool = Pool::new(sharing);
    let names = ["a", "b", "c", "d"];
    pool.submit(people.into_iter().zip(names).map(|(uid, name)| task(uid, name)).collect());
    for name in names {
        pool.train(name);
    }
    pool
}

impl Pool {
    /// The tasks whose training is stopped for a trial and has not ended.
    fn stopped_for_a_trial(&self) -> Vec<&str> {
        let state = self.engine.state();
        let is_such = |one: &&saturn_engine::Attempt| {
            one.stopping.is_some_and(|(reason, _)| reason == StopReason::FirstTrial)
        };
        state.attempts.values().filter(is_such).map(|one| state.name(one.task)).collect()
    }

    /// Attempts that stop have stopped.
    fn end_stops(&mut self) {
        let attempts = &self.engine.state().attempts;
        let stopping = attempts.iter().filter(|(_, one)| one.stopping.is_some());
        for attempt in stopping.map(|(id, _)| *id).collect::<Vec<_>>() {
            let report = RankReport::Stopped { step: 100 };
            self.tell(Event::Reported { attempt, rank: 0, report });
            let (rank, code, last_words) = (0, 0, String::new());
            self.tell(Event::RankExited { attempt, rank, code, last_words });
        }
    }

    /// The trial of a task is over.
    fn tried(&mut self, name: &str) {
        let measured = task(0, "").spec.measured.swap_remove(0).outcome.expect("it is known");
        let state = self.engine.state();
        let of_task = |one: &saturn_engine::Attempt| state.name(one.task) == name;
        let trial = state.attempts.iter().find(|(_, one)| of_task(one)).expect("it is tried");
        let attempt = *trial.0;
        let report = RankReport::Trial { knobs: Knobs::new(), outcome: measured, step: None };
        self.tell(Event::Reported { attempt, rank: 0, report });
        self.tell(Event::RankExited { attempt, rank: 0, code: 0, last_words: String::new() });
    }

    fn trials(&self) -> Vec<&str> {
        let state = self.engine.state();
        let trials = state.attempts.values().filter(|one| one.purpose == Purpose::Trial);
        trials.map(|one| state.name(one.task)).collect()
    }
}

#[test]
fn the_first_trial_of_a_person_who_holds_nothing_does_not_wait_for_others_training_to_end() {
    let mut pool = full(sharing(&[]), [1, 1, 1, 1]);
    // The tasks of the person who holds all wait for room.
    pool.at(50.0).submit(vec![unmeasured(1, "own")]);
    assert_eq!(pool.stopped_for_a_trial(), [""; 0]);
    pool.at(100.0).submit(vec![unmeasured(2, "new"), unmeasured(2, "new too")]);
    assert_eq!(pool.stopped_for_a_trial(), ["d"], "one device is enough for one trial");
    pool.at(110.0).end_stops();
    assert_eq!(pool.trials(), ["new"], "it comes before trials that have waited longer");
    assert_eq!(pool.stopped_for_a_trial(), [""; 0], "the person holds a device now");
}

#[test]
fn room_for_a_first_trial_comes_from_those_who_hold_more_than_their_shares() {
    let mut pool = full(sharing(&[("p1", 6.0)]), [2, 2, 1, 1]);
    pool.at(100.0).submit(vec![unmeasured(3, "new")]);
    assert_eq!(pool.stopped_for_a_trial(), ["b"], "p1 may have three devices of four");
    // However large a share is, all devices are more.
    let mut pool = full(sharing(&[("p1", 8.0)]), [1, 1, 1, 1]);
    pool.at(100.0).submit(vec![unmeasured(2, "new")]);
    assert_eq!(pool.stopped_for_a_trial(), ["d"]);
    let mut pool =
        full(sharing(&[("p1", 1e6), ("p2", 1e6), ("p3", 1e6), ("p4", 1e6)]), [1, 2, 3, 4]);
    pool.at(100.0).submit(vec![unmeasured(4, "own"), unmeasured(5, "new")]);
    assert_eq!(pool.stopped_for_a_trial().len(), 1);
}

#[test]
fn people_who_hold_nothing_are_given_room_one_after_the_other() {
    let mut pool = full(sharing(&[]), [1, 1, 1, 1]);
    pool.at(100.0).submit(vec![unmeasured(2, "new")]);
    pool.end_stops();
    let stopped = pool.engine.state().task_named("d").expect("it is there");
    assert_eq!(pool.engine.state().task(stopped).moved_s, Some(100.0), "it is left alone now");
    pool.at(110.0).submit(vec![unmeasured(3, "newer")]);
    assert_eq!(pool.stopped_for_a_trial(), [""; 0], "its trial waits for the trial before it");
    pool.tried("new");
    assert_eq!(pool.trials(), ["newer"]);
}

#[test]
fn a_run_of_one_person_asks_for_no_plan_alone() {
    let engine = Engine::new(config());
    let mut pool = Pool { engine, now_s: 0.0, records: Vec::new(), orders: Vec::new() };
    pool.tell(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n", 4, "cpu")] } });
    pool.submit(vec![task(1, "a0"), task(2, "b0")]);
    assert_eq!(pool.asked().0.len(), 0);
    assert_eq!(pool.asked().1.last().expect("it is asked").objective, Objective::Makespan);
    let priority = Command::Wish {
        task: "a0".to_owned(),
        priority: Some(1),
        deadline_s: None,
        no_deadline: false,
        release_s: None,
        after: None,
    };
    pool.tell(Event::Command { command: priority });
    pool.tell(Event::Tick);
    assert!(pool.stakes()["a0"].0 > pool.stakes()["b0"].0);
}
