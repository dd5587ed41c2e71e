//! From an estate's expectations to cells that packets can show. Pure.
//!
//! - Where an estate states exact sets of ports, each boundary of every range that it names for the protocol is probed, one below and one above
//!   it too, and one port that it names nowhere. The full sets are compared on the artifact, not here.
//! - A span of addresses is probed at its ends and its middle; an end that no packet can come from stands aside to the next that can.
//! - What packets cannot show is named with its reason, never left out in silence.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_documents::estate::{self, At, Estate, Probe, State, Want};
use holdfast_model::address::Family;
use holdfast_model::intent::{Intent, PortSpec, Service, ServiceSpec, Spec};
use holdfast_model::policy::PortRange;

use super::{Cell, Expected};
use crate::flow::Flow;
use crate::party::Party;
use crate::topology::is_assignable;

/// The first port from which one is looked for that an estate does not name: no service of any catalogue is near.
const UNNAMED_PORT_FROM: u16 = 23_457;

/// What packets show and what they cannot.
#[derive(Clone, Debug, Default)]
pub struct Expansion {
    /// What is probed, each once.
    pub cells: Vec<Cell>,
    /// What is not.
    pub skipped: Vec<Skipped>,
}

/// An expectation that packets cannot show.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub struct Skipped {
    /// Who would open the connection.
    pub from: String,
    /// Toward whom.
    pub to: String,
    /// Why not.
    pub why: Why,
}

/// Why packets cannot show an expectation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It asks what one end alone would let through, and packets pass both.
    OneEndOnly,
    /// Neither end is a host, so no rules are asked.
    NoHost,
    /// No address of it can send or receive.
    NoAddress,
    /// Port 0 cannot be opened.
    PortZero,
}

/// Expands the expectations of one state that ask the rules of these ends. Those that ask the destination alone can be shown only by hosts whose
/// egress was left open, so they are skipped by a run for both ends, and are all that a run for destinations has.
#[must_use]
pub fn cells_of(estate: &Estate, state: &State, at: At) -> Expansion {
    let named = NamedPorts::of(estate);
    let owned: BTreeSet<IpAddr> = state.intent.hosts.values().flat_map(|host| host.addresses.iter().copied()).collect();
    let mut cells = BTreeSet::new();
    let mut skipped = BTreeSet::new();
    for expectation in &state.cells {
        let expanded = match (expectation.at, at) {
            (At::BothEnds, At::BothEnds) | (At::Destination, At::Destination) => {
                expand(estate, &state.intent, expectation, &named, &owned)
            }
            (At::Destination, At::BothEnds) => Err(Why::OneEndOnly),
            (At::BothEnds, At::Destination) => continue,
        };
        match expanded {
            Ok(expanded) => cells.extend(expanded),
            Err(why) => {
                let (from, to) = (estate.name_of(&expectation.from), estate.name_of(&expectation.to));
                skipped.insert(Skipped { from, to, why });
            }
        }
    }
    Expansion { cells: cells.into_iter().collect(), skipped: skipped.into_iter().collect() }
}

fn expand(
    estate: &Estate,
    intent: &Intent,
    expectation: &estate::Cell,
    named: &NamedPorts,
    owned: &BTreeSet<IpAddr>,
) -> Result<Vec<Cell>, Why> {
    let (sources, destinations) =
        (ends(estate, intent, &expectation.from, owned), ends(estate, intent, &expectation.to, owned));
    if sources.iter().chain(&destinations).all(|end| matches!(end.party, Party::Outside(_))) {
        return Err(if sources.is_empty() || destinations.is_empty() { Why::NoAddress } else { Why::NoHost });
    }
    let flows = flows_of(&expectation.want, named);
    if flows.is_empty() {
        return Err(Why::PortZero);
    }
    let mut cells = Vec::new();
    for from in &sources {
        for to in &destinations {
            let common = from.families.intersection(&to.families);
            for family in common.filter(|family| expectation.family.is_none_or(|wanted| wanted == **family)) {
                cells.extend(flows.iter().map(|(flow, expected)| Cell {
                    from: from.party.clone(),
                    to: to.party.clone(),
                    family: *family,
                    flow: *flow,
                    expected: *expected,
                }));
            }
        }
    }
    if cells.is_empty() { Err(Why::NoAddress) } else { Ok(cells) }
}

