//! The `ip` commands that wire a lab, namespace by namespace. Pure text.
//!
//! - The scripts of members (hosts, control, outside) run after the bridge's, which makes their links.

use std::net::IpAddr;

use super::{Management, hardware_address};
use crate::record::{Host, Record};

/// The bridge's device in its namespace.
const BRIDGE_DEVICE: &str = "br0";
/// The one link of every other namespace.
const LINK_DEVICE: &str = "eth0";

/// Settings of the bridge's namespace, written before it has devices: it routes, believes every source and asks nobody.
pub const BRIDGE_SETTINGS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
];

/// Settings of every other namespace: addresses are usable at once, routes come from the lab only, and bound sources that are no address of
/// a device (the outside has millions) are fine.
pub const MEMBER_SETTINGS: &[(&str, &str)] = &[
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/arp_announce", "2"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv4/ip_nonlocal_bind", "1"),
    ("net/ipv6/ip_nonlocal_bind", "1"),
    // Answers to probes must not be thinned out: a rate limit would look like a drop.
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
];

fn prefix_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => format!("{v4}/32"),
        IpAddr::V6(v6) => format!("{v6}/128"),
    }
}

fn add_address(address: IpAddr, device: &str) -> String {
    let nodad = if address.is_ipv6() { " nodad" } else { "" };
    format!("address add {} dev {device}{nodad}", prefix_of(address))
}

impl Management {
    fn both(self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }

    fn of_family(self, address: IpAddr) -> IpAddr {
        if address.is_ipv4() { self.v4.into() } else { self.v6.into() }
    }
}

/// Makes the bridge, a link for every member and the routes to them.
#[must_use]
pub fn bridge_script(record: &Record) -> Vec<String> {
    let mut script = vec![
        "link set lo up".to_owned(),
        format!("link add {BRIDGE_DEVICE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"),
        format!("link set {BRIDGE_DEVICE} address {}", hardware_address(&record.bridge)),
        format!("link set {BRIDGE_DEVICE} addrgenmode none"),
        format!("link set {BRIDGE_DEVICE} up"),
    ];
    let blocks = record.blocks;
    script.extend(blocks.bridge().both().map(|address| add_address(address, BRIDGE_DEVICE)));
    attach(&mut script, "outside", &record.outside, blocks.outside());
    for everything in ["0.0.0.0/0", "::/0"] {
        let outside = if everything.contains(':') { blocks.outside().both()[1] } else { blocks.outside().both()[0] };
        script.push(format!("route add {everything} via {outside} dev {BRIDGE_DEVICE} onlink"));
    }
    attach(&mut script, "control", &record.control, blocks.control());
    for (index, host) in (0_u16..).zip(&record.hosts) {
        let management = blocks.host(index);
        attach(&mut script, &format!("host{index}"), &host.namespace, management);
        for address in &host.addresses {
            let (prefix, hop) = (prefix_of(*address), management.of_family(*address));
            script.push(format!("route add {prefix} via {hop} dev {BRIDGE_DEVICE} onlink"));
        }
    }
    script
}

/// One link from the bridge into a namespace, with fixed neighbours on the bridge's side.
fn attach(script: &mut Vec<String>, port: &str, namespace: &str, management: Management) {
    let hardware = hardware_address(namespace);
    script.push(format!("link add {port} type veth peer name {LINK_DEVICE} address {hardware} netns {namespace}"));
    script.push(format!("link set {port} addrgenmode none"));
    script.push(format!("link set {port} master {BRIDGE_DEVICE} up"));
    for address in management.both() {
        script.push(format!("neigh add {address} lladdr {hardware} dev {BRIDGE_DEVICE} nud permanent"));
        script.push(format!("route add {} dev {BRIDGE_DEVICE}", prefix_of(address)));
    }
}

/// Gives a host its addresses; what it sends by itself comes from the first of each family, but to the control plane from management.
#[must_use]
pub fn host_script(record: &Record, host: &Host) -> Vec<String> {
    let mut script = vec!["link set lo up".to_owned(), format!("link set {LINK_DEVICE} up")];
    script.extend(host.addresses.iter().chain(&host.management).map(|address| add_address(*address, LINK_DEVICE)));
    let bridge = record.blocks.bridge();
    let first = |v4: bool| host.addresses.iter().find(|address| address.is_ipv4() == v4);
    for (everything, source) in [("0.0.0.0/0", first(true)), ("::/0", first(false))] {
        if let Some(source) = source {
            let hop = bridge.of_family(*source);
            script.push(format!("route add {everything} via {hop} dev {LINK_DEVICE} onlink src {source}"));
        }
    }
    for source in &host.management {
        let (hop, control) = (bridge.of_family(*source), record.blocks.control().of_family(*source));
        script.push(format!("route add {} via {hop} dev {LINK_DEVICE} onlink src {source}", prefix_of(control)));
    }
    script
}

/// Gives the control plane its addresses and the way to the hosts.
#[must_use]
pub fn control_script(record: &Record) -> Vec<String> {
    let mut script = vec!["link set lo up".to_owned(), format!("link set {LINK_DEVICE} up")];
    let own = record.blocks.control().both();
    script.extend(own.map(|address| add_address(address, LINK_DEVICE)));
    for (everything, source) in ["0.0.0.0/0", "::/0"].into_iter().zip(own) {
        let hop = record.blocks.bridge().of_family(source);
        script.push(format!("route add {everything} via {hop} dev {LINK_DEVICE} onlink src {source}"));
    }
    script
}

/// Makes the outside answer for every address but those of the lab's other namespaces. The routes to these stand in the table of local
/// addresses, since that one is asked first and the longest prefix wins only within a table.
#[must_use]
pub fn outside_script(record: &Record) -> Vec<String> {
    let mut script = vec!["link set lo up".to_owned(), format!("link set {LINK_DEVICE} up")];
    script.extend(record.blocks.outside().both().map(|address| add_address(address, LINK_DEVICE)));
    let bridge = record.blocks.bridge();
    for address in bridge.both() {
        let hardware = hardware_address(&record.bridge);
        script.push(format!("neigh add {address} lladdr {hardware} dev {LINK_DEVICE} nud permanent"));
        script.push(format!("route add {} dev {LINK_DEVICE} table local", prefix_of(address)));
    }
    let of_hosts = record.hosts.iter().flat_map(|host| host.addresses.iter().chain(&host.management).copied());
    for address in of_hosts.chain(record.blocks.control().both()) {
        let (prefix, hop) = (prefix_of(address), bridge.of_family(address));
        script.push(format!("route add {prefix} via {hop} dev {LINK_DEVICE} onlink table local"));
    }
    script.extend(["0.0.0.0/0", "::/0"].map(|everything| format!("route add local {everything} dev lo table local")));
    script
}
