//! What a person sees of `saturn estimate`: a table, its sums, exit codes, and one clear message
//! for each kind of bad input.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Exit code, standard output and standard error.
fn estimate(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saturn"));
    command.arg("estimate").args(arguments).env("NO_COLOR", "1").env_remove("COLUMNS");
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const SMALL: [&str; 9] = [
    "params=1.2e8,layers=12,hidden=768",
    "--gpu",
    "rtx4090-24gb",
    "--batch",
    "8",
    "--seq",
    "512",
    "--precision",
    "bf16",
];

fn small(more: &[&str]) -> (i32, String, String) {
    estimate(&[&SMALL, more].concat())
}

fn rows(shown: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(shown).unwrap();
    assert_eq!(value["version"], 1);
    value["rows"].as_array().unwrap().clone()
}

fn row<'a>(rows: &'a [Value], technique: &str, gpus: u32) -> &'a Value {
    let is_it = |row: &&Value| row["technique"] == technique && row["gpus"] == gpus;
    rows.iter().find(is_it).unwrap()
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_table_says_what_fits_and_how_fast() {
    let (code, shown, talk) = small(&[]);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("estimate", shown);
}

#[test]
fn a_training_of_so_many_steps_has_a_time_and_a_cost() {
    let (code, shown, _) = small(&["--steps", "20000", "--price", "0.4"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!("estimate_price", shown);
    let (_, told, _) = small(&["--steps", "20000", "--price", "0.4", "--json"]);
    let value: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&value["steps"], &value["price_per_gpu_hour"]), (&json!(20000), &json!(0.4)));
    for row in rows(&told) {
        for of in ["low", "value", "high"] {
            let step_s = row["step_s"][of].as_f64().unwrap();
            let (seconds, cost) = (&row["training_s"][of], &row["cost"][of]);
            assert_relative(seconds.as_f64().unwrap(), 20000.0 * step_s);
            let hours = 20000.0 * step_s / 3600.0 * row["gpus"].as_f64().unwrap();
            assert_relative(cost.as_f64().unwrap(), 0.4 * hours);
        }
    }
    // The cheapest is named, and nothing that fits costs less.
    let cost = |row: &Value| row["cost"]["value"].as_f64().unwrap();
    let least = rows(&told)
        .into_iter()
        .filter(|row| row["verdict"] == "fits")
        .min_by(|one, other| cost(one).total_cmp(&cost(other)))
        .unwrap();
    let named = format!(
        "cheapest that fits: {} × {},",
        least["technique"].as_str().unwrap(),
        least["gpus"]
    );
    assert!(shown.contains(&named), "{named}\n{shown}");
    // Without a price there is a time alone.
    let (_, shown, _) = small(&["--steps", "20000"]);
    assert!(shown.contains("fastest that fits: pipeline × 4, ") && !shown.contains("cheapest"));
}

fn assert_relative(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} for {expected}");
}

#[test]
fn the_sum_of_a_row_names_its_sources() {
    let (code, shown, _) = small(&["--explain"]);
    assert_eq!(code, 0);
    let sums = shown.split_once("\n\n").unwrap().1;
    let ddp = sums.split("\n\n").find(|sum| sum.starts_with("ddp × 4")).unwrap();
    insta::assert_snapshot!("estimate_explain", ddp);
    assert!(shown.contains("NVIDIA Ada GPU Architecture white paper"), "{shown}");
}

#[test]
fn terms_add_up_and_memory_has_parts() {
    let (code, shown, _) = small(&["--json"]);
    assert_eq!(code, 0);
    let rows = rows(&shown);
    assert!(rows.len() > 10);
    for row in &rows {
        let sum: f64 = row["terms"]
            .as_array()
            .unwrap()
            .iter()
            .map(|term| term["seconds"].as_f64().unwrap())
            .sum();
        let step_s = row["step_s"]["value"].as_f64().unwrap();
        assert!((sum / step_s - 1.0).abs() < 1e-9, "{row}");
        let memory = &row["memory_bytes"];
        let parts = ["states", "activations", "logits", "reserve"]
            .map(|part| memory[part].as_u64().unwrap());
        assert!(parts.iter().sum::<u64>().abs_diff(memory["total"].as_u64().unwrap()) <= 2);
        assert_eq!((&row["source"], &row["is_below_bound"]), (&json!("model"), &json!(false)));
    }
    // More of what is asked is more rows: nodes and batches.
    let (_, more, _) = small(&["--json", "--nodes", "1..2", "--batch", "8,16"]);
    let value: Value = serde_json::from_str(&more).unwrap();
    let asked = |batch: u32, gpus: u32| {
        value["rows"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["batch"] == batch && row["gpus"] == gpus)
    };
    assert!(asked(8, 1) && asked(8, 8) && asked(16, 8));
}

#[test]
fn nothing_fits_is_exit_code_3() {
    let (code, shown, _) = estimate(&["params=1e12", "--gpu", "t4-16gb", "--precision", "fp16"]);
    assert_eq!(code, 3, "{shown}");
    assert!(shown.contains("nothing fits: take more nodes"), "{shown}");
}

