//! Facts of many sessions in one transaction.
//!
//! - Recording the same facts again changes nothing, but for faults, which are then told of twice: they are of no state.
//! - Within a batch: what was sent, how it ended, faults, drift, how hosts are as a whole, addresses, presence, ends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_events::{Actor, CloseReason, Fault, ProtocolFault};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::drift::{DriftReport, DriftSaid, record_drifts};
use super::outcome::{OutcomeReport, SnapshotReport, fault_of, record, record_sent};
use super::presence::record_heard;
use super::status::{StatusFact, StatusSaid, record_statuses};
use super::{Closing, Lock, lock_sessions, open};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::request::write_reports;

/// Something that was seen in a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// Whose.
    pub host: HostId,
    /// In which session.
    pub session_epoch: SessionEpoch,
    /// What.
    pub seen: Seen,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The host says that it has these addresses: a request, if they are others than before.
    Addresses(Vec<IpAddr>),
    /// The session is over.
    Closed(CloseReason),
    /// The host says what it found in its kernel.
    Drift(Box<DriftSaid>),
    /// The peer broke the protocol.
    Fault {
        /// How.
        fault: Fault,
        /// About which part, if about one.
        component: Option<Component>,
        /// About which update, if about one.
        update_seq: Option<UpdateSeq>,
    },
    /// The host was heard, so many milliseconds ago.
    Heard {
        /// How long ago.
        age_ms: u64,
    },
    /// An outcome, its signature verified.
    Outcome(Box<OutcomeReport>),
    /// The host says how it is as a whole, its signature verified.
    Status(Box<StatusSaid>),
    /// A whole state was written.
    SnapshotSent {
        /// Which part.
        component: Component,
        /// Which content.
        stamp: Stamp,
        /// As which update.
        update_seq: UpdateSeq,
    },
}

/// What came of facts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FactsRecorded {
    /// Sessions that are no longer their hosts': what those said was left out.
    pub stale: Vec<(HostId, SessionEpoch)>,
    /// How many requests were written for the renderer.
    pub requests: usize,
    /// How many statuses said something else than the one before them, were of another session, or came after another answer.
    pub statuses_new: usize,
    /// What was found wrong here, beside the faults that were handed over: each is one more event.
    pub faults: Vec<Fault>,
}

impl Store {
    /// Records facts in one transaction.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: record them again.
    pub async fn record_facts(&self, gateway: GatewayId, facts: Vec<Fact>) -> Result<FactsRecorded, Error> {
        let facts = Arc::new(facts);
        self.transact("record facts", Mode::Write, move |tx| {
            let facts = Arc::clone(&facts);
            Box::pin(async move { record_all(tx, gateway, &facts).await })
        })
        .await
    }
}

/// Facts by what is done with them.
#[derive(Default)]
struct Sorted {
    sent: Vec<SnapshotReport>,
    outcomes: Vec<OutcomeReport>,
    faults: Vec<ProtocolFault>,
    drifts: Vec<DriftReport>,
    statuses: Vec<StatusFact>,
    addresses: Vec<(HostId, Vec<IpAddr>)>,
    heard: Vec<(HostId, SessionEpoch, u64)>,
    ends: Vec<Closing>,
}

impl Sorted {
    fn put(&mut self, fact: &Fact) {
        let Fact { host, session_epoch, .. } = *fact;
        match &fact.seen {
            Seen::Addresses(addresses) => self.addresses.push((host, addresses.clone())),
            Seen::Closed(reason) => self.ends.push(Closing { host, session_epoch, reason: *reason }),
            Seen::Drift(said) => self.drifts.push(DriftReport { host, session_epoch, said: (**said).clone() }),
            Seen::Fault { fault, component, update_seq } => {
                let (fault, component, update_seq) = (*fault, *component, *update_seq);
                self.faults.push(ProtocolFault { host, session_epoch, fault, component, update_seq });
            }
            Seen::Heard { age_ms } => self.heard.push((host, session_epoch, *age_ms)),
            Seen::Outcome(report) => self.outcomes.push((**report).clone()),
            Seen::Status(said) => self.statuses.push(StatusFact { host, session_epoch, said: (**said).clone() }),
            Seen::SnapshotSent { component, stamp, update_seq } => {
                let (component, stamp, update_seq) = (*component, *stamp, *update_seq);
                self.sent.push(SnapshotReport { host, session_epoch, component, stamp, update_seq });
            }
        }
    }
}

async fn record_all(tx: &mut PgConnection, gateway: GatewayId, facts: &[Fact]) -> Result<FactsRecorded, Error> {
    let hosts: BTreeSet<Uuid> = facts.iter().map(|fact| fact.host.uuid()).collect();
    let hosts: Vec<Uuid> = hosts.into_iter().collect();
    // A lock that is to be strengthened later would meet another that is, too: the strongest comes first.
    let ends = facts.iter().any(|fact| matches!(fact.seen, Seen::Closed(_)));
    let sessions = lock_sessions(tx, &hosts, if ends { Lock::Change } else { Lock::Keep }).await?;
    let (mut sorted, mut stale) = (Sorted::default(), BTreeSet::new());
    for fact in facts {
        let counts = sessions.get(&fact.host).is_some_and(|session| session.admits(fact.session_epoch));
        match &fact.seen {
            // These are judged, and their faults told, where they are recorded.
            Seen::Outcome(_) | Seen::Fault { .. } | Seen::Closed(_) => sorted.put(fact),
            Seen::Addresses(_) | Seen::Drift(_) | Seen::Heard { .. } | Seen::Status(_) | Seen::SnapshotSent { .. } => {
                if counts {
                    sorted.put(fact);
                }
            }
        }
        if !counts && !matches!(fact.seen, Seen::Closed(_)) {
            stale.insert((fact.host, fact.session_epoch));
        }
    }
    let mut recorded = FactsRecorded { stale: stale.into_iter().collect(), ..FactsRecorded::default() };
    if !sorted.sent.is_empty() {
        record_sent(tx, gateway, &sorted.sent, &sessions).await?;
    }
    if !sorted.outcomes.is_empty() {
        let judged = record(tx, gateway, &sorted.outcomes, &sessions).await?;
        recorded.faults = judged.into_iter().filter_map(fault_of).collect();
    }
    if !sorted.faults.is_empty() {
        let mut outbox = Outbox::new(Actor::Gateway(gateway));
        for fault in sorted.faults {
            outbox.push(fault)?;
        }
        outbox.write(tx).await?;
    }
    if !sorted.drifts.is_empty() {
        record_drifts(tx, gateway, &sorted.drifts).await?;
    }
    if !sorted.statuses.is_empty() {
        recorded.statuses_new = record_statuses(tx, gateway, &sorted.statuses).await?;
    }
    if !sorted.addresses.is_empty() {
        recorded.requests = write_reports(tx, gateway, &sorted.addresses).await?.len();
    }
    if !sorted.heard.is_empty() {
        record_heard(tx, sorted.heard).await?;
    }
    if !sorted.ends.is_empty() {
        open::close(tx, gateway, &sorted.ends).await?;
    }
    Ok(recorded)
}
