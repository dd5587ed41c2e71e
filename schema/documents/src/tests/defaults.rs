//! What Kubernetes documents mean where they say little.

use holdfast_model::intent::{DEFAULT_ORDER, NamespaceMatch, Peer, PeerSpec, Policy, PortSpec, Service, ServiceSpec};
use holdfast_model::label::{Requirement, Selector};
use holdfast_model::policy::{Action, PortRange, protocol};

use super::{objects, policy_of};

fn k8s(spec: &str) -> Policy {
    let indented: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    policy_of(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p, namespace: x}}\nspec:\n{indented}"
    ))
}

#[test]
fn an_empty_pod_selector_is_everybody_and_absent_types_isolate_ingress_only() {
    let policy = k8s("podSelector: {}");
    assert!(policy.subject.is_everything());
    assert!(policy.isolate_ingress && !policy.isolate_egress);
    assert!(policy.ingress.is_empty());
    assert_eq!(k8s("podSelector:"), policy);
    assert_eq!(k8s("podSelector: {matchLabels: {}}\npolicyTypes: []"), policy);
}

#[test]
fn absent_types_isolate_egress_too_if_there_is_an_egress_rule() {
    assert!(k8s("podSelector: {}\negress: [{}]").isolate_egress);
    assert!(!k8s("podSelector: {}\negress: []").isolate_egress);
    assert!(k8s("podSelector: {}\negress: [{}]").isolate_ingress);
}

#[test]
fn rules_of_a_direction_that_is_not_among_the_types_mean_nothing() {
    let policy = k8s("podSelector: {}\npolicyTypes: [Egress]\ningress: [{}]\negress: [{}]");
    assert!(!policy.isolate_ingress && policy.isolate_egress);
    assert!(policy.ingress.is_empty());
    assert_eq!(policy.egress.len(), 1);
}

#[test]
fn an_empty_rule_allows_anybody_anything_and_so_do_empty_lists() {
    for rule in ["[{}]", "[{from: [], ports: []}]", "[{from: , ports: null}]", "[null]"] {
        let policy = k8s(&format!("podSelector: {{}}\ningress: {rule}"));
        let rule = &policy.ingress[0];
        assert_eq!((&rule.peers, &rule.services), (&PeerSpec::Any, &ServiceSpec::Any));
        assert_eq!((rule.order, rule.action, rule.log), (DEFAULT_ORDER, Action::Allow, false));
    }
}

#[test]
fn peers_are_looked_for_in_the_own_namespace_unless_a_namespace_selector_says_more() {
    let policy = k8s(
        "podSelector: {}\ningress:\n- from:\n  - podSelector: {matchLabels: {a: b}}\n  - namespaceSelector: {}\n  - namespaceSelector: {matchExpressions: [{key: t, operator: NotIn, values: [q, p]}]}\n    podSelector: {}",
    );
    let labels = Selector::new(vec![Requirement::In { key: "a".to_owned(), values: vec!["b".to_owned()] }]);
    let namespaces =
        Selector::new(vec![Requirement::NotIn { key: "t".to_owned(), values: vec!["p".to_owned(), "q".to_owned()] }]);
    let everything = Selector::everything;
    let want = vec![
        Peer::Select { namespaces: NamespaceMatch::Own, labels },
        Peer::Select { namespaces: NamespaceMatch::Select(everything()), labels: everything() },
        Peer::Select { namespaces: NamespaceMatch::Select(namespaces), labels: everything() },
    ];
    assert_eq!(policy.ingress[0].peers, PeerSpec::Of(want));
}

#[test]
fn ports_default_to_tcp_and_a_protocol_alone_is_all_its_ports() {
    let policy = k8s(
        "podSelector: {}\ningress:\n- ports:\n  - port: 80\n  - port: 8000\n    endPort: 8100\n    protocol: SCTP\n  - protocol: UDP\n  - port: dns\n    protocol: UDP",
    );
    let ports = |protocol, first, last| Service::Ports { protocol, ports: PortSpec::Range(PortRange { first, last }) };
    let want = vec![
        ports(protocol::TCP, 80, 80),
        ports(protocol::SCTP, 8000, 8100),
        Service::Protocol(protocol::UDP),
        Service::Ports { protocol: protocol::UDP, ports: PortSpec::Named("dns".to_owned()) },
    ];
    assert_eq!(policy.ingress[0].services, ServiceSpec::Of(want));
}

#[test]
fn host_bits_of_a_block_are_cleared_and_exceptions_kept() {
    let policy = k8s("podSelector: {}\negress:\n- to:\n  - ipBlock: {cidr: 10.1.2.3/8, except: [10.9.0.0/16]}");
    let want =
        Peer::Cidr { cidr: "10.0.0.0/8".parse().expect("a net"), except: vec!["10.9.0.0/16".parse().expect("a net")] };
    assert_eq!(policy.egress[0].peers, PeerSpec::Of(vec![want]));
}

#[test]
fn a_list_is_its_items_and_what_a_server_wrote_is_skipped() {
    let found = objects(
        r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[
            {"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy",
             "metadata":{"name":"a","uid":"u","creationTimestamp":null,"managedFields":[{"x":1}]},"spec":{"podSelector":{}},"status":{}},
            {"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"b","namespace":""},"spec":{}}]}"#,
    );
    let names: Vec<String> = found.iter().map(|object| object.key().to_string()).collect();
    assert_eq!(names, ["NetworkPolicy/default/a", "NetworkPolicy/default/b"]);
}
