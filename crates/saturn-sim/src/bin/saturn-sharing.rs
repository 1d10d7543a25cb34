//! Prints how people fare who share a pool, as JSON lines, one a workload and policy:
//! `saturn-sharing FROM TO POLICY,POLICY [burst N|split N]`.

use saturn_sim::policy::policy;
use saturn_sim::{Kind, fare, shared};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(from), Some(to), Some(policies)) = (number(0), number(1), arguments.get(2)) else {
        eprintln!("usage: saturn-sharing FROM TO POLICY,POLICY [burst N|split N]");
        std::process::exit(2);
    };
    let size = number(4).unwrap_or(1);
    let kind = match arguments.get(3).map(String::as_str) {
        Some("burst") => Kind::Burst(usize::try_from(size).unwrap_or(1)),
        Some("split") => Kind::Split(size),
        _ => Kind::Plain,
    };
    for seed in from..to {
        let case = shared(seed, kind);
        let alone_s = match case.alone_s() {
            Ok(alone_s) => alone_s,
            Err(error) => {
                eprintln!("seed {seed}: {error}");
                std::process::exit(1);
            }
        };
        for name in policies.split(',') {
            let Some(policy) = policy(name) else {
                eprintln!("there is no policy `{name}`");
                std::process::exit(2);
            };
            match fare(policy, &case, &alone_s) {
                Ok(fared) => println!(
                    "{{\"seed\": {seed}, \"policy\": \"{name}\", \"tasks\": {}, \"gpus\": {}, \"mean_s\": {:.1}, \
                     \"moves\": {:.3}, \"in_use\": {:.4}, \"ratios\": {:?}, \"means_s\": {:?}}}",
                    case.jobs.len(),
                    case.num_gpus(),
                    fared.mean_s,
                    fared.moves,
                    fared.in_use,
                    fared.ratios,
                    fared.means_s,
                ),
                Err(error) => {
                    eprintln!("seed {seed}, {name}: {error}");
                    std::process::exit(1);
                }
            }
        }
    }
}
