//! Shapes from a `config.json` of Hugging Face's transformers.
//!
//! Parameters are counted as transformers builds the model with its usual head: causal language
//! models, masked language models, T5 with its head, ViT with its classifier. A model of another
//! type is refused; nothing is guessed.

use serde_json::Value;

use crate::error::EstimateError;
use crate::shape::{Mlp, Shape, field};

/// The known model types, for messages.
const KNOWN: &str = "gpt2, llama, mistral, qwen2, bert, t5, vit";

impl Shape {
    /// A shape from the text of a `config.json`.
    ///
    /// # Errors
    /// The text is no JSON object, its `model_type` is not known, or a field is missing or wrong.
    pub fn from_config(text: &str) -> Result<Self, EstimateError> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| EstimateError::NotJson { detail: error.to_string() })?;
        let config = Config(&value);
        let shape = match value.get("model_type").and_then(Value::as_str) {
            Some("gpt2") => gpt2(&config)?,
            Some("llama" | "mistral") => llama(&config, false)?,
            Some("qwen2") => llama(&config, true)?,
            Some("bert") => bert(&config)?,
            Some("t5") => t5(&config)?,
            Some("vit") => vit(&config)?,
            other => {
                let found = other.map_or("missing".to_owned(), |name| format!("`{name}`"));
                return Err(EstimateError::UnknownModel { found, known: KNOWN.to_owned() });
            }
        };
        if shape.heads > 0 && !shape.heads.is_multiple_of(shape.kv_heads) {
            let expected = format!("a divisor of the {} attention heads", shape.heads);
            return Err(field("num_key_value_heads", &shape.kv_heads.to_string(), &expected));
        }
        Ok(shape)
    }
}

fn gpt2(config: &Config) -> Result<Shape, EstimateError> {
    let (layers, hidden) = (config.whole("n_layer", Some(12))?, config.whole("n_embd", Some(768))?);
    let vocabulary = config.whole("vocab_size", Some(50_257))?;
    let positions = config.whole("n_positions", Some(1024))?;
    let feed_forward = config.whole("n_inner", Some(hidden.saturating_mul(4)))?;
    let heads = config.whole("n_head", Some(12))?;
    let (l, h, f) = (f64::from(layers), f64::from(hidden), f64::from(feed_forward));
    let layer = 4.0 * h * h + 4.0 * h + 2.0 * h * f + f + h + 4.0 * h;
    let parameters = (f64::from(vocabulary) + f64::from(positions)) * h + l * layer + 2.0 * h;
    Ok(Shape {
        positions: Some(positions),
        mlp: Mlp::TanhGelu,
        has_dropout: true,
        ..Shape::plain("gpt2", parameters, [layers, hidden, heads, heads, feed_forward, vocabulary])
    })
}

fn llama(config: &Config, has_bias: bool) -> Result<Shape, EstimateError> {
    let layers = config.whole("num_hidden_layers", None)?;
    let hidden = config.whole("hidden_size", None)?;
    let heads = config.whole("num_attention_heads", None)?;
    let kv_heads = config.whole("num_key_value_heads", Some(heads))?;
    let feed_forward = config.whole("intermediate_size", None)?;
    let vocabulary = config.whole("vocab_size", None)?;
    let head = config.whole("head_dim", Some(hidden / heads.max(1)))?;
    let is_tied = config.truth("tie_word_embeddings", false)?;
    let (l, h, f) = (f64::from(layers), f64::from(hidden), f64::from(feed_forward));
    let (q, kv) = (f64::from(heads) * f64::from(head), f64::from(kv_heads) * f64::from(head));
    let bias = if has_bias { q + 2.0 * kv } else { 0.0 };
    let layer = 2.0 * h * q + 2.0 * h * kv + bias + 3.0 * h * f + 2.0 * h;
    let embedding = f64::from(vocabulary) * h * if is_tied { 1.0 } else { 2.0 };
    let parameters = embedding + l * layer + h;
    let name = if has_bias { "qwen2" } else { "llama" };
    let name = config.0.get("model_type").and_then(Value::as_str).unwrap_or(name);
    Ok(Shape {
        mlp: Mlp::Gated,
        is_tied,
        ..Shape::plain(
            name,
            parameters,
            [layers, hidden, heads, kv_heads, feed_forward, vocabulary],
        )
    })
}

fn bert(config: &Config) -> Result<Shape, EstimateError> {
    let layers = config.whole("num_hidden_layers", Some(12))?;
    let hidden = config.whole("hidden_size", Some(768))?;
    let heads = config.whole("num_attention_heads", Some(12))?;
    let feed_forward = config.whole("intermediate_size", Some(3072))?;
    let vocabulary = config.whole("vocab_size", Some(30_522))?;
    let positions = config.whole("max_position_embeddings", Some(512))?;
    let types = config.whole("type_vocab_size", Some(2))?;
    let (l, h, f) = (f64::from(layers), f64::from(hidden), f64::from(feed_forward));
    let embeddings =
        (f64::from(vocabulary) + f64::from(positions) + f64::from(types)) * h + 2.0 * h;
    let layer = 4.0 * (h * h + h) + 2.0 * h * f + f + h + 4.0 * h;
    let head = h * h + 3.0 * h + f64::from(vocabulary);
    let parameters = embeddings + l * layer + head;
    Ok(Shape {
        positions: Some(positions),
        has_dropout: true,
        ..Shape::plain("bert", parameters, [layers, hidden, heads, heads, feed_forward, vocabulary])
    })
}