#[test]
fn a_configuration_is_read() {
    let folder = TempDir::new().unwrap();
    let config = write(&folder, "config.json", r#"{"model_type": "gpt2"}"#);
    let (code, shown, _) = estimate(&[&config, "--gpu", "a100-40gb"]);
    assert_eq!(code, 0);
    assert!(
        shown.starts_with("gpt2: 124 M parameters, 12 layers of width 768; 1024 tokens"),
        "{shown}"
    );
}

fn profile(folder: &TempDir, trials: &[(&str, u32, f64)]) -> String {
    let trials: Vec<Value> = trials
        .iter()
        .map(|(technique, gpus, step_s)| {
            json!({
                "task": "a", "technique": technique, "gpus": gpus, "outcome": "measured",
                "step_s": step_s, "setup_s": 1.0, "peak_memory_bytes": 1, "timed_steps": 5,
            })
        })
        .collect();
    write(folder, "profile.json", &json!({"version": 1, "trials": trials}).to_string())
}

#[test]
fn a_profile_replaces_and_corrects() {
    let folder = TempDir::new().unwrap();
    let (_, before, _) = small(&["--json"]);
    let before = rows(&before);
    let said = |rows: &[Value], technique: &str, gpus: u32| {
        row(rows, technique, gpus)["step_s"]["value"].as_f64().unwrap()
    };
    let twice = 2.0 * said(&before, "ddp", 2);
    let file = profile(&folder, &[("ddp", 2, twice)]);
    let (code, after, talk) = small(&["--json", "--profile", &file]);
    assert_eq!((code, talk.as_str()), (0, ""));
    let after = rows(&after);
    assert_eq!(row(&after, "ddp", 2)["source"], "measured");
    assert!((said(&after, "ddp", 2) / twice - 1.0).abs() < 1e-12);
    let grown = |technique, gpus| said(&after, technique, gpus) / said(&before, technique, gpus);
    assert_eq!(row(&after, "fsdp", 4)["source"], "one trial");
    assert!(1.3 < grown("fsdp", 4) && grown("fsdp", 4) < grown("ddp", 4) && grown("ddp", 4) < 2.0);
}

#[test]
fn a_time_that_no_gpu_reaches_is_flagged_and_corrects_nothing() {
    let folder = TempDir::new().unwrap();
    let file = profile(&folder, &[("ddp", 2, 1e-4)]);
    let (code, shown, talk) = small(&["--json", "--profile", &file]);
    assert_eq!(code, 0);
    assert!(
        talk.starts_with("warning: ") && talk.contains("ddp × 2 takes 0.00010 s/step"),
        "{talk}"
    );
    assert!(talk.contains("the peak of these GPUs would need"), "{talk}");
    let rows = rows(&shown);
    assert_eq!(row(&rows, "ddp", 2)["is_below_bound"], true);
    assert_eq!(row(&rows, "fsdp", 4)["source"], "model");
}

/// What is told of arguments that are wrong.
fn refused(arguments: &[&str]) -> String {
    let (code, shown, talk) = estimate(arguments);
    assert_eq!((code, shown.as_str()), (2, ""), "{arguments:?}: {talk}");
    talk
}

#[test]
fn bad_input_says_what_would_be_right() {
    let folder = TempDir::new().unwrap();
    let gpu = ["--gpu", "a100-40gb"];
    let with = |config: &str, more: &[&str]| refused(&[&[config], &gpu[..], more].concat());
    let told = refused(&["params=7e9", "--gpu", "a100"]);
    assert!(told.contains("there is no GPU `a100` in the table; known are a100-40gb"), "{told}");
    let told = with("nowhere.json", &[]);
    assert!(
        told.contains("failed to read `nowhere.json`: ") && told.contains("params=7e9"),
        "{told}"
    );
    let told = with("params=7e9,width=3", &[]);
    assert!(told.contains("one of params, layers, hidden, heads, vocab"), "{told}");
    let other = write(&folder, "config.json", r#"{"model_type": "mamba"}"#);
    let told = with(&other, &[]);
    assert!(told.contains("`model_type` is `mamba`; known are gpt2"), "{told}");
    let gpt2 = write(&folder, "gpt2.json", r#"{"model_type": "gpt2"}"#);
    let told = with(&gpt2, &["--seq", "2048"]);
    assert!(told.contains("`gpt2` has only 1024 positions"), "{told}");
    let vit = write(&folder, "vit.json", r#"{"model_type": "vit"}"#);
    let told = with(&vit, &["--seq", "64"]);
    assert!(told.contains("each sample of `vit` has 197 patches"), "{told}");
    let told = refused(&["params=7e9", "--gpu", "v100-32gb", "--precision", "bf16"]);
    assert!(told.contains("v100-32gb does not compute in bf16; it can fp32, fp16"), "{told}");
    for (option, value, right) in [
        ("--nodes", "4..1", "1..4"),
        ("--batch", "0", "a whole number from 1"),
        ("--seq", "x", "a whole number from 1"),
        ("--precision", "int8", "bf16-params"),
        ("--optimizer", "lion", "adamw"),
        ("--price", "0", "a positive number"),
        ("--steps", "0", "1.."),
    ] {
        let told = with("params=7e9", &[option, value]);
        assert!(told.contains(right), "{told}");
    }
    let several = profile(&folder, &[]);
    let told = with("params=7e9", &["--profile", &several, "--batch", "8,16"]);
    assert!(told.contains("give --batch one number"), "{told}");
    let told = with("params=7e9", &["--profile", "nowhere.json"]);
    assert!(told.contains("failed to read `nowhere.json`") && told.contains("a profile"), "{told}");
}
