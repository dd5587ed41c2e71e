//! What became of an operation on each of its hosts: what was seen for good, and of the rest what the fleet as it is judged amounts to.
//!
//! - The rules are the model's ([`outcome_of`]); here evidence is put in their form.
//! - A part of an operation that ended is told as it was seen then, never as it is now.
//! - What overwrote an operation is looked up after the fleet was read: evidence of what overwrote it is then never taken for its own.
//! - A fleet that was read before every host was rendered with an operation says nothing of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_api::operation::OperationHosts;
use holdfast_events::OperationState;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{Revision, Version};
use holdfast_model::operation::{HostOutcome, OutcomeCounts, Rendered, TargetFacts, outcome_of};
use holdfast_model::status::{Counts, FRESH_MS, State, Verdict};
use holdfast_store::operation::{Operation, Seen, Target};
use holdfast_store::status::{ComponentStatus, Signed};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::door::Shared;
use super::fleet::{JudgedComponent, JudgedFleet, JudgedHost};
use super::refuse::Refusal;
use super::report::applied_of;

/// One component of a host that an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) component: Component,
    pub(crate) stamp: Stamp,
    pub(crate) outcome: HostOutcome,
    /// Whether that is stored already.
    is_stored: bool,
    /// Whether the host did not take it, perhaps not for long.
    is_failing: bool,
    /// Whether a condition that does not block is false of what is in force.
    is_degraded: bool,
}

/// One host that an operation waits for.
#[derive(Clone, Debug)]
pub(crate) struct HostLook<'a> {
    pub(crate) host: HostId,
    /// Absent if it is a host no more.
    pub(crate) judged: Option<&'a JudgedHost>,
    /// That of its parts that is told of all of them.
    pub(crate) outcome: HostOutcome,
    pub(crate) parts: Vec<Part>,
}

/// Whether a host that is waited for is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// It was heard lately.
    Heard,
    /// It has no open session.
    Offline,
    /// Its session is open, and nothing was heard in it for a while.
    Silent,
}

impl HostLook<'_> {
    /// Whether the host is there.
    pub(crate) fn presence(&self) -> Presence {
        let session = self.judged.and_then(|judged| judged.status.session.as_ref());
        match session.and_then(|session| session.heard_ms_ago) {
            None => Presence::Offline,
            Some(ms) if ms >= FRESH_MS => Presence::Silent,
            Some(_) => Presence::Heard,
        }
    }

    /// Whether it did not take something, perhaps not for long.
    pub(crate) fn is_failing(&self) -> bool {
        self.parts.iter().any(|part| part.is_failing)
    }

    /// What was seen of it and is not stored: what cannot change any more, or at the end of the operation everything that is known.
    pub(crate) fn unstored(&self, is_end: bool) -> impl Iterator<Item = Seen> {
        let is_due = move |part: &&Part| {
            let is_known = part.outcome != HostOutcome::Pending;
            !part.is_stored && is_known && (is_end || !part.outcome.may_change())
        };
        let seen = |part: &Part| Seen { host: self.host, component: part.component, outcome: part.outcome };
        self.parts.iter().filter(is_due).map(seen)
    }
}

/// What became of an operation, host by host in the order of their ids; nobody before every host is rendered with it.
pub(crate) async fn look<'a>(
    door: &Shared,
    operation: &Operation,
    overwritten_at: Option<Revision>,
    fleet: &'a JudgedFleet,
) -> Result<Vec<HostLook<'a>>, Refusal> {
    if !operation.is_rendered {
        return Ok(Vec::new());
    }
    let targets = door.store.operation_targets(operation.id).await?;
    let between = if operation.state.is_terminal() { Vec::new() } else { between(&targets, fleet) };
    let revisions = if between.is_empty() { BTreeMap::new() } else { door.store.revisions_of(between).await? };
    let (revision, now) = (operation.revision, OffsetDateTime::now_utc());
    Ok(judged(operation.state, &targets, &Ground { revision, overwritten_at, fleet, revisions, now }))
}

/// The fleet by a read that began at `since` or later, and what has something else in the place of what an operation changed.
pub(crate) async fn evidence(
    door: &Shared,
    operation: &Operation,
    since: Instant,
) -> Result<(Arc<JudgedFleet>, Option<Revision>), Refusal> {
    in_turn(door.fleet.read_since(since), overwritten_at(door, operation)).await
}

/// One after the other: what the second says is no older than what the first does.
async fn in_turn<A, B>(
    first: impl Future<Output = Result<A, Refusal>>,
    second: impl Future<Output = Result<B, Refusal>>,
) -> Result<(A, B), Refusal> {
    let first = first.await?;
    Ok((first, second.await?))
}

