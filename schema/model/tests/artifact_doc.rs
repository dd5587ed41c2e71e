//! The worked example of `docs/artifact.md` is what the codec writes. `HOLDFAST_BLESS=1` rewrites it.

use std::fmt::Write as _;
use std::path::Path;

use holdfast_model::address::{Family, Interval};
use holdfast_model::artifact::{decode, encode, tree_of};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{
    Action, Body, Chain, IcmpKind, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};

// One test for both blocks: they are parts of one file, and tests run side by side.
#[test]
fn the_examples_of_the_page_are_what_the_codec_writes() {
    let bytes = encode(&mk_example());
    assert_eq!(decode(&bytes), Ok(mk_example()));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/artifact.md");
    let page = std::fs::read_to_string(&path).expect("docs/artifact.md is there");
    let wanted = with_block(&page, "flat", &annotated(&bytes));
    let wanted = with_block(&wanted, "tree", &listed(&mk_example()));
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        std::fs::write(&path, wanted).expect("docs/artifact.md can be written");
    } else {
        assert_eq!(page, wanted, "docs/artifact.md is stale; HOLDFAST_BLESS=1 rewrites it");
    }
}

/// What each stretch of the flat example is, and how many bytes it has.
const PARTS: [(usize, &str); 46] = [
    (1, "format 1"),
    (1, "mode: enforced"),
    (1, "ingress: isolated"),
    (1, "  2 rules"),
    (16, "  key"),
    (1, "    order −5"),
    (1, "    deny"),
    (1, "    logged"),
    (1, "    statement: every packet"),
    (1, "    peers: a set"),
    (16, "      its key"),
    (1, "    local: any"),
    (16, "  key"),
    (2, "    order 1000"),
    (1, "    allow"),
    (1, "    not logged"),
    (2, "    statement: ports of TCP"),
    (1, "      2 ranges"),
    (4, "      80–80"),
    (4, "      443–444"),
    (1, "    peers: a set"),
    (16, "      its key"),
    (1, "    local: any"),
    (1, "egress: open"),
    (1, "  1 rule"),
    (16, "  key"),
    (2, "    order 1000"),
    (1, "    allow"),
    (1, "    not logged"),
    (2, "    statement: ICMP of IPv4"),
    (1, "      1 kind"),
    (3, "      type 8, any code"),
    (1, "    peers: anybody"),
    (1, "    local: a set"),
    (16, "      its key"),
    (1, "3 sets"),
    (16, "  key"),
    (1, "    1 IPv4 interval"),
    (6, "    10.0.0.0, extent 255"),
    (18, "    1 IPv6 interval: fd00::1, extent 0"),
    (16, "  key"),
    (6, "    1 IPv4 interval: 192.0.2.1, extent 0"),
    (1, "    no IPv6 interval"),
    (16, "  key"),
    (1, "    no IPv4 interval"),
    (1, "    no IPv6 interval"),
];

fn annotated(bytes: &[u8]) -> String {
    let mut rest = bytes;
    let mut text = String::new();
    for (len, what) in PARTS {
        let (part, left) = rest.split_at_checked(len).expect("the parts are those of the bytes");
        rest = left;
        writeln!(text, "{:<36} ; {what}", hex(part)).expect("writing to a string");
    }
    assert!(rest.is_empty(), "{} bytes have no part", rest.len());
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every node of a body's tree, the root first.
fn listed(body: &Body) -> String {
    let (root, nodes) = tree_of(body, |_| false);
    let rest = nodes.iter().filter(|(digest, _)| **digest != root);
    let all = nodes.get_key_value(&root).into_iter().chain(rest);
    all.map(|(digest, bytes)| format!("{digest}\n  {}\n", hex(bytes))).collect()
}

fn with_block(page: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has the block's begin");
    let (_, after) = rest.split_once(&end).expect("the page has the block's end");
    format!("{before}{begin}```text\n{content}```\n{end}{after}")
}

fn mk_example() -> Body {
    let set = |byte| SetKey::from_bytes([byte; 16]);
    let rule = |byte, order, action, statement, peers| Rule {
        key: RuleKey::from_bytes([byte; 16]),
        order,
        action,
        statement,
        peers,
        local: None,
        log: false,
    };
    let tcp = Statement::ports(protocol::TCP, vec![PortRange::single(80), PortRange { first: 443, last: 444 }]);
    let echo = Statement::Icmp { family: Family::V4, kinds: vec![IcmpKind { kind: 8, code: None }] };
    let network = Interval::new(0x0a00_0000, 0x0a00_00ff).expect("ordered");
    Body {
        mode: Mode::Enforced,
        ingress: Chain {
            isolated: true,
            rules: vec![
                Rule { log: true, ..rule(0x11, -5, Action::Deny, Statement::Any, Peers::Set(set(0xcc))) },
                rule(0x22, 1000, Action::Allow, tcp, Peers::Set(set(0xaa))),
            ],
        },
        egress: Chain {
            isolated: false,
            rules: vec![Rule { local: Some(set(0xbb)), ..rule(0x33, 1000, Action::Allow, echo, Peers::Any) }],
        },
        sets: vec![
            Set {
                key: set(0xaa),
                v4: [network].into_iter().collect(),
                v6: [Interval::single(0xfd00 << 112 | 1)].into_iter().collect(),
            },
            Set { key: set(0xbb), v4: [Interval::single(0xc000_0201)].into_iter().collect(), v6: IntervalSet::empty() },
            Set { key: set(0xcc), v4: IntervalSet::empty(), v6: IntervalSet::empty() },
        ],
    }
}
