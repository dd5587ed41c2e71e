//! What the tree of nodes holds to: small changes, missing and altered nodes, forged chunks.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::nodes::{Root, encode_branch, encode_leaf, encode_root, encode_rule};
use super::{AssembleError, assemble, tree_of};
use crate::address::Interval;
use crate::digest::Digest;
use crate::interval_set::IntervalSet;
use crate::policy::{Action, Body, Chain, Mode, Peers, Rule, RuleKey, Set, SetKey, Statement};

#[test]
fn an_element_more_in_a_large_set_makes_new_nodes_on_one_path_only() {
    let body = mk_body((0..60_000).map(|n| n * 70_000));
    let more = mk_body((0..60_000).map(|n| n * 70_000).chain([5]));
    let (_, stored) = tree_of(&body, |_| false);
    let (root, fresh) = tree_of(&more, |digest| stored.contains_key(&digest));
    assert!(stored.len() > 250, "{} nodes", stored.len());
    assert!(fresh.len() <= 5, "{} new nodes for one element", fresh.len());
    let fetch = |digest| fresh.get(&digest).or_else(|| stored.get(&digest)).cloned();
    assert_eq!(assemble(root, fetch), Ok(more));
}

#[test]
fn a_missing_node_and_an_altered_one_are_named() {
    let (root, nodes) = tree_of(&mk_body((0..600).map(|n| n * 7)), |_| false);
    for at in nodes.keys() {
        let missing = assemble(root, |digest| nodes.get(&digest).filter(|_| digest != *at).cloned());
        assert_eq!(missing, Err(AssembleError::Missing(*at)));
        let altered = assemble(root, |digest| {
            let mut bytes = nodes.get(&digest).cloned()?;
            if digest == *at {
                bytes.push(0);
            }
            Some(bytes)
        });
        assert_eq!(altered, Err(AssembleError::Altered(*at)));
    }
}

#[test]
fn forged_chunks_that_name_one_chunk_many_times_are_refused_after_a_short_walk() {
    for members in [vec![], vec![Interval::single(7_u32)]] {
        let mut nodes = BTreeMap::new();
        let mut put = |bytes: Vec<u8>| {
            let digest = Digest::of(&bytes);
            nodes.insert(digest, bytes);
            digest
        };
        let mut chunk = put(encode_leaf(&members));
        for _ in 0..31 {
            chunk = put(encode_branch::<u32>(&[Some(chunk); 16]));
        }
        let rule = put(encode_rule(&mk_rule()));
        let v6 = put(encode_leaf::<u128>(&[]));
        let chains = [(true, vec![rule]), (false, vec![])];
        let root = put(encode_root(&Root { mode: Mode::Enforced, chains, sets: vec![(mk_key(), chunk, v6)] }));

        let fetched = Cell::new(0);
        let refused = assemble(root, |digest| {
            fetched.set(fetched.get() + 1);
            nodes.get(&digest).cloned()
        });
        assert!(matches!(refused, Err(AssembleError::Chunks(_))), "{refused:?}");
        assert!(fetched.get() < 100, "{} nodes read", fetched.get());
    }
}

fn mk_key() -> SetKey {
    SetKey::from_bytes([1; 16])
}

fn mk_rule() -> Rule {
    Rule {
        key: RuleKey::from_bytes([1; 16]),
        order: 0,
        action: Action::Allow,
        statement: Statement::Any,
        peers: Peers::Set(mk_key()),
        local: None,
        log: false,
    }
}

fn mk_body(members: impl Iterator<Item = u32>) -> Body {
    let set = Set { key: mk_key(), v4: members.map(Interval::single).collect(), v6: IntervalSet::empty() };
    Body { ingress: Chain { isolated: true, rules: vec![mk_rule()] }, sets: vec![set], ..Body::default() }
}
