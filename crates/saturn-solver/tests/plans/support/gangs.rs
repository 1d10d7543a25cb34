//! Every gang that a strategy may have, from the definition of the problem.

use saturn_core::{Candidate, Problem};

/// Node and number of devices.
pub(crate) type Held = Vec<(usize, u32)>;

/// Every way to hold devices for a strategy: node and count.
pub(crate) fn gangs(problem: &Problem, strategy: &Candidate) -> Vec<Held> {
    let nodes = &problem.cluster.nodes;
    let mut kinds: Vec<&str> = nodes.iter().map(|node| node.gpu_type.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut found = Vec::new();
    for kind in kinds {
        if strategy.gpu_type.as_deref().is_some_and(|wanted| wanted != kind) {
            continue;
        }
        let members: Vec<usize> =
            (0..nodes.len()).filter(|node| nodes[*node].gpu_type == kind).collect();
        let widest = members.iter().map(|node| nodes[*node].gpus).max().unwrap_or(0);
        if strategy.gpus <= widest {
            let fitting = members.iter().filter(|node| nodes[**node].gpus >= strategy.gpus);
            found.extend(fitting.map(|node| vec![(*node, strategy.gpus)]));
            continue;
        }
        for set in 1u32..1 << members.len() {
            let chosen: Held = members
                .iter()
                .enumerate()
                .filter(|(index, _)| set >> index & 1 == 1)
                .map(|(_, node)| (*node, nodes[*node].gpus))
                .collect();
            let total: u32 = chosen.iter().map(|(_, gpus)| gpus).sum();
            if total < strategy.gpus {
                continue;
            }
            if strategy.pack {
                for part in 0..chosen.len() {
                    let spare = total - strategy.gpus;
                    if spare < chosen[part].1 {
                        let mut gang = chosen.clone();
                        gang[part].1 -= spare;
                        found.push(gang);
                    }
                }
            } else if chosen.iter().all(|(_, gpus)| total - gpus < strategy.gpus) {
                found.push(chosen);
            }
        }
    }
    found
}
