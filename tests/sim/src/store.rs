//! The authority's rows, as far as decisions about delivery stand on them.
//!
//! - Real: which session counts and which outcome does ([`holdfast_model::fence`]), and what a host's state is called ([`holdfast_model::status`]).
//! - Modelled after `services/store`: rows, leases by the database's clock, versions that follow each other, events that are numbered by one
//!   statement which sees a transaction whole or not at all.
//! - Whoever calls this holds the locks that the product's statement takes: [`crate::world`] gives them, and decides what commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_model::artifact;
use holdfast_model::condition::Condition;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::fence::{HostSession, LastOutcome};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{LeaseTerm, Revision, SessionEpoch, UpdateSeq};
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::diff;
use holdfast_model::report::HostReport;
use holdfast_model::statement::OutcomeKind;
use holdfast_model::status::{Evidence, Link, Reported, Said, State, Words, derive};
use holdfast_render::Edit;
use holdfast_render::fleet::Plan;
use holdfast_wire::encode_changes;
use holdfast_wire::message::SignatureBytes;

/// How long a lease holds, in milliseconds (`holdfast_store::lease::LEASE_TTL`).
pub(crate) const LEASE_TTL_MS: u64 = 30_000;
/// The lease of the one renderer that leads.
pub(crate) const RENDERER_LEASE: u64 = 0;

/// One lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) term: LeaseTerm,
    pub(crate) expires_at: u64,
}

/// A desired state with the renderer's word for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DesiredRow {
    pub(crate) stamp: Stamp,
    pub(crate) signature: SignatureBytes,
}

/// What a host last said of one component.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) last: LastOutcome<SignatureBytes>,
    pub(crate) kind: OutcomeKind,
    pub(crate) wanted: Option<Stamp>,
    pub(crate) applied: Option<Stamp>,
    pub(crate) conditions: Vec<Condition>,
}

impl Observed {
    /// Before the first outcome.
    pub(crate) const fn nothing() -> Self {
        let last = LastOutcome { session_epoch: SessionEpoch::ZERO, update_seq: UpdateSeq::ZERO, signature: None };
        Self { last, kind: OutcomeKind::Failed, wanted: None, applied: None, conditions: Vec::new() }
    }
}

/// A host's newest session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRow {
    pub(crate) session: HostSession,
    /// The lease of the process that holds it.
    pub(crate) gateway: u64,
    /// What the host can say in it.
    pub(crate) words: Words,
}

/// What a host last said of itself as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) session_epoch: SessionEpoch,
    pub(crate) seq: u64,
    pub(crate) report: HostReport,
}

/// One event, as far as its order goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EventRow {
    /// The transaction that wrote it.
    pub(crate) xid: u64,
    /// Its number within all inserts.
    pub(crate) lid: u64,
    /// When that transaction had its locks.
    pub(crate) executed_at: u64,
    /// When it committed.
    pub(crate) committed_at: u64,
}

/// A body as sessions share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedBody {
    pub(crate) body: Arc<Body>,
    pub(crate) flat: Arc<[u8]>,
}

/// All rows.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) clock_ahead: u64,
    pub(crate) away_until: u64,
    pub(crate) revision: Revision,
    pub(crate) edits: Vec<Edit>,
    pub(crate) rendered: Revision,
    pub(crate) latest: BTreeMap<(HostId, Component), DesiredRow>,
    artifacts: BTreeMap<Digest, Vec<u8>>,
    bodies: BTreeMap<Digest, SharedBody>,
    deltas: BTreeMap<(Digest, Digest), Option<Arc<[u8]>>>,
    pub(crate) sessions: BTreeMap<HostId, SessionRow>,
    /// When each host was heard, by the database's clock, in which session.
    pub(crate) presence: BTreeMap<HostId, (SessionEpoch, u64)>,
    pub(crate) observed: BTreeMap<(HostId, Component), Observed>,
    pub(crate) statuses: BTreeMap<HostId, Status>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) events: Vec<EventRow>,
    pub(crate) order: Vec<EventRow>,
    ordered: BTreeSet<u64>,
    pub(crate) next_xid: u64,
    pub(crate) next_lid: u64,
    /// Transactions that wrote and have not ended.
    pub(crate) in_progress: BTreeSet<u64>,
}

