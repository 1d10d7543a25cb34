//! `saturn estimate`: a row for each strategy on each number of GPUs, before anything is measured.

mod data;
mod explain;
mod known;
mod table;

use saturn_core::names::escape_terminal;
use saturn_estimate::{
    Attention, Choice, Constants, Kernels, Shape, ShapeSource, Training, Verdict, Workload, choose,
};
use saturn_store::io_words;

use self::known::Known;
use crate::args::EstimateArgs;
use crate::exit::{Exit, fail, print_data, print_json};

/// Tokens of a sample, if neither the model nor the person gives a number.
const USUAL_SEQUENCE: u32 = 1024;

/// A strategy on some GPUs.
struct Row {
    batch: u32,
    choice: Choice,
}

/// A technique that can't train the model on that number of GPUs.
struct LeftOut {
    batch: u32,
    gpus: u32,
    technique: &'static str,
    reason: String,
}

/// The estimates, with the model and the options that they hold for.
struct Answer<'a> {
    args: &'a EstimateArgs,
    shape: Shape,
    sequence: u32,
    rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

impl Answer<'_> {
    /// The training whose time is asked for, if any.
    fn training(&self) -> Option<Training> {
        let (steps, price) = (self.args.steps?, self.args.price);
        Some(Training { steps, price })
    }
}

pub(crate) fn run(args: &EstimateArgs) -> Exit {
    let answer = match answer(args) {
        Ok(answer) => answer,
        Err(message) => return fail(Exit::BadInput, escape_terminal(&message)),
    };
    for row in answer.rows.iter().filter(|row| row.choice.estimate.is_too_fast()) {
        eprintln!("warning: {}", escape_terminal(&too_fast(args, row)));
    }
    if args.json {
        print_json(&data::json(&answer));
    } else {
        print_data(&table::text(&answer));
        if args.explain {
            print_data(&explain::text(&answer));
        }
    }
    let may_fit = |row: &Row| row.choice.verdict != Verdict::DoesNot;
    if answer.rows.iter().any(may_fit) { Exit::Ok } else { Exit::Infeasible }
}

fn answer(args: &EstimateArgs) -> Result<Answer<'_>, String> {
    let shape = shape(&args.config)?;
    let sequence = sequence(args, &shape)?;
    let known = match &args.profile {
        Some(_) if args.batch.len() > 1 => {
            return Err("a profile is of one batch size: give --batch one number".to_owned());
        }
        Some(path) => Known::read(path)?,
        None => Known::default(),
    };
    let mut answer = Answer { args, shape, sequence, rows: Vec::new(), left_out: Vec::new() };
    for batch in &args.batch {
        add_rows(&mut answer, *batch)?;
    }
    known.apply(&mut answer.rows);
    // For each batch and number of GPUs, the fastest strategy that fits comes first.
    answer.rows.sort_by(|one, other| {
        let place = |row: &Row| {
            let at = args.batch.iter().position(|batch| *batch == row.batch);
            (at, row.choice.strategy.gpus(), row.choice.verdict == Verdict::DoesNot)
        };
        let seconds = |row: &Row| row.choice.estimate.step_s.value;
        place(one).cmp(&place(other)).then(seconds(one).total_cmp(&seconds(other)))
    });
    Ok(answer)
}

/// The model that CONFIG describes.
fn shape(config: &str) -> Result<Shape, String> {
    let is_file = std::path::Path::new(config).exists();
    if config.contains('=') && !is_file {
        return Shape::from_size(config).map_err(|error| format!("`{config}`: {error}"));
    }
    let text = std::fs::read_to_string(config).map_err(|error| {
        format!(
            "failed to read `{config}`: {}; expected the path of a Hugging Face config.json, or a \
             size such as params=7e9",
            io_words(&error)
        )
    })?;
    Shape::from_config(&text).map_err(|error| format!("`{config}`: {error}"))
}

