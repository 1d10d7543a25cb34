//! Rectangles of devices and time, cut into gangs: a plan in which no device idles.

use saturn_core::Placement;

use crate::support::Random;

/// Devices of each node.
pub(super) const GPUS: u32 = 8;

/// A gang of a planted plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gang {
    /// Its node. A gang wider than a node holds this node and those behind it, whole.
    pub(super) node: usize,
    /// Its first device on that node.
    pub(super) device: u32,
    pub(super) gpus: u32,
    pub(super) start_s: f64,
    pub(super) runtime_s: f64,
    /// The index of the gang that ends where this gang starts, if the two were cut from one.
    pub(super) after: Option<usize>,
}

impl Gang {
    /// All devices of a node, for some time.
    pub(super) fn whole_node(node: usize, start_s: f64, runtime_s: f64) -> Self {
        Self { node, device: 0, gpus: GPUS, start_s, runtime_s, after: None }
    }

    pub(super) fn end_s(&self) -> f64 {
        self.start_s + self.runtime_s
    }

    /// Its devices, node by node.
    pub(super) fn placements(&self) -> Vec<Placement> {
        if self.gpus <= GPUS {
            let devices = (self.device..self.device + self.gpus).collect();
            return vec![Placement { node: self.node, devices }];
        }
        let nodes = self.node..self.node + (self.gpus / GPUS) as usize;
        nodes.map(|node| Placement { node, devices: (0..GPUS).collect() }).collect()
    }
}

/// Cuts a gang into so many, across its devices or across its time.
pub(super) fn tile(random: &mut Random, pieces: usize, whole: Gang) -> Vec<Gang> {
    if pieces < 2 {
        return vec![whole];
    }
    let (first, part) = (pieces / 2, random.between(0.35, 0.65));
    let (mut left, mut right) = (whole, whole);
    if whole.gpus > 1 && random.unit() < 0.6 {
        left.gpus = whole.gpus / 2;
        right.gpus = whole.gpus - left.gpus;
        right.device += left.gpus;
    } else {
        (left, right) = halves(whole, part);
    }
    let mut all = tile(random, first, left);
    all.extend(tile(random, pieces - first, right));
    all
}

/// A gang cut across its time.
fn halves(whole: Gang, part: f64) -> (Gang, Gang) {
    let runtime_s = whole.runtime_s * part;
    let start_s = whole.start_s + runtime_s;
    let rest_s = whole.runtime_s - runtime_s;
    (Gang { runtime_s, ..whole }, Gang { start_s, runtime_s: rest_s, ..whole })
}

/// Cuts some gangs across their time; the second half of each waits for the first.
pub(super) fn in_two(random: &mut Random, gangs: Vec<Gang>, share: f64) -> Vec<Gang> {
    let mut all = Vec::new();
    for gang in gangs {
        if random.unit() < share {
            let (first, second) = halves(gang, random.between(0.3, 0.7));
            all.push(first);
            all.push(Gang { after: Some(all.len() - 1), ..second });
        } else {
            all.push(gang);
        }
    }
    all
}

/// Nodes, each held whole until a time, cut into about so many gangs in all.
pub(super) fn nodes(random: &mut Random, nodes: usize, pieces: usize, end_s: f64) -> Vec<Gang> {
    let whole = (0..nodes).map(|node| Gang::whole_node(node, 0.0, end_s));
    whole.flat_map(|whole| tile(random, pieces / nodes, whole)).collect()
}

/// Like `nodes`, but each two nodes side by side hold a gang of both first or last.
pub(super) fn pairs(random: &mut Random, nodes: usize, pieces: usize, end_s: f64) -> Vec<Gang> {
    let mut all = Vec::new();
    for node in (0..nodes).step_by(2) {
        let wide_s = end_s * random.between(0.1, 0.4);
        let is_first = random.unit() < 0.5;
        let (wide_start_s, start_s) = if is_first { (0.0, wide_s) } else { (end_s - wide_s, 0.0) };
        all.push(Gang { gpus: 2 * GPUS, ..Gang::whole_node(node, wide_start_s, wide_s) });
        for node in [node, node + 1] {
            let rest = Gang::whole_node(node, start_s, end_s - wide_s);
            all.extend(tile(random, pieces / nodes, rest));
        }
    }
    all
}
