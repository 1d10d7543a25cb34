//! Tests that shapes from configurations have as many parameters as transformers counts.

use saturn_estimate::{EstimateError, Shape, ShapeSource};

/// The relative difference of a config's parameters to this number.
fn off(config: &str, parameters: f64) -> f64 {
    (Shape::from_config(config).unwrap().parameters / parameters - 1.0).abs()
}

#[test]
fn parameters_are_those_that_transformers_counts() {
    let llama = r#"{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}"#;
    let mistral = r#"{"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 32000}"#;
    let qwen2 = r#"{"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
        "vocab_size": 151936, "tie_word_embeddings": true}"#;
    let t5 = r#"{"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12,
        "num_heads": 12, "vocab_size": 32128}"#;
    for (config, parameters) in [
        (r#"{"model_type": "gpt2"}"#, 124_439_808.0),
        (llama, 6_738_415_616.0),
        (mistral, 7_241_732_096.0),
        (qwen2, 494_032_768.0),
        (r#"{"model_type": "bert"}"#, 109_514_298.0),
        (t5, 222_903_552.0),
    ] {
        assert!(off(config, parameters) < 1e-9, "{config}: off by {}", off(config, parameters));
    }
    // ViT-B/16 has 85,798,656 parameters, and its classifier has 769 for each label.
    assert!(off(r#"{"model_type": "vit"}"#, 85_798_656.0 + 2.0 * 769.0) < 1e-9);
}

#[test]
fn an_image_has_a_length_and_a_table_of_positions_a_limit() {
    let vit = Shape::from_config(r#"{"model_type": "vit"}"#).unwrap();
    assert_eq!(vit.fixed_sequence, Some(197));
    let gpt2 = Shape::from_config(r#"{"model_type": "gpt2"}"#).unwrap();
    assert_eq!((gpt2.positions, gpt2.fixed_sequence), (Some(1024), None));
}

#[test]
fn a_wrong_configuration_is_told_what_would_be_right() {
    let told = |text: &str| Shape::from_config(text).unwrap_err().to_string();
    assert!(told("{").starts_with("not JSON: "));
    assert!(told("[]").contains("`model_type` is missing; known are gpt2, llama"));
    assert!(told(r#"{"model_type": "mamba"}"#).contains("`mamba`"));
    let missing = told(r#"{"model_type": "llama"}"#);
    assert_eq!(
        missing,
        "`num_hidden_layers` is missing; expected a whole number from 1 to 9999999"
    );
    let huge = told(r#"{"model_type": "vit", "image_size": 9999999, "patch_size": 1}"#);
    assert!(huge.starts_with("`image_size` is 9999999"), "{huge}");
    let most = "9999999";
    let large = format!(
        r#"{{"model_type": "llama", "hidden_size": {most}, "num_hidden_layers": {most},
            "num_attention_heads": {most}, "intermediate_size": {most}, "vocab_size": {most},
            "head_dim": {most}}}"#
    );
    assert!(Shape::from_config(&large).unwrap().parameters.is_finite());
    for wrong in ["-1", "0", "1.5", "\"12\"", "1e300"] {
        let text = told(&format!(r#"{{"model_type": "gpt2", "n_layer": {wrong}}}"#));
        assert!(text.starts_with("`n_layer` is "), "{text}");
    }
    let keys = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 3, "intermediate_size": 128,
        "vocab_size": 100}"#;
    assert!(told(keys).contains("a divisor of the 4 attention heads"));
    assert!(told(r#"{"model_type": "vit", "patch_size": 15}"#).contains("a divisor of the image"));
}

#[test]
fn a_size_alone_gives_the_usual_layers_and_says_so() {
    let guessed = Shape::from_size("params=7e9").unwrap();
    assert_eq!(guessed.source, ShapeSource::Guessed);
    assert!((28..=36).contains(&guessed.layers), "{guessed:?}");
    assert_eq!((guessed.hidden, guessed.heads), (4096, 32));
    let with_layers = Shape::from_size("params=7e9,layers=48").unwrap();
    assert_eq!((with_layers.layers, with_layers.hidden % 1024), (48, 0));
    let stated = Shape::from_size("params=7e9,layers=32,hidden=4096").unwrap();
    assert_eq!((stated.source, stated.heads), (ShapeSource::Stated, 32));
    let told = |text: &str| Shape::from_size(text).unwrap_err();
    for wrong in
        ["layers=3", "params=", "params=x", "params=7e9,width=3", "params=1e30", "params=5"]
    {
        assert!(matches!(told(wrong), EstimateError::Field { .. }), "{wrong}");
    }
    assert!(told("params=2e6,layers=2,hidden=4096").to_string().contains("vocab="));
    assert!(told("params=7e9,layers=1.5").to_string().contains("whole number"));
}
