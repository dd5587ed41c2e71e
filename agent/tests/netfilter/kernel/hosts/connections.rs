//! Connections: who speaks first, how they end, and what becomes of those that connection tracking did not see begin.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Ends, FAMILIES, PATIENCE, at};
use crate::kernel::flows::{Tcp, connect, passes};
use crate::support::bodies::tcp;

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
