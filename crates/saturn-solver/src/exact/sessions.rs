//! The cost of nodes: the columns and rows that count the time during which a node holds anything.
//!
//! A node is paid for during its *sessions*: the spans that its gangs cover without a gap. Every
//! gang lies within one session, so each session can be named after the first of its tasks by
//! index. For tasks i ≤ j and node n, h_ijn = 1 says that j belongs to the session named after i.
//! That session spans from a_in to b_in: a_in ≤ s_j and b_in ≥ s_j + p_j if h_ijn = 1. Any chosen
//! sessions cover all gangs, so they never cost too little. The true sessions cost exactly the
//! price that is paid.

use highs::Col;

use crate::bounds::program::Program;
use crate::exact::places::Row;
use crate::general::instance::Instance;

/// Adds the sessions of all nodes. Returns the cost as terms, in units of `unit`.
pub(crate) fn add(
    program: &mut Program,
    instance: &Instance,
    rows: &[Row],
    horizon: f64,
    unit: f64,
) -> Vec<(Col, f64)> {
    let mut paid = Vec::new();
    for node in 0..instance.nodes.len() {
        let price = instance.nodes[node].price * horizon / unit;
        if price > 0.0 {
            add_node(program, instance, rows, node, price, &mut paid);
        }
    }
    paid
}

fn add_node(
    program: &mut Program,
    instance: &Instance,
    rows: &[Row],
    node: usize,
    price: f64,
    paid: &mut Vec<(Col, f64)>,
) {
    let able: Vec<usize> =
        (0..rows.len()).filter(|task| !rows[*task].demand[node].is_empty()).collect();
    // Columns that say to which session each task belongs.
    let mut member: Vec<Vec<(Col, f64)>> = vec![Vec::new(); rows.len()];
    let mut lengths = Vec::new();
    for (position, &first) in able.iter().enumerate() {
        let from = program.continuous(-price, 0.0, 1.0);
        let to = program.continuous(price, 0.0, 1.0);
        program.at_most(0.0, &[(from, 1.0), (to, -1.0)]);
        paid.extend([(to, price), (from, -price)]);
        lengths.extend([(to, 1.0), (from, -1.0)]);
        let mut names = None;
        for &task in &able[position..] {
            let row = &rows[task];
            let belongs = program.binary(0.0);
            let name = *names.get_or_insert(belongs);
            if task != first {
                program.at_most(0.0, &[(belongs, 1.0), (name, -1.0)]);
            }
            member[task].push((belongs, 1.0));
            // The session begins no later than the task starts, and ends no earlier than it ends.
            program.at_most(1.0, &[(from, 1.0), (row.start, -1.0), (belongs, 1.0)]);
            let mut ends = vec![(row.start, 1.0), (to, -1.0), (belongs, row.latest)];
            ends.extend(row.runtime(1.0));
            program.at_most(row.latest, &ends);
            // And is no shorter than the task.
            program.at_most(0.0, &[(to, -1.0), (from, 1.0), (belongs, row.shortest)]);
        }
    }
    for &task in &able {
        let mut balance = std::mem::take(&mut member[task]);
        let holds = rows[task].holds(instance, task, node);
        balance.extend(holds.into_iter().map(|(column, one)| (column, -one)));
        program.equal(0.0, &balance);
    }
    // A node does no more work than its devices can in its sessions.
    let gpus = f64::from(instance.model.nodes[node].gpus);
    let mut work: Vec<(Col, f64)> = rows.iter().flat_map(|row| row.area_on(node)).collect();
    work.extend(lengths.into_iter().map(|(column, sign)| (column, -sign * gpus)));
    program.at_most(0.0, &work);
}
