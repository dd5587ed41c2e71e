//! Two versions of a policy, and what leads from one to the other, in words.
//!
//! The difference is the model's delta, the one that travels: nothing is shown that would not be sent, and the other way round.

use holdfast_api::policy::{
    IsolationChange, ModeChange, PeersChange, PolicyChanges, RANGES_LISTED_MAX, Ranges, RuleView,
};
use holdfast_model::address::{Address, Interval, subtract};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::delta::{Change, diff};
use holdfast_model::policy::{Action, Body, Direction, IcmpKind, Peers, PortRange, Rule, SetKey, Statement, protocol};

/// What leads from one policy to another.
pub(crate) fn policy_changes(base: &Body, target: &Body) -> PolicyChanges {
    let mut changes = PolicyChanges::default();
    for change in diff(base, target).changes {
        match change {
            Change::SetMode(mode) => changes.mode = Some(ModeChange { from: base.mode, to: mode }),
            Change::SetIsolation { direction, isolated } => {
                changes.isolation.push(IsolationChange { direction, isolated });
            }
            Change::DropRule { direction, key } => {
                let gone = base.chain(direction).rules.iter().find(|rule| rule.key == key);
                changes.rules_removed.extend(gone.map(|rule| rule_view(base, direction, rule)));
            }
            Change::PutRule { direction, rule } => {
                // A rule in the place of the one with its key: the old one goes.
                let old = base.chain(direction).rules.iter().find(|old| old.key == rule.key);
                changes.rules_removed.extend(old.map(|old| rule_view(base, direction, old)));
                changes.rules_added.push(rule_view(target, direction, &rule));
            }
            Change::EditSet { key, v4, v6 } => {
                changes.peers.push(PeersChange {
                    rules: rules_of(target, key),
                    added: both(truly(&v4.add, &v4.remove), truly(&v6.add, &v6.remove)),
                    removed: both(truly(&v4.remove, &v4.add), truly(&v6.remove, &v6.add)),
                });
            }
            // They come and go with the rules that name them.
            Change::PutSet(_) | Change::DropSet(_) => {}
        }
    }
    changes
}

/// The addresses that really come or go: an interval that grows is taken out and put in again.
fn truly<A: Address>(these: &[Interval<A>], those: &[Interval<A>]) -> Vec<Interval<A>> {
    subtract(these, those)
}

fn both(v4: Vec<Interval<u32>>, v6: Vec<Interval<u128>>) -> Ranges {
    let mut ranges = Ranges::default();
    v4.into_iter().for_each(|interval| push(&mut ranges, interval));
    v6.into_iter().for_each(|interval| push(&mut ranges, interval));
    ranges
}

fn push<A: Address>(ranges: &mut Ranges, interval: Interval<A>) {
    ranges.count += 1;
    if ranges.ranges.len() < RANGES_LISTED_MAX {
        ranges.ranges.push(interval.to_string());
    }
}

fn members(body: &Body, key: SetKey) -> Ranges {
    fn put<A: Address>(ranges: &mut Ranges, set: &IntervalSet<A>) {
        set.for_each(|interval| push(ranges, interval));
    }
    let mut ranges = Ranges::default();
    if let Some(set) = body.set(key) {
        put(&mut ranges, &set.v4);
        put(&mut ranges, &set.v6);
    }
    ranges
}

/// Every rule of a policy in words, those toward the host first, in the order in which they decide.
pub(crate) fn rules_of_body(body: &Body) -> Vec<RuleView> {
    let of = |direction: Direction| {
        let mut rules: Vec<&Rule> = body.chain(direction).rules.iter().collect();
        rules.sort_by_key(|rule| (rule.order, rule.action));
        rules.into_iter().map(move |rule| rule_view(body, direction, rule))
    };
    of(Direction::Ingress).chain(of(Direction::Egress)).collect()
}

fn rules_of(body: &Body, key: SetKey) -> Vec<String> {
    let names = |rule: &&Rule| rule.peers == Peers::Set(key) || rule.local == Some(key);
    let of = |direction: Direction| {
        let rules = body.chain(direction).rules.iter().filter(names);
        rules.map(move |rule| format!("{direction} {} {}", action_word(rule.action), service(&rule.statement)))
    };
    Direction::ALL.into_iter().flat_map(of).collect()
}

const fn action_word(action: Action) -> &'static str {
    match action {
        Action::Allow => "allow",
        Action::Deny => "deny",
    }
}

