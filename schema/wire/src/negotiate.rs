//! Which protocol two sides speak.
//!
//! - The highest that both know. Hello and Refusal keep the layout of protocol 1 for ever, so that any two builds can say no to each other.
//! - A gateway says in its HelloAck which one it chose; from then on nothing else is spoken in that session.

/// A protocol that this build speaks: its layouts, and what may be said in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// The first one, frozen.
    V1,
    /// Adds how a gateway delivers to its HelloAck; frozen.
    V2,
    /// Adds what an agent says of its kernel and of its host as a whole, beside outcomes.
    V3,
}

impl Protocol {
    /// All of them, by number.
    pub const ALL: [Self; 3] = [Self::V1, Self::V2, Self::V3];
    /// The one of Hello and Refusal, whatever is spoken besides.
    pub const FIRST: Self = Self::V1;
    /// What two peers of this build speak.
    pub const NEWEST: Self = Self::V3;

    /// The number in the envelope; never reused.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// The protocol with a number, if this build speaks it.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.number() == number)
    }
}

/// The protocols that this build speaks.
pub const SPOKEN: ProtocolRange = ProtocolRange { min: Protocol::FIRST.number(), max: Protocol::NEWEST.number() };

/// A closed range of protocols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProtocolRange {
    /// The lowest.
    pub min: u16,
    /// The highest.
    pub max: u16,
}

impl ProtocolRange {
    /// This one and no other.
    #[must_use]
    pub const fn only(protocol: Protocol) -> Self {
        Self { min: protocol.number(), max: protocol.number() }
    }

    /// Whether a protocol is one of them.
    #[must_use]
    pub const fn has(self, number: u16) -> bool {
        self.min <= number && number <= self.max
    }
}

/// The highest protocol in both ranges, of those that this build speaks.
#[must_use]
pub fn choose(ours: ProtocolRange, theirs: ProtocolRange) -> Option<Protocol> {
    let in_both = |protocol: &Protocol| ours.has(protocol.number()) && theirs.has(protocol.number());
    Protocol::ALL.into_iter().rev().find(in_both)
}

/// The model knows the protocol from which on hosts say how they are as a whole by its number alone.
const _: () = assert!(Protocol::V3.number() == holdfast_model::status::REPORTS_SINCE_PROTOCOL);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_protocol_is_chosen_and_disjoint_or_reversed_ranges_share_none() {
        let range = |min, max| ProtocolRange { min, max };
        assert_eq!(choose(SPOKEN, range(1, 9)), Some(Protocol::V3));
        assert_eq!(choose(SPOKEN, range(1, 2)), Some(Protocol::V2));
        assert_eq!(choose(SPOKEN, range(0, 1)), Some(Protocol::V1));
        assert_eq!(choose(ProtocolRange::only(Protocol::V1), range(1, 9)), Some(Protocol::V1));
        assert_eq!(choose(ProtocolRange::only(Protocol::V2), range(1, 1)), None);
        assert_eq!(choose(SPOKEN, range(4, 9)), None);
        assert_eq!(choose(SPOKEN, range(2, 1)), None);
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::from_number(protocol.number()), Some(protocol));
        }
        assert_eq!(Protocol::from_number(4), None);
    }
}
