//! An authority in memory, for tests of the door: it keeps what it is told and answers as the real one would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_identity::{Ca, KeyRequest, SigningKey, VerifyingKey};
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{EventId, HostId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};
use holdfast_model::policy::Body;
use holdfast_model::statement::{Authority, desired_bytes};
use holdfast_store::request::{Enrolment, RequestAnswer, TokenRefusal};
use holdfast_store::session::{Fact, FactsRecorded, HostNewest, Newest, Opening, Seen};
use holdfast_store::token::TokenHash;
use time::OffsetDateTime;
use tokio::sync::watch;
use uuid::Uuid;

use super::store::{Admitted, AgentsStore, DesiredRow, OfAValue, StoredBody};

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// The database is away.
    #[error("the authority is away")]
    Away,
    /// Something in the array is never written.
    #[error("something has a value that cannot be used")]
    Value,
}

impl OfAValue for Refused {
    fn is_of_a_value(&self) -> bool {
        match self {
            Self::Away => false,
            Self::Value => true,
        }
    }
}

#[derive(Clone)]
pub(super) struct Memory {
    authority: Arc<Mutex<Authority>>,
    renderer: Arc<SigningKey>,
    ca: Arc<Ca>,
    away: Arc<AtomicBool>,
    /// Reads that are about these hosts get no answer meanwhile.
    silent: Arc<watch::Sender<BTreeSet<HostId>>>,
    /// Compares get no answer meanwhile.
    hangs: Arc<watch::Sender<bool>>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    hosts: BTreeMap<HostId, (VerifyingKey, SessionEpoch)>,
    desired: BTreeMap<(HostId, Component), DesiredRow>,
    bodies: BTreeMap<Digest, StoredBody>,
    facts: Vec<Fact>,
    tokens: Vec<(TokenHash, u32)>,
    requests: BTreeMap<EventId, (HostId, Vec<u8>)>,
    enrolments: Vec<(Enrolment, EventId, HostId)>,
    /// What these hosts say has a value that is never written, and an array with it in it is refused whole.
    poisonous: BTreeSet<HostId>,
    /// How often an array was.
    poisoned: usize,
    /// Facts cannot be written meanwhile.
    holds_facts: bool,
    /// Requests are taken and not decided.
    undecided: bool,
    asked: usize,
    looks: usize,
    compares: usize,
    /// How often the policy of each host was read.
    reads: BTreeMap<HostId, usize>,
    /// Reads that wait because of a silent host.
    waiting_reads: usize,
}

impl Kept {
    /// What is about a host whose values are never written is refused, and all that comes with it.
    fn taste(&mut self, mut hosts: impl Iterator<Item = HostId>) -> Result<(), Refused> {
        if hosts.any(|host| self.poisonous.contains(&host)) {
            self.poisoned += 1;
            return Err(Refused::Value);
        }
        Ok(())
    }

    fn is_current(&self, host: HostId, session_epoch: SessionEpoch) -> bool {
        self.hosts.get(&host).is_some_and(|(_, newest)| *newest == session_epoch)
    }
}

impl Memory {
    pub(super) fn new(ca: Arc<Ca>, authority: Authority) -> Self {
        let renderer = Arc::new(SigningKey::generate().unwrap());
        let silent = Arc::new(watch::channel(BTreeSet::new()).0);
        Self {
            authority: Arc::new(Mutex::new(authority)),
            renderer,
            ca,
            away: Arc::default(),
            silent,
            hangs: Arc::new(watch::channel(false).0),
            kept: Arc::default(),
        }
    }

    fn kept(&self) -> Result<MutexGuard<'_, Kept>, Refused> {
        let is_there = !self.away.load(Ordering::SeqCst);
        is_there.then(|| self.lock()).ok_or(Refused::Away)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    pub(super) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// Whether compares read, and are not answered.
    pub(super) fn set_compares_hang(&self, hang: bool) {
        self.hangs.send_replace(hang);
    }

