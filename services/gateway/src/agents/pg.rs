//! The authority in Postgres, as the agents' door sees it.
//!
//! - Nodes of artifact trees are kept by digest, so that an edit reads the few that it made and not the whole tree.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_events::Actor;
use holdfast_identity::VerifyingKey;
use holdfast_model::artifact::{AssembleError, assemble};
use holdfast_model::desired::Component;
use holdfast_model::digest::Digest;
use holdfast_model::ids::{EventId, GatewayId, HostId};
use holdfast_model::numbers::{LeaseTerm, SessionEpoch};
use holdfast_model::policy::Body;
use holdfast_model::statement::Authority;
use holdfast_store::lease::Claim;
use holdfast_store::render::LatestState;
use holdfast_store::request::{Enrolment, RequestAnswer, TokenRefusal};
use holdfast_store::session::{Fact, FactsRecorded, Newest, Opened, Opening};
use holdfast_store::{Error, Store};

use super::cache::Cache;
use super::limits::NODES_BYTES_MAX;
use super::store::{Admitted, AgentsStore, DesiredRow, OfAValue, StoredBody};

/// Why the authority did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// The database.
    #[error(transparent)]
    Store(#[from] Error),
    /// A body cannot be put together from its tree.
    #[error("the body {root} cannot be put together")]
    Body {
        /// Its name.
        root: Digest,
        /// Why not.
        #[source]
        source: AssembleError,
    },
    /// The work on a body was cut off by the end of the process.
    #[error("the process ends")]
    Ending,
}

impl OfAValue for PgError {
    fn is_of_a_value(&self) -> bool {
        match self {
            Self::Store(error) => error.is_of_a_value(),
            Self::Body { .. } | Self::Ending => false,
        }
    }
}

/// One gateway's way to Postgres.
#[derive(Clone, Debug)]
pub struct PgAgents {
    store: Store,
    gateway: GatewayId,
    nodes: Arc<Cache<Digest, Arc<Vec<u8>>>>,
    term: Arc<Mutex<Option<LeaseTerm>>>,
}

impl PgAgents {
    /// The database, for one start of one gateway.
    #[must_use]
    pub fn new(store: Store, gateway: GatewayId) -> Self {
        Self { store, gateway, nodes: Arc::new(Cache::new(NODES_BYTES_MAX)), term: Arc::default() }
    }

    async fn bodies(&self, roots: Vec<Digest>) -> Result<Vec<(Digest, Body)>, PgError> {
        let mut bodies = Vec::new();
        for whole in [false, true] {
            let missing: Vec<Digest> =
                roots.iter().copied().filter(|root| !bodies.iter().any(|(done, _)| done == root)).collect();
            if missing.is_empty() {
                break;
            }
            // At first only what is not kept. A kept node may outlive those below it: then all are read.
            let fetched =
                self.store.fetch_trees(missing.clone(), |node| !whole && self.nodes.find(node).is_some()).await?;
            let at = self.clone();
            let assembled = tokio::task::spawn_blocking(move || at.assemble(missing, fetched, whole));
            bodies.extend(assembled.await.map_err(|_| PgError::Ending)??);
        }
        Ok(bodies)
    }

    fn assemble(
        &self,
        roots: Vec<Digest>,
        fetched: BTreeMap<Digest, Vec<u8>>,
        whole: bool,
    ) -> Result<Vec<(Digest, Body)>, PgError> {
        for (digest, bytes) in fetched {
            let weight = bytes.len();
            self.nodes.put(digest, Arc::new(bytes), weight);
        }
        let mut bodies = Vec::with_capacity(roots.len());
        for root in roots {
            match assemble(root, |node| self.nodes.find(node).map(|bytes| bytes.as_ref().clone())) {
                Ok(body) => bodies.push((root, body)),
                Err(AssembleError::Missing(_)) if !whole => {}
                Err(source) => return Err(PgError::Body { root, source }),
            }
        }
        Ok(bodies)
    }

    /// Keeps a node as if it had been read.
    #[cfg(test)]
    pub(super) fn keep_node(&self, digest: Digest, bytes: Vec<u8>) {
        let weight = bytes.len();
        self.nodes.put(digest, Arc::new(bytes), weight);
    }

    fn term(&self) -> Option<LeaseTerm> {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_term(&self, term: Option<LeaseTerm>) {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = term;
    }
}

impl AgentsStore for PgAgents {
    type Error = PgError;

