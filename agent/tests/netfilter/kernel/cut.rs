//! A real agent whose gateway goes away in the middle of what it says, or whose disk is of another day.

use std::fs;

use holdfast_model::address::Interval;
use holdfast_model::artifact;
use holdfast_model::desired::Component;
use holdfast_model::policy::Body;
use nix::sys::signal::Signal;

use super::session::{applied, isolated, ruleset, world};
use crate::support::gateway::stamp;
use crate::support::load_nft;

/// How long after it is told to leave an agent comes back: longer than the words that are cut take.
const LEAVE_AFTER_MS: u32 = 40;

/// A body of some kilobytes, so that what is cut is cut in its middle too.
fn large(first: u32) -> Body {
    let mut body = isolated(&["10.0.0.1"]);
    body.sets[0].v4 = (0..900_u32).map(|n| Interval::single(first + n * 4)).collect();
    body
}

#[test]
fn a_snapshot_that_is_cut_at_any_byte_is_thrown_away_and_the_next_session_begins_anew() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (held, next) = (large(0x0a00_0000), large(0x0b00_0000));
    let before = {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &held));
        let frames = session.frames_of(2, &next);
        session.leave_after(LEAVE_AFTER_MS);
        (ruleset(&host), frames.len())
    };
    let (good, bytes) = before;
    assert!(bytes > 1_500, "{bytes} bytes");
    // Every byte of the first frame and of the head of the second, and then every eleventh; the last byte is not among them.
    let cuts: Vec<usize> = (0..220).chain((220..bytes - 1).step_by(11)).collect();
    assert!(cuts.len() > 350, "{}", cuts.len());
    for at in cuts {
        let (mut session, hello) = gateway.open();
        let policy = hello.applied.iter().find(|(component, _)| *component == Component::Policy);
        assert_eq!(policy.map(|(_, stamp)| *stamp), Some(stamp(1, &held)), "cut at {at}");
        // So that the agent comes back at once, as it would from a gateway that drains.
        session.leave_after(LEAVE_AFTER_MS);
        let frames = session.frames_of(2, &next);
        session.write_bytes(&frames[..at]);
        drop(session);
        if at % 50 == 0 {
            assert_eq!(ruleset(&host), good, "cut at {at}");
        }
    }
    assert_eq!(ruleset(&host), good);
    let (mut session, _) = gateway.open();
    applied(&session.policy(2, &next));
    assert_ne!(ruleset(&host), good);
}

#[test]
fn a_disk_of_another_day_is_what_the_host_says_it_holds_and_one_snapshot_leads_to_the_newest() {
    let (host, mut gateway, _far) = world();
    let ledger = host.path("state").join("policy.ledger");
    let bodies: Vec<Body> =
        (0..4).map(|n| isolated(&["10.0.0.1", ["10.0.0.3", "10.0.0.5", "10.0.0.7", "10.0.0.9"][n]])).collect();
    host.run_session();
    let mut disk = Vec::new();
    {
        let (mut session, _) = gateway.open();
        for (version, body) in (1..).zip(&bodies) {
            applied(&session.policy(version, body));
            disk.push(fs::read(&ledger).unwrap());
        }
    }
    let newest = ruleset(&host);
    host.end(Signal::SIGKILL);

    // The disk of three versions ago: told truly, and led forward by one snapshot.
    fs::write(&ledger, &disk[0]).unwrap();
    host.run_session();
    {
        let (mut session, hello) = gateway.open();
        assert!(hello.applied.contains(&(Component::Policy, stamp(1, &bodies[0]))), "{:?}", hello.applied);
        // A delta from what the gateway remembers is refused as a unit.
        let report = session.delta((4, &bodies[3]), (5, &bodies[2]));
        assert_eq!(report.conditions[0].reason, holdfast_model::condition::Reason::WrongBase);
        applied(&session.policy(4, &bodies[3]));
    }
    assert_eq!(ruleset(&host), newest);
    host.end(Signal::SIGKILL);

    // The same with another version in it: nobody signed that, so it is not loaded, and the kernel keeps what it has.
    let mut forged = disk[0].clone();
    let signed = artifact::encode(&bodies[0]).len();
    let last = forged.len() - 1;
    assert!(last > signed);
    for at in [last / 2, last] {
        forged[at] ^= 1;
        fs::write(&ledger, &forged).unwrap();
        host.run_session();
        let (mut session, hello) = gateway.open();
        assert!(!hello.applied.iter().any(|(component, _)| *component == Component::Policy), "{:?}", hello.applied);
        assert_eq!(host.status()["policy"]["ledger"]["state"], "unusable");
        assert_eq!(ruleset(&host), newest);
        applied(&session.policy(4, &bodies[3]));
        assert_eq!(ruleset(&host), newest);
        drop(session);
        host.end(Signal::SIGKILL);
        forged.clone_from(&disk[0]);
    }
    host.namespace.run(|| load_nft("flush ruleset"));
}