    /// From now on what a host says cannot be written.
    pub(super) fn poison(&self, host: HostId) {
        self.lock().poisonous.insert(host);
    }

    /// Whether facts cannot be written, while all else can be done.
    pub(super) fn hold_facts(&self, holds: bool) {
        self.lock().holds_facts = holds;
    }

    /// How many arrays were refused for that.
    pub(super) fn poisoned(&self) -> usize {
        self.lock().poisoned
    }

    fn authority(&self) -> Authority {
        *self.authority.lock().unwrap()
    }

    /// Somebody says that the database was restored: nothing is signed in the new life yet.
    pub(super) fn raise(&self) {
        let mut authority = self.authority.lock().unwrap();
        authority.epoch = authority.epoch.next().unwrap();
    }

    /// What is desired of a host is signed in the life that the authority is in.
    pub(super) fn sign_again(&self, host: HostId) {
        let authority = self.authority();
        for ((_, component), row) in self.lock().desired.iter_mut().filter(|((of, _), _)| *of == host) {
            let desired = Desired { host, component: *component, stamp: row.stamp };
            row.signature = self.renderer.sign(&desired_bytes(authority, &desired)).0;
            row.authority_epoch = authority.epoch;
        }
    }

    /// The database is one from before a host's sessions.
    pub(super) fn forget_sessions_of(&self, host: HostId) {
        if let Some((_, newest)) = self.lock().hosts.get_mut(&host) {
            *newest = SessionEpoch::ZERO;
        }
    }

    /// Another gateway opens a session of a host.
    pub(super) fn open_elsewhere(&self, host: HostId) {
        if let Some((_, newest)) = self.lock().hosts.get_mut(&host) {
            *newest = newest.next().unwrap();
        }
    }

    /// The database is one from before the newest policy of a host, and knows its sessions.
    pub(super) fn go_back(&self, host: HostId, to: Stamp) {
        if let Some(row) = self.lock().desired.get_mut(&(host, Component::Policy)) {
            row.stamp = to;
        }
        self.sign_again(host);
    }

    pub(super) fn renderer_key(&self) -> VerifyingKey {
        self.renderer.verifying_key()
    }

    pub(super) fn enrol(&self, host: HostId, outcome_key: VerifyingKey) {
        self.lock().hosts.insert(host, (outcome_key, SessionEpoch::ZERO));
        for component in Component::ALL {
            self.put(host, component, component.empty_digest());
        }
    }

    pub(super) fn allow_token(&self, token: TokenHash, uses: u32) {
        self.lock().tokens.push((token, uses));
    }

    /// How often a token may still be used.
    pub(super) fn uses_left(&self, token: TokenHash) -> Option<u32> {
        self.lock().tokens.iter().find(|(hash, _)| *hash == token).map(|(_, uses)| *uses)
    }

    /// Whether requests that are taken wait, as they do while no renderer runs.
    pub(super) fn set_undecided(&self, undecided: bool) {
        self.lock().undecided = undecided;
    }

    /// How many enrolments were asked for, the same one more than once among them.
    pub(super) fn asked(&self) -> usize {
        self.lock().asked
    }

    /// How many requests were written.
    pub(super) fn requests(&self) -> usize {
        self.lock().requests.len()
    }

    /// How often answers were looked for.
    pub(super) fn looks(&self) -> usize {
        self.lock().looks
    }

    /// A render: the version rises by one.
    pub(super) fn publish(&self, host: HostId, body: &Body) -> Stamp {
        self.lock().bodies.insert(body.digest(), StoredBody::Policy(body.clone()));
        self.put(host, Component::Policy, body.digest())
    }

    /// A render of a body that was published before.
    pub(super) fn publish_again(&self, host: HostId, digest: Digest) -> Stamp {
        self.put(host, Component::Policy, digest)
    }

    /// Which hosts no read is answered about from now on.
    pub(super) fn set_silent(&self, hosts: &[HostId]) {
        self.silent.send_replace(hosts.iter().copied().collect());
    }

