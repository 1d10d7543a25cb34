//! Tasks that arrive while others train: no policy knows them before, and the lower bound holds.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_sim::policy::{CURRENT_PRACTICE, Case, Held, POLICIES};

use crate::cases::{case, outcome, seeds};

/// Tasks that arrive by themselves, in a Poisson process and in bursts, on two nodes.
fn drawn(seed: u64, more: &str) -> Case {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = format!(
        "{more}\ncosts = {{ load_s = {}, save_s = {}, checkpoint_every_s = 1e8 }}\n\
         [[nodes]]\ngpus = 4\n[[nodes]]\ngpus = 2\n",
        rng.random_range(1..60),
        rng.random_range(1..20),
    );
    let arrivals = [
        String::new(),
        format!("arrive_s = {}\n", rng.random_range(0..3000)),
        format!("arrivals = {{ kind = \"poisson\", every_s = {} }}\n", rng.random_range(100..2000)),
        format!(
            "arrive_s = 100\narrivals = {{ kind = \"bursts\", size = 2, every_s = {} }}\n",
            rng.random_range(100..4000)
        ),
    ];
    for (kind, arrivals) in arrivals.iter().enumerate() {
        let base = rng.random_range(0.1..1.0);
        let power = rng.random_range(0.4..1.0);
        let curve = [1u32, 2, 4]
            .map(|gpus| format!("{gpus} = {:.6}", base / f64::from(gpus).powf(power)))
            .join(", ");
        write!(
            text,
            "[[tasks]]\nname = \"k{kind}\"\ncount = {}\nsteps = {}\nasks_gpus = {}\n\
             step_s = {{ ddp = {{ {curve} }} }}\n{arrivals}",
            rng.random_range(1..5),
            rng.random_range(400..6000),
            [1, 2, 4][rng.random_range(0..3)],
        )
        .unwrap();
    }
    case(&text).drawn(0.0, seed)
}

#[test]
fn no_policy_trains_a_task_before_it_arrives_or_ends_before_the_lower_bound() {
    let mut closest: f64 = f64::INFINITY;
    for seed in seeds(4) {
        let case = drawn(seed, "");
        assert!(case.has_arrivals());
        let bound_s = case.lower_bound_s().unwrap();
        for policy in POLICIES {
            // `simulate` checks that nothing is launched before it arrives.
            let outcome = outcome(policy.name(), &case);
            let ratio = outcome.makespan_s() / bound_s;
            assert!(ratio >= 1.0 - 1e-9, "{}, seed {seed}: {ratio}", policy.name());
            closest = closest.min(ratio);
        }
    }
    // A bound that forgets arrivals, or the work of tasks that are there before, is far away.
    assert!(closest < 1.02, "{closest}");
}

#[test]
fn strategies_of_tasks_that_arrive_later_are_measured_when_they_arrive() {
    for seed in seeds(1) {
        let case = drawn(seed, "trials = true");
        for policy in POLICIES {
            let outcome = outcome(policy.name(), &case);
            let is_late = |job: usize| case.jobs[job].arrives_s > 0.0;
            let trials = outcome.spans.iter().filter(|span| span.held == Held::Trial);
            let num_late = trials.filter(|span| is_late(span.job)).count();
            let measures = !matches!(policy.name(), "random" | "current-practice-habit");
            assert_eq!(num_late > 0, measures, "{}", policy.name());
        }
    }
}

#[test]
fn arrivals_are_drawn_from_the_seed_and_have_their_mean() {
    let text = |arrivals: &str| {
        format!(
            "[[nodes]]\ngpus = 1\n[[tasks]]\nname = \"a\"\ncount = 4000\nsteps = 1\n\
             step_s = {{ ddp = {{ 1 = 1.0 }} }}\narrive_s = 50\narrivals = {{ {arrivals} }}\n"
        )
    };
    let times = |arrivals: &str, seed: u64| -> Vec<f64> {
        case(&text(arrivals)).drawn(0.0, seed).jobs.iter().map(|job| job.arrives_s).collect()
    };
    let poisson = "kind = \"poisson\", every_s = 600";
    let one = times(poisson, 1);
    assert_eq!(one, times(poisson, 1));
    assert_ne!(one, times(poisson, 2));
    assert!((one[0] - 50.0).abs() < 1e-9);
    let mean_s = (one[3999] - one[0]) / 3999.0;
    assert!((550.0..650.0).contains(&mean_s), "{mean_s}");
    let gaps: Vec<f64> = one.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Of exponential gaps, a part of 1/e is longer than the mean.
    let long = gaps.iter().filter(|gap| **gap > 600.0).count() as f64 / gaps.len() as f64;
    assert!((0.34..0.40).contains(&long), "{long}");
    let bursts = times("kind = \"bursts\", every_s = 600, size = 8", 1);
    for burst in bursts.chunks(8) {
        assert!(burst.iter().all(|at_s| (*at_s - burst[0]).abs() < 1e-9));
    }
    assert!(bursts[8] > bursts[0]);
}

