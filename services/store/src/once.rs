//! Doing what is asked for once, however often it is asked: a request that names itself is kept with what came of it, in the transaction that did it.
//!
//! - The name is the caller's own: another caller's same word is another name.
//! - Two that come at once wait for each other, and the second is answered with what the first did. A request that was refused keeps nothing, so
//!   its name is free.
//! - What made an operation is kept as long as operations are; what made none for a day at least.

mod deeds;

use std::sync::Arc;

use holdfast_model::digest::Digest;
use holdfast_model::ids::{ApiTokenId, OperationId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgConnection;

use crate::error::Error;
use crate::pool::{Mode, Store, Work};
use crate::value::{digest, from_json, to_json};

/// Any number that nothing else in this database hashes with: the bytes of "once".
const ONCE_SEED: i64 = 0x6f6e_6365;

/// A request that names itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestKey {
    /// Whose name it is.
    pub token: ApiTokenId,
    /// The name: 1 to 128 bytes.
    pub key: String,
    /// Everything that is asked for.
    pub request: Digest,
}

/// What became of a request; `K` is as much of it as is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Once<T, K = T> {
    /// It was done now, or refused now.
    Now(T),
    /// It was done before.
    Before(K),
    /// Something else was asked for under this name; nothing was changed.
    Other,
}

/// What a transaction did for a request.
pub(crate) enum Deed<T, K = T> {
    /// It did it.
    Done {
        /// What came of it.
        answer: T,
        /// As much of it as is kept.
        kept: K,
        /// The operation that it made, if it made one.
        operation: Option<OperationId>,
    },
    /// It wrote nothing.
    Refused(T),
}

impl Store {
    /// Runs a transaction once for a request that names itself; for one that does not, each time.
    pub(crate) async fn transact_once<T, K, F>(
        &self,
        what: &'static str,
        key: Option<RequestKey>,
        work: F,
    ) -> Result<Once<T, K>, Error>
    where
        T: Send + 'static,
        K: Serialize + DeserializeOwned + Send + Sync + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> Work<'c, Deed<T, K>> + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        // Its name stands at each call of this.
        self.transact::<_, _>(what, Mode::Write, move |tx| {
            let (key, work) = (key.clone(), Arc::clone(&work));
            Box::pin(async move {
                if let Some(key) = &key {
                    match claim(&mut *tx, key).await? {
                        Kept::Nothing => {}
                        Kept::Answer(kept) => return Ok(Once::Before(kept)),
                        Kept::Other => return Ok(Once::Other),
                    }
                }
                match work(&mut *tx).await? {
                    Deed::Refused(answer) => Ok(Once::Now(answer)),
                    Deed::Done { answer, kept, operation } => {
                        if let Some(key) = &key {
                            keep(tx, key, &kept, operation).await?;
                        }
                        Ok(Once::Now(answer))
                    }
                }
            })
        })
        .await
    }

    /// What came of a request that names itself, if it was done before.
    pub(crate) async fn recall<K>(&self, key: RequestKey) -> Result<Kept<K>, Error>
    where
        K: DeserializeOwned + Send + 'static,
    {
        self.transact("recall a request", Mode::Statement, move |tx| {
            let key = key.clone();
            Box::pin(async move { recalled(tx, &key).await })
        })
        .await
    }
}

/// What is kept under a name.
pub(crate) enum Kept<K> {
    /// Nothing.
    Nothing,
    /// What came of the same request.
    Answer(K),
    /// Another request.
    Other,
}

/// Waits until this transaction alone may do what is named so, and says what was done before.
async fn claim<T: DeserializeOwned>(tx: &mut PgConnection, key: &RequestKey) -> Result<Kept<T>, Error> {
    // Only the next statement sees what whoever was waited for committed.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))")
        .bind(format!("{} {}", key.token, key.key))
        .bind(ONCE_SEED)
        .execute(&mut *tx)
        .await?;
    recalled(tx, key).await
}

async fn recalled<T: DeserializeOwned>(tx: &mut PgConnection, key: &RequestKey) -> Result<Kept<T>, Error> {
    let row: Option<(Vec<u8>, serde_json::Value)> =
        sqlx::query_as("SELECT request, answer FROM idempotency_keys WHERE token_id = $1 AND key = $2")
            .bind(key.token.uuid())
            .bind(&key.key)
            .fetch_optional(tx)
            .await?;
    let Some((request, answer)) = row else { return Ok(Kept::Nothing) };
    if digest("idempotency_keys.request", &request)? != key.request {
        return Ok(Kept::Other);
    }
    Ok(Kept::Answer(from_json("idempotency_keys.answer", answer)?))
}

async fn keep<T: Serialize>(
    tx: &mut PgConnection,
    key: &RequestKey,
    answer: &T,
    operation: Option<OperationId>,
) -> Result<(), Error> {
    sqlx::query(
        "WITH passed AS ( \
             DELETE FROM idempotency_keys WHERE token_id = $1 AND operation_id IS NULL \
             AND at < transaction_timestamp() - interval '24 hours' \
         ) \
         INSERT INTO idempotency_keys (token_id, key, request, answer, operation_id, at) \
         VALUES ($1, $2, $3, $4, $5, transaction_timestamp())",
    )
    .bind(key.token.uuid())
    .bind(&key.key)
    .bind(key.request.as_bytes().as_slice())
    .bind(to_json("idempotency_keys.answer", answer)?)
    .bind(operation.map(OperationId::uuid))
    .execute(tx)
    .await?;
    Ok(())
}
