//! A transformer's shape: its size, layers and widths.
//!
//! A shape comes from a Hugging Face `config.json` ([`Shape::from_config`]) or from a stated number
//! of parameters ([`Shape::from_size`]). The layers of an encoder–decoder's encoder and decoder
//! count together. Convolution networks have no shape here.

use crate::error::EstimateError;

/// The usual ratio of width to number of layers in GPT-like models (GPT-3, arXiv 2005.14165, table
/// 2.1; Llama, arXiv 2302.13971, table 2: 4096 / 32).
const WIDTH_A_LAYER: f64 = 128.0;
/// Width of an attention head in the same tables.
const HEAD_WIDTH: f64 = 128.0;
/// The vocabulary of a model whose size alone is stated.
const USUAL_VOCABULARY: u32 = 32_000;

/// The source of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeSource {
    /// A configuration gave it.
    Config,
    /// The user stated it as sizes.
    Stated,
    /// Layers or widths were guessed from the number of parameters.
    Guessed,
}

/// The structure of a layer's MLP, as far as it decides what the layer keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mlp {
    /// Two products, and an activation that is one kernel.
    Plain,
    /// Two products, and GPT-2's GELU by tanh, which plain torch computes in eight kernels.
    TanhGelu,
    /// Three products; the results of two are multiplied (`SwiGLU`).
    Gated,
    /// T5's, gated or not, where half of the layers also attend to the encoder.
    EncoderDecoder,
}

/// A transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The name of the model.
    pub name: String,
    /// Number of parameters.
    pub parameters: f64,
    /// Repeated layers.
    pub layers: u32,
    /// Width of a token between layers.
    pub hidden: u32,
    /// Attention heads.
    pub heads: u32,
    /// Heads of keys and values.
    pub kv_heads: u32,
    /// Width inside a layer's MLP.
    pub feed_forward: u32,
    /// Size of its vocabulary; 0 without a head over tokens.
    pub vocabulary: u32,
    /// The structure of its MLPs.
    pub mlp: Mlp,
    /// Whether the head shares the embedding's parameters.
    pub is_tied: bool,
    /// Whether layers have dropout.
    pub has_dropout: bool,
    /// The number of positions with parameters; `None` if positions are computed.
    pub positions: Option<u32>,
    /// The length of every sample, if the model fixes it, as for images.
    pub fixed_sequence: Option<u32>,
    /// The source of this shape.
    pub source: ShapeSource,
}

impl Shape {
    /// A shape from a config, with a plain MLP. Sizes are, in this order: layers, width, heads,
    /// heads of keys, the MLP's width and vocabulary.
    pub(crate) fn plain(name: &str, parameters: f64, sizes: [u32; 6]) -> Self {
        let [layers, hidden, heads, kv_heads, feed_forward, vocabulary] = sizes;
        Self {
            name: name.to_owned(),
            parameters,
            layers,
            hidden,
            heads,
            kv_heads,
            feed_forward,
            vocabulary,
            mlp: Mlp::Plain,
            is_tied: true,
            has_dropout: false,
            positions: None,
            fixed_sequence: None,
            source: ShapeSource::Config,
        }
    }

    /// A shape from stated sizes: `params=7e9,layers=32,hidden=4096`. Known names are `params`,
    /// `layers`, `hidden`, `heads` and `vocab`. Missing layers and width are guessed.
    ///
    /// # Errors
    /// [`EstimateError::Field`] for an unknown, missing or impossible field.
    pub fn from_size(text: &str) -> Result<Self, EstimateError> {
        let mut stated = Stated::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let slot = match name.trim() {
                "params" => &mut stated.params,
                "layers" => &mut stated.layers,
                "hidden" => &mut stated.hidden,
                "heads" => &mut stated.heads,
                "vocab" => &mut stated.vocab,
                other => {
                    let expected = "one of params, layers, hidden, heads, vocab";
                    return Err(field(other, "no field of a size", expected));
                }
            };
            let number = value.trim().parse::<f64>().ok();
            let number = number.filter(|number| number.is_finite() && *number >= 1.0);
            let found = if value.is_empty() { "without a value" } else { value };
            *slot = Some(number.ok_or_else(|| field(name, found, "a number, such as 32 or 7e9"))?);
        }
        stated.shape(text)
    }

    /// Parameters of the embedding, and of the head if it has parameters of its own.
    pub(crate) fn vocabulary_parameters(&self) -> f64 {
        let one = f64::from(self.vocabulary) * f64::from(self.hidden);
        if self.is_tied { one } else { 2.0 * one }
    }

    /// Parameters of the layers. Position parameters don't count: they are looked up, and are in no
    /// matrix product.
    pub(crate) fn body(&self) -> f64 {
        let positions = f64::from(self.positions.unwrap_or(0)) * f64::from(self.hidden);
        (self.parameters - self.vocabulary_parameters() - positions).max(0.0)
    }

    /// Approximate number of parameters in its largest layer.
    pub(crate) fn largest_layer(&self) -> f64 {
        self.parameters / f64::from(self.layers.max(8))
    }
}

