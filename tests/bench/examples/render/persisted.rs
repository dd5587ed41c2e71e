//! A render stored: P17 where every host's policy changed, P18 where nothing did.
//!
//! - The product signs and commits by its store; the floor updates as many rows of 4 kB, with a version and an outbox row each.
//! - Both are in one Postgres whose commits wait for the disk.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_bench::paired::{Bound, Paired, Role};
use holdfast_bench::{Report, Strict, typical};
use holdfast_events::{Actor, SignatureBytes};
use holdfast_identity::SigningKey;
use holdfast_model::artifact::tree_of;
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::numbers::{LeaseTerm, Revision, Version};
use holdfast_model::statement::{Authority, desired_bytes};
use holdfast_render::fleet::{Fleet, MAX_WAIT_MS};
use holdfast_store::Store;
use holdfast_store::lease::{Claim, RENDERER_LEASE};
use holdfast_store::render::{Committed, RenderCommit, SignedState};
use holdfast_store::testing::TestPostgres;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::runtime::Runtime;

use crate::fleet;
use crate::floor::Floor;
use crate::{REVISION, timed};

const ROW_BYTES: usize = 4_096;
/// Rows of one statement: the fastest in the comparison.
const CHUNK: usize = 1_000;
/// What a render writes to.
const TABLES: [&str; 5] = ["events", "desired_states", "desired_latest", "artifacts", "render_progress"];

pub(crate) fn measure(report: &mut Report, floor: &Floor, hosts: u32, rounds: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let mut postgres = runtime.block_on(TestPostgres::start_migrated());
    postgres.restart_durable();
    // Stores are made in the context of a runtime.
    let _context = runtime.enter();
    let mut product = Product::start(&runtime, &postgres, hosts);
    let mut raw = runtime.block_on(Raw::start(&postgres, hosts));
    unchanged(report, &product, &mut raw, &postgres, floor, rounds);
    changed(report, &mut product, &mut raw, rounds);
}

/// P18.
fn unchanged(
    report: &mut Report,
    product: &Product<'_>,
    raw: &mut Raw,
    postgres: &TestPostgres,
    floor: &Floor,
    rounds: usize,
) {
    let (runtime, hosts) = (product.runtime, product.hosts);
    let mark: u64 = postgres.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())").trim().parse().expect("a number");
    let (ours, least) =
        ("holdfast-renderer, started again", "inverted index, SHA-256, diff gate; ids and versions read");
    let paired = Paired::new(format!("render of {hosts} hosts where nothing changed"), rounds)
        .side(ours, Role::Product)
        .side(least, Role::Floor)
        .ratio("P18", ours, least, Bound::AtMost(4.0));
    let works: &mut [&mut dyn FnMut() -> Duration] = &mut [&mut || product.restart(), &mut || {
        timed(|| {
            floor.render();
            assert_eq!(floor.gate(), 0, "nothing changed");
            assert_eq!(runtime.block_on(raw.scan()), u64::from(hosts), "every row is read");
        })
    }];
    report.compared.push(paired.run(1, works));
    for table in TABLES {
        let rows = postgres.sql(&format!("SELECT count(*) FROM {table} WHERE xmin::text::bigint >= {mark}"));
        let rows: u32 = rows.trim().parse().expect("a number");
        let what = format!("rows of {table} written where nothing changed");
        report.strict.push(Strict::of(what, f64::from(rows), "rows").exactly("P18", 0.0));
    }
}

/// P17.
fn changed(report: &mut Report, product: &mut Product<'_>, raw: &mut Raw, rounds: usize) {
    let runtime = product.runtime;
    let (ours, least) = ("holdfast-renderer: signed and committed", "UNNEST updates, versions, outbox");
    let paired = Paired::new(format!("{} changed desired states stored", product.hosts), rounds)
        .side(ours, Role::Product)
        .side(least, Role::Floor)
        .ratio("P17", ours, least, Bound::AtMost(1.6));
    let works: &mut [&mut dyn FnMut() -> Duration] =
        &mut [&mut || product.change_all(), &mut || runtime.block_on(raw.change_all())];
    report.compared.push(paired.run(1, works));
}

/// The renderer's own way to the database, with its lease.
struct Product<'a> {
    runtime: &'a Runtime,
    store: Store,
    key: SigningKey,
    authority: Authority,
    term: LeaseTerm,
    hosts: u32,
    intent: holdfast_model::intent::Intent,
    revision: Revision,
    round: u8,
}

impl<'a> Product<'a> {
    /// Enrols a fleet and stores what is rendered for it.
    fn start(runtime: &'a Runtime, postgres: &TestPostgres, hosts: u32) -> Self {
        let intent = fleet::intent(hosts);
        // What the renderer writes when it grants a request; here for all hosts at once.
        postgres.sql(&format!(
            "INSERT INTO hosts SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 'default', 'host-' || n, \
             NULL, NULL, '{{}}', gen_random_uuid(), decode(repeat('07', 32), 'hex'), now() FROM generate_series(0, {hosts} - 1) n"
        ));
        let store = postgres.store("holdfast_renderer");
        let authority = runtime.block_on(store.load_authority()).expect("it is migrated");
        let claim =
            runtime.block_on(store.acquire_lease(Actor::Renderer, RENDERER_LEASE, "bench")).expect("it is free");
        let Claim::Acquired(term) = claim else { panic!("nobody else renders: {claim:?}") };
        let key = SigningKey::generate().expect("a key");
        let product = Self { runtime, store, key, authority, term, hosts, intent, revision: REVISION, round: 0 };
        let fleet = Fleet::new(&product.intent, REVISION, Revision::default(), [], 0);
        let planned = fleet.poll_plan(MAX_WAIT_MS).expect("every host is due");
        assert_eq!(product.commit(planned.plan.states, planned.plan.artifacts, REVISION), Committed::Stored);
        product
    }

