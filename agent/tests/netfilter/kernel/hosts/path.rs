//! A path with a narrow link in it: its routers' errors reach the sender, which then sends less at a time.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use super::{Ends, PATIENCE, asking, at, bound};
use crate::kernel::flows::{Applied, connect};
use crate::support::bodies::{tcp, udp};
use crate::support::namespace::Namespace;
use crate::support::output_of;

/// Below Ethernet's 1,500 bytes and above the 1,280 that IPv6 asks of every link.
const NARROW_MTU: &str = "1300";
const BULK_BYTES: usize = 200_000;
/// Fits the first link and not the narrow one.
const DATAGRAM_BYTES: usize = 1_400;

const CLIENTS: [&str; 2] = ["10.71.0.2", "fd71::2"];
const SERVERS: [&str; 2] = ["10.73.0.2", "fd73::2"];

/// Two enforcing hosts, and between them two routers with a narrow link.
fn behind_a_narrow_link() -> (Ends, (Namespace, Namespace)) {
    let (client, near, far, server) = (Namespace::new(), Namespace::new(), Namespace::new(), Namespace::new());
    client.cable("eth0", &near, "eth0");
    near.cable("narrow0", &far, "narrow0");
    far.cable("eth0", &server, "eth0");
    client.address("eth0", &["10.71.0.2/24", "fd71::2/64"]);
    near.address("eth0", &["10.71.0.1/24", "fd71::1/64"]);
    near.address("narrow0", &["10.72.0.1/24", "fd72::1/64"]);
    far.address("narrow0", &["10.72.0.2/24", "fd72::2/64"]);
    far.address("eth0", &["10.73.0.1/24", "fd73::1/64"]);
    server.address("eth0", &["10.73.0.2/24", "fd73::2/64"]);
    for (router, networks, by) in [
        (&near, ["10.73.0.0/24", "fd73::/64"], ["10.72.0.2", "fd72::2"]),
        (&far, ["10.71.0.0/24", "fd71::/64"], ["10.72.0.1", "fd72::1"]),
    ] {
        router.forward();
        router.run(|| output_of("ip", &["link", "set", "narrow0", "mtu", NARROW_MTU]));
        (0..2).for_each(|family| router.route(networks[family], by[family]));
    }
    for (namespace, interface) in
        [(&client, "eth0"), (&near, "eth0"), (&near, "narrow0"), (&far, "narrow0"), (&far, "eth0"), (&server, "eth0")]
    {
        namespace.wait_for(interface);
    }
    for (host, by) in [(&client, ["10.71.0.1", "fd71::1"]), (&server, ["10.73.0.1", "fd73::1"])] {
        by.into_iter().for_each(|by| host.route("default", by));
    }
    let may = [tcp(&[(80, 80)]), udp(&[(53, 53)])];
    (Ends::enforce(server, client, &may, &may), (near, far))
}

/// Whether a host has learnt that the path to an address is narrow.
fn has_learnt(host: &Applied, to: &'static str) -> bool {
    host.namespace.run(move || output_of("ip", &["route", "get", to])).contains(&format!("mtu {NARROW_MTU}"))
}

fn wait_at_most(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn tcp_in_bulk_passes_a_narrow_link_both_ways() {
    let (ends, _routers) = behind_a_narrow_link();
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        let listener = ends.server.namespace.run(move || TcpListener::bind(at(server, 80)).unwrap());
        let mut asker = ends.client.namespace.run(move || connect(client, at(server, 80)).unwrap());
        let (mut answerer, _) = listener.accept().unwrap();
        [&asker, &answerer].into_iter().for_each(wait_at_most);
        let echo = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            answerer.read_to_end(&mut bytes).unwrap();
            answerer.write_all(&bytes).unwrap();
        });
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(BULK_BYTES).collect();
        asker.write_all(&sent).unwrap();
        asker.shutdown(Shutdown::Write).unwrap();
        let mut returned = Vec::new();
        asker.read_to_end(&mut returned).unwrap();
        echo.join().unwrap();
        assert_eq!(returned, sent);
        assert!(has_learnt(&ends.client, server) && has_learnt(&ends.server, client), "{server}");
    }
}

#[test]
fn a_datagram_that_may_not_be_cut_is_refused_as_too_long_and_the_next_ones_are_cut() {
    let (ends, _routers) = behind_a_narrow_link();
    for (client, server) in CLIENTS.into_iter().zip(SERVERS) {
        let answerer = bound(&ends.server.namespace, at(server, 53));
        let asker = asking(&ends.client.namespace, client, at(server, 53));
        asker.set_read_timeout(Some(PATIENCE)).unwrap();
        // Linux forbids routers to cut a datagram until it knows better.
        asker.send(&[7; DATAGRAM_BYTES]).unwrap();
        let error = asker.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EMSGSIZE as i32), "{server}: {error}");
        assert!(has_learnt(&ends.client, server), "{server}");
        asker.send(&[7; DATAGRAM_BYTES]).unwrap();
        assert_eq!(answerer.recv(&mut [0; 2 * DATAGRAM_BYTES]).unwrap(), DATAGRAM_BYTES, "{server}");
    }
}