/// One party that packets can come from or go to.
struct End {
    party: Party,
    families: BTreeSet<Family>,
}

impl End {
    fn outside(address: IpAddr) -> Self {
        Self { party: Party::Outside(address), families: [Family::of(address)].into() }
    }
}

fn ends(estate: &Estate, intent: &Intent, party: &estate::Party, owned: &BTreeSet<IpAddr>) -> Vec<End> {
    let outside = |addresses: &[IpAddr]| -> Vec<End> {
        let usable = addresses.iter().filter(|address| is_assignable(**address) && !owned.contains(address));
        usable.copied().map(End::outside).collect()
    };
    match party {
        estate::Party::Host(id) => intent
            .hosts
            .get(id)
            .filter(|host| !host.addresses.is_empty())
            .map(|host| End {
                party: Party::Host(estate.name_of(party)),
                families: host.addresses.iter().copied().map(Family::of).collect(),
            })
            .into_iter()
            .collect(),
        estate::Party::Endpoint(key) => match intent.objects.get(key) {
            Some(Spec::Endpoint(endpoint)) => outside(&endpoint.addresses),
            Some(
                Spec::AddressGroup(_) | Spec::Host(_) | Spec::Namespace(_) | Spec::NetworkPolicy(_) | Spec::Policy(_),
            )
            | None => Vec::new(),
        },
        estate::Party::Address(address) => outside(&[*address]),
        estate::Party::Span(first, last) => outside(&span_points(*first, *last)),
    }
}

/// The ends and the middle of a span, moved inward to where packets can come from.
fn span_points(first: IpAddr, last: IpAddr) -> Vec<IpAddr> {
    let (low, middle, high) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let first = first.max(Ipv4Addr::new(1, 0, 0, 0));
            let last = last.min(Ipv4Addr::new(223, 255, 255, 255));
            let middle = u32::from(first).midpoint(u32::from(last));
            (first.into(), Ipv4Addr::from(middle).into(), last.into())
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let first = first.max(Ipv6Addr::new(1, 0, 0, 0, 0, 0, 0, 0));
            let last = last.min(Ipv6Addr::new(0xfe7f, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff));
            let middle = u128::from(first).midpoint(u128::from(last));
            (first.into(), Ipv6Addr::from(middle).into(), last.into())
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return Vec::new(),
    };
    // A span that lies wholly where no packet comes from has its ends the wrong way round by now.
    let points: [IpAddr; 3] = [low, middle, high];
    let mut points: Vec<IpAddr> = if low <= high { points.to_vec() } else { Vec::new() };
    points.dedup();
    points
}

/// What is probed for a wish, and what must come of it. Port 0 is left out: sockets cannot have it.
fn flows_of(want: &Want, named: &NamedPorts) -> BTreeMap<Flow, Expected> {
    let expected = |allow: bool| if allow { Expected::Allowed } else { Expected::Denied };
    match want {
        Want::Packet { probe: Probe::Port { port: 0, .. }, .. } => BTreeMap::new(),
        Want::Packet { probe, allow } => {
            let flow = match probe {
                Probe::Port { protocol, port } => Flow::of_protocol(*protocol, *port),
                Probe::Echo => Flow::Icmp,
                Probe::Protocol(number) => Flow::of_protocol(*number, 0),
            };
            [(flow, expected(*allow))].into()
        }
        Want::Services(services) => {
            let mut flows = BTreeMap::new();
            for (protocol, ranges) in services.as_ref() {
                for port in named.probed(*protocol) {
                    let allow = ranges.iter().any(|range| range.contains(port));
                    flows.insert(Flow::of_protocol(*protocol, port), expected(allow));
                }
            }
            flows
        }
    }
}

