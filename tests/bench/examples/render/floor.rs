//! The floor of a render: an inverted index, an encoding and a SHA-256 a host, and the gate that finds out what changed; plain data, nothing of ours.

use std::collections::HashMap;
use std::hint::black_box;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::fleet::{RULES_PER_APP, address, admitted, apps};

/// How many rules the snapshots of the gate have.
const GATE_RULES: u16 = 60;
const GATE_SETS: u16 = 12;
const GATE_PEERS: u8 = 20;

/// What one host gets.
#[derive(Clone, Serialize)]
struct Snapshot {
    rules: Vec<(u16, u8, u16)>,
    sets: Vec<Vec<[u8; 4]>>,
}

/// The fleet and what the gate compares.
pub(crate) struct Floor {
    hosts: u32,
    snapshots: Vec<(Snapshot, [u8; 32])>,
}

impl Floor {
    pub(crate) fn new(hosts: u32) -> Self {
        let snapshot = |n: u32| {
            let [_, _, high, low] = n.to_be_bytes();
            let rules = (0..GATE_RULES).map(|rule| (1_000 + rule, 1, rule % GATE_SETS)).collect();
            let set = |set: u16| (0..GATE_PEERS).map(|peer| [set.to_le_bytes()[0], high, low, peer]).collect();
            Snapshot { rules, sets: (0..GATE_SETS).map(set).collect() }
        };
        let snapshots = (0..hosts).map(|n| {
            let snapshot = snapshot(n);
            let digest = digest(&snapshot);
            (snapshot, digest)
        });
        Self { hosts, snapshots: snapshots.collect() }
    }

    /// Every host by inverted index, encoded and digested.
    pub(crate) fn render(&self) {
        let apps = apps(self.hosts);
        let mut members: HashMap<u32, Vec<[u8; 4]>> = HashMap::new();
        (0..self.hosts).for_each(|n| members.entry(n % apps).or_default().push(address(n).to_be_bytes()));
        let mut rules: HashMap<u32, Vec<u32>> = HashMap::new();
        for app in 0..apps {
            (0..RULES_PER_APP).for_each(|rule| rules.entry(app).or_default().push(admitted(app, rule, self.hosts)));
        }
        for host in 0..self.hosts {
            let mut snapshot = Snapshot { rules: Vec::new(), sets: Vec::new() };
            for (place, app) in (0_u16..).zip(&rules[&(host % apps)]) {
                snapshot.rules.push((8_000, 1, place));
                snapshot.sets.push(members[app].clone());
            }
            black_box(digest(&snapshot));
        }
    }

    /// Every host's snapshot copied, encoded, digested and compared with what is known; how many are new, which is none.
    pub(crate) fn gate(&self) -> usize {
        self.snapshots.iter().filter(|(snapshot, known)| digest(&black_box(snapshot.clone())) != *known).count()
    }
}

fn digest(snapshot: &Snapshot) -> [u8; 32] {
    Sha256::digest(postcard::to_allocvec(snapshot).expect("plain data has an encoding")).into()
}
