//! Large rulesets: batches of many pages, sets of many thousands, more rules than a socket holds answers for.

use std::time::Instant;

use holdfast_agent::engine::{Attempt, Depth, Kernel};
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::{Kept, layout};
use holdfast_model::address::Interval;
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{Body, Chain, Mode, Peers, Set};

use crate::support::bodies::{allow, set, set_key, tcp};
use crate::support::namespace::Namespace;
use crate::support::output_of;

fn with_peers(v4: IntervalSet<u32>) -> Body {
    Body {
        mode: Mode::Enforced,
        ingress: Chain { isolated: true, rules: vec![allow(1, tcp(&[(80, 80)]), Peers::Set(set_key(1)))] },
        egress: Chain::default(),
        sets: vec![Set { key: set_key(1), v4, v6: IntervalSet::empty() }],
    }
}

#[test]
fn fifty_thousand_prefixes_are_held_and_one_more_costs_one() {
    Namespace::new().run(|| {
        // Every other /28 from 10.0.0.0 on.
        let prefix = |n: u32| Interval::new(0x0a00_0000 + n * 32, 0x0a00_000f + n * 32).unwrap();
        let peers: IntervalSet<u32> = (0..50_000).map(prefix).collect();
        let more: IntervalSet<u32> = (0..50_001).map(prefix).collect();
        let (base, target) =
            (layout(&with_peers(peers), &Kept::default()), layout(&with_peers(more), &Kept::default()));
        let mut kernel = Netfilter::open(TableOwner::Off).unwrap();
        let attempt = kernel.apply(None, &base, Depth::Whole);
        assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
        let started = Instant::now();
        let attempt = kernel.apply(Some(&base), &target, Depth::Changed);
        let took = started.elapsed();
        assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
        let started = Instant::now();
        assert_eq!(kernel.check(&target).unwrap(), None);
        let whole = started.elapsed();
        assert!(
            took < whole / 2,
            "one more is read by its key, which took {took:?}, and not whole, which took {whole:?}"
        );
        let listed = output_of("nft", &["list", "set", "inet", "holdfast", &format!("s4_{}", set_key(1))]);
        assert_eq!(listed.matches("/28").count(), 50_001);
    });
}

#[test]
fn two_thousand_rules_with_sets_of_their_own_are_held_and_told_applied_once() {
    Namespace::new().run(|| {
        let count: u16 = 1_000;
        let mut body = Body { mode: Mode::Enforced, ..Body::default() };
        for n in 0..count {
            let mut peers = set(0, &["192.0.2.0/24", "2001:db8::/32"]);
            let [high, low] = n.to_be_bytes();
            let key = holdfast_model::policy::SetKey::from_bytes([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]);
            peers.key = key;
            body.sets.push(peers);
            body.ingress.rules.push(allow(n, tcp(&[(n, n)]), Peers::Set(key)));
        }
        let ruleset = layout(&body.canonical(), &Kept::default());
        let mut kernel = Netfilter::open(TableOwner::Off).unwrap();
        let attempt = kernel.apply(None, &ruleset, Depth::Whole);
        assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
        assert_eq!(kernel.check(&ruleset).unwrap(), None);
        let in_chain = kernel.rules().unwrap().iter().filter(|rule| rule.chain == "in").count();
        assert!(in_chain > 2 * usize::from(count));
    });
}
