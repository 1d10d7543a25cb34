//! The estimates as JSON.

use saturn_estimate::{Interval, Training};
use serde_json::{Map, Value, json};

use super::table::whole;
use super::{Answer, Row, knobs};

pub(super) fn json(answer: &Answer) -> Value {
    let (args, shape) = (answer.args, &answer.shape);
    let left_out: Vec<Value> = answer
        .left_out
        .iter()
        .map(|one| {
            json!({
                "batch": one.batch, "gpus": one.gpus, "technique": one.technique,
                "reason": one.reason,
            })
        })
        .collect();
    let training = answer.training();
    json!({
        "version": 1,
        "steps": args.steps,
        "price_per_gpu_hour": args.price,
        "model": {
            "name": shape.name, "parameters": whole(shape.parameters), "layers": shape.layers,
            "hidden": shape.hidden, "heads": shape.heads, "vocabulary": shape.vocabulary,
        },
        "gpu": args.gpu.name,
        "gpu_memory_bytes": whole(args.gpu.memory_bytes.value),
        "sequence": answer.sequence,
        "precision": args.precision.name(),
        "optimizer": args.optimizer.name(),
        "rows": answer.rows.iter().map(|one| row(one, training)).collect::<Vec<_>>(),
        "left_out": left_out,
    })
}

fn row(row: &Row, training: Option<Training>) -> Value {
    let (strategy, said) = (&row.choice.strategy, &row.choice.estimate);
    let (step_s, memory) = (said.step_s, said.memory);
    let knobs: Map<String, Value> =
        knobs(row).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let terms: Vec<Value> = said
        .terms
        .iter()
        .map(|term| {
            json!({
                "part": term.part.name(), "seconds": term.seconds, "source": term.part.source(),
            })
        })
        .collect();
    json!({
        "batch": row.batch,
        "gpus": strategy.gpus(),
        "gpus_a_node": strategy.placement,
        "technique": strategy.technique(),
        "knobs": knobs,
        "step_s": band(step_s),
        "training_s": training.map(|training| band(training.seconds(&row.choice))),
        "cost": training.and_then(|training| training.cost(&row.choice)).map(band),
        "samples_per_s": f64::from(row.batch) / step_s.value,
        "utilisation": said.utilisation(),
        "bound_s": said.bound_s,
        "is_below_bound": said.is_too_fast(),
        "memory_bytes": {
            "total": whole(memory.total()), "states": whole(memory.states),
            "activations": whole(memory.activations), "logits": whole(memory.logits),
            "reserve": whole(memory.reserve),
        },
        "verdict": row.choice.verdict.name(),
        "bounded_by": said.bounded_by().name(),
        "source": said.source.to_string(),
        "terms": terms,
    })
}

fn band(of: Interval) -> Value {
    json!({"low": of.low, "value": of.value, "high": of.high})
}
