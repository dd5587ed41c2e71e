//! Edits of an index, and whom they touch.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdfast_model::ids::HostId;
use holdfast_model::intent::{
    AddressGroupSpec, DeclaredPort, EndpointSpec, EnrolledHost, HostSpec, Kind, NamespaceSpec, Object, ObjectKey, Spec,
};
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_model::policy::Mode;
use roaring::RoaringBitmap;

use super::parties::{Parties, Party, PartyKey, selects};
use super::queries::{GroupRef, Place, Question};
use super::{Affected, Edit, Index, NAMESPACE_NAME_LABEL};
use crate::members::Members;
use crate::mutant::Faults;

/// What an edit has touched so far.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) hosts: BTreeSet<HostId>,
    gone: BTreeSet<HostId>,
    groups: BTreeMap<GroupRef, Doubt>,
}

/// Which peers of a group an edit may have changed.
pub(super) enum Doubt {
    /// Any of them.
    All,
    /// These addresses.
    Addresses(BTreeSet<IpAddr>),
}

impl Touched {
    fn doubt_all<'a>(&mut self, groups: impl IntoIterator<Item = &'a GroupRef>) {
        self.groups.extend(groups.into_iter().map(|group| (*group, Doubt::All)));
    }

    fn doubt<'a>(&mut self, groups: impl IntoIterator<Item = &'a GroupRef>, addresses: &BTreeSet<IpAddr>) {
        for group in groups {
            match self.groups.entry(*group).or_insert_with(|| Doubt::Addresses(BTreeSet::new())) {
                Doubt::All => {}
                Doubt::Addresses(doubted) => doubted.extend(addresses),
            }
        }
    }
}

impl Index {
    /// Takes one edit; answers the hosts that it can touch.
    pub fn apply(&mut self, edit: Edit) -> Affected {
        let mut touched = Touched::default();
        match edit {
            Edit::PutObject(object) => {
                let Object { namespace, name, spec } = object;
                self.put(namespace, name, spec, &mut touched);
            }
            Edit::DeleteObject(key) => self.delete(key, &mut touched),
            Edit::PutHost(host) => self.put_host(host, &mut touched),
            Edit::RemoveHost(id) => self.remove_host(id, &mut touched),
        }
        for (group, doubt) in std::mem::take(&mut touched.groups) {
            self.resettle(group, &doubt, &mut touched);
        }
        Affected { hosts: touched.hosts, gone: touched.gone }
    }

    fn put(&mut self, namespace: Name, name: Name, spec: Spec, touched: &mut Touched) {
        let key = ObjectKey { kind: spec.kind(), namespace, name };
        match spec {
            Spec::AddressGroup(AddressGroupSpec { cidrs }) => {
                self.replace_address_group((key.namespace, key.name), Some(Members::of_nets(&cidrs)), touched);
            }
            Spec::Endpoint(spec) => {
                let party = endpoint(&key.namespace, &key.name, spec);
                self.replace_party(&party.key.clone(), Some(party), touched);
            }
            Spec::Host(spec) => {
                let named = (key.namespace, key.name);
                self.host_specs.insert(named.clone(), spec);
                self.refresh_hosts(&named, touched);
            }
            Spec::Namespace(NamespaceSpec { labels }) => self.replace_namespace(&key.name, Some(labels), touched),
            Spec::NetworkPolicy(policy) | Spec::Policy(policy) => self.replace_policy(&key, Some(&policy), touched),
        }
    }

    fn delete(&mut self, key: ObjectKey, touched: &mut Touched) {
        match key.kind {
            Kind::AddressGroup => self.replace_address_group((key.namespace, key.name), None, touched),
            Kind::Endpoint => {
                let key = PartyKey::Endpoint { namespace: key.namespace, name: key.name };
                self.replace_party(&key, None, touched);
            }
            Kind::Host => {
                let named = (key.namespace, key.name);
                self.host_specs.remove(&named);
                self.refresh_hosts(&named, touched);
            }
            Kind::Namespace => self.replace_namespace(&key.name, None, touched),
            Kind::NetworkPolicy | Kind::Policy => self.replace_policy(&key, None, touched),
        }
    }

