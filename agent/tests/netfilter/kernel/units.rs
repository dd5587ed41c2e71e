//! Updates that are taken or refused as a unit, through the real binary: kernel and disk have all of it or nothing.

use std::fs;

use holdfast_model::condition::Reason;
use holdfast_model::desired::Component;
use holdfast_model::policy::{Body, Peers, delta};
use holdfast_model::statement::OutcomeKind;
use nix::sys::signal::Signal;

use super::session::{applied, isolated, ruleset, world};
use crate::support::bodies::{allow, set, set_key, tcp};
use crate::support::gateway::stamp;

#[test]
fn a11_c7_a_change_of_what_is_not_there_and_a_delta_without_one_are_refused_whole_and_say_why() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let (mut session, _) = gateway.open();
    let good = isolated(&["10.0.0.1"]);
    applied(&session.policy(5, &good));
    let ledger = host.path("state").join("policy.ledger");
    let before = (ruleset(&host), fs::read(&ledger).unwrap());
    let with_rule = {
        let mut body = good.clone();
        body.ingress.rules.push(allow(9, tcp(&[(90, 90)]), Peers::Set(set_key(1))));
        body
    };
    let with_set = |members: &[&str]| Body { sets: vec![set(1, &["10.0.0.1"]), set(2, members)], ..good.clone() };
    let unknown_rule = delta::diff(&with_rule, &good).changes;
    let unknown_set = delta::diff(&with_set(&["10.0.0.2"]), &with_set(&["10.0.0.2", "10.0.0.3"])).changes;
    assert!(unknown_rule.len() == 1 && unknown_set.len() == 1);
    // Of each the first half would go in by itself.
    let half = |wrong: &[delta::Change]| {
        let right = delta::diff(&good, &isolated(&["10.0.0.1", "203.0.113.66"])).changes;
        right.iter().chain(wrong).cloned().collect::<Vec<_>>()
    };
    let other = isolated(&["10.0.0.7"]);
    let mut version = 5;
    for changes in [half(&unknown_rule), unknown_rule, half(&unknown_set), unknown_set, Vec::new()] {
        for named in [&other, &good] {
            // A version that was named once has one content in a session, whether it came into force or not.
            version += 1;
            let target = stamp(version, named);
            let report = session.changes(stamp(5, &good), &changes, target);
            assert_eq!((report.kind, report.applied), (OutcomeKind::Failed, Some(stamp(5, &good))), "{changes:?}");
            let accepted = &report.conditions[0];
            assert_eq!(accepted.reason, Reason::Malformed, "{changes:?}: {report:?}");
            assert!(!accepted.message.is_empty(), "{report:?}");
            assert_eq!((ruleset(&host), fs::read(&ledger).unwrap()), before, "{changes:?}");
        }
    }
    applied(&session.delta((5, &good), (version + 1, &other)));
}

#[test]
fn c49_a_newer_version_of_the_same_content_is_taken_without_the_kernel_and_kept_over_a_restart() {
    let (host, mut gateway, _far) = world();
    host.run_session();
    let body = isolated(&["10.0.0.1"]);
    let rules = {
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &body));
        let rules = handles(&host);
        applied(&session.version_only(2, &body));
        assert_eq!((handles(&host), host.applied_version()), (rules.clone(), Some(2)));
        // Of another content it is no base at all.
        let report = session.version_only(3, &isolated(&["10.0.0.9"]));
        assert_eq!((report.kind, report.conditions[0].reason), (OutcomeKind::Failed, Reason::WrongBase));
        host.end(Signal::SIGKILL);
        rules
    };
    host.run_session();
    let (_session, hello) = gateway.open();
    assert!(hello.applied.contains(&(Component::Policy, stamp(2, &body))), "{:?}", hello.applied);
    assert_eq!(handles(&host), rules);
}

/// The ruleset with the handles of its rules: one that was written again has others.
fn handles(host: &crate::support::agent::Host) -> String {
    host.namespace.run(|| crate::support::output_of("nft", &["--stateless", "--handle", "list", "ruleset"]))
}
