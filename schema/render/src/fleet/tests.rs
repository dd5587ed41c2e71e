//! Versions, start-up, failed commits and artifacts of a small fleet.

use std::net::IpAddr;

use holdfast_model::artifact::assemble;
use holdfast_model::intent::{
    DEFAULT_ORDER, EnrolledHost, HostSpec, NamespaceMatch, Object, Peer, PeerSpec, Policy, PolicyRule, PortSpec,
    Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, Mode, PortRange, protocol};
use uuid::Uuid;

use super::*;
use crate::render_host;

#[test]
fn a_new_host_has_version_one_of_every_component_even_when_empty() {
    let mut fleet = mk_fleet(3);
    let planned = fleet.poll_plan(0).expect("everything is dirty");
    assert_eq!(planned.plan.states.len(), 3 * Component::ALL.len());
    assert!(planned.plan.states.iter().all(|state| state.stamp.version == Version::FIRST));
    fleet.handle_committed(&planned);
    assert!(fleet.poll_plan(0).is_none());
}

#[test]
fn a_start_up_render_changes_nothing() {
    let (intent, first) = (mk_intent(5), mk_fleet(5));
    let planned = first.poll_plan(0).expect("everything is dirty");
    let revision = Revision::from_raw(9);
    let again = Fleet::new(&intent, revision, revision, planned.plan.states.clone(), 0);
    let planned = again.poll_plan(0).expect("hosts are dirty").plan;
    assert_eq!((planned.states, planned.artifacts.len(), planned.hosts_rendered), (vec![], 0, 5));
}

#[test]
fn a28_a_start_finds_what_one_host_lacks_and_plans_that_and_of_no_other() {
    let intent = mk_intent(5);
    let stored = mk_fleet(5).poll_plan(0).expect("everything is dirty").plan.states;
    let revision = Revision::from_raw(9);
    let one_host = |state: &Desired| state.host == mk_id(2);
    let one_row = |state: &Desired| one_host(state) && state.component == Component::Settings;
    for (is_lacking, rows) in [(&one_host as &dyn Fn(&Desired) -> bool, 4), (&one_row, 1)] {
        let (lacking, latest): (Vec<Desired>, Vec<Desired>) = stored.iter().copied().partition(is_lacking);
        let mut fleet = Fleet::new(&intent, revision, revision, latest, 0);
        let plan = commit(&mut fleet, 0);
        assert_eq!((plan.states, lacking.len()), (lacking, rows));
        assert!(fleet.poll_plan(1_000_000).is_none(), "and nothing is left");
    }
}

#[test]
fn an_edit_moves_the_versions_of_the_hosts_that_it_touches_by_one_and_of_no_other() {
    let mut fleet = mk_fleet(10);
    commit(&mut fleet, 0);
    let edit = Edit::PutObject(mk_policy("to-db", "db", "web", 5432));
    fleet.handle_edits([edit], Revision::from_raw(10), 1_000);
    let plan = commit(&mut fleet, 1_000);
    // Hosts 0 to 4 are of role db.
    assert_eq!((plan.hosts_rendered, plan.states.len(), plan.revision), (5, 5, Revision::from_raw(10)));
    assert!(plan.states.iter().all(|state| state.stamp.version.raw() == 2 && state.component == Component::Policy));
    assert!(fleet.poll_plan(2_000).is_none());
}

#[test]
fn what_goes_at_once_is_of_the_newest_intent_though_others_wait_for_an_older_one() {
    let mut fleet = mk_fleet(10);
    commit(&mut fleet, 0);
    fleet.handle_edits([Edit::PutObject(mk_policy("to-db", "db", "web", 5432))], Revision::from_raw(10), 1_000);
    commit(&mut fleet, 1_000);
    let both = [mk_policy("to-db", "db", "web", 5433), mk_policy("to-web", "web", "db", 80)].map(Edit::PutObject);
    fleet.handle_edits(both, Revision::from_raw(11), 1_000 + QUIET_MS / 2);
    let first = commit(&mut fleet, 1_000 + QUIET_MS / 2);
    assert_eq!((first.revision, first.intent, first.states.len()), (Revision::from_raw(10), Revision::from_raw(11), 5));
    let rest = commit(&mut fleet, 1_000 + 2 * QUIET_MS);
    assert_eq!((rest.revision, rest.intent, rest.states.len()), (Revision::from_raw(11), Revision::from_raw(11), 5));
}

#[test]
fn an_edit_without_effect_is_rendered_without_a_state() {
    let mut fleet = mk_fleet(4);
    commit(&mut fleet, 0);
    fleet.handle_edits([], Revision::from_raw(10), 1_000);
    let plan = commit(&mut fleet, 1_000);
    assert_eq!((plan.states, plan.revision), (vec![], Revision::from_raw(10)));
}