/// Tokens of a sample.
fn sequence(args: &EstimateArgs, shape: &Shape) -> Result<u32, String> {
    match (args.seq, shape.fixed_sequence, shape.positions) {
        (Some(asked), Some(fixed), _) if asked != fixed => Err(format!(
            "--seq {asked}: each sample of `{}` has {fixed} patches; leave --seq out",
            shape.name
        )),
        (_, Some(fixed), _) => Ok(fixed),
        (Some(asked), _, Some(most)) if asked > most => {
            Err(format!("--seq {asked}: `{}` has only {most} positions", shape.name))
        }
        (Some(asked), _, _) => Ok(asked),
        (None, _, most) => Ok(most.unwrap_or(USUAL_SEQUENCE).min(USUAL_SEQUENCE)),
    }
}

/// Adds the rows of one batch size, on 1, 2, 4, … GPUs of a node and on full nodes.
fn add_rows(answer: &mut Answer, batch: u32) -> Result<(), String> {
    let args = answer.args;
    let workload = Workload {
        batch,
        sequence: answer.sequence,
        precision: args.precision,
        optimizer: args.optimizer,
        attention: Attention::Flash,
        kernels: Kernels::Eager,
    };
    let full = args.gpu.node_size();
    let parts = (0..).map(|power| 1u32 << power).take_while(|gpus| *gpus < full);
    let parts: Vec<u32> = if args.nodes.contains(&1) { parts.collect() } else { Vec::new() };
    let nodes = args.nodes.clone().map(|nodes| vec![full; nodes as usize]);
    for placement in parts.into_iter().map(|gpus| vec![gpus]).chain(nodes) {
        let (chosen, left_out) =
            choose(&answer.shape, &workload, &args.gpu, &placement, &Constants::default())
                .map_err(|error| error.to_string())?;
        answer.rows.extend(chosen.into_iter().map(|choice| Row { batch, choice }));
        let gpus = placement.iter().sum();
        answer.left_out.extend(left_out.into_iter().map(|one| LeftOut {
            batch,
            gpus,
            technique: one.technique,
            reason: one.reason,
        }));
    }
    Ok(())
}

/// The error of a stated time that can't be true.
fn too_fast(args: &EstimateArgs, row: &Row) -> String {
    let (strategy, said) = (&row.choice.strategy, &row.choice.estimate);
    let name = args.profile.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    format!(
        "`{name}`: {} × {} takes {} by it, but the peak of these GPUs would need {}: it is of another \
         model, batch, length, precision or GPU",
        strategy.technique(),
        strategy.gpus(),
        saturn_view::units::step_time(said.step_s.value),
        saturn_view::units::step_time(said.bound_s),
    )
}

/// Where a shape is from, in words.
fn shape_words(shape: &Shape) -> &'static str {
    match shape.source {
        ShapeSource::Config => "",
        ShapeSource::Stated => " (as stated)",
        ShapeSource::Guessed => " (layers or width guessed from its size)",
    }
}

/// Knobs of a strategy, as tasks and trials name them.
fn knobs(row: &Row) -> Vec<(&'static str, serde_json::Value)> {
    use saturn_estimate::Sharding;
    let strategy = &row.choice.strategy;
    let mut knobs = Vec::new();
    let technique = strategy.technique();
    if strategy.checkpointing && technique != "offload" {
        knobs.push(("activation_checkpointing", true.into()));
    }
    if strategy.sharding == Sharding::KeptGathered {
        knobs.push(("reshard_after_forward", false.into()));
    }
    if strategy.pipeline > 1 {
        if technique != "pipeline" {
            knobs.push(("stages", strategy.pipeline.into()));
        }
        let slice = row.batch.div_ceil(strategy.data);
        knobs.push(("microbatches", slice.div_ceil(strategy.micro).into()));
    }
    if strategy.tensor > 1 && technique != "tensor" {
        knobs.push(("tensor", strategy.tensor.into()));
    }
    knobs
}
