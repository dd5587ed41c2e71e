//! Hosts and endpoints by slot, with bitmaps of who carries which label.
//!
//! - A **party** is what a selector can match: an enrolled host or an endpoint. Its slot is small, stable while it exists, and seen by nobody outside.
//! - The bitmaps say exactly what the parties say; both change in [`Parties::replace`] only.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_model::ids::HostId;
use holdfast_model::intent::DeclaredPort;
use holdfast_model::label::{Labels, Requirement, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::Mode;
use roaring::RoaringBitmap;

use crate::mutant::{Faults, Mutant};

/// The place of a party in the bitmaps.
pub(crate) type Slot = u32;

/// Names a party.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PartyKey {
    Host(HostId),
    Endpoint { namespace: Name, name: Name },
}

/// A host or endpoint with what is in force for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Party {
    pub(crate) key: PartyKey,
    pub(crate) namespace: Name,
    pub(crate) labels: Labels,
    /// Sorted, each once.
    pub(crate) ports: Vec<DeclaredPort>,
    /// In canonical form (an IPv4-mapped one is IPv4).
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) mode: Mode,
}

impl Party {
    /// The host that it is, if it is one.
    pub(crate) fn host(&self) -> Option<HostId> {
        match self.key {
            PartyKey::Host(id) => Some(id),
            PartyKey::Endpoint { .. } => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Carriers {
    key: RoaringBitmap,
    values: BTreeMap<String, RoaringBitmap>,
}

/// All parties.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parties {
    slots: Vec<Option<Party>>,
    free: Vec<Slot>,
    by_key: BTreeMap<PartyKey, Slot>,
    hosts: RoaringBitmap,
    by_namespace: BTreeMap<Name, RoaringBitmap>,
    by_label: BTreeMap<String, Carriers>,
    by_address: BTreeMap<IpAddr, RoaringBitmap>,
}

impl Parties {
    pub(crate) fn slot(&self, key: &PartyKey) -> Option<Slot> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn at(&self, slot: Slot) -> Option<&Party> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    pub(crate) fn by_key(&self, key: &PartyKey) -> Option<&Party> {
        self.slot(key).and_then(|slot| self.at(slot))
    }

    /// The slots of hosts.
    pub(crate) fn hosts(&self) -> &RoaringBitmap {
        &self.hosts
    }

    /// Every enrolled host, ascending.
    pub(crate) fn host_ids(&self) -> impl Iterator<Item = HostId> + '_ {
        self.by_key.keys().map_while(|key| match key {
            PartyKey::Host(id) => Some(*id),
            PartyKey::Endpoint { .. } => None,
        })
    }

    /// Every namespace that has a party, with its parties.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (&Name, &RoaringBitmap)> {
        self.by_namespace.iter()
    }

    pub(crate) fn in_namespace(&self, namespace: &Name) -> RoaringBitmap {
        self.by_namespace.get(namespace).cloned().unwrap_or_default()
    }

    /// Who has an address.
    pub(crate) fn at_address(&self, address: IpAddr) -> Option<&RoaringBitmap> {
        self.by_address.get(&address)
    }

    /// Puts or removes a party; answers its slot, which a removed party keeps no longer, and who it was before.
    pub(crate) fn replace(&mut self, key: &PartyKey, after: Option<Party>) -> (Slot, Option<Party>) {
        let known = self.slot(key);
        let slot = known.unwrap_or_else(|| self.free.last().copied().unwrap_or(self.next_slot()));
        if self.slots.len() <= slot as usize {
            self.slots.push(None);
        }
        let before = self.slots.get_mut(slot as usize).and_then(Option::take);
        if let Some(before) = &before {
            self.mark(slot, before, Mark::Clear);
        }
        match (known, &after) {
            (None, Some(_)) => {
                self.free.pop_if(|free| *free == slot);
                self.by_key.insert(key.clone(), slot);
            }
            (Some(_), None) => {
                self.by_key.remove(key);
                self.free.push(slot);
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        if let Some(after) = &after {
            self.mark(slot, after, Mark::Set);
        }
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = after;
        }
        (slot, before)
    }

    fn next_slot(&self) -> Slot {
        Slot::try_from(self.slots.len()).expect("a fleet has fewer than four thousand million hosts and endpoints")
    }

    fn mark(&mut self, slot: Slot, party: &Party, mark: Mark) {
        let put = |bitmap: &mut RoaringBitmap| match mark {
            Mark::Set => bitmap.insert(slot),
            Mark::Clear => bitmap.remove(slot),
        };
        if party.host().is_some() {
            put(&mut self.hosts);
        }
        let inside = self.by_namespace.entry(party.namespace.clone()).or_default();
        put(inside);
        if inside.is_empty() {
            self.by_namespace.remove(&party.namespace);
        }
        for address in &party.addresses {
            let bitmap = self.by_address.entry(*address).or_default();
            put(bitmap);
            if bitmap.is_empty() {
                self.by_address.remove(address);
            }
        }
        for (key, value) in &party.labels {
            let carriers = self.by_label.entry(key.clone()).or_default();
            put(&mut carriers.key);
            let bitmap = carriers.values.entry(value.clone()).or_default();
            put(bitmap);
            if bitmap.is_empty() {
                carriers.values.remove(value);
            }
            if carriers.key.is_empty() {
                self.by_label.remove(key);
            }
        }
    }

    /// Those of `within` that a selector matches.
    pub(crate) fn matching(&self, selector: &Selector, mut within: RoaringBitmap, faults: Faults) -> RoaringBitmap {
        for requirement in selector.requirements() {
            let carriers = self.by_label.get(requirement.key());
            let among = |values: &[String]| {
                let bitmaps = values.iter().filter_map(|value| carriers?.values.get(value));
                bitmaps.fold(RoaringBitmap::new(), |all, one| all | one)
            };
            match requirement {
                Requirement::In { values, .. } => within &= among(values),
                Requirement::NotIn { values, .. } => {
                    within -= among(values);
                    if faults.has(Mutant::NotInNeedsKey) {
                        within &= carriers.map(|carriers| carriers.key.clone()).unwrap_or_default();
                    }
                }
                Requirement::Exists { .. } => within &= carriers.map(|c| c.key.clone()).unwrap_or_default(),
                Requirement::DoesNotExist { .. } => within -= carriers.map(|c| c.key.clone()).unwrap_or_default(),
            }
            if within.is_empty() {
                break;
            }
        }
        within
    }
}

#[derive(Clone, Copy)]
enum Mark {
    Set,
    Clear,
}

/// Whether a selector matches one party's labels: what [`Parties::matching`] says of all.
pub(crate) fn selects(selector: &Selector, labels: &Labels, faults: Faults) -> bool {
    selector.matches(labels)
        && !(faults.has(Mutant::NotInNeedsKey)
            && selector.requirements().iter().any(|requirement| match requirement {
                Requirement::NotIn { key, .. } => !labels.contains_key(key),
                Requirement::In { .. } | Requirement::Exists { .. } | Requirement::DoesNotExist { .. } => false,
            }))
}
