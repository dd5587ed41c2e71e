//! Edits of an index: whatever they are, re-rendering the affected hosts is the full render; and few are affected.

mod support;

use std::collections::BTreeSet;

use holdfast_model::intent::{
    AddressGroupSpec, DeclaredPort, EndpointSpec, EnrolledHost, HostSpec, Intent, Kind, NamespaceMatch, NamespaceSpec,
    Object, ObjectKey, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::Selector;
use holdfast_model::policy::delta::{Change, diff};
use holdfast_model::policy::{Action, Mode, PortRange, protocol};
use holdfast_render::lint::lint;
use holdfast_render::{Affected, Edit, Index, render_all, render_host, render_hosts};
use proptest::prelude::*;
use support::{apply_to_intent, host_id, ip, labels, name, worlds};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rendering_the_affected_hosts_again_is_the_full_render(
        mut intent in worlds::intent(),
        steps in prop::collection::vec(step(), 1..8),
    ) {
        let mut index = Index::new(&intent);
        let first = render_all(&index);
        let mut held = first.clone();
        let mut total = Affected::default();
        for step in steps {
            let edit = match step {
                Step::Edit(edit) => edit,
                Step::Nudge(at, nudge) => match worlds::nudged(&intent, at, nudge) {
                    Some(edit) => edit,
                    None => continue,
                },
            };
            let enrolled: BTreeSet<_> = index.hosts().collect();
            apply_to_intent(&mut intent, &edit);
            let affected = index.apply(edit);
            let full = render_all(&Index::new(&intent));

            let differ = full.iter().filter(|(host, body)| held.get(*host) != Some(*body));
            let differ: BTreeSet<_> = differ.map(|(host, _)| *host).collect();
            prop_assert!(differ.is_subset(&affected.hosts), "{:?} not in {:?}", differ, affected.hosts);
            prop_assert!(affected.hosts.iter().all(|host| full.contains_key(host)));
            let gone: BTreeSet<_> = enrolled.into_iter().filter(|host| !full.contains_key(host)).collect();
            prop_assert_eq!(&gone, &affected.gone);

            total.extend(affected.clone());
            held.extend(render_hosts(&index, affected.hosts));
            held.retain(|host, _| full.contains_key(host));
            prop_assert_eq!(&held, &full);
            prop_assert_eq!(&render_all(&index), &full);
            prop_assert_eq!(lint(&full), vec![]);
            for (host, body) in &full {
                let alone = render_host(&index, *host);
                prop_assert_eq!(alone.as_ref(), Some(body.as_ref()));
            }
        }
        // What several edits touch together is enough too.
        prop_assert!(total.hosts.iter().all(|host| held.contains_key(host)));
        prop_assert!(total.gone.iter().all(|host| !held.contains_key(host)));
        prop_assert!(held.iter().all(|(host, body)| first.get(host) == Some(body) || total.hosts.contains(host)));
        prop_assert!(first.keys().all(|host| held.contains_key(host) || total.gone.contains(host)));
    }
}

#[test]
fn an_edit_of_a_policy_that_selects_three_of_a_thousand_touches_three() {
    let mut index = Index::new(&mk_thousand());
    let edit = put_policy("three", "db", "web", 5433);
    assert_eq!(index.apply(edit.clone()).hosts, (0..3).map(host_id).collect());
    assert_eq!(index.apply(edit).hosts, BTreeSet::new(), "the same again changes nothing");
    let delete = ObjectKey { kind: Kind::Policy, namespace: name("default"), name: name("three") };
    assert_eq!(index.apply(Edit::DeleteObject(delete)).hosts, (0..3).map(host_id).collect());
}

#[test]
fn a_relabelled_peer_touches_those_that_admit_it_and_is_one_edit_of_a_set() {
    let mut index = Index::new(&mk_thousand());
    let before = render_all(&index);
    let mut host = mk_host(500, "idle");
    host.labels = labels(&[("role", "web")]);
    let affected = index.apply(Edit::PutHost(host)).hosts;
    assert_eq!(affected, (0..3).map(host_id).collect());
    for (id, after) in render_hosts(&index, affected) {
        let changes = diff(&before[&id], &after).changes;
        assert!(matches!(&changes[..], [Change::EditSet { .. }]), "{changes:?}");
    }
}

#[test]
fn an_edit_that_no_body_depends_on_touches_nobody() {
    let mut index = Index::new(&mk_thousand());
    let group = Spec::AddressGroup(AddressGroupSpec { cidrs: vec![] });
    let namespace = Spec::Namespace(NamespaceSpec { labels: labels(&[("tier", "gold")]) });
    let nobody = put_policy("nobody", "ghost", "web", 80);
    let endpoint = Spec::Endpoint(EndpointSpec { labels: labels(&[("role", "printer")]), ..EndpointSpec::default() });
    for edit in [put("unused", group), put("default", namespace), nobody, put("printer", endpoint)] {
        assert_eq!(index.apply(edit.clone()), Affected::default(), "{edit:?}");
    }
    // Nobody's rules ask for a declared port, and no selector reads this label.
    let mut host = mk_host(2, "db");
    host.ports = vec![DeclaredPort { name: "db".to_owned(), protocol: protocol::TCP, port: 5432 }];
    host.labels.insert("note".to_owned(), "x".to_owned());
    assert_eq!(index.apply(Edit::PutHost(host)), Affected::default());
}

