//! The subjects on which events and hints travel.
//!
//! - An event's subject is `holdfast.event.KIND.AGGREGATE`: the kind's word may have dots, the aggregate (an id, or `fleet`) has none.
//! - The words of kinds are chosen so that none is the beginning of another, so a kind and an aggregate are told apart.

use crate::event::{Event, Kind};

/// What every event's subject begins with.
pub const EVENT_PREFIX: &str = "holdfast.event.";
/// What every directive's subject begins with.
pub const DIRECTIVE_PREFIX: &str = "holdfast.directive.";
/// What every hint's subject begins with.
pub const HINT_PREFIX: &str = "holdfast.hint.";

/// The text is no subject of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no subject of an event of Holdfast")]
pub struct SubjectError(String);

/// The subject of an event.
#[must_use]
pub fn event_subject(event: &Event) -> String {
    format!("{EVENT_PREFIX}{}.{}", event.kind(), event.aggregate())
}

/// The subjects of all events of a kind.
#[must_use]
pub fn event_filter(kind: Kind) -> String {
    format!("{EVENT_PREFIX}{kind}.*")
}

fn split(subject: &str) -> Result<(Kind, &str), SubjectError> {
    let wrong = || SubjectError(subject.chars().take(128).collect());
    let rest = subject.strip_prefix(EVENT_PREFIX).ok_or_else(wrong)?;
    let (kind, aggregate) = rest.rsplit_once('.').ok_or_else(wrong)?;
    if aggregate.is_empty() {
        return Err(wrong());
    }
    Ok((kind.parse().map_err(|_| wrong())?, aggregate))
}

/// The kind that an event's subject names.
///
/// # Errors
/// [`SubjectError`] if it is no subject of an event.
pub fn kind_of(subject: &str) -> Result<Kind, SubjectError> {
    split(subject).map(|(kind, _)| kind)
}

/// The aggregate that an event's subject names.
///
/// # Errors
/// [`SubjectError`] if it is no subject of an event.
pub fn aggregate_of(subject: &str) -> Result<&str, SubjectError> {
    split(subject).map(|(_, aggregate)| aggregate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::mk_all;

    #[test]
    fn a_subject_tells_kind_and_aggregate() {
        for event in mk_all() {
            let subject = event_subject(&event);
            assert_eq!(kind_of(&subject), Ok(event.kind()));
            assert_eq!(aggregate_of(&subject), Ok(event.aggregate().as_str()));
            assert!(subject.split('.').all(|token| {
                !token.is_empty() && token.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
            }));
        }
        assert!(kind_of("holdfast.event.intent.object.put").is_err());
        assert!(kind_of("holdfast.hint.event").is_err());
    }

    #[test]
    fn no_kind_is_the_beginning_of_another() {
        for a in Kind::ALL {
            for b in Kind::ALL {
                assert!(a == b || !b.word().starts_with(&format!("{a}.")), "{a} {b}");
            }
        }
    }
}
