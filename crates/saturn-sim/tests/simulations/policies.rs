//! Policies on small workloads: what they do can be done, they pay the same, and equal seeds give
//! equal numbers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::{Candidate, Cluster, Plan, Problem, ProblemTask, check};
use saturn_sim::policy::{CURRENT_PRACTICE, Case, Held, POLICIES, Span, simulate};
use saturn_sim::{Table, WorkloadFile};
use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::cases::{case, outcome};

/// Four kinds of tasks on two nodes, drawn; a checkpoint is written at stops and ends alone.
fn drawn(seed: u64, more: &str) -> Case {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = format!(
        "{more}\ncosts = {{ load_s = {}, save_s = {}, checkpoint_every_s = 1e8 }}\n\
         [[nodes]]\ngpus = 4\n[[nodes]]\ngpus = 2\n",
        rng.random_range(1..60),
        rng.random_range(1..20),
    );
    for kind in 0..4 {
        let base = rng.random_range(0.1..1.0);
        let curve = |rng: &mut Xoshiro256PlusPlus, base: f64| {
            let power = rng.random_range(0.4..1.0);
            [1u32, 2, 4]
                .map(|gpus| format!("{gpus} = {:.6}", base / f64::from(gpus).powf(power)))
                .join(", ")
        };
        let (ddp, fsdp) = (curve(&mut rng, base), curve(&mut rng, base * 1.2));
        write!(
            text,
            "[[tasks]]\nname = \"k{kind}\"\ncount = {}\nsteps = {}\nasks_gpus = {}\n\
             step_s = {{ ddp = {{ {ddp} }}, fsdp = {{ {fsdp} }} }}\n",
            rng.random_range(1..4),
            rng.random_range(400..6000),
            [1, 2, 4][rng.random_range(0..3)],
        )
        .unwrap();
    }
    case(&text)
}

/// Seconds that a span of a whole task takes, from the case's own numbers.
fn takes_s(case: &Case, span: &Span) -> f64 {
    let job = &case.jobs[span.job];
    let group = &case.truth.groups[&job.group];
    let step_s = group.techniques[&span.technique].measured[&span.gpus];
    match span.held {
        Held::Training => group.load_s + job.steps as f64 * step_s + group.save_s,
        Held::Trial => group.load_s + f64::from(case.trial_steps) * step_s,
    }
}

/// The outcome of a trial comes before its processes have ended. In between, the engine asks for a
/// plan, and must choose the next trial by it: nothing else makes it ask again.
#[test]
fn a_task_alone_is_measured_on_as_many_devices_as_pay() {
    let case = case(
        "trials = true\ncosts = { load_s = 40, save_s = 10 }\n[[nodes]]\ngpus = 8\n\
         [[tasks]]\nname = \"alone\"\nsteps = 6000\n\
         step_s = { ddp = { 1 = 4.0, 2 = 2.1, 4 = 1.1, 8 = 0.6 } }\n",
    );
    let outcome = outcome("saturn", &case);
    let bound_s = case.lower_bound_s().unwrap();
    assert!(outcome.makespan_s() < 1.2 * bound_s, "{} s, bound {bound_s} s", outcome.makespan_s());
}

#[test]
fn every_policy_pays_what_the_workload_says() {
    for seed in 0..6 {
        // `simulate` has each outcome checked by the core checker.
        let case = drawn(seed, "");
        let bound_s = case.lower_bound_s().unwrap();
        for policy in POLICIES {
            let name = policy.name();
            let outcome = outcome(name, &case);
            let num_jobs = case.jobs.len();
            assert_eq!(outcome.ends_s.len(), num_jobs, "{name}");
            assert!(outcome.makespan_s() >= bound_s * (1.0 - 1e-9), "{name}, seed {seed}");
            let mut spans_of = vec![Vec::new(); num_jobs];
            for span in &outcome.spans {
                spans_of[span.job].push(span);
            }
            for (job, spans) in spans_of.iter().enumerate() {
                let last_s = spans.iter().map(|span| span.ended_s).fold(0.0, f64::max);
                assert!((last_s - outcome.ends_s[job]).abs() < 1e-6, "{name}, seed {seed}");
                if let [span] = spans.as_slice() {
                    let took_s = span.ended_s - span.launched_s;
                    let takes_s = takes_s(&case, span);
                    assert!((took_s - takes_s).abs() < 1e-6, "{name}: {took_s}, not {takes_s} s");
                }
            }
        }
    }
}

