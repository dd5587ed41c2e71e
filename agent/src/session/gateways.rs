//! The gateways that this host knows: by name to dial, by address to keep open.
//!
//! - Kept on disk, so that a restart on an isolated host keeps open what it must dial, before it can ask anybody.
//! - Names come from enrolment and from gateways over a verified session; addresses from the names and from looking them up.
//! - A gateway's list is no policy, so it opens little: TCP to the ports that enrolment named, and to no other.
//! - It closes nothing that is needed: not the gateway of the session that it came by while that lasts, and never those of the enrolment.
//! - A file that cannot be used is told and set aside; enrolment's names are known without it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use holdfast_identity::files;
use holdfast_runtime::Chain;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::kept_file;
use crate::plan::Kept;

const FILE: &str = "gateways.json";
/// Addresses of one name that are kept; a name with more is a fleet's, and its first ones do.
const ADDRESSES_MAX: usize = 16;

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Known {
    /// As a gateway told them last; those of the enrolment before any did.
    names: Vec<String>,
    addresses: BTreeMap<String, BTreeSet<SocketAddr>>,
}

/// Gateways, and where they are kept.
pub(super) struct Gateways {
    file: PathBuf,
    known: Known,
    /// Those that enrolment named.
    enrolled: Vec<String>,
    /// The one that is dialled, or whose session is open.
    current: Option<String>,
    /// Whom to ask for something, each change of it.
    asked: watch::Sender<Vec<String>>,
}

impl Gateways {
    /// What is known from before, else what enrolment told.
    pub(super) fn load(state_folder: &Path, enrolled: &[String]) -> Self {
        let file = state_folder.join(FILE);
        let stored = kept_file::load::<Known>(&file);
        let mut known = stored.filter(|known| !known.names.is_empty()).unwrap_or_default();
        if known.names.is_empty() {
            known.names = enrolled.to_vec();
        }
        let (enrolled, asked) = (enrolled.to_vec(), watch::Sender::new(Vec::new()));
        let mut gateways = Self { file, known, enrolled, current: None, asked };
        // Of one that was current as an agent died.
        gateways.forget_others();
        gateways.asked.send_replace(gateways.all().cloned().collect());
        gateways
    }

    pub(super) fn names(&self) -> &[String] {
        &self.known.names
    }

    /// Those that enrolment named.
    pub(super) fn enrolled(&self) -> &[String] {
        &self.enrolled
    }

    /// Whom to ask what any gateway can answer: those of the newest list first, those of the enrolment behind them.
    pub(super) fn asked(&self) -> watch::Receiver<Vec<String>> {
        self.asked.subscribe()
    }

    /// Another list, as a gateway told it; whether it is another. One without a name that may be dialled changes nothing.
    pub(super) fn rename(&mut self, names: &[String]) -> bool {
        let ports: BTreeSet<u16> = self.enrolled.iter().filter_map(|name| port_of(name)).collect();
        let is_dialled = |name: &&String| port_of(name).is_some_and(|port| ports.contains(&port));
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
        self.known.names = names;
        self.forget_others();
        self.asked.send_replace(self.all().cloned().collect());
        self.save();
        true
    }

    /// Another gateway is dialled, or none any more; whether what is to be kept open is less for it.
    pub(super) fn turn_to(&mut self, gateway: Option<&str>) -> bool {
        let before = self.kept(&Kept::default());
        self.current = gateway.map(str::to_owned);
        if self.forget_others() {
            self.save();
        }
        self.kept(&Kept::default()) != before
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
        let literal = self.all().chain(&self.current).filter_map(|name| name.parse().ok());
        kept.gateways.extend(literal.chain(self.known.addresses.values().flatten().copied()));
        kept.gateways.sort_unstable();
        kept.gateways.dedup();
        kept
    }

    /// Those of the newest list, and those of the enrolment that are not in it.
    fn all(&self) -> impl Iterator<Item = &String> {
        self.known.names.iter().chain(self.enrolled.iter().filter(|name| !self.known.names.contains(name)))
    }

