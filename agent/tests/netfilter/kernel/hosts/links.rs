//! What a link needs: neighbours, listeners, loopback.

use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Instant;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Ends, FAMILIES, PATIENCE, at, shut_but_for};
use crate::kernel::flows::{Applied, Tcp, udp_passes};
use crate::support::bodies::tcp;
use crate::support::namespace::Namespace;
use crate::support::output_of;

const MLD_QUERY: u8 = 130;
const MLD2_REPORT: u8 = 143;

#[test]
fn neighbours_are_found_again_after_a_flush_on_both_ends() {
    let web = [tcp(&[(80, 80)])];
    let ends = Ends::new(&web, &web);
    for (server, client) in FAMILIES {
        let mut old =
            Tcp::open(&ends.server.namespace, &ends.client.namespace, client, at(server, 80)).expect("allowed");
        assert_eq!(old.passes(), (true, true));
        for end in [&ends.client, &ends.server] {
            end.namespace.run(|| output_of("ip", &["neigh", "flush", "all"]));
        }
        assert_eq!(old.passes(), (true, true), "{server}");
        drop(old);
        ends.client.namespace.run(|| output_of("ip", &["neigh", "flush", "all"]));
        let mut new =
            Tcp::open(&ends.server.namespace, &ends.client.namespace, client, at(server, 80)).expect("allowed");
        assert_eq!(new.passes(), (true, true), "{server}");
    }
}

/// A raw ICMPv6 socket on `eth0`; the kernel makes its checksums.
fn icmp6(namespace: &Namespace) -> Socket {
    namespace.run(|| {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        socket.bind_device(Some(b"eth0")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    })
}

fn index_of_eth0(end: &Applied) -> u32 {
    end.namespace.run(|| nix::net::if_::if_nametoindex("eth0").unwrap())
}

/// Waits for a report that names a group.
fn hears_report_of(socket: &Socket, group: Ipv6Addr) -> bool {
    let (deadline, mut bytes) = (Instant::now() + PATIENCE, [0; 1500]);
    while Instant::now() < deadline {
        let Ok(length) = (&mut &*socket).read(&mut bytes) else { return false };
        let message = &bytes[..length];
        if message.first() == Some(&MLD2_REPORT) && message.windows(16).any(|window| window == group.octets()) {
            return true;
        }
    }
    false
}

/// How many questions for its groups a host's kernel has heard.
fn questions_heard(host: &Applied) -> u32 {
    let counters = host.namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap());
    let line = counters.lines().find(|line| line.starts_with("Icmp6InGroupMembQueries")).unwrap();
    line.split_whitespace().next_back().unwrap().parse().unwrap()
}

#[test]
fn a_shut_host_tells_routers_which_groups_it_listens_to_and_hears_when_they_ask() {
    let ends = Ends::new(&[], &[]);
    let group: Ipv6Addr = "ff02::1234".parse().unwrap();
    let (router, index) = (icmp6(&ends.server.namespace), index_of_eth0(&ends.server));
    router.join_multicast_v6(&"ff02::16".parse().unwrap(), index).unwrap();
    let listener = icmp6(&ends.client.namespace);
    listener.join_multicast_v6(&group, index_of_eth0(&ends.client)).unwrap();
    assert!(hears_report_of(&router, group));
    let mut query = [0; 24];
    query[0] = MLD_QUERY;
    let everybody = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
    router.send_to(&query, &SockAddr::from(SocketAddr::from(everybody))).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while questions_heard(&ends.client) == 0 {
        assert!(Instant::now() < deadline, "the question was not heard within {PATIENCE:?}");
    }
}

#[test]
fn a_host_that_is_shut_reaches_itself_by_loopback_and_by_its_own_addresses() {
    let (host, _far) = Namespace::pair();
    let host = Applied::new(host, &shut_but_for(&[], &[]));
    for own in ["127.0.0.1", "127.1.2.3", "::1", "10.77.0.1", "fd77::1"] {
        let mut open = Tcp::open(&host.namespace, &host.namespace, own, at(own, 80)).expect(own);
        assert_eq!(open.passes(), (true, true), "{own}");
        let server = super::bound(&host.namespace, at(own, 53));
        let client = super::asking(&host.namespace, own, at(own, 53));
        assert_eq!(udp_passes(&server, &client), (true, true), "{own}");
    }
}
