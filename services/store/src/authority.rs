//! The lineage of the database and which of its lives this is.

use holdfast_events::{Actor, AuthorityEpochRaised, Detail};
use holdfast_model::ids::AuthorityId;
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_model::statement::Authority;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::value::number;

impl Store {
    /// Reads the authority.
    ///
    /// # Errors
    /// [`Error::NoAuthority`] before the first migration.
    pub async fn load_authority(&self) -> Result<Authority, Error> {
        self.transact("load the authority", Mode::Snapshot, |tx| Box::pin(load(tx))).await
    }

    /// Raises the epoch: the database was restored or promoted.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn raise_authority_epoch(&self, actor: Actor, detail: Detail) -> Result<Authority, Error> {
        self.transact("raise the authority's epoch", Mode::Write, move |tx| {
            let detail = detail.clone();
            Box::pin(async move {
                let (id, raw): (Uuid, i64) = sqlx::query_as(
                    "UPDATE authority SET authority_epoch = authority_epoch + 1 RETURNING authority_id, authority_epoch",
                )
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NoAuthority)?;
                let epoch = AuthorityEpoch::from_raw(number("authority_epoch", raw)?);
                let mut outbox = Outbox::new(actor);
                outbox.push(AuthorityEpochRaised { epoch, detail })?;
                outbox.write(tx).await?;
                Ok(Authority { id: AuthorityId::new(id), epoch })
            })
        })
        .await
    }
}

pub(crate) async fn load(tx: &mut PgConnection) -> Result<Authority, Error> {
    let row: Option<(Uuid, i64)> =
        sqlx::query_as("SELECT authority_id, authority_epoch FROM authority").fetch_optional(&mut *tx).await?;
    let (id, epoch) = row.ok_or(Error::NoAuthority)?;
    let epoch = AuthorityEpoch::from_raw(number("authority_epoch", epoch)?);
    Ok(Authority { id: AuthorityId::new(id), epoch })
}
