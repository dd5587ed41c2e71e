//! Typed identities.
//!
//! - An id is a UUID with a kind: two kinds never mix, and the text form carries the kind as a prefix (`ho_…`).
//! - `FromStr` refuses a foreign prefix with its own error; nothing here makes an id up (no randomness in `schema/`).
//!
//! The list is alphabetical and append-only: the prefix of a kind is part of the public surface.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text has another kind's prefix, or none.
    #[error("an id of a {kind} starts with `{prefix}_`, this one does not: `{text}`")]
    Prefix {
        /// The kind that was wanted, in words.
        kind: &'static str,
        /// The prefix that was wanted.
        prefix: &'static str,
        /// The offending text, cut to 64 characters.
        text: String,
    },
    /// What follows the prefix is not a canonical 36-character UUID.
    #[error("`{text}` is not the id of one {kind}: a lower-case 36-character UUID follows the prefix")]
    Uuid {
        /// The kind that was wanted, in words.
        kind: &'static str,
        /// The offending text, cut to 64 characters.
        text: String,
    },
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// The prefix of the text form, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Wraps a UUID that is known to name this kind of thing.
            #[must_use]
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The bare UUID, for columns and frames whose place tells the kind.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.hyphenated())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let rest = text.strip_prefix(concat!($prefix, "_")).ok_or_else(|| IdError::Prefix {
                    kind: $kind,
                    prefix: $prefix,
                    text: cut(text),
                })?;
                let bad = || IdError::Uuid { kind: $kind, text: cut(text) };
                let uuid = Uuid::try_parse(rest).map_err(|_| bad())?;
                // One spelling only: no braces, no URN, no upper case.
                if uuid.hyphenated().to_string() == rest { Ok(Self(uuid)) } else { Err(bad()) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    )+};
}

ids! {
    /// An API token of an operator.
    ApiTokenId, "at", "API token";
    /// The lineage of one database; agents pin it at enrolment.
    AuthorityId, "au", "authority";
    /// An enrolment token.
    EnrolTokenId, "et", "enrolment token";
    /// One event; also its `Nats-Msg-Id`.
    EventId, "ev", "event";
    /// One start of one gateway process.
    GatewayId, "gw", "gateway";
    /// An enrolled machine.
    HostId, "ho", "host";
    /// One durable operation.
    OperationId, "op", "operation";
    /// One authored object, stable over its life (a deleted and recreated object gets a new one).
    ObjectId, "ob", "object";
    /// One change that goes through the fleet in stages.
    RolloutId, "ro", "rollout";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_foreign_prefix_is_refused() {
        let id = HostId::new(Uuid::from_u128(7));
        assert_eq!(id.to_string().parse::<HostId>(), Ok(id));
        let foreign = GatewayId::new(Uuid::from_u128(7)).to_string();
        assert!(matches!(foreign.parse::<HostId>(), Err(IdError::Prefix { prefix: "ho", .. })));
    }

    #[test]
    fn only_the_canonical_spelling_is_an_id() {
        for text in ["ho_", "ho_00000000-0000-0000-0000-00000000000A", "ho_00000000000000000000000000000007"] {
            assert!(matches!(text.parse::<HostId>(), Err(IdError::Uuid { .. })), "{text}");
        }
    }
}
