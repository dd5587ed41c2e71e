//! One cell, asked of both judges at every pair of addresses.

use std::net::IpAddr;

use holdfast_documents::estate::{At, Cell, Estate, Party, Probe, Want};
use holdfast_evaluator::{self as evaluator, End, Pair, Verdict};
use holdfast_interpreter::{Direction, Packet, Spans};
use holdfast_model::address::Family;
use holdfast_model::intent::{Intent, Spec};
use holdfast_model::policy::{Mode, PortRange, protocol};

use super::artifacts::{Artifacts, artifacts};
use super::span::Landmarks;
use super::{Error, MakeIndex, Wrong};

/// ICMP type of an echo request, by family.
const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;

/// Both judges of one state of one estate.
pub(super) struct Judge<'a> {
    estate: &'a Estate,
    step: usize,
    intent: &'a Intent,
    artifacts: Artifacts,
    landmarks: Landmarks,
}

impl<'a> Judge<'a> {
    pub(super) fn of(estate: &'a Estate, step: usize, intent: &'a Intent, index: MakeIndex<'_>) -> Result<Self, Error> {
        let artifacts = artifacts(estate, step, intent, index)?;
        Ok(Self { estate, step, intent, artifacts, landmarks: Landmarks::of(intent) })
    }

    /// What is wrong with a cell: nothing if both judges answer as wanted at every pair of addresses.
    pub(super) fn cell(&self, cell: &Cell) -> Vec<Wrong> {
        let mut faults = Vec::new();
        let mut pairs = 0;
        for from in self.ends(&cell.from) {
            for to in self.ends(&cell.to) {
                let family = Family::of(from.address);
                if family == Family::of(to.address) && cell.family.is_none_or(|wanted| wanted == family) {
                    pairs += 1;
                    faults.extend(self.pair(cell, &from, &to));
                }
            }
        }
        if pairs == 0 {
            let wanted = "an address of a common family at both ends".to_owned();
            faults.push(Wrong { wanted, ..self.wrong(cell, None) });
        }
        faults
    }

    /// The ends that a party can be.
    fn ends(&self, party: &Party) -> Vec<End> {
        match party {
            Party::Host(id) => {
                let addresses = self.intent.hosts.get(id).map(|host| host.addresses.as_slice()).unwrap_or_default();
                addresses.iter().map(|address| End::host(*id, *address)).collect()
            }
            Party::Endpoint(key) => match self.intent.objects.get(key) {
                Some(Spec::Endpoint(spec)) => {
                    spec.addresses.iter().map(|address| End::endpoint(key.clone(), *address)).collect()
                }
                _ => Vec::new(),
            },
            Party::Address(address) => vec![End::outside(*address)],
            Party::Span(first, last) => self.landmarks.samples(*first, *last).into_iter().map(End::outside).collect(),
        }
    }

    fn pair(&self, cell: &Cell, from: &End, to: &End) -> Vec<Wrong> {
        let pair = match Pair::of(self.intent, from.clone(), to.clone()) {
            Ok(pair) => pair,
            Err(error) => {
                let evaluator = error.to_string();
                return vec![Wrong { evaluator, ..self.wrong(cell, Some((from, to))) }];
            }
        };
        let passes = |verdict: &Verdict| match cell.at {
            At::BothEnds => verdict.allowed,
            At::Destination => verdict.ingress.allows() || verdict.ingress_mode != Some(Mode::Enforced),
        };
        match &cell.want {
            Want::Packet { probe, allow } => {
                let by_evaluator = passes(&pair.judge(packet_of(*probe, from.address)));
                let by_artifact = self.artifact_passes(cell, from, to, *probe);
                if by_evaluator == *allow && by_artifact == *allow {
                    return Vec::new();
                }
                let (proto, port) = words(*probe);
                let (wanted, evaluator, artifact) = (word(*allow), word(by_evaluator), word(by_artifact));
                vec![Wrong { proto, port, wanted, evaluator, artifact, ..self.wrong(cell, Some((from, to))) }]
            }
            Want::Services(services) => {
                let mut faults = Vec::new();
                for (number, wanted) in services.as_ref() {
                    let wanted = real(wanted.clone());
                    let by_evaluator = real(pair.ports_where(*number, passes));
                    let by_artifact = real(self.artifact_ports(cell, from, to, *number));
                    if by_evaluator != wanted || by_artifact != wanted {
                        faults.push(Wrong {
                            proto: protocol_word(*number),
                            wanted: ports_word(&wanted),
                            evaluator: ports_word(&by_evaluator),
                            artifact: ports_word(&by_artifact),
                            ..self.wrong(cell, Some((from, to)))
                        });
                    }
                }
                faults
            }
        }
    }