    async fn open_sessions(&self, openings: Vec<Opening>) -> Result<Vec<Admitted>, PgError> {
        // The authority first: what is opened is then sure to be answered.
        let authority = self.store.load_authority().await?;
        let opened = self.store.open_sessions(self.gateway, openings).await?;
        let answer = |opened| match opened {
            Opened::Session { namespace, session_epoch, outcome_key, is_between_lives } => {
                let outcome_key = VerifyingKey::from_bytes(*outcome_key.as_bytes());
                Admitted::Session { namespace, session_epoch, authority, outcome_key, is_between_lives }
            }
            Opened::Contested { retry_after } => {
                let retry_after_ms = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX).max(1);
                Admitted::Contested { retry_after_ms }
            }
            Opened::UnknownCertificate => Admitted::CertificateUnknown,
            Opened::UnknownHost => Admitted::HostUnknown,
        };
        Ok(opened.into_iter().map(answer).collect())
    }

    async fn load_desired(&self, wanted: Vec<(HostId, Component)>) -> Result<Vec<DesiredRow>, PgError> {
        let mut hosts: Vec<HostId> = wanted.iter().map(|(host, _)| *host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let latest = self.store.latest_for_sessions(hosts).await?;
        let row = |(state, newest_session): (LatestState, SessionEpoch)| {
            let desired = state.state.desired;
            DesiredRow {
                host: desired.host,
                component: desired.component,
                stamp: desired.stamp,
                signature: *state.state.signature.as_bytes(),
                authority_epoch: state.authority_epoch,
                newest_session,
            }
        };
        Ok(latest.into_iter().map(row).collect())
    }

    async fn load_newest_sessions(&self, hosts: Vec<HostId>) -> Result<Vec<(HostId, SessionEpoch)>, PgError> {
        Ok(self.store.newest_sessions(hosts).await?)
    }

    async fn load_bodies(&self, digests: Vec<(Component, Digest)>) -> Result<Vec<(Digest, StoredBody)>, PgError> {
        let (policies, others): (Vec<_>, Vec<_>) =
            digests.into_iter().partition(|(component, _)| *component == Component::Policy);
        let mut bodies: Vec<(Digest, StoredBody)> = Vec::new();
        if !policies.is_empty() {
            let roots = policies.into_iter().map(|(_, digest)| digest).collect();
            bodies.extend(self.bodies(roots).await?.into_iter().map(|(root, body)| (root, StoredBody::Policy(body))));
        }
        if !others.is_empty() {
            let whole = self.store.fetch_artifacts(others.into_iter().map(|(_, digest)| digest).collect()).await?;
            bodies.extend(whole.into_iter().map(|(digest, bytes)| (digest, StoredBody::Whole(bytes))));
        }
        Ok(bodies)
    }

    async fn compare(&self, hosts: Vec<HostId>) -> Result<Newest, PgError> {
        Ok(self.store.newest_of(hosts).await?)
    }

    async fn record(&self, facts: Vec<Fact>) -> Result<FactsRecorded, PgError> {
        Ok(self.store.record_facts(self.gateway, facts).await?)
    }

    async fn load_authority(&self) -> Result<Authority, PgError> {
        Ok(self.store.load_authority().await?)
    }

    async fn request_enrolment(
        &self,
        enrolment: Enrolment,
    ) -> Result<Result<(EventId, HostId), TokenRefusal>, PgError> {
        Ok(self.store.request_enrolment(self.gateway, enrolment).await?)
    }

    async fn request_certificate(&self, host: HostId, csr: Vec<u8>) -> Result<EventId, PgError> {
        Ok(self.store.request_certificate(self.gateway, host, csr).await?)
    }

    async fn load_answers(&self, requests: Vec<EventId>) -> Result<Vec<(EventId, RequestAnswer)>, PgError> {
        let answers = self.store.request_answers(requests).await?;
        Ok(answers.into_iter().map(|(id, _, answer)| (id, answer)).collect())
    }

    async fn hold_lease(&self, ttl: Duration) -> Result<bool, PgError> {
        let name = self.gateway.to_string();
        if let Some(term) = self.term() {
            if self.store.renew_lease_for(&name, term, ttl).await? {
                return Ok(true);
            }
            self.set_term(None);
        }
        match self.store.acquire_lease_for(Actor::Gateway(self.gateway), &name, &name, ttl).await? {
            Claim::Acquired(term) => {
                self.set_term(Some(term));
                Ok(true)
            }
            Claim::Held { .. } => Ok(false),
        }
    }

    async fn release_lease(&self) -> Result<(), PgError> {
        if let Some(term) = self.term() {
            self.set_term(None);
            self.store.release_lease(&self.gateway.to_string(), term).await?;
        }
        Ok(())
    }
}
