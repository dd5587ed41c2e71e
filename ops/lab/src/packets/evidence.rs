//! Which unanswered probes our own drop counters account for. Pure.
//!
//! - A probe's packets were dropped at its source or at its destination, so each packet must find room in one of the two counters' rise, and no
//!   rise is used twice. Probes are served as well as the counters allow: this is a maximum flow, found by augmenting paths.
//! - Where rises do not suffice, some probe of the pair stays without evidence; which of them is not known, and any is named.

use std::collections::{BTreeMap, VecDeque};

/// An unanswered probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unanswered<'a> {
    /// The host that sent it; none for the outside, whose drops nobody counts.
    pub(super) source: Option<&'a str>,
    /// The host that it was sent to.
    pub(super) destination: Option<&'a str>,
    /// The packets that it sent.
    pub(super) packets: u64,
}

/// The two ends that packets were sent between.
type Ends<'a> = [Option<&'a str>; 2];

/// Packets of pairs of hosts, and at which of the two ends they are accounted for.
struct Ledger<'a> {
    room: BTreeMap<&'a str, u64>,
    placed: BTreeMap<Ends<'a>, [u64; 2]>,
}

impl<'a> Ledger<'a> {
    /// Places up to `wanted` packets of a pair and says how many found room.
    fn place(&mut self, ends: Ends<'a>, wanted: u64) -> u64 {
        let mut placed = 0;
        while placed < wanted {
            let Some(path) = self.path_to_room(ends) else { break };
            let amount = self.follow(ends, &path, wanted - placed);
            placed += amount;
        }
        placed
    }

    /// A way to free room at one end of a pair: hosts, each of which hands packets of a pair that it shares with the next one on to it.
    fn path_to_room(&self, ends: Ends<'a>) -> Option<Vec<&'a str>> {
        let mut came_from: BTreeMap<&str, Option<&str>> = ends.into_iter().flatten().map(|end| (end, None)).collect();
        let mut queue: VecDeque<&str> = ends.into_iter().flatten().collect();
        while let Some(host) = queue.pop_front() {
            if self.room.get(host).is_some_and(|room| *room > 0) {
                let mut path = vec![host];
                let mut at = host;
                while let Some(before) = came_from.get(at).copied().flatten() {
                    path.push(before);
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            for (pair, placed) in &self.placed {
                let Some((_, other)) = handover(pair, placed, host) else { continue };
                if !came_from.contains_key(other) {
                    came_from.insert(other, Some(host));
                    queue.push_back(other);
                }
            }
        }
        None
    }

    /// Moves packets along a path, so that the pair's own find room at its start.
    fn follow(&mut self, ends: Ends<'a>, path: &[&'a str], wanted: u64) -> u64 {
        let last = path.last().copied().unwrap_or_default();
        let mut amount = wanted.min(self.room.get(last).copied().unwrap_or_default());
        let mut steps = Vec::new();
        for step in path.windows(2) {
            let [host, next] = [step[0], step[1]];
            let found = self.placed.iter().find_map(|(pair, placed)| {
                let (packets, other) = handover(pair, placed, host)?;
                (other == next).then_some((*pair, side_of(pair, host), packets))
            });
            let Some((pair, side, packets)) = found else { return 0 };
            amount = amount.min(packets);
            steps.push((pair, side));
        }
        for (pair, side) in steps {
            let placed = self.placed.entry(pair).or_default();
            placed[side] -= amount;
            placed[1 - side] += amount;
        }
        if let Some(room) = self.room.get_mut(last) {
            *room -= amount;
        }
        let first = path.first().copied().unwrap_or_default();
        self.placed.entry(ends).or_default()[side_of(&ends, first)] += amount;
        amount
    }
}

fn side_of(pair: &Ends<'_>, host: &str) -> usize {
    usize::from(pair[0] != Some(host))
}

/// What a host could hand on to the other end of a pair: packets, and to whom.
fn handover<'a>(pair: &Ends<'a>, placed: &[u64; 2], host: &str) -> Option<(u64, &'a str)> {
    let side = pair.iter().position(|end| *end == Some(host))?;
    let other = pair[1 - side]?;
    (placed[side] > 0).then_some((placed[side], other))
}

/// For each probe, whether the rises of the counters account for all of its packets.
pub(super) fn accounted(probes: &[Unanswered<'_>], rises: &BTreeMap<String, u64>) -> Vec<bool> {
    let mut ledger =
        Ledger { room: rises.iter().map(|(host, rise)| (host.as_str(), *rise)).collect(), placed: BTreeMap::new() };
    probes.iter().map(|probe| ledger.place([probe.source, probe.destination], probe.packets) == probe.packets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_probe<'a>(source: &'a str, destination: &'a str, packets: u64) -> Unanswered<'a> {
        let end = |name: &'a str| (name != "outside").then_some(name);
        Unanswered { source: end(source), destination: end(destination), packets }
    }

    fn mk_rises(rises: &[(&str, u64)]) -> BTreeMap<String, u64> {
        rises.iter().map(|(host, rise)| ((*host).to_owned(), *rise)).collect()
    }

    #[test]
    fn a_probe_without_a_rise_has_no_evidence() {
        let probes = [mk_probe("a", "b", 2), mk_probe("outside", "outside", 2)];
        assert_eq!(accounted(&probes, &mk_rises(&[("a", 1), ("b", 0), ("c", 9)])), [false, false]);
    }

    #[test]
    fn a_rise_is_used_once() {
        let probes = [mk_probe("a", "b", 2), mk_probe("a", "b", 2), mk_probe("outside", "b", 2)];
        assert_eq!(accounted(&probes, &mk_rises(&[("b", 4)])), [true, true, false]);
    }

    #[test]
    fn both_ends_may_have_dropped_a_part() {
        assert_eq!(accounted(&[mk_probe("a", "b", 2)], &mk_rises(&[("a", 1), ("b", 1)])), [true]);
    }

    #[test]
    fn packets_move_to_the_other_end_when_a_later_probe_needs_the_room() {
        // The first is placed at `a`, the second at `b`; the third fits only if both move on.
        let probes = [mk_probe("a", "b", 2), mk_probe("b", "c", 2), mk_probe("outside", "a", 2)];
        assert_eq!(accounted(&probes, &mk_rises(&[("a", 2), ("b", 2), ("c", 2)])), [true, true, true]);
    }

    #[test]
    fn a_pair_is_its_own_mirror_only_where_it_is_written_so() {
        let probes = [mk_probe("a", "b", 2), mk_probe("b", "a", 2)];
        assert_eq!(accounted(&probes, &mk_rises(&[("a", 2), ("b", 2)])), [true, true]);
        assert_eq!(accounted(&probes, &mk_rises(&[("a", 3)])), [true, false]);
    }
}
