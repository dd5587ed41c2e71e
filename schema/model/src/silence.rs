//! How long a host has said nothing, and what that makes of it.
//!
//! - The control plane's own absence is no silence of a host: whoever measures takes it out.
//! - A host is lost for itself alone. When most hosts are silent together, what they have in common is at fault: the control plane, a network, a
//!   clock; none of them is lost by that, however long it lasts. That time counts against nobody afterwards either: whoever does not come back with
//!   the others is lost ten minutes after them, not at once.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::status::FRESH_MS;

/// A host that says nothing for so long is silent: what it holds is not known.
pub const SILENT_AFTER_MS: u64 = FRESH_MS;
/// A host that says nothing for so long is lost: nobody expects it back (DESIGN.md, Truth about the fleet).
pub const LOST_AFTER_MS: u64 = 600_000;

/// What its silence makes of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// It was heard a moment ago.
    Present,
    /// It was not heard for [`SILENT_AFTER_MS`].
    Silent,
    /// It was not heard for [`LOST_AFTER_MS`] in which most others were.
    Lost,
    /// It was never heard.
    Never,
}

impl Presence {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Present, Self::Silent, Self::Lost, Self::Never];

    /// The word in JSON, tables and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Silent => "silent",
            Self::Lost => "lost",
            Self::Never => "never",
        }
    }

    /// What its silence makes of a host; nothing if it was never heard.
    #[must_use]
    pub const fn of(silence: Option<Silence>, others: Others) -> Self {
        match silence {
            None => Self::Never,
            Some(Silence { ms, .. }) if ms < SILENT_AFTER_MS => Self::Present,
            Some(Silence { alone_ms, .. }) if alone_ms < LOST_AFTER_MS || others.is_mass_silence() => Self::Silent,
            Some(_) => Self::Lost,
        }
    }
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// For how long a host has been silent, of which the control plane was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// In milliseconds.
    pub ms: u64,
    /// So many of them without those in which most others were silent too.
    pub alone_ms: u64,
}

/// The hosts of the fleet that were ever heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Others {
    /// How many there are.
    pub heard: u64,
    /// How many of them have said nothing for [`SILENT_AFTER_MS`].
    pub silent: u64,
}

impl Others {
    /// Whether so many are silent that it is no matter of single hosts: more than half, and more than one.
    #[must_use]
    pub const fn is_mass_silence(self) -> bool {
        self.silent > 1 && self.silent > self.heard / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Others = Others { heard: 10, silent: 1 };

    #[test]
    fn a_host_is_silent_after_45_s_and_lost_after_10_min_to_the_millisecond() {
        let of = |ms| Presence::of(Some(Silence { ms, alone_ms: ms }), FEW);
        assert_eq!([of(0), of(44_999)], [Presence::Present; 2]);
        assert_eq!([of(45_000), of(599_999)], [Presence::Silent; 2]);
        assert_eq!([of(600_000), of(u64::MAX)], [Presence::Lost; 2]);
        assert_eq!(Presence::of(None, FEW), Presence::Never);
    }

    #[test]
    fn when_most_are_silent_nobody_is_lost() {
        let silence = Silence { ms: LOST_AFTER_MS, alone_ms: LOST_AFTER_MS };
        let of = |silent, heard| Presence::of(Some(silence), Others { heard, silent });
        assert_eq!([of(1, 1), of(1, 2), of(5, 10)], [Presence::Lost; 3]);
        assert_eq!([of(2, 2), of(2, 3), of(6, 10), of(10, 10)], [Presence::Silent; 4]);
    }

    #[test]
    fn what_was_silent_with_most_others_is_lost_only_by_what_it_is_silent_alone() {
        let of = |ms, alone_ms| Presence::of(Some(Silence { ms, alone_ms }), FEW);
        assert_eq!([of(u64::MAX, 0), of(u64::MAX, LOST_AFTER_MS - 1)], [Presence::Silent; 2]);
        assert_eq!(of(u64::MAX, LOST_AFTER_MS), Presence::Lost);
        assert_eq!(of(SILENT_AFTER_MS - 1, 0), Presence::Present);
    }
}
