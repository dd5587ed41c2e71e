//! The peers of rule groups as addresses.
//!
//! - What a group comes to depends on the intent, never on the host that asks; only the named ports of ingress depend on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdfast_model::intent::DeclaredPort;
use holdfast_model::name::Name;
use holdfast_model::policy::{Direction, Peers, PortRange, Rule, Set, SetKey, Statement};
use roaring::RoaringBitmap;

use crate::compile::Head;
use crate::index::parties::Parties;
use crate::index::queries::{Queries, QueryId};
use crate::keys::Part;
use crate::members::{Gathered, Members};
use crate::mutant::{Faults, Mutant};

/// A group with its peers.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) head: Head,
    pub(crate) any: bool,
    /// Whom selectors mean.
    pub(crate) selected: Vec<QueryId>,
    /// Everybody, where names are looked up at peers that are meant by their address: as anybody, by prefix or by address group.
    pub(crate) named_everywhere: Option<QueryId>,
    pub(crate) groups: BTreeSet<Name>,
    pub(crate) fixed: Members,
    pub(crate) resolved: Resolved,
    /// What it adds to a body where the subject's declared ports have no say.
    pub(crate) ready: Addition,
}

/// Rules of one direction and their sets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Addition {
    pub(crate) rules: Vec<Rule>,
    pub(crate) sets: Vec<Set>,
}

/// What the peers of a group come to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Resolved {
    /// Every peer; `None` is anybody.
    pub(crate) peers: Option<Members>,
    /// Where names are looked up at the peer: the peers that declare this port of this protocol under a wanted name.
    pub(crate) named: BTreeMap<(u8, u16), Members>,
}

/// At which end of a connection a named port is declared: at its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NamedAt {
    Subject,
    Peer,
}

impl NamedAt {
    pub(crate) fn of(direction: Direction, faults: Faults) -> Self {
        match (direction, faults.has(Mutant::NamedPortAtWrongEnd)) {
            (Direction::Ingress, false) | (Direction::Egress, true) => Self::Subject,
            (Direction::Egress, false) | (Direction::Ingress, true) => Self::Peer,
        }
    }
}

impl Group {
    /// Whether the group asks its peers for named ports.
    pub(crate) fn names_at_peer(&self, direction: Direction, faults: Faults) -> bool {
        self.head.services.has_names() && NamedAt::of(direction, faults) == NamedAt::Peer
    }

    /// Whether the group asks its subject for named ports.
    pub(crate) fn names_at_subject(&self, direction: Direction, faults: Faults) -> bool {
        self.head.services.has_names() && NamedAt::of(direction, faults) == NamedAt::Subject
    }

    /// Every query that the group has a use for.
    pub(crate) fn all_queries(&self) -> impl Iterator<Item = QueryId> + use<> {
        self.selected.clone().into_iter().chain(self.named_everywhere)
    }

    /// Takes what the peers come to; answers whether it is something new.
    pub(crate) fn become_resolved(&mut self, resolved: Resolved) -> bool {
        let changed = resolved != self.resolved;
        self.resolved = resolved;
        self.ready = self.addition(&[]);
        changed
    }

    /// What the peers come to, from the ground up.
    pub(crate) fn resolve(&self, direction: Direction, faults: Faults, ground: &Ground<'_>) -> Resolved {
        let slots = self.selected.iter().fold(RoaringBitmap::new(), |all, id| all | ground.queries.members(*id));
        let named = if self.names_at_peer(direction, faults) { self.named(&slots, ground) } else { BTreeMap::new() };
        if self.any {
            return Resolved { peers: None, named };
        }
        let mut sources: Vec<&Members> = self.groups.iter().filter_map(|name| ground.address_group(name)).collect();
        sources.push(&self.fixed);
        sources.retain(|members| !members.is_empty());
        if let ([_] | [], true) = (sources.as_slice(), slots.is_empty()) {
            // One large address group is shared as it is, not copied.
            return Resolved { peers: Some(sources.pop().cloned().unwrap_or_default()), named };
        }
        let mut gathered = Gathered::default();
        sources.iter().for_each(|members| gathered.add_members(members));
        for party in slots.iter().filter_map(|slot| ground.parties.at(slot)) {
            party.addresses.iter().for_each(|address| gathered.add_address(*address));
        }
        Resolved { peers: Some(gathered.into_members()), named }
    }