/// Sizes as the user stated them.
#[derive(Default)]
struct Stated {
    params: Option<f64>,
    layers: Option<f64>,
    hidden: Option<f64>,
    heads: Option<f64>,
    vocab: Option<f64>,
}

impl Stated {
    fn shape(&self, text: &str) -> Result<Shape, EstimateError> {
        let expected = "a number of parameters from 1e6 to 1e13, such as params=7e9";
        let parameters = self.params.ok_or_else(|| field("params", "missing", expected))?;
        if !(1e6..=1e13).contains(&parameters) {
            return Err(field("params", &parameters.to_string(), expected));
        }
        let usual = f64::from(USUAL_VOCABULARY);
        let vocabulary = whole("vocab", self.vocab.unwrap_or(usual))?;
        // A layer of width h has about 12 h² parameters (Megatron).
        let width = match self.layers {
            Some(layers) => (parameters / (12.0 * layers)).sqrt(),
            None => WIDTH_A_LAYER * (parameters / (12.0 * WIDTH_A_LAYER.powi(2))).cbrt(),
        };
        let hidden = whole("hidden", self.hidden.unwrap_or_else(|| usual_width(width)))?;
        let outside = f64::from(vocabulary) * f64::from(hidden);
        let layer = 12.0 * f64::from(hidden).powi(2);
        let guessed = ((parameters - outside) / layer).round().max(1.0);
        let layers = whole("layers", self.layers.unwrap_or(guessed))?;
        let usual_heads = (f64::from(hidden) / HEAD_WIDTH).round().max(1.0);
        let heads = whole("heads", self.heads.unwrap_or(usual_heads))?;
        let is_stated = self.layers.is_some() && self.hidden.is_some();
        let sizes = [layers, hidden, heads, heads, 4 * hidden, vocabulary];
        let source = if is_stated { ShapeSource::Stated } else { ShapeSource::Guessed };
        let shape = Shape { source, ..Shape::plain(text, parameters, sizes) };
        if shape.vocabulary_parameters() >= parameters {
            let found = format!("{parameters:e}, less than an embedding of {vocabulary} tokens");
            return Err(field("params", &found, "a larger number, or vocab=… for fewer tokens"));
        }
        Ok(shape)
    }
}

/// A usual width near this one: a multiple of eight heads, or of one head in small models.
fn usual_width(width: f64) -> f64 {
    let unit = if width < 8.0 * HEAD_WIDTH { HEAD_WIDTH } else { 8.0 * HEAD_WIDTH };
    ((width / unit).round() * unit).max(unit)
}

/// The error of a wrong field.
pub(crate) fn field(name: &str, found: &str, expected: &str) -> EstimateError {
    EstimateError::Field {
        field: name.to_owned(),
        found: if found.is_empty() { "empty".to_owned() } else { found.to_owned() },
        expected: expected.to_owned(),
    }
}

/// A whole number below a million.
fn whole(name: &str, number: f64) -> Result<u32, EstimateError> {
    if number.fract() != 0.0 || !(1.0..1e6).contains(&number) {
        return Err(field(name, &number.to_string(), "a whole number from 1 to 999999"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let number = number as u32;
    Ok(number)
}
