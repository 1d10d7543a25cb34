//! The sums behind the rows, with the sources of formulas and figures.

use std::fmt::Write as _;

use saturn_estimate::{Device, Source, Verdict};
use saturn_view::units::{bytes, number, step_time};

use super::table::whole;
use super::{Answer, Row};

pub(super) fn text(answer: &Answer) -> String {
    let mut text = String::new();
    let may_fit = answer.rows.iter().filter(|row| row.choice.verdict != Verdict::DoesNot);
    for row in may_fit {
        sum(&mut text, row);
    }
    let device = &answer.args.gpu;
    let _ = writeln!(text, "\nfigures of {}", device.name);
    for (name, figure) in device.figures() {
        let source = Device::source(&figure.source).unwrap_or_default();
        let _ = writeln!(text, "  {name:16} {:>10}  {source}", number(figure.value));
    }
    text.push_str(
        "shares of these peaks and costs of software were fitted on measured steps: docs/estimate.md\n",
    );
    text
}

fn sum(text: &mut String, row: &Row) {
    let (strategy, said) = (&row.choice.strategy, &row.choice.estimate);
    let _ = write!(text, "\n{} × {}, batch {}: ", strategy.technique(), strategy.gpus(), row.batch);
    if said.source != Source::Model {
        let _ = write!(text, "{} by {}, ", step_time(said.step_s.value), said.source);
    }
    let (by_model, bound) = (step_time(said.model_s()), step_time(said.bound_s));
    let _ = writeln!(text, "{by_model} by the model; at the GPUs' peak {bound}");
    for term in &said.terms {
        let seconds = number(term.seconds);
        let _ = writeln!(text, "  {:28} {seconds:>10} s  {}", term.part.name(), term.part.source());
    }
    let memory = said.memory;
    for (name, part, source) in [
        ("states", memory.states, "ZeRO, arXiv 1910.02054"),
        ("activations", memory.activations, "Korthikanti et al., arXiv 2205.05198"),
        ("logits", memory.logits, "logits, float copy, softmax and gradient"),
        ("reserve", memory.reserve, "context and buffers 1.2 GB; the allocator holds 5% more"),
    ] {
        let _ = writeln!(text, "  {name:28} {:>12}  {source}", bytes(whole(part)));
    }
}
