//! Every rule has an input that breaks it, and every fault says where it is.

use std::collections::BTreeSet;

use super::{faults, objects, source};
use crate::{RuleName, limits, read};

const KUBERNETES: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\nspec:\n";
const POLICY: &str = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n";
const GROUP: &str = "apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {name: p}\nspec:\n";
const ENDPOINT: &str = "apiVersion: holdfast.dev/v1\nkind: Endpoint\nmetadata: {name: p}\nspec:\n";
const HOST: &str = "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: p}\nspec:\n";

/// Rule name, path of the first fault, head, the rest of the document.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("action", "spec.ingress[0].action", POLICY, "  hostSelector: {all: true}\n  ingress: [{action: drop}]"),
    ("address", "spec.addresses[1]", ENDPOINT, "  addresses: [192.0.2.1, 192.0.2.256]"),
    ("address-missing", "spec.addresses", ENDPOINT, "  addresses: []"),
    ("address-repeated", "spec.addresses[1]", ENDPOINT, "  addresses: [192.0.2.1, '::ffff:192.0.2.1']"),
    ("api-version", "apiVersion", "apiVersion: holdfast.dev/v2\nkind: Policy\n", "metadata: {name: p}"),
    (
        "cidr",
        "spec.ingress[1].from[0].cidr",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{}, {from: [{cidr: 10.0.0.0/33}]}]",
    ),
    (
        "cidr",
        "spec.egress[0].to[0].ipBlock.cidr",
        KUBERNETES,
        "  podSelector: {}\n  egress: [{to: [{ipBlock: {cidr: 10.0.0}}]}]",
    ),
    ("direction", "spec.isolate[0]", POLICY, "  hostSelector: {all: true}\n  isolate: [Ingress]"),
    ("direction", "spec.isolate[1]", POLICY, "  hostSelector: {all: true}\n  isolate: [egress, egress]"),
    ("direction", "spec.policyTypes[0]", KUBERNETES, "  podSelector: {}\n  policyTypes: [ingress]"),
    ("document-shape", "", "- a list\n", ""),
    (
        "duplicate-name",
        "",
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: a}\n---\n",
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: a, namespace: default}",
    ),
    ("end-port", "spec.ingress[0].ports[0].endPort", KUBERNETES, "  ingress: [{ports: [{endPort: 90}]}]"),
    ("end-port", "spec.ingress[0].ports[0].endPort", KUBERNETES, "  ingress: [{ports: [{port: http, endPort: 90}]}]"),
    (
        "except",
        "spec.ingress[0].from[0].ipBlock.except[0]",
        KUBERNETES,
        "  ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/8]}}]}]",
    ),
    (
        "except",
        "spec.ingress[0].from[0].except[0]",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{from: [{cidr: 10.0.0.0/8, except: ['10.0.0.0/8']}]}]",
    ),
    (
        "except",
        "spec.ingress[0].from[0].except",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{from: [{addressGroup: g, except: ['10.0.0.0/8']}]}]",
    ),
    ("field-missing", "metadata", "apiVersion: holdfast.dev/v1\nkind: Host\n", "metadata: {namespace: a}"),
    ("field-missing", "spec", POLICY, "  ingress: []"),
    ("field-repeated", "spec.podSelector", KUBERNETES, "  podSelector: {}\n  podSelector: {}"),
    ("field-unknown", "spec.podSelectr", KUBERNETES, "  podSelectr: {}"),
    ("field-unknown", "spec.ingress[0].froms", POLICY, "  hostSelector: {all: true}\n  ingress: [{froms: []}]"),
    (
        "icmp",
        "spec.ingress[0].services[0].icmp",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{services: [{icmp: ping}]}]",
    ),
    (
        "icmp",
        "spec.ingress[0].services[0].icmp",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{services: [{icmp: []}]}]",
    ),
    (
        "icmp",
        "spec.ingress[0].services[0].icmp.v4[0].type",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{services: [{icmp: {v4: [{type: 256}]}}]}]",
    ),
    ("kind-unknown", "kind", "apiVersion: apps/v1\nkind: Deployment\n", "metadata: {name: d}"),
    ("kind-unknown", "kind", "apiVersion: holdfast.dev/v1\nkind: Polcy\n", "metadata: {name: d}"),
    ("kind-unknown", "items[0]", "apiVersion: v1\nkind: List\n", "items: [{apiVersion: v1, kind: List}]"),
    ("kind-unsupported", "kind", "apiVersion: holdfast.dev/v1\nkind: Workload\n", "metadata: {name: d}"),
    ("label-key", "spec.labels.-a", HOST, "  labels: {-a: b}"),
    ("label-value", "spec.labels.a", HOST, "  labels: {a: 'b c'}"),
    ("list-line", "spec.cidrs", GROUP, "  cidrs: |\n    10.0.0.0/8\n    10.0.0.0/x\n"),
    (
        "metadata-labels",
        "metadata.labels",
        "apiVersion: holdfast.dev/v1\nkind: Host\n",
        "metadata: {name: a, labels: {b: c}}",
    ),
    ("mode", "spec.mode", HOST, "  mode: enforcing"),
    ("name", "metadata.name", "apiVersion: holdfast.dev/v1\nkind: Host\n", "metadata: {name: Web_1}"),
    (
        "name",
        "spec.ingress[0].from[0].addressGroup",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{from: [{addressGroup: A B}]}]",
    ),
    (
        "namespace-nested",
        "metadata.namespace",
        "apiVersion: holdfast.dev/v1\nkind: Namespace\n",
        "metadata: {name: a, namespace: b}",
    ),
    ("order", "spec.order", POLICY, "  hostSelector: {all: true}\n  order: 3000000000"),
    ("peer-empty", "spec.ingress[0].from[0]", POLICY, "  hostSelector: {all: true}\n  ingress: [{from: [{}]}]"),
    ("peer-empty", "spec.ingress[0].from[0]", KUBERNETES, "  ingress: [{from: [{}]}]"),
    (
        "peer-mixed",
        "spec.ingress[0].from[0]",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{from: [{cidr: 10.0.0.0/8, addressGroup: g}]}]",
    ),
    (
        "peer-mixed",
        "spec.ingress[0].from[0]",
        KUBERNETES,
        "  ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]",
    ),
    ("port", "spec.ingress[0].ports[0].port", KUBERNETES, "  ingress: [{ports: [{port: 70000}]}]"),
    (
        "port",
        "spec.ingress[0].services[0].tcp",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{services: [{tcp: 0-10}]}]",
    ),
    ("port-name", "spec.ingress[0].ports[0].port", KUBERNETES, "  ingress: [{ports: [{port: '80'}]}]"),
    ("port-name", "spec.ports[0].name", HOST, "  ports: [{name: a-name-that-is-too-long, port: 1}]"),
    ("port-repeated", "spec.ports[1]", HOST, "  ports: [{name: a, port: 1}, {name: a, port: 2, protocol: tcp}]"),
    ("port-range", "spec.ingress[0].ports[0].endPort", KUBERNETES, "  ingress: [{ports: [{port: 90, endPort: 80}]}]"),
    (
        "port-range",
        "spec.ingress[0].services[0].udp[1]",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{services: [{udp: [1, 9-8]}]}]",
    ),
    ("protocol", "spec.ingress[0].ports[0].protocol", KUBERNETES, "  ingress: [{ports: [{protocol: tcp}]}]"),
    (
        "protocol",
        "spec.ingress[0].services[0].protocol",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{services: [{protocol: 256}]}]",
    ),
    ("protocol", "spec.ports[0].protocol", HOST, "  ports: [{name: a, port: 1, protocol: icmp}]"),
    ("secret", "", HOST, "  labels: {a: hfe_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}"),
    ("selector-all", "spec.hostSelector", POLICY, "  hostSelector: {all: true, matchLabels: {a: b}}"),
    ("selector-all", "spec.hostSelector.all", POLICY, "  hostSelector: {all: false}"),
    ("selector-empty", "spec.hostSelector", POLICY, "  hostSelector: {}"),
    (
        "selector-empty",
        "spec.ingress[0].from[0].hostSelector",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{from: [{hostSelector: {matchLabels: {}}}]}]",
    ),
    (
        "selector-operator",
        "spec.podSelector.matchExpressions[0].operator",
        KUBERNETES,
        "  podSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}",
    ),
    (
        "selector-values",
        "spec.podSelector.matchExpressions[0]",
        KUBERNETES,
        "  podSelector: {matchExpressions: [{key: a, operator: NotIn}]}",
    ),
    (
        "selector-values",
        "spec.podSelector.matchExpressions[0]",
        KUBERNETES,
        "  podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
    ),
    (
        "service",
        "spec.ingress[0].services[0]",
        POLICY,
        "  hostSelector: {all: true}\n  ingress: [{services: [{tcp: 1, udp: 1}]}]",
    ),
    ("service", "spec.ingress[0].services[0]", POLICY, "  hostSelector: {all: true}\n  ingress: [{services: [{}]}]"),
    ("syntax", "", "kind: [\n", ""),
    ("type", "spec.labels.a", HOST, "  labels: {a: 1.10}"),
    ("type", "spec.ingress", KUBERNETES, "  ingress: {from: []}"),
    ("type", "spec.ingress[0].log", POLICY, "  hostSelector: {all: true}\n  ingress: [{log: yes}]"),
    ("value-null", "spec.ingress[0].from", POLICY, "  hostSelector: {all: true}\n  ingress: [{from: }]"),
];

