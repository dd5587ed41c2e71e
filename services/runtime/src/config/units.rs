//! Durations and sizes as people write them: `30s`, `1h30m`, `16MiB`.
//!
//! - A number without a unit is refused: nobody has to know what a bare 30 means.
//! - Every value prints back to a text that reads as the same value.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Why a text is no duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a duration.
    #[error("`{text}` is no duration: whole numbers with a unit of d, h, m, s or ms, such as `30s` or `1h30m`")]
    Duration {
        /// The offending text, cut to 64 characters.
        text: String,
    },
    /// Not a size.
    #[error("`{text}` is no size: a whole number with a unit of B, KiB, MiB, GiB or TiB, such as `16MiB`")]
    Size {
        /// The offending text, cut to 64 characters.
        text: String,
    },
}

/// Largest unit first: this is the order in which a duration is printed.
const DURATIONS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A span of time in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(Duration);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Span {
    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// The span as the standard library has it.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl Size {
    /// So many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let millis = || {
            let mut rest = text;
            let mut total: u64 = 0;
            let mut largest = u64::MAX;
            while !rest.is_empty() {
                let (number, unit_and_rest) = split_number(rest)?;
                let letters = unit_and_rest.find(|char: char| !char.is_ascii_alphabetic());
                let (unit, after) = unit_and_rest.split_at(letters.unwrap_or(unit_and_rest.len()));
                let factor = DURATIONS.iter().find(|(name, _)| *name == unit)?.1;
                // Each unit once, from large to small: `30m1h` is a slip of the pen.
                if factor >= largest {
                    return None;
                }
                largest = factor;
                total = total.checked_add(number.checked_mul(factor)?)?;
                rest = after;
            }
            (!text.is_empty()).then_some(total)
        };
        millis().map(Self::from_millis).ok_or_else(|| Error::Duration { text: text.chars().take(64).collect() })
    }
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = || {
            let (number, unit) = split_number(text)?;
            number.checked_mul(SIZES.iter().find(|(name, _)| *name == unit)?.1)
        };
        bytes().map(Self).ok_or_else(|| Error::Size { text: text.chars().take(64).collect() })
    }
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|char: char| !char.is_ascii_digit())?;
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, rest))
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in DURATIONS {
            if millis >= factor {
                write!(f, "{}{unit}", millis / factor)?;
                millis %= factor;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = SIZES.into_iter().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        let (unit, factor) = whole.unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

macro_rules! text_form {
    ($($name:ident)+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )+};
}

text_form! { Span Size }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_and_print_back() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("2d", 172_800_000),
            ("1m5s20ms", 65_020),
            ("0s", 0),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.duration(), Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("90m".parse::<Span>().unwrap().to_string(), "1h30m");
        for (text, bytes) in [("16MiB", 16 << 20), ("1536B", 1_536), ("2GiB", 2 << 30), ("0B", 0)] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.bytes(), bytes, "{text}");
            assert_eq!(size.to_string(), text);
        }
        assert_eq!("1024KiB".parse::<Size>().unwrap().to_string(), "1MiB");
    }

    #[test]
    fn texts_without_a_unit_or_with_a_slip_are_refused() {
        for text in [
            "",
            "30",
            "s",
            "30 s",
            "1.5h",
            "-1s",
            "30m1h",
            "1s1s",
            "30S",
            "1h30",
            "999999999999999999999s",
            "18446744073709551615d",
            "+1s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "16", "16MB", "16 MiB", "16mib", "1.5GiB", "-1B", "16MiB1B", "99999999999TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
