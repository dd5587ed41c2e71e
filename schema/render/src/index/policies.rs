//! Policies in an index: taken apart into queries and groups, and put away again.

use holdfast_model::intent::{NamespaceMatch, ObjectKey, Policy};
use holdfast_model::name::Name;
use holdfast_model::policy::Direction;
use roaring::RoaringBitmap;

use super::Index;
use super::edit::{Doubt, Touched, evaluate};
use super::queries::{GroupRef, Place, PolicySlot, QueryId, Question};
use crate::compile::{AuthoredPeers, Head, groups_of};
use crate::members::Members;
use crate::mutant::{Faults, Mutant};
use crate::resolve::{Addition, Ground, Group, Resolved};

/// One direction of a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Half {
    pub(crate) isolates: bool,
    pub(crate) groups: Vec<Group>,
}

/// A policy in an index.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    namespace: Name,
    pub(super) subject: QueryId,
    ingress: Half,
    egress: Half,
}

impl Compiled {
    pub(crate) fn half(&self, direction: Direction) -> &Half {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    fn half_mut(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Ingress => &mut self.ingress,
            Direction::Egress => &mut self.egress,
        }
    }

    fn groups(&self) -> impl Iterator<Item = (Direction, usize, &Group)> {
        Direction::ALL
            .into_iter()
            .flat_map(|direction| self.half(direction).groups.iter().enumerate().map(move |(at, g)| (direction, at, g)))
    }

    /// Whether the declared ports of a host that it governs have a say in that host's body.
    pub(crate) fn asks_subject(&self, faults: Faults) -> bool {
        self.groups().any(|(direction, _, group)| group.names_at_subject(direction, faults))
    }

    /// Whether two policies give every host that they govern the same.
    fn renders_as(&self, other: &Self) -> bool {
        Direction::ALL.into_iter().all(|direction| {
            let (mine, others) = (self.half(direction), other.half(direction));
            let same = |(a, b): (&Group, &Group)| a.head == b.head && a.resolved == b.resolved;
            mine.isolates == others.isolates
                && mine.groups.len() == others.groups.len()
                && mine.groups.iter().zip(&others.groups).all(same)
        })
    }
}

impl Index {
    /// Puts or removes a policy and notes the hosts that it changes.
    pub(super) fn replace_policy(&mut self, key: &ObjectKey, policy: Option<&Policy>, touched: &mut Touched) {
        let known = self.policy_slots.get(key).copied();
        let slot = known.unwrap_or(self.next_policy);
        let old = known.and_then(|slot| self.take_policy(slot));
        let new = policy.map(|policy| {
            if known.is_none() {
                self.policy_slots.insert(key.clone(), slot);
                self.next_policy += 1;
            }
            self.insert_policy(slot, key, policy)
        });
        if policy.is_none() {
            self.policy_slots.remove(key);
        }
        let changed = match (old, new) {
            (Some((old, before)), Some(after)) => {
                let same = self.policies.get(&slot).is_some_and(|new| new.renders_as(&old));
                if same { before ^ after } else { before | after }
            }
            (Some((_, only)), None) | (None, Some(only)) => only,
            (None, None) => return,
        };
        touched.hosts.extend(changed.iter().filter_map(|slot| self.parties.at(slot)?.host()));
    }

    /// Takes a policy out; answers it and the hosts that it governed.
    fn take_policy(&mut self, slot: PolicySlot) -> Option<(Compiled, RoaringBitmap)> {
        let old = self.policies.remove(&slot)?;
        let hosts = self.queries.members(old.subject) & self.parties.hosts();
        for host in &hosts {
            if let Some(governing) = self.governed.get_mut(&host) {
                governing.remove(&slot);
                if governing.is_empty() {
                    self.governed.remove(&host);
                }
            }
        }
        if let Some(query) = self.queries.at_mut(old.subject) {
            query.subjects.remove(&slot);
        }
        self.queries.release(old.subject);
        for (direction, at, group) in old.groups() {
            let user = GroupRef { policy: slot, direction, at };
            for id in group.all_queries() {
                if let Some(query) = self.queries.at_mut(id) {
                    query.peers.remove(&user);
                }
                self.queries.release(id);
            }
            for name in &group.groups {
                let named = (old.namespace.clone(), name.clone());
                if let Some(users) = self.address_group_users.get_mut(&named) {
                    users.remove(&user);
                    if users.is_empty() {
                        self.address_group_users.remove(&named);
                    }
                }
            }
        }
        Some((old, hosts))
    }

