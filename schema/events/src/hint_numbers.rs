//! What a listener keeps of the numbers of hints, to know when some may be missing.

use holdfast_model::numbers::LeaseTerm;

use crate::hint::HostHint;

/// The number of the last host hint that was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HintNumbers {
    last: Option<(LeaseTerm, u64)>,
}

impl HintNumbers {
    /// Nothing was heard yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// Takes the next hint that was heard; whether hints may be missing before it.
    ///
    /// Under one lease they are numbered from 1 without a hole, so the first that is heard, a hole, and another lease are doubts: whoever led before may
    /// have stored what it never told. An older lease is one too, since the database may have been restored, with its leases; and so is the first of a
    /// lease of which later ones were heard, since a restored database gives the same lease again. Any other that repeats an older number of the lease
    /// that was heard last tells nothing.
    pub fn are_in_doubt_before(&mut self, hint: &HostHint) -> bool {
        let of_this_lease = self.last.filter(|(term, _)| *term == hint.lease_term).map(|(_, n)| n);
        if of_this_lease.is_some_and(|n| hint.n == n || (1 < hint.n && hint.n < n)) {
            return false;
        }
        self.last = Some((hint.lease_term, hint.n));
        of_this_lease.is_none_or(|n| n.saturating_add(1) != hint.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_in_the_numbers_of_hints_and_another_renderer_are_told_once_and_repetition_is_none() {
        let mut numbers = HintNumbers::new();
        let mut are_in_doubt = |term, n| {
            let lease_term = LeaseTerm::from_raw(term);
            numbers.are_in_doubt_before(&HostHint { lease_term, n, of: None, states: Vec::new() })
        };
        assert!(are_in_doubt(2, 40), "the first that is heard");
        assert!(!are_in_doubt(2, 41));
        assert!(are_in_doubt(2, 43));
        assert!(!are_in_doubt(2, 44), "told once");
        assert!(!are_in_doubt(2, 42) && !are_in_doubt(2, 44), "late, and again");
        assert!(are_in_doubt(3, 1), "another renderer: the one before may have stored what it never told");
        assert!(!are_in_doubt(3, 2));
        assert!(are_in_doubt(5, 2), "another one, whose first is missing");
        assert!(are_in_doubt(5, u64::MAX) && !are_in_doubt(5, 3) && are_in_doubt(6, 1), "whatever a stranger numbers");
        assert!(are_in_doubt(2, 1), "an older one: its lease may be of a database that was restored");
        assert!(!are_in_doubt(2, 1), "again");
        assert!(!are_in_doubt(2, 2) && are_in_doubt(2, 100));
        assert!(are_in_doubt(2, 1), "the lease of a database that was restored may have the same number");
        assert!(!are_in_doubt(2, 2) && are_in_doubt(2, 4), "and its holes are told as they come");
    }
}
