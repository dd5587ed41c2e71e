//! What a running agent says of itself: the kernel, the disk, the last update, the session.

use std::path::Path;
use std::time::Duration;

use holdfast_model::condition::{Holds, Reason};
use holdfast_model::desired::Component;
use holdfast_model::numbers::Version;
use holdfast_model::statement::OutcomeKind;
use holdfast_runtime::Chain;
use holdfast_wire::code::RefusalCode;

use super::Findings;
use crate::cli::print::seconds;
use crate::engine::{Cause, Kernel as _};
use crate::local::{self, Answer, Question};
use crate::nft::{Netfilter, TableOwner};
use crate::service::{LastOutcome, LedgerState, PolicyStatus, Status};
use crate::session::{Link, RefusedUpdate, SessionStatus};
use crate::standalone::load_local;

/// How long the agent may say nothing: longer than a change of a large table, and no longer than a person waits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the agent; what it is, if it answers.
pub(super) fn look(state: &Path, findings: &mut Findings) -> Option<Status> {
    const NAME: &str = "agent";
    match local::ask_within(state, Question::Status, ANSWER_TIMEOUT) {
        Ok(Answer::Status(status)) => {
            policy(status.pid, &status.policy, findings);
            local_policy(state, &status, findings);
            ledger(&status.policy.ledger, findings);
            let applied = status.policy.applied.map(|stamp| stamp.version);
            let refused = status.session.as_ref().and_then(|told| told.last_refused.as_ref());
            match refused.filter(|refused| is_untaken(refused, applied)) {
                Some(refused) => untaken(refused, applied, findings),
                None => status.policy.last_outcome.iter().for_each(|last| update(last, findings)),
            }
            if let Some(told) = &status.session {
                session(told, findings);
            }
            Some(*status)
        }
        Ok(Answer::Failed(reason)) => {
            findings.unwell(NAME, reason, "look at the agent's log");
            None
        }
        Ok(Answer::Reloaded(_) | Answer::Local { .. } | Answer::Down { .. }) => {
            findings.unwell(NAME, "an unexpected answer", "another build's agent runs: restart it");
            None
        }
        Err(error @ local::Error::Silent { .. }) => {
            findings.unwell(
                NAME,
                error.to_string(),
                "let it go on, or end it and start it again; its log says what it is at",
            );
            None
        }
        Err(error) => {
            findings.unwell(NAME, Chain(&error).to_string(), "start it: holdfast-agent run");
            table(
                Netfilter::open(TableOwner::Off).map_err(Cause::from).and_then(|mut kernel| kernel.holds_table()),
                findings,
            );
            None
        }
    }
}

/// What is enforced while no agent runs.
fn table(holds: Result<bool, Cause>, findings: &mut Findings) {
    const NAME: &str = "table";
    match holds {
        Ok(true) => findings.well(NAME, "the kernel holds one, and enforces it meanwhile; nobody repairs it"),
        Ok(false) => findings.unwell(
            NAME,
            "the kernel holds none: nothing is enforced",
            "start the agent: it puts back what its ledger has",
        ),
        Err(cause) => {
            let remedy = "ask as root, or with CAP_NET_ADMIN";
            findings.unwell(
                NAME,
                format!("it cannot be read whether the kernel holds one: {}", Chain(cause.as_ref())),
                remedy,
            );
        }
    }
}

