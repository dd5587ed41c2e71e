//! The fleet as it is judged: stored evidence, signatures checked, states derived.
//!
//! - The derivation is the model's; here only whether an outcome's signature is its host's is added.
//! - A signature that was found good is remembered with exactly what it covers, so that a large fleet is not verified anew for each read.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use holdfast_api::rollout::HeldView;
use holdfast_api::status::{HostCounts, RevisionState, StatusView, WaitEnd, WaitFor};
use holdfast_events::{SignatureBytes, VerifyingKeyBytes};
use holdfast_identity::{Signature, VerifyingKey};
use holdfast_model::condition::{Condition, ConditionType, Holds};
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::Revision;
use holdfast_model::statement::{Authority, outcome_bytes, status_bytes};
use holdfast_model::status::{Counts, Missing, State, Verdict, Words};
use holdfast_store::Store;
use holdfast_store::report::ObservedReport;
use holdfast_store::status::{ComponentStatus, FleetStatus, HeldAt, HostStatus, Signed};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::refuse::Refusal;
use super::shared::SharedRead;

/// How long a failure must last to count: the one recovery snapshot follows it at once, and what a report tells is often mended by the next look.
pub(crate) const FAILURE_LASTS: time::Duration = time::Duration::seconds(10);

/// One host with what its evidence amounts to.
#[derive(Clone, Debug)]
pub(crate) struct JudgedHost {
    pub(crate) status: HostStatus,
    /// One for each component, in their order.
    pub(crate) components: Vec<JudgedComponent>,
    pub(crate) state: State,
    /// Whether the signature on what it last said of itself as a whole is its own.
    pub(crate) report_valid: bool,
    /// The same of the revision that it is held at, if a rollout holds it.
    pub(crate) own_state: State,
}

impl JudgedHost {
    fn new(status: HostStatus, components: Vec<JudgedComponent>, own: &Counts, report_valid: bool) -> Self {
        let counts: Counts = components.iter().map(|component| component.state).collect();
        Self { status, components, state: counts.roll_up(), own_state: own.roll_up(), report_valid }
    }

    /// Its state with a revision: what it is held at is no news of a later one, and all there is of an earlier.
    pub(crate) fn state_with(&self, revision: Revision) -> State {
        if self.status.held.is_some_and(|held| revision <= held.revision) { self.own_state } else { self.state }
    }

    /// Each component with what its evidence amounts to.
    pub(crate) fn judged(&self) -> impl Iterator<Item = (&ComponentStatus, &JudgedComponent)> {
        self.status.components.iter().zip(&self.components)
    }
}

/// What the evidence of one component amounts to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JudgedComponent {
    pub(crate) state: State,
    /// The first fact that a proof of convergence lacks.
    pub(crate) missing: Option<Missing>,
    /// Whether the signature on what the host last said is the host's.
    pub(crate) signature_valid: bool,
}

/// The fleet, or some hosts of it, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct JudgedFleet {
    pub(crate) revision: Revision,
    pub(crate) rendered_revision: Revision,
    pub(crate) hosts: Vec<JudgedHost>,
}

impl JudgedFleet {
    /// The answer about one revision for those hosts that may be seen.
    pub(crate) fn status(&self, revision: Revision, sees: impl Fn(&JudgedHost) -> bool) -> StatusView {
        self.status_by(revision, sees, |host| host.state_with(revision))
    }

    /// The same, each host in the state that is told of it.
    pub(crate) fn status_by(
        &self,
        revision: Revision,
        sees: impl Fn(&JudgedHost) -> bool,
        state: impl Fn(&JudgedHost) -> State,
    ) -> StatusView {
        let counts: Counts = self.hosts.iter().filter(|host| sees(host)).map(state).collect();
        let state = if self.rendered_revision < revision {
            RevisionState::Published
        } else {
            RevisionState::from(counts.roll_up())
        };
        StatusView {
            revision: revision.raw(),
            state,
            hosts: HostCounts::from(counts),
            latest_revision: self.revision.raw(),
            rendered_revision: self.rendered_revision.raw(),
            held: self.held(revision, sees),
            modes: None,
            wait: None,
        }
    }

    /// Whether some host that may be seen has been failed for long.
    pub(crate) fn has_failed_long(&self, now: OffsetDateTime, sees: impl Fn(&JudgedHost) -> bool) -> bool {
        let fails = |host: &JudgedHost| {
            host.judged().any(|(component, judged)| has_failed_long(&host.status, component, judged, now))
        };
        self.hosts.iter().filter(|host| sees(host)).any(fails)
    }

    /// What a rollout holds back of those hosts, if the revision is later than what they are held at.
    fn held(&self, revision: Revision, sees: impl Fn(&JudgedHost) -> bool) -> Option<HeldView> {
        let held = self.hosts.iter().filter(|host| sees(host)).filter_map(|host| host.status.held);
        let held: Vec<HeldAt> = held.filter(|held| held.revision < revision).collect();
        held.first().map(|first| HeldView { hosts: held.len() as u64, ..held_view(first) })
    }
}

