//! Conditions: what is known of one (host, component) at one version.
//!
//! - Type, status, reason from a closed list, bounded message, observed version.
//! - A condition turns true only after its effect was performed or read back in that attempt; what was not reached is `Unknown(not_reached)`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::desired::Component;
use crate::numbers::Version;

/// The most bytes of a message that an agent may give.
pub const DETAIL_BYTES_MAX: usize = 1024;

/// The kinds of conditions: those of an attempt in the order in which it reaches them, then those that stand beside attempts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ConditionType {
    /// The update passed every check of the agent: signature, base, digest, form.
    SnapshotAccepted,
    /// The kernel committed it.
    Applied,
    /// The kernel was read back and holds exactly it.
    Verified,
    /// Under it a gateway gave back an echo over a new connection: it does not cut the host off.
    Confirmed,
    /// The disk keeps it: it was read whole at the start, or written and synced since.
    LedgerReadable,
    /// What passes through the host is held to it, or nothing passes.
    ForwardingCovered,
    /// Nobody else writes to the table again and again.
    NoDrift,
}

impl ConditionType {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SnapshotAccepted,
        Self::Applied,
        Self::Verified,
        Self::Confirmed,
        Self::LedgerReadable,
        Self::ForwardingCovered,
        Self::NoDrift,
    ];
    /// Those that each attempt ends with, in its order: what an outcome says.
    pub const OF_ATTEMPT: [Self; 3] = [Self::SnapshotAccepted, Self::Applied, Self::Verified];

    /// Those that a complete report has of a component, in their order.
    #[must_use]
    pub const fn of(component: Component) -> &'static [Self] {
        match component {
            Component::Policy => &Self::ALL,
            Component::Settings | Component::Credentials | Component::Workloads => &Self::OF_ATTEMPT,
        }
    }

    /// The word in frames of text, columns and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SnapshotAccepted => "SnapshotAccepted",
            Self::Applied => "Applied",
            Self::Verified => "Verified",
            Self::Confirmed => "Confirmed",
            Self::LedgerReadable => "LedgerReadable",
            Self::ForwardingCovered => "ForwardingCovered",
            Self::NoDrift => "NoDrift",
        }
    }

    /// The number in frames and signed statements; never reused.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::SnapshotAccepted => 1,
            Self::Applied => 2,
            Self::Verified => 3,
            Self::Confirmed => 4,
            Self::LedgerReadable => 5,
            Self::ForwardingCovered => 6,
            Self::NoDrift => 7,
        }
    }

    /// The type with a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Whether the host is not converged while this is not true.
    #[must_use]
    pub const fn is_blocking(self) -> bool {
        match self {
            Self::SnapshotAccepted | Self::Applied | Self::Verified | Self::Confirmed | Self::LedgerReadable => true,
            Self::ForwardingCovered | Self::NoDrift => false,
        }
    }

    /// Whether it may stop being so by itself: only what was observed counts then, and what was inferred is not known.
    #[must_use]
    pub const fn can_decay(self) -> bool {
        match self {
            Self::Verified | Self::Confirmed | Self::ForwardingCovered | Self::NoDrift => true,
            Self::SnapshotAccepted | Self::Applied | Self::LedgerReadable => false,
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Holds {
    /// It does, and this was seen.
    True,
    /// It does not, and this was seen.
    False,
    /// It was not seen.
    Unknown,
}

impl Holds {
    /// The number in signed statements; never reused.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::True => 1,
            Self::False => 2,
            Self::Unknown => 3,
        }
    }

    /// The one with a number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::True),
            2 => Some(Self::False),
            3 => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// How something is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// It was seen.
    #[default]
    Observed,
    /// It follows from something else that was seen, before this start of the agent perhaps.
    Inferred,
}

impl Basis {
    /// The number in frames and signed statements; never reused.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Observed => 1,
            Self::Inferred => 2,
        }
    }

    /// The one with a number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Observed),
            2 => Some(Self::Inferred),
            _ => None,
        }
    }

    /// The word in JSON and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Inferred => "inferred",
        }
    }
}

