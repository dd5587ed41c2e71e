//! Edits: rules that stay keep their handles and counters, and an edit for another base changes nothing.

use holdfast_agent::engine::{Attempt, Depth, Kernel};
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::{Kept, Ruleset, layout};
use holdfast_model::policy::{Body, Mode, Peers};

use crate::support::bodies::{allow, deny, rich, rule_key, set, set_key, tcp};
use crate::support::namespace::Namespace;
use crate::support::{load_nft, output_of};

fn laid_out(body: &Body) -> Ruleset {
    layout(body, &Kept::default())
}

fn held(ruleset: &Ruleset) -> Netfilter {
    let mut kernel = Netfilter::open(TableOwner::Off).unwrap();
    holds(kernel.apply(None, ruleset, Depth::Whole));
    kernel
}

fn holds(attempt: Attempt) {
    assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
}

/// Rules with their handles and counters, as `nft` tells them: chain, handle, packets, comment.
fn rules() -> Vec<(String, u64, u64, String)> {
    let listed: serde_json::Value =
        serde_json::from_str(&output_of("nft", &["-j", "list", "table", "inet", "holdfast"])).unwrap();
    let rules = listed["nftables"].as_array().unwrap().iter().filter_map(|object| object.get("rule"));
    rules
        .map(|rule| {
            let counter = rule["expr"].as_array().unwrap().iter().find_map(|expr| expr.get("counter")).unwrap();
            (
                rule["chain"].as_str().unwrap().to_owned(),
                rule["handle"].as_u64().unwrap(),
                counter["packets"].as_u64().unwrap(),
                rule["comment"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

#[test]
fn one_more_peer_keeps_every_handle_and_counter() {
    Namespace::new().run(|| {
        let base = rich(Mode::Enforced);
        let mut kernel = held(&laid_out(&base));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..6 {
            socket.send_to(b"to itself", socket.local_addr().unwrap()).unwrap();
        }
        let before = rules();
        assert!(before.iter().any(|(chain, _, packets, id)| chain == "in" && id == "loopback" && *packets >= 6));
        let mut target = base.clone();
        target.sets[0] = set(1, &["10.0.0.0/24", "10.0.2.0/24", "10.9.9.9/32", "192.0.2.7/32", "2001:db8::/64"]);
        holds(kernel.apply(Some(&laid_out(&base)), &laid_out(&target), Depth::Changed));
        assert_eq!(rules(), before);
        assert_eq!(kernel.check(&laid_out(&target)).unwrap(), None);
    });
}

#[test]
fn rules_that_come_and_go_leave_the_others_and_stand_in_their_places() {
    Namespace::new().run(|| {
        let base = rich(Mode::Enforced);
        let mut kernel = held(&laid_out(&base));
        let before = rules();
        let mut target = base.clone();
        target.ingress.rules.retain(|rule| rule.key != rule_key(5));
        target.ingress.rules.extend([
            allow(20, tcp(&[(443, 443)]), Peers::Any),
            allow(21, tcp(&[(1, 1), (3, 3)]), Peers::Set(set_key(4))),
            deny(22, tcp(&[(23, 23)]), Peers::Any),
        ]);
        target.egress.isolated = false;
        target.sets.push(set(4, &["203.0.113.0/24"]));
        let target = target.canonical();
        holds(kernel.apply(Some(&laid_out(&base)), &laid_out(&target), Depth::Changed));
        assert_eq!(kernel.check(&laid_out(&target)).unwrap(), None);
        let kept = rules();
        let stayed = before.iter().filter(|rule| kept.contains(rule)).count();
        // One rule for each family went from `in` and from its mirror, and of both egress chains the end changed and what counts before it went.
        assert_eq!(before.len() - stayed, 2 + 2 + 2 + 4, "{before:#?}\n{kept:#?}");
        holds(kernel.apply(Some(&laid_out(&target)), &laid_out(&base), Depth::Changed));
        assert_eq!(kernel.check(&laid_out(&base)).unwrap(), None);
    });
}

#[test]
fn a_set_moves_by_touching_and_overlapping_intervals_to_the_very_top() {
    Namespace::new().run(|| {
        let body = |prefixes: &[&str]| {
            let mut body = Body { mode: Mode::Enforced, sets: vec![set(1, prefixes)], ..Body::default() };
            body.ingress.rules.push(allow(1, tcp(&[(80, 80)]), Peers::Set(set_key(1))));
            laid_out(&body)
        };
        let steps: [&[&str]; 8] = [
            &["10.0.0.0/24"],
            &["10.0.0.0/25"],
            &["10.0.0.0/25", "10.0.1.0/24"],
            &["10.0.0.0/23"],
            &["0.0.0.0/0", "::/0"],
            &["0.0.0.0/1", "255.255.255.255/32", "ffff::/16"],
            &["255.255.255.254/31", "ffff:ffff::/32"],
            &[],
        ];
        let mut kernel = held(&body(steps[0]));
        for pair in steps.windows(2) {
            holds(kernel.apply(Some(&body(pair[0])), &body(pair[1]), Depth::Changed));
            assert_eq!(kernel.check(&body(pair[1])).unwrap(), None, "{pair:?}");
        }
    });
}

#[test]
fn c53_an_edit_that_the_kernel_refuses_over_somebody_elses_change_is_followed_by_what_leads_from_what_is_there() {
    for change in [
        "delete element inet holdfast s4_00000000000000000000000000000001 { 10.0.0.0/24 }",
        "delete table inet holdfast",
    ] {
        Namespace::new().run(move || {
            let base = rich(Mode::Enforced);
            let mut kernel = held(&laid_out(&base));
            load_nft(change);
            let mut target = base.clone();
            target.sets[0] = set(1, &["10.0.2.0/24", "192.0.2.7/32", "2001:db8::/64"]);
            let target = laid_out(&target);
            holds(kernel.apply(Some(&laid_out(&base)), &target, Depth::Changed));
            assert_eq!(kernel.check(&target).unwrap(), None, "{change}");
        });
    }
}

#[test]
fn a_change_of_somebody_elses_table_is_no_difference_of_ours() {
    Namespace::new().run(|| {
        let base = rich(Mode::Enforced);
        let mut kernel = held(&laid_out(&base));
        assert!(!kernel.has_moved().unwrap());
        load_nft("table ip other {\nchain c { type filter hook input priority 0; }\n}");
        assert!(kernel.has_moved().unwrap());
        let mut target = base.clone();
        target.sets[0] = set(1, &["10.0.0.0/24"]);
        holds(kernel.apply(Some(&laid_out(&base)), &laid_out(&target), Depth::Changed));
        assert!(!kernel.has_moved().unwrap());
    });
}

#[test]
fn every_kind_of_foreign_change_is_found() {
    for change in [
        "flush ruleset",
        "flush chain inet holdfast in",
        "add rule inet holdfast in accept",
        "insert rule inet holdfast base accept",
        "add chain inet holdfast more",
        "add set inet holdfast more { type ipv4_addr; }",
        "add element inet holdfast s4_00000000000000000000000000000001 { 10.99.0.0/16 }",
        "flush set inet holdfast s6_00000000000000000000000000000001",
        "add chain inet holdfast in { type filter hook input priority 10; policy accept; }",
        "delete table inet holdfast",
    ] {
        Namespace::new().run(move || {
            let ruleset = laid_out(&rich(Mode::Enforced));
            let mut kernel = held(&ruleset);
            load_nft(change);
            assert!(kernel.check(&ruleset).unwrap().is_some(), "{change}");
            holds(kernel.apply(None, &ruleset, Depth::Whole));
            assert_eq!(kernel.check(&ruleset).unwrap(), None, "{change}");
        });
    }
}