/// What holds one host back.
pub(crate) fn held_view(held: &HeldAt) -> HeldView {
    let (rollout, state) = (held.rollout.to_string(), held.state.word().to_owned());
    HeldView { rollout, revision: held.revision.raw(), hosts: 1, state }
}

/// Whether a component has been failed for so long that neither a recovery snapshot nor the next look of its agent mends it any more: since the
/// outcome that says so, or since the first of the reports that have said so each time.
pub(crate) fn has_failed_long(
    host: &HostStatus,
    component: &ComponentStatus,
    judged: &JudgedComponent,
    now: OffsetDateTime,
) -> bool {
    let said = match told_by_report(host, judged) {
        Some((report, _)) => report.failing_since(component.component).or(Some(report.at)),
        None => component.outcome.as_ref().map(|said| said.at),
    };
    judged.state == State::Failed && said.is_some_and(|at| now - at >= FAILURE_LASTS)
}

/// The report that says that a condition is not as it should be, and which, if it is a report that says so.
fn told_by_report<'a>(host: &'a HostStatus, judged: &JudgedComponent) -> Option<(&'a ObservedReport, ConditionType)> {
    let kind = judged.missing.and_then(Missing::condition)?;
    let can_report = host.session.as_ref().is_some_and(|session| session.words == Words::Reports);
    Some((host.report.as_ref().filter(|_| can_report)?, kind))
}

/// Why a component failed: the reason of its outcome, or the condition that a report says is false, with its reason.
pub(crate) fn failure_of(host: &HostStatus, component: &ComponentStatus, judged: &JudgedComponent) -> Option<String> {
    if let Some((report, kind)) = told_by_report(host, judged) {
        let conditions = report.of(component.component).map(|of| of.conditions.as_slice()).unwrap_or_default();
        let is_it = |condition: &&Condition| condition.kind == kind && condition.status == Holds::False;
        let told = conditions.iter().map(|stated| &stated.condition).find(is_it);
        return Some(told.map_or_else(|| kind.to_string(), |told| format!("{kind}: {}", told.reason.word())));
    }
    component.outcome.as_ref().map(|said| said.reason.word().to_owned())
}

/// Whether a wait is over by what is seen.
pub(crate) fn wait_end(status: &StatusView, wanted: WaitFor) -> Option<WaitEnd> {
    match (status.state, wanted) {
        (RevisionState::Converged, _) | (RevisionState::Degraded, WaitFor::Applied) => Some(WaitEnd::Reached),
        (RevisionState::Failed, _) => Some(WaitEnd::Failed),
        // A rollout keeps it from being rendered for every host, and a host that has it already failed.
        (RevisionState::Published, _) if status.held.is_some() && status.hosts.failed > 0 => Some(WaitEnd::Failed),
        (
            RevisionState::Degraded | RevisionState::Published | RevisionState::Progressing | RevisionState::Unknown,
            _,
        ) => None,
    }
}

/// Everything that a signature covers, and who made it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Covered {
    statement: Vec<u8>,
    key: VerifyingKeyBytes,
    signature: SignatureBytes,
}

impl Covered {
    fn is_genuine(&self) -> bool {
        let key = VerifyingKey::from_bytes(*self.key.as_bytes());
        key.verify(&self.statement, &Signature(*self.signature.as_bytes())).is_ok()
    }
}

/// The newest genuine statement of each (host, component), and of each host as a whole: at most one each, and of no host that is no more.
type Proven = Arc<Mutex<HashMap<(HostId, Option<Component>), Covered>>>;

/// Reads the fleet.
#[derive(Debug)]
pub(crate) struct Fleet {
    store: Store,
    proven: Proven,
    shared: SharedRead<Arc<JudgedFleet>>,
}

impl Fleet {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, proven: Proven::default(), shared: SharedRead::default() }
    }

    /// The fleet, or some hosts of it, as it is now.
    pub(crate) async fn read(&self, hosts: Option<Vec<HostId>>) -> Result<JudgedFleet, Refusal> {
        let authority = self.store.load_authority().await?;
        let fleet = self.store.fleet_status(hosts.clone()).await?;
        let proven = Arc::clone(&self.proven);
        // A large fleet's signatures take seconds the first time.
        let judged = tokio::task::spawn_blocking(move || {
            let judged = judge(fleet, authority, &proven);
            forget_others(&proven, hosts.as_deref(), &judged);
            judged
        });
        let judged = judged.await;
        judged.map_err(|error| Refusal::defect(&error))
    }

    /// The fleet by a read that began at `since` or later: many who wait share one. Who was not answered yet passes when
    /// it asked, so that nothing that was stored before that is missing.
    pub(crate) async fn read_since(&self, since: Instant) -> Result<Arc<JudgedFleet>, Refusal> {
        self.shared.read_since(since, || async { self.read(None).await.map(Arc::new) }).await
    }
}