/// Why a condition is as it is: a fixed code, never text of an agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was done.
    Done,
    /// An earlier step of the attempt failed.
    NotReached,
    /// The signature is not the renderer's, or is for other content.
    BadSignature,
    /// The update is for another host or another authority.
    WrongHost,
    /// The version goes back under one authority.
    Backward,
    /// The version is known with other content.
    SameVersionOtherContent,
    /// The delta starts from another base.
    WrongBase,
    /// The content does not have the digest that names it.
    WrongDigest,
    /// The content cannot be read or is not canonical.
    Malformed,
    /// The content is larger than a limit.
    TooLarge,
    /// The disk did not take it.
    NotDurable,
    /// The kernel refused it.
    KernelRefused,
    /// The kernel holds something else than what was written.
    ReadBackDiffers,
    /// The kernel could not be read back.
    ReadBackFailed,
    /// An explicit local policy is in force.
    LocalOverride,
    /// Another process undoes each repair of the table: between two ticks nothing is known of it.
    Contended,
    /// Packets may pass through the host that no rule of ours sees.
    ForwardedNotEnforced,
    /// It cut the host off from its gateways, was taken back, and is not tried again.
    SelfIsolation,
    /// It is on trial: it has still to prove that it leads to a gateway.
    OnTrial,
    /// The file of last good on the disk cannot be used.
    LedgerUnusable,
    /// A code that this build does not know.
    UnknownCode,
}

macro_rules! reasons {
    ($($name:ident $number:literal $word:literal,)+) => {
        impl Reason {
            /// The number in frames; never reused.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self { $(Self::$name => $number,)+ }
            }

            /// The reason with a number; one that this build does not know is [`Reason::UnknownCode`].
            #[must_use]
            pub const fn from_number(number: u8) -> Self {
                match number { $($number => Self::$name,)+ _ => Self::UnknownCode }
            }

            /// The word in columns, events and commands.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// The reason with a word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

reasons! {
    UnknownCode 0 "unknown_code",
    Done 1 "done",
    NotReached 2 "not_reached",
    BadSignature 3 "bad_signature",
    WrongHost 4 "wrong_host",
    Backward 5 "backward",
    SameVersionOtherContent 6 "same_version_other_content",
    WrongBase 7 "wrong_base",
    WrongDigest 8 "wrong_digest",
    Malformed 9 "malformed",
    TooLarge 10 "too_large",
    NotDurable 11 "not_durable",
    KernelRefused 12 "kernel_refused",
    ReadBackDiffers 13 "read_back_differs",
    ReadBackFailed 14 "read_back_failed",
    LocalOverride 15 "local_override",
    // 16 to 29: what an agent finds beside updates.
    Contended 16 "contended",
    ForwardedNotEnforced 17 "forwarded_not_enforced",
    SelfIsolation 18 "self_isolation",
    OnTrial 19 "on_trial",
    LedgerUnusable 20 "ledger_unusable",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One condition of one (host, component).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: Holds,
    /// Why, as a code.
    pub reason: Reason,
    /// Why, in at most [`DETAIL_BYTES_MAX`] bytes.
    pub message: String,
    /// At which version this was seen.
    pub observed_version: Option<Version>,
}

/// Cuts a text to a number of bytes, on a character boundary, and replaces control characters by spaces.
#[must_use]
pub fn bounded(text: &str, bytes_max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes_max));
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if out.len() + c.len_utf8() > bytes_max {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_one_number_and_one_word_each() {
        for number in 0..=20 {
            let reason = Reason::from_number(number);
            assert_eq!(reason.number(), number);
            assert_eq!(Reason::from_word(reason.word()), Some(reason));
        }
        assert_eq!(Reason::from_number(200), Reason::UnknownCode);
    }

    #[test]
    fn types_have_one_number_and_every_component_has_those_of_an_attempt() {
        for kind in ConditionType::ALL {
            assert_eq!(ConditionType::from_number(kind.number()), Some(kind));
        }
        assert_eq!(ConditionType::from_number(0), None);
        for component in Component::ALL {
            let of = ConditionType::of(component);
            assert!(ConditionType::OF_ATTEMPT.iter().all(|kind| of.contains(kind)), "{component}");
            assert!(of.is_sorted() && !of.is_empty(), "{component}");
        }
    }

    #[test]
    fn text_is_cut_on_a_character_boundary_and_loses_control_characters() {
        assert_eq!(bounded("a\u{1b}[31mä", 6), "a [31m");
        assert_eq!(bounded("äää", 5), "ää");
    }
}
