//! A container behind the host: what is published and what the container asks for obey the host's rules, both ways, in both families.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use holdfast_model::policy::{Body, Mode, Peers};

use super::{CUT_BYTES, SOON, at, bound};
use crate::kernel::flows::{Applied, Tcp, body, connect, isolated};
use crate::support::bodies::{allow, set, set_key, tcp, udp};
use crate::support::load_nft;
use crate::support::namespace::Namespace;

/// Addresses of the host, of its peer and of the container, and the family's word in nft.
struct Family {
    word: &'static str,
    host: &'static str,
    peer: &'static str,
    inside: &'static str,
    network: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family { word: "ip", host: "10.77.0.1", peer: "10.77.0.2", inside: "10.88.0.2", network: "10.88.0.0/24" },
    Family { word: "ip6", host: "fd77::1", peer: "fd77::2", inside: "fd88::2", network: "fd88::/64" },
];

const PEERS: [&str; 2] = ["10.77.0.2/32", "fd77::2/128"];
const STRANGERS: [&str; 2] = ["10.77.0.3/32", "fd77::3/128"];

/// Ports 8080 and 8081 of the host lead to 80 of the container, for TCP and UDP; of these 8080 may be asked for. The container may ask for 9090.
fn policy(peers: &[&str]) -> Body {
    let (published, asked) = ([(8080, 8080)], [(9090, 9090)]);
    let ingress =
        vec![allow(1, tcp(&published), Peers::Set(set_key(1))), allow(2, udp(&published), Peers::Set(set_key(1)))];
    let egress = vec![allow(3, tcp(&asked), Peers::Set(set_key(1))), allow(4, udp(&asked), Peers::Set(set_key(1)))];
    Body { sets: vec![set(1, peers)], ..body(Mode::Enforced, isolated(ingress), isolated(egress), &[]) }.canonical()
}

/// The host, its peer and its container; the peer knows the way to the container's own address.
fn published() -> (Applied, Namespace, Namespace) {
    let (host, peer) = Namespace::pair();
    let container = host.container();
    for family in FAMILIES {
        peer.route(family.network, family.host);
        host.run(move || {
            let Family { word, host, inside, .. } = family;
            let inside = if word == "ip6" { format!("[{inside}]") } else { inside.to_owned() };
            load_nft(&format!(
                "table {word} nat {{
                  chain pre {{
                    type nat hook prerouting priority -100;
                    {word} daddr {host} tcp dport {{ 8080, 8081 }} dnat to {inside}:80;
                    {word} daddr {host} udp dport {{ 8080, 8081 }} dnat to {inside}:80;
                  }}
                  chain post {{ type nat hook postrouting priority 100; oifname \"eth0\" masquerade; }}
                }}"
            ));
        });
    }
    (Applied::with_uplinks(host, &policy(&PEERS), &["eth0"]), peer, container)
}

fn udp_ends(server: &Namespace, listens: SocketAddr, client: &Namespace, from: &str, to: SocketAddr) -> [UdpSocket; 2] {
    let (server, client) = (bound(server, listens), bound(client, at(from, 0)));
    client.connect(to).unwrap();
    [server, client]
}

/// Whether a question arrives and whether its answer comes back, wherever it seems to come from.
fn answers([server, client]: &[UdpSocket; 2]) -> (bool, bool) {
    client.send(b"ask").unwrap();
    match server.recv_from(&mut [0; 8]) {
        Ok((_, from)) => {
            server.send_to(b"answer", from).unwrap();
            (true, client.recv(&mut [0; 8]).is_ok())
        }
        Err(_) => (false, false),
    }
}

#[test]
fn a_published_port_obeys_ingress_by_the_port_that_was_asked_for_and_a_container_obeys_egress() {
    let (host, peer, container) = published();
    let mut open = Vec::new();
    for Family { host: address, peer: from, inside, .. } in FAMILIES {
        let behind = at(inside, 80);
        let through = |port| Tcp::open_by(&container, &peer, behind, from, at(address, port));
        let mut inward = through(8080).expect("published and allowed");
        assert_eq!(inward.passes(), (true, true), "{inside}");
        assert!(through(8081).is_none(), "{inside}: published, but not allowed");
        assert!(Tcp::open(&container, &peer, from, behind).is_none(), "{inside}: its own port is not allowed");
        let mut outward = Tcp::open(&peer, &container, inside, at(from, 9090)).expect("egress allows it");
        assert_eq!(outward.passes(), (true, true), "{inside}");
        assert!(Tcp::open(&peer, &container, inside, at(from, 9091)).is_none(), "{inside}");
        open.extend([inward, outward]);
    }

    host.change(&policy(&STRANGERS));

    for open in &mut open {
        [&open.0, &open.1].into_iter().for_each(|end| end.set_read_timeout(Some(SOON)).unwrap());
        assert_eq!(open.passes(), (false, false));
    }
}

#[test]
fn datagrams_to_a_published_port_and_from_a_container_obey_the_same_rules() {
    let (host, peer, container) = published();
    for Family { host: address, peer: from, inside, .. } in FAMILIES {
        let inward = |port| udp_ends(&container, at(inside, 80), &peer, from, at(address, port));
        let outward = |port| udp_ends(&peer, at(from, port), &container, inside, at(from, port));
        for allowed in [inward(8080), outward(9090)] {
            assert_eq!(answers(&allowed), (true, true), "{inside}");
        }
        for denied in [inward(8081), outward(9091)] {
            assert_eq!(answers(&denied), (false, false), "{inside}");
        }
        host.change(&policy(&STRANGERS));
        for cut in [inward(8080), outward(9090)] {
            assert_eq!(answers(&cut), (false, false), "{inside}");
        }
        host.change(&policy(&PEERS));
    }
}

#[test]
fn fragments_and_refusals_pass_a_published_port_in_both_directions() {
    let (_host, peer, container) = published();
    for Family { host: address, peer: from, inside, .. } in FAMILIES {
        let closed = bound(&peer, at(from, 0));
        closed.connect(at(address, 8080)).unwrap();
        closed.send(b"ask").unwrap();
        assert_eq!(closed.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{inside}");
        let refused = peer.run(move || connect(from, at(address, 8080)).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{inside}");

        let [server, client] = udp_ends(&container, at(inside, 80), &peer, from, at(address, 8080));
        let mut bytes = vec![0; 2 * CUT_BYTES];
        client.send(&[1; CUT_BYTES]).unwrap();
        let (length, asker) = server.recv_from(&mut bytes).expect("published and allowed");
        assert_eq!(length, CUT_BYTES);
        server.send_to(&[2; CUT_BYTES], asker).unwrap();
        assert_eq!(client.recv(&mut bytes).expect("an answer"), CUT_BYTES, "{inside}");
    }
}