/// The first later revision that has something else in the place of what an operation changed.
async fn overwritten_at(door: &Shared, operation: &Operation) -> Result<Option<Revision>, Refusal> {
    if operation.state.is_terminal() {
        return Ok(None);
    }
    Ok(door.store.overwritten_at(vec![operation.revision]).await?.get(&operation.revision).copied())
}

/// How many hosts there are of each outcome, for people and programs.
pub(crate) fn counts(hosts: &[&HostLook<'_>]) -> OperationHosts {
    let by = hosts.iter().map(|host| host.outcome).collect::<OutcomeCounts>();
    let pending = || hosts.iter().filter(|host| host.outcome == HostOutcome::Pending);
    let among = |presence| pending().filter(|host| host.presence() == presence).count() as u64;
    let is_degraded =
        |host: &&&HostLook<'_>| host.outcome == HostOutcome::Applied && host.parts.iter().any(|part| part.is_degraded);
    let OutcomeCounts { total, applied, inactive, cancelled, superseded, pending: waited_for, failed } = by;
    OperationHosts {
        total,
        applied,
        inactive,
        failed,
        superseded,
        cancelled,
        pending: waited_for,
        offline: among(Presence::Offline),
        unknown: among(Presence::Silent),
        degraded: hosts.iter().filter(is_degraded).count() as u64,
    }
}

/// What targets are judged by.
pub(super) struct Ground<'a> {
    /// That of the operation.
    pub(super) revision: Revision,
    pub(super) overwritten_at: Option<Revision>,
    pub(super) fleet: &'a JudgedFleet,
    /// The revisions of what hosts have that is neither the newest nor what is waited for.
    pub(super) revisions: BTreeMap<(HostId, Component), Revision>,
    pub(super) now: OffsetDateTime,
}

impl Ground<'_> {
    /// Whether the fleet was read before every host was rendered with the operation: hosts may be missing in it, and what it has of others is of before.
    fn is_too_old(&self) -> bool {
        self.fleet.rendered_revision < self.revision
    }
}

/// Judges targets, which are in the order of their hosts.
pub(super) fn judged<'a>(state: OperationState, targets: &[Target], ground: &Ground<'a>) -> Vec<HostLook<'a>> {
    let mut hosts = Vec::new();
    for targets in targets.chunk_by(|one, other| one.host == other.host) {
        let Some(first) = targets.first() else { continue };
        let judged = find(ground.fleet, first.host);
        let parts: Vec<Part> = targets.iter().map(|target| part(state, target, judged, ground)).collect();
        let outcome = parts.iter().map(|part| part.outcome).max().unwrap_or(HostOutcome::Pending);
        hosts.push(HostLook { host: first.host, judged, outcome, parts });
    }
    hosts
}

fn part(state: OperationState, target: &Target, judged: Option<&JudgedHost>, ground: &Ground<'_>) -> Part {
    let evidence = judged.and_then(|judged| Evidence::of(judged, target.component));
    let facts = TargetFacts {
        target: Rendered { version: target.stamp.version, revision: target.revision },
        overwritten_at: ground.overwritten_at,
        is_enrolled: judged.is_some(),
        latest: evidence.as_ref().and_then(Evidence::latest),
        in_force: evidence.as_ref().and_then(|evidence| evidence.in_force(target, ground)),
        has_failed: evidence.as_ref().is_some_and(|evidence| evidence.has_failed_long(ground.now)),
        is_stopped: target.is_stopped,
    };
    let outcome = match (target.seen, state) {
        (Some(seen), _) => seen,
        (None, OperationState::Accepted) if ground.is_too_old() => HostOutcome::Pending,
        (None, OperationState::Accepted) => outcome_of(&facts),
        // Nobody waits for it any more.
        (None, OperationState::Cancelled) => HostOutcome::Cancelled,
        // It had not answered when the operation ended.
        (
            None,
            OperationState::Applied | OperationState::Failed | OperationState::Inactive | OperationState::Superseded,
        ) => HostOutcome::Pending,
    };
    let now = evidence.as_ref().map(|evidence| evidence.judged.state);
    Part {
        component: target.component,
        stamp: target.stamp,
        outcome,
        is_stored: target.seen.is_some(),
        is_failing: now == Some(State::Failed),
        is_degraded: now == Some(State::Degraded),
    }
}

