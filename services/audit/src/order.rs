//! What to do with the next event: a pure decision on the control plane's own order.

use holdfast_api::audit::Place;

/// What to do with an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It follows.
    Append,
    /// It is in the log already.
    Skip,
    /// Events before it are missing: it must not be logged yet.
    Gap {
        /// What follows.
        expected: Place,
    },
}

/// Decides for an event at `found`, after the one at `last`.
///
/// An authority's first epoch and each later one begin at 1; what an epoch left unnumbered is numbered in the next.
#[must_use]
pub fn step(last: Option<Place>, found: Place) -> Step {
    let expected = match last {
        None => Place { seq: 1, ..found },
        Some(last) if found.authority_epoch > last.authority_epoch => Place { seq: 1, ..found },
        Some(last) => Place { seq: last.seq + 1, ..last },
    };
    if found == expected {
        Step::Append
    } else if last.is_some_and(|last| found <= last) {
        Step::Skip
    } else {
        Step::Gap { expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn place(authority_epoch: u64, seq: u64) -> Place {
        Place { authority_epoch, seq }
    }

    #[test]
    fn an_empty_log_begins_at_the_first_event_only() {
        assert_eq!(step(None, place(1, 1)), Step::Append);
        assert_eq!(step(None, place(1, 2)), Step::Gap { expected: place(1, 1) });
    }

    #[test]
    fn the_next_is_appended_an_older_one_skipped_and_a_hole_is_a_gap() {
        let last = Some(place(1, 7));
        assert_eq!(step(last, place(1, 8)), Step::Append);
        assert_eq!(step(last, place(1, 7)), Step::Skip);
        assert_eq!(step(last, place(1, 1)), Step::Skip);
        assert_eq!(step(last, place(1, 10)), Step::Gap { expected: place(1, 8) });
    }

    #[test]
    fn a_later_epoch_begins_anew_and_an_earlier_one_never_comes_back() {
        let last = Some(place(2, 7));
        assert_eq!(step(last, place(3, 1)), Step::Append);
        assert_eq!(step(last, place(3, 2)), Step::Gap { expected: place(3, 1) });
        assert_eq!(step(last, place(1, 900)), Step::Skip);
    }
}
