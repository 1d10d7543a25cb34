//! Measured tables as rows of (model, workload, device, strategy, seconds).
//!
//! For the A800 table, shapes and knobs come from the artifact's model files. These use DeepSpeed
//! without fp16, so TF32. Their 3-D plans take the whole local batch as one micro-batch, except
//! Llama's with batch 16. For the MPT table, shapes come from llm-foundry's YAML files.

use std::path::Path;

use saturn_estimate::{
    Attention, Constants, Device, HostState, Kernels, Mlp, Optimizer, Precision, Shape,
    ShapeSource, Sharding, Strategy, Workload, memory,
};

/// A measured row.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) model: String,
    pub(crate) technique: String,
    pub(crate) shape: Shape,
    pub(crate) workload: Workload,
    pub(crate) device: Device,
    pub(crate) strategy: Strategy,
    pub(crate) step_s: f64,
}

impl Row {
    /// Whether each node has equally many devices.
    pub(crate) fn is_even(&self) -> bool {
        let placement = &self.strategy.placement;
        placement.iter().all(|count| Some(count) == placement.first())
    }

    pub(crate) fn is_on_one_node(&self) -> bool {
        self.strategy.placement.len() == 1
    }

    /// Why the row is left out of fits and of the first table; `None` if it is used.
    pub(crate) fn left_out(&self) -> Option<&'static str> {
        match () {
            () if self.model == "t5-1.2b" && self.technique.starts_with("3d") => {
                Some("T5's 3-D rows: another job, 2.5 times the work of its DDP rows")
            }
            () if !self.is_even() => Some("uneven placements"),
            () => None,
        }
    }
}

/// Reads a CSV file below `benches/profile`. Each row gives its cells by the column names in the
/// first line.
fn read(name: &str) -> Vec<impl Fn(&str) -> String + use<>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/profile").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let head: Vec<String> = lines.next().unwrap().split(',').map(str::to_owned).collect();
    let rows = lines.map(move |line| {
        let cells: Vec<String> = line.split(',').map(str::to_owned).collect();
        let head = head.clone();
        move |name: &str| cells[head.iter().position(|column| column == name).unwrap()].clone()
    });
    rows.collect()
}

fn t5() -> Shape {
    Shape {
        name: "t5-1.2b".to_owned(),
        parameters: 1.2408e9,
        layers: 32,
        hidden: 1024,
        heads: 16,
        kv_heads: 16,
        feed_forward: 4096,
        vocabulary: 32_128,
        mlp: Mlp::Plain,
        is_tied: true,
        has_dropout: true,
        positions: None,
        fixed_sequence: None,
        source: ShapeSource::Stated,
    }
}

