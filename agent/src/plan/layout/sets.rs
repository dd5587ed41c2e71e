//! The sets of a ruleset while it is laid out.
//!
//! - A set of the body keeps its name for its life, one kernel set per family.
//! - Lists of ports and ICMP kinds are named by their content: equal lists share a set, and such a set is never edited.

use std::collections::BTreeMap;

use holdfast_model::address::Family;
use holdfast_model::policy::{PortRange, SetKey};

use crate::plan::matching::Ports;
use crate::plan::set::Members;

/// The kernel's name for one family of a set of the body.
pub(super) fn set_name(key: SetKey, family: Family) -> String {
    match family {
        Family::V4 => format!("s4_{key}"),
        Family::V6 => format!("s6_{key}"),
    }
}

/// Sets by name.
#[derive(Default)]
pub(super) struct Sets(BTreeMap<String, Members>);

impl Sets {
    pub(super) fn put(&mut self, name: &str, members: Members) {
        self.0.insert(name.to_owned(), members);
    }

    pub(super) fn put_pair(&mut self, v4: &str, v6: &str, pair: (Members, Members)) {
        self.put(v4, pair.0);
        self.put(v6, pair.1);
    }

    /// Ranges as a rule can ask for them: in place if there is one, else by a set.
    pub(super) fn ports(&mut self, ranges: &[PortRange]) -> Ports {
        if let [range] = ranges {
            return Ports::Range(*range);
        }
        let mut hasher = blake3::Hasher::new();
        for range in ranges {
            hasher.update(&range.first.to_be_bytes()).update(&range.last.to_be_bytes());
        }
        // 64 bits of a hash keep apart the few hundred lists of one host.
        let name = format!("ports_{}", hasher.finalize().to_hex().chars().take(16).collect::<String>());
        self.0.entry(name.clone()).or_insert_with(|| Members::Ports(ranges.to_vec()));
        Ports::Set(name)
    }

    pub(super) fn into_map(self) -> BTreeMap<String, Members> {
        self.0
    }
}