    /// Whether the artifacts of the ends that are asked let a packet through.
    fn artifact_passes(&self, cell: &Cell, from: &End, to: &End, probe: Probe) -> bool {
        self.sides(cell, from, to).into_iter().all(|(party, direction, local, peer)| {
            let Party::Host(id) = party else { return true };
            let packet = match probe {
                Probe::Port { protocol, port } => Packet { local, peer, protocol, port: Some(port), icmp: None },
                Probe::Protocol(protocol) => Packet { local, peer, protocol, port: None, icmp: None },
                Probe::Echo => {
                    let (protocol, kind) = echo_of(local);
                    Packet { local, peer, protocol, port: None, icmp: Some((kind, 0)) }
                }
            };
            self.artifacts.get(id).is_some_and(|artifact| artifact.passes(direction, &packet))
        })
    }

    /// The ports that the artifacts of the ends that are asked let through.
    fn artifact_ports(&self, cell: &Cell, from: &End, to: &End, number: u8) -> Vec<PortRange> {
        let mut spans = Spans::all();
        for (party, direction, local, peer) in self.sides(cell, from, to) {
            let Party::Host(id) = party else { continue };
            spans = match self.artifacts.get(id) {
                None => Spans::none(),
                Some(artifact) if artifact.mode() == holdfast_interpreter::Mode::Enforced => {
                    spans.intersection(&artifact.services(direction, local, peer).of(number))
                }
                Some(_) => spans,
            };
        }
        spans.as_slice().iter().map(|(first, last)| PortRange { first: *first, last: *last }).collect()
    }

    /// The ends that are asked: party, direction, own address, the other's address.
    fn sides<'c>(&self, cell: &'c Cell, from: &End, to: &End) -> Vec<(&'c Party, Direction, IpAddr, IpAddr)> {
        let destination = (&cell.to, Direction::Ingress, to.address, from.address);
        match cell.at {
            At::Destination => vec![destination],
            At::BothEnds => vec![(&cell.from, Direction::Egress, from.address, to.address), destination],
        }
    }

    /// A fault with its place filled in.
    fn wrong(&self, cell: &Cell, ends: Option<(&End, &End)>) -> Wrong {
        let at = |party: &Party, end: Option<&End>| match (party, end) {
            (Party::Host(_) | Party::Endpoint(_) | Party::Span(..), Some(end)) => {
                format!("{} ({})", self.estate.name_of(party), end.address)
            }
            (party, _) => self.estate.name_of(party),
        };
        Wrong {
            estate: self.estate.id.clone(),
            step: self.step,
            from: at(&cell.from, ends.map(|(from, _)| from)),
            to: at(&cell.to, ends.map(|(_, to)| to)),
            family: ends.map(|(from, _)| from.family()).or(cell.family).map_or_else(String::new, |it| it.to_string()),
            ..Wrong::default()
        }
    }
}

fn packet_of(probe: Probe, address: IpAddr) -> evaluator::Packet {
    match probe {
        Probe::Port { protocol, port } => evaluator::Packet::Port { protocol, port },
        Probe::Echo => evaluator::Packet::Icmp { kind: echo_of(address).1, code: 0 },
        Probe::Protocol(number) => evaluator::Packet::Other(number),
    }
}

/// Protocol and type of an echo request of an address's family.
fn echo_of(address: IpAddr) -> (u8, u8) {
    match Family::of(address) {
        Family::V4 => (protocol::ICMP, ECHO_REQUEST_V4),
        Family::V6 => (protocol::ICMPV6, ECHO_REQUEST_V6),
    }
}

fn words(probe: Probe) -> (String, String) {
    match probe {
        Probe::Port { protocol, port } => (protocol_word(protocol), port.to_string()),
        Probe::Echo => ("icmp".to_owned(), "echo-request".to_owned()),
        Probe::Protocol(number) => (protocol_word(number), String::new()),
    }
}

fn protocol_word(number: u8) -> String {
    match number {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::SCTP => "sctp".to_owned(),
        other => other.to_string(),
    }
}

/// Ports without port 0, which no service has: "all ports" and "1 to 65535" are one statement.
fn real(mut ranges: Vec<PortRange>) -> Vec<PortRange> {
    if let Some(range) = ranges.first_mut().filter(|range| range.first == 0) {
        range.first = 1;
    }
    ranges.retain(|range| range.first <= range.last);
    ranges
}

fn word(allowed: bool) -> String {
    if allowed { "allowed" } else { "denied" }.to_owned()
}

fn ports_word(ranges: &[PortRange]) -> String {
    match ranges {
        [] => "none".to_owned(),
        [PortRange { first: 1, last: u16::MAX }] => "any".to_owned(),
        _ => {
            let one = |range: &PortRange| {
                if range.first == range.last {
                    range.first.to_string()
                } else {
                    format!("{}-{}", range.first, range.last)
                }
            };
            ranges.iter().map(one).collect::<Vec<_>>().join(" ")
        }
    }
}