fn policy(pid: u32, policy: &PolicyStatus, findings: &mut Findings) {
    const NAME: &str = "agent";
    if let Some(unheard) = &policy.unheard {
        let detail = format!("runs (pid {pid}), but hears nothing of the kernel's changes: {unheard}");
        let remedy = "it listens anew by itself; until then what others change is found on the slow tick";
        findings.unwell("notices", detail, remedy);
    }
    if policy.fault.is_none() && policy.proven && !policy.contended {
        return findings.well(NAME, format!("runs (pid {pid}), and the kernel holds its policy"));
    }
    if policy.contended {
        let detail = format!("runs (pid {pid}), but another tool undoes what it writes: {} repairs", policy.drifts);
        let process = policy.last_drift.as_ref().and_then(|last| last.process.as_deref());
        let process = process.unwrap_or("whatever the agent's log names (`another process changed our table`)");
        let remedy = format!("keep {process} from `table inet holdfast`; until then only the slow tick repairs");
        return findings.unwell(NAME, detail, &remedy);
    }
    let fault = policy.fault.as_deref().unwrap_or("the kernel was not read back yet");
    let remedy = "holdfast-agent status says more; what another tool wrote is in `nft list ruleset`";
    findings.unwell(NAME, format!("runs (pid {pid}), but its policy is not proven: {fault}"), remedy);
}

/// A policy of the host's own: in force, or there and not in force.
fn local_policy(state: &Path, status: &Status, findings: &mut Findings) {
    const NAME: &str = "local policy";
    if let Some(local) = &status.policy.local {
        let kept = local.kept.map_or_else(|| "nothing".to_owned(), |stamp| format!("version {}", stamp.version));
        let detail = format!("{} is in force, and not what was rendered; {kept} is kept", local.digest.short());
        let remedy = "when it is no longer needed: holdfast-agent override --clear";
        return findings.unwell(NAME, detail, remedy);
    }
    if status.session.is_some()
        && let Err(error) = load_local(state)
    {
        let remedy =
            "put it there again by holdfast-agent override FILE, or take it away: holdfast-agent override --clear";
        findings.unwell(NAME, Chain(&error).to_string(), remedy);
    }
}

fn ledger(ledger: &LedgerState, findings: &mut Findings) {
    const NAME: &str = "ledger";
    match ledger {
        LedgerState::Loaded => findings.well(NAME, "the last good policy was on disk when the agent started"),
        LedgerState::Missing => findings.well(NAME, "there was none when the agent started: the first policy makes it"),
        LedgerState::Unusable(fault) => {
            let remedy = "the agent keeps the kernel's table until a policy comes; look at the disk, the damaged file is kept beside";
            findings.unwell(NAME, fault.clone(), remedy);
        }
    }
}

/// The last update, by its first step that did not hold.
fn update(last: &LastOutcome, findings: &mut Findings) {
    const NAME: &str = "last update";
    let version = last.wanted.version;
    if last.outcome != OutcomeKind::Failed.word() {
        return findings.well(NAME, format!("version {version}: {}", last.outcome));
    }
    let broken = last.conditions.iter().find(|condition| condition.status != Holds::True);
    let why = broken.map_or_else(String::new, |condition| {
        let text = if condition.message.is_empty() { String::new() } else { format!(" ({})", condition.message) };
        format!(": {}{text}", condition.reason)
    });
    let kept = last.applied.map_or_else(
        || "nothing of ours is in force".to_owned(),
        |stamp| format!("version {} is still in force", stamp.version),
    );
    let remedy = "mend what it names; the next version, or a restart of the agent, tries again";
    findings.unwell(NAME, format!("version {version} failed{why}; {kept}"), remedy);
}

/// Whether what was refused as it came is how the last update ended. A step back and another content say that plane and host are of two histories,
/// whatever the version, until one is taken; anything else counts while nothing as new is in force.
fn is_untaken(refused: &RefusedUpdate, applied: Option<Version>) -> bool {
    if refused.component != Component::Policy {
        return false;
    }
    let is_newer = Some(refused.wanted.version) > applied;
    is_newer || (is_of_another_history(refused.reason) && !refused.taken_since)
}

fn is_of_another_history(reason: Reason) -> bool {
    matches!(reason, Reason::Backward | Reason::SameVersionOtherContent)
}

