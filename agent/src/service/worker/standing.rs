//! How the policy of this host stands: every condition, as it is told to gateways.
//!
//! - What a failed attempt came to is told of that attempt's version; what stands, of the version that is in force.
//! - What was read from the disk and verified there is inferred, also that a gateway was reached before this start; what was seen in the kernel, or
//!   heard of a gateway, is observed.
//! - It is told before the outcome of the attempt that it tells of.
//! - It counts for so long and no longer: a thread that hangs tells nothing, and what it saw may have ended by itself since.

use std::time::Instant;

use holdfast_model::condition::{Basis, Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::policy::Mode;
use holdfast_model::report::{ComponentReport, StatedCondition};
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_session::agent::Settling;

use super::LedgerState;
use super::thread::Thread;
use crate::engine::Outcome;
use crate::service::forwarding::Forwarded;

/// Now, by this host's own clock.
pub(crate) fn unix_ms() -> u64 {
    u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

/// How the policy stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    pub(crate) report: ComponentReport,
    pub(crate) settling: Settling,
    /// What is held, and under whose authority.
    pub(super) held: Option<(Option<Authority>, Stamp)>,
    /// Until when it counts.
    pub(crate) good_until: Instant,
}

impl Standing {
    /// Before anything was looked at.
    pub(super) fn unknown() -> Self {
        let report = ComponentReport::unreached(Component::Policy, None, 0);
        Self { report, settling: Settling::Stands, held: None, good_until: Instant::now() }
    }

    /// The same as it is at a moment: once it counts no more, nothing is known of what is read of the kernel.
    #[must_use]
    pub(crate) fn at(mut self, now: Instant) -> Self {
        let is_over = now >= self.good_until;
        let of_kernel = [ConditionType::Verified, ConditionType::ForwardingCovered, ConditionType::NoDrift];
        let is_told = |one: &&mut StatedCondition| {
            is_over && of_kernel.contains(&one.condition.kind) && one.condition.status != Holds::Unknown
        };
        for one in self.report.conditions.iter_mut().filter(is_told) {
            (one.condition.status, one.condition.reason) = (Holds::Unknown, Reason::ReadBackFailed);
            "the thread that reads the kernel does not answer".clone_into(&mut one.condition.message);
            (one.basis, one.observed_at_ms) = (Basis::Observed, unix_ms());
        }
        self
    }
}

/// The last attempt since the agent started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attempted {
    kind: OutcomeKind,
    wanted: Stamp,
    conditions: Vec<Condition>,
    at_ms: u64,
    /// Whether the kernel took it, and nothing was put in its place since.
    is_in_force: bool,
}

/// What is known of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    /// It was read and holds what it should.
    Holds,
    /// It was read, holds something else, and could not be put right.
    Differs,
    /// Somebody writes again and again; it is not read until the slow tick, and was looked at before that.
    Doubted,
    /// It could not be read.
    Unread,
}

/// What the worker remembers for it.
#[derive(Debug)]
pub(super) struct Memory {
    attempt: Option<Attempted>,
    /// Whether the table was found to hold something else and could not be put right.
    pub(super) differs: bool,
    /// Whether the disk took a whole state since the start.
    is_kept_since: bool,
    /// Whether what it took was found to be gone, and could not be written again.
    pub(super) is_lost: bool,
    /// When the table was last looked at, or seen not to have changed since.
    seen_at_ms: u64,
    /// What passes through the host, for a policy that enforces or does not, and when that was looked at.
    forwarded: Option<(bool, Forwarded, u64)>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            attempt: None,
            differs: false,
            is_kept_since: false,
            is_lost: false,
            seen_at_ms: unix_ms(),
            forwarded: None,
        }
    }

    /// An attempt ended.
    pub(super) fn attempted(&mut self, outcome: &Outcome) {
        self.is_kept_since |= outcome.kind != OutcomeKind::Failed;
        let (kind, wanted, conditions) = (outcome.kind, outcome.wanted, outcome.conditions.clone());
        let is_in_force = kind == OutcomeKind::Applied;
        self.attempt = Some(Attempted { kind, wanted, conditions, at_ms: unix_ms(), is_in_force });
    }

    /// A local policy takes the place of what the last attempt led to, or was in it.
    pub(super) fn displaced(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.is_in_force = false;
        }
    }

    /// What the last attempt led to is gone back from.
    pub(super) fn taken_back(&mut self) {
        self.attempt = None;
    }

    /// What passes through is to be looked at anew.
    pub(super) fn forget_forwarded(&mut self) {
        self.forwarded = None;
    }
}

