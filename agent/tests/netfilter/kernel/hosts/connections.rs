//! Connections: who speaks first, how they end, and what becomes of those that connection tracking did not see begin.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use holdfast_model::policy::{Body, Mode};

use super::{Ends, FAMILIES, PATIENCE, SOON, at, shut_but_for};
use crate::kernel::flows::{Applied, Tcp, WAIT, connect, passes};
use crate::support::bodies::tcp;
use crate::support::namespace::Namespace;
use crate::support::{load_nft, output_of};

fn read_one(stream: &mut TcpStream) -> std::io::Result<usize> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read(&mut [0; 1])
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let mail = [tcp(&[(25, 25)])];
    let ends = Ends::new(&mail, &mail);
    for (server, client) in FAMILIES {
        let Tcp(mut asker, mut answerer) =
            Tcp::open(&ends.server.namespace, &ends.client.namespace, client, at(server, 25)).expect("allowed");
        for _ in 0..3 {
            assert!(passes(&mut answerer, &mut asker), "{server}");
        }
    }
}

#[test]
fn a_closed_port_that_may_be_asked_refuses_at_once() {
    let ends = Ends::new(&[tcp(&[(80, 81)])], &[tcp(&[(80, 80)])]);
    for (server, client) in FAMILIES {
        let refused = |port| {
            let began = Instant::now();
            let error = ends.client.namespace.run(move || connect(client, at(server, port)).unwrap_err());
            (error.kind(), began.elapsed())
        };
        let (kind, after) = refused(80);
        assert_eq!(kind, ErrorKind::ConnectionRefused, "{server}");
        assert!(after < Duration::from_millis(200), "{server}: {after:?}");
        assert_eq!(refused(81).0, ErrorKind::TimedOut, "{server}: what policy drops is dropped in silence");
    }
}

#[test]
fn a_reset_from_either_end_reaches_the_other() {
    let web = [tcp(&[(80, 80)])];
    let ends = Ends::new(&web, &web);
    for (server, client) in FAMILIES {
        for by_client in [true, false] {
            let Tcp(asker, answerer) =
                Tcp::open(&ends.server.namespace, &ends.client.namespace, client, at(server, 80)).expect("allowed");
            let (ends_it, mut hears) = if by_client { (asker, answerer) } else { (answerer, asker) };
            socket2::SockRef::from(&ends_it).set_linger(Some(Duration::ZERO)).unwrap();
            drop(ends_it);
            assert_eq!(read_one(&mut hears).unwrap_err().kind(), ErrorKind::ConnectionReset, "{server} {by_client}");
        }
    }
}

/// Who says the first word that connection tracking hears of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Client,
    Server,
}

impl First {
    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    fn speaks(self, Tcp(client, server): &mut Tcp) -> bool {
        match self {
            Self::Client => passes(client, server),
            Self::Server => passes(server, client),
        }
    }
}

/// An allowed and a denied connection of each family, older than any table, and what listens for more.
struct Older {
    allowed: Vec<Tcp>,
    denied: Vec<Tcp>,
    /// Held so that the ports stay listened to.
    listeners: Vec<TcpListener>,
}

impl Older {
    fn new(server: &Namespace, client: &Namespace) -> Self {
        let mut older = Self { allowed: Vec::new(), denied: Vec::new(), listeners: Vec::new() };
        for (address, from) in FAMILIES {
            for (port, wait) in [(ALLOWED, WAIT), (DENIED, SOON)] {
                let listener = server.run(move || TcpListener::bind(at(address, port)).unwrap());
                let near = client.run(move || connect(from, at(address, port)).expect("nothing is enforced"));
                let (far, _) = listener.accept().unwrap();
                [&near, &far].into_iter().for_each(|end| end.set_read_timeout(Some(wait)).unwrap());
                if port == ALLOWED { &mut older.allowed } else { &mut older.denied }.push(Tcp(near, far));
                older.listeners.push(listener);
            }
        }
        older
    }
}

const ALLOWED: u16 = 80;
const DENIED: u16 = 81;

