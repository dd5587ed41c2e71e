//! Whether this host passes packets on for others, and whether what passes is held to its policy.
//!
//! - It is asked of the kernel each time: forwarding is switched on by whatever starts a container, long after the agent.
//! - What cannot be read counts as forwarding: nothing is called covered that was not seen to be.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What of forwarded packets is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// The policy enforces nothing, so nothing is asked of what passes either.
    #[default]
    NotAsked,
    /// This host passes nothing on.
    Nothing,
    /// What passes is held to the policy.
    Enforced,
    /// Something may pass that no rule of ours sees: no uplink is declared, or not the one that leads out.
    NotEnforced,
}

impl Forwarded {
    /// What is so now, in this thread's network namespace.
    pub(super) fn observe(is_enforcing: bool, uplinks: &[String]) -> Self {
        if !is_enforcing {
            return Self::NotAsked;
        }
        let ways_out = default_route_interfaces();
        Self::of(is_forwarding(Path::new("/proc/sys/net")), uplinks, ways_out.as_ref().ok())
    }

    fn of(is_forwarding: bool, uplinks: &[String], ways_out: Option<&BTreeSet<String>>) -> Self {
        let leads_out_unseen = |ways: &BTreeSet<String>| ways.iter().any(|way| !uplinks.contains(way));
        let is_covered = !uplinks.is_empty() && !ways_out.is_none_or(leads_out_unseen);
        match (is_covered, is_forwarding) {
            (true, _) => Self::Enforced,
            (false, true) => Self::NotEnforced,
            (false, false) => Self::Nothing,
        }
    }
}

/// Whether any interface forwards in either family. IPv6 asks one switch for all, and since Linux 6.17 one of each interface besides.
fn is_forwarding(switches: &Path) -> bool {
    let any = |folder: &str, switch: &str| {
        let Ok(interfaces) = fs::read_dir(switches.join(folder)) else {
            // A kernel without that family has no folder for it.
            return switches.join(folder).exists();
        };
        let mut interfaces = interfaces.flatten().filter(|interface| interface.file_name() != "default");
        interfaces.any(|interface| is_on(&interface.path().join(switch)))
    };
    any("ipv4/conf", "forwarding")
        || is_on(&switches.join("ipv6/conf/all/forwarding"))
        || any("ipv6/conf", "force_forwarding")
}

fn is_on(switch: &Path) -> bool {
    match fs::read_to_string(switch) {
        Ok(text) => text.trim() != "0",
        // An interface that just went, or a kernel that does not have the switch.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The interfaces that have a default route of either family: those lead out, whatever else does.
pub(crate) fn default_route_interfaces() -> io::Result<BTreeSet<String>> {
    let lists = Path::new("/proc/thread-self/net");
    let mut found = default_routes_v4(&fs::read_to_string(lists.join("route"))?);
    match fs::read_to_string(lists.join("ipv6_route")) {
        Ok(list) => found.extend(default_routes_v6(&list)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask …`, numbers in hexadecimal, a heading before them.
fn default_routes_v4(list: &str) -> BTreeSet<String> {
    let default = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        words.first().filter(|_| is_default).map(|name| (*name).to_owned())
    };
    list.lines().skip(1).filter_map(default).collect()
}

/// `destination length source length next-hop metric references uses flags interface`; the kernel's own rejecting route is at `lo`.
fn default_routes_v6(list: &str) -> BTreeSet<String> {
    let default = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default =
            words.first().is_some_and(|to| to.bytes().all(|digit| digit == b'0')) && words.get(1) == Some(&"00");
        words.get(9).filter(|name| is_default && **name != "lo").map(|name| (*name).to_owned())
    };
    list.lines().filter_map(default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uplinks(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_passes_is_enforced_only_where_every_way_out_is_an_uplink() {
        let ways = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let of = |is_forwarding, links: &[&str], out: Option<&[&str]>| {
            Forwarded::of(is_forwarding, &uplinks(links), out.map(ways).as_ref())
        };
        assert_eq!(of(false, &[], Some(&["eth0"])), Forwarded::Nothing);
        assert_eq!(of(true, &[], Some(&["eth0"])), Forwarded::NotEnforced);
        assert_eq!(of(true, &[], Some(&[])), Forwarded::NotEnforced, "also where nothing leads out");
        assert_eq!(of(true, &["eth0"], Some(&["eth0"])), Forwarded::Enforced);
        assert_eq!(of(true, &["eth0", "eth1"], Some(&["eth0"])), Forwarded::Enforced);
        assert_eq!(of(true, &["eth0"], Some(&["eth0", "wan1"])), Forwarded::NotEnforced);
        assert_eq!(of(true, &["eth0"], None), Forwarded::NotEnforced, "what cannot be read is not covered");
    }

    #[test]
    fn default_routes_are_read_in_both_families() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n\
                  eth1\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(default_routes_v4(v4).into_iter().collect::<Vec<_>>(), ["eth0"]);
        let zero = "0".repeat(32);
        let line = |to: &str, length: &str, name: &str| {
            format!("{to} {length} {zero} 00 {zero} 00000400 00000001 00000000 00000003     {name}\n")
        };
        let v6 = line(&zero, "00", "eth2")
            + &line(&zero, "00", "lo")
            + &line(&format!("fd77{}", "0".repeat(28)), "40", "eth1");
        assert_eq!(default_routes_v6(&v6).into_iter().collect::<Vec<_>>(), ["eth2"]);
    }

    #[test]
    fn forwarding_is_on_where_any_switch_is_and_what_cannot_be_read_counts_as_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it is ours");
            fs::write(path, text).expect("it is ours");
        };
        let is_on = || is_forwarding(folder.path());
        assert!(!is_on(), "no family at all");
        put("ipv4/conf/all/forwarding", "0\n");
        put("ipv4/conf/default/forwarding", "1\n");
        put("ipv6/conf/all/forwarding", "0\n");
        assert!(!is_on(), "the default is of interfaces to come");
        put("ipv4/conf/eth0/forwarding", "1\n");
        assert!(is_on());
        put("ipv4/conf/eth0/forwarding", "0\n");
        put("ipv6/conf/eth0/force_forwarding", "1\n");
        assert!(is_on());
        put("ipv6/conf/eth0/force_forwarding", "0\n");
        assert!(!is_on());
        fs::remove_file(folder.path().join("ipv6/conf/all/forwarding")).expect("it is ours");
        fs::create_dir(folder.path().join("ipv6/conf/all/forwarding")).expect("it is ours");
        assert!(is_on(), "it cannot be read");
    }
}
