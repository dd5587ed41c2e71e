//! Intent at the last revision, kept between requests and brought up to date by what changed.
//!
//! - What is kept is a copy of one revision, never a mixture: each request asks the store what came after it first.
//! - A request sees every change that was committed before it began.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, RwLock};

use holdfast_model::intent::{
    DeclaredPort, EnrolledHost, Intent, Kind, Object, ObjectKey, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service,
    ServiceSpec, Spec,
};
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use holdfast_model::policy::{Action, Mode, protocol};
use holdfast_render::{Edit, Index};
use holdfast_store::intent::Changes;
use holdfast_store::{Error, Store};
use time::OffsetDateTime;
use tokio::sync::OwnedSemaphorePermit;

use super::door::Past;

/// What an agent keeps open by itself if nobody says otherwise.
const FAILSAFE_PORT: u16 = 22;
/// How many edits are taken over before an index is made anew: about as dear.
const EDITS_MAX: usize = 1_000;

/// Everything in force at one revision.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    /// When the revision was made, which tells it from one of the same number in another history of the database.
    made_at: Option<OffsetDateTime>,
    pub(crate) intent: Intent,
    index: OnceLock<Arc<Index>>,
    /// An index of an earlier revision, and what leads from it to this one.
    earlier: Option<(Arc<Index>, Vec<Edit>)>,
    /// The place that it takes among those of the past.
    _room: Option<OwnedSemaphorePermit>,
}

impl Snapshot {
    /// What leads on to no other.
    pub(crate) const fn new(revision: Revision, intent: Intent) -> Self {
        Self::made(revision, None, intent)
    }

    const fn made(revision: Revision, made_at: Option<OffsetDateTime>, intent: Intent) -> Self {
        Self { revision, made_at, intent, index: OnceLock::new(), earlier: None, _room: None }
    }

    /// One that nobody keeps.
    pub(crate) fn of_past(past: Past) -> Self {
        let Past { revision, intent, room } = past;
        Self { _room: Some(room), ..Self::new(revision, intent) }
    }

    /// The same in the form that rendering asks. Takes long the first time on a large fleet.
    pub(crate) fn index(&self) -> Arc<Index> {
        let make = || match &self.earlier {
            None => Arc::new(Index::new(&self.intent)),
            Some((earlier, edits)) => {
                let mut index = Index::clone(earlier);
                for edit in edits {
                    index.apply(edit.clone());
                }
                Arc::new(index)
            }
        };
        Arc::clone(self.index.get_or_init(make))
    }

    /// What the next revision needs to make its index of this one's, before it knows what changed.
    fn index_so_far(&self) -> Option<(Arc<Index>, Vec<Edit>)> {
        match (self.index.get(), &self.earlier) {
            (Some(index), _) => Some((Arc::clone(index), Vec::new())),
            (None, earlier) => earlier.clone(),
        }
    }

    /// The object with a key.
    pub(crate) fn object(&self, key: &ObjectKey) -> Option<Object> {
        let spec = self.intent.objects.get(key)?.clone();
        Some(Object { namespace: key.namespace.clone(), name: key.name.clone(), spec })
    }

    /// The labels of a host: those of its token, overridden by its Host document.
    pub(crate) fn labels_of(&self, host: &EnrolledHost) -> Labels {
        let mut labels = host.labels.clone();
        let spec = self.host_spec(&host.namespace, &host.name);
        labels.extend(spec.map(|spec| spec.labels.clone()).unwrap_or_default());
        labels
    }

    /// The policies that govern a host, in the order of their keys.
    pub(crate) fn policies_of(&self, host: &EnrolledHost) -> Vec<&ObjectKey> {
        let labels = self.labels_of(host);
        let governs = |policy: &Policy| policy.subject.matches(&labels);
        let policies = self.policies().filter(|(key, policy)| key.namespace == host.namespace && governs(policy));
        policies.map(|(key, _)| key).collect()
    }

    /// The hosts that a policy governs; nothing if the key is no policy's.
    pub(crate) fn governed_by(&self, key: &ObjectKey) -> Option<Vec<&EnrolledHost>> {
        let policy = policy_of(self.intent.objects.get(key)?)?;
        let governed =
            |host: &&EnrolledHost| host.namespace == key.namespace && policy.subject.matches(&self.labels_of(host));
        Some(self.intent.hosts.values().filter(governed).collect())
    }

