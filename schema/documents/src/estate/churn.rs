//! `ipset-churn/1`: versions of one address list, each as the text that would be published.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Error;
use super::file::{ChurnFile, ChurnStepFile, Facts};

/// A line that is neither prefix nor address, for steps that give only the numbers of their invalid lines.
const INVALID_LINE: &str = "not an address";

/// Versions of one address list.
#[derive(Debug)]
pub struct Churn {
    /// Its name.
    pub id: String,
    /// A line about it.
    pub title: String,
    /// The first version, as text with one entry a line.
    pub first: String,
    /// What is known about the first version.
    pub first_facts: Option<Facts>,
    /// The versions after it.
    pub steps: Vec<ChurnStep>,
}

/// One published version.
#[derive(Debug)]
pub struct ChurnStep {
    /// Its whole text, one entry a line.
    pub text: String,
    /// What is known about the list in force after it.
    pub after: Option<Facts>,
    /// Which of its lines are invalid, if it must be refused.
    pub refused: Option<Refused>,
}

/// Says that a version must be refused whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The number of its first invalid line, from 1.
    pub line: usize,
}

/// Rebuilds the texts: additions and removals are against the last good version.
pub(super) fn churn(file: ChurnFile) -> Result<Churn, Error> {
    let mut good = file.first.clone();
    let mut steps = Vec::new();
    for (index, step) in file.steps.into_iter().enumerate() {
        let place = format!("{} step {}", file.id, index + 1);
        let mut next = edited(&good, &step, &place)?;
        let refused = match &step.invalid_lines {
            None => None,
            Some(value) => spoil(&mut next, value, &place)?,
        };
        let text = text_of(&next);
        if refused.is_none() {
            good = next;
        }
        steps.push(ChurnStep { text, after: step.after, refused });
    }
    Ok(Churn { id: file.id, title: file.title, first: text_of(&file.first), first_facts: file.first_facts, steps })
}

fn text_of(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn edited(good: &[String], step: &ChurnStepFile, place: &str) -> Result<Vec<String>, Error> {
    let gone: BTreeSet<&String> = step.remove.iter().collect();
    let there: BTreeSet<&String> = good.iter().collect();
    if let Some(missing) = gone.difference(&there).next() {
        return Err(Error::value(place, format!("`{missing}` is removed and was not there")));
    }
    Ok(good.iter().filter(|line| !gone.contains(line)).chain(&step.add).cloned().collect())
}

/// Puts the invalid lines into a text: a line as it is goes to the end unless it was added already, a number names the place of one.
fn spoil(lines: &mut Vec<String>, value: &Value, place: &str) -> Result<Option<Refused>, Error> {
    let unknown = || Error::value(place, "`invalid_lines` are lines, numbers of lines, or both as `line` and `text`");
    let mut numbered = Vec::new();
    let mut texts = Vec::new();
    for item in value.as_array().ok_or_else(unknown)? {
        let number = item.as_u64().or_else(|| item.get("line").and_then(Value::as_u64));
        let text = item.as_str().or_else(|| item.get("text").and_then(Value::as_str));
        match (number, text) {
            (Some(number), text) => numbered.push((number, text.unwrap_or(INVALID_LINE).to_owned())),
            (None, Some(text)) => texts.push(text.to_owned()),
            (None, None) => return Err(unknown()),
        }
    }
    numbered.sort();
    let mut first = lines.iter().position(|line| texts.contains(line));
    for (number, text) in numbered {
        let index = usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1).min(lines.len());
        lines.insert(index, text);
        first = Some(first.map_or(index, |first| first.min(index)));
    }
    for text in texts {
        if !lines.contains(&text) {
            first = Some(first.unwrap_or(lines.len()));
            lines.push(text);
        }
    }
    Ok(first.map(|index| Refused { line: index + 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estate::{Input, read};

    fn churn_of(steps: &str) -> Churn {
        let text =
            format!(r#"{{"format":"ipset-churn/1","id":"c","first":["10.0.0.0/8","192.0.2.0/24"],"steps":{steps}}}"#);
        let Ok(Input::Churn(churn)) = read(&text, &mut |_| None) else { panic!("a churn file") };
        churn
    }

    #[test]
    fn a_refused_version_is_no_base_for_the_next() {
        let churn = churn_of(
            r#"[{"add":["11.0.0.0/8"],"remove":["10.0.0.0/8"],"invalid_lines":["<html>"]},{"add":["12.0.0.0/8"],"remove":["192.0.2.0/24"]}]"#,
        );
        assert_eq!(churn.steps[0].text, "192.0.2.0/24\n11.0.0.0/8\n<html>\n");
        assert_eq!(churn.steps[0].refused, Some(Refused { line: 3 }));
        assert_eq!(churn.steps[1].text, "10.0.0.0/8\n12.0.0.0/8\n");
        assert_eq!(churn.steps[1].refused, None);
    }

    #[test]
    fn invalid_lines_may_be_numbers_and_may_be_among_the_additions() {
        let churn = churn_of(
            r#"[{"invalid_lines":[2]},{"add":["x"],"invalid_lines":["x"]},{"invalid_lines":[{"line":1,"text":"y"}]}]"#,
        );
        assert_eq!(churn.steps[0].text, "10.0.0.0/8\nnot an address\n192.0.2.0/24\n");
        assert_eq!(churn.steps[0].refused, Some(Refused { line: 2 }));
        assert_eq!(churn.steps[1].refused, Some(Refused { line: 3 }));
        assert_eq!(churn.steps[2].refused, Some(Refused { line: 1 }));
    }

    #[test]
    fn a_removal_of_what_was_not_there_is_an_error() {
        let text = r#"{"format":"ipset-churn/1","id":"c","first":[],"steps":[{"remove":["10.0.0.0/8"]}]}"#;
        assert!(matches!(read(text, &mut |_| None), Err(Error::Value { .. })));
    }
}
