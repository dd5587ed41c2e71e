//! Committing a render: artifacts, desired states, events and progress in one transaction under the renderer's lease.
//!
//! - A version follows its predecessor by one, and the database is asked, not the renderer's memory: a render computed on an older state is refused
//!   whole, and nothing of it is announced.
//! - A render that changes nothing and moves no revision writes nothing, so a restart writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_events::{
    Actor, DesiredState, RENDERED_STATES_MAX, RenderCommitted, RenderDesired, RenderedLetGo, SignatureBytes,
};
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{HostId, RolloutId};
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm, Revision, Version};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::artifact::{self, Chunk};
use crate::error::Error;
use crate::lease::{RENDERER_LEASE, fenced};
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::{big, component, digest, number, signature, small, version};

/// Rows of one statement: the fastest of the sizes tried.
const ROWS_MAX: usize = 1000;

/// A desired state with the renderer's word for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignedState {
    /// What is desired.
    pub desired: Desired,
    /// The signature of it.
    pub signature: SignatureBytes,
}

impl SignedState {
    /// As events have it.
    pub(crate) fn told(&self) -> DesiredState {
        let Desired { host, component, stamp: Stamp { version, digest } } = self.desired;
        DesiredState { host, component, version, digest, signature: self.signature }
    }
}

/// What a render is to commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenderCommit {
    /// The renderer's lease.
    pub lease_term: LeaseTerm,
    /// The epoch that the signatures name.
    pub authority_epoch: AuthorityEpoch,
    /// The hosts whose signatures name an earlier one: they have not been let into this life of the authority yet.
    pub earlier: BTreeMap<HostId, AuthorityEpoch>,
    /// The revision up to which every host is rendered with this.
    pub revision: Revision,
    /// The revision of the intent that the states are rendered from: not below `revision`, above it while other hosts wait for their turn.
    pub intent: Revision,
    /// Whether it is of hosts that a rollout holds back: then `intent` is what they are held at, which others may be beyond.
    pub is_of_held: bool,
    /// While a rollout holds hosts back: how far all others are with this.
    pub let_go: Option<RenderedLetGo>,
    /// How many hosts were rendered to find what changed.
    pub hosts_rendered: u32,
    /// What changed.
    pub states: Vec<SignedState>,
    /// Nodes that the states name and that may not be stored yet.
    pub artifacts: BTreeMap<Digest, Vec<u8>>,
}

impl RenderCommit {
    /// The epoch that the signatures of a host's states name.
    #[must_use]
    pub fn epoch_of(&self, host: HostId) -> AuthorityEpoch {
        self.earlier.get(&host).copied().unwrap_or(self.authority_epoch)
    }
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Committed {
    /// It is stored and may be announced.
    Stored,
    /// There was nothing to store.
    Nothing,
}

/// The newest desired state of one (host, component), as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatestState {
    /// The state and the renderer's word for it.
    pub state: SignedState,
    /// The epoch that the signature names.
    pub authority_epoch: AuthorityEpoch,
    /// The revision at which it got its content.
    pub revision: Revision,
}

impl Store {
    /// Commits a render.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the lease is no longer held, [`Error::VersionGap`] if a state does not follow the one that is stored.
    pub async fn commit_render(&self, commit: RenderCommit) -> Result<Committed, Error> {
        let commit = Arc::new(commit);
        self.transact("commit a render", Mode::LongWrite, move |tx| {
            let commit = Arc::clone(&commit);
            Box::pin(async move { store_render(tx, &commit).await })
        })
        .await
    }

    /// Up to which revision the last render went; zero before the first.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn rendered_revision(&self) -> Result<Revision, Error> {
        self.transact("read the render's progress", Mode::Snapshot, |tx| {
            Box::pin(async move { Ok(rendered(tx).await?.unwrap_or_default()) })
        })
        .await
    }

    /// The newest desired states of all hosts: what a starting renderer compares with.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored state cannot be read.
    pub async fn all_latest(&self) -> Result<Vec<LatestState>, Error> {
        self.transact("load all desired states", Mode::LongSnapshot, |tx| {
            Box::pin(async move {
                let rows: Vec<LatestRow> = sqlx::query_as(
                    "SELECT l.host_id, l.component, l.version, l.digest, l.signature, l.authority_epoch, l.revision \
                     FROM desired_latest l JOIN hosts h USING (host_id) WHERE h.decommissioned_at IS NULL \
                     ORDER BY l.host_id, l.component",
                )
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(LatestRow::state).collect()
            })
        })
        .await
    }
}

