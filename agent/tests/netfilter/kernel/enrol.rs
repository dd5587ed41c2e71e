//! Enrolments of the real binary that are cut off: the next one takes them up, to the byte.

#[cfg(feature = "test-hooks")]
pub(super) mod hook;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::process::Output;
use std::thread;

use holdfast_identity::{Token, TokenKind, files};
use nix::sys::signal::Signal;

use super::session::{applied, enrol_as, isolated};
use crate::support::agent::Host;
use crate::support::gateway::Gateway;
use crate::support::namespace::Namespace;

/// A host that is not enrolled, and a gateway on the other end of a cable.
struct World {
    host: Host,
    gateway: Gateway,
    _far: Namespace,
}

impl World {
    fn new() -> Self {
        let (near, far) = Namespace::pair();
        let gateway = Gateway::new(far.run(|| TcpListener::bind("10.77.0.2:7443").unwrap()));
        let world = Self { host: Host::within(near), gateway, _far: far };
        world.give_token();
        world
    }

    /// Gives the host a token, in the place of the one that it had.
    fn give_token(&self) {
        let token = Token::generate(TokenKind::Enrol).unwrap();
        files::write_secret(&self.host.path("token"), token.reveal().as_bytes()).unwrap();
    }

    fn has(&self, file: &str) -> bool {
        self.host.path("state/identity").join(file).exists()
    }

    /// The command once more, while the gateway does its part.
    fn enrol<T>(&mut self, name: &str, gateway: impl FnOnce(&mut Gateway) -> T) -> (Output, T) {
        let (host, pin) = (&self.host, self.gateway.ca.pin().to_string());
        let token = host.path("token").display().to_string();
        thread::scope(|scope| {
            let asked = scope.spawn(|| host.ask(&enrol_as(&token, &pin, name)));
            let heard = gateway(&mut self.gateway);
            (asked.join().unwrap(), heard)
        })
    }

    fn begin(&self) {
        let token = self.host.path("token").display().to_string();
        self.host.begin(&enrol_as(&token, &self.gateway.ca.pin().to_string(), "web-1"));
    }

    /// The identity is one: a session opens, and what is sent is in force.
    fn serves(&mut self) {
        assert!(!self.has("pending.json"));
        self.host.run_session();
        let (mut session, _) = self.gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1"])));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn an_enrolment_whose_agent_is_killed_while_it_waits_is_finished_as_the_same_request_whatever_token_is_there() {
    let mut world = World::new();
    world.begin();
    let (first, waiting) = world.gateway.hear_enrolment();
    for secret in ["pending.json", "host.key.pem", "outcome.key"] {
        let mode = fs::metadata(world.host.path("state/identity").join(secret)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    // Another one beside it waits for its end.
    let (beside, ()) = world.enrol("web-1", |_| ());
    assert!(!beside.status.success() && said(&beside).contains("[enrolment-underway]"), "{beside:?}");
    world.host.end(Signal::SIGKILL);
    drop(waiting);
    assert!(!world.has("enrolment.json"));

    // Who asks for another name would leave behind a host that nobody serves.
    let (other, ()) = world.enrol("web-2", |_| ());
    assert!(!other.status.success() && said(&other).contains("[enrolment-pending]"), "{other:?}");
    assert!(said(&other).contains("`web-1`") && said(&other).contains("--anew"), "{other:?}");

    // A new token, as whoever begins from the beginning makes one, and then none at all: what was begun is finished first.
    world.give_token();
    world.begin();
    let (second, waiting) = world.gateway.hear_enrolment();
    world.host.end(Signal::SIGKILL);
    drop(waiting);
    fs::remove_file(world.host.path("token")).unwrap();
    let (enrolled, third) = world.enrol("web-1", Gateway::enrol);
    assert!(enrolled.status.success() && said(&enrolled).contains("the given one is not used"), "{enrolled:?}");
    assert_eq!((&second, &third), (&first, &first));
    world.serves();
}

#[test]
fn a_certificate_that_is_over_is_not_put_in_place_and_the_same_command_asks_once_more() {
    let mut world = World::new();
    world.gateway.leaf_age = time::Duration::hours(25);
    let (late, first) = world.enrol("web-1", Gateway::enrol);
    assert!(!late.status.success() && said(&late).contains("[certificate-over]"), "{late:?}");
    assert!(world.has("pending.json") && !world.has("host.pem") && !world.has("enrolment.json"));
    world.gateway.leaf_age = time::Duration::ZERO;
    let (enrolled, second) = world.enrol("web-1", Gateway::enrol);
    assert!(enrolled.status.success(), "{enrolled:?}");
    assert_eq!(second, first);
    world.serves();
}

#[test]
fn an_enrolment_that_was_refused_is_forgotten_and_the_token_that_is_given_then_has_its_turn() {
    let mut world = World::new();
    let (refused, _) = world.enrol("web-1", |gateway| gateway.refuse_enrolment(409, "name-taken"));
    assert!(!refused.status.success() && said(&refused).contains("[name-taken]"), "{refused:?}");
    assert!(!world.host.path("state/identity").exists(), "nothing of it is left");

    // Cut off, refused when it is asked again, and there is another token.
    world.begin();
    let (first, waiting) = world.gateway.hear_enrolment();
    world.host.end(Signal::SIGKILL);
    drop(waiting);
    world.give_token();
    let (enrolled, (again, new)) =
        world.enrol("web-1", |gateway| (gateway.refuse_enrolment(401, "token-expired"), gateway.enrol()));
    assert!(enrolled.status.success() && !said(&enrolled).contains("not used"), "{enrolled:?}");
    assert_eq!(again, first);
    assert_ne!(new, first);
    world.serves();
}

#[test]
fn an_enrolment_that_is_given_up_is_asked_for_under_another_name_with_keys_of_its_own() {
    let mut world = World::new();
    world.begin();
    let (first, waiting) = world.gateway.hear_enrolment();
    world.host.end(Signal::SIGKILL);
    drop(waiting);
    let (host, pin) = (&world.host, world.gateway.ca.pin().to_string());
    let token = host.path("token").display().to_string();
    let (enrolled, second) = thread::scope(|scope| {
        let line = [&enrol_as(&token, &pin, "web-2")[..], &["--anew"]].concat();
        let asked = scope.spawn(move || host.ask(&line));
        let second = world.gateway.enrol();
        (asked.join().unwrap(), second)
    });
    assert!(enrolled.status.success(), "{enrolled:?}");
    let [first, second] =
        [first, second].map(|body| serde_json::from_slice::<holdfast_wire::enrol::EnrolRequest>(&body).unwrap());
    assert_eq!((first.name.as_str(), second.name.as_str()), ("web-1", "web-2"));
    assert!(first.outcome_key != second.outcome_key && first.csr != second.csr);
    world.serves();
}
