//! Addresses of both families as numbers, and closed intervals of them.
//!
//! - An interval is never empty: `first <= last`, by construction.
//! - IPv4-mapped IPv6 input is IPv4: one machine address has one spelling here.

use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in canonical order.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address, an IPv4-mapped one counted as IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        })
    }
}

/// An address as a number of its family's width: `u32` or `u128`, and nothing else.
pub trait Address: Copy + Ord + Hash + fmt::Debug + Send + Sync + 'static + sealed::Sealed {
    /// The family that this width belongs to.
    const FAMILY: Family;
    /// How many four-bit steps an address has.
    const NIBBLES: usize;
    /// The lowest address.
    const MIN: Self;
    /// The highest address.
    const MAX: Self;

    /// The four bits at `depth` steps from the top, as an index below 16.
    fn nibble(self, depth: usize) -> usize;
    /// The next higher address, `None` at the top.
    fn above(self) -> Option<Self>;
    /// The next lower address, `None` at the bottom.
    fn below(self) -> Option<Self>;
    /// Big-endian bytes, appended.
    fn write_be(self, out: &mut Vec<u8>);
    /// The value as the wide number that both families fit.
    fn widen(self) -> u128;
    /// `self + extent`, `None` past the top.
    fn plus(self, extent: u128) -> Option<Self>;
    /// As a standard address.
    fn to_ip(self) -> IpAddr;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

impl Address for u32 {
    const FAMILY: Family = Family::V4;
    const NIBBLES: usize = 8;
    const MIN: Self = 0;
    const MAX: Self = u32::MAX;

    fn nibble(self, depth: usize) -> usize {
        (self >> (28 - 4 * depth)) as usize & 0xf
    }
    fn above(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn below(self) -> Option<Self> {
        self.checked_sub(1)
    }
    fn write_be(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn widen(self) -> u128 {
        u128::from(self)
    }
    fn plus(self, extent: u128) -> Option<Self> {
        self.checked_add(u32::try_from(extent).ok()?)
    }
    fn to_ip(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(self))
    }
}

impl Address for u128 {
    const FAMILY: Family = Family::V6;
    const NIBBLES: usize = 32;
    const MIN: Self = 0;
    const MAX: Self = u128::MAX;

    fn nibble(self, depth: usize) -> usize {
        usize::try_from((self >> (124 - 4 * depth)) & 0xf).unwrap_or(0xf)
    }
    fn above(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn below(self) -> Option<Self> {
        self.checked_sub(1)
    }
    fn write_be(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn widen(self) -> u128 {
        self
    }
    fn plus(self, extent: u128) -> Option<Self> {
        self.checked_add(extent)
    }
    fn to_ip(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(self))
    }
}

/// A closed, never empty interval of addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval<A> {
    first: A,
    last: A,
}

impl<A: Address> Interval<A> {
    /// From `first` to `last`, both inside; `None` if they are the wrong way round.
    #[must_use]
    pub fn new(first: A, last: A) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// One address.
    #[must_use]
    pub fn single(address: A) -> Self {
        Self { first: address, last: address }
    }

    /// Every address of the family.
    #[must_use]
    pub fn full() -> Self {
        Self { first: A::MIN, last: A::MAX }
    }

    /// The lowest address inside.
    #[must_use]
    pub fn first(self) -> A {
        self.first
    }

    /// The highest address inside.
    #[must_use]
    pub fn last(self) -> A {
        self.last
    }

    /// How far the last lies above the first: 0 for one address.
    #[must_use]
    pub fn extent(self) -> u128 {
        self.last.widen() - self.first.widen()
    }

    /// Whether `address` lies inside.
    #[must_use]
    pub fn contains(self, address: A) -> bool {
        self.first <= address && address <= self.last
    }

    /// Whether the two share an address or leave no address between them.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        let (low, high) = if self.first <= other.first { (self, other) } else { (other, self) };
        low.last.above().is_none_or(|above| high.first <= above)
    }
}

impl<A: Address> fmt::Display for Interval<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first.to_ip())
        } else {
            write!(f, "{}-{}", self.first.to_ip(), self.last.to_ip())
        }
    }
}

