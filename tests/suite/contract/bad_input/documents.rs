//! Malformed documents, as files that `holdfast` is given.

use holdfast_model::name::NAME_BYTES_MAX;

use super::world::{Leaves, Said, World};

const POLICY: &str = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n";
const RULES: &str =
    "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  hostSelector: {all: true}\n";
const KUBERNETES: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\nspec:\n";
const GROUP: &str = "apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {name: p}\nspec:\n";
const ENDPOINT: &str = "apiVersion: holdfast.dev/v1\nkind: Endpoint\nmetadata: {name: p}\nspec:\n";
const HOST: &str = "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: p}\nspec:\n";

/// Rule, line and path of the fault, and the document.
const CASES: &[(&str, u32, &str, &str, &str)] = &[
    ("action", 6, "spec.ingress[0].action", RULES, "  ingress: [{action: drop}]"),
    ("address", 5, "spec.addresses[1]", ENDPOINT, "  addresses: [192.0.2.1, 192.0.2.256]"),
    ("address-missing", 5, "spec.addresses", ENDPOINT, "  addresses: []"),
    ("address-repeated", 5, "spec.addresses[1]", ENDPOINT, "  addresses: ['2001:db8::1', '2001:DB8:0::1']"),
    ("api-version", 1, "apiVersion", "apiVersion: holdfast.dev/v9\nkind: Policy\n", "metadata: {name: p}"),
    ("cidr", 6, "spec.ingress[0].from[0].cidr", RULES, "  ingress: [{from: [{cidr: 10.0.0.0/33}]}]"),
    ("direction", 6, "spec.isolate[1]", RULES, "  isolate: [egress, egress]"),
    ("document-shape", 1, "", "- a list\n", ""),
    ("duplicate-name", 6, "", HOST, "---\napiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: p}\n"),
    ("end-port", 5, "spec.ingress[0].ports[0].endPort", KUBERNETES, "  ingress: [{ports: [{endPort: 90}]}]"),
    (
        "except",
        6,
        "spec.ingress[0].from[0].except[0]",
        RULES,
        "  ingress: [{from: [{cidr: 10.0.0.0/8, except: [11.0.0.0/9]}]}]",
    ),
    ("field-missing", 3, "metadata", "apiVersion: holdfast.dev/v1\nkind: Host\n", "metadata: {namespace: a}"),
    ("field-repeated", 6, "spec.podSelector", KUBERNETES, "  podSelector: {}\n  podSelector: {}"),
    ("field-unknown", 6, "spec.ingress[0].froms", RULES, "  ingress: [{froms: []}]"),
    ("icmp", 6, "spec.egress[0].services[0].icmp", RULES, "  egress: [{services: [{icmp: ping}]}]"),
    ("kind-unknown", 2, "kind", "apiVersion: holdfast.dev/v1\nkind: Polcy\n", "metadata: {name: d}"),
    ("kind-unsupported", 2, "kind", "apiVersion: holdfast.dev/v1\nkind: Workload\n", "metadata: {name: d}"),
    ("label-key", 5, "spec.labels.-a", HOST, "  labels: {-a: b}"),
    ("label-value", 5, "spec.labels.a", HOST, "  labels: {a: 'b c'}"),
    ("list-line", 6, "spec.cidrs", GROUP, "  cidrs: |\n    10.0.0.0/8\n    10.0.0.0/x\n"),
    (
        "metadata-labels",
        3,
        "metadata.labels",
        "apiVersion: holdfast.dev/v1\nkind: Host\n",
        "metadata: {name: a, labels: {b: c}}",
    ),
    ("mode", 5, "spec.mode", HOST, "  mode: enforcing"),
    ("name", 3, "metadata.name", "apiVersion: holdfast.dev/v1\nkind: Host\n", "metadata: {name: Web_1}"),
    (
        "namespace-nested",
        3,
        "metadata.namespace",
        "apiVersion: holdfast.dev/v1\nkind: Namespace\n",
        "metadata: {name: a, namespace: b}",
    ),
    ("order", 6, "spec.order", RULES, "  order: 3000000000"),
    ("peer-empty", 6, "spec.ingress[0].from[0]", RULES, "  ingress: [{from: [{}]}]"),
    ("peer-mixed", 6, "spec.ingress[0].from[0]", RULES, "  ingress: [{from: [{cidr: 10.0.0.0/8, addressGroup: g}]}]"),
    ("port", 6, "spec.ingress[0].services[0].tcp", RULES, "  ingress: [{services: [{tcp: 65536}]}]"),
    ("port-name", 5, "spec.ports[0].name", HOST, "  ports: [{name: a-name-that-is-too-long, port: 1}]"),
    ("port-repeated", 5, "spec.ports[1]", HOST, "  ports: [{name: a, port: 1}, {name: a, port: 2, protocol: tcp}]"),
    ("port-range", 6, "spec.ingress[0].services[0].udp[1]", RULES, "  ingress: [{services: [{udp: [1, 9-8]}]}]"),
    ("protocol", 6, "spec.ingress[0].services[0].protocol", RULES, "  ingress: [{services: [{protocol: 256}]}]"),
    ("selector-all", 5, "spec.hostSelector", POLICY, "  hostSelector: {all: true, matchLabels: {a: b}}"),
    ("selector-empty", 5, "spec.hostSelector", POLICY, "  hostSelector: {}"),
    (
        "selector-operator",
        5,
        "spec.podSelector.matchExpressions[0].operator",
        KUBERNETES,
        "  podSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}",
    ),
    (
        "selector-values",
        5,
        "spec.podSelector.matchExpressions[0]",
        KUBERNETES,
        "  podSelector: {matchExpressions: [{key: a, operator: NotIn}]}",
    ),
    ("service", 6, "spec.ingress[0].services[0]", RULES, "  ingress: [{services: [{tcp: 1, udp: 1}]}]"),
    ("syntax", 0, "", "kind: [\n", ""),
    ("type", 5, "spec.labels.a", HOST, "  labels: {a: 1.10}"),
    ("value-null", 6, "spec.ingress[0].from", RULES, "  ingress: [{from: }]"),
];

