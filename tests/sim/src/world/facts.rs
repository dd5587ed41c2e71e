//! What gateways record, and what the authority makes of it, after `services/store/src/session/facts.rs`.
//!
//! - Real: which session counts, which outcome counts, what an end ends. Modelled: the rows that follow.
//! - The reference looks at every row that changed.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_model::desired::Component;
use holdfast_model::fence::{LastOutcome, Recorded, judge};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_model::statement::OutcomeKind;
use holdfast_model::status::State;
use holdfast_session::replica::{Kind, Sort};
use holdfast_wire::message::{OutcomeReport, StatusReport};

use super::World;
use crate::store::{Observed, Status};
use crate::violation::Invariant;

/// Something that was seen in a session.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    /// Its number among all that were taken; zero for signs of life, which are made when a batch is.
    pub(crate) nth: u64,
    pub(crate) host: HostId,
    pub(crate) session_epoch: SessionEpoch,
    pub(crate) seen: Seen,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// The host was heard.
    Heard {
        /// How long ago when it was written.
        age_ms: u64,
    },
    /// An outcome, its signature verified.
    Outcome(Box<OutcomeReport>),
    /// How the host is as a whole, its signature verified.
    Status(Box<StatusReport>),
    /// A whole state was written.
    SnapshotSent,
    /// The peer broke the protocol.
    Fault {
        /// Whether what it said can be written at all.
        is_writable: bool,
    },
    /// The session is over.
    Closed,
}

impl Fact {
    /// Whether it can be written: one that cannot costs the whole batch.
    pub(crate) const fn is_writable(&self) -> bool {
        !matches!(self.seen, Seen::Fault { is_writable: false })
    }
}

/// Facts as this authority takes them.
#[derive(Debug)]
pub(crate) struct SimFacts;

impl Kind for SimFacts {
    type Fact = Fact;

    fn place(fact: &Fact) -> (HostId, SessionEpoch) {
        (fact.host, fact.session_epoch)
    }

    fn sort(fact: &Fact) -> Sort {
        match fact.seen {
            Seen::Heard { .. } => Sort::Presence,
            Seen::Status(_) => Sort::Status,
            Seen::Closed => Sort::Goodbye,
            Seen::Outcome(_) | Seen::SnapshotSent | Seen::Fault { .. } => Sort::Kept,
        }
    }

    fn presence(host: HostId, session_epoch: SessionEpoch, age: Duration) -> Fact {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Fact { nth: 0, host, session_epoch, seen: Seen::Heard { age_ms } }
    }
}

impl World {
    /// Records a batch; answers with the sessions that are no longer their hosts'.
    pub(crate) fn record_facts(&mut self, batch: &[Fact]) -> Vec<(HostId, SessionEpoch)> {
        let mut stale = BTreeSet::new();
        for fact in batch {
            let Some(row) = self.store.sessions.get(&fact.host) else { continue };
            if !row.session.admits(fact.session_epoch) && !matches!(fact.seen, Seen::Closed) {
                stale.insert((fact.host, fact.session_epoch));
            }
        }
        // Outcomes, statuses, presence, ends: the order within one transaction.
        for fact in batch {
            if let Seen::Outcome(report) = &fact.seen {
                self.record_outcome(fact, report);
            }
        }
        for fact in batch {
            if let Seen::Status(status) = &fact.seen {
                self.record_status(fact, status);
            }
        }
        for fact in batch {
            if let Seen::Heard { age_ms } = fact.seen {
                self.record_heard(fact, age_ms);
            }
        }
        for fact in batch {
            if matches!(fact.seen, Seen::Closed) {
                self.record_end(fact);
            }
        }
        let hosts: BTreeSet<HostId> = batch.iter().map(|fact| fact.host).collect();
        for host in hosts {
            self.check_session(host);
            self.check_synced(host);
        }
        stale.into_iter().collect()
    }

