//! Real packets: what is removed is cut both ways at once, what stays goes on, answers pass by the mirror only.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_agent::engine::{Attempt, Depth, Kernel};
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::{Kept, Ruleset, layout};
use holdfast_model::policy::{Body, Chain, Mode, Peers};

use crate::support::bodies::{allow, deny, set, set_key, tcp, udp};
use crate::support::namespace::Namespace;
use crate::support::output_of;

pub(super) const HOST: &str = "10.77.0.1";
pub(super) const KEPT_PEER: &str = "10.77.0.2";
pub(super) const CUT_PEER: &str = "10.77.0.3";
pub(super) const WAIT: Duration = Duration::from_millis(400);

/// Two namespaces; the far one has two addresses, of which one will lose its permission.
pub(super) fn world() -> (Namespace, Namespace) {
    let (host, far) = Namespace::pair();
    far.run(|| output_of("ip", &["address", "add", "10.77.0.3/24", "dev", "eth0"]));
    (host, far)
}

pub(super) fn body(mode: Mode, ingress: Chain, egress: Chain, peers: &[&str]) -> Body {
    let sets = vec![set(1, peers), set(2, &[CUT_PEER])];
    Body { mode, ingress, egress, sets }.canonical()
}

pub(super) fn isolated(rules: Vec<holdfast_model::policy::Rule>) -> Chain {
    Chain { isolated: true, rules }
}

fn ingress_of(peers: &[&str]) -> Body {
    let rules =
        vec![allow(1, tcp(&[(80, 80)]), Peers::Set(set_key(1))), allow(2, udp(&[(53, 53)]), Peers::Set(set_key(1)))];
    body(Mode::Enforced, isolated(rules), isolated(Vec::new()), peers)
}

/// A kernel in a namespace, as the worker has one: it lives on that namespace's thread.
pub(super) struct Applied {
    pub(super) namespace: Arc<Namespace>,
    held: Mutex<Ruleset>,
    kept: Kept,
}

thread_local! {
    static KERNEL: std::cell::RefCell<Option<Netfilter>> = const { std::cell::RefCell::new(None) };
}

impl Applied {
    pub(super) fn new(namespace: Namespace, body: &Body) -> Self {
        Self::with_uplinks(namespace, body, &[])
    }

    pub(super) fn with_uplinks(namespace: Namespace, body: &Body, uplinks: &[&str]) -> Self {
        let kept = Kept { uplinks: uplinks.iter().map(|name| (*name).to_owned()).collect(), ..Kept::default() };
        let ruleset = layout(body, &kept);
        let (namespace, target) = (Arc::new(namespace), ruleset.clone());
        namespace.run(move || {
            KERNEL.with_borrow_mut(|kernel| {
                let kernel = kernel.insert(Netfilter::open(TableOwner::Off).unwrap());
                assert!(matches!(kernel.apply(None, &target, Depth::Whole), Attempt::Holds));
            });
        });
        Self { namespace, held: Mutex::new(ruleset), kept }
    }

    pub(super) fn change(&self, body: &Body) {
        let target = layout(body, &self.kept);
        let base = std::mem::replace(&mut *self.held.lock().unwrap(), target.clone());
        self.namespace.run(move || {
            KERNEL.with_borrow_mut(|kernel| {
                let attempt = kernel.as_mut().unwrap().apply(Some(&base), &target, Depth::Changed);
                assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
            });
        });
    }

    /// Makes the kernel hold a policy from whatever its table holds.
    pub(super) fn reach(&self, body: &Body) {
        let target = layout(body, &self.kept);
        *self.held.lock().unwrap() = target.clone();
        self.namespace.run(move || {
            KERNEL.with_borrow_mut(|kernel| {
                let attempt = kernel.as_mut().unwrap().apply(None, &target, Depth::Whole);
                assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
            });
        });
    }

    /// Takes the table away.
    pub(super) fn remove(&self) {
        self.namespace.run(|| KERNEL.with_borrow_mut(|kernel| assert!(kernel.as_mut().unwrap().remove().unwrap())));
    }

    /// Packets that a rule of a chain counted.
    pub(super) fn counted(&self, chain: &'static str, id: &'static str) -> u64 {
        self.namespace.run(move || {
            KERNEL.with_borrow_mut(|kernel| {
                let rules = kernel.as_mut().unwrap().rules().unwrap();
                rules.iter().find(|rule| rule.chain == chain && rule.id.as_str() == id).unwrap().counted.0
            })
        })
    }
}

