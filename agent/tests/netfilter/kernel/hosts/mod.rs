//! What real hosts send, of both families, with both ends enforcing and isolated: it passes where policy lets it, and nowhere else.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use holdfast_model::policy::{Body, Mode, Peers, Statement};

use super::flows::{Applied, WAIT, isolated};
use crate::support::bodies::allow;
use crate::support::namespace::Namespace;

mod connections;
mod datagrams;
mod links;
mod path;
mod published;

/// How long something that must come is waited for; what must not come is waited for `WAIT`.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for what must not come where other packets of the test show how soon one comes.
const SOON: Duration = Duration::from_millis(100);

/// Six fragments on Ethernet, of which only the first carries the ports.
const CUT_BYTES: usize = 8_000;

/// The server's and the client's address, of each family.
const FAMILIES: [(&str, &str); 2] = [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")];

/// A client that may ask for some things, and a server that may be asked for some; else both are shut.
struct Ends {
    client: Applied,
    server: Applied,
}

impl Ends {
    fn new(may_ask: &[Statement], may_be_asked: &[Statement]) -> Self {
        let (server, client) = Namespace::pair();
        Self::enforce(server, client, may_ask, may_be_asked)
    }

    fn enforce(server: Namespace, client: Namespace, may_ask: &[Statement], may_be_asked: &[Statement]) -> Self {
        Self {
            client: Applied::new(client, &shut_but_for(&[], may_ask)),
            server: Applied::new(server, &shut_but_for(may_be_asked, &[])),
        }
    }
}

/// Both directions isolated, some things let in from anybody and some out to anybody.
pub(super) fn shut_but_for(may_be_asked: &[Statement], may_ask: &[Statement]) -> Body {
    let rules = |statements: &[Statement]| {
        (1..).zip(statements).map(|(n, statement)| allow(n, statement.clone(), Peers::Any)).collect()
    };
    let (ingress, egress) = (isolated(rules(may_be_asked)), isolated(rules(may_ask)));
    Body { mode: Mode::Enforced, ingress, egress, sets: Vec::new() }.canonical()
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

/// A UDP socket that waits `WAIT` at most.
fn bound(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    let socket = namespace.run(move || UdpSocket::bind(address).unwrap());
    socket.set_read_timeout(Some(WAIT)).unwrap();
    socket
}

/// One that sends to a given address.
fn asking(namespace: &Namespace, from: &str, to: SocketAddr) -> UdpSocket {
    let socket = bound(namespace, at(from, 0));
    socket.connect(to).unwrap();
    socket
}
