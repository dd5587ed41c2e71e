//! Drift: a kernel that holds something else than it should, and what became of it.
//!
//! - What differed is told in counts: nothing that another process wrote is ever told as text, but for the name of that process.
//! - Numbers are never reused.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most bytes of a process's name: twice what a kernel keeps of one.
pub const WRITER_BYTES_MAX: usize = 32;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftKind {
    /// The kernel was read and holds something else than it should.
    Found,
    /// It was put right, and read back so.
    Repaired,
    /// Another process undoes each repair: from now on the slow tick alone repairs.
    Contended,
    /// Nobody does any more.
    Settled,
}

impl DriftKind {
    /// All of them, in the order in which they come.
    pub const ALL: [Self; 4] = [Self::Found, Self::Repaired, Self::Contended, Self::Settled];

    /// The number in frames and columns; never reused.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Found => 1,
            Self::Repaired => 2,
            Self::Contended => 3,
            Self::Settled => 4,
        }
    }

    /// The kind with a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The word in text, events and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Repaired => "repaired",
            Self::Contended => "contended",
            Self::Settled => "settled",
        }
    }
}

impl fmt::Display for DriftKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What of a table differs from what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DriftCounts {
    /// The table is gone or has other flags; nothing else is counted then.
    pub table: bool,
    /// Chains that lack, are too many, or hook in otherwise.
    pub chains: u32,
    /// Rules that lack.
    pub rules_missing: u32,
    /// Rules that nobody planned.
    pub rules_foreign: u32,
    /// Rules that are as planned, at another place.
    pub rules_moved: u32,
    /// Sets that lack, are too many, or are of another kind.
    pub sets: u32,
    /// Elements of sets that lack.
    pub elements_missing: u32,
    /// Elements of sets that nobody planned.
    pub elements_foreign: u32,
}

impl fmt::Display for DriftCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.table {
            return f.write_str("the table was gone or another one");
        }
        let counted = [
            (self.chains, "chains"),
            (self.rules_missing, "rules missing"),
            (self.rules_foreign, "foreign rules"),
            (self.rules_moved, "rules moved"),
            (self.sets, "sets"),
            (self.elements_missing, "elements missing"),
            (self.elements_foreign, "foreign elements"),
        ];
        let mut is_first = true;
        for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
            let between = if std::mem::take(&mut is_first) { "" } else { ", " };
            write!(f, "{between}{what}: {count}")?;
        }
        if is_first { f.write_str("nothing that is counted") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_number_and_one_word_each() {
        for kind in DriftKind::ALL {
            assert_eq!(DriftKind::from_number(kind.number()), Some(kind));
            assert_eq!(kind.to_string(), kind.word());
        }
        assert_eq!(DriftKind::from_number(0), None);
        assert_eq!(DriftKind::from_number(5), None);
    }

    #[test]
    fn counts_are_told_as_what_differs_and_no_more() {
        let counts = DriftCounts { rules_missing: 2, elements_foreign: 1, ..DriftCounts::default() };
        assert_eq!(counts.to_string(), "rules missing: 2, foreign elements: 1");
        assert_eq!(DriftCounts { table: true, ..counts }.to_string(), "the table was gone or another one");
        assert_eq!(DriftCounts::default().to_string(), "nothing that is counted");
    }
}
