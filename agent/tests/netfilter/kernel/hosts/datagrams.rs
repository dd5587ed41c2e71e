//! Datagrams: cut into fragments, refused by the other end, broadcast for want of an address.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use super::{CUT_BYTES, Ends, FAMILIES, PATIENCE, asking, at, bound, shut_but_for};
use crate::kernel::flows::WAIT;
use crate::support::bodies::udp;
use crate::support::namespace::Namespace;
use crate::support::output_of;

fn received(socket: &UdpSocket) -> Option<(usize, SocketAddr)> {
    socket.recv_from(&mut [0; 2 * CUT_BYTES]).ok()
}

#[test]
fn fragments_of_both_directions_pass_by_the_ports_of_their_datagram() {
    let ends = Ends::new(&[udp(&[(53, 54)])], &[udp(&[(53, 53)])]);
    for (server, client) in FAMILIES {
        let allowed = bound(&ends.server.namespace, at(server, 53));
        let denied = bound(&ends.server.namespace, at(server, 54));
        let asker = asking(&ends.client.namespace, client, at(server, 53));
        asker.send(&[1; CUT_BYTES]).unwrap();
        let (length, from) = received(&allowed).expect("the server may be asked at 53");
        assert_eq!(length, CUT_BYTES);
        allowed.send_to(&[2; CUT_BYTES], from).unwrap();
        assert_eq!(received(&asker), Some((CUT_BYTES, at(server, 53))));

        let asker = asking(&ends.client.namespace, client, at(server, 54));
        asker.send(&[1; CUT_BYTES]).unwrap();
        assert_eq!(received(&denied), None, "the client may ask at 54, and the server may not be asked there");
        // What the own egress refuses never leaves, and its sender hears so.
        let asker = asking(&ends.client.namespace, client, at(server, 55));
        assert_eq!(asker.send(&[1; CUT_BYTES]).unwrap_err().kind(), ErrorKind::PermissionDenied);
        // A datagram against nothing that was asked.
        assert_eq!(
            allowed.send_to(&[1; CUT_BYTES], asker.local_addr().unwrap()).unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
    }
}

#[test]
fn the_asker_of_a_closed_port_hears_so_at_once_though_both_ends_are_shut() {
    let ends = Ends::new(&[udp(&[(53, 54)])], &[udp(&[(53, 53)])]);
    for (server, client) in FAMILIES {
        let refused = |port| {
            let asker = asking(&ends.client.namespace, client, at(server, port));
            asker.send(b"ask").unwrap();
            asker.recv(&mut [0; 8]).unwrap_err().kind()
        };
        assert_eq!(refused(53), ErrorKind::ConnectionRefused, "{server}");
        // What policy drops is dropped in silence.
        assert_eq!(refused(54), ErrorKind::WouldBlock, "{server}");
    }
}

/// A socket on an interface, whatever address that has.
fn on_eth0(namespace: &Namespace, address: &'static str) -> UdpSocket {
    namespace.run(move || {
        let address: SocketAddr = address.parse().unwrap();
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::DGRAM, None).unwrap();
        socket.bind_device(Some(b"eth0")).unwrap();
        socket.set_broadcast(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.into()
    })
}

#[test]
fn a_shut_host_without_an_address_gets_one_by_dhcp_and_renews_it() {
    let (server, client) = Namespace::pair();
    client.run(|| output_of("ip", &["-4", "address", "flush", "dev", "eth0"]));
    let ends = Ends::enforce(server, client, &[], &[]);
    // The server's end is shut too, but for what a server does; its answer goes to everybody, so tracking does not know it for one.
    ends.server.change(&shut_but_for(&[udp(&[(67, 67)])], &[udp(&[(68, 68)])]));
    let (client, server) = (&ends.client.namespace, &ends.server.namespace);
    let (asker, answerer) = (on_eth0(client, "0.0.0.0:68"), on_eth0(server, "0.0.0.0:67"));
    let everybody = |port| at("255.255.255.255", port);
    let mut bytes = [0; 16];
    for question in [&b"discover"[..], b"request"] {
        asker.send_to(question, everybody(67)).unwrap();
        let (length, from) = answerer.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..length], from), (question, at("0.0.0.0", 68)));
        answerer.send_to(b"answer", everybody(68)).unwrap();
        assert_eq!(asker.recv(&mut bytes).unwrap(), 6);
    }
    client.run(|| output_of("ip", &["address", "add", "10.77.0.2/24", "dev", "eth0"]));
    asker.send_to(b"renew", at("10.77.0.1", 67)).unwrap();
    let (_, from) = answerer.recv_from(&mut bytes).unwrap();
    answerer.send_to(b"answer", from).unwrap();
    assert_eq!(asker.recv_from(&mut bytes).unwrap().1, at("10.77.0.1", 67));
    // From another port than a server's, nothing comes in.
    let stranger = on_eth0(server, "0.0.0.0:66");
    stranger.send_to(b"answer", at("10.77.0.2", 68)).unwrap();
    asker.set_read_timeout(Some(WAIT)).unwrap();
    assert_eq!(asker.recv(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_shut_host_asks_for_its_ipv6_address_and_hears_the_answer() {
    let ends = Ends::new(&[], &[]);
    ends.server.change(&shut_but_for(&[udp(&[(547, 547)])], &[udp(&[(546, 546)])]));
    let (asker, answerer) = (on_eth0(&ends.client.namespace, "[::]:546"), on_eth0(&ends.server.namespace, "[::]:547"));
    let servers = "ff02::1:2".parse().unwrap();
    let interface = ends.server.namespace.run(|| nix::net::if_::if_nametoindex("eth0").unwrap());
    answerer.join_multicast_v6(&servers, interface).unwrap();
    asker.send_to(b"solicit", at("ff02::1:2", 547)).unwrap();
    let (_, from) = answerer.recv_from(&mut [0; 16]).unwrap();
    answerer.send_to(b"advertise", from).unwrap();
    let (length, from) = asker.recv_from(&mut [0; 16]).unwrap();
    assert_eq!((length, from.port()), (9, 547));
}