    /// How many reads wait for a host that is silent no more.
    pub(super) fn waiting_reads(&self) -> usize {
        self.lock().waiting_reads
    }

    /// How often the policy of a host was read.
    pub(super) fn reads_of(&self, host: HostId) -> usize {
        self.lock().reads.get(&host).copied().unwrap_or_default()
    }

    fn put(&self, host: HostId, component: Component, digest: Digest) -> Stamp {
        let mut kept = self.lock();
        let before = kept.desired.get(&(host, component)).map(|row| row.stamp.version);
        let version = before.map_or(Version::FIRST, |version| version.next().unwrap());
        let stamp = Stamp { version, digest };
        let statement = desired_bytes(self.authority(), &Desired { host, component, stamp });
        let signature = self.renderer.sign(&statement).0;
        kept.desired.insert(
            (host, component),
            DesiredRow {
                host,
                component,
                stamp,
                signature,
                authority_epoch: self.authority().epoch,
                newest_session: SessionEpoch::ZERO,
            },
        );
        stamp
    }

    pub(super) fn facts(&self) -> Vec<Fact> {
        self.lock().facts.clone()
    }

    pub(super) fn compares(&self) -> usize {
        self.lock().compares
    }
}

impl AgentsStore for Memory {
    type Error = Refused;

    async fn open_sessions(&self, openings: Vec<Opening>) -> Result<Vec<Admitted>, Refused> {
        let authority = self.authority();
        let mut kept = self.kept()?;
        kept.taste(openings.iter().map(|opening| opening.host))?;
        let Kept { hosts, desired, .. } = &mut *kept;
        let open = |opening: Opening| match hosts.get_mut(&opening.host) {
            Some((outcome_key, newest)) => {
                *newest = newest.next().unwrap();
                Admitted::Session {
                    namespace: Name::default_namespace(),
                    session_epoch: *newest,
                    authority,
                    outcome_key: *outcome_key,
                    is_between_lives: desired
                        .iter()
                        .any(|((host, _), row)| *host == opening.host && row.authority_epoch < authority.epoch),
                }
            }
            None => Admitted::HostUnknown,
        };
        Ok(openings.into_iter().map(open).collect())
    }

    async fn load_desired(&self, wanted: Vec<(HostId, Component)>) -> Result<Vec<DesiredRow>, Refused> {
        let mut silent = self.silent.subscribe();
        let is_answered = |silent: &BTreeSet<HostId>| wanted.iter().all(|(host, _)| !silent.contains(host));
        if !is_answered(&silent.borrow_and_update()) {
            self.lock().waiting_reads += 1;
            drop(silent.wait_for(is_answered).await);
        }
        let mut kept = self.kept()?;
        for (host, _) in wanted.iter().filter(|(_, component)| *component == Component::Policy) {
            *kept.reads.entry(*host).or_default() += 1;
        }
        let row = |key: &(HostId, Component)| {
            let newest_session = kept.hosts.get(&key.0).map_or(SessionEpoch::ZERO, |(_, newest)| *newest);
            Some(DesiredRow { newest_session, ..*kept.desired.get(key)? })
        };
        Ok(wanted.iter().filter_map(row).collect())
    }

    async fn load_newest_sessions(&self, hosts: Vec<HostId>) -> Result<Vec<(HostId, SessionEpoch)>, Refused> {
        let kept = self.kept()?;
        Ok(hosts.into_iter().filter_map(|host| Some((host, kept.hosts.get(&host)?.1))).collect())
    }

    async fn load_bodies(&self, digests: Vec<(Component, Digest)>) -> Result<Vec<(Digest, StoredBody)>, Refused> {
        let kept = self.kept()?;
        Ok(digests.iter().filter_map(|(_, digest)| Some((*digest, kept.bodies.get(digest)?.clone()))).collect())
    }

