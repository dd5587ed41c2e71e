//! Failsafe ports by packets: whatever is denied, whoever repairs the host comes in by them, and by no other.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::support::agent::Host;
use crate::support::namespace::Namespace;

const OPEN: &str = r#"{"mode": "visibility"}"#;
const NOTHING: &str =
    r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": []}, "egress": {"isolated": true, "rules": []}}"#;
/// Longer than a connection takes over a cable, and shorter than its first packet is sent again.
const WAIT: Duration = Duration::from_millis(800);

/// One that listens on the host and gives back what it gets.
fn echo_on(host: &Host, port: u16) {
    let listener = host.namespace.run(move || TcpListener::bind(("10.77.0.1", port)).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut word = [0; 4];
            if stream.read_exact(&mut word).is_ok() {
                // Whoever hung up is not served.
                drop(stream.write_all(&word));
            }
        }
    });
}

/// Whether somebody comes from one namespace to an address of another, by packets of both ways.
fn comes(from: &Namespace, to: &str, port: u16) -> bool {
    let to: SocketAddr = format!("{to}:{port}").parse().unwrap();
    from.run(move || {
        let mut stream = match TcpStream::connect_timeout(&to, WAIT) {
            Ok(stream) => stream,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "what is denied is not answered: {error}");
                return false;
            }
        };
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let mut word = [0; 4];
        stream.write_all(b"life").and_then(|()| stream.read_exact(&mut word)).unwrap();
        word == *b"life"
    })
}

#[test]
fn what_denies_everything_lets_the_failsafe_port_in_with_its_answers_and_no_other_port() {
    let (near, far) = Namespace::pair();
    let mut host = Host::within(near);
    // As it is shipped.
    host.set_variable("HOLDFAST_AGENT_FAILSAFE_PORTS", Some("22"));
    host.write_policy(OPEN);
    host.start();
    for port in [22, 23] {
        echo_on(&host, port);
        assert!(comes(&far, "10.77.0.1", port), "{port} while nothing is denied");
    }
    host.write_policy(NOTHING);
    assert!(host.ask(&["reload"]).status.success());
    assert_eq!((comes(&far, "10.77.0.1", 22), comes(&far, "10.77.0.1", 23)), (true, false));
    // It is a way in, and none out.
    let listener = far.run(|| TcpListener::bind(("10.77.0.2", 22)).unwrap());
    assert!(!comes(&host.namespace, "10.77.0.2", 22));
    drop(listener);
    // Told to keep none, an agent keeps none.
    host.end(nix::sys::signal::Signal::SIGTERM);
    host.set_variable("HOLDFAST_AGENT_FAILSAFE_PORTS", Some(""));
    host.start();
    assert_eq!((comes(&far, "10.77.0.1", 22), comes(&far, "10.77.0.1", 23)), (false, false));
}