    /// What the peers come to, where only these addresses may have come or gone and no name is looked up at peers.
    pub(crate) fn resolve_again(&self, doubted: &BTreeSet<IpAddr>, ground: &Ground<'_>) -> Resolved {
        let mut resolved = self.resolved.clone();
        if let Some(peers) = &mut resolved.peers {
            doubted.iter().for_each(|address| peers.set(*address, self.means(*address, ground)));
        }
        resolved
    }

    /// Whether an address is that of a peer.
    fn means(&self, address: IpAddr, ground: &Ground<'_>) -> bool {
        let selected = |slots: &RoaringBitmap| {
            let queries = self.selected.iter().filter_map(|id| ground.queries.at(*id));
            queries.into_iter().any(|query| !query.members.is_disjoint(slots))
        };
        self.means_by_address(address, ground) || ground.parties.at_address(address).is_some_and(selected)
    }

    /// Whether an address is that of a peer, whoever has it.
    fn means_by_address(&self, address: IpAddr, ground: &Ground<'_>) -> bool {
        let mut groups = self.groups.iter().filter_map(|name| ground.address_group(name));
        self.any || self.fixed.contains(address) || groups.any(|group| group.contains(address))
    }

    /// The rules and sets of the resolved group, at a subject with these declared ports if names are looked up there.
    pub(crate) fn addition(&self, declared: &[DeclaredPort]) -> Addition {
        let mut addition = Addition::default();
        let local = self.head.local.as_ref().map(|local| self.put_set(&mut addition, Part::Local, local));
        let peers = match &self.resolved.peers {
            None => Peers::Any,
            Some(members) => Peers::Set(self.put_set(&mut addition, Part::Peers, members)),
        };
        for statement in self.head.services.statements_at(declared) {
            addition.rules.push(self.rule(statement, peers, local));
        }
        for (&(protocol, port), members) in &self.resolved.named {
            let peers = Peers::Set(self.put_set(&mut addition, Part::Named { protocol, port }, members));
            let statement = Statement::ports(protocol, vec![PortRange::single(port)]);
            addition.rules.push(self.rule(statement, peers, local));
        }
        addition
    }

    fn put_set(&self, addition: &mut Addition, part: Part, members: &Members) -> SetKey {
        let key = self.head.id.set_key(part);
        addition.sets.push(Set { key, v4: members.v4.clone(), v6: members.v6.clone() });
        key
    }

    fn rule(&self, statement: Statement, peers: Peers, local: Option<SetKey>) -> Rule {
        Rule {
            key: self.head.id.rule_key(&statement),
            order: self.head.order,
            action: self.head.action,
            statement,
            peers,
            local,
            log: self.head.log,
        }
    }

    /// The peers at which a wanted name is declared, by what it is declared as.
    fn named(&self, selected: &RoaringBitmap, ground: &Ground<'_>) -> BTreeMap<(u8, u16), Members> {
        let everywhere = self.named_everywhere.map(|id| ground.queries.members(id)).unwrap_or_default();
        let mut gathered: BTreeMap<(u8, u16), Gathered> = BTreeMap::new();
        for slot in &(selected | everywhere) {
            let Some(party) = ground.parties.at(slot) else { continue };
            let ports = self.head.services.named_at(&party.ports);
            if ports.is_empty() {
                continue;
            }
            let is_selected = selected.contains(slot);
            let meant = |address: &&IpAddr| is_selected || self.means_by_address(**address, ground);
            let meant: Vec<IpAddr> = party.addresses.iter().filter(meant).copied().collect();
            if meant.is_empty() && !is_selected {
                continue;
            }
            for port in ports {
                let peers = gathered.entry(port).or_default();
                meant.iter().for_each(|address| peers.add_address(*address));
            }
        }
        gathered.into_iter().map(|(port, peers)| (port, peers.into_members())).collect()
    }
}

/// What groups are resolved from.
pub(crate) struct Ground<'a> {
    pub(crate) namespace: &'a Name,
    pub(crate) parties: &'a Parties,
    pub(crate) queries: &'a Queries,
    pub(crate) address_groups: &'a BTreeMap<(Name, Name), Members>,
}

impl Ground<'_> {
    /// An address group of the policy's namespace; one that is not there has no members.
    fn address_group(&self, name: &Name) -> Option<&Members> {
        self.address_groups.get(&(self.namespace.clone(), name.clone()))
    }
}
