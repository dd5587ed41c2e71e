//! Bodies of hosts from an index.
//!
//! - A body depends on the host's **role** only: the policies that govern it, its mode, and its declared ports where a rule asks for them.
//! - Hosts of one role share one body, built once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use holdfast_model::ids::HostId;
use holdfast_model::intent::DeclaredPort;
use holdfast_model::policy::{Body, Direction, Mode};

use crate::index::Index;
use crate::index::parties::{Party, PartyKey, Slot};
use crate::index::queries::PolicySlot;
use crate::resolve::Addition;

/// All that a body depends on, within one index.
#[derive(PartialEq, Eq, Hash)]
struct Role<'a> {
    governing: Vec<PolicySlot>,
    mode: Mode,
    /// Empty where no rule asks.
    ports: &'a [DeclaredPort],
}

/// The policy body of one host; `None` if it is not enrolled.
#[must_use]
pub fn render_host(index: &Index, host: HostId) -> Option<Body> {
    let (slot, party) = find(index, host)?;
    Some(body_of(index, slot, party))
}

/// The bodies of some hosts; those that are not enrolled are left out. Hosts of one role share a body.
#[must_use]
pub fn render_hosts(index: &Index, hosts: impl IntoIterator<Item = HostId>) -> BTreeMap<HostId, Arc<Body>> {
    let mut roles: HashMap<Role<'_>, Arc<Body>> = HashMap::new();
    let found = hosts.into_iter().filter_map(|host| find(index, host).map(|(slot, party)| (host, slot, party)));
    found
        .map(|(host, slot, party)| {
            let body =
                roles.entry(role_of(index, slot, party)).or_insert_with(|| Arc::new(body_of(index, slot, party)));
            (host, Arc::clone(body))
        })
        .collect()
}

/// The body of every host: what is desired, in full.
#[must_use]
pub fn render_all(index: &Index) -> BTreeMap<HostId, Arc<Body>> {
    render_hosts(index, index.hosts())
}

fn find(index: &Index, host: HostId) -> Option<(Slot, &Party)> {
    let slot = index.parties().slot(&PartyKey::Host(host))?;
    index.parties().at(slot).map(|party| (slot, party))
}

fn role_of<'a>(index: &'a Index, slot: Slot, party: &'a Party) -> Role<'a> {
    let asked = index.governing(slot).any(|(_, policy)| policy.asks_subject(index.faults()));
    Role {
        governing: index.governing(slot).map(|(policy, _)| policy).collect(),
        mode: party.mode,
        ports: if asked { &party.ports } else { &[] },
    }
}

fn body_of(index: &Index, slot: Slot, party: &Party) -> Body {
    let mut body = Body { mode: party.mode, ..Body::default() };
    for (_, policy) in index.governing(slot) {
        for direction in Direction::ALL {
            let half = policy.half(direction);
            body.chain_mut(direction).isolated |= half.isolates;
            for group in &half.groups {
                if group.names_at_subject(direction, index.faults()) {
                    add(&mut body, direction, &group.addition(&party.ports));
                } else {
                    add(&mut body, direction, &group.ready);
                }
            }
        }
    }
    body.canonical()
}

fn add(body: &mut Body, direction: Direction, addition: &Addition) {
    body.chain_mut(direction).rules.extend_from_slice(&addition.rules);
    body.sets.extend_from_slice(&addition.sets);
}