#[test]
fn a_failed_commit_is_planned_again_as_it_was() {
    let mut fleet = mk_fleet(4);
    commit(&mut fleet, 0);
    fleet.handle_edits([Edit::PutObject(mk_policy("p", "db", "web", 1))], Revision::from_raw(10), 1_000);
    let once = fleet.poll_plan(1_000).expect("hosts are dirty");
    let twice = fleet.poll_plan(1_500).expect("hosts are still dirty");
    assert_eq!(once.plan, twice.plan);
}

#[test]
fn nodes_that_are_known_to_be_stored_are_not_planned_again_and_all_together_make_the_body() {
    let mut fleet = mk_fleet(10);
    let mut stored = commit(&mut fleet, 0).artifacts;
    for (revision, port) in (10..20).zip(1_000..) {
        let now = revision * 10 * QUIET_MS;
        fleet.handle_edits([Edit::PutObject(mk_policy("p", "db", "web", port))], Revision::from_raw(revision), now);
        let plan = commit(&mut fleet, now);
        assert!(plan.artifacts.keys().all(|digest| !stored.contains_key(digest)), "a known node was planned again");
        stored.extend(plan.artifacts);
        for state in plan.states {
            let body =
                assemble(state.stamp.digest, |digest| stored.get(&digest).cloned()).expect("all nodes are there");
            assert_eq!(Some(body), render_host(&fleet.index, state.host));
        }
    }
}

#[test]
fn a_removed_host_is_forgotten_and_a_new_one_of_its_name_starts_at_one() {
    let mut fleet = mk_fleet(4);
    commit(&mut fleet, 0);
    fleet.handle_edits([Edit::RemoveHost(mk_id(0))], Revision::from_raw(10), 1_000);
    let plan = commit(&mut fleet, 1_000);
    assert!(plan.states.iter().all(|state| state.host != mk_id(0)));
    fleet.handle_edits([Edit::PutHost(mk_host(0))], Revision::from_raw(11), 2_000);
    let plan = commit(&mut fleet, 2_000);
    let own: Vec<u64> =
        plan.states.iter().filter(|s| s.host == mk_id(0)).map(|state| state.stamp.version.raw()).collect();
    assert_eq!(own, [1; 4]);
}

fn commit(fleet: &mut Fleet, now: Millis) -> Plan {
    let planned = fleet.poll_plan(now).expect("something is due");
    fleet.handle_committed(&planned);
    planned.plan
}

fn mk_fleet(hosts: u8) -> Fleet {
    Fleet::new(&mk_intent(hosts), Revision::from_raw(9), Revision::ZERO, [], 0)
}

fn mk_id(n: u8) -> HostId {
    HostId::new(Uuid::from_u128(u128::from(n) + 1))
}

fn mk_name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// The first half are of role db, the others of role web.
fn mk_host(n: u8) -> EnrolledHost {
    let role = if n < 5 { "db" } else { "web" };
    EnrolledHost {
        id: mk_id(n),
        namespace: Name::default_namespace(),
        name: mk_name(&format!("host-{n}")),
        labels: Labels::from([("role".to_owned(), role.to_owned())]),
        ports: vec![],
        addresses: vec![IpAddr::from([10, 0, 0, n])],
    }
}

fn mk_intent(hosts: u8) -> Intent {
    let mut intent = Intent::default();
    for n in 0..hosts {
        let host = mk_host(n);
        let spec = HostSpec { mode: Some(Mode::Enforced), ..HostSpec::default() };
        intent.put(Object { namespace: host.namespace.clone(), name: host.name.clone(), spec: Spec::Host(spec) });
        intent.hosts.insert(host.id, host);
    }
    intent
}

fn mk_policy(name: &str, subject: &str, peer: &str, port: u16) -> Object {
    let labels = |role: &str| Selector::equal_to(&Labels::from([("role".to_owned(), role.to_owned())]));
    let rule = PolicyRule {
        order: DEFAULT_ORDER,
        action: Action::Allow,
        peers: PeerSpec::Of(vec![Peer::Select { namespaces: NamespaceMatch::Own, labels: labels(peer) }]),
        services: ServiceSpec::Of(vec![Service::Ports {
            protocol: protocol::TCP,
            ports: PortSpec::Range(PortRange::single(port)),
        }]),
        local: None,
        log: false,
    };
    let policy = Policy { subject: labels(subject), isolate_ingress: true, ingress: vec![rule], ..Policy::default() };
    Object { namespace: Name::default_namespace(), name: mk_name(name), spec: Spec::Policy(policy) }
}