    /// What is odd about some of the objects though they may be in force, or out of it: policies that govern nobody, or name a group that is not
    /// there.
    pub(crate) fn warnings<'a>(&self, keys: impl IntoIterator<Item = &'a ObjectKey>) -> Vec<String> {
        let mut said = Vec::new();
        let ports = || self.intent.hosts.values().flat_map(|host| self.ports_of(host)).chain(self.endpoint_ports());
        let declared = LazyCell::new(|| ports().map(port_name).collect::<Declared<'_>>());
        for key in keys {
            let odd = self.governs_nobody(key).into_iter().chain(self.absent_groups(key));
            let odd = odd.chain(self.undeclared_ports(key, &declared));
            for odd in odd.chain(self.denies_failsafe(key)).chain(self.is_for_nobody(key)) {
                // A policy and the group that it names may both be among them.
                if !said.contains(&odd) {
                    said.push(odd);
                }
            }
        }
        said
    }

    fn governs_nobody(&self, key: &ObjectKey) -> Option<String> {
        let governed = self.governed_by(key)?;
        if !governed.is_empty() {
            return None;
        }
        let there = self.intent.hosts.values().filter(|host| host.namespace == key.namespace).count();
        let why = match there {
            0 => format!("no host is enrolled in the namespace {}", key.namespace),
            1 => format!("the one host of the namespace {} has other labels", key.namespace),
            n => format!("none of the {n} hosts of the namespace {} has the labels that it selects", key.namespace),
        };
        Some(format!("{key} governs no host: {why}"))
    }

    /// A Host document whose host is not enrolled: it may be yet, or the name is another's.
    fn is_for_nobody(&self, key: &ObjectKey) -> Option<String> {
        self.host_spec(&key.namespace, &key.name).filter(|_| key.kind == Kind::Host)?;
        let is_there = |host: &EnrolledHost| host.namespace == key.namespace && host.name == key.name;
        let nobody =
            || format!("{key} is for no host: none of that name is enrolled in the namespace {}", key.namespace);
        (!self.intent.hosts.values().any(is_there)).then(nobody)
    }

    /// The groups that this policy names and that are not there; of a group that is not there, the policies that name it.
    fn absent_groups(&self, key: &ObjectKey) -> Vec<String> {
        let group = |name: &Name| {
            let (kind, namespace) = (Kind::AddressGroup, key.namespace.clone());
            ObjectKey { kind, namespace, name: name.clone() }
        };
        let is_absent = |group: &ObjectKey| !self.intent.objects.contains_key(group);
        let said = |policy: &ObjectKey, group: &ObjectKey| {
            format!("{policy} names {group}, which is not there: it means nobody")
        };
        match key.kind {
            Kind::Policy | Kind::NetworkPolicy => {
                let named = self.intent.objects.get(key).and_then(policy_of).map(groups_of).unwrap_or_default();
                named.into_iter().map(group).filter(is_absent).map(|group| said(key, &group)).collect()
            }
            Kind::AddressGroup if is_absent(key) => {
                let names_it = |(policy, rules): &(&ObjectKey, &Policy)| {
                    policy.namespace == key.namespace && groups_of(rules).contains(&key.name)
                };
                self.policies().filter(names_it).map(|(policy, _)| said(policy, key)).collect()
            }
            Kind::AddressGroup | Kind::Endpoint | Kind::Host | Kind::Namespace => Vec::new(),
        }
    }

    /// The ports that a policy names and that nobody declares whose ports its rule is about: they mean no port.
    fn undeclared_ports(&self, key: &ObjectKey, anywhere: &Declared<'_>) -> Vec<String> {
        let Some(policy) = self.intent.objects.get(key).and_then(policy_of) else { return Vec::new() };
        let named = |direction, rules: &'_ [PolicyRule]| -> Vec<(&'static str, usize, u8, String)> {
            let of_rule = |(index, rule): (usize, &PolicyRule)| {
                let ports = named_ports(&rule.services).into_iter();
                ports.map(|(protocol, name)| (direction, index, protocol, name.clone())).collect::<Vec<_>>()
            };
            rules.iter().enumerate().flat_map(of_rule).collect()
        };
        let (own, others) = (named("ingress", &policy.ingress), named("egress", &policy.egress));
        // Of an ingress rule the ports are the governed host's own; of an egress rule those of whoever it leads to.
        let governed = if own.is_empty() { Vec::new() } else { self.governed_by(key).unwrap_or_default() };
        let here: Declared<'_> = governed.iter().flat_map(|host| self.ports_of(host)).map(port_name).collect();
        // Who governs nobody is told that.
        let own = own.into_iter().filter(|_| !governed.is_empty()).map(|port| (port, &here, "no host that it governs"));
        let others = others.into_iter().map(|port| (port, anywhere, "no host and no endpoint"));
        let odd =
            own.chain(others).filter(|((_, _, protocol, name), declared, _)| !declared.contains(&(*protocol, name)));
        let said = |((direction, index, _, name), _, who): ((&str, usize, u8, String), _, &str)| {
            format!("{key} names the port `{name}` ({direction}[{index}]), which {who} declares: it means no port")
        };
        odd.map(said).collect()
    }

    /// The ports that a host declares: those of its document in the place of those of its token.
    fn ports_of<'a>(&'a self, host: &'a EnrolledHost) -> &'a [DeclaredPort] {
        let spec = self.host_spec(&host.namespace, &host.name);
        spec.and_then(|spec| spec.ports.as_deref()).unwrap_or(&host.ports)
    }

    fn endpoint_ports(&self) -> impl Iterator<Item = &DeclaredPort> {
        self.intent.objects.values().flat_map(|spec| match spec {
            Spec::Endpoint(endpoint) => endpoint.ports.as_slice(),
            Spec::AddressGroup(_) | Spec::Host(_) | Spec::Namespace(_) | Spec::NetworkPolicy(_) | Spec::Policy(_) => {
                &[]
            }
        })
    }

    /// Whether a policy denies by name what agents keep open: it is written in vain.
    fn denies_failsafe(&self, key: &ObjectKey) -> Option<String> {
        let policy = policy_of(self.intent.objects.get(key)?)?;
        let denies = |rule: &PolicyRule| rule.action == Action::Deny && names_port(&rule.services, FAILSAFE_PORT);
        let index = policy.ingress.iter().position(denies)?;
        Some(format!(
            "{key} denies tcp {FAILSAFE_PORT} (ingress[{index}]), which agents keep open to everybody whatever is rendered, unless they are started \
             with other --failsafe-ports"
        ))
    }

    /// In which mode a host is to be.
    pub(crate) fn mode_of(&self, host: &EnrolledHost) -> Mode {
        self.host_spec(&host.namespace, &host.name).and_then(|spec| spec.mode).unwrap_or_default()
    }

    fn policies(&self) -> impl Iterator<Item = (&ObjectKey, &Policy)> {
        self.intent.objects.iter().filter_map(|(key, spec)| policy_of(spec).map(|policy| (key, policy)))
    }

    /// What an operator says of an enrolled host, if anything.
    pub(crate) fn host_spec(&self, namespace: &Name, name: &Name) -> Option<&holdfast_model::intent::HostSpec> {
        let key = ObjectKey { kind: Kind::Host, namespace: namespace.clone(), name: name.clone() };
        match self.intent.objects.get(&key) {
            Some(Spec::Host(spec)) => Some(spec),
            Some(
                Spec::AddressGroup(_)
                | Spec::Endpoint(_)
                | Spec::Namespace(_)
                | Spec::NetworkPolicy(_)
                | Spec::Policy(_),
            )
            | None => None,
        }
    }
}