/// Whether the asked host may also ask, of anybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Egress {
    Isolated,
    Open,
}

/// What connections meet that are older than the table: the ends are enforced at once or by way of visibility, where one of them speaks.
fn meet_enforcement(first: First, by_way_of: Option<Mode>, egress: Egress) {
    let (server, client) = Namespace::pair();
    let mut older = Older::new(&server, &client);
    let mut asked = shut_but_for(&[tcp(&[(80, 80)])], &[]);
    asked.egress.isolated = egress == Egress::Isolated;
    let asks = shut_but_for(&[], &[tcp(&[(80, 81)])]);
    let before = |body: &Body| Body { mode: by_way_of.unwrap_or(Mode::Enforced), ..body.clone() };
    let (server, client) = (Applied::new(server, &before(&asked)), Applied::new(client, &before(&asks)));
    if by_way_of.is_some() {
        for open in older.allowed.iter_mut().chain(&mut older.denied) {
            assert!(first.speaks(open), "nothing is dropped yet");
        }
        server.change(&asked);
        client.change(&asks);
    }
    let case = format!("{first:?} first, by way of {by_way_of:?}, egress {egress:?}");
    for open in &mut older.allowed {
        assert!(first.speaks(open), "allowed: {case}");
        assert_eq!(open.passes(), (true, true), "allowed: {case}");
    }
    for open in &mut older.denied {
        assert!(!first.speaks(open) && !first.other().speaks(open), "denied: {case}");
    }
}

#[test]
fn of_connections_older_than_the_table_the_allowed_go_on_and_the_denied_stop_whoever_speaks_first() {
    for first in [First::Client, First::Server] {
        for by_way_of in [None, Some(Mode::Visibility)] {
            for egress in [Egress::Isolated, Egress::Open] {
                meet_enforcement(first, by_way_of, egress);
            }
        }
    }
}

#[test]
fn after_a_flush_of_connection_tracking_the_allowed_go_on_with_the_clients_next_word_and_the_denied_stay_stopped() {
    let (server, client) = Namespace::pair();
    let mut older = Older::new(&server, &client);
    let ends = Ends::enforce(server, client, &[tcp(&[(80, 81)])], &[tcp(&[(80, 80)])]);
    for open in &mut older.allowed {
        assert_eq!(open.passes(), (true, true));
    }
    for first in [First::Client, First::Server] {
        for end in [&ends.client, &ends.server] {
            end.namespace.run(|| output_of("conntrack", &["-F"]));
        }
        for open in &mut older.allowed {
            assert_eq!(first.speaks(open), first == First::Client, "a server's word is not known for an answer");
            assert!(First::Client.speaks(open));
        }
        for open in &mut older.denied {
            assert!(!first.speaks(open) && !first.other().speaks(open));
        }
    }
}

/// The names that connection tracking has for its entries.
fn entries(host: &Namespace) -> Vec<String> {
    let listed = host.run(|| output_of("conntrack", &["-L", "-p", "tcp", "-o", "id"]));
    let mut names: Vec<String> =
        listed.split_whitespace().filter(|word| word.starts_with("id=")).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_tracking_saw_begin_or_translates_is_left_as_it_is() {
    let (server, client) = Namespace::pair();
    server.run(|| {
        load_nft(
            "table inet nat {
              chain pre { type nat hook prerouting priority -100; tcp dport 8080 redirect to :80; }
            }",
        );
    });
    let mut older = Older::new(&server, &client);
    let translated = FAMILIES.map(|(address, from)| {
        client.run(move || connect(from, at(address, 8080)).expect("it leads to the allowed port"))
    });
    let before = entries(&server);
    assert_eq!(before.len(), 6, "two allowed, two denied, two translated");
    let server = Applied::new(server, &shut_but_for(&[tcp(&[(ALLOWED, ALLOWED)])], &[]));
    assert_eq!(entries(&server.namespace), before);
    for open in &mut older.allowed {
        assert_eq!(open.passes(), (true, true));
    }
    drop(translated);
}
