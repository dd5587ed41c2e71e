//! The text form of a selector, as commands take it: Kubernetes' `key=value,key!=value,key,!key,key in (a, b),key notin (a, b)`.
//!
//! - What is written is read back as the same selector.
//! - A text that selects everything is refused: whoever means everybody says so in another way.

use std::fmt;
use std::str::FromStr;

use super::{LabelError, Requirement, Selector, check_key, check_value};

/// Why a text is no selector.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectorError {
    /// It has no condition, or one of its conditions is empty.
    #[error("a selector has at least one condition, and none is empty: write key=value, or key")]
    Empty,
    /// A condition has a key or a value that cannot be.
    #[error("`{part}` is no condition on labels")]
    Part {
        /// Which, cut to 64 characters.
        part: String,
        /// What is wrong with it.
        #[source]
        source: LabelError,
    },
    /// A list of values is not in parentheses, or is empty.
    #[error("`{0}` is no condition on labels: write key in (a, b)")]
    List(
        /// Which, cut to 64 characters.
        String,
    ),
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let parts = split(text);
        if parts.iter().any(|part| part.trim().is_empty()) {
            return Err(SelectorError::Empty);
        }
        Ok(Self::new(parts.into_iter().map(requirement).collect::<Result<_, _>>()?))
    }
}

/// The parts between commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0_u32, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let cut = || part.trim().chars().take(64).collect::<String>();
    let bad = |source| SelectorError::Part { part: cut(), source };
    let key = |text: &str| check_key(text.trim()).map(|()| text.trim().to_owned()).map_err(bad);
    let value = |text: &str| check_value(text.trim()).map(|()| text.trim().to_owned()).map_err(bad);
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Requirement::NotIn { key: key(left)?, values: vec![value(right)?] });
    }
    if let Some((left, right)) = part.split_once('=') {
        let right = right.strip_prefix('=').unwrap_or(right);
        return Ok(Requirement::In { key: key(left)?, values: vec![value(right)?] });
    }
    if let Some((left, rest)) = part.split_once('(') {
        let inside = rest.trim_end().strip_suffix(')').ok_or_else(|| SelectorError::List(cut()))?;
        if inside.trim().is_empty() {
            return Err(SelectorError::List(cut()));
        }
        let values = inside.split(',').map(value).collect::<Result<Vec<_>, _>>()?;
        let mut words = left.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(name), Some("in"), None) => Ok(Requirement::In { key: key(name)?, values }),
            (Some(name), Some("notin"), None) => Ok(Requirement::NotIn { key: key(name)?, values }),
            _ => Err(SelectorError::List(cut())),
        };
    }
    match part.trim().strip_prefix('!') {
        Some(name) => Ok(Requirement::DoesNotExist { key: key(name)? }),
        None => Ok(Requirement::Exists { key: key(part)? }),
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements().iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::In { key, values } => match values.as_slice() {
                    [value] => write!(f, "{key}={value}")?,
                    values => write!(f, "{key} in ({})", values.join(","))?,
                },
                Requirement::NotIn { key, values } => match values.as_slice() {
                    [value] => write!(f, "{key}!={value}")?,
                    values => write!(f, "{key} notin ({})", values.join(","))?,
                },
                Requirement::Exists { key } => f.write_str(key)?,
                Requirement::DoesNotExist { key } => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_is_read_again() {
        for (text, written) in [
            ("app=web", "app=web"),
            (" app == web , tier!=test", "app=web,tier!=test"),
            ("canary,!legacy", "canary,!legacy"),
            ("zone in (b, a),k8s.io/x notin (c,d)", "zone in (a,b),k8s.io/x notin (c,d)"),
            ("zone in (a)", "zone=a"),
            ("empty=", "empty="),
        ] {
            let read: Selector = text.parse().expect(text);
            assert_eq!(read.to_string().parse::<Selector>().as_ref(), Ok(&read), "{text}");
            assert_eq!(read, written.parse().expect(written), "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_the_part_that_is_none() {
        for text in ["", " ", "a,,b", "a,"] {
            assert_eq!(text.parse::<Selector>(), Err(SelectorError::Empty), "{text}");
        }
        for text in [
            "a b",
            "=x",
            "a=b c",
            "a in b",
            "a in (b",
            "a of (b)",
            "a in ()",
            "a notin ( )",
            "a in (b) c",
            "10%",
            "a=b=c",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
