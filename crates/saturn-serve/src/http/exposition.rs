//! Prometheus' text format, version 0.0.4.
//!
//! A *family* is all samples of one name: they stand together, behind their `HELP` and `TYPE`.

use std::fmt::Write;

/// The type of this text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether the samples of a family only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They do.
    Counter,
    /// They come and go.
    Gauge,
}

/// A text in the making.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

/// Labels of a sample, by name.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    /// Begins a family. All of its samples follow before the next begins.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let help = escaped(help, false);
        // Writing to a string never fails.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { name, text: &mut self.text }
    }

    /// The whole text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// The samples of a family.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Family<'_> {
    /// Adds a sample.
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.text.push_str(self.name);
        for (index, (name, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value, true));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = if value.is_finite() {
            writeln!(self.text, " {value}")
        } else if value.is_nan() {
            writeln!(self.text, " NaN")
        } else {
            writeln!(self.text, " {}Inf", if value > 0.0 { '+' } else { '-' })
        };
    }

    /// Adds a sample that is a number of things.
    pub(crate) fn number(&mut self, labels: Labels<'_>, number: u64) {
        self.sample(labels, number as f64);
    }
}

fn escaped(text: &str, is_label: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if is_label => escaped.push_str("\\\""),
            other => escaped.push(other),
        }
    }
    escaped
}

/// What Prometheus reads of a text.
#[cfg(test)]
pub(crate) mod read {
    use std::collections::{BTreeMap, BTreeSet};

    /// Samples by name and labels.
    pub(crate) type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

    /// Reads a text, and panics at whatever Prometheus would refuse. Gives all samples, and the names of
    /// counters.
    pub(crate) fn read(text: &str) -> (Samples, BTreeSet<String>) {
        assert!(text.is_empty() || text.ends_with('\n'), "the last line has its end");
        let (mut samples, mut counters) = (Samples::new(), BTreeSet::new());
        let (mut family, mut known) = (String::new(), BTreeSet::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(known.insert(name.to_owned()), "{name} has two families");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap();
                let (typed, kind) = kind.split_once(' ').unwrap();
                assert_eq!(typed, name);
                match kind {
                    "counter" => {
                        assert!(name.ends_with("_total"), "{name}");
                        counters.insert(name.to_owned());
                    }
                    "gauge" => assert!(!name.ends_with("_total"), "{name}"),
                    other => panic!("{other}"),
                }
                name.clone_into(&mut family);
                continue;
            }
            let (name, labels, value) = sample(line);
            assert_eq!(name, family, "{line} stands in its family");
            let value = match value {
                "+Inf" => f64::INFINITY,
                "-Inf" => f64::NEG_INFINITY,
                number => {
                    assert!(number.bytes().all(|byte| !byte.is_ascii_uppercase()), "{number}");
                    number.parse().unwrap()
                }
            };
            assert!(samples.insert((name, labels), value).is_none(), "{line} is there twice");
        }
        (samples, counters)
    }

    fn is_name(name: &str) -> bool {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && name.starts_with("saturn_")
    }

    /// Name, labels and value of a line.
    fn sample(line: &str) -> (String, BTreeMap<String, String>, &str) {
        let end = line.find(['{', ' ']).unwrap();
        let (name, mut rest) = line.split_at(end);
        let mut labels = BTreeMap::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (label, after) = rest.split_once("=\"").unwrap();
                assert!(label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
                let (value, after) = quoted(after);
                assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
                rest = after.strip_prefix(',').unwrap_or(after);
            }
            rest = &rest[1..];
        }
        let value = rest.strip_prefix(' ').unwrap();
        assert!(!value.contains(' '), "{line}");
        (name.to_owned(), labels, value)
    }

    /// A value up to its closing quote, and what follows.
    fn quoted(text: &str) -> (String, &str) {
        let mut value = String::new();
        let mut letters = text.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => return (value, &text[at + 1..]),
                '\\' => value.push(match letters.next().unwrap().1 {
                    'n' => '\n',
                    other @ ('\\' | '"') => other,
                    other => panic!("no such escape: {other}"),
                }),
                other => value.push(other),
            }
        }
        panic!("no closing quote: {text}");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "numbers are read as they were written")]

    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn whatever_a_label_holds_is_read_as_it_was() {
        let odd = ["", "a\"b", "back\\slash", "two\nlines", "\\n", "ü ,}{=", "x\"} 1\nsaturn_y 2"];
        let values = [0.0, -1.5, 1e300, 1e-300, f64::INFINITY, f64::NEG_INFINITY, 12.0];
        let mut text = Exposition::default();
        let mut family = text.family("saturn_x", Kind::Gauge, "A \\ and\na line.");
        for (label, value) in odd.iter().zip(values) {
            family.sample(&[("run", label), ("use", "a")], value);
        }
        let mut family = text.family("saturn_y_total", Kind::Counter, "Without labels.");
        family.number(&[], 7);
        let (samples, counters) = read::read(&text.into_text());
        assert_eq!(samples.len(), odd.len() + 1);
        for (label, value) in odd.iter().zip(values) {
            let labels = [("run", *label), ("use", "a")]
                .map(|(name, one)| (name.to_owned(), one.to_owned()));
            assert_eq!(samples[&("saturn_x".to_owned(), BTreeMap::from(labels))], value, "{label}");
        }
        assert!(counters.contains("saturn_y_total"));
    }
}
