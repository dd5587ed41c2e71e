//! A kernel that does not answer, under a real agent: what was known of it counts for so long and no longer, and the session goes on.

use std::fs;

use holdfast_model::condition::{ConditionType, Holds, Reason};
use holdfast_model::desired::Component;
use nix::sys::signal::Signal;

use super::super::session::{isolated, world};
use super::super::status::{confirmed, of, yes};
use crate::support::gateway::stamp;

/// How often both sides say that they live: a silence of three times as much ends a session.
const LIVENESS_MS: u32 = 2_000;

#[test]
fn a_thread_that_hangs_on_the_kernel_is_told_as_not_known_while_the_host_says_that_it_lives_also_in_a_new_session() {
    let (mut host, mut gateway, _far) = world();
    let hang = host.path("hang");
    host.set_variable("HOLDFAST_AGENT_TEST_HANG_FILE", hang.to_str());
    host.set_variable("HOLDFAST_AGENT_VERIFY_INTERVAL_MS", Some("300"));
    host.run_session();
    gateway.liveness_interval_ms = LIVENESS_MS;
    let body = isolated(&["10.0.0.1"]);
    let unknown = (Holds::Unknown, Reason::ReadBackFailed, Some(1));
    {
        let (mut session, _) = gateway.open();
        confirmed(&host, &mut session, 1, &body);
        fs::write(&hang, "").unwrap();
        let told = session.status_until("it hangs", |report| of(report, ConditionType::Verified) == unknown);
        assert!(session.is_genuine(&told));
        assert_eq!(of(&told.report, ConditionType::NoDrift), unknown);
        assert_eq!(of(&told.report, ConditionType::SnapshotAccepted), yes(1), "that was, whatever came after it");
        // Who asks for a look at the local policy waits; the session does not.
        host.signal(Signal::SIGHUP);
        session.signs_of_life(3);
        session.leave_after(40);
    }
    {
        let (mut session, hello) = gateway.open();
        assert!(hello.applied.contains(&(Component::Policy, stamp(1, &body))), "{:?}", hello.applied);
        assert_eq!(of(&session.status().report, ConditionType::Verified), unknown);
        fs::remove_file(&hang).unwrap();
        let back = session.status_until("it answers", |report| of(report, ConditionType::Verified) == yes(1));
        assert_eq!(of(&back.report, ConditionType::NoDrift), yes(1));
        fs::write(&hang, "").unwrap();
        session.status_until("it hangs again", |report| of(report, ConditionType::Verified) == unknown);
    }
    // Nor does the process's end wait for it.
    assert_eq!(host.end(Signal::SIGTERM), Some(0));
}
