//! What a plan holds to: its golden rulesets, edits that leave the rest alone, and read-backs that are compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use holdfast_model::address::{Address, Family, Interval};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{
    Action, Body, Chain as PolicyChain, IcmpKind, Mode, Peers, PortRange, Rule as PolicyRule, RuleKey, Set, SetKey,
    Statement, protocol,
};
use proptest::prelude::*;

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
fn nothing_is_the_edit_between_equals() {
    let enforced = layout(&rich(Mode::Enforced), &kept());
    assert!(edits_between(&enforced, &placed(&enforced), &enforced).is_some_and(|edits| edits.is_empty()));
    assert!(edits_from(Some(&as_observed(&enforced)), &enforced).is_empty());
}

#[test]
fn another_mode_keeps_the_chains_that_both_have_and_changes_their_policy() {
    let (enforced, simulated) = (rich(Mode::Enforced), rich(Mode::Simulation));
    let edits = edits(&enforced, &simulated);
    assert_eq!(edits.policies.iter().map(|frame| frame.name).collect::<Vec<_>>(), ["in", "out"]);
    assert!(edits.chains_drop.is_empty() && edits.chains_put.is_empty() && edits.sets.is_empty());
    assert!(!edits.keeps_the_frame());
    // Only rules that would drop are other ones.
    let dropping = edits.chains.iter().flat_map(|chain| &chain.put).all(|put| put.rule.denies);
    assert!(dropping, "{edits:#?}");
}

#[test]
fn sets_that_come_go_first_where_rules_change_and_nowhere_else() {
    let (base, kept) = (rich(Mode::Enforced), Kept::default());
    let mut target = base.clone();
    target.ingress.rules.push(allow(9, tcp(443), Peers::Set(set_key(9))));
    target.sets.push(set(9, &[(1, 9)], &[]));
    let change = edits(&base, &target.canonical());
    let (first, rest) = change.split().expect("two batches");
    let expected = Edits { sets_put: change.sets_put.clone(), ..Edits::default() };
    assert_eq!(first, expected);
    assert_eq!(rest, Edits { sets_put: BTreeMap::new(), ..change });
    let mut target = base.clone();
    target.sets[0] = set(1, &[(1, 9)], &[]);
    assert_eq!(edits(&base, &target).split(), None);
    assert_eq!(Edits::replacing(&layout(&base, &kept)).split(), None);
    let (first, rest) = edits_from(None, &layout(&base, &kept)).split().expect("two batches");
    assert_eq!((first.table_put, rest.table_put, rest.sets_put.len()), (true, false, 0));
}

/// Chains of rules by name, of which the first is `in`.
fn chain_of(ids: &[&str]) -> Ruleset {
    let rule = |id: &&str| Rule { id: RuleId::new(*id), matches: vec![], effect: Effect::Count, denies: false };
    let chain = Chain { name: "in", hook: None, drops: false, rules: ids.iter().map(rule).collect() };
    Ruleset { chains: vec![chain], sets: BTreeMap::new() }
}

#[test]
fn rules_that_change_places_are_put_anew_so_that_the_order_is_right() {
    let (base, target) = (chain_of(&["first", "a", "b", "c", "d"]), chain_of(&["first", "d", "a", "x", "c", "b"]));
    let edits = edits_between(&base, &placed(&base), &target).expect("every rule has a place");
    let [chain] = edits.chains.as_slice() else { panic!("one chain changes: {edits:?}") };
    assert_eq!((chain.drop.len(), chain.put.len()), (2, 3), "a and c stay with the first, or as many others");
    assert_eq!(compare(&target, &played(as_observed(&base), &edits)).map(drop), Ok(()));
}

#[test]
fn a_rule_without_a_place_makes_no_edit() {
    let (base, target) = (chain_of(&["a", "b"]), chain_of(&["x", "a"]));
    let mut places = placed(&base);
    places.get_mut("in").expect("it is there").remove(&RuleId::new("b"));
    assert_eq!(edits_between(&base, &places, &target), None);
}

