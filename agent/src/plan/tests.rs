//! Rulesets, edits and comparisons, without a kernel.

//! What a plan holds to: its golden rulesets, edits that leave the rest alone, and read-backs that are compared.

use std::fs;
use std::path::Path;

use holdfast_model::address::{Address, Family, Interval};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{
    Action, Body, Chain as PolicyChain, IcmpKind, Mode, Peers, PortRange, Rule as PolicyRule, RuleKey, Set, SetKey,
    Statement, protocol,
};

use super::*;

#[test]
fn rulesets_are_as_their_golden_files_say() {
    golden("visibility", &layout(&Body::default(), &Kept::default()));
    golden("open", &layout(&Body { mode: Mode::Enforced, ..Body::default() }, &Kept::default()));
    golden("enforced", &layout(&rich(Mode::Enforced), &kept()));
    golden("simulation", &layout(&rich(Mode::Simulation), &Kept::default()));
}

#[test]
fn one_more_peer_is_one_element_and_no_rule() {
    let base = rich(Mode::Enforced);
    let mut target = base.clone();
    target.sets[0].v4 = IntervalSet::covering(
        base.sets[0].v4.to_vec().into_iter().chain([Interval::single(0x0a00_0909_u32)]).collect(),
    );
    let edits = edits(&base, &target);
    assert!(edits.chains.is_empty() && edits.sets_put.is_empty() && edits.sets_drop.is_empty());
    let [edit] = edits.sets.as_slice() else { panic!("one set changes: {edits:?}") };
    assert_eq!((edit.remove.len(), edit.add.len()), (0, 1));
    assert_eq!(edit.add[0].boundaries().count(), 2);
}

#[test]
fn a_rule_in_the_middle_goes_behind_its_neighbour_and_the_others_stay() {
    let base = rich(Mode::Enforced);
    let mut target = base.clone();
    target.ingress.rules.push(allow(2_500, tcp(443), Peers::Any));
    let target = target.canonical();
    let edits = edits(&base, &target);
    for chain in &edits.chains {
        assert_eq!((chain.drop.len(), chain.put.len()), (0, 1), "{}", chain.name);
    }
    let names: Vec<_> = edits.chains.iter().map(|chain| chain.name).collect();
    assert_eq!(names, ["in", "out_reply"]);
}

#[test]
fn a_rule_that_goes_takes_its_set_and_its_mirror_with_it() {
    let base = rich(Mode::Enforced);
    let mut target = base.clone();
    target.ingress.rules.retain(|rule| rule.action == Action::Allow);
    let edits = edits(&base, &target.canonical());
    assert_eq!(edits.sets_drop, [format!("s4_{}", set_key(2)), format!("s6_{}", set_key(2))]);
    assert!(edits.chains.iter().all(|chain| chain.put.is_empty() && !chain.drop.is_empty()));
}

#[test]
fn another_frame_is_no_edit() {
    let enforced = layout(&rich(Mode::Enforced), &Kept::default());
    assert_eq!(edits_between(&enforced, &layout(&rich(Mode::Simulation), &Kept::default())), None);
    assert_eq!(edits_between(&enforced, &layout(&rich(Mode::Enforced), &kept())), None);
    assert!(edits_between(&enforced, &enforced).is_some_and(|edits| edits.is_empty()));
}

#[test]
fn rules_that_change_places_are_put_anew_so_that_the_order_is_right() {
    let rule = |id: &str| Rule { id: RuleId::new(id), matches: vec![], effect: Effect::Count, denies: false };
    let ruleset = |ids: &[&str]| Ruleset {
        chains: vec![Chain { name: "in", hook: None, drops: false, rules: ids.iter().map(|id| rule(id)).collect() }],
        sets: std::collections::BTreeMap::new(),
    };
    let (base, target) = (ruleset(&["first", "a", "b", "c", "d"]), ruleset(&["first", "d", "a", "x", "c", "b"]));
    let edits = edits_between(&base, &target).expect("an edit");
    assert_eq!(played(&base, &edits), target.chains[0].rules);
}

#[test]
fn a_chain_that_begins_otherwise_is_no_edit() {
    let rule = |id: &str| Rule { id: RuleId::new(id), matches: vec![], effect: Effect::Count, denies: false };
    let ruleset = |ids: &[&str]| Ruleset {
        chains: vec![Chain { name: "in", hook: None, drops: false, rules: ids.iter().map(|id| rule(id)).collect() }],
        sets: std::collections::BTreeMap::new(),
    };
    assert_eq!(edits_between(&ruleset(&["a", "b"]), &ruleset(&["x", "a", "b"])), None);
}

#[test]
fn what_reads_back_as_planned_is_equal_and_each_change_is_named() {
    let planned = layout(&rich(Mode::Enforced), &kept());
    let right = as_observed(&planned);
    assert!(compare(&planned, &right).is_ok());
    let spoilt = |spoil: fn(&mut Observed)| {
        let mut observed = right.clone();
        spoil(&mut observed);
        compare(&planned, &observed).expect_err("spoilt").to_string()
    };
    assert!(spoilt(|observed| drop(observed.rules.pop())).contains("rules and should have"));
    assert!(spoilt(|observed| drop(observed.sets.pop())).contains("is not as planned"));
    assert!(spoilt(|observed| observed.sets[1].boundaries.clear()).contains("boundaries"));
    assert!(spoilt(|observed| drop(observed.chains.pop())).contains("chain forward is not as planned"));
    assert!(spoilt(|observed| observed.chains[2].hook.as_mut().expect("in").2 = false).contains("chain in "));
    assert!(
        spoilt(|observed| observed.rules[0].exprs[0] = Expr::Counter).contains("something else than rule related-v4")
    );
}