fn t5(config: &Config) -> Result<Shape, EstimateError> {
    let encoder = config.whole("num_layers", Some(6))?;
    let decoder = config.whole("num_decoder_layers", Some(encoder))?;
    let hidden = config.whole("d_model", Some(512))?;
    let head = config.whole("d_kv", Some(64))?;
    let heads = config.whole("num_heads", Some(8))?;
    let feed_forward = config.whole("d_ff", Some(2048))?;
    let vocabulary = config.whole("vocab_size", Some(32_128))?;
    let buckets = config.whole("relative_attention_num_buckets", Some(32))?;
    let is_gated = config.text("feed_forward_proj", "relu")?.starts_with("gated-");
    let is_tied = config.truth("tie_word_embeddings", true)?;
    let (h, inner) = (f64::from(hidden), f64::from(heads) * f64::from(head));
    let mlp = if is_gated { 3.0 } else { 2.0 } * h * f64::from(feed_forward);
    let attention = 4.0 * h * inner + h;
    let encoder_layers = f64::from(encoder) * (attention + mlp + h);
    let decoder_layers = f64::from(decoder) * (2.0 * attention + mlp + h);
    let biases = 2.0 * f64::from(buckets) * f64::from(heads);
    let embedding = f64::from(vocabulary) * h * if is_tied { 1.0 } else { 2.0 };
    let parameters = embedding + encoder_layers + decoder_layers + biases + 2.0 * h;
    let sizes = [encoder.saturating_add(decoder), hidden, heads, heads, feed_forward, vocabulary];
    let mlp = Mlp::EncoderDecoder;
    Ok(Shape { mlp, is_tied, has_dropout: true, ..Shape::plain("t5", parameters, sizes) })
}

fn vit(config: &Config) -> Result<Shape, EstimateError> {
    let layers = config.whole("num_hidden_layers", Some(12))?;
    let hidden = config.whole("hidden_size", Some(768))?;
    let heads = config.whole("num_attention_heads", Some(12))?;
    let feed_forward = config.whole("intermediate_size", Some(3072))?;
    let (image, patch) =
        (config.whole("image_size", Some(224))?, config.whole("patch_size", Some(16))?);
    let channels = config.whole("num_channels", Some(3))?;
    let labels =
        config.0.get("id2label").and_then(Value::as_object).map_or(2, serde_json::Map::len);
    if !image.is_multiple_of(patch) {
        let expected = format!("a divisor of the image size {image}");
        return Err(field("patch_size", &patch.to_string(), &expected));
    }
    let side = image / patch;
    let Some(sequence) = side.checked_mul(side).and_then(|patches| patches.checked_add(1)) else {
        return Err(field("image_size", &image.to_string(), "a smaller image, or larger patches"));
    };
    let (l, h, f) = (f64::from(layers), f64::from(hidden), f64::from(feed_forward));
    let embeddings = f64::from(channels) * f64::from(patch) * f64::from(patch) * h
        + h
        + h
        + f64::from(sequence) * h;
    let layer = 4.0 * (h * h + h) + 2.0 * h * f + f + h + 4.0 * h;
    let parameters = embeddings + l * layer + 2.0 * h + (h + 1.0) * labels as f64;
    Ok(Shape {
        fixed_sequence: Some(sequence),
        ..Shape::plain("vit", parameters, [layers, hidden, heads, heads, feed_forward, 0])
    })
}

/// Reads fields, with errors that say what is wrong.
struct Config<'a>(&'a Value);

impl Config<'_> {
    /// A whole number from 1 on. A missing or null field takes its default.
    fn whole(&self, name: &str, default: Option<u32>) -> Result<u32, EstimateError> {
        let expected = "a whole number from 1 to 9999999";
        match (self.0.get(name), default) {
            (None | Some(Value::Null), Some(default)) => Ok(default),
            (None, None) => Err(field(name, "missing", expected)),
            (Some(value), _) => value
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
                .filter(|number| (1..10_000_000).contains(number))
                .ok_or_else(|| field(name, &value.to_string(), expected)),
        }
    }

    fn truth(&self, name: &str, default: bool) -> Result<bool, EstimateError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(truth)) => Ok(*truth),
            Some(value) => Err(field(name, &value.to_string(), "true or false")),
        }
    }

    fn text<'b>(&'b self, name: &str, default: &'b str) -> Result<&'b str, EstimateError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::String(text)) => Ok(text),
            Some(value) => Err(field(name, &value.to_string(), "a text")),
        }
    }
}
