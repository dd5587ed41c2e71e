//! What a gateway says of gateways, and hands over as certificates, is not the last word: a host is neither cut off from the others by it, nor captured, nor
//! robbed of its identity.

use std::fs;
use std::net::TcpListener;

use holdfast_identity::Ca;
use holdfast_model::ids::HostId;
use nix::sys::signal::Signal;
use time::OffsetDateTime;
use uuid::Uuid;

use super::session::{applied, enrol_at, isolated, world};
use crate::support::agent::Host;
use crate::support::gateway::Gateway;
use crate::support::namespace::Namespace;
use crate::support::output_of;

/// Where nobody listens: the far end has the address, and no gateway there.
const NOBODY: &str = "10.77.0.3:7443";

fn with_second_address(far: &Namespace) {
    far.run(|| output_of("ip", &["address", "add", "10.77.0.3/24", "dev", "eth0"]));
}

#[test]
fn a_list_that_leads_nowhere_cuts_no_session_off_and_the_gateways_of_the_enrolment_are_dialled_again() {
    let (host, mut gateway, far) = world();
    with_second_address(&far);
    gateway.named = vec![NOBODY.to_owned()];
    host.run_session();
    {
        // It names another one than itself, and shuts the host: only what the agent keeps open leads to it.
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1"])));
        session.empty_components();
        applied(&session.policy(2, &isolated(&["10.0.0.9"])));
    }
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(3, &isolated(&["10.0.0.1"])));
    }
    // Nor is it the last word after a restart.
    let told = fs::read_to_string(host.path("state/gateways.json")).unwrap();
    assert!(told.contains(NOBODY) && !told.contains("10.77.0.2"), "{told}");
    host.end(Signal::SIGKILL);
    host.run_session();
    let (mut session, hello) = gateway.open();
    assert_eq!(hello.applied.len(), 4);
    applied(&session.policy(4, &isolated(&["10.0.0.9"])));
}

#[test]
fn damaged_files_of_gateways_and_components_are_set_aside_and_the_host_comes_back() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1"])));
        session.empty_components();
    }
    host.end(Signal::SIGKILL);
    for file in ["gateways.json", "components.json"] {
        fs::write(host.path("state").join(file), "{ not").unwrap();
    }
    host.run_session();
    let (mut session, hello) = gateway.open();
    assert_eq!(hello.applied.len(), 1, "{hello:?}");
    session.empty_components();
    for file in ["gateways.json", "components.json"] {
        let aside = host.path("state").join(format!("{file}.unusable"));
        assert_eq!(fs::read_to_string(aside).unwrap(), "{ not", "{file}");
    }
}

#[test]
fn a_gateway_that_hands_over_another_certificate_takes_no_identity_away_and_the_next_one_is_asked() {
    for lie in ["forged by another CA", "of another host"] {
        let (near, far) = Namespace::pair();
        with_second_address(&far);
        let host = Host::within(near);
        let mut liar = Gateway::new(far.run(|| TcpListener::bind("10.77.0.2:7443").unwrap()));
        let honest = far.run(|| TcpListener::bind(NOBODY).unwrap());
        liar.named.push(NOBODY.to_owned());
        liar.leaf_age = time::Duration::hours(20);
        enrol_at(&host, &mut liar);
        let mut honest = liar.beside(honest);
        let files =
            || ["host.pem", "host.key.pem"].map(|file| fs::read(host.path("state/identity").join(file)).unwrap());
        let old = files();
        if lie == "of another host" {
            liar.leaf_host = Some(HostId::new(Uuid::from_u128(43)));
        } else {
            liar.forger = Some(Ca::create(liar.authority.id, OffsetDateTime::now_utc()).unwrap());
        }
        host.run_session();
        liar.renew();
        // What is asked now is asked because that was refused.
        let (request, stream) = honest.hear_renewal();
        assert_eq!(files(), old, "{lie}");
        drop(liar);
        honest.answer_renewal(&request, stream);
        host.wait_until("the true one is on disk", || files() != old);
        host.end(Signal::SIGKILL);
        host.run_session();
        honest.open();
    }
}

/// Enrols at a gateway that may lie; whether it went well, and what was said.
fn enrol(host: &Host, gateway: &mut Gateway) -> (bool, String) {
    use super::session::enrol_as;
    let (token, pin) = (host.path("token").display().to_string(), gateway.ca.pin().to_string());
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| host.ask(&enrol_as(&token, &pin, "web-1")));
        gateway.enrol();
        let ended = asked.join().unwrap();
        (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
    })
}

#[test]
fn an_enrolment_that_is_answered_with_anothers_certificate_puts_nothing_in_place_and_can_be_asked_for_again() {
    let (near, far) = Namespace::pair();
    let host = Host::within(near);
    let mut gateway = Gateway::new(far.run(|| TcpListener::bind("10.77.0.2:7443").unwrap()));
    let token = holdfast_identity::Token::generate(holdfast_identity::TokenKind::Enrol).unwrap();
    holdfast_identity::files::write_secret(&host.path("token"), token.reveal().as_bytes()).unwrap();
    gateway.leaf_host = Some(HostId::new(Uuid::from_u128(43)));
    let (_, said) = enrol(&host, &mut gateway);
    assert!(said.contains("[certificate-host]"), "{said}");
    gateway.leaf_host = None;
    gateway.forger = Some(Ca::create(gateway.authority.id, OffsetDateTime::now_utc()).unwrap());
    let (_, said) = enrol(&host, &mut gateway);
    assert!(said.contains("[certificate-chain]"), "{said}");
    for file in ["enrolment.json", "host.pem"] {
        assert!(!host.path("state/identity").join(file).exists(), "{file}");
    }
    gateway.forger = None;
    let (is_enrolled, said) = enrol(&host, &mut gateway);
    assert!(is_enrolled, "{said}");
}