/// A row of `desired_latest`.
#[derive(sqlx::FromRow)]
pub(crate) struct LatestRow {
    host_id: Uuid,
    component: i16,
    version: i64,
    digest: Vec<u8>,
    signature: Vec<u8>,
    authority_epoch: i64,
    revision: i64,
}

impl LatestRow {
    pub(crate) fn state(self) -> Result<LatestState, Error> {
        let stamp = Stamp {
            version: version("desired_latest.version", self.version)?,
            digest: digest("desired_latest.digest", &self.digest)?,
        };
        let desired = Desired { host: HostId::new(self.host_id), component: component(self.component)?, stamp };
        let signature = signature("desired_latest.signature", &self.signature)?;
        Ok(LatestState {
            state: SignedState { desired, signature },
            authority_epoch: AuthorityEpoch::from_raw(number("desired_latest.authority_epoch", self.authority_epoch)?),
            revision: Revision::from_raw(number("desired_latest.revision", self.revision)?),
        })
    }
}

pub(crate) async fn rendered(tx: &mut PgConnection) -> Result<Option<Revision>, Error> {
    let raw: Option<i64> = sqlx::query_scalar("SELECT revision FROM render_progress").fetch_optional(tx).await?;
    raw.map(|raw| number("render_progress.revision", raw).map(Revision::from_raw)).transpose()
}

async fn store_render(tx: &mut PgConnection, commit: &RenderCommit) -> Result<Committed, Error> {
    let hosts: BTreeSet<Uuid> = commit.states.iter().map(|state| state.desired.host.uuid()).collect();
    let hosts: Vec<Uuid> = hosts.into_iter().collect();
    let ground = fence_and_read(tx, commit.lease_term, &hosts).await?;
    if ground.epoch != commit.authority_epoch {
        return Err(Error::value("authority_epoch", commit.authority_epoch));
    }
    let is_behind = commit.intent < commit.revision && !commit.is_of_held;
    if ground.before.is_some_and(|before| before > commit.revision) || is_behind {
        return Err(Error::value("render_progress.revision", commit.revision));
    }
    let is_told = commit.let_go.is_none() || commit.let_go == ground.let_go;
    if commit.states.is_empty() && ground.before == Some(commit.revision) && is_told {
        return Ok(Committed::Nothing);
    }
    if usize::try_from(ground.enrolled) != Ok(hosts.len()) {
        return Err(Error::VersionGap("a render names a host that is not enrolled".to_owned()));
    }
    check_versions(&ground.versions, &commit.states)?;
    let mut artifacts = artifact::insert_all_but_last(tx, commit.artifacts.iter()).await?;
    // At least one statement, for the progress.
    let (first, rest) = commit.states.split_at(commit.states.len().min(ROWS_MAX));
    for states in std::iter::once(first).chain(rest.chunks(ROWS_MAX)) {
        insert_states(tx, commit, states, std::mem::take(&mut artifacts)).await?;
    }
    let mut outbox = Outbox::new(Actor::Renderer);
    push_events(&mut outbox, commit)?;
    outbox.write(tx).await?;
    Ok(Committed::Stored)
}

/// What a render stands on.
struct Ground {
    epoch: AuthorityEpoch,
    /// The revision of the last render.
    before: Option<Revision>,
    /// How far it said that hosts are that are not held back.
    let_go: Option<RenderedLetGo>,
    /// How many of the hosts are enrolled.
    enrolled: i64,
    /// The versions that they have.
    versions: BTreeMap<(HostId, Component), Version>,
}

#[derive(sqlx::FromRow)]
struct GroundRow {
    epoch: Option<i64>,
    before: Option<i64>,
    let_go_rollout_id: Option<Uuid>,
    let_go_stage: Option<i32>,
    let_go_revision: Option<i64>,
    enrolled: i64,
    host_id: Option<Uuid>,
    component: Option<i16>,
    version: Option<i64>,
}

