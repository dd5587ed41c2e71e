//! Two ends with the rules that speak about them, ready to judge any packet between the two.

use holdfast_model::address::Family;
use holdfast_model::intent::{
    DeclaredPort, Intent, ObjectKey, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::policy::{Action, Direction, IcmpKind, Mode, PortRange, protocol};

use crate::facts::Facts;
use crate::flow::{End, FlowError, Packet};
use crate::verdict::{Decision, RuleRef, Verdict};

/// Two ends and the rules between them.
#[derive(Debug)]
pub struct Pair<'a> {
    family: Family,
    egress: Option<Side<'a>>,
    ingress: Option<Side<'a>>,
    /// The ports that the destination declares.
    declared: Vec<DeclaredPort>,
}

/// What the policies of one host say about traffic with one peer, in one direction.
#[derive(Debug)]
struct Side<'a> {
    mode: Mode,
    isolated_by: Vec<ObjectKey>,
    /// In the order in which they decide.
    rules: Vec<Candidate<'a>>,
}

/// A rule whose subject and peer are these two.
#[derive(Debug)]
struct Candidate<'a> {
    rule: &'a PolicyRule,
    name: RuleRef,
}

impl<'a> Pair<'a> {
    /// Gathers what intent says about traffic that `from` opens toward `to`.
    ///
    /// # Errors
    /// [`FlowError`] if an end is not in the intent or the two addresses are of different families.
    pub fn of(intent: &'a Intent, from: End, to: End) -> Result<Self, FlowError> {
        let family = from.family();
        if family != to.family() {
            return Err(FlowError::Families(from.address, to.address));
        }
        let source = Facts::of(intent, &from)?;
        let destination = Facts::of(intent, &to)?;
        Ok(Self {
            family,
            egress: Side::of(intent, &source, &destination, Direction::Egress),
            ingress: Side::of(intent, &destination, &source, Direction::Ingress),
            declared: destination.known.map(|known| known.ports).unwrap_or_default(),
        })
    }

    /// Decides one packet.
    #[must_use]
    pub fn judge(&self, packet: Packet) -> Verdict {
        let decide = |side: &Option<Side<'_>>| match side {
            None => (Decision::NotGoverned, None),
            Some(side) => (side.decide(|rule| self.covers(&rule.services, packet)), Some(side.mode)),
        };
        Verdict::of(decide(&self.egress), decide(&self.ingress))
    }

    /// The exact set of ports of TCP, UDP or SCTP for which `wanted` holds, ascending, never meeting.
    ///
    /// Judges one port of each stretch in which no rule can tell two ports apart.
    #[must_use]
    pub fn ports_where(&self, protocol: u8, wanted: impl Fn(&Verdict) -> bool) -> Vec<PortRange> {
        let mut starts = self.stretch_starts(protocol);
        starts.sort_unstable();
        starts.dedup();
        let lasts = starts.iter().skip(1).map(|next| next - 1).chain([u16::MAX]);
        let mut found: Vec<PortRange> = Vec::new();
        for (first, last) in starts.iter().copied().zip(lasts) {
            if !wanted(&self.judge(Packet::Port { protocol, port: first })) {
                continue;
            }
            match found.last_mut() {
                Some(open) if open.last.checked_add(1) == Some(first) => open.last = last,
                _ => found.push(PortRange { first, last }),
            }
        }
        found
    }

    /// The exact set of ports of TCP, UDP or SCTP that get through.
    #[must_use]
    pub fn allowed_ports(&self, protocol: u8) -> Vec<PortRange> {
        self.ports_where(protocol, |verdict| verdict.allowed)
    }

    /// The ports at which what a rule says may begin to differ, port 0 among them.
    fn stretch_starts(&self, protocol: u8) -> Vec<u16> {
        let mut starts = vec![0];
        for side in [&self.egress, &self.ingress].into_iter().flatten() {
            for candidate in &side.rules {
                let ServiceSpec::Of(services) = &candidate.rule.services else { continue };
                for service in services {
                    let Service::Ports { protocol: number, ports } = service else { continue };
                    if *number != protocol {
                        continue;
                    }
                    for range in self.resolve(protocol, ports) {
                        starts.push(range.first);
                        starts.extend(range.last.checked_add(1));
                    }
                }
            }
        }
        starts
    }

    fn covers(&self, services: &ServiceSpec, packet: Packet) -> bool {
        match services {
            ServiceSpec::Any => true,
            ServiceSpec::Of(list) => list.iter().any(|service| self.covers_one(service, packet)),
        }
    }

    fn covers_one(&self, service: &Service, packet: Packet) -> bool {
        match (service, packet) {
            (Service::Protocol(number), packet) => *number == self.protocol_of(packet),
            (Service::Ports { protocol, ports }, Packet::Port { protocol: number, port }) => {
                *protocol == number && self.resolve(number, ports).iter().any(|range| range.contains(port))
            }
            (Service::Icmp { v4, v6 }, Packet::Icmp { kind, code }) => {
                let kinds = match self.family {
                    Family::V4 => v4,
                    Family::V6 => v6,
                };
                let hit = |wanted: &IcmpKind| wanted.kind == kind && wanted.code.is_none_or(|wanted| wanted == code);
                (v4.is_empty() && v6.is_empty()) || kinds.iter().any(hit)
            }
            (Service::Ports { .. }, Packet::Icmp { .. } | Packet::Other(_))
            | (Service::Icmp { .. }, Packet::Port { .. } | Packet::Other(_)) => false,
        }
    }

    const fn protocol_of(&self, packet: Packet) -> u8 {
        match (packet, self.family) {
            (Packet::Port { protocol, .. }, _) => protocol,
            (Packet::Icmp { .. }, Family::V4) => protocol::ICMP,
            (Packet::Icmp { .. }, Family::V6) => protocol::ICMPV6,
            (Packet::Other(number), _) => number,
        }
    }

    /// The ports that are meant: a name is what the destination declares.
    fn resolve(&self, protocol: u8, ports: &PortSpec) -> Vec<PortRange> {
        match ports {
            PortSpec::Range(range) => vec![*range],
            PortSpec::Named(name) => self
                .declared
                .iter()
                .filter(|declared| declared.name == *name && declared.protocol == protocol)
                .map(|declared| PortRange::single(declared.port))
                .collect(),
        }
    }
}

