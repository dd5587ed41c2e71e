//! Content by its digest.
//!
//! - Stored once and never changed; who stores a node stores all that it names in the same transaction or earlier.
//! - Reading checks each digest: what was altered in the database is never handed on.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::digest::Digest;
use sqlx::postgres::PgConnection;

use crate::error::Error;
use crate::pool::{Mode, Store};
use crate::value::digest;

/// Rows of one statement: the fastest of the sizes tried with 4 kB rows.
const ROWS_MAX: usize = 1000;
/// Bytes of one statement, for rows that are larger than those.
const BYTES_MAX: usize = 16 * 1024 * 1024;

impl Store {
    /// Artifacts by their digests; one that is not stored is not in the answer.
    ///
    /// # Errors
    /// [`Error::Value`] if the bytes of one do not have its digest.
    pub async fn fetch_artifacts(&self, digests: Vec<Digest>) -> Result<BTreeMap<Digest, Vec<u8>>, Error> {
        self.transact("fetch artifacts", Mode::Statement, move |tx| {
            let digests = digests.clone();
            Box::pin(async move { fetch(tx, &digests).await })
        })
        .await
    }

    /// The trees under these roots, level by level, without what `known` has. A known node is taken to be known with all that it names.
    ///
    /// # Errors
    /// [`Error::Value`] if a node is missing, altered or unreadable.
    pub async fn fetch_trees(
        &self,
        roots: Vec<Digest>,
        known: impl Fn(Digest) -> bool,
    ) -> Result<BTreeMap<Digest, Vec<u8>>, Error> {
        let mut nodes = BTreeMap::new();
        let mut level: BTreeSet<Digest> = roots.into_iter().filter(|root| !known(*root)).collect();
        while !level.is_empty() {
            let found = self.fetch_artifacts(level.iter().copied().collect()).await?;
            let mut below = BTreeSet::new();
            for wanted in level {
                let bytes = found.get(&wanted).ok_or_else(|| Error::value("artifacts.digest", wanted))?;
                let children = holdfast_model::artifact::children(bytes);
                let children = children.map_err(|error| Error::value("artifacts.bytes", error))?;
                below.extend(children.into_iter().filter(|child| !known(*child)));
            }
            nodes.extend(found);
            level = below.into_iter().filter(|child| !nodes.contains_key(child)).collect();
        }
        Ok(nodes)
    }

    /// Which of these artifacts are stored.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn stored_artifacts(&self, digests: Vec<Digest>) -> Result<BTreeSet<Digest>, Error> {
        self.transact("look for artifacts", Mode::Statement, move |tx| {
            let wanted: Vec<Vec<u8>> = digests.iter().map(|digest| digest.as_bytes().to_vec()).collect();
            Box::pin(async move {
                let rows: Vec<Vec<u8>> = sqlx::query_scalar("SELECT digest FROM artifacts WHERE digest = ANY($1)")
                    .bind(wanted)
                    .fetch_all(tx)
                    .await?;
                rows.iter().map(|bytes| digest("artifacts.digest", bytes)).collect()
            })
        })
        .await
    }
}

/// Artifacts by their digests, each checked.
pub(crate) async fn fetch(tx: &mut PgConnection, digests: &[Digest]) -> Result<BTreeMap<Digest, Vec<u8>>, Error> {
    let mut found = BTreeMap::new();
    for chunk in digests.chunks(ROWS_MAX) {
        let wanted: Vec<&[u8]> = chunk.iter().map(|digest| digest.as_bytes().as_slice()).collect();
        let rows: Vec<(Vec<u8>, Vec<u8>)> =
            sqlx::query_as("SELECT digest, bytes FROM artifacts WHERE digest = ANY($1)")
                .bind(wanted)
                .fetch_all(&mut *tx)
                .await?;
        for (name, bytes) in rows {
            let name = digest("artifacts.digest", &name)?;
            if Digest::of(&bytes) != name {
                return Err(Error::value("artifacts.bytes", name));
            }
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

/// Artifacts that go with their owner's own statement.
#[derive(Debug, Default)]
pub(crate) struct Chunk<'a> {
    pub(crate) digests: Vec<&'a [u8]>,
    pub(crate) contents: Vec<&'a [u8]>,
}

/// Stores artifacts that are not stored yet, all but the last chunk: whoever names them stores that one with its own rows, in one round trip.
pub(crate) async fn insert_all_but_last<'a>(
    tx: &mut PgConnection,
    artifacts: impl Iterator<Item = (&'a Digest, &'a Vec<u8>)>,
) -> Result<Chunk<'a>, Error> {
    let (mut chunk, mut size) = (Chunk::default(), 0);
    for (digest, bytes) in artifacts {
        if chunk.digests.len() == ROWS_MAX || size >= BYTES_MAX {
            insert_chunk(tx, &chunk).await?;
            (chunk, size) = (Chunk::default(), 0);
        }
        chunk.digests.push(digest.as_bytes());
        chunk.contents.push(bytes);
        size += bytes.len();
    }
    Ok(chunk)
}

async fn insert_chunk(tx: &mut PgConnection, chunk: &Chunk<'_>) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO artifacts (digest, bytes) SELECT * FROM UNNEST($1::bytea[], $2::bytea[]) \
         ON CONFLICT (digest) DO NOTHING",
    )
    .bind(&chunk.digests)
    .bind(&chunk.contents)
    .execute(tx)
    .await?;
    Ok(())
}
