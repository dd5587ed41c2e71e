//! The addresses of both families that a rule's peers come to.

use std::net::IpAddr;

use holdfast_model::address::{Either, Interval, interval_of, merge, number_of, subtract};
use holdfast_model::interval_set::IntervalSet;
use ipnet::IpNet;

/// A canonical set of addresses of both families. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Members {
    pub(crate) v4: IntervalSet<u32>,
    pub(crate) v6: IntervalSet<u128>,
}

impl Members {
    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match number_of(address) {
            Either::V4(v4) => self.v4.contains(v4),
            Either::V6(v6) => self.v6.contains(v6),
        }
    }

    /// Puts one address in or out, at a cost that does not follow how many there are.
    pub(crate) fn set(&mut self, address: IpAddr, inside: bool) {
        match (number_of(address), inside) {
            (Either::V4(v4), true) => self.v4 = self.v4.including(v4),
            (Either::V4(v4), false) => self.v4 = self.v4.excluding(v4),
            (Either::V6(v6), true) => self.v6 = self.v6.including(v6),
            (Either::V6(v6), false) => self.v6 = self.v6.excluding(v6),
        }
    }

    /// Everything inside the prefixes.
    pub(crate) fn of_nets<'a>(nets: impl IntoIterator<Item = &'a IpNet>) -> Self {
        let mut gathered = Gathered::default();
        nets.into_iter().for_each(|net| gathered.add_net(*net));
        gathered.into_members()
    }
}

/// Intervals on their way into a set: overlapping, repeated, in any order.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) v4: Vec<Interval<u32>>,
    pub(crate) v6: Vec<Interval<u128>>,
}

impl Gathered {
    pub(crate) fn add_address(&mut self, address: IpAddr) {
        match number_of(address) {
            Either::V4(v4) => self.v4.push(Interval::single(v4)),
            Either::V6(v6) => self.v6.push(Interval::single(v6)),
        }
    }

    pub(crate) fn add_net(&mut self, net: IpNet) {
        match interval_of(net) {
            Either::V4(v4) => self.v4.push(v4),
            Either::V6(v6) => self.v6.push(v6),
        }
    }

    /// A prefix without the parts of it that `except` names.
    pub(crate) fn add_net_except(&mut self, net: IpNet, except: &[IpNet]) {
        let mut holes = Self::default();
        except.iter().for_each(|hole| holes.add_net(*hole));
        match interval_of(net) {
            Either::V4(v4) => self.v4.extend(subtract(&[v4], &merge(holes.v4))),
            Either::V6(v6) => self.v6.extend(subtract(&[v6], &merge(holes.v6))),
        }
    }

    pub(crate) fn add_members(&mut self, members: &Members) {
        members.v4.for_each(|interval| self.v4.push(interval));
        members.v6.for_each(|interval| self.v6.push(interval));
    }

    pub(crate) fn into_members(self) -> Members {
        Members { v4: IntervalSet::covering(self.v4), v6: IntervalSet::covering(self.v6) }
    }
}