/// A policy that was refused before anything was tried.
fn untaken(refused: &RefusedUpdate, applied: Option<Version>, findings: &mut Findings) {
    let (version, gateway, reason) = (refused.wanted.version, &refused.gateway, refused.reason);
    let kept = applied.map_or_else(|| "nothing".to_owned(), |version| format!("version {version}"));
    let detail = format!("version {version} of {gateway} was refused as it came: {reason}; {kept} is in force");
    let remedy = if is_of_another_history(reason) {
        "the plane knows less of this host than the host does: tell its operators; was a database restored from a backup? the host keeps what \
         it has until they say so: `holdfast authority bump`"
    } else {
        "that gateway, or what it reads, is not what it should be: tell the plane's operators; another gateway's is taken at once"
    };
    findings.unwell("last update", detail, remedy);
}

fn session(told: &SessionStatus, findings: &mut Findings) {
    const NAME: &str = "session";
    const NOBODY: &str = "see the gateways below; what is enforced stays meanwhile";
    let now = match &told.link {
        Link::Open { gateway, session_epoch } => {
            let detail = format!("open with {gateway}, epoch {session_epoch}, {} updates", told.updates);
            return findings.well(NAME, detail);
        }
        Link::Polling { gateway, session_epoch } => {
            let detail = format!("polls {gateway}, epoch {session_epoch}, {} updates", told.updates);
            return findings.well(NAME, detail);
        }
        Link::Stopped => {
            let detail = "none: an operator asked that this host be enrolled anew";
            let remedy = "stop the agent, move the state folder's `identity` away and enrol with a new token: holdfast-agent enrol --help; if \
                          nobody asked, start the agent again (what is enforced stays meanwhile)";
            return findings.unwell(NAME, detail, remedy);
        }
        Link::Waiting { ms } => format!("none, next dial in {}", seconds(*ms)),
        Link::Dialling { gateway } => format!("none, dialling {gateway}"),
    };
    match (&told.refusal, &told.last_end) {
        (Some(code), end) => {
            let end = end.as_deref().unwrap_or(code);
            findings.unwell(NAME, format!("{now}; the last one ended: {end}"), remedy(code));
        }
        (None, Some(end)) => findings.unwell(NAME, format!("{now}; the last try ended: {end}"), NOBODY),
        (None, None) => findings.unwell(NAME, format!("{now}; there was none yet"), "look again in some seconds"),
    }
}