impl Store {
    pub(crate) const fn new() -> Self {
        Self {
            // Room to be set back.
            clock_ahead: 1_000_000,
            away_until: 0,
            revision: Revision::ZERO,
            edits: Vec::new(),
            rendered: Revision::ZERO,
            latest: BTreeMap::new(),
            artifacts: BTreeMap::new(),
            bodies: BTreeMap::new(),
            deltas: BTreeMap::new(),
            sessions: BTreeMap::new(),
            presence: BTreeMap::new(),
            observed: BTreeMap::new(),
            statuses: BTreeMap::new(),
            leases: BTreeMap::new(),
            events: Vec::new(),
            order: Vec::new(),
            ordered: BTreeSet::new(),
            next_xid: 1,
            next_lid: 1,
            in_progress: BTreeSet::new(),
        }
    }

    /// A host is enrolled.
    pub(crate) fn enrol(&mut self, host: HostId) {
        self.sessions.insert(
            host,
            SessionRow { session: HostSession::new(SessionEpoch::ZERO, false), gateway: 0, words: Words::Outcomes },
        );
    }

    /// Whether a lease is held under a term now.
    pub(crate) fn holds(&self, name: u64, term: LeaseTerm, clock: u64) -> bool {
        self.leases.get(&name).is_some_and(|lease| lease.term == term && lease.expires_at > clock)
    }

    /// Claims a lease that nobody holds.
    pub(crate) fn acquire(&mut self, name: u64, clock: u64) -> Option<LeaseTerm> {
        let term = match self.leases.get(&name) {
            // One that lasts for longer was given before the clock was set back.
            Some(lease) if lease.expires_at > clock && lease.expires_at <= clock + 2 * LEASE_TTL_MS => return None,
            Some(lease) => lease.term.next()?,
            None => LeaseTerm::ZERO.next()?,
        };
        self.leases.insert(name, Lease { term, expires_at: clock + LEASE_TTL_MS });
        Some(term)
    }

    /// Renews a lease; false if it is no longer held under this term.
    pub(crate) fn renew(&mut self, name: u64, term: LeaseTerm, clock: u64) -> bool {
        let holds = self.holds(name, term, clock);
        if let Some(lease) = self.leases.get_mut(&name).filter(|_| holds) {
            lease.expires_at = clock + LEASE_TTL_MS;
        }
        holds
    }

    /// Gives a lease back.
    pub(crate) fn release(&mut self, name: u64, term: LeaseTerm, clock: u64) {
        if self.holds(name, term, clock)
            && let Some(lease) = self.leases.get_mut(&name)
        {
            lease.expires_at = 0;
        }
    }

    /// Whether each state of a plan follows the one that is stored by one.
    pub(crate) fn follows(&self, plan: &Plan) -> bool {
        plan.revision >= self.rendered
            && plan.states.iter().all(|state| {
                let stored = self.latest.get(&(state.host, state.component)).map(|row| row.stamp.version);
                match stored {
                    Some(version) => version.next() == Some(state.stamp.version),
                    None => state.stamp.version == holdfast_model::numbers::Version::FIRST,
                }
            })
    }

    /// Stores a render; false if its artifacts do not make a body that is named.
    pub(crate) fn store_render(&mut self, plan: &Plan, signatures: &[SignatureBytes]) -> bool {
        for (digest, node) in &plan.artifacts {
            self.artifacts.entry(*digest).or_insert_with(|| node.clone());
        }
        self.rendered = plan.revision;
        for (state, signature) in plan.states.iter().zip(signatures) {
            self.latest.insert((state.host, state.component), DesiredRow { stamp: state.stamp, signature: *signature });
            if state.component == Component::Policy && !self.bodies.contains_key(&state.stamp.digest) {
                let fetch = |node| self.artifacts.get(&node).cloned();
                let Ok(body) = artifact::assemble(state.stamp.digest, fetch) else { return false };
                let flat = artifact::encode(&body).into();
                self.bodies.insert(state.stamp.digest, SharedBody { body: Arc::new(body), flat });
            }
        }
        true
    }

