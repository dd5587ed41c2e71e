//! Labels and the selectors that read them.
//!
//! - One grammar at every entry (Kubernetes' label syntax): a key is an optional DNS prefix of at most 253 bytes and `/`, then 1 to 63 bytes of
//!   letters, digits, `-`, `_` and `.`; a value is empty or 1 to 63 such bytes; a letter or digit at both ends.
//! - A selector has a text form too ([`Selector`]'s `FromStr`), which commands take: `app=web,tier!=test,canary,!legacy,zone in (a, b)`.
//! - A selector's parts all must hold. One without parts holds for everything; whether that may be authored is the document's business.

mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use text::SelectorError;

/// The labels of one thing. Keys and values passed [`check_key`] and [`check_value`] where they were authored.
pub type Labels = BTreeMap<String, String>;

/// The most bytes in the name part of a key and in a value.
pub const PART_BYTES_MAX: usize = 63;
/// The most bytes in the prefix of a key.
pub const PREFIX_BYTES_MAX: usize = 253;

/// Why a text is no label key or value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LabelError {
    /// Not a key.
    #[error(
        "a label key is an optional DNS prefix with `/`, then 1 to 63 letters, digits, `-`, `_` or `.`, \
         with a letter or digit at both ends"
    )]
    Key,
    /// Not a value.
    #[error("a label value is empty or 1 to 63 letters, digits, `-`, `_` or `.`, with a letter or digit at both ends")]
    Value,
}

fn is_part(text: &str) -> bool {
    let inner = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let end = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= PART_BYTES_MAX && bytes.iter().all(inner) && end(bytes.first()) && end(bytes.last())
}

/// Checks a label key.
///
/// # Errors
/// [`LabelError::Key`].
pub fn check_key(key: &str) -> Result<(), LabelError> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let good_prefix = prefix.is_none_or(|prefix| {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
        prefix.len() <= PREFIX_BYTES_MAX && !prefix.is_empty() && prefix.bytes().all(inner)
    });
    if good_prefix && is_part(name) { Ok(()) } else { Err(LabelError::Key) }
}

/// Checks a label value.
///
/// # Errors
/// [`LabelError::Value`].
pub fn check_value(value: &str) -> Result<(), LabelError> {
    if value.is_empty() || is_part(value) { Ok(()) } else { Err(LabelError::Value) }
}

/// One condition on labels. An absent key satisfies [`Requirement::NotIn`], as in Kubernetes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "operator", rename_all = "camelCase")]
pub enum Requirement {
    /// The key has one of these values.
    In {
        /// The key.
        key: String,
        /// Sorted and unique.
        values: Vec<String>,
    },
    /// The key is absent or has none of these values.
    NotIn {
        /// The key.
        key: String,
        /// Sorted and unique.
        values: Vec<String>,
    },
    /// The key is present.
    Exists {
        /// The key.
        key: String,
    },
    /// The key is absent.
    DoesNotExist {
        /// The key.
        key: String,
    },
}

impl Requirement {
    /// The key that it reads.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::In { key, .. } | Self::NotIn { key, .. } | Self::Exists { key } | Self::DoesNotExist { key } => key,
        }
    }

    /// Whether the labels satisfy it.
    #[must_use]
    pub fn holds(&self, labels: &Labels) -> bool {
        let among = |key: &String, values: &[String]| labels.get(key).map(|value| values.contains(value));
        match self {
            Self::In { key, values } => among(key, values) == Some(true),
            Self::NotIn { key, values } => among(key, values) != Some(true),
            Self::Exists { key } => labels.contains_key(key),
            Self::DoesNotExist { key } => !labels.contains_key(key),
        }
    }
}

/// Conditions that all must hold; none of them holds for everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// The selector that everything satisfies.
    #[must_use]
    pub const fn everything() -> Self {
        Self(Vec::new())
    }

    /// A selector in canonical form: requirements and their values sorted, each once.
    #[must_use]
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        for requirement in &mut requirements {
            match requirement {
                Requirement::In { values, .. } | Requirement::NotIn { values, .. } => {
                    values.sort_unstable();
                    values.dedup();
                }
                Requirement::Exists { .. } | Requirement::DoesNotExist { .. } => {}
            }
        }
        requirements.sort_unstable();
        requirements.dedup();
        Self(requirements)
    }

    /// A selector of labels that all must be equal.
    #[must_use]
    pub fn equal_to(labels: &Labels) -> Self {
        let one = |(key, value): (&String, &String)| Requirement::In { key: key.clone(), values: vec![value.clone()] };
        Self::new(labels.iter().map(one).collect())
    }

    /// Its conditions, sorted.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Whether it has no condition.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the labels satisfy every condition.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_grammar_takes_kubernetes_keys_and_refuses_the_rest() {
        for key in ["app", "kubernetes.io/metadata.name", "a", "A.b-c_d9", "k8s.namespace"] {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        let long = "a".repeat(64);
        for key in ["", "/", "/a", "a/", "-a", "a-", "a b", "ä", "A.io/x", &long] {
            assert_eq!(check_key(key), Err(LabelError::Key), "{key}");
        }
        assert_eq!(check_value(""), Ok(()));
        assert_eq!(check_value("v1.2_3-x"), Ok(()));
        for value in ["-", "a/b", &long, "x "] {
            assert_eq!(check_value(value), Err(LabelError::Value), "{value}");
        }
    }

    #[test]
    fn an_absent_key_satisfies_not_in_and_only_that() {
        let none = Labels::new();
        let key = || "k".to_owned();
        assert!(Requirement::NotIn { key: key(), values: vec!["v".to_owned()] }.holds(&none));
        assert!(!Requirement::In { key: key(), values: vec!["v".to_owned()] }.holds(&none));
        assert!(Requirement::DoesNotExist { key: key() }.holds(&none));
        assert!(!Requirement::Exists { key: key() }.holds(&none));
        assert!(Selector::everything().matches(&none));
    }
}
