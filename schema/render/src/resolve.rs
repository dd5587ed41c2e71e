//! The peers of rule groups as addresses.
//!
//! - What a group comes to depends on the intent, never on the host that asks; only the named ports of ingress depend on the host.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::intent::DeclaredPort;
use holdfast_model::name::Name;
use holdfast_model::policy::{Direction, Peers, PortRange, Rule, Set, SetKey, Statement};
use roaring::RoaringBitmap;

use crate::compile::Head;
use crate::index::parties::Parties;
use crate::index::queries::QueryId;
use crate::keys::Part;
use crate::members::{Gathered, Members};
use crate::mutant::{Faults, Mutant};

/// A group with its peers.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) head: Head,
    pub(crate) any: bool,
    pub(crate) queries: Vec<QueryId>,
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

    /// What the peers come to now.
    pub(crate) fn resolve(
        &self,
        names_at_peer: bool,
        slots: &RoaringBitmap,
        parties: &Parties,
        address_group: impl Fn(&Name) -> Option<Members>,
    ) -> Resolved {
        let named = if names_at_peer { self.named(slots, parties) } else { BTreeMap::new() };
        if self.any {
            return Resolved { peers: None, named };
        }
        let mut sources: Vec<Members> = self.groups.iter().filter_map(address_group).collect();
        sources.push(self.fixed.clone());
        sources.retain(|members| !members.is_empty());
        if slots.is_empty() && sources.len() <= 1 {
            // One large address group is shared as it is, not copied.
            return Resolved { peers: Some(sources.pop().unwrap_or_default()), named };
        }
        let mut gathered = Gathered::default();
        sources.iter().for_each(|members| gathered.add_members(members));
        for party in slots.iter().filter_map(|slot| parties.at(slot)) {
            party.addresses.iter().for_each(|address| gathered.add_address(*address));
        }
        Resolved { peers: Some(gathered.into_members()), named }
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

    fn named(&self, slots: &RoaringBitmap, parties: &Parties) -> BTreeMap<(u8, u16), Members> {
        let mut gathered: BTreeMap<(u8, u16), Gathered> = BTreeMap::new();
        for party in slots.iter().filter_map(|slot| parties.at(slot)) {
            for port in self.head.services.named_at(&party.ports) {
                let peers = gathered.entry(port).or_default();
                party.addresses.iter().for_each(|address| peers.add_address(*address));
            }
        }
        gathered.into_iter().map(|(port, peers)| (port, peers.into_members())).collect()
    }
}
