//! Which addresses stand for a whole span.
//!
//! A span's answer can change only where a prefix of some rule begins or ends. Its ends, its middle and such places inside it are asked, the
//! latter evenly thinned where there are very many (an address group has thousands).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_model::address::{Either, interval_of};
use holdfast_model::intent::{Intent, Peer, PeerSpec, Spec};
use ipnet::IpNet;

/// The most places inside one span that are asked.
const PLACES_MAX: usize = 64;

/// The places where answers can change, and the addresses that are somebody's.
#[derive(Debug, Default)]
pub(super) struct Landmarks {
    places: BTreeSet<IpAddr>,
    owned: BTreeSet<IpAddr>,
}

impl Landmarks {
    /// Gathers them from an intent.
    pub(super) fn of(intent: &Intent) -> Self {
        let mut marks = Self::default();
        marks.owned.extend(intent.hosts.values().flat_map(|host| host.addresses.clone()));
        for spec in intent.objects.values() {
            match spec {
                Spec::AddressGroup(group) => group.cidrs.iter().for_each(|net| marks.put(*net)),
                Spec::Endpoint(endpoint) => marks.owned.extend(endpoint.addresses.clone()),
                Spec::Policy(policy) | Spec::NetworkPolicy(policy) => {
                    for rule in policy.ingress.iter().chain(&policy.egress) {
                        let PeerSpec::Of(peers) = &rule.peers else { continue };
                        for peer in peers {
                            let Peer::Cidr { cidr, except } = peer else { continue };
                            marks.put(*cidr);
                            except.iter().for_each(|net| marks.put(*net));
                        }
                    }
                }
                Spec::Host(_) | Spec::Namespace(_) => {}
            }
        }
        marks
    }

    /// The first address of a prefix and the first one after it.
    fn put(&mut self, net: IpNet) {
        match interval_of(net) {
            Either::V4(interval) => {
                self.places.insert(IpAddr::V4(Ipv4Addr::from_bits(interval.first())));
                self.places.extend(interval.last().checked_add(1).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))));
            }
            Either::V6(interval) => {
                self.places.insert(IpAddr::V6(Ipv6Addr::from_bits(interval.first())));
                self.places.extend(interval.last().checked_add(1).map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))));
            }
        }
    }

    /// Addresses that stand for a span; those of hosts and endpoints are left out, because a span is outside.
    pub(super) fn samples(&self, first: IpAddr, last: IpAddr) -> Vec<IpAddr> {
        let inside: Vec<IpAddr> = self.places.range(first..=last).copied().collect();
        let step = inside.len().div_ceil(PLACES_MAX).max(1);
        let mut samples: BTreeSet<IpAddr> = inside.into_iter().step_by(step).collect();
        samples.extend([first, last, middle(first, last)]);
        samples.retain(|address| !self.owned.contains(address));
        samples.into_iter().collect()
    }
}

fn middle(first: IpAddr, last: IpAddr) -> IpAddr {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let (first, last) = (first.to_bits(), last.to_bits());
            IpAddr::V4(Ipv4Addr::from_bits(first + (last - first) / 2))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let (first, last) = (first.to_bits(), last.to_bits());
            IpAddr::V6(Ipv6Addr::from_bits(first + (last - first) / 2))
        }
        // A span is of one family where it is read; its first address stands for anything else.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => first,
    }
}
