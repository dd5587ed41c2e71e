//! Which protocol two sides speak.
//!
//! - The highest that both know. Hello and Refusal keep the layout of protocol 1 for ever, so that any two builds can say no to each other.

/// The protocol of this build's layouts.
pub const PROTOCOL: u16 = 1;

/// The protocols that this build speaks.
pub const SPOKEN: ProtocolRange = ProtocolRange { min: PROTOCOL, max: PROTOCOL };

/// A closed range of protocols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProtocolRange {
    /// The lowest.
    pub min: u16,
    /// The highest.
    pub max: u16,
}

/// The highest protocol in both ranges.
#[must_use]
pub fn choose(ours: ProtocolRange, theirs: ProtocolRange) -> Option<u16> {
    let (min, max) = (ours.min.max(theirs.min), ours.max.min(theirs.max));
    (min <= max).then_some(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_protocol_is_chosen_and_disjoint_or_reversed_ranges_share_none() {
        let range = |min, max| ProtocolRange { min, max };
        assert_eq!(choose(range(1, 3), range(2, 9)), Some(3));
        assert_eq!(choose(range(1, 1), range(1, 9)), Some(1));
        assert_eq!(choose(range(1, 1), range(2, 3)), None);
        assert_eq!(choose(range(1, 5), range(4, 2)), None);
    }
}