/// The boundaries of all ranges of ports that an estate names, by protocol.
#[derive(Default)]
struct NamedPorts {
    ranges: BTreeMap<u8, BTreeSet<PortRange>>,
}

impl NamedPorts {
    fn of(estate: &Estate) -> Self {
        let mut named = Self::default();
        for state in &estate.states {
            for cell in &state.cells {
                match &cell.want {
                    Want::Packet { probe: Probe::Port { protocol, port }, .. } => {
                        named.put(*protocol, PortRange::single(*port));
                    }
                    Want::Packet { probe: Probe::Echo | Probe::Protocol(_), .. } => {}
                    Want::Services(services) => services
                        .iter()
                        .flat_map(|(protocol, ranges)| ranges.iter().map(|range| (*protocol, *range)))
                        .for_each(|(protocol, range)| named.put(protocol, range)),
                }
            }
            named.read(&state.intent);
        }
        named
    }

    fn read(&mut self, intent: &Intent) {
        let declared = intent.hosts.values().flat_map(|host| &host.ports);
        declared.for_each(|port| self.put(port.protocol, PortRange::single(port.port)));
        for spec in intent.objects.values() {
            match spec {
                Spec::Policy(policy) | Spec::NetworkPolicy(policy) => {
                    for rule in policy.ingress.iter().chain(&policy.egress) {
                        let ServiceSpec::Of(services) = &rule.services else { continue };
                        for service in services {
                            if let Service::Ports { protocol, ports: PortSpec::Range(range) } = service {
                                self.put(*protocol, *range);
                            }
                        }
                    }
                }
                Spec::Endpoint(endpoint) => {
                    endpoint.ports.iter().for_each(|port| self.put(port.protocol, PortRange::single(port.port)));
                }
                Spec::Host(host) => {
                    let declared = host.ports.iter().flatten();
                    declared.for_each(|port| self.put(port.protocol, PortRange::single(port.port)));
                }
                Spec::AddressGroup(_) | Spec::Namespace(_) => {}
            }
        }
    }

    fn put(&mut self, protocol: u8, range: PortRange) {
        self.ranges.entry(protocol).or_default().insert(range);
    }

    /// The ports that are probed: boundaries, their neighbours, and one that no narrow range holds.
    fn probed(&self, protocol: u8) -> BTreeSet<u16> {
        let ranges = self.ranges.get(&protocol).into_iter().flatten();
        let mut ports: BTreeSet<u16> = ranges
            .flat_map(|range| [range.first, range.last])
            .flat_map(|port| [port.checked_sub(1), Some(port), port.checked_add(1)])
            .flatten()
            .filter(|port| *port != 0)
            .collect();
        ports.extend((UNNAMED_PORT_FROM..u16::MAX).find(|port| !ports.contains(port)));
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_their_neighbours_and_one_unnamed_port_are_probed() {
        let mut named = NamedPorts::default();
        named.put(6, PortRange::single(80));
        named.put(6, PortRange { first: 8000, last: 8100 });
        named.put(6, PortRange { first: 0, last: u16::MAX });
        let ports: Vec<u16> = named.probed(6).into_iter().collect();
        assert_eq!(ports, [1, 79, 80, 81, 7999, 8000, 8001, 8099, 8100, 8101, 23_457, 65_534, 65_535]);
        assert_eq!(named.probed(17), [23_457].into());
    }

    #[test]
    fn a_span_is_probed_where_packets_can_come_from() {
        let points = |first: &str, last: &str| span_points(first.parse().unwrap(), last.parse().unwrap());
        let text = |points: Vec<IpAddr>| points.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(points("10.0.0.0", "10.0.0.4")), ["10.0.0.0", "10.0.0.2", "10.0.0.4"]);
        assert_eq!(text(points("0.0.0.0", "255.255.255.255")), ["1.0.0.0", "112.127.255.255", "223.255.255.255"]);
        assert_eq!(points("224.0.0.0", "255.255.255.255"), Vec::<IpAddr>::new());
        assert_eq!(points("192.0.2.1", "192.0.2.1").len(), 1);
    }
}