/// Forgets what was proven of hosts that were asked for and are not there any more; `asked` is absent where all were.
fn forget_others(proven: &Proven, asked: Option<&[HostId]>, judged: &JudgedFleet) {
    let there: HashSet<HostId> = judged.hosts.iter().map(|host| host.status.host).collect();
    let asked: Option<HashSet<HostId>> = asked.map(|asked| asked.iter().copied().collect());
    let is_kept = |host: &HostId| there.contains(host) || asked.as_ref().is_some_and(|asked| !asked.contains(host));
    proven.lock().unwrap_or_else(std::sync::PoisonError::into_inner).retain(|(host, _), _| is_kept(host));
}

fn judge(fleet: FleetStatus, authority: Authority, proven: &Proven) -> JudgedFleet {
    let FleetStatus { revision, rendered_revision, hosts } = fleet;
    let trusts = |key: &VerifyingKeyBytes, signed: Signed<'_>| {
        let (place, statement, signature) = match signed {
            Signed::Outcome(said) => {
                let statement = outcome_bytes(authority, &said.outcome, &said.conditions);
                ((said.outcome.host, Some(said.outcome.component)), statement, said.signature)
            }
            Signed::Report(said) => {
                ((said.place.host, None), status_bytes(authority, said.place, &said.report), said.signature)
            }
        };
        let covered = Covered { statement, key: *key, signature };
        let known = |held: &HashMap<_, Covered>| held.get(&place) == Some(&covered);
        if known(&proven.lock().unwrap_or_else(std::sync::PoisonError::into_inner)) {
            return true;
        }
        // Not under the lock: verifying is the slow part.
        let genuine = covered.is_genuine();
        if genuine {
            proven.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(place, covered);
        }
        genuine
    };
    let one = |status: HostStatus| {
        let judged = |component: &ComponentStatus| {
            let Verdict { state, missing } = status.verdict_of(component, &trusts);
            let said = component.outcome.as_ref();
            JudgedComponent {
                state,
                missing,
                signature_valid: said.is_some_and(|said| trusts(&status.outcome_key, Signed::Outcome(said))),
            }
        };
        let components: Vec<JudgedComponent> = status.components.iter().map(judged).collect();
        let own = if status.held.is_some() {
            let let_go = HostStatus { held: None, ..status.clone() };
            status.components.iter().map(|component| let_go.verdict_of(component, &trusts).state).collect()
        } else {
            components.iter().map(|component| component.state).collect()
        };
        let report_valid = status.report.as_ref().is_some_and(|said| trusts(&status.outcome_key, Signed::Report(said)));
        JudgedHost::new(status, components, &own, report_valid)
    };
    JudgedFleet { revision, rendered_revision, hosts: hosts.into_iter().map(one).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_fleet(rendered: u64) -> JudgedFleet {
        JudgedFleet {
            revision: Revision::from_raw(4),
            rendered_revision: Revision::from_raw(rendered),
            hosts: Vec::new(),
        }
    }

    #[test]
    fn a_revision_that_is_not_rendered_is_published_and_no_host_is_not_converged() {
        let everything = |_: &JudgedHost| true;
        assert_eq!(mk_fleet(3).status(Revision::from_raw(4), everything).state, RevisionState::Published);
        assert_eq!(mk_fleet(4).status(Revision::from_raw(4), everything).state, RevisionState::Unknown);
    }

    #[test]
    fn what_was_proven_of_a_host_that_is_no_more_is_forgotten_and_of_others_kept() {
        let host = |n: u128| HostId::new(uuid::Uuid::from_u128(n));
        let covered = || Covered {
            statement: Vec::new(),
            key: VerifyingKeyBytes::from_bytes([0; 32]),
            signature: SignatureBytes::from_bytes([0; 64]),
        };
        let proven = Proven::default();
        for n in 1..=3 {
            proven.lock().expect("a lock").extend([None, Some(Component::Policy)].map(|of| ((host(n), of), covered())));
        }
        let left = || {
            let mut hosts: Vec<HostId> = proven.lock().expect("a lock").keys().map(|(host, _)| *host).collect();
            hosts.sort_unstable();
            hosts
        };
        forget_others(&proven, Some(&[host(2)]), &mk_fleet(4));
        assert_eq!(left(), [host(1), host(1), host(3), host(3)], "the one that was asked for is not there");
        forget_others(&proven, None, &mk_fleet(4));
        assert_eq!(left(), []);
    }

    #[test]
    fn a_wait_ends_by_what_was_waited_for_or_by_failure() {
        let mut status = mk_fleet(4).status(Revision::from_raw(4), |_| true);
        let ends = |status: &StatusView| [WaitFor::Applied, WaitFor::Converged].map(|wanted| wait_end(status, wanted));
        assert_eq!(ends(&status), [None, None]);
        status.state = RevisionState::Degraded;
        assert_eq!(ends(&status), [Some(WaitEnd::Reached), None]);
        status.state = RevisionState::Converged;
        assert_eq!(ends(&status), [Some(WaitEnd::Reached); 2]);
        status.state = RevisionState::Failed;
        assert_eq!(ends(&status), [Some(WaitEnd::Failed); 2]);
    }
}