/// Spellings of one prefix that are no prefix here.
const SPELLINGS_REFUSED: [&str; 11] = [
    "2001:db8::/032",
    "2001:db8::/+32",
    "2001:db8::/ 32",
    "2001:db8:::/32",
    "2001:db8/32",
    "2001:0db8:::0/32",
    "02001:db8::/32",
    "2001:db8::%eth0/32",
    "[2001:db8::]/32",
    "2001:db8::/129",
    "2001:db8::/ffff:ffff::",
];
/// Spellings that are the same prefix: case, zeros, other ways to write the same bits, bits of hosts.
const SPELLINGS_TAKEN: [&str; 12] = [
    "2001:db8::/32",
    "2001:DB8::/32",
    "2001:Db8::/32",
    "2001:0db8::/32",
    "2001:db8::0/32",
    "2001:db8:0:0::/32",
    "2001:0DB8:0:0:0:0:0:0/32",
    "2001:0db8:0000:0000:0000:0000:0000:0000/32",
    "2001:db8::0.0.0.0/32",
    "2001:db8::1/32",
    "2001:db8:ffff::/32",
    "2001:db8::192.0.2.1/32",
];

/// Tries all of them: every rule of the documents.
pub(super) fn check(world: &mut World) {
    for (number, (rule, line, path, head, rest)) in CASES.iter().enumerate() {
        let name = format!("bad/{rule}.yaml");
        world.plane.file(&name, format!("{head}{rest}\n"));
        let place = match (*line, path.is_empty()) {
            (0, _) => format!("{name}:"),
            (line, true) => format!("{name}:{line}: "),
            (line, false) => format!("{name}:{line}: document 1: {path}: "),
        };
        // What is refused must be refused by both.
        let verb = if number % 2 == 0 { "apply" } else { "plan" };
        let said = Said::by_program(&world.plane.holdfast(&[verb, "-f", &name]));
        world.refused(rule, &place, Leaves::Nothing, &said);
    }
    check_limits(world);
    check_name(world);
    check_secret(world);
    check_spellings(world);
    // One good document and one bad one: none of them.
    world.plane.file("both/a.yaml", "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: good}\n");
    world.plane.file("both/b.yaml", format!("{HOST}  mode: off\n"));
    let said = Said::by_program(&world.plane.holdfast(&["apply", "-f", "both", "--prune"]));
    world.refused_again("mode", "both/b.yaml:5: ", Leaves::Nothing, &said);
}

