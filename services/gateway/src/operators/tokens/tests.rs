//! What is asked of new tokens.

use holdfast_api::status::PortView;
use holdfast_api::token::{CreateApiToken, CreateEnrolToken, ENROL_TTL_S_MAX};
use holdfast_events::{NamespaceScope, Role};
use time::OffsetDateTime;

use super::api::api_token;
use super::enrol::enrol_scope;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

#[test]
fn every_fault_of_an_enrolment_token_is_told_at_once_under_the_requests_own_names() {
    let wanted = CreateEnrolToken {
        namespace: Some("Not A Name".to_owned()),
        labels: [("-bad".to_owned(), "x".to_owned())].into(),
        ports: vec![PortView { name: "HTTP".to_owned(), protocol: "tcp".to_owned(), port: 80 }],
        address_scope: vec!["10.0.0.0/33".to_owned()],
        uses: Some(0),
        ttl_s: Some(ENROL_TTL_S_MAX + 1),
        ..CreateEnrolToken::default()
    };
    let refusal = enrol_scope(&wanted, NOW).expect_err("six faults");
    let mut rules: Vec<&str> = refusal.problem().findings.iter().map(|finding| finding.rule.as_str()).collect();
    rules.sort_unstable();
    assert_eq!(rules, ["cidr", "label-key", "name", "port-name", "ttl", "uses"]);
    let paths: Vec<&str> = refusal.problem().findings.iter().map(|finding| finding.path.as_str()).collect();
    assert!(paths.contains(&"address_scope[0]") && paths.contains(&"ports[0].name"), "{paths:?}");
}

#[test]
fn a_token_that_says_nothing_enrols_one_host_within_an_hour_in_the_default_namespace() {
    let scope = enrol_scope(&CreateEnrolToken::default(), NOW).expect("good");
    assert_eq!((scope.namespace.as_str(), scope.uses_max), ("default", 1));
    assert_eq!(scope.expires_at - NOW, time::Duration::HOUR);
    assert!(scope.labels.is_empty() && scope.ports.is_empty() && scope.address_scope.is_empty());
}

#[test]
fn an_api_token_has_a_name_a_known_role_and_a_scope_that_is_not_empty() {
    let wanted =
        CreateApiToken { name: String::new(), role: "root".to_owned(), namespaces: Some(vec![]), ttl_s: Some(0) };
    let refusal = api_token(&wanted, NOW).expect_err("four faults");
    let rules: Vec<&str> = refusal.problem().findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules, ["text", "role", "namespaces", "ttl"]);
    let good = CreateApiToken { name: "ci".to_owned(), role: "editor".to_owned(), namespaces: None, ttl_s: None };
    let token = api_token(&good, NOW).expect("good");
    assert_eq!((token.role, token.namespaces, token.expires_at), (Role::Editor, NamespaceScope::All, None));
}
