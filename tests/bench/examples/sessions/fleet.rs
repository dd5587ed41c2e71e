//! Many enrolled hosts with their certificates, and the renderer's half of a change of all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use holdfast_bench::typical;
use holdfast_bus::Bus;
use holdfast_events::{Actor, Hint, SignatureBytes};
use holdfast_identity::tls::client::AgentProtocol;
use holdfast_identity::{Ca, KeyRequest, LeafKey, SigningKey, TrustRoots, tls};
use holdfast_model::artifact::tree_of;
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{LeaseTerm, Revision, Version};
use holdfast_model::policy::Body;
use holdfast_model::statement::{Authority, desired_bytes};
use holdfast_store::Store;
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::render::{Committed, RenderCommit, SignedState};
use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};
use rustls::ClientConfig;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::agent::AgentKeys;
use crate::serve::{Kind, Order, ROW_BYTES, mk_bus};

/// Everything that servers and agents share.
pub(crate) struct Fleet {
    store: Store,
    bus: Bus,
    order: Order,
    key: SigningKey,
    pub(crate) authority: Authority,
    pub(crate) keys: AgentKeys,
    pub(crate) hosts: Vec<(HostId, Arc<ClientConfig>)>,
    /// What the agents of the floor dial with.
    pub(crate) bare: Arc<ClientConfig>,
    stamp: Stamp,
    /// The version of each host's policy.
    versions: Vec<Version>,
    revision: Revision,
    hints: u64,
    term: Option<LeaseTerm>,
    /// Two large policies without a member in common, and whether each is stored.
    large: [(Body, bool); 2],
    _folder: tempfile::TempDir,
}

impl Fleet {
    /// Enrols so many hosts and commits a typical policy for each; its two large ones have so many peers.
    pub(crate) async fn start(postgres: &TestPostgres, nats: &str, agents: u32, large_peers: u32) -> Self {
        let now = OffsetDateTime::now_utc();
        let ca = Ca::create(TEST_AUTHORITY, now).expect("a CA");
        let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir().expect("a folder");
        let lies = folder.path().join("ca");
        ca.save(&lies).expect("the folder is ours");
        let (key, outcome) = (SigningKey::generate().expect("a key"), Arc::new(SigningKey::generate().expect("a key")));
        let roots = ca.roots().expect("roots");
        let hosts = enrol(postgres, &ca, &roots, &outcome, agents);
        let bare = ca.issue_client("floor", now).expect("a certificate");
        let store = postgres.store("holdfast_renderer");
        let authority = store.load_authority().await.expect("it is migrated");
        let bus = mk_bus(nats, "renderer").await;
        bus.ensure_hints().await.expect("the stream is made");
        let body = typical::policy(0, typical::SETS);
        let mut fleet = Self {
            store,
            bus,
            order: order(postgres, &lies, nats, &key, agents),
            authority,
            keys: AgentKeys { renderer: key.verifying_key(), outcome },
            key,
            versions: vec![Version::FIRST; hosts.len()],
            hosts,
            bare: Arc::new(tls::mutual(&bare, &roots).expect("a configuration")),
            stamp: Stamp { version: Version::FIRST, digest: body.digest() },
            revision: Revision::from_raw(1),
            hints: 1,
            term: None,
            large: [0, 1].map(|generation| (typical::one_set(generation, 0..large_peers), false)),
            _folder: folder,
        };
        fleet.commit(&body, &Component::ALL, None, |_| false).await;
        floor_rows(postgres, agents);
        fleet
    }

    pub(crate) fn order(&self, kind: Kind) -> Order {
        Order { kind, ..self.order.clone() }
    }

    /// The policy that was changed to last.
    pub(crate) fn newest(&self) -> Digest {
        self.stamp.digest
    }

    fn chosen(&self, only: Option<usize>) -> std::ops::Range<usize> {
        only.map_or(0..self.hosts.len(), |nth| nth..nth + 1)
    }

    /// One peer more for every host; when that was committed. Whom it concerns is then told to the gateway.
    pub(crate) async fn change_all(&mut self) -> Instant {
        self.change(None).await
    }

    /// The same for one host.
    pub(crate) async fn change_one(&mut self, nth: usize) -> Instant {
        self.change(Some(nth)).await
    }

    /// One of two large policies in turn for one host: a whole one, since they have nothing in common.
    pub(crate) async fn change_large(&mut self, nth: usize) {
        self.large.reverse();
        let [(body, is_known), _] = self.large.clone();
        self.change_to(&body, Some(nth), |_| is_known).await;
        self.large[0].1 = true;
    }

    /// The bytes of the larger of the two as they are sent.
    pub(crate) fn large_bytes(&self) -> usize {
        self.large.iter().map(|(body, _)| holdfast_model::artifact::encode(body).len()).max().unwrap_or_default()
    }

    async fn change(&mut self, only: Option<usize>) -> Instant {
        let mut body = typical::policy(0, typical::SETS);
        let more = u32::try_from(self.revision.raw()).expect("not that many");
        body.sets[0].v4 = body.sets[0].v4.including(0xc000_0000 + 2 * more);
        self.change_to(&body, only, |_| false).await
    }

    async fn change_to(&mut self, body: &Body, only: Option<usize>, known: impl Fn(Digest) -> bool) -> Instant {
        self.revision = self.revision.next().expect("far from the last");
        self.stamp = Stamp { digest: body.digest(), ..self.stamp };
        for nth in self.chosen(only) {
            self.versions[nth] = self.versions[nth].next().expect("far from the last");
        }
        let term = self.commit(body, &[Component::Policy], only, known).await;
        let committed = Instant::now();
        let state = |nth: usize| (self.hosts[nth].0, Component::Policy, self.versions[nth]);
        let states: Vec<_> = self.chosen(only).map(state).collect();
        for hint in Hint::of_render(term, self.hints, &states) {
            self.hints += 1;
            self.bus.publish_hint(&Hint::Host(hint)).await.expect("publishes");
        }
        committed
    }