/// Makes sure of the lease until the end of this transaction, and reads what only its holder changes; so one statement may do both: if it had
/// to wait for another claim of the lease and still has it, nobody wrote meanwhile. Should one holder commit two renders at once against all
/// rules, the later one meets the versions of the other as rows that are there already and is refused whole.
async fn fence_and_read(tx: &mut PgConnection, term: LeaseTerm, hosts: &[Uuid]) -> Result<Ground, Error> {
    let rows: Vec<GroundRow> = sqlx::query_as(
        "WITH held AS MATERIALIZED ( \
             SELECT (SELECT authority_epoch FROM authority) AS epoch, \
                    (SELECT count(*) FROM hosts WHERE host_id = ANY($3) AND decommissioned_at IS NULL) AS enrolled \
             FROM leases WHERE name = $1 AND term = $2 AND expires_at > clock_timestamp() FOR KEY SHARE \
         ) \
         SELECT held.epoch, p.revision AS before, p.let_go_rollout_id, p.let_go_stage, p.let_go_revision, held.enrolled, l.host_id, l.component, l.version \
         FROM held LEFT JOIN render_progress p ON true LEFT JOIN desired_latest l ON l.host_id = ANY($3)",
    )
    .bind(RENDERER_LEASE)
    .bind(big(term.raw())?)
    .bind(hosts)
    .fetch_all(tx)
    .await?;
    let Some(first) = rows.first() else { return Err(fenced(term)) };
    let (let_go, GroundRow { epoch, before, enrolled, .. }) = (first.let_go()?, first);
    let before = before.map(|raw| number("render_progress.revision", raw).map(Revision::from_raw)).transpose()?;
    let epoch = AuthorityEpoch::from_raw(number("authority_epoch", epoch.ok_or(Error::NoAuthority)?)?);
    let mut ground = Ground { epoch, before, let_go, enrolled: *enrolled, versions: BTreeMap::new() };
    for row in rows {
        if let (Some(host), Some(part), Some(raw)) = (row.host_id, row.component, row.version) {
            ground.versions.insert((HostId::new(host), component(part)?), version("desired_latest.version", raw)?);
        }
    }
    Ok(ground)
}

impl GroundRow {
    fn let_go(&self) -> Result<Option<RenderedLetGo>, Error> {
        let (Some(id), Some(stage), Some(raw)) = (self.let_go_rollout_id, self.let_go_stage, self.let_go_revision)
        else {
            return Ok(None);
        };
        let stage = u32::try_from(stage).map_err(|_| Error::value("render_progress.let_go_stage", stage))?;
        let revision = Revision::from_raw(number("render_progress.let_go_revision", raw)?);
        Ok(Some(RenderedLetGo { rollout: RolloutId::new(id), stage, revision }))
    }
}

fn push_events(outbox: &mut Outbox, commit: &RenderCommit) -> Result<(), Error> {
    let RenderCommit { lease_term, revision, intent, hosts_rendered, .. } = *commit;
    let let_go = commit.let_go.clone();
    // Each event names one epoch: states stand by host, so there are few runs of one.
    let of_one_epoch = |one: &SignedState, other: &SignedState| {
        commit.epoch_of(one.desired.host) == commit.epoch_of(other.desired.host)
    };
    for run in commit.states.chunk_by(of_one_epoch) {
        for states in run.chunks(RENDERED_STATES_MAX) {
            let first = states.first().map(|state| commit.epoch_of(state.desired.host));
            let authority_epoch = first.unwrap_or(commit.authority_epoch);
            let states = states.iter().map(SignedState::told).collect();
            outbox.push(RenderDesired { revision: intent, lease_term, authority_epoch, states })?;
        }
    }
    let len = commit.states.len();
    let states_changed = u32::try_from(len).map_err(|_| Error::value("states_changed", len))?;
    outbox.push(RenderCommitted { revision, lease_term, hosts_rendered, states_changed, let_go })?;
    Ok(())
}

/// Makes sure that each state follows its predecessor by one.
fn check_versions(stored: &BTreeMap<(HostId, Component), Version>, states: &[SignedState]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for SignedState { desired, .. } in states {
        let key = (desired.host, desired.component);
        if !seen.insert(key) {
            return Err(Error::VersionGap("a render names one state twice".to_owned()));
        }
        let next = match stored.get(&key) {
            Some(version) => version.next(),
            None => Some(Version::FIRST),
        };
        if next != Some(desired.stamp.version) {
            let (host, part, found) = (desired.host, desired.component, desired.stamp.version);
            let text = format!("{host} {part} is rendered as version {found}, the next is {next:?}");
            return Err(Error::VersionGap(text));
        }
    }
    Ok(())
}