#[test]
fn a_mode_touches_its_host_and_a_group_those_whose_rules_name_it() {
    let mut index = Index::new(&mk_thousand());
    let mode = Spec::Host(HostSpec { mode: Some(Mode::Enforced), ..HostSpec::default() });
    assert_eq!(index.apply(put("h7", mode)).hosts, BTreeSet::from([host_id(7)]));

    let Edit::PutObject(Object { spec: Spec::Policy(mut policy), .. }) = put_policy("three", "db", "web", 5432) else {
        panic!("a policy");
    };
    policy.ingress[0].peers = PeerSpec::Of(vec![Peer::Group(name("list"))]);
    assert_eq!(index.apply(put("three", Spec::Policy(policy))).hosts, (0..3).map(host_id).collect());
    let group = |cidr: &str| Spec::AddressGroup(AddressGroupSpec { cidrs: vec![support::net(cidr)] });
    assert_eq!(index.apply(put("list", group("192.0.2.0/24"))).hosts, (0..3).map(host_id).collect());
    assert_eq!(index.apply(put("list", group("192.0.2.0/24"))), Affected::default());
    assert_eq!(index.apply(put("other", group("192.0.2.0/24"))), Affected::default());
}

#[test]
fn a_change_of_services_makes_new_rules_and_one_of_peers_does_not() {
    let mut index = Index::new(&mk_thousand());
    let first = host_id(0);
    let before = render_host(&index, first).expect("enrolled");
    index.apply(put_policy("three", "db", "idle", 5432));
    let peers = render_host(&index, first).expect("enrolled");
    assert_eq!(before.ingress.rules, peers.ingress.rules);
    assert_ne!(before.sets, peers.sets);
    index.apply(put_policy("three", "db", "web", 5433));
    let services = render_host(&index, first).expect("enrolled");
    assert_ne!(before.ingress.rules[0].key, services.ingress.rules[0].key);
}

#[test]
fn hosts_of_one_role_share_one_body_though_each_is_its_own_peer() {
    let mut index = Index::new(&mk_thousand());
    index.apply(put_policy("mesh", "web", "web", 80));
    let render = render_all(&index);
    assert_eq!(render[&host_id(3)].digest(), render[&host_id(9)].digest());
    assert!(std::sync::Arc::ptr_eq(&render[&host_id(3)], &render[&host_id(9)]));
}

#[derive(Clone, Debug)]
enum Step {
    Edit(Edit),
    Nudge(prop::sample::Index, worlds::Nudge),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        worlds::edit().prop_map(Step::Edit),
        (any::<prop::sample::Index>(), worlds::nudge()).prop_map(|(at, nudge)| Step::Nudge(at, nudge)),
    ]
}

/// Three databases, ten web hosts, the rest idle; web may reach the databases.
fn mk_thousand() -> Intent {
    let mut intent = Intent::default();
    for number in 0..1_000 {
        let role = match number {
            0..3 => "db",
            3..13 => "web",
            _ => "idle",
        };
        apply_to_intent(&mut intent, &Edit::PutHost(mk_host(number, role)));
    }
    apply_to_intent(&mut intent, &put_policy("three", "db", "web", 5432));
    intent
}

fn mk_host(number: u32, role: &str) -> EnrolledHost {
    EnrolledHost {
        id: host_id(number),
        namespace: name("default"),
        name: name(&format!("h{number}")),
        labels: labels(&[("role", role)]),
        ports: vec![],
        addresses: vec![ip(&format!("10.0.{}.{}", number / 250, number % 250 + 1))],
    }
}

fn put(called: &str, spec: Spec) -> Edit {
    Edit::PutObject(Object { namespace: name("default"), name: name(called), spec })
}

fn put_policy(policy: &str, subject: &str, peer: &str, port: u16) -> Edit {
    let select = |role: &str| Selector::equal_to(&labels(&[("role", role)]));
    let rule = PolicyRule {
        order: 1000,
        action: Action::Allow,
        peers: PeerSpec::Of(vec![Peer::Select { namespaces: NamespaceMatch::Own, labels: select(peer) }]),
        services: ServiceSpec::Of(vec![Service::Ports {
            protocol: protocol::TCP,
            ports: PortSpec::Range(PortRange::single(port)),
        }]),
        local: None,
        log: false,
    };
    let policy_spec =
        Policy { subject: select(subject), isolate_ingress: true, ingress: vec![rule], ..Policy::default() };
    put(policy, Spec::Policy(policy_spec))
}
