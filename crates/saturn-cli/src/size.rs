//! Sizes of memory as people write them: `600MB`, `2GiB`, plain bytes.

use std::str::FromStr;

use saturn_runtime::DeviceMemory;

/// Bytes of each unit, decimal and binary.
const UNITS: [(&str, f64); 9] = [
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
];
/// Less is a typing error, such as a forgotten unit; no model trains in it.
const LEAST_BYTES: f64 = 1e6;
/// More is meaningless, and can't be represented exactly here.
const MOST_BYTES: f64 = 9e15;

/// A device's memory on the command line: a size, or `none` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) DeviceMemory);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self(DeviceMemory::Unlimited));
        }
        let unit_at = text.find(|one: char| one.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit = if unit.is_empty() { "b".to_owned() } else { unit.to_ascii_lowercase() };
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let (Ok(number), Some(factor)) = (number.trim().parse::<f64>(), factor) else {
            return Err("write a size such as 600MB, 2GiB or 600000000, or none".to_owned());
        };
        let bytes = number * factor;
        if !(LEAST_BYTES..=MOST_BYTES).contains(&bytes) {
            return Err(format!("it is {bytes} bytes; it must be at least 1MB (and below 9PB)"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be positive and exact just above"
        )]
        let bytes = bytes.round() as u64;
        Ok(Self(DeviceMemory::Bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let bytes = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(bytes("600MB"), Ok(DeviceMemory::Bytes(600_000_000)));
        assert_eq!(bytes(" 2 GiB "), Ok(DeviceMemory::Bytes(2 << 30)));
        assert_eq!(bytes("1.5gb"), Ok(DeviceMemory::Bytes(1_500_000_000)));
        assert_eq!(bytes("600000000"), Ok(DeviceMemory::Bytes(600_000_000)));
        assert_eq!(bytes("None"), Ok(DeviceMemory::Unlimited));
        for wrong in ["", "MB", "600M", "-1GB", "6e", "nan", "inf", "600", "1e300TB", "2 GB 3"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
