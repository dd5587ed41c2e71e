//! An estate of another size: the roles of its hosts, repeated or left out. Pure and deterministic.
//!
//! - The first hosts are the estate's own, one of each role before the second of any; what it expects of them stays as written.
//! - Further hosts are copies in turn: namespace, labels, declared ports and `Host` document of their model, names and addresses of their own.
//! - What is expected of a copy is what the reference evaluator says of the cells of its model; as many per copy as keep a run linear in the hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_documents::estate::{At, Cell, Estate, Party, Probe, State, Want};
use holdfast_evaluator::{End, Packet, Pair};
use holdfast_model::address::Family;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{EnrolledHost, Intent, Kind, ObjectKey, Spec};
use holdfast_model::name::{Name, NameError};
use holdfast_model::policy::PortRange;
use uuid::Uuid;

/// Cells of its model that a copy gets as the end that opens, and as many as the other end.
const CELLS_PER_SIDE: usize = 8;
/// Addresses of copies count up from here, past those that the estate knows.
const FIRST_V4: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);
const FIRST_V6: Ipv6Addr = Ipv6Addr::new(0xfd6a, 0x6c61, 0x6200, 0, 0, 0, 0, 1);

/// Why an estate has no such size.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nobody to copy.
    #[error("an estate without hosts, or no hosts of it, make no fleet")]
    Empty,
    /// A copy's name is too long.
    #[error("a copy of the host `{host}` cannot be named")]
    Name {
        /// The model.
        host: String,
        /// Why.
        #[source]
        source: NameError,
    },
}

/// The first state of an estate with this number of hosts.
///
/// # Errors
/// See [`Error`].
pub fn resize(estate: Estate, hosts: usize) -> Result<Estate, Error> {
    let Estate { id, title, needs, mut host_names, address_lists, states } = estate;
    let mut state = states.into_iter().next().ok_or(Error::Empty)?;
    let models = by_role(&state.intent);
    if models.is_empty() || hosts == 0 {
        return Err(Error::Empty);
    }
    let kept: BTreeSet<HostId> = models.iter().take(hosts).copied().collect();
    let gone = |id: &HostId| !kept.contains(id);
    for id in models.iter().filter(|id| gone(id)) {
        if let Some(host) = state.intent.hosts.remove(id) {
            state.intent.objects.remove(&key_of(&host.namespace, &host.name));
        }
    }
    state.cells.retain(|cell| ![&cell.from, &cell.to].iter().any(|party| matches!(party, Party::Host(id) if gone(id))));

    let mut fresh = Fresh::beside(&state);
    let mut copies = Vec::new();
    for (index, model) in models.iter().cycle().take(hosts).enumerate().skip(models.len()) {
        let copy = copy_of(&mut state.intent, *model, index / models.len(), &mut fresh)?;
        let name =
            host_names.get(model).map_or_else(|| model.to_string(), |name| format!("{name}-r{}", index / models.len()));
        host_names.insert(copy, name);
        copies.push((*model, copy));
    }
    let cells = cells_of_copies(&state, &copies);
    state.cells.extend(cells);
    Ok(Estate { id, title, needs, host_names, address_lists, states: vec![state] })
}

/// Hosts in the order of their names, one of each set of labels before the second of any.
fn by_role(intent: &Intent) -> Vec<HostId> {
    let mut hosts: Vec<&EnrolledHost> = intent.hosts.values().collect();
    hosts.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    let mut seen = BTreeMap::<_, usize>::new();
    let mut ranked: Vec<(usize, HostId)> = Vec::new();
    for host in hosts {
        let rank = seen.entry((&host.namespace, host.labels.iter().collect::<Vec<_>>())).or_default();
        ranked.push((*rank, host.id));
        *rank += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, id)| id).collect()
}

fn key_of(namespace: &Name, name: &Name) -> ObjectKey {
    ObjectKey { kind: Kind::Host, namespace: namespace.clone(), name: name.clone() }
}

