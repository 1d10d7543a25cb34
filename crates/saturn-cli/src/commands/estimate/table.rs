//! The table for a person.

use std::fmt::Write as _;

use saturn_core::names::escape_terminal;
use saturn_estimate::{Training, Verdict};
use saturn_view::text::{Align, Table};
use saturn_view::units::{bytes, duration, number, parameters, percent};

use super::{Answer, Row, knobs, shape_words};
use crate::screen::Screen;

pub(super) fn text(answer: &Answer) -> String {
    let (args, shape) = (answer.args, &answer.shape);
    let device = &args.gpu;
    let mut text = format!(
        "{}: {} parameters, {} layers of width {}{}; {} tokens a sample, {}, {}\n\
         {}, {} of memory; {} GPUs a node ({})\n",
        escape_terminal(&shape.name),
        parameters(whole(shape.parameters)),
        shape.layers,
        shape.hidden,
        shape_words(shape),
        answer.sequence,
        args.precision.name(),
        args.optimizer.name(),
        device.name,
        bytes(whole(device.memory_bytes.value)),
        device.node_size(),
        device.node,
    );
    let mut batches = args.batch.clone();
    batches.dedup();
    for batch in batches {
        let rows: Vec<&Row> = answer.rows.iter().filter(|row| row.batch == batch).collect();
        let _ = writeln!(text, "\nbatch {batch}");
        if rows.is_empty() {
            let _ = writeln!(text, "no technique can train it so");
        } else {
            let training = answer.training();
            text.push_str(&table(&rows, training));
            best(&mut text, &rows, training);
        }
        left_out(&mut text, answer, batch);
    }
    let fitting = answer.rows.iter().any(|row| row.choice.verdict != Verdict::DoesNot);
    if !fitting {
        text.push_str(
            "\nnothing fits: take more nodes, a smaller --batch or --seq, or larger GPUs\n",
        );
    }
    text
}

/// The two rows that a person who rents GPUs wants first: the fastest, and the cheapest.
fn best(text: &mut String, rows: &[&Row], training: Option<Training>) {
    let Some(training) = training else { return };
    let choices = || rows.iter().map(|row| &row.choice);
    let best =
        [("fastest", training.fastest(choices())), ("cheapest", training.cheapest(choices()))];
    for (word, choice) in best {
        let Some(choice) = choice else { continue };
        let strategy = &choice.strategy;
        let takes = training.seconds(choice);
        let _ = write!(
            text,
            "{word} that fits: {} × {}, {} ({} to {})",
            strategy.technique(),
            strategy.gpus(),
            duration(takes.value),
            duration(takes.low),
            duration(takes.high),
        );
        if let Some(cost) = training.cost(choice) {
            let _ = write!(
                text,
                " for {} ({} to {})",
                number(cost.value),
                number(cost.low),
                number(cost.high)
            );
        }
        text.push('\n');
    }
}

fn table(rows: &[&Row], training: Option<Training>) -> String {
    let mut columns = vec![
        ("GPUs", Align::Right),
        ("technique", Align::Left),
        ("knobs", Align::Left),
        ("s/step", Align::Right),
        ("80% band", Align::Right),
        ("samples/s", Align::Right),
        ("MFU", Align::Right),
        ("memory", Align::Right),
        ("states", Align::Right),
        ("activations", Align::Right),
        ("logits", Align::Right),
        ("reserve", Align::Right),
        ("verdict", Align::Left),
        ("most time goes to", Align::Left),
        ("from", Align::Left),
    ];
    let asked =
        [("time", training.is_some()), ("cost", training.is_some_and(|one| one.price.is_some()))];
    let asked = asked.into_iter().filter(|(_, is_asked)| *is_asked);
    columns.extend(asked.map(|(name, _)| (name, Align::Right)));
    let mut table = Table::new(columns);
    for row in rows {
        let mut cells = cells(row);
        cells.extend(training.map(|training| duration(training.seconds(&row.choice).value)));
        cells.extend(training.and_then(|one| one.cost(&row.choice)).map(|cost| number(cost.value)));
        table.push(cells);
    }
    let screen = Screen::stdout();
    let verdict = |index: usize| rows.get(index).map(|row| row.choice.verdict);
    let lines = table.lines(screen.size().0, screen.paint, |row, column, cell| {
        match (column, verdict(row)) {
            (12, Some(Verdict::Fits)) => screen.paint.good(cell),
            (12, Some(Verdict::Close)) => screen.paint.warn(cell),
            (12, Some(Verdict::DoesNot)) => screen.paint.bad(cell),
            _ => cell.to_owned(),
        }
    });
    lines.join("\n") + "\n"
}

fn cells(row: &Row) -> Vec<String> {
    let (strategy, said) = (&row.choice.strategy, &row.choice.estimate);
    let (step_s, memory) = (said.step_s, said.memory);
    let knobs: Vec<String> =
        knobs(row).iter().map(|(name, value)| format!("{name}={value}")).collect();
    let size = |part: f64| bytes(whole(part));
    let from = if said.is_too_fast() {
        format!("{}, below the peak's bound", said.source)
    } else {
        said.source.to_string()
    };
    vec![
        strategy.gpus().to_string(),
        strategy.technique().to_owned(),
        knobs.join(" "),
        number(step_s.value),
        format!("{}–{}", number(step_s.low), number(step_s.high)),
        number(f64::from(row.batch) / step_s.value),
        percent(said.utilisation()),
        size(memory.total()),
        size(memory.states),
        size(memory.activations),
        size(memory.logits),
        size(memory.reserve),
        row.choice.verdict.name().to_owned(),
        said.bounded_by().name().to_owned(),
        from,
    ]
}

/// A line for each reason why techniques are left out, with its numbers of GPUs.
fn left_out(text: &mut String, answer: &Answer, batch: u32) {
    let of_batch = || answer.left_out.iter().filter(|one| one.batch == batch);
    let mut reasons: Vec<&str> = Vec::new();
    for one in of_batch() {
        if !reasons.contains(&one.reason.as_str()) {
            reasons.push(&one.reason);
        }
    }
    for reason in reasons {
        let of_reason = of_batch().filter(|one| one.reason == reason);
        let names: Vec<String> =
            of_reason.map(|one| format!("{} × {}", one.technique, one.gpus)).collect();
        let _ = writeln!(text, "left out: {}: {reason}", names.join(", "));
    }
}

/// A count that formulas gave as a fraction.
pub(super) fn whole(count: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive, finite and far below 2^63"
    )]
    let count = count.round() as u64;
    count
}
