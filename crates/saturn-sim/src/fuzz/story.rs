//! A history in words, for people who look into a failed seed.

use saturn_engine::{Action, Event, RankReport, Record};

use crate::driving::simulation::Simulation;
use crate::world::history::Fact;

/// Lines that a short story has.
const SHORT: usize = 40;
/// Characters of a line.
const MAX_CHARS: usize = 220;

/// The end of a history, the broken rules, and how to see all of it.
pub fn short(simulation: &Simulation, seed: u64) -> String {
    let mut lines = lines(simulation);
    let num_left_out = lines.len().saturating_sub(SHORT);
    lines.drain(..num_left_out);
    let broken: Vec<String> = simulation
        .violations
        .iter()
        .map(|one| format!("broken: {}: {}", one.rule, cut(&one.what)))
        .collect();
    format!(
        "seed {seed}, after {num_left_out} lines:\n{}\n{}\nreplay: cargo run --release -p saturn-sim --bin saturn-fuzz -- --replay {seed}\n",
        lines.join("\n"),
        broken.join("\n")
    )
}

/// A whole history.
pub fn whole(simulation: &Simulation) -> String {
    lines(simulation).join("\n")
}

fn lines(simulation: &Simulation) -> Vec<String> {
    let facts = simulation.world.history.facts.iter();
    facts.map(|(at_s, fact)| format!("{at_s:>10.3}  {}", cut(&line(fact)))).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

fn line(fact: &Fact) -> String {
    match fact {
        Fact::Told(Event::Reported { attempt, rank, report }) => match report {
            RankReport::Failed { kind, .. } => format!("> {attempt}.{rank} fails: {kind:?}"),
            other => format!("> {attempt}.{rank} {other:?}"),
        },
        Fact::Told(Event::Command { command }) => format!("> asked: {command:?}"),
        Fact::Told(event) => format!("> {event:?}"),
        Fact::Refused(why) => format!("  refused: {why}"),
        Fact::Stored(Record::Planned { plan }) => {
            let places = plan.places.iter().map(|one| {
                let devices: Vec<String> = saturn_engine::devices(&one.gang)
                    .map(|device| format!("{}.{}", device.node.0, device.device))
                    .collect();
                format!("t{} {}", one.task.0, devices.join(","))
            });
            let places: Vec<String> = places.collect();
            format!("= planned: {}", places.join("; "))
        }
        Fact::Stored(record) => format!("= {record:?}"),
        Fact::Performed(Action::Solve { request, .. }) => format!("! solve {request}"),
        Fact::Performed(action) => format!("! {action:?}"),
        other => format!("  {other:?}"),
    }
}
