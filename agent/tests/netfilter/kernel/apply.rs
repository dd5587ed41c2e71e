//! The ruleset in the kernel is the planned one, by our own read-back and by `nft`.

use holdfast_agent::engine::{Attempt, Depth, Kernel};
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::{Kept, Ruleset, layout};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use holdfast_model::policy::{Body, Chain, Mode, Peers};

use crate::support::bodies::{allow, kept, rich, set, set_key, tcp};
use crate::support::namespace::Namespace;
use crate::support::{listed, load_nft};

fn apply(ruleset: &Ruleset) -> Netfilter {
    let mut kernel = Netfilter::open(TableOwner::Off).unwrap();
    let attempt = kernel.apply(None, ruleset, Depth::Whole);
    assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
    kernel
}

#[test]
fn every_kind_of_rule_reads_back_as_planned_and_lists_as_its_text_loads() {
    for mode in [Mode::Enforced, Mode::Simulation, Mode::Visibility] {
        for kept in [kept(), Kept::default()] {
            let ruleset = layout(&rich(mode), &kept);
            let text = ruleset.to_string();
            let ours = Namespace::new().run(move || {
                apply(&ruleset);
                listed()
            });
            let theirs = Namespace::new().run(move || {
                load_nft(&text);
                listed()
            });
            assert_eq!(ours, theirs);
        }
    }
}

#[test]
fn a_packet_of_a_peer_that_is_named_passes_and_one_of_a_peer_that_is_not_is_dropped() {
    let (host, peer) = Namespace::pair();
    let body = |prefix: &str| Body {
        mode: Mode::Enforced,
        ingress: Chain { isolated: true, rules: vec![allow(1, tcp(&[(80, 80)]), Peers::Set(set_key(1)))] },
        egress: Chain::default(),
        sets: vec![set(1, &[prefix])],
    };
    let (named, unnamed) =
        (layout(&body("10.77.0.2/32"), &Kept::default()), layout(&body("10.77.0.3/32"), &Kept::default()));
    let mut listener = Some(host.run(|| TcpListener::bind("10.77.0.1:80").unwrap()));
    let connects = |namespace: &Namespace| {
        namespace
            .run(|| TcpStream::connect_timeout(&"10.77.0.1:80".parse().unwrap(), Duration::from_millis(300)).is_ok())
    };
    host.run(move || drop(apply(&named)));
    assert!(connects(&peer));
    host.run(move || drop(apply(&unnamed)));
    assert!(!connects(&peer));
    drop(listener.take());
}