/// Puts a copy beside its model.
fn copy_of(intent: &mut Intent, model: HostId, round: usize, fresh: &mut Fresh) -> Result<HostId, Error> {
    let model = intent.hosts.get(&model).cloned().ok_or(Error::Empty)?;
    let named = format!("{}-r{round}", model.name).parse();
    let name: Name = named.map_err(|source| Error::Name { host: model.name.to_string(), source })?;
    if let Some(spec) = intent.objects.get(&key_of(&model.namespace, &model.name)).cloned() {
        intent.objects.insert(key_of(&model.namespace, &name), spec);
    }
    let hash = blake3::hash(format!("{}\0{name}", model.namespace).as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(hash.as_bytes().split_at(16).0);
    let id = HostId::new(Uuid::from_bytes(bytes));
    let families: BTreeSet<Family> = model.addresses.iter().copied().map(Family::of).collect();
    let mut addresses: Vec<IpAddr> = families.into_iter().map(|family| fresh.take(family)).collect();
    addresses.sort_unstable();
    intent.hosts.insert(id, EnrolledHost { id, name, addresses, ..model });
    Ok(id)
}

/// Addresses that nobody has.
struct Fresh {
    taken: BTreeSet<IpAddr>,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Fresh {
    fn beside(state: &State) -> Self {
        let mut taken: BTreeSet<IpAddr> = state.intent.hosts.values().flat_map(|host| host.addresses.clone()).collect();
        for spec in state.intent.objects.values() {
            if let Spec::Endpoint(endpoint) = spec {
                taken.extend(&endpoint.addresses);
            }
        }
        for party in state.cells.iter().flat_map(|cell| [&cell.from, &cell.to]) {
            match party {
                Party::Address(address) => taken.extend([*address]),
                Party::Span(first, last) => taken.extend([*first, *last]),
                Party::Host(_) | Party::Endpoint(_) => {}
            }
        }
        Self { taken, v4: FIRST_V4, v6: FIRST_V6 }
    }

    fn take(&mut self, family: Family) -> IpAddr {
        loop {
            let address = match family {
                Family::V4 => IpAddr::V4(self.v4),
                Family::V6 => IpAddr::V6(self.v6),
            };
            match family {
                Family::V4 => self.v4 = Ipv4Addr::from(u32::from(self.v4) + 1),
                Family::V6 => self.v6 = Ipv6Addr::from(u128::from(self.v6) + 1),
            }
            if self.taken.insert(address) {
                return address;
            }
        }
    }
}

/// Cells of models with copies in their place, and what the evaluator says of them.
fn cells_of_copies(state: &State, copies: &[(HostId, HostId)]) -> Vec<Cell> {
    let mut all = Vec::new();
    for (place, (model, copy)) in copies.iter().enumerate() {
        let party = Party::Host(*model);
        for opens in [true, false] {
            let of_model =
                |cell: &&Cell| *(if opens { &cell.from } else { &cell.to }) == party && cell.at == At::BothEnds;
            let cells: Vec<&Cell> = state.cells.iter().filter(of_model).collect();
            // Each copy begins elsewhere, so that together they show all of them.
            let turned = cells.iter().cycle().skip(place * CELLS_PER_SIDE % cells.len().max(1));
            for cell in turned.take(CELLS_PER_SIDE.min(cells.len())) {
                let here = Party::Host(*copy);
                let (from, to) = if opens { (here, cell.to.clone()) } else { (cell.from.clone(), here) };
                all.extend(judged(&state.intent, &Cell { from, to, ..(*cell).clone() }));
            }
        }
    }
    all
}

/// A cell for each family, with what the evaluator says; none where the pairs of addresses of a family do not agree.
fn judged(intent: &Intent, cell: &Cell) -> Vec<Cell> {
    let mut cells = Vec::new();
    for family in [Family::V4, Family::V6] {
        if cell.family.is_some_and(|wanted| wanted != family) {
            continue;
        }
        let mut wants = Vec::new();
        for from in ends(intent, &cell.from, family) {
            for to in ends(intent, &cell.to, family) {
                wants.extend(Pair::of(intent, from.clone(), to).ok().map(|pair| want(&pair, &cell.want, family)));
            }
        }
        if let Some((first, others)) = wants.split_first()
            && others.iter().all(|other| same(first, other))
        {
            cells.push(Cell { family: Some(family), want: first.clone(), ..cell.clone() });
        }
    }
    cells
}

fn ends(intent: &Intent, party: &Party, family: Family) -> Vec<End> {
    let ends = match party {
        Party::Host(id) => {
            let addresses = intent.hosts.get(id).map(|host| host.addresses.as_slice()).unwrap_or_default();
            addresses.iter().map(|address| End::host(*id, *address)).collect()
        }
        Party::Endpoint(key) => match intent.objects.get(key) {
            Some(Spec::Endpoint(spec)) => {
                spec.addresses.iter().map(|address| End::endpoint(key.clone(), *address)).collect()
            }
            Some(
                Spec::AddressGroup(_) | Spec::Host(_) | Spec::Namespace(_) | Spec::NetworkPolicy(_) | Spec::Policy(_),
            )
            | None => Vec::new(),
        },
        Party::Address(address) => vec![End::outside(*address)],
        // A span may hold addresses of which different things are true; a copy's cells leave it out.
        Party::Span(..) => Vec::new(),
    };
    ends.into_iter().filter(|end: &End| end.family() == family).collect()
}

fn want(pair: &Pair<'_>, like: &Want, family: Family) -> Want {
    match like {
        Want::Packet { probe, .. } => {
            let packet = match *probe {
                Probe::Port { protocol, port } => Packet::Port { protocol, port },
                Probe::Echo => Packet::Icmp { kind: echo_of(family), code: 0 },
                Probe::Protocol(number) => Packet::Other(number),
            };
            Want::Packet { probe: *probe, allow: pair.judge(packet).allowed }
        }
        Want::Services(services) => {
            let ports = |number: &u8| (*number, pair.ports_where(*number, |verdict| verdict.allowed));
            let services: BTreeMap<u8, Vec<PortRange>> = services.keys().map(ports).collect();
            Want::Services(services.into())
        }
    }
}

/// ICMP type of an echo request.
const fn echo_of(family: Family) -> u8 {
    match family {
        Family::V4 => 8,
        Family::V6 => 128,
    }
}

fn same(one: &Want, other: &Want) -> bool {
    match (one, other) {
        (Want::Packet { probe, allow }, Want::Packet { probe: other_probe, allow: other_allow }) => {
            probe == other_probe && allow == other_allow
        }
        (Want::Services(one), Want::Services(other)) => one == other,
        (Want::Packet { .. }, Want::Services(_)) | (Want::Services(_), Want::Packet { .. }) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::verify::{Case, load, verify_estate};

    #[test]
    fn a_larger_estate_has_the_roles_again_and_its_expectations_hold() {
        let estate = resize(mk_harbour(), 30).expect("it grows");
        let state = estate.states.first().expect("a state");
        assert_eq!((estate.states.len(), state.intent.hosts.len(), estate.host_names.len()), (1, 30, 30));
        let copies = state.intent.hosts.values().filter(|host| host.name.to_string().contains("-r"));
        assert_eq!(copies.filter(|host| host.addresses.len() == 2).count(), 18);
        let report = verify_estate(&estate, &holdfast_render::Index::new).expect("it is judged");
        assert!(report.is_right() && report.cells > mk_harbour().states[0].cells.len(), "{report:?}");
    }

    #[test]
    fn a_smaller_estate_keeps_one_of_each_role_first_and_expects_nothing_of_the_others() {
        let estate = resize(mk_harbour(), 9).expect("it shrinks");
        let state = estate.states.first().expect("a state");
        let roles: BTreeSet<_> = state.intent.hosts.values().map(|host| host.labels.get("role").cloned()).collect();
        assert_eq!(roles.len(), 8, "a primary and a replica are two sets of labels of one role");
        assert!(state.cells.iter().all(|cell| match (&cell.from, &cell.to) {
            (Party::Host(one), Party::Host(other)) => [one, other].iter().all(|id| state.intent.hosts.contains_key(id)),
            _ => true,
        }));
        let report = verify_estate(&estate, &holdfast_render::Index::new).expect("it is judged");
        assert!(report.is_right(), "{report:?}");
    }

    #[test]
    fn the_same_size_twice_is_the_same_estate() {
        let hosts = |estate: Estate| estate.states.into_iter().next().map(|state| state.intent.hosts);
        assert_eq!(
            hosts(resize(mk_harbour(), 40).expect("it grows")),
            hosts(resize(mk_harbour(), 40).expect("it grows"))
        );
        assert!(matches!(resize(mk_harbour(), 0), Err(Error::Empty)));
    }

    fn mk_harbour() -> Estate {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("estates/harbour/estate.yaml");
        match load(&file).expect("it is ours") {
            Case::Estate(estate) => *estate,
            Case::Churn(_) => panic!("it has hosts"),
        }
    }
}