    fn commit(
        &self,
        states: Vec<Desired>,
        artifacts: BTreeMap<holdfast_model::digest::Digest, Vec<u8>>,
        revision: Revision,
    ) -> Committed {
        let sign = |desired: Desired| {
            let signature = self.key.sign(&desired_bytes(self.authority, &desired));
            SignedState { desired, signature: SignatureBytes::from_bytes(signature.0) }
        };
        let commit = RenderCommit {
            lease_term: self.term,
            authority_epoch: self.authority.epoch,
            earlier: std::collections::BTreeMap::new(),
            revision,
            intent: revision,
            is_of_held: false,
            let_go: None,
            hosts_rendered: self.hosts,
            states: states.into_iter().map(sign).collect(),
            artifacts,
        };
        self.runtime.block_on(self.store.commit_render(commit)).expect("the lease is held")
    }

    fn renew(&self) {
        let renewed = self.runtime.block_on(self.store.renew_lease(RENDERER_LEASE, self.term)).expect("reads");
        assert!(renewed, "the lease is held");
    }

    /// What a renderer does at its start: reads what is stored, renders everything, finds that nothing is new.
    fn restart(&self) -> Duration {
        self.renew();
        timed(|| {
            let latest = self.runtime.block_on(self.store.all_latest()).expect("reads");
            let latest = latest.into_iter().map(|state| state.state.desired);
            let fleet = Fleet::new(&self.intent, REVISION, REVISION, latest, 0);
            let planned = fleet.poll_plan(MAX_WAIT_MS).expect("every host is due");
            assert!(planned.plan.states.is_empty(), "nothing changed");
            assert_eq!(self.commit(vec![], planned.plan.artifacts, REVISION), Committed::Nothing);
        })
    }

    /// A policy of 60 rules for every host that it did not have before, one peer of it the host's own.
    fn change_all(&mut self) -> Duration {
        self.renew();
        self.round += 1;
        self.revision = self.revision.next().expect("far from the last");
        let version = Version::from_raw(u64::from(self.round) + 1).expect("above zero");
        let base = typical::policy(self.round, typical::SETS);
        let (mut states, mut artifacts) = (Vec::new(), BTreeMap::new());
        for (own, host) in (0_u32..).zip(self.intent.hosts.keys()) {
            let mut body = base.clone();
            body.sets[0].v4 = body.sets[0].v4.including(0xc000_0000 + 2 * own);
            let (digest, nodes) = tree_of(&body, |node| artifacts.contains_key(&node));
            artifacts.extend(nodes);
            states.push(Desired { host: *host, component: Component::Policy, stamp: Stamp { version, digest } });
        }
        let begun = Instant::now();
        assert_eq!(self.commit(states, artifacts, self.revision), Committed::Stored);
        begun.elapsed()
    }
}

/// Raw statements over tables of their own.
struct Raw {
    connection: PgConnection,
    hosts: u32,
    round: u8,
}

impl Raw {
    async fn start(postgres: &TestPostgres, hosts: u32) -> Self {
        let config = postgres.config("postgres");
        let options = PgConnectOptions::new().host(&config.host).port(config.port);
        let options = options.username(&config.user).database(&config.database);
        let mut connection = PgConnection::connect_with(&options).await.expect("Postgres is there");
        for statement in [
            "CREATE SCHEMA floor",
            "CREATE TABLE floor.rows (id int PRIMARY KEY, version bigint NOT NULL, bytes bytea NOT NULL)",
            "ALTER TABLE floor.rows ALTER COLUMN bytes SET STORAGE EXTERNAL",
            "CREATE TABLE floor.outbox (id bigserial PRIMARY KEY, row_id int NOT NULL)",
        ] {
            sqlx::query(statement).execute(&mut connection).await.expect("the table is made");
        }
        let fill =
            "INSERT INTO floor.rows SELECT n, 1, decode(repeat('00', 4096), 'hex') FROM generate_series(0, $1 - 1) n";
        sqlx::query(fill).bind(i32::try_from(hosts).expect("a fleet")).execute(&mut connection).await.expect("inserts");
        Self { connection, hosts, round: 0 }
    }

    /// Ids and versions of all rows; how many there were.
    async fn scan(&mut self) -> u64 {
        let rows: Vec<(i32, i64)> =
            sqlx::query_as("SELECT id, version FROM floor.rows").fetch_all(&mut self.connection).await.expect("reads");
        rows.len() as u64
    }

    /// Every row gets other bytes and the next version, and an outbox row, in one transaction.
    async fn change_all(&mut self) -> Duration {
        self.round += 1;
        let ids: Vec<i32> = (0..i32::try_from(self.hosts).expect("a fleet")).collect();
        let bytes = vec![vec![self.round; ROW_BYTES]; CHUNK.min(ids.len())];
        let begun = Instant::now();
        let mut tx = self.connection.begin().await.expect("begins");
        for chunk in ids.chunks(CHUNK) {
            let update = "UPDATE floor.rows SET bytes = r.bytes, version = rows.version + 1 \
                          FROM UNNEST($1::int[], $2::bytea[]) AS r (id, bytes) WHERE rows.id = r.id";
            let update = sqlx::query(update).bind(chunk).bind(&bytes[..chunk.len()]);
            let done = update.execute(&mut *tx).await.expect("updates");
            assert_eq!(done.rows_affected(), chunk.len() as u64, "every row is written");
            let insert = "INSERT INTO floor.outbox (row_id) SELECT * FROM UNNEST($1::int[])";
            sqlx::query(insert).bind(chunk).execute(&mut *tx).await.expect("inserts");
        }
        tx.commit().await.expect("commits");
        begun.elapsed()
    }
}
