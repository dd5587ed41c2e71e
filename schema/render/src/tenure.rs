//! How long the holder of the renderer's lease may act on it, by its own clock.
//!
//! - Counted from before the holder asked, never from when the answer came: the authority's clock began no later.
//! - It ends before the lease could have, so that a successor meets nobody.

/// Milliseconds on the caller's monotonic clock.
pub type Millis = u64;

/// The lease is renewed this often (DESIGN §12).
pub const RENEW_EVERY_MS: Millis = 10_000;
/// The holder stops this long before its lease could have ended (DESIGN §12).
pub const STOP_BEFORE_MS: Millis = 5_000;

/// One term of one holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenure {
    ttl: Millis,
    renew_at: Millis,
    good_until: Millis,
}

impl Tenure {
    /// A term whose lease was asked for at a moment and was given for `ttl`.
    #[must_use]
    pub const fn new(asked: Millis, ttl: Millis) -> Self {
        Self { ttl, renew_at: asked + RENEW_EVERY_MS, good_until: asked + ttl.saturating_sub(STOP_BEFORE_MS) }
    }

    /// A renewal that was asked for at a moment was given.
    pub const fn handle_renewed(&mut self, asked: Millis) {
        *self = Self::new(asked, self.ttl);
    }

    /// A renewal was not given, and it is not known why: it is asked for again after a while.
    pub const fn handle_failed(&mut self, again: Millis) {
        self.renew_at = again;
    }

    /// When the holder must have stopped.
    #[must_use]
    pub const fn good_until(self) -> Millis {
        self.good_until
    }

    /// Whether the holder must have stopped by now.
    #[must_use]
    pub const fn is_over(self, now: Millis) -> bool {
        now >= self.good_until
    }

    /// When to renew, or to stop if that comes first.
    #[must_use]
    pub fn poll_timeout(self) -> (Millis, &'static str) {
        if self.renew_at < self.good_until { (self.renew_at, "renew") } else { (self.good_until, "stop") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_before_its_lease_whenever_its_answer_came_and_a_renewal_counts_from_when_it_was_asked() {
        let mut tenure = Tenure::new(1_000, 30_000);
        assert_eq!(tenure.poll_timeout(), (11_000, "renew"));
        assert!(!tenure.is_over(25_999) && tenure.is_over(26_000));
        tenure.handle_renewed(11_000);
        assert_eq!((tenure.poll_timeout(), tenure.good_until()), ((21_000, "renew"), 36_000));
        tenure.handle_failed(35_500);
        assert_eq!(tenure.poll_timeout(), (35_500, "renew"));
        tenure.handle_failed(36_500);
        assert_eq!(tenure.poll_timeout(), (36_000, "stop"));
    }

    #[test]
    fn a_lease_that_is_shorter_than_the_margin_is_over_at_once() {
        assert!(Tenure::new(7, 3_000).is_over(7));
    }
}
