//! Losses and metrics in JSON. JSON has neither NaN nor infinities, so these are written as the
//! strings `"nan"`, `"inf"` and `"-inf"`, and read back as numbers.
//!
//! Python's counterpart is `python/saturn/plain/measures.py`. `null` stands for an unknown value.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// A number that may be NaN or infinite.
#[derive(Clone, Copy)]
struct Measure(f64);

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_finite() => serializer.serialize_f64(value),
            value if value.is_nan() => serializer.serialize_str("nan"),
            value if value > 0.0 => serializer.serialize_str("inf"),
            _ => serializer.serialize_str("-inf"),
        }
    }
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading)
    }
}

struct Reading;

impl Visitor<'_> for Reading {
    type Value = Measure;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a number, \"nan\", \"inf\" or \"-inf\"")
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Measure, E> {
        Ok(Measure(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Measure, E> {
        Ok(Measure(value as f64))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Measure, E> {
        Ok(Measure(value as f64))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Measure, E> {
        match value {
            "nan" => Ok(Measure(f64::NAN)),
            "inf" => Ok(Measure(f64::INFINITY)),
            "-inf" => Ok(Measure(f64::NEG_INFINITY)),
            other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
        }
    }
}

/// For `#[serde(with = …)]` of a loss; `None` if it is unknown.
pub mod optional {
    use super::{Deserialize, Deserializer, Measure, Serialize, Serializer};

    /// Writes the loss.
    pub fn serialize<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        value.map(Measure).serialize(to)
    }

    /// Reads a loss.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Measure>::deserialize(from)?.map(|measure| measure.0))
    }
}

/// For `#[serde(with = …)]` of metrics by name. `None` comes from journals that did not distinguish
/// NaN and infinities; it was one of these.
pub mod by_name {
    use super::{BTreeMap, Deserialize, Deserializer, Measure, Serializer};

    /// Writes the metrics.
    pub fn serialize<S: Serializer>(
        values: &BTreeMap<String, Option<f64>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(values.iter().map(|(name, value)| (name, value.map(Measure))))
    }

    /// Reads metrics.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, Option<f64>>, D::Error> {
        let read = BTreeMap::<String, Option<Measure>>::deserialize(from)?;
        let plain = |(name, value): (String, Option<Measure>)| (name, value.map(|one| one.0));
        Ok(read.into_iter().map(plain).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Entry {
        #[serde(default, with = "super::optional")]
        loss: Option<f64>,
        #[serde(default, with = "super::by_name")]
        metrics: BTreeMap<String, Option<f64>>,
    }

    #[test]
    fn numbers_that_are_none_come_through_json_as_they_are() {
        let values = [1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
        for value in values {
            let told = Entry { loss: Some(value), metrics: [("a".to_owned(), Some(value))].into() };
            let text = serde_json::to_string(&told).unwrap();
            let read: Entry = serde_json::from_str(&text).unwrap();
            for found in [read.loss, read.metrics["a"]] {
                let found = found.unwrap();
                assert!(found.to_bits() == value.to_bits() || found.is_nan() && value.is_nan());
            }
        }
        let read: Entry = serde_json::from_str(r#"{"loss": null, "metrics": {"a": 3}}"#).unwrap();
        assert_eq!((read.loss, read.metrics["a"]), (None, Some(3.0)));
        assert_eq!(serde_json::from_str::<Entry>("{}").unwrap().loss, None);
        let refused = serde_json::from_str::<Entry>(r#"{"loss": "low"}"#).err().unwrap();
        assert!(refused.to_string().contains("\"nan\", \"inf\" or \"-inf\""), "{refused}");
    }
}