#[test]
fn a_trial_costs_every_policy_the_same() {
    for seed in 0..4 {
        let case = drawn(seed, "trials = true");
        let mut num_trials = 0;
        for policy in POLICIES {
            let name = policy.name();
            let outcome = outcome(name, &case);
            for span in outcome.spans.iter().filter(|span| span.held == Held::Trial) {
                let (took_s, takes_s) = (span.ended_s - span.launched_s, takes_s(&case, span));
                assert!((took_s - takes_s).abs() < 1e-6, "{name}: {took_s}, not {takes_s} s");
                num_trials += 1;
            }
            let measures = !matches!(name, "random" | "current-practice-habit");
            assert_eq!(outcome.device_s(Some(Held::Trial)) > 0.0, measures, "{name}");
        }
        assert!(num_trials > 50, "{num_trials}");
    }
}

/// The case as a planning problem by its true times, written down anew.
fn problem(case: &Case) -> Problem {
    let tasks = case.jobs.iter().map(|job| {
        let group = &case.truth.groups[&job.group];
        let candidates = group.techniques.iter().flat_map(|(technique, curve)| {
            curve.measured.iter().map(|(gpus, step_s)| Candidate {
                technique: technique.as_str().into(),
                gpus: *gpus,
                gpu_type: None,
                runtime_s: group.load_s + job.steps as f64 * step_s + group.save_s,
                pack: true,
                host_bytes: 0,
                relative_error: 0.0,
            })
        });
        ProblemTask::new(&job.name, candidates.collect())
    });
    Problem::new(Cluster { nodes: case.nodes.clone() }, tasks.collect())
}

/// The solver's plan of whole tasks.
fn planned(case: &Case) -> Plan {
    let problem = problem(case);
    let options = Options {
        backend: Backend::Search,
        max_moves: Some(20_000),
        threads: 1,
        ..Options::default()
    };
    let plan = solve(&problem, &options, &FrozenClock).unwrap();
    check(&problem, &plan).unwrap();
    plan
}

#[test]
fn without_noise_saturn_is_within_the_gap_of_the_solvers_own_plan() {
    for seed in 0..6 {
        let case = drawn(seed, "");
        let plan = planned(&case);
        let makespan_s = outcome("saturn", &case).makespan_s();
        // The first solve takes the run a second.
        let most_s = plan.makespan_s * (1.0 + plan.gap()) + 5.0;
        assert!(makespan_s <= most_s, "seed {seed}: {makespan_s} s, planned {} s", plan.makespan_s);
    }
}

#[test]
fn equal_seeds_give_equal_numbers() {
    let base = drawn(3, "");
    for policy in POLICIES {
        let of = |seed: u64| {
            let case = base.drawn(0.3, seed);
            simulate(policy, &case, &|| false).unwrap()
        };
        assert_eq!(of(1), of(1), "{}", policy.name());
    }
    let random = |seed: u64| outcome("random", &base.drawn(0.0, seed));
    assert_ne!(random(1), random(2));
}

#[test]
fn beliefs_are_wrong_and_the_truth_is_not() {
    let case = drawn(5, "");
    let other = case.drawn(0.2, 9);
    assert_eq!(other.truth, case.truth);
    assert_eq!(case.drawn(0.0, 9).believed, case.truth);
    let mut furthest: f64 = 1.0;
    for (name, group) in &other.believed.groups {
        for (technique, curve) in &group.techniques {
            for (gpus, step_s) in &curve.measured {
                let true_s = case.truth.groups[name].techniques[technique].measured[gpus];
                let factor = step_s / true_s;
                assert!((0.8 * 0.8..=1.2 * 1.2).contains(&factor), "{factor}");
                furthest = furthest.max(factor.max(1.0 / factor));
            }
        }
    }
    assert!(furthest > 1.1, "{furthest}");
}

#[test]
fn a_policy_that_is_told_to_stop_stops() {
    for policy in POLICIES {
        let error = simulate(policy, &drawn(1, ""), &|| true).unwrap_err();
        assert_eq!(error.to_string(), "interrupted", "{}", policy.name());
    }
}

/// Three tasks whose order of starts differs under every queue: on four devices, the first takes
/// three, the second asks for four, the third for one and the fourth for one but longer than the
/// first.
const QUEUE: &str = r#"
costs = { load_s = 0, save_s = 0, checkpoint_every_s = 1e8 }
[[nodes]]
gpus = 4
[[tasks]]
name = "wide"
steps = 100
gpus = [3]
step_s = { ddp = { 3 = 1.0 } }
[[tasks]]
name = "whole"
steps = 10
step_s = { ddp = { 4 = 1.0 } }
[[tasks]]
name = "long"
steps = 200
step_s = { ddp = { 1 = 1.0 } }
[[tasks]]
name = "short"
steps = 50
step_s = { ddp = { 1 = 1.0 } }
"#;

fn ends_s(name: &str, case: &Case) -> Vec<f64> {
    outcome(name, case).ends_s.iter().map(|end_s| end_s.round()).collect()
}

