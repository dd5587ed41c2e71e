//! Members of kernel sets: intervals as the kernel keeps them.
//!
//! - An interval is a start at its first value and an end one past its last; at the very top there is no end.
//! - Members are disjoint and do not meet, so no two boundaries share a key.

use std::fmt;

use holdfast_model::address::{Address, Family, Interval};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::PortRange;

/// The key of one boundary: 2, 4 or 16 bytes in network order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    bytes: [u8; 16],
    len: u8,
}

impl Key {
    /// Wraps up to 16 bytes; `None` for more.
    #[must_use]
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { bytes, len: u8::try_from(from.len()).ok()? })
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    fn of<A: Address>(address: A) -> Self {
        let mut out = Vec::with_capacity(16);
        address.write_be(&mut out);
        Self::new(&out).unwrap_or(Self { bytes: [0; 16], len: 16 })
    }

    fn of_port(port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        let mut bytes = [0; 16];
        (bytes[0], bytes[1]) = (high, low);
        Self { bytes, len: 2 }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One interval as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span {
    /// Its first value.
    pub start: Key,
    /// One past its last value; absent at the top.
    pub end: Option<Key>,
}

impl Span {
    /// The boundaries of it.
    pub fn boundaries(self) -> impl Iterator<Item = Boundary> {
        let end = self.end.map(|key| Boundary { key, is_end: true });
        [Boundary { key: self.start, is_end: false }].into_iter().chain(end)
    }

    /// The span of an interval of addresses.
    #[must_use]
    pub fn of<A: Address>(interval: Interval<A>) -> Self {
        Self { start: Key::of(interval.first()), end: interval.last().above().map(Key::of) }
    }

    fn of_ports(range: PortRange) -> Self {
        Self { start: Key::of_port(range.first), end: range.last.checked_add(1).map(Key::of_port) }
    }
}

/// One element of a kernel set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Boundary {
    /// The value.
    pub key: Key,
    /// Whether an interval ends before it; else one starts at it.
    pub is_end: bool,
}

/// The members of one set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Members {
    /// IPv4 addresses.
    V4(IntervalSet<u32>),
    /// IPv6 addresses.
    V6(IntervalSet<u128>),
    /// Ports, or ICMP types and codes read as one number; ascending, never meeting.
    Ports(Vec<PortRange>),
}

impl Members {
    /// The members of one family.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::V4(_) => Some(Family::V4),
            Self::V6(_) => Some(Family::V6),
            Self::Ports(_) => None,
        }
    }

    /// The kernel's type number and key length in bytes (`ipv4_addr`, `ipv6_addr`, `inet_service`).
    #[must_use]
    pub const fn key_type(&self) -> (u32, u32) {
        match self {
            Self::V4(_) => (7, 4),
            Self::V6(_) => (8, 16),
            Self::Ports(_) => (13, 2),
        }
    }

    /// The word for the type in nft text.
    #[must_use]
    pub const fn type_word(&self) -> &'static str {
        match self {
            Self::V4(_) => "ipv4_addr",
            Self::V6(_) => "ipv6_addr",
            Self::Ports(_) => "inet_service",
        }
    }

    /// The members, ascending.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        match self {
            Self::V4(set) => spans(set),
            Self::V6(set) => spans(set),
            Self::Ports(ranges) => ranges.iter().map(|range| Span::of_ports(*range)).collect(),
        }
    }

    /// How many intervals.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::V4(set) => set.len(),
            Self::V6(set) => set.len(),
            Self::Ports(ranges) => ranges.len(),
        }
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What goes and what comes to make `target` of this; `None` if the two are of different types.
    #[must_use]
    pub fn edit_to(&self, target: &Self) -> Option<(Vec<Span>, Vec<Span>)> {
        match (self, target) {
            (Self::V4(base), Self::V4(target)) => Some(edit(base, target)),
            (Self::V6(base), Self::V6(target)) => Some(edit(base, target)),
            (Self::Ports(base), Self::Ports(target)) => {
                let missing = |from: &[PortRange], other: &[PortRange]| {
                    from.iter().filter(|range| !other.contains(range)).map(|range| Span::of_ports(*range)).collect()
                };
                Some((missing(base, target), missing(target, base)))
            }
            (Self::V4(_) | Self::V6(_) | Self::Ports(_), _) => None,
        }
    }
}

fn spans<A: Address>(set: &IntervalSet<A>) -> Vec<Span> {
    let mut all = Vec::with_capacity(set.len());
    set.for_each(|interval| all.push(Span::of(interval)));
    all
}

/// The intervals of ascending boundaries; `None` if an end has no start.
pub(super) fn spans_of(boundaries: &[Boundary]) -> Option<Vec<Span>> {
    let mut spans: Vec<Span> = Vec::with_capacity(boundaries.len() / 2);
    for boundary in boundaries {
        let open = spans.last_mut().filter(|span| span.end.is_none());
        match (open, boundary.is_end) {
            (Some(open), true) => open.end = Some(boundary.key),
            (None, false) => spans.push(Span { start: boundary.key, end: None }),
            (None, true) | (Some(_), false) => return None,
        }
    }
    Some(spans)
}

fn edit<A: Address>(base: &IntervalSet<A>, target: &IntervalSet<A>) -> (Vec<Span>, Vec<Span>) {
    let edit = base.edit_to(target);
    (edit.remove.into_iter().map(Span::of).collect(), edit.add.into_iter().map(Span::of).collect())
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut put = |f: &mut fmt::Formatter<'_>, text: &dyn fmt::Display| {
            let done = write!(f, "{separator}{text}");
            separator = ", ";
            done
        };
        match self {
            Self::V4(set) => set.to_vec().iter().try_for_each(|interval| put(f, interval)),
            Self::V6(set) => set.to_vec().iter().try_for_each(|interval| put(f, interval)),
            Self::Ports(ranges) => ranges.iter().try_for_each(|range| put(f, &super::matching::Ports::Range(*range))),
        }
    }
}