/// Everything that the conditions follow from.
#[derive(Clone, Debug)]
struct Facts<'a> {
    held: Option<Stamp>,
    is_local: bool,
    attempt: Option<&'a Attempted>,
    table: Table,
    seen_at_ms: u64,
    is_contended: bool,
    /// Whether the kernel tells of changes.
    is_heard: bool,
    on_trial: bool,
    /// Whether this process had an echo under what is held.
    is_echoed: bool,
    is_ledger_whole: bool,
    forwarded: Forwarded,
    forwarded_at_ms: u64,
    now_ms: u64,
}

impl Thread {
    /// Tells how the policy stands; `has_looked` if the table was just written or read.
    pub(super) fn tell_standing(&mut self, has_looked: bool) {
        let now_ms = unix_ms();
        if has_looked {
            self.memory.seen_at_ms = now_ms;
        }
        let is_enforcing = self.engine.in_force().is_some_and(|(body, _)| body.mode != Mode::Visibility);
        let known = self.memory.forwarded.filter(|(of, ..)| *of == is_enforcing);
        let (of, forwarded, forwarded_at_ms) = known
            .unwrap_or_else(|| (is_enforcing, Forwarded::observe(is_enforcing, &self.engine.kept().uplinks), now_ms));
        self.memory.forwarded = Some((of, forwarded, forwarded_at_ms));
        let is_contended = self.drift.is_contended(Instant::now());
        // Put right by whatever it was: an update, a local policy.
        self.memory.differs &= !self.engine.is_proven();
        let table = match (self.engine.is_proven(), self.memory.differs, is_contended) {
            (true, ..) => Table::Holds,
            (false, true, _) => Table::Differs,
            (false, false, true) => Table::Doubted,
            (false, false, false) => Table::Unread,
        };
        let (on_trial, is_echoed) = (self.engine.on_trial().is_some(), self.engine.owes_echo().is_none());
        let facts = Facts {
            held: self.engine.held().map(|held| held.entry.stamp),
            is_local: self.engine.local().is_some(),
            attempt: self.memory.attempt.as_ref(),
            table,
            seen_at_ms: self.memory.seen_at_ms,
            is_contended,
            is_heard: self.unheard.is_none(),
            on_trial,
            is_echoed,
            is_ledger_whole: !self.memory.is_lost
                && (self.memory.is_kept_since || !matches!(self.ledger, LedgerState::Unusable(_))),
            forwarded,
            forwarded_at_ms,
            now_ms,
        };
        // An echo takes a few round trips.
        let settling = if on_trial || !is_echoed { Settling::Settles } else { Settling::Stands };
        let held = self.engine.held().map(|held| &held.entry);
        let held = held.map(|held| (held.origin.map(|origin| origin.authority), held.stamp));
        let good_until = Instant::now() + self.good_for;
        self.told.standing.send_replace(Standing { report: report(&facts), settling, held, good_until });
    }
}

fn report(facts: &Facts<'_>) -> ComponentReport {
    let applied = facts.held.filter(|_| !facts.is_local);
    let kinds = ConditionType::of(Component::Policy).iter();
    ComponentReport { component: Component::Policy, applied, conditions: kinds.map(|kind| one(*kind, facts)).collect() }
}

