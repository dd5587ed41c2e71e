//! The services of a rule in one canonical form, and the statements that they come to.
//!
//! - Equal meaning where it can be seen without knowing a host gives equal form: lists are sorted and merged, a whole protocol swallows its ports.
//! - A port range of a protocol without ports and a range that ends before it starts match no packet, and leave no statement.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::address::Family;
use holdfast_model::intent::{DeclaredPort, PortSpec, Service, ServiceSpec};
use holdfast_model::policy::{IcmpKind, PortRange, Statement, protocol};

use crate::keys::Fields;
use crate::mutant::{Faults, Mutant};

/// Canonical services.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Services {
    /// Every packet.
    Any,
    /// These.
    Of(Listed),
}

/// Listed services.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Listed {
    protocols: BTreeSet<u8>,
    ports: BTreeMap<u8, Vec<PortRange>>,
    named: BTreeSet<(u8, String)>,
    icmp_v4: BTreeSet<IcmpKind>,
    icmp_v6: BTreeSet<IcmpKind>,
}

impl Services {
    pub(crate) fn of(spec: &ServiceSpec, faults: Faults) -> Self {
        match spec {
            ServiceSpec::Any => Self::Any,
            ServiceSpec::Of(services) => {
                let mut listed = Listed::default();
                services.iter().for_each(|service| listed.add(service, faults));
                listed.settle(faults);
                Self::Of(listed)
            }
        }
    }

    /// The statements at a destination with these declared ports: its own resolution of names joins the numbers.
    pub(crate) fn statements_at(&self, declared: &[DeclaredPort]) -> Vec<Statement> {
        match self {
            Self::Any => vec![Statement::Any],
            Self::Of(listed) => listed.statements_at(declared),
        }
    }

    /// Whether any service is a name.
    pub(crate) fn has_names(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Of(listed) => !listed.named.is_empty(),
        }
    }

    /// The ports that names come to at a destination, without those that are matched by number anyway.
    pub(crate) fn named_at(&self, declared: &[DeclaredPort]) -> BTreeSet<(u8, u16)> {
        match self {
            Self::Any => BTreeSet::new(),
            Self::Of(listed) => {
                listed.resolve(declared).filter(|(protocol, port)| !listed.has_number(*protocol, *port)).collect()
            }
        }
    }

    /// Adds the canonical form to what is hashed.
    pub(crate) fn write(&self, fields: &mut Fields) {
        let listed = match self {
            Self::Any => return fields.fixed([0]),
            Self::Of(listed) => listed,
        };
        fields.fixed([1]);
        fields.count(listed.protocols.len());
        listed.protocols.iter().for_each(|protocol| fields.fixed([*protocol]));
        fields.count(listed.ports.len());
        for (protocol, ranges) in &listed.ports {
            fields.fixed([*protocol]);
            fields.count(ranges.len());
            for range in ranges {
                fields.fixed(range.first.to_be_bytes());
                fields.fixed(range.last.to_be_bytes());
            }
        }
        fields.count(listed.named.len());
        for (protocol, name) in &listed.named {
            fields.fixed([*protocol]);
            fields.text(name);
        }
        for kinds in [&listed.icmp_v4, &listed.icmp_v6] {
            fields.count(kinds.len());
            for kind in kinds {
                fields.fixed([kind.kind, u8::from(kind.code.is_some()), kind.code.unwrap_or(0)]);
            }
        }
    }
}

const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP)
}

impl Listed {
    fn add(&mut self, service: &Service, faults: Faults) {
        match service {
            Service::Protocol(protocol) => {
                self.protocols.insert(*protocol);
            }
            Service::Ports { protocol, ports: PortSpec::Range(range) } => {
                let mut range = *range;
                if faults.has(Mutant::IgnorePortEnd) {
                    range.last = range.first;
                }
                if faults.has(Mutant::PortOffByOne) {
                    range.last = range.last.saturating_add(1);
                }
                if has_ports(*protocol) && range.first <= range.last {
                    self.ports.entry(*protocol).or_default().push(range);
                }
            }
            Service::Ports { protocol, ports: PortSpec::Named(name) } => {
                if has_ports(*protocol) {
                    self.named.insert((*protocol, name.clone()));
                }
            }
            Service::Icmp { v4, v6 } if v4.is_empty() && v6.is_empty() => {
                self.protocols.extend([protocol::ICMP, protocol::ICMPV6]);
            }
            Service::Icmp { v4, v6 } => {
                self.icmp_v4.extend(v4);
                self.icmp_v6.extend(v6);
            }
        }
    }

    /// Brings what was added into canonical form.
    fn settle(&mut self, faults: Faults) {
        for (protocol, ranges) in std::mem::take(&mut self.ports) {
            match Statement::ports(protocol, ranges) {
                Statement::Protocol(whole) => {
                    self.protocols.insert(whole);
                }
                Statement::Ports { ranges, .. } => {
                    self.ports.insert(protocol, ranges);
                }
                Statement::Any | Statement::Icmp { .. } => {}
            }
        }
        if faults.has(Mutant::LoseUdp) {
            self.protocols.remove(&protocol::UDP);
            self.ports.remove(&protocol::UDP);
            self.named.retain(|(protocol, _)| *protocol != protocol::UDP);
        }
        let whole = &self.protocols;
        self.ports.retain(|protocol, _| !whole.contains(protocol));
        self.named.retain(|(protocol, _)| !whole.contains(protocol));
        for (number, kinds) in [(protocol::ICMP, &mut self.icmp_v4), (protocol::ICMPV6, &mut self.icmp_v6)] {
            if whole.contains(&number) {
                kinds.clear();
            }
            let any_code: BTreeSet<u8> =
                kinds.iter().filter(|kind| kind.code.is_none()).map(|kind| kind.kind).collect();
            kinds.retain(|kind| kind.code.is_none() || !any_code.contains(&kind.kind));
        }
    }

    fn resolve<'a>(&'a self, declared: &'a [DeclaredPort]) -> impl Iterator<Item = (u8, u16)> + 'a {
        declared
            .iter()
            .filter(|port| self.named.iter().any(|(protocol, name)| *protocol == port.protocol && *name == port.name))
            .map(|port| (port.protocol, port.port))
    }

    fn has_number(&self, protocol: u8, port: u16) -> bool {
        self.ports.get(&protocol).is_some_and(|ranges| ranges.iter().any(|range| range.contains(port)))
    }

    fn statements_at(&self, declared: &[DeclaredPort]) -> Vec<Statement> {
        let mut ports = self.ports.clone();
        for (protocol, port) in self.resolve(declared) {
            ports.entry(protocol).or_default().push(PortRange::single(port));
        }
        let mut statements: Vec<Statement> = self.protocols.iter().copied().map(Statement::Protocol).collect();
        statements.extend(ports.into_iter().map(|(protocol, ranges)| Statement::ports(protocol, ranges)));
        for (family, kinds) in [(Family::V4, &self.icmp_v4), (Family::V6, &self.icmp_v6)] {
            if !kinds.is_empty() {
                statements.push(Statement::Icmp { family, kinds: kinds.iter().copied().collect() });
            }
        }
        statements
    }
}