    /// Puts a policy in; answers the hosts that it governs.
    fn insert_policy(&mut self, slot: PolicySlot, key: &ObjectKey, policy: &Policy) -> RoaringBitmap {
        let namespace = &key.namespace;
        let question = Question { place: Place::In(namespace.clone()), labels: policy.subject.clone() };
        let subject = self.ensure_query(question);
        if let Some(query) = self.queries.at_mut(subject) {
            query.subjects.insert(slot);
        }
        let isolates = |asked: bool| asked && !self.faults.has(Mutant::LeaveOpen);
        let mut compiled = Compiled {
            namespace: namespace.clone(),
            subject,
            ingress: Half { isolates: isolates(policy.isolate_ingress), groups: Vec::new() },
            egress: Half { isolates: isolates(policy.isolate_egress), groups: Vec::new() },
        };
        for direction in Direction::ALL {
            let authored = groups_of(key, policy, direction, self.faults);
            let groups = authored.into_iter().enumerate().map(|(at, (head, peers))| {
                self.insert_group(GroupRef { policy: slot, direction, at }, namespace, head, peers)
            });
            compiled.half_mut(direction).groups = groups.collect();
        }
        self.policies.insert(slot, compiled);
        let hosts = self.queries.members(subject) & self.parties.hosts();
        for host in &hosts {
            self.governed.entry(host).or_default().insert(slot);
        }
        hosts
    }

    fn insert_group(&mut self, user: GroupRef, namespace: &Name, head: Head, peers: AuthoredPeers) -> Group {
        let AuthoredPeers { any, selects, groups, fixed } = peers;
        let mut group = Group {
            head,
            any,
            selected: Vec::new(),
            named_everywhere: None,
            groups,
            fixed,
            resolved: Resolved::default(),
            ready: Addition::default(),
        };
        if any {
            group.groups.clear();
            group.fixed = Members::default();
        } else {
            for (namespaces, labels) in selects {
                let place = match namespaces {
                    NamespaceMatch::Own => Place::In(namespace.clone()),
                    NamespaceMatch::Select(selector) => Place::Matching(selector),
                };
                group.selected.push(self.ensure_query(Question { place, labels }));
            }
        }
        let by_address = any || !group.groups.is_empty() || !group.fixed.is_empty();
        if by_address && group.names_at_peer(user.direction, self.faults) {
            group.named_everywhere = Some(self.ensure_query(Question::everybody()));
        }
        for id in group.all_queries() {
            if let Some(query) = self.queries.at_mut(id) {
                query.peers.insert(user);
            }
        }
        for name in &group.groups {
            self.address_group_users.entry((namespace.clone(), name.clone())).or_default().insert(user);
        }
        self.settle(&mut group, user.direction, namespace);
        group
    }

    fn ensure_query(&mut self, question: Question) -> QueryId {
        let (parties, namespaces, faults) = (&self.parties, &self.namespaces, self.faults);
        self.queries.ensure(question, |question| evaluate(question, parties, namespaces, faults))
    }

    /// Resolves a group from the ground up; answers whether what it comes to changed.
    fn settle(&self, group: &mut Group, direction: Direction, namespace: &Name) -> bool {
        let resolved = group.resolve(direction, self.faults, &self.ground(namespace));
        group.become_resolved(resolved)
    }

    /// Resolves a group again where it is in doubt, and notes the hosts of its policy if it changed.
    pub(super) fn resettle(&mut self, user: GroupRef, doubt: &Doubt, touched: &mut Touched) {
        let Some(mut policy) = self.policies.remove(&user.policy) else { return };
        let namespace = policy.namespace.clone();
        let changed = policy.half_mut(user.direction).groups.get_mut(user.at).is_some_and(|group| match doubt {
            Doubt::Addresses(addresses) if !group.names_at_peer(user.direction, self.faults) => {
                let resolved = group.resolve_again(addresses, &self.ground(&namespace));
                group.become_resolved(resolved)
            }
            Doubt::Addresses(_) | Doubt::All => self.settle(group, user.direction, &namespace),
        });
        if changed {
            let hosts = self.queries.members(policy.subject) & self.parties.hosts();
            touched.hosts.extend(hosts.iter().filter_map(|slot| self.parties.at(slot)?.host()));
        }
        self.policies.insert(user.policy, policy);
    }

    /// What groups of a policy of this namespace are resolved from.
    fn ground<'a>(&'a self, namespace: &'a Name) -> Ground<'a> {
        let (parties, queries, address_groups) = (&self.parties, &self.queries, &self.address_groups);
        Ground { namespace, parties, queries, address_groups }
    }
}
