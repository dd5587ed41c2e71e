//! Enrolment and sessions of the real binary with a gateway that is honest, or is not.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::thread;

use holdfast_identity::{SigningKey, Token, TokenKind, files};
use holdfast_model::address::Interval;
use holdfast_model::artifact;
use holdfast_model::condition::Reason;
use holdfast_model::desired::{Component, Desired};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::policy::{Body, Chain, Mode, Peers};
use holdfast_model::statement::{Authority, OutcomeKind, desired_bytes};
use holdfast_wire::code::RefusalCode;
use holdfast_wire::message::Message;
use nix::sys::signal::Signal;
use uuid::Uuid;

use crate::support::agent::Host;
use crate::support::bodies::{allow, set, set_key, tcp};
use crate::support::disk::Tmpfs;
use crate::support::gateway::{Gateway, Session, stamp};
use crate::support::namespace::Namespace;
use crate::support::output_of;

/// Isolated both ways, with so many peers: only what the agent keeps open leads to the gateway.
pub(super) fn isolated(peers: &[&str]) -> Body {
    Body {
        mode: Mode::Enforced,
        ingress: Chain { isolated: true, rules: vec![allow(1, tcp(&[(80, 80)]), Peers::Set(set_key(1)))] },
        egress: Chain { isolated: true, rules: Vec::new() },
        sets: vec![set(1, peers)],
    }
}

/// A host and a gateway on the other end of a cable, the host enrolled.
pub(super) fn world() -> (Host, Gateway, Namespace) {
    world_of(time::Duration::ZERO)
}

/// The same, with so little room for the host's state.
pub(super) fn world_on_a_small_disk(kib: u32) -> (Tmpfs, Host, Gateway, Namespace) {
    let (near, far) = Namespace::pair();
    let host = Host::within(near);
    let disk = Tmpfs::on(host.path("state"), kib);
    let (host, gateway, far) = enrolled(host, far, time::Duration::ZERO);
    (disk, host, gateway, far)
}

/// The same, with a certificate that was issued so long ago.
pub(super) fn world_of(leaf_age: time::Duration) -> (Host, Gateway, Namespace) {
    let (near, far) = Namespace::pair();
    enrolled(Host::within(near), far, leaf_age)
}

/// A host that is enrolled at a gateway on the other end of its cable.
fn enrolled(host: Host, far: Namespace, leaf_age: time::Duration) -> (Host, Gateway, Namespace) {
    let mut gateway = Gateway::new(far.run(|| TcpListener::bind("10.77.0.2:7443").unwrap()));
    gateway.leaf_age = leaf_age;
    enrol_at(&host, &mut gateway);
    (host, gateway, far)
}

/// Enrols a host at a gateway that is there.
pub(super) fn enrol_at(host: &Host, gateway: &mut Gateway) {
    let token = Token::generate(TokenKind::Enrol).unwrap();
    files::write_secret(&host.path("token"), token.reveal().as_bytes()).unwrap();
    let pin = gateway.ca.pin().to_string();
    let enrolled = thread::scope(|scope| {
        let asked = scope.spawn(|| enrol(host, &pin));
        gateway.enrol();
        asked.join().unwrap()
    });
    assert!(enrolled.status.success(), "{}", String::from_utf8_lossy(&enrolled.stderr));
}

fn enrol(host: &Host, pin: &str) -> std::process::Output {
    host.ask(&enrol_as(&host.path("token").display().to_string(), pin, "web-1"))
}

/// The line that enrols a host at the gateway of [`world`].
pub(super) fn enrol_as<'a>(token_file: &'a str, pin: &'a str, name: &'a str) -> [&'a str; 9] {
    let gateway = "https://10.77.0.2:7443";
    ["enrol", "--token-file", token_file, "--gateway", gateway, "--ca-pin", pin, "--name", name]
}

pub(super) fn ruleset(host: &Host) -> Vec<String> {
    host.namespace.run(crate::support::listed)
}

fn link(host: &Host) -> String {
    host.status()["session"]["link"]["state"].as_str().unwrap().to_owned()
}

pub(super) fn applied(report: &holdfast_wire::message::OutcomeReport) {
    assert_eq!(report.kind, OutcomeKind::Applied, "{report:?}");
}

