//! Sets of 16-bit numbers as spans: the ports, or kinds of ICMP, that pass.

use std::fmt;

/// Ascending spans `first..=last` that neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Spans(Vec<(u16, u16)>);

impl Spans {
    /// No number.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Every number.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![(0, u16::MAX)])
    }

    /// The numbers of spans in any order, overlapping or not; one that ends before it starts has none.
    #[must_use]
    pub fn of(spans: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut sorted: Vec<(u16, u16)> = spans.into_iter().filter(|(first, last)| first <= last).collect();
        sorted.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (first, last) in sorted {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// The spans.
    #[must_use]
    pub fn as_slice(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// Whether there is no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a number is inside.
    #[must_use]
    pub fn contains(&self, number: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }

    /// The numbers of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied())
    }

    /// The numbers of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let pairs = self.0.iter().flat_map(|a| other.0.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
        Self::of(pairs)
    }

    /// The numbers that are not in it.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut gaps = Vec::new();
        let mut next = Some(0);
        for (first, last) in &self.0 {
            if let (Some(start), Some(end)) = (next, first.checked_sub(1)) {
                gaps.push((start, end));
            }
            next = last.checked_add(1);
        }
        gaps.extend(next.map(|start| (start, u16::MAX)));
        Self::of(gaps)
    }
}

impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_join_where_they_touch_and_complement_twice_is_the_same() {
        let spans = Spans::of([(80, 90), (91, 95), (85, 87), (443, 443), (65535, 65535), (9, 8)]);
        assert_eq!(spans.as_slice(), [(80, 95), (443, 443), (65535, 65535)]);
        assert_eq!(spans.complement().as_slice(), [(0, 79), (96, 442), (444, 65534)]);
        assert_eq!(spans.complement().complement(), spans);
        assert_eq!(Spans::none().complement(), Spans::all());
        assert_eq!(Spans::all().complement(), Spans::none());
        assert_eq!(spans.to_string(), "80-95,443,65535");
    }

    #[test]
    fn union_and_intersection_are_those_of_the_numbers() {
        let (a, b) = (Spans::of([(1, 10), (20, 30)]), Spans::of([(5, 22), (40, 41)]));
        for number in 0..50 {
            assert_eq!(a.union(&b).contains(number), a.contains(number) || b.contains(number));
            assert_eq!(a.intersection(&b).contains(number), a.contains(number) && b.contains(number));
        }
    }
}