fn check_limits(world: &mut World) {
    let limits = [
        ("document-limit", "limit.yaml: ", "---\n{}\n".repeat(1_001 * 10)),
        ("file-limit", "limit.yaml: ", format!("#{}", "x".repeat(33 << 20))),
        ("list-limit", "spec.ingress: ", format!("{RULES}  ingress:\n{}", "  - {}\n".repeat(10_000))),
        ("more-faults", "document 1: ", format!("{RULES}  ingress:\n  - from:\n{}", "    - {}\n".repeat(1_001))),
    ];
    for (rule, place, text) in limits {
        world.plane.file("limit.yaml", text);
        let said = Said::by_program(&world.plane.holdfast(&["apply", "-f", "limit.yaml"]));
        world.refused(rule, place, Leaves::Nothing, &said);
    }
}

/// A byte too many is refused with the limit in words, and the longest is none of it.
fn check_name(world: &mut World) {
    let namespace = |bytes: usize| {
        format!("apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {{name: {}}}\n", "n".repeat(bytes))
    };
    world.plane.file("name.yaml", namespace(NAME_BYTES_MAX + 1));
    let said = Said::by_program(&world.plane.holdfast(&["apply", "-f", "name.yaml"]));
    world.refused_again("name", "name.yaml:3: document 1: metadata.name: ", Leaves::Nothing, &said);
    assert!(said.text.contains("1 to 253 bytes"), "{said:?}");
    world.plane.file("name.yaml", namespace(NAME_BYTES_MAX));
    let planned = world.plane.holdfast(&["plan", "-f", "name.yaml"]);
    assert!(planned.status.success(), "{planned:?}");
}

/// Every spelling is the one prefix or is refused by name, whatever was applied before.
pub(super) fn check_one_prefix(world: &mut World) {
    let mut first = None;
    for spelling in SPELLINGS_TAKEN.iter().chain(&["::ffff:192.0.2.77/120", "192.0.2.0/24"]) {
        let group = if spelling.contains("192.0.2.0") || spelling.contains("ffff:192") { "v4" } else { "v6" };
        let head = GROUP.replace("name: p", &format!("name: {group}"));
        world.plane.file("spelt.yaml", format!("{head}  cidrs: ['{spelling}']\n"));
        let applied = world.plane.holdfast(&["apply", "-f", "spelt.yaml", "-o", "json"]);
        let told: serde_json::Value = serde_json::from_slice(&applied.stdout).unwrap_or_default();
        assert!(applied.status.success(), "{spelling}: {applied:?}");
        let is_first = first.replace(group) != Some(group);
        assert_eq!(told["unchanged"], !is_first, "{spelling}: {told}");
    }
    // All of them at once are one element for the host: it is rendered the same, and gets no other version.
    let policy = "---\napiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: spelt}\nspec:\n  \
                  hostSelector: {all: true}\n  ingress: [{from: [{addressGroup: v6}]}]\n";
    let head = GROUP.replace("name: p", "name: v6");
    let mut rendered = Vec::new();
    for spellings in [&SPELLINGS_TAKEN[..1], &SPELLINGS_TAKEN[..]] {
        world.plane.file("spelt.yaml", format!("{head}  cidrs: {spellings:?}\n{policy}"));
        let applied = world.plane.holdfast(&["apply", "-f", "spelt.yaml"]);
        assert!(applied.status.success(), "{applied:?}");
        world.settle();
        let latest = "select string_agg(component || ' ' || version || ' ' || encode(digest, 'hex'), ' ' order by host_id, component) \
                      from desired_latest";
        rendered.push(world.plane.postgres.sql(latest));
    }
    assert_eq!(rendered[0], rendered[1]);
}

/// What is refused for holding a secret must not repeat it.
fn check_secret(world: &mut World) {
    let token = world.good.clone();
    world.plane.file("secret.yaml", format!("{HOST}  labels:\n    a: b\n    token: {token}\n"));
    let said = Said::by_program(&world.plane.holdfast(&["apply", "-f", "secret.yaml"]));
    world.refused("secret", "secret.yaml:7: ", Leaves::Nothing, &said);
    assert!(!said.text.contains(&token), "the token is repeated");
}

fn check_spellings(world: &mut World) {
    for spelling in SPELLINGS_REFUSED {
        world.plane.file("spelt.yaml", format!("{RULES}  ingress: [{{from: [{{cidr: '{spelling}'}}]}}]\n"));
        let said = Said::by_program(&world.plane.holdfast(&["apply", "-f", "spelt.yaml"]));
        world.refused_again("cidr", "spelt.yaml:6: document 1: spec.ingress[0].from[0].cidr: ", Leaves::Nothing, &said);
    }
}