    async fn compare(&self, hosts: Vec<HostId>) -> Result<Newest, Refused> {
        let authority = self.authority();
        let hosts = {
            let mut kept = self.kept()?;
            kept.compares += 1;
            let newest = |host: HostId| {
                let versions = |component| Some((component, kept.desired.get(&(host, component))?.stamp.version));
                let session_epoch = kept.hosts.get(&host)?.1;
                Some(HostNewest {
                    host,
                    session_epoch,
                    versions: Component::ALL.into_iter().filter_map(versions).collect(),
                })
            };
            hosts.into_iter().filter_map(newest).collect()
        };
        // Whoever lets it go on is there as long as this is.
        self.hangs.subscribe().wait_for(|hangs| !hangs).await.expect("its sender is here");
        Ok(Newest { authority, hosts })
    }

    async fn record(&self, facts: Vec<Fact>) -> Result<FactsRecorded, Refused> {
        let mut kept = self.kept()?;
        if kept.holds_facts {
            return Err(Refused::Away);
        }
        kept.taste(facts.iter().map(|fact| fact.host))?;
        let mut recorded = FactsRecorded::default();
        for fact in facts {
            if kept.is_current(fact.host, fact.session_epoch) || matches!(fact.seen, Seen::Closed(_)) {
                recorded.requests += usize::from(matches!(fact.seen, Seen::Addresses(_)));
                // Whether it is news is told by the store alone; to nobody's harm each is.
                recorded.statuses_new += usize::from(matches!(fact.seen, Seen::Status(_)));
                kept.facts.push(fact);
            } else {
                recorded.stale.push((fact.host, fact.session_epoch));
            }
        }
        Ok(recorded)
    }

    async fn load_authority(&self) -> Result<Authority, Refused> {
        self.kept().map(|_| self.authority())
    }

    async fn request_enrolment(
        &self,
        enrolment: Enrolment,
    ) -> Result<Result<(EventId, HostId), TokenRefusal>, Refused> {
        let host = HostId::new(Uuid::now_v7());
        {
            let mut kept = self.kept()?;
            kept.asked += 1;
            if let Some((_, request, host)) = kept.enrolments.iter().find(|(known, ..)| *known == enrolment) {
                return Ok(Ok((*request, *host)));
            }
            let token = kept.tokens.iter_mut().find(|(hash, _)| *hash == enrolment.hash);
            let Some((_, uses)) = token else { return Ok(Err(TokenRefusal::Unknown)) };
            if *uses == 0 {
                return Ok(Err(TokenRefusal::Spent));
            }
            *uses -= 1;
        }
        self.enrol(host, VerifyingKey::from_bytes(*enrolment.outcome_key.as_bytes()));
        let request = EventId::new(Uuid::now_v7());
        let mut kept = self.kept()?;
        kept.requests.insert(request, (host, enrolment.csr.clone()));
        kept.enrolments.push((enrolment, request, host));
        Ok(Ok((request, host)))
    }

    async fn request_certificate(&self, host: HostId, csr: Vec<u8>) -> Result<EventId, Refused> {
        let request = EventId::new(Uuid::now_v7());
        self.kept()?.requests.insert(request, (host, csr));
        Ok(request)
    }

    async fn load_answers(&self, requests: Vec<EventId>) -> Result<Vec<(EventId, RequestAnswer)>, Refused> {
        let mut kept = self.kept()?;
        kept.looks += 1;
        let answer = |id: EventId| {
            let (host, csr) = kept.requests.get(&id)?;
            if kept.undecided {
                return Some((id, RequestAnswer::Waiting));
            }
            let key = KeyRequest::from_der(csr).unwrap();
            let leaf = self.ca.issue_host(*host, &key, OffsetDateTime::now_utc()).unwrap();
            Some((id, RequestAnswer::Granted { certificate_chain: Some(leaf.chain_pem.into_bytes()) }))
        };
        Ok(requests.into_iter().filter_map(answer).collect())
    }

    async fn hold_lease(&self, _ttl: Duration) -> Result<bool, Refused> {
        self.kept().map(|_| true)
    }

    async fn release_lease(&self) -> Result<(), Refused> {
        self.kept().map(|_| ())
    }
}
