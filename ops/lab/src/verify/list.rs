//! What a file says about an address list, held against what was read of it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use holdfast_documents::estate::{Facts, Total};
use holdfast_documents::read_address_list;
use holdfast_model::address::{Address, Either, Interval, interval_of};
use holdfast_model::interval_set::IntervalSet;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use sha2::{Digest as _, Sha256};

use super::Wrong;

/// The canonical form of a list, both families.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    pub(super) v4: IntervalSet<u32>,
    pub(super) v6: IntervalSet<u128>,
}

impl Sets {
    pub(super) fn of(nets: &[IpNet]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for net in nets {
            match interval_of(*net) {
                Either::V4(interval) => v4.push(interval),
                Either::V6(interval) => v6.push(interval),
            }
        }
        Self { v4: IntervalSet::covering(v4), v6: IntervalSet::covering(v6) }
    }

    /// The fewest prefixes that cover the same, IPv4 first, ascending.
    fn prefixes(&self) -> (Vec<IpNet>, Vec<IpNet>) {
        let v4 = self.v4.to_vec().into_iter().flat_map(|interval| {
            let ends = (Ipv4Addr::from_bits(interval.first()), Ipv4Addr::from_bits(interval.last()));
            Ipv4Subnets::new(ends.0, ends.1, 0).map(IpNet::V4)
        });
        let v6 = self.v6.to_vec().into_iter().flat_map(|interval| {
            let ends = (Ipv6Addr::from_bits(interval.first()), Ipv6Addr::from_bits(interval.last()));
            Ipv6Subnets::new(ends.0, ends.1, 0).map(IpNet::V6)
        });
        (v4.collect(), v6.collect())
    }
}

/// The facts that do not hold; a list that cannot be read breaks them all at once.
pub(super) fn wrong_facts(estate: &str, step: usize, text: &str, facts: &Facts) -> Vec<Wrong> {
    let wrong = |what: &str, wanted: String, found: String| {
        let (estate, from) = (estate.to_owned(), format!("list: {what}"));
        Wrong { estate, step, from, wanted, artifact: found, ..Wrong::default() }
    };
    match read_address_list(text) {
        Err(error) => vec![wrong("text", "a list".to_owned(), error.to_string())],
        Ok(nets) => checks(&nets, facts)
            .into_iter()
            .filter(|(_, wanted, found)| wanted != found)
            .map(|(what, wanted, found)| wrong(what, wanted, found))
            .collect(),
    }
}

/// How many facts there are.
pub(super) const FACTS: usize = 8;

/// Every fact: its name, what the file says, what was found.
fn checks(nets: &[IpNet], facts: &Facts) -> [(&'static str, String, String); FACTS] {
    let unique: BTreeSet<IpNet> = nets.iter().copied().collect();
    let sets = Sets::of(nets);
    let (v4, v6) = sets.prefixes();
    let mut canonical = String::new();
    for net in v4.iter().chain(&v6) {
        canonical.push_str(&net.to_string());
        canonical.push('\n');
    }
    let digest: String = Sha256::digest(canonical.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let check = |what: &'static str, wanted: usize, found: usize| (what, wanted.to_string(), found.to_string());
    let total = |what: &'static str, wanted: Total, found: Option<u128>| {
        (what, wanted.0.to_string(), found.map_or_else(|| "too many".to_owned(), |found| found.to_string()))
    };
    [
        check("entries", facts.entries, nets.len()),
        check("unique", facts.unique, unique.len()),
        check("nested_inside_another", facts.nested_inside_another, nested(&unique)),
        check("canonical_v4", facts.canonical_v4, v4.len()),
        check("canonical_v6", facts.canonical_v6, v6.len()),
        total("addresses_v4", facts.addresses_v4, addresses(&sets.v4.to_vec())),
        total("addresses_v6", facts.addresses_v6, addresses(&sets.v6.to_vec())),
        ("canonical_sha256", facts.canonical_sha256.to_lowercase(), digest),
    ]
}

/// How many prefixes lie within another of the set.
fn nested(unique: &BTreeSet<IpNet>) -> usize {
    let inside = |net: &&IpNet| {
        let mut wider = net.supernet();
        while let Some(net) = wider {
            if unique.contains(&net) {
                return true;
            }
            wider = net.supernet();
        }
        false
    };
    unique.iter().filter(inside).count()
}

/// How many addresses intervals have; `None` if that is every IPv6 address, which does not fit.
fn addresses<A: Address>(intervals: &[Interval<A>]) -> Option<u128> {
    intervals.iter().try_fold(0_u128, |sum, interval| {
        let extent = interval.last().widen() - interval.first().widen();
        sum.checked_add(extent)?.checked_add(1)
    })
}
