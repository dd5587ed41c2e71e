//! An authored policy as rule groups: merged, canonical, not yet resolved to addresses.
//!
//! - Rules of one policy that differ in their peers only are one group, whose peers are the union.
//! - Nothing here depends on what hosts, endpoints or address groups there are.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::address::{Address, Interval};
use holdfast_model::intent::{DEFAULT_ORDER, NamespaceMatch, ObjectKey, Peer, PeerSpec, Policy, PolicyRule};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::label::Selector;
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, Direction};

use crate::keys::{Fields, GroupId, direction_byte};
use crate::members::{Gathered, Members};
use crate::mutant::{Faults, Mutant};
use crate::services::Services;

/// What a group shares among the authored rules in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) id: GroupId,
    pub(crate) order: i32,
    pub(crate) action: Action,
    pub(crate) log: bool,
    pub(crate) services: Services,
    pub(crate) local: Option<Members>,
}

/// The other end of a group, as authored.
#[derive(Default)]
pub(crate) struct AuthoredPeers {
    /// Anybody; what else is listed says nothing more.
    pub(crate) any: bool,
    pub(crate) selects: BTreeSet<(NamespaceMatch, Selector)>,
    pub(crate) groups: BTreeSet<Name>,
    pub(crate) fixed: Members,
}

/// The groups of one direction of a policy, ascending by identity.
pub(crate) fn groups_of(
    key: &ObjectKey,
    policy: &Policy,
    direction: Direction,
    faults: Faults,
) -> Vec<(Head, AuthoredPeers)> {
    let rules = match (direction, faults.has(Mutant::SwapDirections)) {
        (Direction::Ingress, false) | (Direction::Egress, true) => &policy.ingress,
        (Direction::Egress, false) | (Direction::Ingress, true) => &policy.egress,
    };
    let mut groups: BTreeMap<GroupId, (Head, Draft)> = BTreeMap::new();
    for rule in rules {
        let head = head_of(key, direction, rule, faults);
        let (_, draft) = groups.entry(head.id).or_insert_with(|| (head, Draft::default()));
        draft.add(&rule.peers, faults);
    }
    groups.into_values().map(|(head, draft)| (head, draft.into_peers(faults))).collect()
}

fn head_of(key: &ObjectKey, direction: Direction, rule: &PolicyRule, faults: Faults) -> Head {
    let services = Services::of(&rule.services, faults);
    let local = rule.local.as_ref().map(Members::of_nets);
    let order = if faults.has(Mutant::MergeOrders) { DEFAULT_ORDER } else { rule.order };
    let mut fields = Fields::group();
    fields.text(key.kind.word());
    fields.text(key.namespace.as_str());
    fields.text(key.name.as_str());
    fields.fixed([direction_byte(direction)]);
    fields.fixed(order.to_be_bytes());
    fields.fixed([u8::from(rule.action == Action::Allow), u8::from(rule.log)]);
    services.write(&mut fields);
    fields.fixed([u8::from(local.is_some())]);
    if let Some(local) = &local {
        write_intervals(&mut fields, &local.v4);
        write_intervals(&mut fields, &local.v6);
    }
    Head { id: fields.into_group_id(), order, action: rule.action, log: rule.log, services, local }
}

fn write_intervals<A: Address>(fields: &mut Fields, set: &IntervalSet<A>) {
    fields.count(set.len());
    set.for_each(|interval: Interval<A>| {
        fields.fixed(interval.first().widen().to_be_bytes());
        fields.fixed(interval.last().widen().to_be_bytes());
    });
}

#[derive(Default)]
struct Draft {
    peers: AuthoredPeers,
    nets: Gathered,
}

impl Draft {
    fn add(&mut self, spec: &PeerSpec, faults: Faults) {
        let peers = match spec {
            PeerSpec::Any => {
                self.peers.any = true;
                return;
            }
            PeerSpec::Of(peers) => peers,
        };
        for peer in peers {
            match peer {
                Peer::Select { namespaces, labels } => {
                    self.peers.selects.insert((namespaces.clone(), labels.clone()));
                }
                Peer::Cidr { cidr, .. } if faults.has(Mutant::DropExcept) => self.nets.add_net(*cidr),
                Peer::Cidr { cidr, except } => self.nets.add_net_except(*cidr, except),
                Peer::Group(name) => {
                    self.peers.groups.insert(name.clone());
                }
            }
        }
    }

    fn into_peers(self, faults: Faults) -> AuthoredPeers {
        let mut fixed = self.nets.into_members();
        if faults.has(Mutant::IgnoreFamily) {
            match (fixed.v4.is_empty(), fixed.v6.is_empty()) {
                (false, true) => fixed.v6 = [Interval::full()].into_iter().collect(),
                (true, false) => fixed.v4 = [Interval::full()].into_iter().collect(),
                (true, true) | (false, false) => {}
            }
        }
        AuthoredPeers { fixed, ..self.peers }
    }
}