#[test]
fn an_enrolled_host_takes_snapshots_and_deltas_and_comes_back_through_an_isolated_policy() {
    let (host, mut gateway, far) = world();
    for secret in ["host.key.pem", "outcome.key"] {
        let mode = std::fs::metadata(host.path("state/identity").join(secret)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    let again = enrol(&host, &gateway.ca.pin().to_string());
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("enrolled already"));
    host.run_session();
    let (first, second) = (isolated(&["10.0.0.1"]), isolated(&["10.0.0.1", "10.0.0.9"]));
    {
        let (mut session, hello) = gateway.open();
        assert_eq!(hello.applied, []);
        assert_eq!(
            hello.inventory.addresses,
            ["10.77.0.1", "fd77::1"].map(|text| text.parse::<std::net::IpAddr>().unwrap())
        );
        applied(&session.policy(1, &first));
        session.empty_components();
        applied(&session.delta((1, &first), (2, &second)));
        let holds = |block: &String| block.contains("elements = { 10.0.0.1, 10.0.0.9 }");
        assert!(ruleset(&host).iter().any(holds));
        assert_eq!((link(&host).as_str(), host.applied_version()), ("open", Some(2)));
        // A change of addresses is told, once.
        host.namespace.run(|| output_of("ip", &["address", "add", "10.77.0.7/24", "dev", "eth0"]));
        let said = session.read();
        assert!(matches!(&said, Message::Inventory(inventory) if inventory.addresses.len() == 3), "{said:?}");
    }
    // The connection is gone; the policy is not, and the agent comes back through it.
    let (mut session, hello) = gateway.open();
    assert_eq!(hello.applied.len(), 4);
    assert!(hello.applied.contains(&(Component::Policy, stamp(2, &second))));
    let before = ruleset(&host);
    applied(&session.policy(2, &second));
    assert_eq!(ruleset(&host), before);
    drop(session);
    drop((gateway, far));
    // Everything else away: a restart enforces from the disk.
    host.end(Signal::SIGKILL);
    host.namespace.run(|| crate::support::load_nft("flush ruleset"));
    host.run_session();
    host.wait_until("last good is in force", || host.ask(&["healthcheck"]).status.success());
    assert_eq!((ruleset(&host), host.applied_version()), (before, Some(2)));
}

#[test]
fn a_gateway_that_forges_alters_swaps_or_goes_back_is_refused_and_nothing_changes() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (good, evil) = (isolated(&["10.0.0.1"]), isolated(&["10.0.0.1", "203.0.113.66"]));
    let (policy, open) = (Component::Policy, Body::default());
    let other_host = HostId::new(Uuid::from_u128(43));
    let (mut session, _) = gateway.open();
    applied(&session.policy(5, &good));
    let before = ruleset(&host);
    let refused = |session: &mut Session<'_>, stamp, signature, bytes: &[u8], reason| {
        let report = session.snapshot_as(policy, stamp, signature, bytes);
        assert_eq!((report.kind, report.conditions[0].reason), (OutcomeKind::Failed, reason));
        assert_eq!(report.applied.map(|stamp| stamp.version.raw()), Some(5));
    };
    // Signed by somebody else.
    let forged = SigningKey::generate().unwrap().sign(b"whatever").0;
    refused(&mut session, stamp(6, &evil), forged, &artifact::encode(&evil), Reason::BadSignature);
    // The renderer's word for one body, and another body.
    let word = session.signature(policy, stamp(6, &good));
    refused(&mut session, stamp(6, &good), word, &artifact::encode(&evil), Reason::WrongDigest);
    // The renderer's word for another host.
    let (renderer, authority) = session.renderer();
    let swapped = Desired { host: other_host, component: policy, stamp: stamp(7, &evil) };
    let word = renderer.sign(&desired_bytes(authority, &swapped)).0;
    refused(&mut session, stamp(7, &evil), word, &artifact::encode(&evil), Reason::BadSignature);
    // The renderer's word from yesterday.
    let word = session.signature(policy, stamp(4, &open));
    refused(&mut session, stamp(4, &open), word, &artifact::encode(&open), Reason::Backward);
    let taken_since = || host.status()["session"]["last_refused"]["taken_since"].as_bool();
    assert_eq!(taken_since(), Some(false));
    // No artifact at all.
    let word = session.signature(policy, stamp(8, &evil));
    refused(&mut session, stamp(8, &evil), word, b"\x01garbage", Reason::Malformed);
    assert_eq!(ruleset(&host), before);
    // And the host still takes what is right.
    applied(&session.policy(9, &evil));
    assert_eq!(taken_since(), Some(true), "its doctor looks at how that one ended");
}

#[test]
fn a_body_of_four_mebibytes_crosses_the_wire_in_chunks_and_liveness_goes_on() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (mut session, _) = gateway.open();
    // Visibility: what the wire and the disk take is the point here, not the kernel's tree.
    let mut large = Body { mode: Mode::Visibility, ..isolated(&[]) };
    large.sets[0].v4 = (0..850_000_u32).map(|n| Interval::single(n * 4)).collect();
    assert!(artifact::encode(&large).len() > 4 << 20);
    applied(&session.policy(1, &large));
    assert_eq!(host.applied_version(), Some(1));
}

#[test]
fn another_authority_is_refused_and_so_is_an_earlier_life_of_ours() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let ours = gateway.authority;
    let other = Authority { id: AuthorityId::new(Uuid::from_u128(2)), ..ours };
    let earlier = Authority { epoch: holdfast_model::numbers::AuthorityEpoch::from_raw(2), ..ours };
    for wrong in [other, earlier] {
        let (mut session, _) = gateway.accept();
        session.acknowledge(wrong);
        let said = session.read();
        let code = RefusalCode::WrongAuthority;
        assert!(matches!(&said, Message::Refusal(refusal) if refusal.code == code), "{said:?}");
    }
}

