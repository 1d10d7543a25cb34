//! Arguments of `saturn estimate`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use saturn_estimate::{Device, Optimizer, Precision};

use super::{more, one_of};

/// More nodes than this are a typing error.
const MOST_NODES: u32 = 64;

/// `saturn estimate`.
#[derive(Debug, clap::Args)]
#[command(after_help = more(&[
    ("saturn estimate config.json --gpu a100-40gb", "a model of transformers, on one node"),
    ("saturn estimate params=7e9 --gpu h100-80gb --nodes 1..4 --batch 16,32", "a size alone"),
    ("saturn estimate config.json --gpu l4-24gb --precision bf16 --explain", "with the sums"),
    ("saturn estimate config.json --gpu l4-24gb --profile profile.json", "corrected by trials"),
    ("saturn estimate config.json --gpu h100-80gb --steps 20000 --price 2.5", "time and cost"),
], "0 something fits, 2 bad input, 3 nothing fits"))]
pub(crate) struct EstimateArgs {
    /// A Hugging Face `config.json`, or a size such as params=7e9 or
    /// params=7e9,layers=32,hidden=4096 (also heads= and vocab=).
    #[arg(value_name = "CONFIG")]
    pub(crate) config: String,
    /// The type of GPU, such as a100-40gb; a wrong name prints all known names.
    #[arg(long, value_name = "GPU", value_parser = device)]
    pub(crate) gpu: Device,
    /// The number of nodes, or a range such as 1..4; all GPUs of a node are used. With one node,
    /// rows for fewer GPUs are shown too.
    #[arg(long, value_name = "NODES", default_value = "1", value_parser = nodes)]
    pub(crate) nodes: RangeInclusive<u32>,
    /// Samples of a step over all GPUs; separate several numbers by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "32", value_parser = positive)]
    pub(crate) batch: Vec<u32>,
    /// Tokens of a sample; by default 1024, or as many as the model can take.
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    pub(crate) seq: Option<u32>,
    /// The precision; bf16 and fp16 mean autocast.
    #[arg(long, default_value = "fp32", value_parser = one_of::<Precision>(Precision::ALL.map(|(_, name)| name)))]
    pub(crate) precision: Precision,
    /// The optimizer.
    #[arg(long, default_value = "adamw", value_parser = one_of::<Optimizer>(Optimizer::ALL.map(|(_, name)| name)))]
    pub(crate) optimizer: Optimizer,
    /// Steps of the training: each row then says how long they take.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// The price of one GPU for an hour, in any currency: each row then says its cost.
    #[arg(long, value_name = "PRICE", requires = "steps", value_parser = price)]
    pub(crate) price: Option<f64>,
    /// Measured step times of this model, with this batch and length, on these GPUs: a profile, as a
    /// run and `saturn profile export` write it. Measured times replace their
    /// estimates and correct the others.
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Print the calculation of each row that may fit, with its sources.
    #[arg(long, conflicts_with = "json")]
    pub(crate) explain: bool,
    /// Print the estimates as JSON, with the terms of each.
    #[arg(long)]
    pub(crate) json: bool,
}

fn device(name: &str) -> Result<Device, String> {
    Device::named(name).map_err(|error| error.to_string())
}

fn positive(text: &str) -> Result<u32, String> {
    let number = text.trim().parse::<u32>().ok().filter(|number| (1..=1 << 24).contains(number));
    number.ok_or_else(|| "expected a whole number from 1 to 16777216".to_owned())
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.trim().parse::<f64>().ok().filter(|price| price.is_finite() && *price > 0.0);
    price.ok_or_else(|| "expected a positive number, such as 2.5".to_owned())
}

fn nodes(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse::<u32>().ok().filter(|one| (1..=MOST_NODES).contains(one));
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => Ok(from..=to),
        _ => Err(format!("expected 2 or 1..4: nodes from 1 to {MOST_NODES}, fewest first")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_a_number_or_a_range() {
        assert_eq!(nodes("2"), Ok(2..=2));
        assert_eq!(nodes("1..4"), Ok(1..=4));
        for wrong in ["", "0", "4..1", "1..", "..4", "1..65", "1..=4", "-1", "x"] {
            assert!(nodes(wrong).unwrap_err().contains("1..4"), "{wrong}");
        }
    }
}
