//! One breach of one rule: where it is and what to do.

use std::fmt;

/// A breach of a numbered rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The number of the rule: `A…` in `ARCHITECTURE.md`, `T…` in `CONTRIBUTING.md`.
    pub(crate) rule: &'static str,
    /// The file or crate it is about.
    pub(crate) place: String,
    /// The line, from 1, where there is one.
    pub(crate) line: Option<usize>,
    /// What is wrong, and what would be right.
    pub(crate) text: String,
}

impl Finding {
    /// A breach by a file or crate as a whole.
    pub(crate) fn new(rule: &'static str, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { rule, place: place.into(), line: None, text: text.into() }
    }

    /// A breach at one line.
    pub(crate) fn at(rule: &'static str, place: impl Into<String>, line: usize, text: impl Into<String>) -> Self {
        Self { rule, place: place.into(), line: Some(line), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} {}:{line}: {}", self.rule, self.place, self.text),
            None => write!(f, "{} {}: {}", self.rule, self.place, self.text),
        }
    }
}