    /// A policy's body.
    pub(crate) fn body(&self, digest: Digest) -> Option<&SharedBody> {
        self.bodies.get(&digest)
    }

    /// Changes between two bodies, computed once; none if they are too many.
    pub(crate) fn delta(&mut self, base: Digest, target: Digest) -> Option<Arc<[u8]>> {
        if let Some(known) = self.deltas.get(&(base, target)) {
            return known.clone();
        }
        let (from, to) = (self.bodies.get(&base)?, self.bodies.get(&target)?);
        let changes: Option<Arc<[u8]>> = encode_changes(&diff(&from.body, &to.body).changes).ok().map(Into::into);
        self.deltas.insert((base, target), changes.clone());
        changes
    }

    /// The events that have no number and are seen by a statement now, in the order in which it would number them.
    pub(crate) fn unnumbered(&self, horizon: u64) -> Vec<EventRow> {
        let seen: Vec<EventRow> = self
            .events
            .iter()
            .filter(|event| event.xid >= horizon && !self.ordered.contains(&event.lid))
            .copied()
            .collect();
        let mut last_of: BTreeMap<u64, u64> = BTreeMap::new();
        for event in &seen {
            let last = last_of.entry(event.xid).or_default();
            *last = event.lid.max(*last);
        }
        let mut waiting = seen;
        waiting.sort_unstable_by_key(|event| (last_of.get(&event.xid).copied(), event.lid));
        waiting
    }

    /// Gives events their numbers.
    pub(crate) fn number(&mut self, events: &[EventRow]) {
        for event in events {
            self.ordered.insert(event.lid);
            self.order.push(*event);
        }
    }

    /// Whether an event has a number already.
    pub(crate) fn is_numbered(&self, lid: u64) -> bool {
        self.ordered.contains(&lid)
    }

    /// What a component of a host is called now.
    pub(crate) fn state_of(&self, host: HostId, component: Component, clock: u64) -> State {
        let Some(row) = self.sessions.get(&host) else { return State::Unknown };
        let epoch = row.session.session_epoch();
        let leased = self.leases.get(&row.gateway).is_some_and(|lease| lease.expires_at > clock);
        let heard = self.presence.get(&host).filter(|(of, _)| *of == epoch && row.session.is_open() && leased);
        let link = heard.map_or(Link::Closed, |(_, at)| Link::Open { heard_ms_ago: clock.saturating_sub(*at) });
        let said = self.observed.get(&(host, component)).and_then(|said| {
            Some(Said {
                in_this_session: said.last.session_epoch == epoch,
                is_genuine: true,
                kind: said.kind,
                wanted: said.wanted?,
                applied: said.applied,
                conditions: &said.conditions,
            })
        });
        let latest = self.latest.get(&(host, component)).map(|row| row.stamp);
        let place = self.observed.get(&(host, component)).map(|said| (said.last.session_epoch, said.last.update_seq));
        let reported = self.statuses.get(&host).and_then(|status| {
            let of = status.report.of(component)?;
            Some(Reported {
                in_this_session: status.session_epoch == epoch,
                is_genuine: true,
                is_newer: place.is_none_or(|place| place <= (status.session_epoch, status.report.answered)),
                applied: of.applied,
                conditions: &of.conditions,
            })
        });
        derive(&Evidence {
            component,
            words: row.words,
            reported,
            // No world here lives for a quarter of an hour, and nothing in it is written wrong.
            untold_ms: 0,
            is_readable: true,
            latest,
            link,
            said,
            is_held: false,
        })
        .state
    }
}