proptest! {
    /// From any state to any other, known or read: the kernel then holds what is wanted and nothing more.
    #[test]
    fn every_edit_ends_in_the_target(base in any_ruleset(), target in any_ruleset()) {
        let there = as_observed(&base);
        let between = edits_between(&base, &placed(&base), &target).expect("every rule has a place");
        prop_assert_eq!(compare(&target, &played(there.clone(), &between)).map(drop), Ok(()));
        let from = edits_from(Some(&there), &target);
        prop_assert_eq!(compare(&target, &played(there, &from)).map(drop), Ok(()));
        let anew = edits_from(None, &target);
        prop_assert_eq!(compare(&target, &played(Observed::default(), &anew)).map(drop), Ok(()));
    }

    /// Whatever somebody else did to the table, what was read is led back, and rules that were right keep their handles.
    #[test]
    fn every_damage_is_edited_away(target in any_ruleset(), damages in proptest::collection::vec((0_usize..9, any::<prop::sample::Index>()), 1..6)) {
        let mut there = as_observed(&target);
        for (kind, at) in damages {
            damage(&mut there, kind, at);
        }
        let edits = edits_from(Some(&there), &target);
        let (first, rest) = edits.split().unwrap_or_else(|| (Edits::default(), edits.clone()));
        let between = played(there, &first);
        prop_assert_eq!(compare(&target, &played(between, &rest)).map(drop), Ok(()));
    }
}

/// One thing that another tool, or a hand, does to our table.
fn damage(there: &mut Observed, kind: usize, at: prop::sample::Index) {
    fn pick<'a, T>(list: &'a mut [T], at: &prop::sample::Index) -> Option<&'a mut T> {
        if list.is_empty() { None } else { Some(&mut list[at.index(list.len())]) }
    }
    let count = there.rules.len();
    match kind {
        0 if count > 0 => drop(there.rules.remove(at.index(count))),
        1 if count > 0 => {
            // A handle of its own, as the kernel gives it: never one that a rule has.
            let handle = 1 + there.rules.iter().map(|rule| rule.handle).max().unwrap_or(0);
            let twin = ObservedRule { handle, ..there.rules[at.index(count)].clone() };
            there.rules.insert(at.index(count), twin);
        }
        2 if count > 1 => there.rules.swap(at.index(count), 0),
        3 => there.rules.iter_mut().take(1).for_each(|rule| rule.exprs.push(Expr::Counter)),
        4 => there.chains.push(ObservedChain { name: format!("theirs-{}", there.chains.len()), hook: None }),
        5 => {
            if let Some(chain) = pick(&mut there.chains, &at) {
                chain.hook = match chain.hook.take() {
                    Some((number, priority, drops, kind)) if at.index(2) == 0 => Some((number, priority, !drops, kind)),
                    Some(_) => None,
                    None => Some((0, -300, false, "filter".to_owned())),
                };
            }
        }
        6 => {
            if let Some(set) = pick(&mut there.sets, &at) {
                set.boundaries.truncate(at.index(set.boundaries.len() + 1));
            }
        }
        7 => {
            if let Some(set) = pick(&mut there.sets, &at) {
                set.flags |= 16;
            }
        }
        8 if !there.sets.is_empty() => {
            let name = format!("theirs-{}", there.sets.len());
            let set = ObservedSet { name, ..there.sets[at.index(there.sets.len())].clone() };
            there.sets.push(set);
        }
        _ => {}
    }
}

/// What stays open whatever is rendered: these rules of these chains, and the sets that they ask.
const GUARD_RULES: [(&str, &[&str]); 4] = [
    ("in", &["loopback", "base", "dhcp-v4", "dhcp-v6", "reply", "failsafe"]),
    ("out", &["loopback", "base", "dhcp-v4", "dhcp-v6", "reply", "gateway-v4", "gateway-v6"]),
    ("in_reply", &["entered", "gateway-v4", "gateway-v6"]),
    ("out_reply", &["entered", "failsafe"]),
];
const GUARD_SETS: [&str; 4] = ["gw4", "gw6", "gw_ports", "failsafe"];