/// An open TCP connection, both ends: the client's and the server's.
pub(super) struct Tcp(pub(super) TcpStream, pub(super) TcpStream);

impl Tcp {
    pub(super) fn open(server: &Namespace, client: &Namespace, from: &'static str, to: SocketAddr) -> Option<Self> {
        Self::open_by(server, client, to, from, to)
    }

    /// One that is asked for at another address than the one that listens.
    pub(super) fn open_by(
        server: &Namespace,
        client: &Namespace,
        listens: SocketAddr,
        from: &'static str,
        to: SocketAddr,
    ) -> Option<Self> {
        let listener = server.run(move || TcpListener::bind(listens).unwrap());
        let near = client.run(move || connect(from, to)).ok()?;
        let (far, _) = server.run(move || listener.accept()).unwrap();
        for end in [&near, &far] {
            end.set_read_timeout(Some(WAIT)).unwrap();
        }
        Some(Self(near, far))
    }

    /// Whether a byte goes from the client to the server, and from the server to the client.
    pub(super) fn passes(&mut self) -> (bool, bool) {
        let Self(client, server) = self;
        (passes(client, server), passes(server, client))
    }
}

pub(super) fn passes(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    from.write_all(b"x").unwrap();
    match to.read(&mut [0; 1]) {
        Ok(read) => read == 1,
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Connects from a given address.
pub(super) fn connect(from: &str, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from.parse().unwrap(), 0).into())?;
    socket.connect_timeout(&to.into(), WAIT)?;
    Ok(socket.into())
}

pub(super) fn host_port(port: u16) -> SocketAddr {
    SocketAddr::new(HOST.parse().unwrap(), port)
}

/// Whether a datagram from `client` arrives at `server` and its answer comes back.
pub(super) fn udp_passes(server: &UdpSocket, client: &UdpSocket) -> (bool, bool) {
    let mut bytes = [0; 8];
    client.send(b"ask").unwrap();
    let asked = server.recv_from(&mut bytes);
    let arrived = asked.is_ok();
    // The server knows its client from before, whether this one arrived or not.
    drop(server.send_to(b"answer", client.local_addr().unwrap()));
    (arrived, client.recv(&mut bytes).is_ok())
}

fn udp_pair(server: &Namespace, client: &Namespace, from: &'static str, port: u16) -> (UdpSocket, UdpSocket) {
    let near = client.run(move || {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.connect(host_port(port)).unwrap();
        socket
    });
    let far = server.run(move || UdpSocket::bind(host_port(port)).unwrap());
    for end in [&near, &far] {
        end.set_read_timeout(Some(WAIT)).unwrap();
    }
    (far, near)
}

#[test]
fn a_removed_permission_cuts_tcp_and_udp_both_ways_and_leaves_other_peers_alone() {
    let (host, far) = world();
    let host = Applied::new(host, &ingress_of(&[KEPT_PEER, CUT_PEER]));
    let mut kept = Tcp::open(&host.namespace, &far, KEPT_PEER, host_port(80)).expect("allowed");
    assert!(Tcp::open(&host.namespace, &far, KEPT_PEER, host_port(81)).is_none());
    let mut cut = Tcp::open(&host.namespace, &far, CUT_PEER, host_port(80)).expect("allowed");
    let (server, kept_udp) = udp_pair(&host.namespace, &far, KEPT_PEER, 53);
    let cut_udp = far.run(|| {
        let socket = UdpSocket::bind((CUT_PEER, 0)).unwrap();
        socket.connect(host_port(53)).unwrap();
        socket
    });
    cut_udp.set_read_timeout(Some(WAIT)).unwrap();
    assert_eq!((kept.passes(), cut.passes()), ((true, true), (true, true)));
    assert_eq!(udp_passes(&server, &kept_udp), (true, true));
    assert_eq!(udp_passes(&server, &cut_udp), (true, true));

    host.change(&ingress_of(&[KEPT_PEER]));

    assert_eq!(cut.passes(), (false, false));
    assert_eq!(udp_passes(&server, &cut_udp), (false, false));
    assert_eq!(kept.passes(), (true, true));
    assert_eq!(udp_passes(&server, &kept_udp), (true, true));
    assert!(host.counted("in", "terminal") > 0 && host.counted("out_reply", "terminal") > 0);
}

