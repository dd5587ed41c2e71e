//! The gateways that this host knows: by name to dial, by address to keep open.
//!
//! - Kept on disk, so that a restart on an isolated host keeps open what it must dial, before it can ask anybody.
//! - Names come from enrolment and from gateways over a verified session; addresses from the names and from looking them up.
//! - A gateway's list is no policy, so it opens little: TCP to the ports that enrolment named, and to no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use holdfast_identity::files;
use holdfast_runtime::Chain;
use serde::{Deserialize, Serialize};

use crate::plan::Kept;

const FILE: &str = "gateways.json";
/// Addresses of one name that are kept; a name with more is a fleet's, and its first ones do.
const ADDRESSES_MAX: usize = 16;

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Known {
    names: Vec<String>,
    addresses: BTreeMap<String, BTreeSet<SocketAddr>>,
}

/// Gateways, and where they are kept.
pub(super) struct Gateways {
    file: PathBuf,
    known: Known,
    /// Those that enrolment named.
    ports: BTreeSet<u16>,
}

impl Gateways {
    /// What is known from before, else what enrolment told.
    pub(super) fn load(state_folder: &Path, enrolled: &[String]) -> Self {
        let file = state_folder.join(FILE);
        let stored = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Known>(&text).ok());
        let mut known = stored.filter(|known| !known.names.is_empty()).unwrap_or_default();
        if known.names.is_empty() {
            known.names = enrolled.to_vec();
        }
        Self { file, known, ports: enrolled.iter().filter_map(|name| port_of(name)).collect() }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.known.names
    }

    /// Another list, as a gateway told it; whether it is another. One without a name that may be dialled changes nothing.
    pub(super) fn rename(&mut self, names: &[String]) -> bool {
        let is_dialled = |name: &&String| port_of(name).is_some_and(|port| self.ports.contains(&port));
        let (names, foreign): (Vec<&String>, Vec<&String>) = names.iter().partition(is_dialled);
        if !foreign.is_empty() {
            tracing::warn!(
                ?foreign,
                "a gateway names others on ports that this host was not enrolled with; they are passed over"
            );
        }
        let names: Vec<String> = names.into_iter().cloned().collect();
        if names.is_empty() || names == self.known.names {
            return false;
        }
        names.clone_into(&mut self.known.names);
        self.known.addresses.retain(|name, _| names.contains(name));
        self.save();
        true
    }

    /// Addresses that a name was found to have; whether one is new.
    pub(super) fn learn(&mut self, name: &str, found: &[SocketAddr]) -> bool {
        let found: BTreeSet<SocketAddr> = found.iter().copied().take(ADDRESSES_MAX).collect();
        if name.parse::<SocketAddr>().is_ok() || self.known.addresses.get(name) == Some(&found) {
            return false;
        }
        self.known.addresses.insert(name.to_owned(), found);
        self.save();
        true
    }

    /// What is kept open with these gateways.
    pub(super) fn kept(&self, base: &Kept) -> Kept {
        let mut kept = base.clone();
        let literal = self.known.names.iter().filter_map(|name| name.parse().ok());
        kept.gateways.extend(literal.chain(self.known.addresses.values().flatten().copied()));
        kept.gateways.sort_unstable();
        kept.gateways.dedup();
        kept
    }

    fn save(&self) {
        let saved = serde_json::to_vec_pretty(&self.known).map(|text| files::write_secret(&self.file, &text));
        match saved {
            Ok(Ok(())) => {}
            // A restart then begins with what it had; dialling finds the rest again.
            Ok(Err(error)) => tracing::warn!(error = %Chain(&error), "gateways are not kept on disk"),
            Err(error) => tracing::warn!(error = %Chain(&error), "gateways are not kept on disk"),
        }
    }
}

fn port_of(name: &str) -> Option<u16> {
    name.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_kept_open_after_a_restart_and_forgotten_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let enrolled = ["gw.example:7443".to_owned(), "192.0.2.1:7443".to_owned()];
        let mut gateways = Gateways::load(folder.path(), &enrolled);
        let found: SocketAddr = "192.0.2.9:7443".parse().expect("an address");
        assert!(gateways.learn("gw.example:7443", &[found]) && !gateways.learn("gw.example:7443", &[found]));
        assert!(!gateways.learn("192.0.2.1:7443", &["192.0.2.1:7443".parse().expect("an address")]));
        let again = Gateways::load(folder.path(), &enrolled);
        assert_eq!(again.kept(&Kept::default()).gateways.len(), 2);
        assert!(gateways.rename(&["192.0.2.2:7443".to_owned()]) && !gateways.rename(&[]));
        let after = Gateways::load(folder.path(), &enrolled).kept(&Kept::default()).gateways;
        assert_eq!(after, ["192.0.2.2:7443".parse().expect("an address")]);
        // A list is no way to open anything else.
        let list = ["192.0.2.3:7443".to_owned(), "203.0.113.140:5432".to_owned(), "203.0.113.141".to_owned()];
        assert!(gateways.rename(&list) && !gateways.rename(&list[1..]));
        assert_eq!(gateways.names(), &list[..1]);
    }
}