    fn put_host(&mut self, host: EnrolledHost, touched: &mut Touched) {
        let id = host.id;
        self.forget_name(id);
        self.host_names.entry((host.namespace.clone(), host.name.clone())).or_default().insert(id);
        self.enrolled.insert(id, host);
        self.refresh_host(id, touched);
    }

    fn remove_host(&mut self, id: HostId, touched: &mut Touched) {
        self.forget_name(id);
        self.enrolled.remove(&id);
        self.refresh_host(id, touched);
    }

    fn forget_name(&mut self, id: HostId) {
        let Some(host) = self.enrolled.get(&id) else { return };
        let named = (host.namespace.clone(), host.name.clone());
        if let Some(ids) = self.host_names.get_mut(&named) {
            ids.remove(&id);
            if ids.is_empty() {
                self.host_names.remove(&named);
            }
        }
    }

    fn refresh_hosts(&mut self, named: &(Name, Name), touched: &mut Touched) {
        for id in self.host_names.get(named).cloned().unwrap_or_default() {
            self.refresh_host(id, touched);
        }
    }

    /// Brings one host's party in line with its enrolment and its `Host` object.
    fn refresh_host(&mut self, id: HostId, touched: &mut Touched) {
        let party = self.enrolled.get(&id).map(|host| {
            let spec = self.host_specs.get(&(host.namespace.clone(), host.name.clone()));
            effective_host(host, spec)
        });
        self.replace_party(&PartyKey::Host(id), party, touched);
    }

    fn replace_party(&mut self, key: &PartyKey, after: Option<Party>, touched: &mut Touched) {
        let before = self.parties.by_key(key);
        if before == after.as_ref() {
            return;
        }
        let sides = [before, after.as_ref()];
        let candidates: BTreeSet<_> =
            sides.into_iter().flatten().flat_map(|party| self.queries.candidates(party)).collect();
        let (slot, before) = self.parties.replace(key, after);
        let after = self.parties.at(slot);
        let differ = |read: fn(&Party) -> &[DeclaredPort]| before.as_ref().map(read) != after.map(read);
        let ports_differ = differ(|party| &party.ports);
        let reach_differs =
            ports_differ || before.as_ref().map(|party| &party.addresses) != after.map(|party| &party.addresses);
        let addresses: BTreeSet<IpAddr> =
            before.iter().chain(after).flat_map(|party| party.addresses.iter().copied()).collect();
        let host = before.as_ref().or(after).and_then(Party::host);
        for id in candidates {
            let Some(query) = self.queries.at_mut(id) else { continue };
            let was = query.members.contains(slot);
            let is = after.is_some_and(|party| answers(&query.question, party, &self.namespaces, self.faults));
            if is {
                query.members.insert(slot);
            } else {
                query.members.remove(slot);
            }
            if was != is || (is && reach_differs) {
                touched.doubt(&query.peers, &addresses);
            }
            if let Some(host) = host.filter(|_| was != is && !query.subjects.is_empty()) {
                let governing = self.governed.entry(slot).or_default();
                if is {
                    governing.extend(&query.subjects);
                } else {
                    governing.retain(|policy| !query.subjects.contains(policy));
                }
                if governing.is_empty() {
                    self.governed.remove(&slot);
                }
                touched.hosts.insert(host);
            }
        }
        let Some(host) = host else { return };
        match (before, after) {
            (_, None) => {
                touched.hosts.remove(&host);
                touched.gone.insert(host);
            }
            (Some(before), Some(after)) if before.mode == after.mode => {
                if ports_differ && self.asks_own_ports(slot) {
                    touched.hosts.insert(host);
                }
            }
            (Some(_) | None, Some(_)) => {
                touched.hosts.insert(host);
            }
        }
    }

    /// Whether the declared ports of the host at a slot have a say in its own body.
    fn asks_own_ports(&self, slot: u32) -> bool {
        self.governing(slot).any(|(_, policy)| policy.asks_subject(self.faults))
    }

