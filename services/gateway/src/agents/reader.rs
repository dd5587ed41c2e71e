//! Answers what sessions want: one statement for the rows of all, bodies and deltas shared by digest.
//!
//! - Version, digest and signature of an answer come from one row; the body is named by that digest and belongs to no host.
//! - A delta is computed once per step between two bodies, however many hosts make it.
//! - A read that fails answers "not now"; it is never an empty state.
//! - Whose newest session a host's is, is known of after the body was found, not before: a body may take as long to read as a session to move.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::artifact;
use holdfast_model::desired::Component;
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch};
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::diff;
use holdfast_runtime::Chain;
use holdfast_session::gateway::{Answer, DeltaOffer, Supply, Want};

use super::cache::Cache;
use super::hooks::Hooks;
use super::limits::{BODIES_BYTES_MAX, DELTAS_BYTES_MAX};
use super::store::{AgentsStore, DesiredRow, StoredBody};

/// How long the answer to which session of a host is its newest counts: as long as a write to a socket may take that nobody calls late. An answer
/// for which a body was read over a connection that is well is ready in a tenth of it, and costs no second question.
const OWNERS_COUNT_FOR: Duration = Duration::from_millis(50);
/// What a delta costs beside its bytes in the cache: two digests and bookkeeping.
const DELTA_WEIGHT: usize = 128;

/// A body as sessions share it.
#[derive(Debug)]
struct SharedBody {
    policy: Option<Body>,
    flat: Arc<[u8]>,
}

/// Changes, or that there are too many for a delta.
type SharedDelta = Option<Arc<[u8]>>;

/// An answer, the life of the authority that signed what is in it, and the host's newest session when it was read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) answer: Answer,
    pub(super) authority_epoch: Option<AuthorityEpoch>,
    pub(super) newest_session: Option<SessionEpoch>,
}

impl From<Answer> for Read {
    fn from(answer: Answer) -> Self {
        Self { answer, authority_epoch: None, newest_session: None }
    }
}

/// Reads and shares.
#[derive(Debug)]
pub(super) struct Reader<S> {
    store: S,
    hooks: Hooks,
    bodies: Cache<Digest, Arc<SharedBody>>,
    deltas: Cache<(Digest, Digest), SharedDelta>,
}

impl<S: AgentsStore> Reader<S> {
    pub(super) fn new(store: S, hooks: Hooks) -> Self {
        Self { store, hooks, bodies: Cache::new(BODIES_BYTES_MAX), deltas: Cache::new(DELTAS_BYTES_MAX) }
    }