/// What to do about a refusal.
fn remedy(word: &str) -> &'static str {
    let code = RefusalCode::KNOWN.iter().find(|code| code.word() == word);
    match code.copied().unwrap_or(RefusalCode::Unknown(0)) {
        RefusalCode::HostUnknown => {
            "the plane does not know this host: it was taken out of the fleet, or the database is of before its enrolment; to come back, stop the agent, \
             move the state folder's `identity` away and enrol with a new token, under the same name or another: holdfast-agent enrol --help \
             (what is enforced stays meanwhile)"
        }
        RefusalCode::CertificateRevoked | RefusalCode::CertificateExpired => {
            "no gateway lets this identity in: ask an operator why; to come back, stop the agent, move the state folder's `identity` away \
             and enrol under a new name with a new token: holdfast-agent enrol --help (what is enforced stays meanwhile)"
        }
        RefusalCode::Superseded => {
            "another agent runs with this identity: was the state folder copied to another host? a copy is enrolled anew"
        }
        RefusalCode::WrongAuthority => {
            "the gateways speak for another plane, or for an earlier life of it than this host knows: tell its operators; was a database restored? \
             `holdfast authority bump` there, and this host follows"
        }
        RefusalCode::NoCommonProtocol => "agent and gateway are too far apart: install the same release on both",
        RefusalCode::Overloaded | RefusalCode::Draining | RefusalCode::AuthorityAway | RefusalCode::LivenessLost => {
            "it tries again by itself; if it stays so, the plane's operators see why: holdfast doctor"
        }
        RefusalCode::WrongFirstMessage
        | RefusalCode::DuplicateHello
        | RefusalCode::HelloTimeout
        | RefusalCode::Malformed
        | RefusalCode::TooLarge
        | RefusalCode::WrongDirection
        | RefusalCode::WrongChunk
        | RefusalCode::WrongSequence
        | RefusalCode::TooManyFaults
        | RefusalCode::Unknown(_) => {
            "one side does not keep to the protocol: compare both versions, and report it as a fault"
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::condition::{Condition, ConditionType};
    use holdfast_model::desired::Stamp;
    use holdfast_model::digest::Digest;
    use holdfast_model::ids::{AuthorityId, HostId};
    use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch};
    use holdfast_model::policy::Mode;
    use holdfast_model::statement::Authority;
    use uuid::Uuid;

    use super::super::seen;
    use super::*;

    fn mk_policy(proven: bool, contended: bool, fault: Option<&str>) -> PolicyStatus {
        PolicyStatus {
            applied: None,
            local: None,
            mode: Mode::Enforced,
            proven,
            on_trial: false,
            last_outcome: None,
            reads: 9,
            drifts: 6,
            last_drift: None,
            contended,
            unheard: None,
            fault: fault.map(str::to_owned),
            ledger: LedgerState::Loaded,
        }
    }

    fn mk_session(link: Link, refusal: Option<RefusalCode>, last_end: Option<&str>) -> SessionStatus {
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
        let mut told = SessionStatus::new(HostId::new(Uuid::from_u128(2)), authority);
        told.link = link;
        told.refusal = refusal.map(|code| code.word().to_owned());
        told.last_end = last_end.map(str::to_owned);
        told
    }

    #[test]
    fn an_agent_that_does_not_run_is_trouble() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut findings = Findings::default();
        assert!(look(folder.path(), &mut findings).is_none());
        let check = findings.checks.first().expect("it says something");
        assert!(!check.ok && check.remedy.as_ref().is_some_and(|remedy| remedy.contains("holdfast-agent run")));
    }

    #[test]
    fn whether_something_is_enforced_while_no_agent_runs_is_told() {
        assert!(seen(|findings| table(Ok(true), findings)).ok);
        assert!(!seen(|findings| table(Ok(false), findings)).ok);
        assert!(!seen(|findings| table(Err("no right".into()), findings)).ok);
    }

    #[test]
    fn a_ledger_that_could_not_be_used_is_trouble() {
        assert!(seen(|findings| ledger(&LedgerState::Loaded, findings)).ok);
        assert!(seen(|findings| ledger(&LedgerState::Missing, findings)).ok);
        assert!(!seen(|findings| ledger(&LedgerState::Unusable("torn".to_owned()), findings)).ok);
    }

    #[test]
    fn a_policy_that_is_not_proven_or_fought_over_is_trouble() {
        let said =
            |proven, contended, fault| seen(|findings| policy(7, &mk_policy(proven, contended, fault), findings));
        assert!(said(true, false, None).ok);
        assert!(said(false, false, None).detail.contains("not read back yet"));
        assert!(said(true, false, Some("no answer")).detail.contains("no answer"));
        let fought = said(true, true, None);
        assert!(!fought.ok && fought.detail.contains("another tool undoes"), "{fought:?}");
    }

    #[test]
    fn notices_that_cannot_be_heard_are_trouble_of_their_own() {
        let mut findings = Findings::default();
        let told = PolicyStatus { unheard: Some("no room".to_owned()), ..mk_policy(true, false, None) };
        policy(7, &told, &mut findings);
        let said: Vec<_> = findings.checks.iter().map(|check| (check.name, check.ok)).collect();
        assert_eq!(said, [("notices", false), ("agent", true)]);
    }

    #[test]
    fn a_failed_update_is_told_by_the_step_that_broke_and_what_is_in_force() {
        let stamp =
            |version| Stamp { version: Version::from_raw(version).expect("a version"), digest: Digest::of(b"x") };
        let condition = |status, reason, message: &str| Condition {
            kind: ConditionType::Applied,
            status,
            reason,
            message: message.to_owned(),
            observed_version: None,
        };
        let mut last = LastOutcome {
            outcome: OutcomeKind::Applied.word().to_owned(),
            wanted: stamp(3),
            applied: Some(stamp(2)),
            conditions: vec![
                condition(Holds::True, Reason::Done, ""),
                condition(Holds::False, Reason::NotDurable, "no space left"),
                condition(Holds::Unknown, Reason::NotReached, ""),
            ],
        };
        assert!(seen(|findings| update(&last, findings)).ok);
        last.outcome = OutcomeKind::Failed.word().to_owned();
        let failed = seen(|findings| update(&last, findings));
        assert_eq!(failed.detail, "version 3 failed: not_durable (no space left); version 2 is still in force");
        assert!(!failed.ok);
        last.applied = None;
        assert!(seen(|findings| update(&last, findings)).detail.ends_with("nothing of ours is in force"));

        let refused = mk_refused(4, Reason::BadSignature);
        let untaken = seen(|findings| super::untaken(&refused, Version::from_raw(2), findings));
        assert_eq!(untaken.detail, "version 4 of g:1 was refused as it came: bad_signature; version 2 is in force");
    }

    fn mk_refused(version: u64, reason: Reason) -> RefusedUpdate {
        let version = Version::from_raw(version).expect("a version");
        let wanted = Stamp { version, digest: Digest::of(b"x") };
        RefusedUpdate { gateway: "g:1".to_owned(), component: Component::Policy, wanted, reason, taken_since: false }
    }

    #[test]
    fn a_step_back_and_another_content_count_whatever_the_version_until_an_update_of_that_part_is_taken() {
        let applied = Version::from_raw(9);
        for reason in [Reason::Backward, Reason::SameVersionOtherContent] {
            let mut told = mk_session(Link::Waiting { ms: 70 }, None, None);
            for version in [7, 9] {
                told.last_refused = Some(mk_refused(version, reason));
                let counts = |told: &SessionStatus| is_untaken(told.last_refused.as_ref().expect("one"), applied);
                assert!(counts(&told), "{reason} {version}");
                told.take(Component::Settings);
                assert!(counts(&told), "{reason} {version}: another part's");
                told.take(Component::Policy);
                assert!(!counts(&told), "{reason} {version}");
            }
            let told = seen(|findings| untaken(&mk_refused(7, reason), applied, findings));
            let remedy = told.remedy.unwrap_or_default();
            assert!(!told.ok && remedy.contains("`holdfast authority bump`"), "{remedy}");
        }
        for reason in [Reason::WrongBase, Reason::BadSignature] {
            assert!(is_untaken(&mk_refused(10, reason), applied), "{reason}");
            assert!(!is_untaken(&mk_refused(9, reason), applied), "{reason}: as new is in force");
        }
    }

    #[test]
    fn a_session_is_well_while_it_is_open_and_every_refusal_has_something_to_do() {
        let open = Link::Open { gateway: "g:1".to_owned(), session_epoch: SessionEpoch::from_raw(4) };
        assert!(seen(|findings| session(&mk_session(open, None, Some("drained")), findings)).ok);
        let waiting = || Link::Waiting { ms: 70 };
        for code in RefusalCode::KNOWN {
            let told = mk_session(waiting(), Some(*code), Some("the gateway ended it"));
            assert!(!seen(|findings| session(&told, findings)).ok, "{code}");
        }
        let revoked = mk_session(waiting(), Some(RefusalCode::CertificateRevoked), None);
        let revoked = seen(|findings| session(&revoked, findings));
        assert!(revoked.detail.contains("certificate_revoked"), "{revoked:?}");
        assert!(revoked.remedy.is_some_and(|remedy| remedy.contains("new token")));
        let away = mk_session(Link::Dialling { gateway: "g:1".to_owned() }, None, Some("connection refused"));
        assert!(seen(|findings| session(&away, findings)).detail.contains("connection refused"));
        assert!(!seen(|findings| session(&mk_session(waiting(), None, None), findings)).ok);
    }
}