/// Whether services name a TCP port in so many words; all of them name none.
fn names_port(services: &ServiceSpec, wanted: u16) -> bool {
    let ServiceSpec::Of(services) = services else { return false };
    services.iter().any(|service| match service {
        Service::Ports { protocol, ports: PortSpec::Range(range) } => {
            *protocol == protocol::TCP && range.contains(wanted)
        }
        Service::Ports { ports: PortSpec::Named(_), .. } | Service::Protocol(_) | Service::Icmp { .. } => false,
    })
}

/// Ports that are declared, by protocol and name.
type Declared<'a> = BTreeSet<(u8, &'a String)>;

const fn port_name(port: &DeclaredPort) -> (u8, &String) {
    (port.protocol, &port.name)
}

/// The ports that services name, with their protocols.
fn named_ports(services: &ServiceSpec) -> Vec<(u8, &String)> {
    let ServiceSpec::Of(services) = services else { return Vec::new() };
    let named = services.iter().filter_map(|service| match service {
        Service::Ports { protocol, ports: PortSpec::Named(name) } => Some((*protocol, name)),
        Service::Ports { ports: PortSpec::Range(_), .. } | Service::Protocol(_) | Service::Icmp { .. } => None,
    });
    named.collect()
}

/// The address groups that a policy names.
fn groups_of(policy: &Policy) -> BTreeSet<&Name> {
    let rules = policy.ingress.iter().chain(&policy.egress);
    let peers = rules.flat_map(|rule| match &rule.peers {
        PeerSpec::Any => &[][..],
        PeerSpec::Of(peers) => peers.as_slice(),
    });
    let named = peers.filter_map(|peer| match peer {
        Peer::Group(name) => Some(name),
        Peer::Select { .. } | Peer::Cidr { .. } => None,
    });
    named.collect()
}

