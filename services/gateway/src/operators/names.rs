//! Names for people: who has an address, what a name that is not there may have meant.
//!
//! - Only what the caller may see has a name here; the rest stays addresses.
//! - A suggestion is words in a refusal: nothing is answered as if it had been asked for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_api::policy::{PolicyChanges, Ranges, RuleView};
use holdfast_documents::near::nearest;
use holdfast_model::intent::{EndpointSpec, EnrolledHost, Kind, ObjectKey, Spec};

use super::auth::Caller;
use super::intent::Snapshot;

/// The longest range that is looked up address by address: what is longer is a prefix and nobody's own.
const RANGE_ADDRESSES_MAX: u128 = 256;

/// `namespace/name` of a host.
pub(crate) fn host_name(host: &EnrolledHost) -> String {
    format!("{}/{}", host.namespace, host.name)
}

/// The endpoints that a caller may see.
pub(crate) fn endpoints<'a>(
    snapshot: &'a Snapshot,
    caller: &'a Caller,
) -> impl Iterator<Item = (&'a ObjectKey, &'a EndpointSpec)> {
    snapshot.intent.objects.iter().filter_map(|(key, spec)| match spec {
        Spec::Endpoint(spec) if key.kind == Kind::Endpoint && caller.sees(&key.namespace) => Some((key, spec)),
        Spec::Endpoint(_)
        | Spec::AddressGroup(_)
        | Spec::Host(_)
        | Spec::Namespace(_)
        | Spec::NetworkPolicy(_)
        | Spec::Policy(_) => None,
    })
}

/// The hosts that a caller may see.
pub(crate) fn hosts<'a>(snapshot: &'a Snapshot, caller: &'a Caller) -> impl Iterator<Item = &'a EnrolledHost> {
    snapshot.intent.hosts.values().filter(|host| caller.sees(&host.namespace))
}

/// ``; did you mean `NAMESPACE/NAME`?``: the same name in another namespace, or the nearest one.
pub(crate) fn suggestion<'a>(asked: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let last = |text: &'a str| text.rsplit('/').next().unwrap_or(text);
    let own = asked.rsplit('/').next().unwrap_or(asked);
    let same = known.clone().find(|known| last(known) == own);
    let near = || {
        let nearest_last = nearest(own, known.clone().map(last))?;
        known.clone().find(|known| last(known) == nearest_last)
    };
    let found = same.or_else(|| nearest(asked, known.clone())).or_else(near);
    found.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default()
}

/// Who has which address.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<IpAddr, String>);

impl Names {
    /// Of everything that a caller may see.
    pub(crate) fn of(snapshot: &Snapshot, caller: &Caller) -> Self {
        let mut names = BTreeMap::new();
        for (key, spec) in endpoints(snapshot, caller) {
            let name = format!("{}/{}", key.namespace, key.name);
            names.extend(spec.addresses.iter().map(|address| (address.to_canonical(), name.clone())));
        }
        for host in hosts(snapshot, caller) {
            names.extend(host.addresses.iter().map(|address| (address.to_canonical(), host_name(host))));
        }
        Self(names)
    }

    /// Names the peers of every rule and change.
    pub(crate) fn name_changes(&self, changes: &mut PolicyChanges) {
        changes.rules_added.iter_mut().chain(&mut changes.rules_removed).for_each(|rule| self.name_rule(rule));
        for peers in &mut changes.peers {
            self.name_ranges(&mut peers.added);
            self.name_ranges(&mut peers.removed);
        }
    }

    /// Names the peers of a rule.
    pub(crate) fn name_rule(&self, rule: &mut RuleView) {
        if let Some(peers) = &mut rule.peers {
            self.name_ranges(peers);
        }
    }

    fn name_ranges(&self, ranges: &mut Ranges) {
        for range in &ranges.ranges {
            match self.all_in(range) {
                Some(names) => {
                    for name in names {
                        if !ranges.names.contains(&name) {
                            ranges.names.push(name);
                        }
                    }
                }
                None => ranges.unnamed.push(range.clone()),
            }
        }
    }

    /// The names of every address of a range; nothing if one of them has none.
    fn all_in(&self, range: &str) -> Option<Vec<String>> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let found: Vec<&String> = self.0.range(first..=last).map(|(_, name)| name).collect();
        let addresses = number(last).checked_sub(number(first))?.checked_add(1)?;
        if addresses > RANGE_ADDRESSES_MAX || found.len() as u128 != addresses {
            return None;
        }
        Some(found.into_iter().cloned().collect())
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_known_hosts_are_named_and_what_holds_anybody_else_stays_addresses() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let names = [("10.0.0.1", "a/x"), ("10.0.0.2", "a/y"), ("fd00::1", "a/x")];
        let names = Names(names.map(|(text, name)| (address(text), name.to_owned())).into());
        let listed = ["10.0.0.1-10.0.0.2", "10.0.0.2-10.0.0.3", "fd00::1", "0.0.0.0-255.255.255.255"];
        let mut ranges = Ranges { count: 4, ranges: listed.map(str::to_owned).to_vec(), ..Ranges::default() };
        names.name_ranges(&mut ranges);
        assert_eq!(ranges.names, ["a/x", "a/y"]);
        assert_eq!(ranges.unnamed, ["10.0.0.2-10.0.0.3", "0.0.0.0-255.255.255.255"]);
    }

    #[test]
    fn the_same_name_elsewhere_is_suggested_before_one_that_is_only_near() {
        let known = ["booking/web-1", "booking/web-2", "edge/db-1"];
        let suggest = |asked: &str| suggestion(asked, known.into_iter());
        assert_eq!(suggest("default/web-2"), "; did you mean `booking/web-2`?");
        assert_eq!(suggest("bokking/web-1"), "; did you mean `booking/web-1`?");
        assert_eq!(suggest("wbe-1"), "; did you mean `booking/web-1`?");
        assert_eq!(suggest("printer"), "");
    }
}
