//! What `make fuzz-readers` calls still compiles, and takes its own seeds.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

// `fuzz` is a workspace of its own, which no other build compiles.
#[expect(clippy::expect_used, unreachable_pub, reason = "the fuzz targets call it")]
#[path = "../../../../fuzz/readers.rs"]
mod fuzz;

type Reader = fn(&str);

/// All seeds of a reader, and each of them cut short.
fn seeds(reader: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(reader);
    let files = fs::read_dir(&directory).unwrap();
    let texts: Vec<String> =
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert!(!texts.is_empty(), "{reader} has no seeds");
    let half = |text: &String| text.chars().take(text.chars().count() / 2).collect();
    texts.iter().map(half).chain(texts.clone()).collect()
}

#[test]
fn every_reader_takes_its_seeds() {
    let readers: [(&str, Reader); 10] = [
        ("command", fuzz::command),
        ("control_line", fuzz::control_line),
        ("journal", fuzz::journal),
        ("journal_v1", fuzz::journal_v1),
        ("metrics", |text| fuzz::metrics(text.as_bytes())),
        ("plan", |text| fuzz::plan(text.as_bytes())),
        ("problem", fuzz::problem),
        ("profile", fuzz::profile),
        ("rank_report", fuzz::rank_report),
        ("run_request", fuzz::run_request),
    ];
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    assert_eq!(fs::read_dir(targets).unwrap().count(), readers.len());
    for (name, read) in readers {
        for seed in seeds(name) {
            read(&seed);
        }
    }
}