/// Writes states, the artifacts that come with them and the progress by one statement. Operations with which every host is rendered now wait for
/// what is stored until now, and for nothing that is rendered later.
async fn insert_states(
    tx: &mut PgConnection,
    commit: &RenderCommit,
    states: &[SignedState],
    artifacts: Chunk<'_>,
) -> Result<(), Error> {
    let epochs = states.iter().map(|state| big(commit.epoch_of(state.desired.host).raw()));
    let epochs = epochs.collect::<Result<Vec<_>, _>>()?;
    let versions = states.iter().map(|state| big(state.desired.stamp.version.raw())).collect::<Result<Vec<_>, _>>()?;
    let let_go = commit.let_go.as_ref();
    sqlx::query(
        "WITH given AS ( \
             SELECT host_id, component, version, digest, signature, authority_epoch \
             FROM UNNEST($1::uuid[], $2::smallint[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bigint[]) \
             AS r (host_id, component, version, digest, signature, authority_epoch) \
         ), stored AS ( \
             INSERT INTO artifacts (digest, bytes) SELECT * FROM UNNEST($9::bytea[], $10::bytea[]) \
             ON CONFLICT (digest) DO NOTHING \
         ), progress AS ( \
             INSERT INTO render_progress AS p (revision, lease_term, rendered_at, let_go_rollout_id, let_go_stage, let_go_revision) \
             VALUES ($7, $8, transaction_timestamp(), $13, $14, $15) \
             ON CONFLICT (only_row) DO UPDATE SET revision = excluded.revision, lease_term = excluded.lease_term, \
                 rendered_at = excluded.rendered_at, \
                 let_go_rollout_id = coalesce(excluded.let_go_rollout_id, p.let_go_rollout_id), \
                 let_go_stage = coalesce(excluded.let_go_stage, p.let_go_stage), \
                 let_go_revision = coalesce(excluded.let_go_revision, p.let_go_revision) \
         ), finished AS ( \
             UPDATE operations SET rendered_at = transaction_timestamp(), \
                 rendered_revision = greatest($12, (SELECT max(revision) FROM desired_states)) \
             WHERE rendered_at IS NULL AND revision <= $7 \
         ), history AS ( \
             INSERT INTO desired_states (host_id, component, version, digest, signature, authority_epoch, lease_term, \
                                         revision, rendered_at) \
             SELECT host_id, component, version, digest, signature, authority_epoch, $8, $11, transaction_timestamp() FROM given \
         ) \
         INSERT INTO desired_latest (host_id, component, version, digest, signature, authority_epoch, revision, \
                                     rendered_at) \
         SELECT host_id, component, version, digest, signature, authority_epoch, $11, transaction_timestamp() FROM given \
         ON CONFLICT (host_id, component) DO UPDATE \
         SET version = excluded.version, digest = excluded.digest, signature = excluded.signature, \
             authority_epoch = excluded.authority_epoch, revision = excluded.revision, \
             rendered_at = excluded.rendered_at",
    )
    .bind(states.iter().map(|state| state.desired.host.uuid()).collect::<Vec<_>>())
    .bind(states.iter().map(|state| small(state.desired.component)).collect::<Vec<_>>())
    .bind(versions)
    .bind(states.iter().map(|state| state.desired.stamp.digest.as_bytes().to_vec()).collect::<Vec<_>>())
    .bind(states.iter().map(|state| state.signature.as_bytes().to_vec()).collect::<Vec<_>>())
    .bind(epochs)
    .bind(big(commit.revision.raw())?)
    .bind(big(commit.lease_term.raw())?)
    .bind(artifacts.digests)
    .bind(artifacts.contents)
    .bind(big(commit.intent.raw())?)
    .bind(big(if states.is_empty() { commit.revision } else { commit.intent.max(commit.revision) }.raw())?)
    .bind(let_go.map(|let_go| let_go.rollout.uuid()))
    .bind(let_go.map(|let_go| i32::try_from(let_go.stage)).transpose().map_err(|error| Error::value("stage", error))?)
    .bind(let_go.map(|let_go| big(let_go.revision.raw())).transpose()?)
    .execute(tx)
    .await?;
    Ok(())
}