impl<'a> Side<'a> {
    /// What the policies of `subject` say; nothing if it is no host.
    fn of(intent: &'a Intent, subject: &Facts, peer: &Facts, direction: Direction) -> Option<Self> {
        let known = subject.known.as_ref()?;
        let mut side = Self { mode: known.mode?, isolated_by: Vec::new(), rules: Vec::new() };
        for (key, spec) in &intent.objects {
            let (Spec::Policy(policy) | Spec::NetworkPolicy(policy)) = spec else { continue };
            if key.namespace != known.namespace || !policy.subject.matches(&known.labels) {
                continue;
            }
            let (isolates, rules) = part(policy, direction);
            if isolates {
                side.isolated_by.push(key.clone());
            }
            for (index, rule) in rules.iter().enumerate() {
                let here = rule.local.as_ref().is_none_or(|nets| nets.iter().any(|net| subject.is_in(*net)));
                if here && peer.is_among(intent, &key.namespace, &rule.peers) {
                    let name = RuleRef { policy: key.clone(), direction, index };
                    side.rules.push(Candidate { rule, name });
                }
            }
        }
        side.rules.sort_by_key(|candidate| (candidate.rule.order, candidate.rule.action));
        Some(side)
    }

    fn decide(&self, matches: impl Fn(&PolicyRule) -> bool) -> Decision {
        match self.rules.iter().find(|candidate| matches(candidate.rule)) {
            Some(candidate) => match candidate.rule.action {
                Action::Allow => Decision::Allowed(candidate.name.clone()),
                Action::Deny => Decision::Denied(candidate.name.clone()),
            },
            None if self.isolated_by.is_empty() => Decision::Open,
            None => Decision::Isolated(self.isolated_by.clone()),
        }
    }
}

/// One direction of a policy.
fn part(policy: &Policy, direction: Direction) -> (bool, &[PolicyRule]) {
    match direction {
        Direction::Ingress => (policy.isolate_ingress, &policy.ingress),
        Direction::Egress => (policy.isolate_egress, &policy.egress),
    }
}