const fn policy_of(spec: &Spec) -> Option<&Policy> {
    match spec {
        Spec::NetworkPolicy(policy) | Spec::Policy(policy) => Some(policy),
        Spec::AddressGroup(_) | Spec::Endpoint(_) | Spec::Host(_) | Spec::Namespace(_) => None,
    }
}

/// The kept copy.
#[derive(Debug)]
pub(crate) struct IntentView {
    store: Store,
    held: RwLock<Option<Arc<Snapshot>>>,
}

impl IntentView {
    pub(crate) const fn new(store: Store) -> Self {
        Self { store, held: RwLock::new(None) }
    }

    /// Intent at the last revision.
    pub(crate) async fn current(&self) -> Result<Arc<Snapshot>, Error> {
        let held = self.held.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let Some(held) = held else { return self.load().await };
        let changes = self.store.changes_since(held.revision).await?;
        if changes.after_at != held.made_at || changes.until < held.revision {
            // Another history of the database, whose revisions may have the same numbers: nothing of what is held counts.
            return self.load().await;
        }
        if changes.until == held.revision {
            return Ok(held);
        }
        Ok(self.keep(&held, advanced(&held, changes)))
    }

    async fn load(&self) -> Result<Arc<Snapshot>, Error> {
        let (revision, made_at, intent) = self.store.load_last_intent().await?;
        let loaded = Arc::new(Snapshot::made(revision, made_at, intent));
        *self.held.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Keeps a copy that leads on from one that was kept, unless a later one is kept by now, or one of another history.
    fn keep(&self, from: &Arc<Snapshot>, next: Snapshot) -> Arc<Snapshot> {
        let next = Arc::new(next);
        let mut held = self.held.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, from)) {
            *held = Some(Arc::clone(&next));
        }
        next
    }
}

fn advanced(held: &Snapshot, changes: Changes) -> Snapshot {
    let mut intent = held.intent.clone();
    let mut edits = Vec::new();
    for change in changes.objects {
        match change.now {
            Some(spec) => {
                let (namespace, name) = (change.key.namespace.clone(), change.key.name.clone());
                edits.push(Edit::PutObject(Object { namespace, name, spec: spec.clone() }));
                intent.objects.insert(change.key, spec);
            }
            None => {
                edits.push(Edit::DeleteObject(change.key.clone()));
                intent.objects.remove(&change.key);
            }
        }
    }
    for change in changes.hosts {
        match change.now {
            Some(host) => {
                edits.push(Edit::PutHost(host.clone()));
                intent.hosts.insert(change.host, host);
            }
            None => {
                edits.push(Edit::RemoveHost(change.host));
                intent.hosts.remove(&change.host);
            }
        }
    }
    let mut next = Snapshot::made(changes.until, changes.until_at, intent);
    next.earlier = held.index_so_far().map(|(index, before)| (index, [before, edits].concat()));
    next.earlier.take_if(|(_, edits)| edits.len() > EDITS_MAX);
    next
}