#[test]
fn a_malformed_document_breaks_its_rule_at_its_path() {
    for (rule, path, head, rest) in CASES {
        let found = faults(&format!("{head}{rest}\n"));
        let first = &found[0];
        assert_eq!((first.rule.word(), first.path.as_str()), (*rule, *path), "{head}{rest}\n{found:#?}");
        assert!(!first.message.is_empty() && first.file == "in.yaml");
    }
}

#[test]
fn c60_an_empty_selector_is_refused_by_name_wherever_one_may_stand_and_one_that_says_all_is_not() {
    let subject = |selector: &str| format!("{POLICY}  hostSelector: {selector}\n");
    let peer = |list: &str, kind: &str, selector: &str| {
        format!("{POLICY}  hostSelector: {{all: true}}\n  {list}: [{{{kind}: {selector}}}]\n")
    };
    let places = |selector: &str| {
        let mut texts = vec![("spec.hostSelector".to_owned(), subject(selector))];
        for (list, peers) in [("ingress", "from"), ("egress", "to")] {
            for kind in ["hostSelector", "namespaceSelector"] {
                let path = format!("spec.{list}[0].{peers}[0].{kind}");
                texts.push((path, peer(list, peers, &format!("[{{{kind}: {selector}}}]"))));
            }
        }
        texts
    };
    for empty in ["{}", "{matchLabels: {}}", "{matchExpressions: []}", "{matchLabels: {}, matchExpressions: []}"] {
        for (path, text) in places(empty) {
            let found: Vec<_> = faults(&text).into_iter().map(|fault| (fault.rule, fault.path)).collect();
            assert_eq!(found, [(RuleName::SelectorEmpty, path)], "{text}");
        }
    }
    for meant in ["{all: true}", "{matchLabels: {a: b}}"] {
        for (_, text) in places(meant) {
            assert_eq!(objects(&text).len(), 1, "{text}");
        }
    }
}