    /// Answers each question, in order.
    pub(super) async fn answer(self: Arc<Self>, questions: Vec<(HostId, Want)>) -> Vec<Read> {
        let began = tokio::time::Instant::now();
        let keys = questions.iter().map(|(host, want)| (self.hooks.read_as(*host), want.component));
        let rows = match self.store.load_desired(keys.collect()).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "desired states cannot be read; sessions ask again");
                return questions.iter().map(|_| Answer::Unavailable.into()).collect();
            }
        };
        tracing::debug!(questions = questions.len(), rows = rows.len(), "desired states read");
        let rows: HashMap<(HostId, Component), DesiredRow> =
            rows.into_iter().map(|row| ((row.host, row.component), row)).collect();
        let steps: Vec<Option<Step>> = questions
            .iter()
            .map(|(host, want)| Step::of(want, rows.get(&(self.hooks.read_as(*host), want.component)).copied()?))
            .collect();
        let loaded = self.load_missing(&steps).await.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "bodies cannot be read; sessions ask again");
            Vec::new()
        });
        let hosts: Vec<HostId> = questions.iter().map(|(host, _)| *host).collect();
        let reader = Arc::clone(&self);
        // Flattening and comparing large bodies takes milliseconds: off the workers that keep sessions alive.
        let answered = tokio::task::spawn_blocking(move || {
            loaded.into_iter().for_each(|(digest, body)| reader.share(digest, body));
            let answers = steps.into_iter().zip(&questions).map(|(step, (host, _))| match step {
                Some(step) => Read {
                    answer: reader.supply(*host, step),
                    authority_epoch: Some(step.row.authority_epoch),
                    // Of another host only where a test makes this gateway do wrong.
                    newest_session: (step.row.host == *host).then_some(step.row.newest_session),
                },
                None => Answer::Unchanged.into(),
            });
            answers.collect::<Vec<_>>()
        });
        // The task ends early only with the runtime: nobody waits for an answer then.
        let answers = answered.await.unwrap_or_default();
        if began.elapsed() <= OWNERS_COUNT_FOR { answers } else { self.of_newest_sessions(hosts, answers).await }
    }

    /// Answers that took long, with the sessions that are the newest now; where that cannot be known, nothing is answered.
    async fn of_newest_sessions(&self, hosts: Vec<HostId>, answers: Vec<Read>) -> Vec<Read> {
        let is_of_session = |read: &Read| read.newest_session.is_some();
        let asked: BTreeSet<HostId> =
            hosts.iter().zip(&answers).filter(|(_, read)| is_of_session(read)).map(|(host, _)| *host).collect();
        if asked.is_empty() {
            return answers;
        }
        let newest = match self.store.load_newest_sessions(asked.into_iter().collect()).await {
            Ok(newest) => newest,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the newest sessions cannot be read; sessions ask again");
                return answers.iter().map(|_| Answer::Unavailable.into()).collect();
            }
        };
        let newest: HashMap<HostId, SessionEpoch> = newest.into_iter().collect();
        let anew = |(host, read): (HostId, Read)| {
            let newest_session = read.newest_session.max(newest.get(&host).copied());
            Read { newest_session: read.newest_session.and(newest_session), ..read }
        };
        hosts.into_iter().zip(answers).map(anew).collect()
    }

    /// Loads what these steps need and nobody has yet.
    async fn load_missing(&self, steps: &[Option<Step>]) -> Result<Vec<(Digest, StoredBody)>, S::Error> {
        let mut missing = BTreeSet::new();
        for step in steps.iter().flatten().filter(|step| !step.is_same_content()) {
            for digest in [Some(step.row.stamp.digest), step.base].into_iter().flatten() {
                if digest == step.row.component.empty_digest() {
                    self.put_empty(step.row.component, digest);
                } else if self.bodies.find(digest).is_none() {
                    missing.insert((step.row.component, digest));
                }
            }
        }
        if missing.is_empty() { Ok(Vec::new()) } else { self.store.load_bodies(missing.into_iter().collect()).await }
    }

    /// Keeps a body that was read, with the bytes that are sent of it.
    fn share(&self, digest: Digest, body: StoredBody) {
        let body = match body {
            StoredBody::Policy(body) => SharedBody { flat: artifact::encode(&body).into(), policy: Some(body) },
            StoredBody::Whole(bytes) => SharedBody { policy: None, flat: bytes.into() },
        };
        let weight = body.flat.len();
        self.bodies.put(digest, Arc::new(body), weight);
    }

    /// An empty component needs no row: its bytes follow from its kind.
    fn put_empty(&self, component: Component, digest: Digest) {
        if self.bodies.find(digest).is_none() {
            let policy = (component == Component::Policy).then(Body::default);
            let flat: Arc<[u8]> = component.empty_bytes().into();
            let weight = flat.len();
            self.bodies.put(digest, Arc::new(SharedBody { policy, flat }), weight);
        }
    }

    fn supply(&self, host: HostId, step: Step) -> Answer {
        let DesiredRow { stamp, signature, component, .. } = step.row;
        if step.is_same_content() {
            return Answer::Current { stamp, signature, supply: Supply::SameDigest };
        }
        let Some(body) = self.bodies.find(stamp.digest) else { return Answer::Unavailable };
        let delta =
            step.base.and_then(|base| Some(DeltaOffer { base, changes: self.delta(base, stamp.digest, &body)? }));
        let supply = Supply::Whole { body: Arc::clone(&body.flat), delta };
        Answer::Current { stamp, signature, supply: self.hooks.alter(host, component, supply) }
    }

    fn delta(&self, base: Digest, target: Digest, body: &SharedBody) -> SharedDelta {
        if let Some(known) = self.deltas.find((base, target)) {
            return known;
        }
        let from = self.bodies.find(base)?;
        let (from, to) = (from.policy.as_ref()?, body.policy.as_ref()?);
        // Too large for a delta is an answer too, and worth keeping.
        let changes: SharedDelta = holdfast_wire::encode_changes(&diff(from, to).changes).ok().map(Into::into);
        let weight = DELTA_WEIGHT + changes.as_ref().map_or(0, |changes| changes.len());
        self.deltas.put((base, target), changes.clone(), weight);
        changes
    }
}

/// From what a session wrote to what is current.
#[derive(Clone, Copy, Debug)]
struct Step {
    row: DesiredRow,
    /// The digest that a delta may start from.
    base: Option<Digest>,
    same_content: bool,
}

impl Step {
    /// `None` if there is nothing to write.
    fn of(want: &Want, row: DesiredRow) -> Option<Self> {
        if want.snapshot {
            return Some(Self { row, base: None, same_content: false });
        }
        let tip = want.tip?;
        if row.stamp == tip {
            return None;
        }
        let same_content = row.stamp.digest == tip.digest;
        let base = (want.component == Component::Policy && !same_content).then_some(tip.digest);
        Some(Self { row, base, same_content })
    }

    const fn is_same_content(&self) -> bool {
        self.same_content
    }
}