#[test]
fn queues_start_tasks_by_their_rules() {
    let case = case(QUEUE);
    // The second holds up all others until the first has ended.
    assert_eq!(ends_s("fifo", &case), [100.0, 110.0, 310.0, 160.0]);
    // The short one fits into the shadow of the second, the long one would delay it.
    assert_eq!(ends_s("fifo-backfill", &case), [100.0, 110.0, 310.0, 50.0]);
    // Ten seconds first, then the short one beside the wide one, then the long one.
    assert_eq!(ends_s("shortest-first", &case), [110.0, 10.0, 260.0, 60.0]);
}

#[test]
fn habit_and_measurement_choose_other_techniques() {
    let case = case(
        r#"
        [[nodes]]
        gpus = 2
        [[tasks]]
        name = "a"
        steps = 100
        step_s = { ddp = { 1 = 5.0, 2 = 3.0 }, fsdp = { 2 = 2.0 } }
        [[tasks]]
        name = "b"
        steps = 100
        step_s = { pipeline = { 2 = 3.0 }, fsdp = { 2 = 2.0 } }
        [[tasks]]
        name = "c"
        steps = 100
        step_s = { offload = { 1 = 3.0, 2 = 2.0 } }
        "#,
    );
    let techniques = |name: &str| -> Vec<String> {
        let mut spans = outcome(name, &case).spans;
        spans.sort_by_key(|span| span.job);
        spans.iter().map(|span| format!("{} {}", span.technique, span.gpus)).collect()
    };
    assert_eq!(techniques(CURRENT_PRACTICE), ["fsdp 2", "fsdp 2", "offload 2"]);
    assert_eq!(techniques("current-practice-habit"), ["ddp 2", "pipeline 2", "offload 2"]);
    assert_eq!(techniques("min"), ["ddp 1", "fsdp 2", "offload 1"]);
}

#[test]
fn the_published_interval_moves_tasks_where_that_gains_500_seconds() {
    let workload = |step_s: &str| {
        let mut text = "costs = { load_s = 1, save_s = 1, checkpoint_every_s = 1e8 }\n".to_owned();
        text += "[[nodes]]\ngpus = 4\n";
        for (name, steps) in [("a", 9000), ("b", 9000), ("c", 30000)] {
            writeln!(
                text,
                "[[tasks]]\nname = \"{name}\"\nsteps = {steps}\nstep_s = {{ ddp = {step_s} }}"
            )
            .unwrap();
        }
        case(&text)
    };
    // Where no task can be any wider, nothing is gained, whatever is believed.
    let narrow = workload("{ 1 = 1.0 }");
    for seed in 0..5 {
        assert_eq!(outcome("saturn-interval", &narrow.drawn(0.4, seed)).num_moves(), 0);
    }
    // Here training shows that another number of GPUs is better than was believed.
    let wide = workload("{ 1 = 1.0, 2 = 0.55, 4 = 0.3 }");
    let num_moves = |seed| outcome("saturn-interval", &wide.drawn(0.4, seed)).num_moves();
    assert!((0..10).map(num_moves).sum::<usize>() > 0);
}

#[test]
fn a_profile_of_a_run_gives_step_times_and_costs() {
    let trial = |task: &str, technique: &str, gpus: u32, step_s: f64| {
        format!(
            r#"{{"task": "{task}", "technique": "{technique}", "gpus": {gpus}, "outcome": "measured",
                "step_s": {step_s}, "setup_s": {}, "checkpoint_s": 2.0, "peak_memory_bytes": 1,
                "timed_steps": 3}}"#,
            gpus * 10
        )
    };
    let trials = [trial("a", "ddp", 1, 1.0), trial("a", "fsdp", 2, 0.6)].join(",");
    let profile = format!(r#"{{"version": 1, "trials": [{trials}]}}"#);
    let table = Table::from_profile(&profile).unwrap();
    let text = "profile = \"p.json\"\n[[nodes]]\ngpus = 2\n\
                [[tasks]]\nname = \"x\"\nmodel = \"a\"\nsteps = 100\n";
    let case = WorkloadFile::parse(text).unwrap().case(Some(&table)).unwrap();
    let group = &case.truth.groups["model a"];
    assert_eq!((group.load_s, group.save_s), (15.0, 2.0));
    assert_eq!(ends_s("min", &case), [15.0 + 100.0 + 2.0]);
}

#[test]
fn a_table_says_what_is_wrong_with_it() {
    let head = "model,gpus,nodes,technique,step_s\n";
    for (text, told) in [
        ("model,gpus\n".to_owned(), "line 1: the column `nodes` is missing"),
        (format!("{head}m,two,1,ddp,1.0\n"), "line 2: `gpus` is `two`"),
        (format!("{head}m,2,1,ddp,1.0\n\nm,2,1,ddp,-1\n"), "line 4: `step_s` is `-1`"),
        (format!("{head}m,2,2,ddp,1.0\n"), "no measured step time"),
    ] {
        let error = Table::from_csv(&text).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
