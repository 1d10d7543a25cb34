//! Prints what introspection gains and loses under wrong runtimes, as markdown:
//! `saturn-introspection [SEEDS]`.

use saturn_sim::compare;

/// Seconds between two plans: the default of the policy.
const INTERVAL_S: f64 = 1000.0;

fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500);
    println!(
        "| bias and noise | mean | median | 95th percentile | worst | best | won by 1% and more | lost by 1% and more | moves a run |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for error in [0.0, 0.05, 0.1, 0.2, 0.3] {
        let pairs: Vec<_> =
            (0..seeds).filter_map(|seed| compare(seed, error, INTERVAL_S)).collect();
        let mut losses: Vec<f64> = pairs.iter().map(saturn_sim::Pair::loss).collect();
        losses.sort_by(f64::total_cmp);
        let num = losses.len().max(1);
        let at = |share: usize| losses.get((num - 1) * share / 100).copied().unwrap_or(0.0);
        let part = |of: usize| 100.0 * of as f64 / num as f64;
        println!(
            "| {:.0}% | {:+.2}% | {:+.2}% | {:+.2}% | {:+.2}% | {:+.2}% | {:.0}% | {:.0}% | {:.1} |",
            100.0 * error,
            100.0 * losses.iter().sum::<f64>() / num as f64,
            100.0 * at(50),
            100.0 * at(95),
            100.0 * at(100),
            100.0 * at(0),
            part(losses.iter().filter(|loss| **loss <= -0.01).count()),
            part(losses.iter().filter(|loss| **loss >= 0.01).count()),
            pairs.iter().map(|pair| pair.num_moves).sum::<usize>() as f64 / num as f64,
        );
    }
}
