//! The intent in the form that rendering asks, kept up by edits.
//!
//! - An index says the same whatever edits led to it: it is a function of the intent that is in force.
//! - The cost of an edit follows what it touches: the queries that could match the changed party, the groups that those feed, the hosts that the
//!   groups' policies govern.
//! - [`Affected`] holds every host whose body an edit changes; what it holds beyond that is small and harmless.

mod edit;
pub(crate) mod parties;
mod policies;
pub(crate) mod queries;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::ids::HostId;
use holdfast_model::intent::{EnrolledHost, HostSpec, Intent, Kind, Object, ObjectKey};
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use parties::{Parties, Slot};
use policies::Compiled;
use queries::{GroupRef, PolicySlot, Queries};

use crate::members::Members;
use crate::mutant::Faults;
#[cfg(feature = "mutants")]
use crate::mutant::Mutant;

/// The label that every namespace has, whatever was authored: its name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// One change of what is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// An object comes, or replaces the one of its name.
    PutObject(Object),
    /// An object goes; one that is not there goes without effect.
    DeleteObject(ObjectKey),
    /// A host is enrolled, or its addresses change.
    PutHost(EnrolledHost),
    /// A host is gone from the fleet.
    RemoveHost(HostId),
}

/// The hosts that edits can touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Affected {
    /// To be rendered again; they are enrolled.
    pub hosts: BTreeSet<HostId>,
    /// No longer enrolled.
    pub gone: BTreeSet<HostId>,
}

impl Affected {
    /// Takes in what a later edit touches.
    pub fn extend(&mut self, later: Self) {
        self.gone.retain(|host| !later.hosts.contains(host));
        self.hosts.retain(|host| !later.gone.contains(host));
        self.hosts.extend(later.hosts);
        self.gone.extend(later.gone);
    }
}

/// The intent of one revision, ready to be rendered from.
#[derive(Clone, Debug, Default)]
pub struct Index {
    enrolled: BTreeMap<HostId, EnrolledHost>,
    host_specs: BTreeMap<(Name, Name), HostSpec>,
    host_names: BTreeMap<(Name, Name), BTreeSet<HostId>>,
    namespaces: BTreeMap<Name, Labels>,
    address_groups: BTreeMap<(Name, Name), Members>,
    address_group_users: BTreeMap<(Name, Name), BTreeSet<GroupRef>>,
    parties: Parties,
    queries: Queries,
    policies: BTreeMap<PolicySlot, Compiled>,
    policy_slots: BTreeMap<ObjectKey, PolicySlot>,
    next_policy: PolicySlot,
    governed: BTreeMap<Slot, BTreeSet<PolicySlot>>,
    faults: Faults,
}

impl Index {
    /// The index of an intent.
    #[must_use]
    pub fn new(intent: &Intent) -> Self {
        Self::default().filled(intent)
    }

    /// The index of an intent in a renderer with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(intent: &Intent, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..Self::default() }.filled(intent)
    }

    fn filled(mut self, intent: &Intent) -> Self {
        // Policies last: each then finds its peers at once, and no policy is resolved twice.
        let put_kinds = |index: &mut Self, kinds: &[Kind]| {
            for (key, spec) in intent.objects.iter().filter(|(key, _)| kinds.contains(&key.kind)) {
                let (namespace, name) = (key.namespace.clone(), key.name.clone());
                index.apply(Edit::PutObject(Object { namespace, name, spec: spec.clone() }));
            }
        };
        put_kinds(&mut self, &[Kind::Namespace, Kind::AddressGroup, Kind::Host, Kind::Endpoint]);
        for host in intent.hosts.values() {
            self.apply(Edit::PutHost(host.clone()));
        }
        put_kinds(&mut self, &[Kind::NetworkPolicy, Kind::Policy]);
        self
    }

    /// Every enrolled host, ascending.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.parties.host_ids()
    }

    pub(crate) fn parties(&self) -> &Parties {
        &self.parties
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// The policies that govern the host at a slot, ascending.
    pub(crate) fn governing(&self, slot: Slot) -> impl Iterator<Item = (PolicySlot, &Compiled)> {
        let slots = self.governed.get(&slot).into_iter().flatten();
        slots.filter_map(|slot| self.policies.get(slot).map(|policy| (*slot, policy)))
    }
}
