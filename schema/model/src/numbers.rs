//! The numbers that order things: versions, revisions, epochs, sequences.
//!
//! - Each is its own type with an order and a successor and no arithmetic, so that none is taken for another.
//! - A [`Version`] is never zero: "no version" is `Option::None`, in the type.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;

/// The version of one (host, component): starts at 1, rises by 1 only when the digest changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(NonZeroU64);

impl Version {
    /// The version of the first render of a host, even when that render is empty.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The version after this one; `None` past `u64::MAX`, which no host reaches.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }

    /// Reads a stored or transmitted number (`store` and `wire` only); zero is no version.
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }

    /// The number, for columns, frames and people.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Before the first one.
            pub const ZERO: Self = Self(0);

            /// Wraps a stored or transmitted number.
            #[must_use]
            pub const fn from_raw(raw: u64) -> Self {
                Self(raw)
            }

            /// The number, for columns, frames and people.
            #[must_use]
            pub const fn raw(self) -> u64 {
                self.0
            }

            /// The one after this; `None` past `u64::MAX`.
            #[must_use]
            pub fn next(self) -> Option<Self> {
                self.0.checked_add(1).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )+};
}

counters! {
    /// Rises when a database was restored or promoted; agents refuse to go back under one.
    AuthorityEpoch;
    /// The position of an event in the audit order, within one [`AuthorityEpoch`].
    EventSeq;
    /// The fencing number of a lease.
    LeaseTerm;
    /// One accepted change of intent; fleet-wide and dense, never sent to an agent.
    Revision;
    /// One connection of one agent, issued by Postgres; only rises per host.
    SessionEpoch;
    /// One update written to one session; comes back in its outcome.
    UpdateSeq;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_version_and_the_first_is_one() {
        assert_eq!(Version::from_raw(0), None);
        assert_eq!(Version::FIRST.raw(), 1);
        assert_eq!(Version::from_raw(u64::MAX).and_then(Version::next), None);
    }
}