impl<A: Address> fmt::Debug for Interval<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The interval of a prefix, host bits ignored; an IPv4-mapped prefix (`::ffff:0:0/96` and longer) is IPv4.
#[must_use]
pub fn interval_of(net: IpNet) -> Either<Interval<u32>, Interval<u128>> {
    match net.trunc() {
        IpNet::V4(net) => Either::V4(Interval { first: net.network().to_bits(), last: net.broadcast().to_bits() }),
        IpNet::V6(net) => match net.network().to_ipv4_mapped() {
            Some(first) if net.prefix_len() >= 96 => {
                let last = net.broadcast().to_ipv4_mapped().unwrap_or(first);
                Either::V4(Interval { first: first.to_bits(), last: last.to_bits() })
            }
            _ => Either::V6(Interval { first: net.network().to_bits(), last: net.broadcast().to_bits() }),
        },
    }
}

/// Something of one family or of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Either<V4, V6> {
    /// Of IPv4.
    V4(V4),
    /// Of IPv6.
    V6(V6),
}

/// Intervals of one family or of the other.
pub type Intervals = Either<Vec<Interval<u32>>, Vec<Interval<u128>>>;

/// An address as the number of its family.
#[must_use]
pub fn number_of(address: IpAddr) -> Either<u32, u128> {
    match address.to_canonical() {
        IpAddr::V4(v4) => Either::V4(v4.to_bits()),
        IpAddr::V6(v6) => Either::V6(v6.to_bits()),
    }
}

/// Sorts intervals and joins those that meet: the canonical form of the addresses that they cover.
#[must_use]
pub fn merge<A: Address>(mut intervals: Vec<Interval<A>>) -> Vec<Interval<A>> {
    intervals.sort_unstable();
    let mut merged: Vec<Interval<A>> = Vec::with_capacity(intervals.len());
    for next in intervals {
        match merged.last_mut() {
            Some(open) if open.meets(next) => open.last = open.last.max(next.last),
            _ => merged.push(next),
        }
    }
    merged
}

/// The addresses of `from` that are in no interval of `holes`; both are canonical, and so is the answer.
#[must_use]
pub fn subtract<A: Address>(from: &[Interval<A>], holes: &[Interval<A>]) -> Vec<Interval<A>> {
    let mut rest = Vec::with_capacity(from.len());
    let mut holes = holes.iter().copied().peekable();
    for &whole in from {
        let mut open = Some(whole.first);
        while let Some(first) = open {
            while holes.next_if(|hole| hole.last < first).is_some() {}
            match holes.peek() {
                Some(hole) if hole.first <= whole.last => {
                    if let Some(last) = hole.first.below().filter(|last| first <= *last) {
                        rest.push(Interval { first, last });
                    }
                    open = hole.last.above().filter(|next| *next <= whole.last);
                }
                _ => {
                    rest.push(Interval { first, last: whole.last });
                    open = None;
                }
            }
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iv(first: u32, last: u32) -> Interval<u32> {
        Interval::new(first, last).expect("ordered in the test")
    }

    #[test]
    fn touching_and_overlapping_intervals_join_up_to_the_very_top() {
        let merged = merge(vec![iv(10, 20), iv(21, 30), iv(5, 12), iv(u32::MAX, u32::MAX), iv(40, u32::MAX)]);
        assert_eq!(merged, [iv(5, 30), iv(40, u32::MAX)]);
    }

    #[test]
    fn holes_are_cut_out_and_one_hole_may_span_two_intervals() {
        let rest = subtract(&[iv(0, 10), iv(20, 30)], &[iv(0, 0), iv(5, 6), iv(9, 22), iv(30, 40)]);
        assert_eq!(rest, [iv(1, 4), iv(7, 8), iv(23, 29)]);
        assert_eq!(subtract(&[iv(0, u32::MAX)], &[iv(0, u32::MAX)]), []);
    }

    #[test]
    fn a_mapped_prefix_is_its_ipv4_prefix() {
        let mapped: IpNet = "::ffff:10.0.0.0/104".parse().expect("a prefix");
        let plain: IpNet = "10.0.0.0/8".parse().expect("a prefix");
        assert_eq!(interval_of(mapped), interval_of(plain));
    }
}