    fn replace_namespace(&mut self, name: &Name, after: Option<Labels>, touched: &mut Touched) {
        let old = namespace_labels(name, &self.namespaces);
        match after {
            Some(labels) => self.namespaces.insert(name.clone(), labels),
            None => self.namespaces.remove(name),
        };
        let new = namespace_labels(name, &self.namespaces);
        if old == new {
            return;
        }
        let inside = self.parties.in_namespace(name);
        let moved: Vec<_> = self
            .queries
            .by_namespace_labels()
            .map(|(id, _, selector)| (id, selects(selector, &old, self.faults), selects(selector, &new, self.faults)))
            .filter(|(_, was, is)| was != is)
            .collect();
        for (id, _, is) in moved {
            let Some(query) = self.queries.at_mut(id) else { continue };
            let mine = self.parties.matching(&query.question.labels, inside.clone(), self.faults);
            if mine.is_empty() {
                continue;
            }
            if is {
                query.members |= mine;
            } else {
                query.members -= mine;
            }
            touched.doubt_all(&query.peers);
        }
    }

    fn replace_address_group(&mut self, named: (Name, Name), after: Option<Members>, touched: &mut Touched) {
        if self.address_groups.get(&named) == after.as_ref() {
            return;
        }
        touched.doubt_all(self.address_group_users.get(&named).into_iter().flatten());
        match after {
            Some(members) => self.address_groups.insert(named, members),
            None => self.address_groups.remove(&named),
        };
    }
}

/// What is in force for an enrolled host.
fn effective_host(host: &EnrolledHost, spec: Option<&HostSpec>) -> Party {
    let mut labels = host.labels.clone();
    labels.extend(spec.into_iter().flat_map(|spec| spec.labels.clone()));
    let ports = spec.and_then(|spec| spec.ports.as_ref()).unwrap_or(&host.ports);
    Party {
        key: PartyKey::Host(host.id),
        namespace: host.namespace.clone(),
        labels,
        ports: canonical_ports(ports.clone()),
        addresses: host.addresses.iter().map(IpAddr::to_canonical).collect(),
        mode: spec.and_then(|spec| spec.mode).unwrap_or_default(),
    }
}

fn endpoint(namespace: &Name, name: &Name, spec: EndpointSpec) -> Party {
    Party {
        key: PartyKey::Endpoint { namespace: namespace.clone(), name: name.clone() },
        namespace: namespace.clone(),
        labels: spec.labels,
        ports: canonical_ports(spec.ports),
        addresses: spec.addresses.iter().map(IpAddr::to_canonical).collect(),
        // An endpoint has no agent that could enforce anything.
        mode: Mode::default(),
    }
}

/// Sorted and each once, so that hosts of one role are seen to be.
fn canonical_ports(mut ports: Vec<DeclaredPort>) -> Vec<DeclaredPort> {
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The labels of a namespace, authored or not.
fn namespace_labels(name: &Name, authored: &BTreeMap<Name, Labels>) -> Labels {
    let mut labels = authored.get(name).cloned().unwrap_or_default();
    labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name.as_str().to_owned());
    labels
}

/// Whether a question means a party.
fn answers(question: &Question, party: &Party, namespaces: &BTreeMap<Name, Labels>, faults: Faults) -> bool {
    let here = match &question.place {
        Place::In(namespace) => *namespace == party.namespace,
        Place::Matching(selector) => selects(selector, &namespace_labels(&party.namespace, namespaces), faults),
    };
    here && selects(&question.labels, &party.labels, faults)
}

/// Whom a question means.
pub(super) fn evaluate(
    question: &Question,
    parties: &Parties,
    namespaces: &BTreeMap<Name, Labels>,
    faults: Faults,
) -> RoaringBitmap {
    let within = match &question.place {
        Place::In(namespace) => parties.in_namespace(namespace),
        Place::Matching(selector) => parties
            .namespaces()
            .filter(|(name, _)| selects(selector, &namespace_labels(name, namespaces), faults))
            .fold(RoaringBitmap::new(), |all, (_, inside)| all | inside),
    };
    parties.matching(&question.labels, within, faults)
}