    fn record_outcome(&mut self, fact: &Fact, report: &OutcomeReport) {
        let key = (fact.host, report.component);
        let Some(session) = self.store.sessions.get(&fact.host).map(|row| row.session) else { return };
        let observed = self.store.observed.entry(key).or_insert_with(Observed::nothing);
        let number = (fact.session_epoch, report.update_seq);
        let judged = judge(session, &observed.last, number, &report.signature);
        self.tally.count_judged(judged);
        if judged != Recorded::Current {
            return;
        }
        *observed = Observed {
            last: LastOutcome {
                session_epoch: fact.session_epoch,
                update_seq: report.update_seq,
                signature: Some(report.signature),
            },
            kind: report.kind,
            wanted: Some(report.wanted),
            applied: report.applied,
            conditions: report.conditions.clone(),
        };
        self.insert_events(1);
        if !self.reference.is_current(fact.host, fact.session_epoch) {
            let (host, epoch) = (fact.host, fact.session_epoch);
            return self.violate(Invariant::NothingCrossesSessions, || {
                format!("an outcome of session {epoch} of {host} counts, which is not its session")
            });
        }
        if report.kind == OutcomeKind::Applied
            && !self.reference.was_held(fact.host, report.component, fact.session_epoch, report.wanted)
        {
            let (host, version) = (fact.host, report.wanted.version);
            self.violate(Invariant::SyncedIsProven, || {
                format!("{host} is recorded with version {version}, which it never held in that session")
            });
        }
    }

    /// One of a session that is the host's, and later than the last one.
    fn record_status(&mut self, fact: &Fact, status: &StatusReport) {
        let Some(row) = self.store.sessions.get(&fact.host) else { return };
        if !row.session.admits(fact.session_epoch) {
            return;
        }
        let place = (fact.session_epoch, status.seq);
        let before = self.store.statuses.get(&fact.host);
        if before.is_some_and(|known| (known.session_epoch, known.seq) >= place) {
            return;
        }
        let is_news = before.is_none_or(|known| known.report.digest() != status.report.digest());
        let (session_epoch, seq, report) = (fact.session_epoch, status.seq, status.report.clone());
        self.store.statuses.insert(fact.host, Status { session_epoch, seq, report });
        if is_news {
            self.insert_events(1);
        }
    }

    fn record_heard(&mut self, fact: &Fact, age_ms: u64) {
        let Some(row) = self.store.sessions.get(&fact.host) else { return };
        if row.session.admits(fact.session_epoch) {
            let at = self.clock().saturating_sub(age_ms);
            let entry = self.store.presence.entry(fact.host).or_insert((fact.session_epoch, at));
            *entry = if entry.0 == fact.session_epoch { (entry.0, entry.1.max(at)) } else { (fact.session_epoch, at) };
        }
    }

    fn record_end(&mut self, fact: &Fact) {
        self.reference.note_ended(fact.host, fact.session_epoch);
        let Some(row) = self.store.sessions.get_mut(&fact.host) else { return };
        if row.session.end(fact.session_epoch) {
            self.tally.ends += 1;
            self.insert_events(1);
        } else {
            self.tally.late_ends += 1;
        }
    }

    /// The newest session is open until its own end was written, or its successor began.
    pub(crate) fn check_session(&mut self, host: HostId) {
        let Some(row) = self.store.sessions.get(&host).map(|row| row.session) else { return };
        let should = self.reference.is_current(host, row.session_epoch());
        if row.is_open() != should && row.session_epoch() != SessionEpoch::ZERO {
            let (epoch, word) = (row.session_epoch(), if should { "ended by another" } else { "open after its end" });
            self.violate(Invariant::NothingCrossesSessions, || format!("session {epoch} of {host} is {word}"));
        }
    }

    /// Converged means: the host held exactly that, in the session that is its own now.
    pub(crate) fn check_synced(&mut self, host: HostId) {
        for component in Component::ALL {
            if self.store.state_of(host, component, self.clock()) != State::Converged {
                continue;
            }
            self.tally.synced += 1;
            let Some(epoch) = self.store.sessions.get(&host).map(|row| row.session.session_epoch()) else { return };
            let Some(stamp) = self.store.latest.get(&(host, component)).map(|row| row.stamp) else { return };
            if !self.reference.was_held(host, component, epoch, stamp) {
                self.violate(Invariant::SyncedIsProven, || {
                    format!(
                        "{component} of {host} is called converged at version {}, which it never held",
                        stamp.version
                    )
                });
            }
        }
    }
}