/// One concrete rule in words.
fn rule_view(body: &Body, direction: Direction, rule: &Rule) -> RuleView {
    RuleView {
        key: rule.key.to_string(),
        direction,
        order: rule.order,
        action: rule.action,
        service: service(&rule.statement),
        peers: match rule.peers {
            Peers::Any => None,
            Peers::Set(key) => Some(members(body, key)),
        },
        local: rule.local.map(|key| members(body, key)),
        log: rule.log,
    }
}

/// The word of an IP protocol, or its number.
fn protocol_word(number: u8) -> String {
    match number {
        protocol::ICMP => "icmp".to_owned(),
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::ICMPV6 => "icmpv6".to_owned(),
        protocol::SCTP => "sctp".to_owned(),
        number => format!("protocol {number}"),
    }
}

fn service(statement: &Statement) -> String {
    let list = |items: Vec<String>| items.join(",");
    match statement {
        Statement::Any => "any".to_owned(),
        Statement::Protocol(number) => protocol_word(*number),
        Statement::Ports { protocol, ranges } => {
            let one = |range: &PortRange| match range {
                PortRange { first, last } if first == last => first.to_string(),
                PortRange { first, last } => format!("{first}-{last}"),
            };
            format!("{} {}", protocol_word(*protocol), list(ranges.iter().map(one).collect()))
        }
        Statement::Icmp { family, kinds } => {
            let word = match family {
                holdfast_model::address::Family::V4 => "icmp",
                holdfast_model::address::Family::V6 => "icmpv6",
            };
            let one = |kind: &IcmpKind| match kind.code {
                None => kind.kind.to_string(),
                Some(code) => format!("{}/{code}", kind.kind),
            };
            format!("{word} {}", list(kinds.iter().map(one).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::policy::{Chain, Mode, RuleKey, Set};

    fn mk_set(key: u8, first: u32, last: u32) -> Set {
        let interval = Interval::new(first, last).expect("ascending");
        Set { key: SetKey::from_bytes([key; 16]), v4: IntervalSet::covering(vec![interval]), v6: IntervalSet::empty() }
    }

    fn mk_rule(key: u8, port: u16, peers: Peers) -> Rule {
        Rule {
            key: RuleKey::from_bytes([key; 16]),
            order: 1000,
            action: Action::Allow,
            statement: Statement::ports(protocol::TCP, vec![PortRange::single(port)]),
            peers,
            local: None,
            log: false,
        }
    }

    fn mk_body(rules: Vec<Rule>, sets: Vec<Set>) -> Body {
        Body { ingress: Chain { isolated: true, rules }, sets, ..Body::default() }.canonical()
    }

    #[test]
    fn a_peer_that_comes_is_named_with_the_rule_and_nothing_else_is() {
        let peers = Peers::Set(SetKey::from_bytes([1; 16]));
        let base = mk_body(vec![mk_rule(1, 443, peers)], vec![mk_set(1, 10, 20)]);
        let target = mk_body(vec![mk_rule(1, 443, peers)], vec![mk_set(1, 10, 21)]);
        let changes = policy_changes(&base, &target);
        let [peers] = changes.peers.as_slice() else { panic!("{changes:?}") };
        assert_eq!(peers.rules, ["ingress allow tcp 443"]);
        assert_eq!((peers.added.ranges.as_slice(), peers.removed.count), (["0.0.0.21".to_owned()].as_slice(), 0));
        assert!(changes.rules_added.is_empty() && changes.rules_removed.is_empty() && changes.mode.is_none());
    }

    #[test]
    fn rules_that_come_and_go_are_told_with_their_peers_and_a_mode_with_both_ends() {
        let base = mk_body(vec![mk_rule(1, 443, Peers::Any)], Vec::new());
        let peers = Peers::Set(SetKey::from_bytes([2; 16]));
        let mut target = mk_body(vec![mk_rule(2, 53, peers)], vec![mk_set(2, 1, 1)]);
        target.mode = Mode::Enforced;
        let changes = policy_changes(&base, &target);
        assert_eq!(changes.mode, Some(ModeChange { from: Mode::Visibility, to: Mode::Enforced }));
        assert_eq!(changes.rules_removed[0].service, "tcp 443");
        let added = changes.rules_added[0].peers.as_ref().map(|peers| peers.ranges.clone());
        assert_eq!(added, Some(vec!["0.0.0.1".to_owned()]));
        assert!(changes.peers.is_empty());
        assert!(policy_changes(&target, &target).is_empty());
    }
}
