//! Label selectors: Kubernetes' `matchLabels` and `matchExpressions`, and our explicit `all: true`.

use holdfast_model::label::{Requirement, Selector};

use crate::cursor::{At, Nulls};
use crate::fault::{RuleName, Sink, quote};
use crate::limits;
use crate::scalar;

/// What a selector without conditions means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Empty {
    /// Everything, as in Kubernetes.
    All,
    /// A fault: `all: true` says it.
    Fault,
}

/// Reads a selector.
pub(crate) fn selector(at: &At<'_>, sink: &mut Sink, empty: Empty) -> Option<Selector> {
    let nulls = match empty {
        Empty::All => Nulls::Absent,
        Empty::Fault => Nulls::Fault,
    };
    let mut fields = at.fields(sink, nulls)?;
    let faults_before = sink.len();
    let mut requirements = Vec::new();
    if let Some(labels_at) = fields.take("matchLabels") {
        let one = |(key, value)| Requirement::In { key, values: vec![value] };
        requirements.extend(scalar::labels(&labels_at, sink, nulls).into_iter().flatten().map(one));
    }
    if let Some(list_at) = fields.take("matchExpressions") {
        let items = list_at.items(sink, limits::LIST_MAX).unwrap_or_default();
        requirements.extend(items.iter().filter_map(|item| requirement(item, sink, nulls)));
    }
    let all = match empty {
        Empty::All => false,
        Empty::Fault => fields.take("all").is_some_and(|all_at| explicit_all(&all_at, sink)),
    };
    fields.end(sink);
    if sink.len() > faults_before {
        return None;
    }
    if all && !requirements.is_empty() {
        at.fault(sink, RuleName::SelectorAll, "`all: true` and conditions exclude each other");
        return None;
    }
    if requirements.is_empty() && !all && empty == Empty::Fault {
        at.fault(sink, RuleName::SelectorEmpty, "an empty selector is refused: write `all: true` if all are meant");
        return None;
    }
    Some(Selector::new(requirements))
}

fn explicit_all(at: &At<'_>, sink: &mut Sink) -> bool {
    let answer = at.boolean(sink);
    if answer == Some(false) {
        at.fault(sink, RuleName::SelectorAll, "`all` can only be `true`; leave it out otherwise");
    }
    answer == Some(true)
}

fn requirement(at: &At<'_>, sink: &mut Sink, nulls: Nulls) -> Option<Requirement> {
    let mut fields = at.fields(sink, nulls)?;
    let key = fields.need(sink, "key").and_then(|at| scalar::label_key(at.text(sink)?, &at, sink));
    let operator = fields.need(sink, "operator").and_then(|at| Some((at.text(sink)?, at)));
    let values = fields.take("values").map(|at| {
        let items = at.items(sink, limits::LIST_MAX).unwrap_or_default();
        items.iter().filter_map(|item| scalar::label_value(item, sink)).collect::<Vec<String>>()
    });
    let whole = fields.whole().clone();
    fields.end(sink);
    let (word, operator_at) = operator?;
    let some = values.clone().filter(|values| !values.is_empty());
    let none = values.is_none_or(|values| values.is_empty());
    match word {
        "In" | "NotIn" => {
            let Some(values) = some else {
                whole.fault(sink, RuleName::SelectorValues, format!("`{word}` needs at least one value"));
                return None;
            };
            let key = key?;
            Some(if word == "In" { Requirement::In { key, values } } else { Requirement::NotIn { key, values } })
        }
        "Exists" | "DoesNotExist" => {
            if !none {
                whole.fault(sink, RuleName::SelectorValues, format!("`{word}` takes no values"));
                return None;
            }
            let key = key?;
            Some(if word == "Exists" { Requirement::Exists { key } } else { Requirement::DoesNotExist { key } })
        }
        _ => {
            let message = format!("{} is not In, NotIn, Exists or DoesNotExist", quote(word));
            operator_at.fault(sink, RuleName::SelectorOperator, message);
            None
        }
    }
}