#[test]
fn interface_names_that_would_leave_their_quotes_are_refused() {
    for name in ["", "a b", "eth0\"", "sixteen-letters-", "eth*"] {
        let kept = Kept { uplinks: vec![name.to_owned()], ..Kept::default() };
        assert_eq!(kept.check(), Err(KeptError::Interface(name.to_owned())));
    }
    assert_eq!(kept().check(), Ok(()));
}

/// Holds a ruleset's text against its file; `HOLDFAST_GOLDEN=write` writes it.
fn golden(name: &str, ruleset: &Ruleset) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.nft"));
    let text = ruleset.to_string();
    if std::env::var_os("HOLDFAST_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &text).expect("the golden file can be written");
    }
    let golden = fs::read_to_string(&path).expect("the golden file is there");
    assert!(golden == text, "{name}.nft differs; the ruleset is now:\n{text}");
}

/// The rules of the first chain after an edit, as the kernel would have them.
fn played(base: &Ruleset, edits: &Edits) -> Vec<Rule> {
    let mut rules = base.chains[0].rules.clone();
    for chain in &edits.chains {
        rules.retain(|rule| !chain.drop.contains(&rule.id));
        for put in chain.put.iter().rev() {
            let at = rules.iter().position(|rule| rule.id == put.after).expect("its neighbour stays");
            rules.insert(at + 1, put.rule.clone());
        }
    }
    rules
}

fn as_observed(planned: &Ruleset) -> Observed {
    let chains = planned.chains.iter().map(|chain| ObservedChain {
        name: chain.name.to_owned(),
        hook: chain.hook.map(|hook| (hook.number(), Hook::PRIORITY, chain.drops, "filter".to_owned())),
    });
    let rules = planned.chains.iter().flat_map(|chain| {
        chain.rules.iter().enumerate().map(|(index, rule)| ObservedRule {
            chain: chain.name.to_owned(),
            handle: index as u64,
            id: rule.id.clone(),
            exprs: rule.lower(),
            counted: (7, 700),
        })
    });
    let sets = planned.sets.iter().map(|(name, members)| ObservedSet {
        name: name.clone(),
        key_type: members.key_type(),
        flags: 4,
        boundaries: members.spans().into_iter().flat_map(Span::boundaries).collect(),
    });
    Observed { flags: 0, chains: chains.collect(), rules: rules.collect(), sets: sets.collect() }
}

fn edits(base: &Body, target: &Body) -> Edits {
    let kept = Kept::default();
    edits_between(&layout(base, &kept), &layout(target, &kept)).expect("an edit")
}

fn set_key(n: u8) -> SetKey {
    SetKey::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
}

fn set(n: u8, v4: &[(u32, u32)], v6: &[(u128, u128)]) -> Set {
    fn covering<A: Address>(ends: &[(A, A)]) -> IntervalSet<A> {
        ends.iter().map(|(first, last)| Interval::new(*first, *last).expect("ordered")).collect()
    }
    Set { key: set_key(n), v4: covering(v4), v6: covering(v6) }
}

fn allow(n: u16, statement: Statement, peers: Peers) -> PolicyRule {
    let [high, low] = n.to_be_bytes();
    let key = RuleKey::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]);
    PolicyRule { key, order: 1000, action: Action::Allow, statement, peers, local: None, log: false }
}

fn tcp(port: u16) -> Statement {
    Statement::ports(protocol::TCP, vec![PortRange::single(port)])
}

fn rich(mode: Mode) -> Body {
    let peers = |n| Peers::Set(set_key(n));
    let ranges = vec![PortRange::single(80), PortRange { first: 8000, last: 8099 }];
    let kinds =
        |kinds: &[(u8, Option<u8>)]| kinds.iter().map(|(kind, code)| IcmpKind { kind: *kind, code: *code }).collect();
    let mut denied = allow(4, Statement::Any, peers(2));
    (denied.action, denied.log) = (Action::Deny, true);
    let mut local = allow(5, tcp(9000), peers(1));
    local.local = Some(set_key(3));
    Body {
        mode,
        ingress: PolicyChain {
            isolated: true,
            rules: vec![
                allow(1, Statement::ports(protocol::TCP, ranges), peers(1)),
                allow(2, Statement::Icmp { family: Family::V4, kinds: kinds(&[(3, Some(4)), (8, None)]) }, Peers::Any),
                allow(3, Statement::Icmp { family: Family::V6, kinds: kinds(&[(128, Some(0))]) }, peers(1)),
                denied,
                local,
            ],
        },
        egress: PolicyChain {
            isolated: false,
            rules: vec![allow(1, Statement::Protocol(47), peers(1)), allow(2, Statement::Any, Peers::Any)],
        },
        sets: vec![
            set(
                1,
                &[(0x0a00_0000, 0x0a00_00ff), (0xc000_0207, 0xc000_0207)],
                &[(0x2001_0db8 << 96, (0x2001_0db8 << 96) + 7)],
            ),
            set(2, &[(0xffff_ff00, u32::MAX)], &[]),
            set(3, &[(0x0a4d_0001, 0x0a4d_0001)], &[]),
        ],
    }
    .canonical()
}

fn kept() -> Kept {
    Kept {
        gateways: vec!["192.0.2.10:7443".parse().expect("an address")],
        resolvers: vec!["2001:db8::53".parse().expect("an address")],
        failsafe_ports: vec![PortRange::single(22)],
        uplinks: vec!["eth0".to_owned()],
    }
}
