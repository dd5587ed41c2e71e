//! Text to a tree of values that knows its lines.
//!
//! - JSON is read as the YAML that it is. Words like `yes` are text (YAML 1.2).
//! - Repeated fields stay in the tree, so that the reader can name them.
//! - Every value that an alias makes again counts against the limit.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};
use std::fmt;

use crate::limits;

/// A value and the line it is on.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) value: Value,
}

/// One value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Fraction,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Value {
    /// What it is, for messages.
    pub(crate) const fn noun(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Fraction => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Why a text has no tree.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    /// The line, 0 if it is not known.
    pub(crate) line: u64,
    /// What is wrong.
    pub(crate) message: String,
}

/// The documents of a text that have content.
pub(crate) fn parse(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let documents: Vec<Spanned<Value>> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| SyntaxError {
            line: error.location().map_or(0, |location| location.line()),
            message: first_line(&error.without_snippet().to_string()),
        })?;
    Ok(documents.into_iter().map(Node::from).collect())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(limits::QUOTE_BYTES_MAX * 2).collect()
}

fn options() -> Options {
    let budget = serde_saphyr::budget! {
        max_reader_input_bytes: Some(limits::FILE_BYTES_MAX),
        // A list or map is two events, anything else one; each document adds a few.
        max_events: 2 * limits::NODES_MAX + 4 * limits::DOCUMENTS_MAX,
        max_aliases: limits::ALIASES_MAX,
        max_anchors: limits::ALIASES_MAX,
        max_recorded_anchor_events: limits::NODES_MAX,
        max_recorded_anchor_bytes: limits::FILE_BYTES_MAX,
        max_depth: limits::DEPTH_MAX,
        flow_nesting_limit: limits::DEPTH_MAX,
        max_inclusion_depth: 0,
        // The reader counts them itself, for a rule of their own; no text has more than bytes.
        max_documents: limits::FILE_BYTES_MAX,
        max_nodes: limits::NODES_MAX,
        max_total_scalar_bytes: limits::FILE_BYTES_MAX,
        max_total_comment_bytes: limits::FILE_BYTES_MAX,
        max_merge_keys: limits::ALIASES_MAX,
    };
    let alias_limits = serde_saphyr::alias_limits! {
        max_total_replayed_events: limits::ALIAS_NODES_MAX,
        max_replay_stack_depth: limits::DEPTH_MAX,
    };
    serde_saphyr::options! {
        budget: budget,
        alias_limits: alias_limits,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { line: spanned.referenced.line(), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Fraction, Value::Integer))
    }

    fn visit_i128<E>(self, _: i128) -> Result<Value, E> {
        Ok(Value::Fraction)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Value, E> {
        Ok(Value::Fraction)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Fraction)
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Value, E> {
        Err(E::custom("binary values are not read"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Value>>()? {
            list.push(Node::from(item));
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Spanned<Value>>()? {
            if fields.len() >= limits::NODES_MAX {
                return Err(A::Error::custom("a map has too many fields"));
            }
            fields.push((key, Node::from(value)));
        }
        Ok(Value::Map(fields))
    }
}