#[test]
fn every_rule_is_broken_by_a_case_or_is_a_limit() {
    let limits = ["document-limit", "file-limit", "list-limit", "more-faults"];
    let broken: BTreeSet<&str> = CASES.iter().map(|(rule, ..)| *rule).chain(limits).collect();
    let all: BTreeSet<&str> = RuleName::ALL.iter().map(|rule| rule.word()).collect();
    assert_eq!(broken, all);
    assert_eq!(all.len(), RuleName::ALL.len());
}

#[test]
fn all_faults_of_all_documents_come_at_once_in_the_order_of_the_text() {
    let found = faults(
        "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: A}\nspec:\n  mode: off\n  lables: {}\n---\n\
         apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  hostSelector: {}\n  ingress:\n  - from:\n    - cidr: x\n    - cidr: y\n",
    );
    let all: Vec<(usize, u64, &str)> =
        found.iter().map(|fault| (fault.document, fault.line, fault.rule.word())).collect();
    let want = [
        (1, 3, "name"),
        (1, 5, "mode"),
        (1, 6, "field-unknown"),
        (2, 12, "selector-empty"),
        (2, 15, "cidr"),
        (2, 16, "cidr"),
    ];
    assert_eq!(all, want);
    assert_eq!(
        found[4].to_string(),
        "in.yaml:15: document 2: spec.ingress[0].from[0].cidr: `x` is no prefix, as 192.0.2.0/24 or 2001:db8::/32 [cidr]"
    );
}