fn one(kind: ConditionType, facts: &Facts<'_>) -> StatedCondition {
    if let Some(stated) = of_other_attempt(kind, facts) {
        return stated;
    }
    let (status, reason, basis, observed_at_ms) = of_held(kind, facts);
    let observed_version = facts.held.map(|held| held.version);
    let told = [
        (Reason::OnTrial, "no gateway gave an echo under it yet"),
        (Reason::ForwardedNotEnforced, "no uplink is declared, or not the one that leads out"),
        (
            Reason::LedgerUnusable,
            "it is damaged or gone; the next state that is taken begins a new file, and sets this one aside",
        ),
    ];
    let inferred = match (basis, kind) {
        (Basis::Inferred, ConditionType::NoDrift) => "the kernel's notices are not heard: the slow tick finds changes",
        (Basis::Inferred, ConditionType::Confirmed) => {
            "it was confirmed before; no gateway gave an echo since the start"
        }
        (Basis::Inferred | Basis::Observed, _) => "",
    };
    let message = told.iter().find(|(of, _)| *of == reason).map_or(inferred, |(_, message)| *message);
    let condition = Condition { kind, status, reason, message: message.to_owned(), observed_version };
    StatedCondition { condition, basis, observed_at_ms }
}

/// What an attempt came to that did not lead to what is in force.
fn of_other_attempt(kind: ConditionType, facts: &Facts<'_>) -> Option<StatedCondition> {
    let attempt = facts.attempt.filter(|attempt| attempt.kind != OutcomeKind::Applied)?;
    let is_other = facts.is_local || Some(attempt.wanted) != facts.held;
    let condition = attempt.conditions.iter().find(|condition| condition.kind == kind).filter(|_| is_other)?;
    Some(StatedCondition { condition: condition.clone(), basis: Basis::Observed, observed_at_ms: attempt.at_ms })
}

/// What is so of what is held.
fn of_held(kind: ConditionType, facts: &Facts<'_>) -> (Holds, Reason, Basis, u64) {
    let led_here = |attempt: &&Attempted| attempt.kind != OutcomeKind::Failed && Some(attempt.wanted) == facts.held;
    let attempt = facts.attempt.filter(led_here);
    let (basis, attempted_at_ms) =
        attempt.map_or((Basis::Inferred, facts.now_ms), |attempt| (Basis::Observed, attempt.at_ms));
    let observed = |status, reason, at_ms| (status, reason, Basis::Observed, at_ms);
    let (now, seen) = (facts.now_ms, facts.seen_at_ms);
    if kind == ConditionType::LedgerReadable {
        return match facts.is_ledger_whole {
            true => observed(Holds::True, Reason::Done, now),
            false => observed(Holds::False, Reason::LedgerUnusable, now),
        };
    }
    if facts.held.is_none() {
        return observed(Holds::Unknown, Reason::NotReached, now);
    }
    match kind {
        ConditionType::SnapshotAccepted => (Holds::True, Reason::Done, basis, attempted_at_ms),
        ConditionType::Applied if facts.is_local => observed(Holds::False, Reason::LocalOverride, now),
        ConditionType::Applied if facts.table == Table::Holds => observed(Holds::True, Reason::Done, seen),
        // That the kernel took it was seen; whether it is still there is another condition's matter.
        ConditionType::Applied => match attempt.filter(|attempt| attempt.is_in_force) {
            Some(attempt) => observed(Holds::True, Reason::Done, attempt.at_ms),
            None => observed(Holds::Unknown, of_table(facts.table, seen).1, seen),
        },
        ConditionType::Verified if facts.is_local => observed(Holds::Unknown, Reason::NotReached, now),
        ConditionType::Verified => of_table(facts.table, seen),
        ConditionType::Confirmed if facts.is_local => observed(Holds::Unknown, Reason::LocalOverride, now),
        ConditionType::Confirmed if facts.on_trial => observed(Holds::Unknown, Reason::OnTrial, now),
        ConditionType::Confirmed if !facts.is_echoed => (Holds::True, Reason::Done, Basis::Inferred, now),
        ConditionType::Confirmed | ConditionType::LedgerReadable => observed(Holds::True, Reason::Done, now),
        ConditionType::ForwardingCovered => {
            let (status, reason) = match facts.forwarded {
                Forwarded::Nothing | Forwarded::Enforced => (Holds::True, Reason::Done),
                Forwarded::NotAsked => (Holds::Unknown, Reason::NotReached),
                Forwarded::NotEnforced => (Holds::Unknown, Reason::ForwardedNotEnforced),
            };
            observed(status, reason, facts.forwarded_at_ms)
        }
        ConditionType::NoDrift if facts.is_contended => observed(Holds::False, Reason::Contended, now),
        ConditionType::NoDrift => {
            let (status, reason, _, seen) = of_table(facts.table, seen);
            // Between two ticks nobody would hear of a change.
            let basis = if facts.is_heard { Basis::Observed } else { Basis::Inferred };
            (status, reason, basis, seen)
        }
    }
}