/// What the doctor finds while every session is refused; the gateway answers, so nothing else is wrong.
fn troubles_while_refused(host: &Host, gateway: &mut Gateway, code: RefusalCode) -> Vec<(String, String)> {
    thread::scope(|scope| {
        let asked = scope.spawn(|| {
            host.wait_until("the refusal is told", || host.status()["session"]["refusal"] == code.word());
            host.troubles()
        });
        gateway.refuse_until(code, || asked.is_finished());
        asked.join().unwrap()
    })
}

#[test]
fn a_host_that_no_gateway_lets_in_is_told_by_its_doctor_that_alone_and_one_without_a_gateway_why() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1"])));
    session.empty_components();
    host.wait_until("it is told that the session is open", || link(&host) == "open");
    drop(session);
    for (code, word) in [
        (RefusalCode::CertificateRevoked, "enrol under a new name with a new token"),
        (RefusalCode::HostUnknown, "enrol with a new token, under the same name or another"),
        (RefusalCode::Superseded, "another agent runs with this identity"),
    ] {
        let found = troubles_while_refused(&host, &mut gateway, code);
        let [(name, text)] = found.as_slice() else { panic!("{code}: {found:?}") };
        assert!(name == "session" && text.contains(code.word()) && text.contains(word), "{found:?}");
    }
    let shown = host.ask(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("last end     the gateway ended it: superseded") && !shown.contains('{'), "{shown}");

    drop(gateway);
    host.wait_until("nobody answers", || {
        let told = host.status();
        told["session"]["last_end"].as_str().is_some_and(|end| end.contains("cannot connect"))
    });
    let found = host.troubles();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["session", "gateway"], "{found:?}");
}

#[test]
fn an_agent_that_is_stopped_says_goodbye_and_one_that_is_killed_does_not_and_both_leave_what_they_enforce() {
    let (host, mut gateway, _far) = world();
    for (signal, version, says_goodbye) in [(Signal::SIGTERM, 1, true), (Signal::SIGKILL, 2, false)] {
        host.run_session();
        let (mut session, _) = gateway.open();
        applied(&session.policy(version, &isolated(&["10.0.0.1"])));
        host.end(signal);
        assert_eq!(session.hears_goodbye(), says_goodbye, "{signal}");
        let held = host.namespace.run(|| output_of("nft", &["list", "table", "inet", "holdfast"]));
        assert!(held.contains("10.0.0.1"), "{held}");
    }
    // Nobody answers: whoever stops it does not wait for that.
    host.run_session();
    drop(gateway);
    host.wait_until("the agent answers", || host.ask(&["status"]).status.success());
    let began = std::time::Instant::now();
    assert_eq!(host.end(Signal::SIGTERM), Some(0));
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_gateway_without_the_pinned_ca_gets_no_token_and_enrols_nobody() {
    let (near, far) = Namespace::pair();
    let gateway = Gateway::new(far.run(|| TcpListener::bind("10.77.0.2:7443").unwrap()));
    let host = Host::within(near);
    let token = Token::generate(TokenKind::Enrol).unwrap();
    files::write_secret(&host.path("token"), token.reveal().as_bytes()).unwrap();
    let other = Gateway::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let pin = other.ca.pin().to_string();
    let refused = thread::scope(|scope| {
        let asked = scope.spawn(|| enrol(&host, &pin));
        assert!(gateway.shake_fails());
        asked.join().unwrap()
    });
    assert!(!refused.status.success());
    assert!(!host.path("state/identity").exists());
}

#[test]
fn a_ledger_whose_policy_the_renderer_did_not_sign_is_not_enforced() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1"])));
    }
    host.end(Signal::SIGKILL);
    host.namespace.run(|| crate::support::load_nft("flush ruleset"));
    let record = host.path("state/identity/enrolment.json");
    let text = std::fs::read_to_string(&record).unwrap();
    let other = SigningKey::generate().unwrap().verifying_key().to_string();
    std::fs::write(&record, text.replace(&gateway.renderer.verifying_key().to_string(), &other)).unwrap();
    host.run_session();
    host.wait_until("the agent answers", || host.ask(&["status"]).status.success());
    let status = host.status();
    assert_eq!(status["policy"]["ledger"]["state"], "unusable");
    assert_eq!((status["policy"]["applied"].is_null(), status["policy"]["mode"].as_str()), (true, Some("visibility")));
}

#[test]
fn a_certificate_is_renewed_before_it_ends_and_the_next_session_shows_the_new_one() {
    let (host, mut gateway, _far) = world_of(time::Duration::hours(20));
    let chain = || std::fs::read_to_string(host.path("state/identity/host.pem")).unwrap();
    let old = chain();
    host.run_session();
    gateway.renew();
    host.wait_until("the new certificate is on disk", || chain() != old);
    let (mut session, _) = gateway.open();
    applied(&session.policy(1, &isolated(&["10.0.0.1"])));
}