/// What is known of one component of a host.
struct Evidence<'a> {
    host: &'a JudgedHost,
    status: &'a ComponentStatus,
    judged: &'a JudgedComponent,
    /// Whether it is proven to have what was rendered for it last.
    is_in_force: bool,
}

impl<'a> Evidence<'a> {
    fn of(host: &'a JudgedHost, component: Component) -> Option<Self> {
        let mut pairs = host.status.components.iter().zip(&host.components);
        let (status, judged) = pairs.find(|(status, _)| status.component == component)?;
        let JudgedComponent { state, missing, signature_valid: _ } = *judged;
        let is_in_force = Verdict { state, missing }.is_in_force();
        Some(Self { host, status, judged, is_in_force })
    }

    fn latest(&self) -> Option<Rendered> {
        let (stamp, revision) = self.status.latest.zip(self.status.latest_revision)?;
        Some(Rendered { version: stamp.version, revision })
    }

    /// What the host is proven to have in force, with its content.
    fn proven(&self) -> Option<Stamp> {
        if self.is_in_force {
            return self.status.latest;
        }
        let applied = applied_of(self.host, self.status, *self.judged)?.0?;
        if self.status.latest == Some(applied) {
            return None;
        }
        // The same derivation, as if what it has were the newest.
        let as_if = ComponentStatus { latest: Some(applied), ..self.status.clone() };
        let trusts = |_: &_, signed: Signed<'_>| match signed {
            Signed::Outcome(_) => self.judged.signature_valid,
            Signed::Report(_) => self.host.report_valid,
        };
        self.host.status.verdict_of(&as_if, &trusts).is_in_force().then_some(applied)
    }

    /// The same, where it is what is waited for, or of a revision that is known.
    fn in_force(&self, target: &Target, ground: &Ground<'_>) -> Option<Rendered> {
        let stamp = self.proven()?;
        if stamp.version == target.stamp.version {
            let is_it = stamp.digest == target.stamp.digest;
            return is_it.then_some(Rendered { version: stamp.version, revision: target.revision });
        }
        if self.status.latest == Some(stamp) {
            return self.latest();
        }
        let revision = *ground.revisions.get(&(target.host, target.component))?;
        Some(Rendered { version: stamp.version, revision })
    }

    fn has_failed_long(&self, now: OffsetDateTime) -> bool {
        super::fleet::has_failed_long(&self.host.status, self.status, self.judged, now)
    }
}

/// The state of a host with the versions that a revision gave it: what came later and failed, or is on its way, takes nothing from a host that is proven
/// to have them, or later ones.
pub(crate) fn state_since(host: &JudgedHost, versions: &[(Component, Version)]) -> State {
    let one = |(component, version): &(Component, Version)| {
        let evidence = Evidence::of(host, *component)?;
        let has_it = !evidence.is_in_force && evidence.proven().is_some_and(|stamp| stamp.version >= *version);
        Some(if has_it { State::Converged } else { evidence.judged.state })
    };
    versions.iter().filter_map(one).collect::<Counts>().roll_up()
}

/// What hosts have that is newer than what is waited for, and not the newest: its revision is to be looked up.
fn between(targets: &[Target], fleet: &JudgedFleet) -> Vec<(HostId, Component, Stamp)> {
    let one = |target: &Target| {
        let evidence = Evidence::of(find(fleet, target.host)?, target.component)?;
        let stamp = evidence.proven()?;
        let is_between = stamp.version > target.stamp.version && evidence.status.latest != Some(stamp);
        is_between.then_some((target.host, target.component, stamp))
    };
    targets.iter().filter(|target| target.seen.is_none()).filter_map(one).collect()
}

/// Hosts are in the order of their ids.
fn find(fleet: &JudgedFleet, host: HostId) -> Option<&JudgedHost> {
    let at = fleet.hosts.binary_search_by_key(&host, |judged| judged.status.host).ok()?;
    fleet.hosts.get(at)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn what_overwrote_an_operation_is_looked_up_after_the_evidence_about_it() {
        let asked = Mutex::new(Vec::new());
        let ask = async |what: &'static str| {
            asked.lock().expect("a lock").push(format!("{what} is asked"));
            tokio::task::yield_now().await;
            asked.lock().expect("a lock").push(format!("{what} is told"));
            Ok(what)
        };
        let told = in_turn(ask("fleet"), ask("overwriting")).await.expect("both answer");
        assert_eq!(told, ("fleet", "overwriting"));
        let order = asked.into_inner().expect("a lock");
        assert_eq!(order, ["fleet is asked", "fleet is told", "overwriting is asked", "overwriting is told"]);
    }
}