/// Any policy that denies: everything of both directions before all else, or what the failsafe port and the gateway's are, to anybody or somebody.
fn any_denial() -> impl Strategy<Value = Body> {
    let mode = prop::sample::select(vec![Mode::Simulation, Mode::Enforced]);
    let statement = prop::sample::select(vec![Statement::Any, Statement::Protocol(protocol::TCP), tcp(22), tcp(7443)]);
    let peers = prop::sample::select(vec![Peers::Any, Peers::Set(set_key(1)), Peers::Set(set_key(2))]);
    let denial = (statement, peers, prop::sample::select(vec![i32::MIN, -1, 0, 1000]));
    (mode, proptest::collection::vec(denial, 0..5), any::<bool>(), any::<bool>()).prop_map(
        |(mode, denials, isolated, is_rich)| {
            let mut body = if is_rich { rich(mode) } else { Body { mode, sets: rich(mode).sets, ..Body::default() } };
            for (n, (statement, peers, order)) in (100_u16..).zip(denials) {
                let rule = PolicyRule { action: Action::Deny, order, ..allow(n, statement, peers) };
                body.ingress.rules.push(rule.clone());
                body.egress.rules.push(rule);
            }
            (body.ingress.isolated, body.egress.isolated) = (isolated, isolated);
            body.canonical()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_policy_takes_away_the_way_to_gateways_or_a_failsafe_port(base in any_denial(), target in any_denial()) {
        let (open, from, to) = (layout(&Body { mode: Mode::Enforced, ..Body::default() }, &kept()), layout(&base, &kept()), layout(&target, &kept()));
        let chain = |of: &Ruleset, name: &str| of.chains.iter().find(|chain| chain.name == name).expect("it is there").rules.clone();
        for (name, guard) in GUARD_RULES {
            let (rules, free) = (chain(&to, name), chain(&open, name));
            let ids: Vec<String> = rules.iter().take(guard.len()).map(|rule| rule.id.to_string()).collect();
            prop_assert_eq!(&ids, guard, "they are asked before every rule of a policy: {}", name);
            prop_assert_eq!(&rules[..guard.len()], &free[..guard.len()], "and say the same as without a policy");
        }
        for set in GUARD_SETS {
            prop_assert!(to.sets[set] == open.sets[set] && !matches!(&to.sets[set], Members::Ports(ports) if ports.is_empty()), "{}", set);
        }
        // Nor does the way from one to another touch them.
        let held = placed(&from);
        let edits = edits_between(&from, &held, &to).expect("every rule has a place");
        let guarded: Vec<u64> = as_observed(&from).rules.iter()
            .filter(|rule| GUARD_RULES.iter().any(|(chain, ids)| rule.chain == *chain && ids.contains(&rule.id.to_string().as_str())))
            .map(|rule| rule.handle).collect();
        prop_assert_eq!(guarded.len(), 18);
        prop_assert!(edits.chains.iter().all(|chain| chain.drop.iter().all(|handle| !guarded.contains(handle))));
        prop_assert!(edits.sets_drop.iter().all(|name| !GUARD_SETS.contains(&name.as_str())));
        prop_assert!(edits.sets.iter().all(|edit| !GUARD_SETS.contains(&edit.name.as_str())));
    }
}

/// A ruleset with some of the rich one's rules, in any mode, with and without uplinks and members.
fn any_ruleset() -> impl Strategy<Value = Ruleset> {
    let mode = prop::sample::select(vec![Mode::Visibility, Mode::Simulation, Mode::Enforced]);
    let members = proptest::collection::vec((0_u32..64, 1_u32..4), 0..6);
    (mode, any::<u8>(), members, any::<bool>(), any::<bool>()).prop_map(|(mode, rules, members, uplinks, isolated)| {
        let mut body = rich(mode);
        let mut bits = rules;
        let mut stays = |_: &PolicyRule| {
            bits = bits.rotate_right(1);
            bits & 1 == 1
        };
        body.ingress.rules.retain(&mut stays);
        body.ingress.isolated = isolated;
        body.egress.rules.retain(stays);
        body.sets[0].v4 = members
            .into_iter()
            .map(|(first, len)| Interval::new(first * 4, first * 4 + len).expect("ordered"))
            .collect();
        layout(&body.canonical(), &if uplinks { kept() } else { Kept::default() })
    })
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

/// What a table holds after an edit, as the kernel works a batch off.
fn played(mut there: Observed, edits: &Edits) -> Observed {
    if edits.table_drop {
        there = Observed::default();
    }
    for chain in &edits.chains {
        let goes = |rule: &ObservedRule| rule.chain == chain.name && chain.drop.contains(&rule.handle);
        let before = there.rules.len();
        there.rules.retain(|rule| !goes(rule));
        assert_eq!(before - there.rules.len(), chain.drop.len(), "only what is there can go");
    }
    for name in &edits.chains_drop {
        there.rules.retain(|rule| rule.chain != *name);
        let before = there.chains.len();
        there.chains.retain(|chain| chain.name != *name);
        assert_eq!(before - there.chains.len(), 1, "only what is there can go");
    }
    there.sets.retain(|set| !edits.sets_drop.contains(&set.name));
    for edit in &edits.sets {
        let set = there.sets.iter_mut().find(|set| set.name == edit.name).expect("only what is there changes");
        for boundary in edit.remove.iter().copied().flat_map(Span::boundaries) {
            let at = set.boundaries.iter().position(|there| *there == boundary).expect("only what is there can go");
            set.boundaries.remove(at);
        }
        set.boundaries.extend(edit.add.iter().copied().flat_map(Span::boundaries));
        set.boundaries.sort_unstable();
    }
    for (name, members) in &edits.sets_put {
        assert!(there.sets.iter().all(|set| set.name != *name), "{name} is there already");
        there.sets.push(observed_set(name, members));
    }
    for frame in &edits.chains_put {
        assert!(there.chains.iter().all(|chain| chain.name != frame.name), "{} is there already", frame.name);
        there.chains.push(observed_frame(frame));
    }
    for frame in &edits.policies {
        let chain = there.chains.iter_mut().find(|chain| chain.name == frame.name).expect("it stays");
        *chain = observed_frame(frame);
    }
    let mut handle = 1_000_000 + there.rules.iter().map(|rule| rule.handle).max().unwrap_or(0);
    for chain in &edits.chains {
        for put in &chain.put {
            handle += 1;
            let rule = observed_rule(chain.name, handle, &put.rule);
            match put.before {
                None => there.rules.push(rule),
                Some(before) => {
                    let neighbour = |rule: &ObservedRule| rule.chain == chain.name && rule.handle == before;
                    let at = there.rules.iter().position(neighbour).expect("its neighbour stays");
                    there.rules.insert(at, rule);
                }
            }
        }
    }
    there
}

fn observed_frame(frame: &Frame) -> ObservedChain {
    let hook = frame.hook.map(|hook| (hook.number(), Hook::PRIORITY, frame.drops, "filter".to_owned()));
    ObservedChain { name: frame.name.to_owned(), hook }
}

fn observed_rule(chain: &str, handle: u64, rule: &Rule) -> ObservedRule {
    let (chain, id) = (chain.to_owned(), rule.id.clone());
    ObservedRule { chain, handle, id, exprs: rule.lower(), counted: (7, 700) }
}

fn observed_set(name: &str, members: &Members) -> ObservedSet {
    let boundaries = members.spans().into_iter().flat_map(Span::boundaries).collect();
    ObservedSet { name: name.to_owned(), key_type: members.key_type(), flags: 4, boundaries }
}

/// The handles that [`as_observed`] gives: ascending through the whole table.
fn placed(planned: &Ruleset) -> Placed {
    compare(planned, &as_observed(planned)).expect("it is as planned")
}

fn as_observed(planned: &Ruleset) -> Observed {
    let frames = planned.chains.iter().map(|chain| Frame { name: chain.name, hook: chain.hook, drops: chain.drops });
    let rules = planned.chains.iter().flat_map(|chain| chain.rules.iter().map(|rule| (chain.name, rule)));
    Observed {
        flags: 0,
        chains: frames.map(|frame| observed_frame(&frame)).collect(),
        rules: (0_u64..).zip(rules).map(|(handle, (chain, rule))| observed_rule(chain, handle, rule)).collect(),
        sets: planned.sets.iter().map(|(name, members)| observed_set(name, members)).collect(),
    }
}

fn edits(base: &Body, target: &Body) -> Edits {
    let (base, target) = (layout(base, &Kept::default()), layout(target, &Kept::default()));
    edits_between(&base, &placed(&base), &target).expect("every rule has a place")
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
        is_unguarded: false,
        gateways: vec!["192.0.2.10:7443".parse().expect("an address")],
        resolvers: vec!["2001:db8::53".parse().expect("an address")],
        failsafe_ports: vec![PortRange::single(22)],
        uplinks: vec!["eth0".to_owned()],
    }
}
