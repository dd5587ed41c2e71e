//! A change that was made before: what is kept of it under the name of its request, and what it changed.

use holdfast_model::ids::{OperationId, RolloutId};
use holdfast_model::intent::ObjectKey;
use holdfast_model::numbers::Revision;
use serde::{Deserialize, Serialize};

use super::apply::{Applied, kind_of};
use crate::error::Error;
use crate::once::{Kept, RequestKey};
use crate::pool::{Mode, Store};
use crate::value::{big, text};

/// What is kept of a change under the name of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptChange {
    /// The revision that has what was asked for.
    pub revision: Revision,
    /// The operation that made it; absent if everything was as it was asked for already.
    pub operation: Option<OperationId>,
    /// The rollout that it goes through, if it goes through one.
    #[serde(default)]
    pub rollout: Option<RolloutId>,
}

/// What a revision did to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// It was not in force before.
    Created,
    /// It says something else than before.
    Updated,
    /// It is no longer in force.
    Deleted,
}

impl ChangeKind {
    /// By whether something began and something ended.
    pub(super) const fn of(began: bool, ended: bool) -> Self {
        match (began, ended) {
            (true, true) => Self::Updated,
            (true, false) => Self::Created,
            (false, _) => Self::Deleted,
        }
    }
}

type ChangeRow = (String, String, String, bool, bool);

impl Store {
    /// What came of a change that was asked for under a name, if it was made before.
    ///
    /// # Errors
    /// [`Error::Value`] if what is kept cannot be read.
    pub async fn recall_intent(&self, key: RequestKey) -> Result<Option<Applied>, Error> {
        Ok(match self.recall(key).await? {
            Kept::Nothing => None,
            Kept::Answer(kept) => Some(Applied::Before(kept)),
            Kept::Other => Some(Applied::OtherRequest),
        })
    }

    /// What a revision did to each object that it changed.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored row cannot be read.
    pub async fn changes_of(&self, revision: Revision) -> Result<Vec<(ObjectKey, ChangeKind)>, Error> {
        self.transact("load what a revision changed", Mode::Statement, move |tx| {
            Box::pin(async move {
                let rows: Vec<ChangeRow> = sqlx::query_as(
                    "SELECT kind, namespace, name, bool_or(from_revision = $1), \
                            coalesce(bool_or(to_revision = $1), false) \
                     FROM objects WHERE from_revision = $1 OR to_revision = $1 GROUP BY kind, namespace, name",
                )
                .bind(big(revision.raw())?)
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(change_of).collect()
            })
        })
        .await
    }
}

fn change_of((kind, namespace, name, began, ended): ChangeRow) -> Result<(ObjectKey, ChangeKind), Error> {
    let (namespace, name) = (text("objects.namespace", &namespace)?, text("objects.name", &name)?);
    let key = ObjectKey { kind: kind_of("objects.kind", &kind)?, namespace, name };
    Ok((key, ChangeKind::of(began, ended)))
}