fn of_table(table: Table, seen_at_ms: u64) -> (Holds, Reason, Basis, u64) {
    let (status, reason) = match table {
        Table::Holds => (Holds::True, Reason::Done),
        Table::Differs => (Holds::False, Reason::ReadBackDiffers),
        Table::Doubted => (Holds::Unknown, Reason::Contended),
        Table::Unread => (Holds::Unknown, Reason::ReadBackFailed),
    };
    (status, reason, Basis::Observed, seen_at_ms)
}

#[cfg(test)]
mod tests {
    use holdfast_model::digest::Digest;
    use holdfast_model::numbers::{UpdateSeq, Version};
    use holdfast_model::report::HostReport;

    use super::*;

    fn mk_stamp(version: u64) -> Stamp {
        Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(b"body") }
    }

    /// Version 2 is in force, was tried, read back and confirmed.
    fn mk_facts(attempt: Option<&Attempted>) -> Facts<'_> {
        Facts {
            held: Some(mk_stamp(2)),
            is_local: false,
            attempt,
            table: Table::Holds,
            seen_at_ms: 5,
            is_contended: false,
            is_heard: true,
            on_trial: false,
            is_echoed: true,
            is_ledger_whole: true,
            forwarded: Forwarded::Nothing,
            forwarded_at_ms: 6,
            now_ms: 9,
        }
    }

    /// The same, where the table holds something else.
    fn mk_drifted(attempt: Option<&Attempted>) -> Facts<'_> {
        Facts { table: Table::Differs, ..mk_facts(attempt) }
    }

    fn mk_attempt(kind: OutcomeKind, version: u64, failed: Option<ConditionType>) -> Attempted {
        let condition = |one: ConditionType| {
            let (status, reason) = match failed.map(|failed| one.cmp(&failed)) {
                None | Some(std::cmp::Ordering::Less) => (Holds::True, Reason::Done),
                Some(std::cmp::Ordering::Equal) => (Holds::False, Reason::KernelRefused),
                Some(std::cmp::Ordering::Greater) => (Holds::Unknown, Reason::NotReached),
            };
            let observed_version = Version::from_raw(version);
            Condition { kind: one, status, reason, message: String::new(), observed_version }
        };
        let conditions = ConditionType::OF_ATTEMPT.map(condition).into();
        let is_in_force = kind == OutcomeKind::Applied;
        Attempted { kind, wanted: mk_stamp(version), conditions, at_ms: 3, is_in_force }
    }

    fn told(facts: &Facts<'_>) -> Vec<(ConditionType, Holds, Reason, Basis, u64)> {
        let report = report(facts);
        let mut others = HostReport::of_health(&[], UpdateSeq::ZERO, 0).components;
        *others.first_mut().expect("the policy") = report.clone();
        let whole = HostReport { answered: UpdateSeq::ZERO, components: others };
        assert_eq!(whole.check(), Ok(()), "every condition, once");
        let one = |stated: &StatedCondition| {
            let Condition { kind, status, reason, observed_version, .. } = &stated.condition;
            (*kind, *status, *reason, stated.basis, observed_version.map_or(0, Version::raw))
        };
        report.conditions.iter().map(one).collect()
    }

    fn of(facts: &Facts<'_>, kind: ConditionType) -> (Holds, Reason, Basis) {
        let found = told(facts).into_iter().find(|one| one.0 == kind).expect("every condition");
        (found.1, found.2, found.3)
    }

    const YES: (Holds, Reason, Basis) = (Holds::True, Reason::Done, Basis::Observed);

    #[test]
    fn what_a_thread_told_that_does_not_answer_any_more_counts_for_so_long_and_then_nothing_is_known_of_the_kernel() {
        let (attempt, now) = (mk_attempt(OutcomeKind::Applied, 2, None), Instant::now());
        let good_until = now + std::time::Duration::from_secs(90);
        let mk =
            |facts: &Facts<'_>| Standing { report: report(facts), settling: Settling::Stands, held: None, good_until };
        let told = mk(&mk_facts(Some(&attempt)));
        assert_eq!(told.clone().at(good_until - std::time::Duration::from_millis(1)), told);
        let of_kernel = [ConditionType::Verified, ConditionType::ForwardingCovered, ConditionType::NoDrift];
        for one in told.at(good_until).report.conditions {
            let Condition { kind, status, reason, observed_version, .. } = one.condition;
            let wanted = match of_kernel.contains(&kind) {
                true => (Holds::Unknown, Reason::ReadBackFailed),
                false => (Holds::True, Reason::Done),
            };
            assert_eq!(((status, reason), observed_version.map(Version::raw)), (wanted, Some(2)), "{kind}");
        }
        // What was unknown before stays so for its own reason.
        let war = mk(&Facts { table: Table::Doubted, ..mk_facts(Some(&attempt)) });
        let verified =
            war.at(good_until).report.conditions.into_iter().find(|one| one.condition.kind == ConditionType::Verified);
        assert_eq!(verified.map(|one| one.condition.reason), Some(Reason::Contended));
    }

    #[test]
    fn all_is_observed_after_an_attempt_and_what_the_disk_vouches_for_is_inferred_before_one() {
        let attempt = mk_attempt(OutcomeKind::Applied, 2, None);
        for (kind, status, reason, basis, version) in told(&mk_facts(Some(&attempt))) {
            assert_eq!(((status, reason, basis), version), (YES, 2), "{kind}");
        }
        let inferred = (Holds::True, Reason::Done, Basis::Inferred);
        let started = Facts { is_echoed: false, ..mk_facts(None) };
        assert_eq!(of(&started, ConditionType::Confirmed), inferred, "no gateway was reached since the start");
        assert_eq!(of(&started, ConditionType::SnapshotAccepted), inferred);
        assert_eq!(of(&started, ConditionType::Applied), YES, "the kernel was read and holds it");
        let unread = Facts { table: Table::Unread, ..started };
        let failed = (Holds::Unknown, Reason::ReadBackFailed, Basis::Observed);
        assert_eq!(of(&unread, ConditionType::Applied), failed, "nobody saw that the kernel took it");
        assert_eq!(of(&unread, ConditionType::Verified), failed);
    }

    #[test]
    fn what_the_kernel_was_not_seen_to_take_is_not_told_as_applied() {
        let unknown = |reason| (Holds::Unknown, reason, Basis::Observed);
        let (applied, mut memory) = (mk_attempt(OutcomeKind::Applied, 2, None), Memory::new());
        assert_eq!(of(&mk_drifted(Some(&applied)), ConditionType::Applied), YES, "it was, whatever came after it");
        // Kept beside a local policy, or sent again and refused, or in force before a local policy that came and went.
        let kept = mk_attempt(OutcomeKind::RetainedLocalOverride, 2, Some(ConditionType::Applied));
        let refused = mk_attempt(OutcomeKind::Failed, 2, Some(ConditionType::Applied));
        memory.attempt = Some(applied);
        memory.displaced();
        for attempt in [Some(&kept), Some(&refused), memory.attempt.as_ref(), None] {
            let facts = mk_drifted(attempt);
            assert_eq!(of(&facts, ConditionType::Applied), unknown(Reason::ReadBackDiffers), "{attempt:?}");
            let war = Facts { table: Table::Doubted, ..facts.clone() };
            assert_eq!(of(&war, ConditionType::Applied), unknown(Reason::Contended), "{attempt:?}");
            let back = Facts { table: Table::Holds, ..facts };
            assert_eq!(of(&back, ConditionType::Applied), YES, "it was read and is there: {attempt:?}");
        }
        let accepted = (Holds::True, Reason::Done, Basis::Observed);
        assert_eq!(of(&mk_drifted(Some(&kept)), ConditionType::SnapshotAccepted), accepted, "it was, by that attempt");
    }

    #[test]
    fn a_host_that_holds_nothing_reached_nothing() {
        let facts = Facts { held: None, table: Table::Unread, ..mk_facts(None) };
        for (kind, status, reason, _, version) in told(&facts) {
            let wanted = match kind == ConditionType::LedgerReadable {
                true => (Holds::True, Reason::Done),
                false => (Holds::Unknown, Reason::NotReached),
            };
            assert_eq!(((status, reason), version), (wanted, 0), "{kind}");
        }
    }

    #[test]
    fn a_failed_attempt_is_told_of_its_own_version_and_what_stands_of_the_one_in_force() {
        let attempt = mk_attempt(OutcomeKind::Failed, 3, Some(ConditionType::Applied));
        let found = told(&mk_facts(Some(&attempt)));
        let versions: Vec<u64> = found.iter().map(|one| one.4).collect();
        assert_eq!(versions, [3, 3, 3, 2, 2, 2, 2]);
        assert_eq!((found[1].1, found[1].2), (Holds::False, Reason::KernelRefused));
        assert_eq!((found[2].1, found[2].2), (Holds::Unknown, Reason::NotReached));
        assert_eq!(report(&mk_facts(Some(&attempt))).applied, Some(mk_stamp(2)));
    }

    #[test]
    fn what_was_applied_and_gone_back_from_is_told_of_no_more() {
        let attempt = mk_attempt(OutcomeKind::Applied, 3, None);
        assert!(told(&mk_facts(Some(&attempt))).iter().all(|one| one.4 == 2), "it is not in force");
    }

    #[test]
    fn each_thing_that_is_not_as_it_should_be_has_its_condition_and_its_reason() {
        let attempt = mk_attempt(OutcomeKind::Applied, 2, None);
        let facts = mk_facts(Some(&attempt));
        let no = |reason| (Holds::False, reason, Basis::Observed);
        let unknown = |reason| (Holds::Unknown, reason, Basis::Observed);
        let trial = Facts { on_trial: true, ..facts.clone() };
        assert_eq!(of(&trial, ConditionType::Confirmed), unknown(Reason::OnTrial));
        let ledger = Facts { is_ledger_whole: false, ..facts.clone() };
        assert_eq!(of(&ledger, ConditionType::LedgerReadable), no(Reason::LedgerUnusable));
        let forwards = Facts { forwarded: Forwarded::NotEnforced, ..facts.clone() };
        assert_eq!(of(&forwards, ConditionType::ForwardingCovered), unknown(Reason::ForwardedNotEnforced));
        let visible = Facts { forwarded: Forwarded::NotAsked, ..facts.clone() };
        assert_eq!(of(&visible, ConditionType::ForwardingCovered), unknown(Reason::NotReached));
        let differs = Facts { table: Table::Differs, ..facts.clone() };
        assert_eq!(of(&differs, ConditionType::Verified), no(Reason::ReadBackDiffers));
        assert_eq!(of(&differs, ConditionType::NoDrift), no(Reason::ReadBackDiffers));
        let unheard = Facts { is_heard: false, ..facts.clone() };
        assert_eq!(of(&unheard, ConditionType::NoDrift), (Holds::True, Reason::Done, Basis::Inferred), "nobody hears");
        assert_eq!(of(&unheard, ConditionType::Verified), YES, "it was read");
        let war = Facts { table: Table::Doubted, is_contended: true, ..facts.clone() };
        assert_eq!(of(&war, ConditionType::Verified), unknown(Reason::Contended));
        assert_eq!(of(&war, ConditionType::NoDrift), no(Reason::Contended));
        let local = Facts { is_local: true, ..facts };
        assert_eq!(of(&local, ConditionType::Applied), no(Reason::LocalOverride));
        assert_eq!(of(&local, ConditionType::Verified), unknown(Reason::NotReached));
        assert_eq!(of(&local, ConditionType::Confirmed), unknown(Reason::LocalOverride));
        assert_eq!(report(&local).applied, None, "what is held is not in force");
    }
}