#[test]
fn a_list_in_a_group_with_one_bad_line_is_refused_whole() {
    let found = faults(&format!("{GROUP}  cidrs: |\n    10.0.0.0/8\n    \n    nonsense\n"));
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("line 3"), "{found:?}");
}

#[test]
fn aliases_cannot_multiply_a_small_text() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert_eq!(faults(&text)[0].rule, RuleName::Syntax);
}

#[test]
fn nesting_size_and_counts_have_ends() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(faults(&deep)[0].rule, RuleName::Syntax);

    let many = "---\n{}\n".repeat(limits::DOCUMENTS_MAX + 1);
    assert_eq!(faults(&many)[0].rule, RuleName::DocumentLimit);

    let large = "#".repeat(limits::FILE_BYTES_MAX + 1);
    assert_eq!(faults(&large)[0].rule, RuleName::FileLimit);

    let many = vec![source(""); limits::FILES_MAX + 1];
    assert_eq!(read(&many).expect_err("too many files").list()[0].rule, RuleName::FileLimit);

    let bad = "  - {}\n".repeat(limits::FAULTS_MAX + 5);
    let found = faults(&format!("{POLICY}  hostSelector: {{all: true}}\n  ingress:\n  - from:\n{bad}"));
    assert_eq!(found.len(), 1);
    let peers = "    - {}\n".repeat(limits::FAULTS_MAX + 5);
    let found = faults(&format!("{POLICY}  hostSelector: {{all: true}}\n  ingress:\n  - from:\n{peers}"));
    assert_eq!(found.len(), limits::FAULTS_MAX + 1);
    assert_eq!(found[limits::FAULTS_MAX].rule, RuleName::MoreFaults);

    let rules = "  - {}\n".repeat(limits::RULES_MAX + 1);
    assert_eq!(
        faults(&format!("{POLICY}  hostSelector: {{all: true}}\n  ingress:\n{rules}"))[0].rule,
        RuleName::ListLimit
    );
}

#[test]
fn the_largest_group_fits() {
    let lines: String = (0..limits::GROUP_ENTRIES_MAX)
        .map(|n| format!("    10.{}.{}.{}/32\n", n >> 16, n >> 8 & 255, n & 255))
        .collect();
    assert_eq!(super::objects(&format!("{GROUP}  cidrs: |\n{lines}")).len(), 1);
}

#[test]
fn every_rule_is_on_the_page_about_documents() {
    let page = include_str!("../../../../docs/documents.md");
    for rule in RuleName::ALL {
        assert!(page.contains(&format!("| `{rule}` |")), "{rule}");
    }
}

#[test]
fn the_policy_on_the_page_about_documents_is_one() {
    let page = include_str!("../../../../docs/documents.md");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    assert_eq!(super::objects(example).len(), 1);
}