    /// Stores the newest policy of every host, or of one, as a renderer does.
    async fn commit(
        &mut self,
        body: &Body,
        components: &[Component],
        only: Option<usize>,
        known: impl Fn(Digest) -> bool,
    ) -> LeaseTerm {
        let lease_term = self.lease().await;
        let (digest, mut artifacts) = tree_of(body, known);
        assert_eq!(digest, self.stamp.digest, "the root names the body");
        let mut states = Vec::new();
        for (nth, component) in self.chosen(only).flat_map(|nth| components.iter().map(move |c| (nth, *c))) {
            let host = self.hosts[nth].0;
            let stamp = match component {
                Component::Policy => Stamp { version: self.versions[nth], ..self.stamp },
                Component::Settings | Component::Credentials | Component::Workloads => {
                    artifacts.entry(component.empty_digest()).or_insert_with(|| component.empty_bytes());
                    Stamp { version: Version::FIRST, digest: component.empty_digest() }
                }
            };
            let desired = Desired { host, component, stamp };
            let signature = self.key.sign(&desired_bytes(self.authority, &desired));
            states.push(SignedState { desired, signature: SignatureBytes::from_bytes(signature.0) });
        }
        let commit = RenderCommit {
            lease_term,
            authority_epoch: self.authority.epoch,
            earlier: std::collections::BTreeMap::new(),
            revision: self.revision,
            intent: self.revision,
            is_of_held: false,
            let_go: None,
            hosts_rendered: u32::try_from(self.chosen(only).len()).expect("a fleet"),
            states,
            artifacts: artifacts.into_iter().collect::<BTreeMap<_, _>>(),
        };
        assert_eq!(self.store.commit_render(commit).await.expect("the lease is held"), Committed::Stored);
        lease_term
    }

    /// The renderer's lease, renewed, or claimed anew if a storm outlived it.
    async fn lease(&mut self) -> LeaseTerm {
        if let Some(term) = self.term
            && self.store.renew_lease(RENDERER_LEASE, term).await.expect("reads")
        {
            return term;
        }
        let claim = self.store.acquire_lease(Actor::Renderer, RENDERER_LEASE, "bench").await.expect("reads");
        let Claim::Acquired(term) = claim else { panic!("nobody else renders: {claim:?}") };
        self.term = Some(term);
        term
    }
}

fn order(postgres: &TestPostgres, ca: &Path, nats: &str, key: &SigningKey, agents: u32) -> Order {
    let config = postgres.config("postgres");
    Order {
        kind: Kind::Product,
        agents,
        ca: ca.to_owned(),
        postgres: (config.host, config.port, config.database),
        nats: nats.to_owned(),
        renderer: *key.verifying_key().as_bytes(),
    }
}

/// What the renderer writes when it grants requests, here for all hosts at once; and what each host dials with.
fn enrol(
    postgres: &TestPostgres,
    ca: &Ca,
    roots: &TrustRoots,
    outcome: &SigningKey,
    agents: u32,
) -> Vec<(HostId, Arc<ClientConfig>)> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut hosts = Vec::new();
    let mut serials = Vec::new();
    for n in 1..=agents {
        let id = Uuid::from_u128(u128::from(n));
        let leaf = LeafKey::generate().expect("a key");
        let request = KeyRequest::from_der(&leaf.request().expect("a request")).expect("our own request");
        let issued = ca.issue_host(HostId::new(id), &request, OffsetDateTime::now_utc()).expect("a certificate");
        let credential = leaf.credential(issued.chain_pem.as_bytes()).expect("it fits the key");
        let config = tls::agent(&credential, roots, AgentProtocol::Session).expect("a configuration");
        serials.push(format!(
            "('{}', '{id}', gen_random_uuid(), now(), now() + interval '1 day', now())",
            hex(&issued.serial)
        ));
        hosts.push((HostId::new(id), Arc::new(config)));
    }
    let key = hex(outcome.verifying_key().as_bytes());
    let components = Component::ALL.map(|component| component.number().to_string()).join(", ");
    postgres.sql(&format!(
        "INSERT INTO hosts SELECT lpad(to_hex(n), 32, '0')::uuid, 'default', 'host-' || n, NULL, NULL, '{{}}', \
         gen_random_uuid(), decode('{key}', 'hex'), now() FROM generate_series(1, {agents}) n; \
         INSERT INTO sessions (host_id, session_epoch) SELECT host_id, 0 FROM hosts; \
         INSERT INTO observed (host_id, component, session_epoch, update_seq, conditions) \
         SELECT host_id, component, 0, 0, '[]' FROM hosts, UNNEST(ARRAY[{components}]) c (component)"
    ));
    for some in serials.chunks(500) {
        postgres.sql(&format!("INSERT INTO certificates VALUES {}", some.join(", ")));
    }
    hosts
}

fn floor_rows(postgres: &TestPostgres, agents: u32) {
    postgres.sql(&format!(
        "CREATE SCHEMA floor; CREATE TABLE floor.rows (id int PRIMARY KEY, bytes bytea NOT NULL); \
         ALTER TABLE floor.rows ALTER COLUMN bytes SET STORAGE EXTERNAL; \
         INSERT INTO floor.rows SELECT n, decode(repeat('07', {ROW_BYTES}), 'hex') FROM generate_series(1, {agents}) n"
    ));
}
