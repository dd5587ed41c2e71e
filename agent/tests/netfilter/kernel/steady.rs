//! Real packets through changes: what was allowed before and after is never lost, what was denied before and after never passes.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_model::policy::{Body, Mode, Peers};
use nix::sys::socket::{setsockopt, sockopt};

use super::flows::{Applied, CUT_PEER, KEPT_PEER, WAIT, body, host_port, isolated, world};
use crate::support::bodies::{allow, deny, set, set_key, tcp, udp};
use crate::support::load_nft;
use crate::support::namespace::Namespace;

const ALLOWED: u16 = 53;
const DENIED: u16 = 54;
/// How often a change is made while packets flow, at least.
const CHANGES_MIN: usize = 60;
/// How many packets flow meanwhile, at least; changes go on until then.
const PACKETS_MIN: u64 = 4_000;
const DEADLINE: Duration = Duration::from_secs(40);

/// A peer that asks without a pause on an allowed and on a denied port, and a host that answers.
pub(super) struct Probes {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: JoinHandle<()>,
    asked: JoinHandle<u64>,
    answered: JoinHandle<u64>,
    denied: UdpSocket,
}

/// What came of the packets.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Lost {
    questions: u64,
    answers: u64,
    passed_though_denied: u64,
}

pub(super) const NOTHING: Lost = Lost { questions: 0, answers: 0, passed_though_denied: 0 };

impl Probes {
    pub(super) fn start(host: &Namespace, far: &Namespace) -> Self {
        let bound = |port| roomy(host.run(move || UdpSocket::bind(host_port(port)).unwrap()));
        let (allowed, denied) = (bound(ALLOWED), bound(DENIED));
        let peer = |port| {
            roomy(far.run(move || {
                let socket = UdpSocket::bind((KEPT_PEER, 0)).unwrap();
                socket.connect(host_port(port)).unwrap();
                socket
            }))
        };
        let (to_allowed, to_denied) = (peer(ALLOWED), peer(DENIED));
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let answers = to_allowed.try_clone().unwrap();
        let sender = {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    to_allowed.send(b"ask").unwrap();
                    to_denied.send(b"ask").unwrap();
                    sent.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(50));
                }
            })
        };
        let asked = std::thread::spawn(move || {
            let mut count = 0;
            while let Ok((_, from)) = allowed.recv_from(&mut [0; 8]) {
                count += 1;
                // A refusal of the own table shows as an error here and as an answer that lacks there.
                drop(allowed.send_to(b"answer", from));
            }
            count
        });
        let answered = std::thread::spawn(move || {
            let mut count = 0;
            while answers.recv(&mut [0; 8]).is_ok() {
                count += 1;
            }
            count
        });
        while sent.load(Ordering::Relaxed) < 10 {
            std::thread::yield_now();
        }
        Self { stop, sent, sender, asked, answered, denied }
    }

    /// How many were sent on each port so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn end(self) -> Lost {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap();
        let sent = self.sent.load(Ordering::Relaxed);
        let (asked, answered) = (self.asked.join().unwrap(), self.answered.join().unwrap());
        let mut passed_though_denied = 0;
        while self.denied.recv(&mut [0; 8]).is_ok() {
            passed_though_denied += 1;
        }
        Lost { questions: sent - asked, answers: asked - answered, passed_though_denied }
    }
}

/// Nothing is lost for want of room, and waiting ends.
fn roomy(socket: UdpSocket) -> UdpSocket {
    setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    socket
}

/// One peer may ask on one port.
fn policy(mode: Mode) -> Body {
    let rules = vec![allow(1, udp(&[(ALLOWED, ALLOWED)]), Peers::Set(set_key(1)))];
    body(mode, isolated(rules), isolated(Vec::new()), &[KEPT_PEER])
}

/// What came of the packets while `change` was made again and again.
fn through(mut change: impl FnMut(&Applied, usize)) -> Lost {
    let (host, far) = world();
    let host = Applied::new(host, &policy(Mode::Enforced));
    let probes = Probes::start(&host.namespace, &far);
    let began = Instant::now();
    for time in 0.. {
        if time >= CHANGES_MIN && probes.sent.load(Ordering::Relaxed) >= PACKETS_MIN {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{time} changes and not yet {PACKETS_MIN} packets");
        change(&host, time);
    }
    probes.end()
}

/// Ways to let the same peer in on the same port, and never on the other one.
fn ways() -> Vec<Body> {
    let by = |rules, peers: &[&str]| body(Mode::Enforced, isolated(rules), isolated(Vec::new()), peers);
    let ports = |ports: &[(u16, u16)], key| vec![allow(1, udp(ports), Peers::Set(set_key(key)))];
    let dns = [(ALLOWED, ALLOWED)];
    let mut by_another_set = by(ports(&dns, 3), &[KEPT_PEER]);
    by_another_set.sets.push(set(3, &["10.77.0.0/30"]));
    let mut denied_first = by(ports(&dns, 1), &[KEPT_PEER]);
    denied_first.ingress.rules.push(deny(9, udp(&[(DENIED, 60)]), Peers::Any));
    let mut more = by(ports(&dns, 1), &[KEPT_PEER]);
    more.ingress.rules.push(allow(7, tcp(&[(80, 80), (443, 443)]), Peers::Set(set_key(4))));
    more.sets.push(set(4, &["192.0.2.0/24", "2001:db8::/32"]));
    vec![
        by(ports(&dns, 1), &[KEPT_PEER]),
        by(ports(&dns, 1), &[KEPT_PEER, CUT_PEER]),
        by(ports(&dns, 1), &["10.77.0.0/24"]),
        by(ports(&[(ALLOWED, ALLOWED), (60, 70)], 1), &[KEPT_PEER]),
        by(ports(&[(50, ALLOWED)], 1), &[KEPT_PEER]),
        by_another_set.canonical(),
        denied_first.canonical(),
        more.canonical(),
    ]
}

#[test]
fn deltas_of_rules_ports_sets_and_members_lose_nothing_and_let_nothing_denied_through() {
    let ways = ways();
    assert_eq!(through(|host, time| host.change(&ways[time % ways.len()])), NOTHING);
}

#[test]
fn whole_states_lose_nothing_and_let_nothing_denied_through() {
    let ways = ways();
    assert_eq!(through(|host, time| host.reach(&ways[time % ways.len()])), NOTHING);
}

#[test]
fn repairs_of_what_others_did_lose_nothing_and_let_nothing_denied_through() {
    let damages = [
        "add rule inet holdfast in counter",
        "insert rule inet holdfast in counter",
        "add chain inet holdfast more",
        "add set inet holdfast more { type ipv4_addr; }",
        "add element inet holdfast s4_00000000000000000000000000000001 { 192.0.2.0/24 }",
        "add rule inet holdfast out_reply drop",
    ];
    let lost = through(|host, time| {
        host.namespace.run(move || load_nft(damages[time % damages.len()]));
        host.reach(&policy(Mode::Enforced));
    });
    assert_eq!(lost, NOTHING);
}

#[test]
fn changes_of_mode_and_a_table_that_goes_and_comes_lose_nothing() {
    let modes = [Mode::Simulation, Mode::Enforced, Mode::Visibility, Mode::Enforced];
    let lost = through(|host, time| {
        host.change(&policy(modes[time % modes.len()]));
        if time % 5 == 4 {
            host.remove();
            host.reach(&policy(modes[time % modes.len()]));
        }
    });
    assert_eq!((lost.questions, lost.answers), (0, 0), "{lost:?}");
    assert!(lost.passed_though_denied > 0, "nothing is dropped in the other modes");
}