#[test]
fn arrivals_follow_the_hours_of_the_day() {
    // Two tasks an hour from midnight to six, six from noon to six, and none else: 48 a day.
    let per_hour = |hour: u32| match hour {
        0..6 => 2.0,
        12..18 => 6.0,
        _ => 0.0,
    };
    let list: Vec<String> = (0..24).map(|hour| format!("{:?}", per_hour(hour))).collect();
    let times = |more: &str, seed: u64| -> Vec<f64> {
        let text = format!(
            "[[nodes]]\ngpus = 1\n[[tasks]]\nname = \"a\"\ncount = 9600\nsteps = 1\n\
             step_s = {{ ddp = {{ 1 = 1.0 }} }}\n\
             arrivals = {{ kind = \"hours\", per_hour = [{}]{more} }}\n",
            list.join(", ")
        );
        case(&text).drawn(0.0, seed).jobs.iter().map(|job| job.arrives_s).collect()
    };
    let one = times("", 1);
    assert_eq!(one, times("", 1));
    assert_ne!(one, times("", 2));
    assert!(one.is_sorted());
    let number_in = |hour: u32| {
        let from_s = f64::from(hour) * 3600.0;
        let is_in = |at_s: &&f64| (from_s..from_s + 3600.0).contains(&(*at_s % 86_400.0));
        one.iter().filter(is_in).count() as f64
    };
    let days = one[9599] / 86_400.0;
    assert!((190.0..210.0).contains(&days), "{days}");
    for hour in 0..24 {
        let (number, expected) = (number_in(hour), per_hour(hour) * days);
        assert!((number - expected).abs() <= 5.0 * expected.sqrt(), "{hour}: {number}, {expected}");
    }
    // Four at a time, and as many tasks in all.
    let bursts = times(", size = 4", 1);
    for burst in bursts.chunks(4) {
        assert!(burst.iter().all(|at_s| (*at_s - burst[0]).abs() < 1e-9));
    }
    let days = bursts[9599] / 86_400.0;
    assert!((180.0..220.0).contains(&days), "{days}");
}

/// One task trains alone, and another arrives. Its time counts from there.
const LATER: &str = r#"
costs = { load_s = 10, save_s = 0, checkpoint_every_s = 1e8 }
[[nodes]]
gpus = 2
[[tasks]]
name = "first"
steps = 100
step_s = { ddp = { 1 = 1.0 } }
[[tasks]]
name = "later"
steps = 100
arrive_s = 50
step_s = { ddp = { 1 = 1.0 } }
[[tasks]]
name = "last"
steps = 100
arrive_s = 500
step_s = { ddp = { 1 = 1.0 } }
"#;

#[test]
fn completion_counts_from_arrival() {
    let case = case(LATER);
    assert!((case.lower_bound_s().unwrap() - 610.0).abs() < 1e-3);
    let is_practice = |name: &str| name.starts_with("current-practice");
    // Current practice trains one task at a time.
    assert!((170.0..172.0).contains(&(outcome(CURRENT_PRACTICE, &case).ends_s[1] - 50.0)));
    for policy in POLICIES.into_iter().filter(|policy| !is_practice(policy.name())) {
        let outcome = outcome(policy.name(), &case);
        // Each has a device of its own from its arrival on; a solve may take a second.
        let most_s = 112.0;
        assert!((110.0..most_s).contains(&outcome.mean_completion_s()), "{}", policy.name());
        assert!((110.0..most_s).contains(&outcome.p90_completion_s()), "{}", policy.name());
        assert!((610.0..500.0 + most_s).contains(&outcome.makespan_s()), "{}", policy.name());
    }
}

#[test]
fn a_task_that_trains_is_not_stopped_by_an_arrival() {
    let case = case(LATER);
    for name in ["saturn-static", "current-practice-fastest", "max", "min", "random", "optimus"] {
        assert_eq!(outcome(name, &case).num_moves(), 0, "{name}");
    }
}
