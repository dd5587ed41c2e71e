//! Reading a tree with a path in hand, so that a fault can say where it is.
//!
//! A read that fails puts a fault and answers `None`; the caller goes on with the next field. An object counts only if its document had no fault.

use crate::fault::{RuleName, Sink, quote};
use crate::limits;
use crate::near::did_you_mean;
use crate::tree::{Node, Value};

/// What a field without a value means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nulls {
    /// As if it were not there, as in Kubernetes.
    Absent,
    /// A fault.
    Fault,
}

/// One value and where it is.
#[derive(Clone, Debug)]
pub(crate) struct At<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: String,
}

impl<'a> At<'a> {
    /// The value of a whole document.
    pub(crate) const fn root(node: &'a Node) -> Self {
        Self { node, path: String::new() }
    }

    /// Puts a fault here.
    pub(crate) fn fault(&self, sink: &mut Sink, rule: RuleName, message: impl Into<String>) {
        sink.put(self.node.line, &self.path, rule, message.into());
    }

    fn wrong_type(&self, sink: &mut Sink, wanted: &str) {
        self.fault(sink, RuleName::Type, format!("{wanted} is wanted here, this is {}", self.node.value.noun()));
    }

    /// The text.
    pub(crate) fn text(&self, sink: &mut Sink) -> Option<&'a str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Integer(_) | Value::Fraction => {
                self.fault(sink, RuleName::Type, "a text is wanted here: put it in quotes");
                None
            }
            Value::Null | Value::List(_) | Value::Map(_) => {
                self.wrong_type(sink, "a text");
                None
            }
        }
    }

    /// The number.
    pub(crate) fn integer(&self, sink: &mut Sink) -> Option<i64> {
        match &self.node.value {
            Value::Integer(number) => Some(*number),
            Value::Null | Value::Bool(_) | Value::Fraction | Value::Text(_) | Value::List(_) | Value::Map(_) => {
                self.wrong_type(sink, "a whole number");
                None
            }
        }
    }

    /// The answer to yes or no.
    pub(crate) fn boolean(&self, sink: &mut Sink) -> Option<bool> {
        match &self.node.value {
            Value::Bool(answer) => Some(*answer),
            Value::Null | Value::Integer(_) | Value::Fraction | Value::Text(_) | Value::List(_) | Value::Map(_) => {
                self.wrong_type(sink, "`true` or `false`");
                None
            }
        }
    }

    /// The items of a list of bounded length.
    pub(crate) fn items(&self, sink: &mut Sink, items_max: usize) -> Option<Vec<At<'a>>> {
        match &self.node.value {
            Value::List(list) if list.len() > items_max => {
                let message = format!("a list of {} entries, at most {items_max} are read here", list.len());
                self.fault(sink, RuleName::ListLimit, message);
                None
            }
            Value::List(list) => {
                let item = |(index, node)| At { node, path: format!("{}[{index}]", self.path) };
                Some(list.iter().enumerate().map(item).collect())
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Fraction | Value::Text(_) | Value::Map(_) => {
                self.wrong_type(sink, "a list");
                None
            }
        }
    }

    /// The fields of a map.
    pub(crate) fn fields(&self, sink: &mut Sink, nulls: Nulls) -> Option<Fields<'a>> {
        match &self.node.value {
            Value::Map(fields) if fields.len() > limits::LIST_MAX => {
                let message = format!("a map of {} fields, at most {} are read", fields.len(), limits::LIST_MAX);
                self.fault(sink, RuleName::ListLimit, message);
                None
            }
            Value::Map(fields) => Some(Fields::open(self, fields, nulls, sink)),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Fraction | Value::Text(_) | Value::List(_) => {
                self.wrong_type(sink, "a map");
                None
            }
        }
    }
}

/// The fields of one map, taken one by one; those left at the end are unknown.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    whole: At<'a>,
    left: Vec<(&'a str, At<'a>)>,
    /// The names that were asked for: what a misspelt one may have meant.
    asked: Vec<String>,
}

impl<'a> Fields<'a> {
    fn open(whole: &At<'a>, fields: &'a [(String, Node)], nulls: Nulls, sink: &mut Sink) -> Self {
        let mut left: Vec<(&str, At<'_>)> = Vec::with_capacity(fields.len());
        for (name, node) in fields {
            let path = if whole.path.is_empty() { shown(name) } else { format!("{}.{}", whole.path, shown(name)) };
            let at = At { node, path };
            if left.iter().any(|(there, _)| there == name) {
                at.fault(sink, RuleName::FieldRepeated, "this field is there twice");
            } else if !matches!(node.value, Value::Null) {
                left.push((name, at));
            } else if nulls == Nulls::Fault {
                at.fault(sink, RuleName::ValueNull, "this field has no value: give it one or leave the field out");
            }
        }
        Self { whole: whole.clone(), left, asked: Vec::new() }
    }

    /// Where the whole map is.
    pub(crate) const fn whole(&self) -> &At<'a> {
        &self.whole
    }

    /// The field, if it is there.
    pub(crate) fn take(&mut self, name: &str) -> Option<At<'a>> {
        match self.left.iter().position(|(there, _)| *there == name) {
            Some(index) => Some(self.left.remove(index).1),
            None => {
                self.asked.push(name.to_owned());
                None
            }
        }
    }

    /// The field, or a fault.
    pub(crate) fn need(&mut self, sink: &mut Sink, name: &str) -> Option<At<'a>> {
        let found = self.take(name);
        if found.is_none() {
            self.whole.fault(sink, RuleName::FieldMissing, format!("the field `{name}` is missing"));
        }
        found
    }

    /// Takes fields that are known and mean nothing here.
    pub(crate) fn skip(&mut self, names: &[&str]) {
        self.left.retain(|(name, _)| !names.contains(name));
    }

    /// All that is left, when the names are data.
    pub(crate) fn rest(self) -> Vec<(&'a str, At<'a>)> {
        self.left
    }

    /// Puts a fault for each field that nobody took.
    pub(crate) fn end(self, sink: &mut Sink) {
        for (name, at) in self.left {
            // What is there already was not meant.
            let near = did_you_mean(name, self.asked.iter().map(String::as_str));
            at.fault(sink, RuleName::FieldUnknown, format!("the field {} is not known here{near}", quote(name)));
        }
    }
}

/// A field name in a path: bare if it is a word, in brackets if it could be mistaken for a path.
fn shown(name: &str) -> String {
    let word = !name.is_empty() && name.len() <= 64 && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    if word { name.to_owned() } else { format!("[{}]", quote(name)) }
}