    /// Forgets the addresses of all but those that may be dialled and the current one; whether there were any.
    fn forget_others(&mut self) -> bool {
        let needed: BTreeSet<String> = self.all().chain(&self.current).cloned().collect();
        let before = self.known.addresses.len();
        self.known.addresses.retain(|name, _| needed.contains(name));
        self.known.addresses.len() != before
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

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn kept(gateways: &Gateways) -> Vec<SocketAddr> {
        gateways.kept(&Kept::default()).gateways
    }

    #[test]
    fn what_was_learnt_is_kept_open_after_a_restart_and_forgotten_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let enrolled = ["192.0.2.1:7443".to_owned()];
        let mut gateways = Gateways::load(folder.path(), &enrolled);
        let found = address("192.0.2.9:7443");
        assert!(gateways.rename(&["gw.example:7443".to_owned()]) && !gateways.rename(&[]));
        assert!(gateways.learn("gw.example:7443", &[found]) && !gateways.learn("gw.example:7443", &[found]));
        assert!(!gateways.learn("192.0.2.1:7443", &[address("192.0.2.1:7443")]));
        assert_eq!(kept(&Gateways::load(folder.path(), &enrolled)), [address("192.0.2.1:7443"), found]);
        assert!(gateways.rename(&["192.0.2.2:7443".to_owned()]));
        let both = ["192.0.2.1:7443", "192.0.2.2:7443"].map(address);
        assert_eq!(kept(&Gateways::load(folder.path(), &enrolled)), both);
        // A list is no way to open anything else.
        let list = ["192.0.2.3:7443".to_owned(), "203.0.113.140:5432".to_owned(), "203.0.113.141".to_owned()];
        assert!(gateways.rename(&list) && !gateways.rename(&list[1..]));
        assert_eq!(gateways.names(), &list[..1]);
    }

    #[test]
    fn a_list_closes_neither_the_way_that_it_came_by_nor_those_of_the_enrolment() {
        let folder = tempfile::tempdir().expect("a folder");
        let enrolled = ["gw-0.example:7443".to_owned()];
        let mut gateways = Gateways::load(folder.path(), &enrolled);
        assert!(gateways.learn(&enrolled[0], &[address("192.0.2.10:7443")]));
        for (nth, name) in ["gw-1.example:7443", "192.0.2.2:7443", "gw-3.example:7443"].into_iter().enumerate() {
            gateways.rename(&[name.to_owned()]);
            gateways.turn_to(Some(name));
            let found = address(&format!("192.0.2.{}:7443", [1, 2, 3][nth]));
            gateways.learn(name, &[found]);
            assert!(gateways.rename(&["gw-9.example:7443".to_owned()]), "{name}");
            assert_eq!(kept(&gateways), [found, address("192.0.2.10:7443")], "{name}: not looked up yet");
            // The agent dies meanwhile: its next one has not dialled anybody.
            assert_eq!(kept(&Gateways::load(folder.path(), &enrolled)), [address("192.0.2.10:7443")], "{name}");
            gateways.turn_to(None);
            assert_eq!(kept(&gateways), [address("192.0.2.10:7443")], "{name}: its session is over");
        }
        assert_eq!(*gateways.asked().borrow(), ["gw-9.example:7443", "gw-0.example:7443"]);
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_the_gateways_of_the_enrolment_are_known_without_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let enrolled = ["192.0.2.1:7443".to_owned()];
        for damaged in ["", "{\"names\": [\"192.0.2.2:7443\"", "[]"] {
            std::fs::write(folder.path().join(FILE), damaged).expect("written");
            let mut gateways = Gateways::load(folder.path(), &enrolled);
            assert_eq!(gateways.names(), enrolled);
            let aside = folder.path().join(format!("{FILE}.unusable"));
            assert_eq!(std::fs::read_to_string(aside).expect("it is there"), damaged);
            assert!(!folder.path().join(FILE).exists());
            assert!(gateways.rename(&["192.0.2.7:7443".to_owned()]));
            assert_eq!(Gateways::load(folder.path(), &enrolled).names(), ["192.0.2.7:7443"]);
        }
    }
}