#[test]
fn a_deny_that_comes_cuts_what_is_open_though_the_direction_is_open() {
    let (host, far) = world();
    let open = |rules| body(Mode::Enforced, Chain { isolated: false, rules }, Chain::default(), &[KEPT_PEER]);
    let host = Applied::new(host, &open(Vec::new()));
    let mut cut = Tcp::open(&host.namespace, &far, CUT_PEER, host_port(80)).expect("open");
    let mut kept = Tcp::open(&host.namespace, &far, KEPT_PEER, host_port(8080)).expect("open");
    assert_eq!(cut.passes(), (true, true));
    host.change(&open(vec![deny(9, tcp(&[(80, 80)]), Peers::Set(set_key(2)))]));
    assert_eq!(cut.passes(), (false, false));
    assert_eq!(kept.passes(), (true, true));
}

#[test]
fn an_isolated_egress_lets_answers_of_allowed_connections_in_and_nothing_else() {
    let (host, far) = world();
    let egress = isolated(vec![allow(1, tcp(&[(80, 80)]), Peers::Set(set_key(1)))]);
    let host = Applied::new(host, &body(Mode::Enforced, isolated(Vec::new()), egress, &[KEPT_PEER]));
    let to = |address: &str, port| SocketAddr::new(address.parse().unwrap(), port);
    let mut allowed = Tcp::open(&far, &host.namespace, HOST, to(KEPT_PEER, 80)).expect("allowed");
    assert_eq!(allowed.passes(), (true, true));
    assert!(Tcp::open(&far, &host.namespace, HOST, to(CUT_PEER, 80)).is_none());
    assert!(Tcp::open(&far, &host.namespace, HOST, to(KEPT_PEER, 81)).is_none());
    assert!(Tcp::open(&host.namespace, &far, KEPT_PEER, host_port(80)).is_none());
}

#[test]
fn an_open_direction_answers_though_the_other_is_isolated() {
    let (host, far) = world();
    let host = Applied::new(host, &body(Mode::Enforced, Chain::default(), isolated(Vec::new()), &[]));
    let mut inward = Tcp::open(&host.namespace, &far, KEPT_PEER, host_port(80)).expect("ingress is open");
    assert_eq!(inward.passes(), (true, true));
    let outward = SocketAddr::new(KEPT_PEER.parse().unwrap(), 80);
    assert!(Tcp::open(&far, &host.namespace, HOST, outward).is_none());
}

#[test]
fn simulation_and_visibility_drop_nothing_and_simulation_counts_what_it_would() {
    for mode in [Mode::Visibility, Mode::Simulation] {
        let (host, far) = world();
        let rules = vec![deny(1, tcp(&[(80, 80)]), Peers::Any)];
        let host = Applied::new(host, &body(mode, isolated(rules), isolated(Vec::new()), &[]));
        for port in [80, 81] {
            let mut open = Tcp::open(&host.namespace, &far, KEPT_PEER, host_port(port)).expect("nothing is dropped");
            assert_eq!(open.passes(), (true, true));
        }
        if mode == Mode::Simulation {
            assert!(host.counted("in", "00000000000000000000000000000001/any") > 0);
            assert!(host.counted("in", "terminal") > 0 && host.counted("out_reply", "terminal") > 0);
        } else {
            assert!(host.counted("in", "new") > 0);
        }
    }
}

#[test]
fn path_errors_and_neighbours_pass_an_isolated_host() {
    let (host, far) = world();
    let rules = vec![allow(1, udp(&[(53, 53)]), Peers::Any)];
    let host = Applied::new(host, &body(Mode::Enforced, isolated(Vec::new()), isolated(rules), &[]));
    // Neighbour discovery first, then the refusal of a closed port as an error about that very datagram.
    for to in [KEPT_PEER, "fd77::2"] {
        let to = SocketAddr::new(to.parse().unwrap(), 53);
        let error = host.namespace.run(move || {
            let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(from).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            socket.connect(to).unwrap();
            socket.send(b"ask").unwrap();
            socket.recv(&mut [0; 8]).unwrap_err().kind()
        });
        assert_eq!(error, ErrorKind::ConnectionRefused, "{to}");
    }
    drop(far);
}