/// The shape of a model, and the tokens of a sample.
fn a800_model(name: &str) -> (Shape, u32) {
    let config = |text| Shape::from_config(text).unwrap();
    match name {
        "bert-large" => (
            config(
                r#"{"model_type": "bert", "num_hidden_layers": 24, "hidden_size": 1024,
                "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30592}"#,
            ),
            512,
        ),
        "gpt2-xl" => (
            config(
                r#"{"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25,
                "vocab_size": 50304}"#,
            ),
            1024,
        ),
        "t5-1.2b" => (t5(), 512),
        "vit-base" => (config(r#"{"model_type": "vit"}"#), 197),
        "llama-7b" => (
            config(
                r#"{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
                "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}"#,
            ),
            2048,
        ),
        other => panic!("no shape for {other}"),
    }
}

pub(crate) fn a800() -> Vec<Row> {
    read("a800-measured.csv").iter().map(|cell| a800_row(cell)).collect()
}

fn a800_row(cell: &dyn Fn(&str) -> String) -> Row {
    let (model, technique, knobs) = (cell("model"), cell("technique"), cell("knobs"));
    let (shape, sequence) = a800_model(&model);
    let batch: u32 = cell("global_batch").parse().unwrap();
    let workload = Workload {
        batch,
        sequence,
        precision: Precision::Tf32,
        optimizer: Optimizer::AdamW,
        attention: Attention::Eager,
        kernels: Kernels::Eager,
    };
    let mut device = Device::named("a800-80gb").unwrap();
    if let Some(cores) = knobs.split("cpu=").nth(1) {
        let digits: String = cores.chars().take_while(char::is_ascii_digit).collect();
        device.cores.value = digits.parse().unwrap();
    }
    let placement: Vec<u32> =
        cell("placement").chars().map(|digit| digit.to_digit(10).unwrap()).collect();
    let mut strategy = Strategy::data_parallel(placement, batch);
    strategy.checkpointing = technique.ends_with("+gc");
    match technique.split('+').next().unwrap() {
        "ddp" => {}
        "zero-dp" => strategy.sharding = Sharding::Gradients,
        "zero-offload" => {
            (strategy.sharding, strategy.host) = (Sharding::Gradients, HostState::Optimizer);
        }
        _ => {
            let size = |name: &str| -> u32 {
                let rest = knobs.split(name).nth(1).unwrap();
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().unwrap()
            };
            (strategy.pipeline, strategy.tensor, strategy.data) =
                (size("pp"), size("tp"), size("dp"));
            let is_cut = model == "llama-7b" && batch == 16;
            strategy.micro = if is_cut { 1 } else { batch.div_ceil(strategy.data) };
        }
    }
    if !technique.starts_with("3d") {
        strategy.micro = largest_that_fits(&shape, &workload, &device, &strategy);
    }
    let step_s = cell("step_s").parse().unwrap();
    Row { model, technique, shape, workload, device, strategy, step_s }
}

/// The largest micro-batch that divides the slice and fits, as those runs accumulated gradients
/// over as few micro-batches as possible.
fn largest_that_fits(
    shape: &Shape,
    workload: &Workload,
    device: &Device,
    strategy: &Strategy,
) -> u32 {
    let slice = workload.batch.div_ceil(strategy.data);
    let fits = |micro: u32| {
        let strategy = Strategy { micro, ..strategy.clone() };
        let bytes = memory(shape, workload, &strategy, &Constants::default()).total();
        bytes <= device.memory_bytes.value
    };
    let sizes = (1..=slice).rev().filter(|micro| slice.is_multiple_of(*micro));
    sizes.into_iter().find(|micro| fits(*micro)).unwrap_or(1)
}

/// The layers, width and heads of an MPT model.
fn mpt_model(name: &str) -> [u32; 3] {
    match name {
        "125m" => [12, 768, 12],
        "350m" => [24, 1024, 16],
        "760m" => [24, 1536, 12],
        "1b" => [24, 2048, 16],
        "3b" => [32, 2560, 20],
        "7b" => [32, 4096, 32],
        "13b" => [40, 5120, 40],
        "30b" => [48, 7168, 56],
        "70b" => [80, 8192, 64],
        other => panic!("no shape for MPT {other}"),
    }
}

/// The rows in bf16. Rows in FP8 are left out, since their arithmetic is another one.
pub(crate) fn mpt() -> Vec<Row> {
    let rows = read("mpt-measured.csv");
    rows.iter().filter(|cell| cell("precision") != "amp_fp8").map(|cell| mpt_row(cell)).collect()
}

fn mpt_row(cell: &dyn Fn(&str) -> String) -> Row {
    let number = |name: &str| cell(name).parse::<u32>().unwrap();
    let [layers, hidden, heads] = mpt_model(&cell("model"));
    let (sequence, gpus, batch) = (number("seq"), number("gpus"), number("batch"));
    let shape = Shape {
        name: cell("model"),
        parameters: cell("params").parse().unwrap(),
        layers,
        hidden,
        heads,
        kv_heads: heads,
        feed_forward: 4 * hidden,
        vocabulary: 50_368,
        mlp: Mlp::Plain,
        is_tied: true,
        has_dropout: false,
        positions: Some(sequence),
        fixed_sequence: None,
        source: ShapeSource::Config,
    };
    let workload = Workload {
        batch,
        sequence,
        precision: Precision::Bf16Params,
        optimizer: Optimizer::AdamW,
        attention: Attention::Flash,
        kernels: Kernels::Fused,
    };
    let mut device = Device::named(&cell("gpu").replace('_', "-")).unwrap();
    if device.name.starts_with("a100") {
        // The A100 nodes of this table have 1600 Gb/s of RoCE.
        (device.network_cards.value, device.card_bytes_s.value) = (8.0, 25e9);
    }
    let placement = if gpus > 8 { vec![8; (gpus / 8) as usize] } else { vec![gpus] };
    let is_kept = cell("sharding") == "SHARD_GRAD_OP";
    let sharding = if is_kept { Sharding::KeptGathered } else { Sharding::Everything };
    let strategy = Strategy {
        sharding,
        checkpointing: cell("checkpointing") == "True",
        micro: number("micro"),
        ..Strategy::data_parallel(placement, batch)
    };
    let tokens_s: f64 = cell("tokens_s").parse().unwrap();
    let step_s = f64::from(batch) * f64::from(sequence) / tokens_s;
    let technique = "fsdp".to_owned();
    Row { model: cell("model"), technique, shape, workload, device, strategy, step_s }
}

/// The counted memory peak of one step on one device: workload, strategy and bytes.
pub(crate) struct Peak {
    pub(crate) model: String,
    pub(crate) shape: Shape,
    pub(crate) workload: Workload,
    pub(crate) strategy: Strategy,
    pub(crate) parameters: f64,
    pub(crate) bytes: f64,
}

pub(crate) fn peaks() -> Vec<Peak> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/profile");
    let text = std::fs::read_to_string(path.join("peaks-models.json")).unwrap();
    let models: serde_json::Value = serde_json::from_str(&text).unwrap();
    read("peaks-counted.csv").iter().map(|cell| peak(&models, cell)).collect()
}

fn peak(models: &serde_json::Value, cell: &dyn Fn(&str) -> String) -> Peak {
    let model = cell("model");
    let shape = Shape::from_config(&models[&model]["config"].to_string()).unwrap();
    let batch: u32 = cell("batch").parse().unwrap();
    let workload = Workload {
        batch,
        sequence: cell("seq").parse().unwrap(),
        precision: cell("precision").parse().unwrap(),
        optimizer: Optimizer::AdamW,
        attention: Attention::Flash,
        kernels: Kernels::Eager,
    };
    let mut strategy = Strategy::data_parallel(vec![1], batch);
    strategy.checkpointing = cell("checkpointing") == "True";
    let (parameters, bytes) = (cell("params"), cell("peak_bytes"));
    let (parameters, bytes) = (parameters.parse().unwrap(), bytes.parse().unwrap());
    Peak { model, shape, workload, strategy, parameters, bytes }
}
