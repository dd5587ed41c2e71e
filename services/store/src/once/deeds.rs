//! What is done once besides changes of intent: tokens, and the lives of the authority.
//!
//! A token's secret is in the answer that made it and nowhere else, so of a token that was made before only its id is known.

use holdfast_events::{Actor, ApiTokenCreated, Detail, EnrolTokenCreated};
use holdfast_model::ids::{ApiTokenId, EnrolTokenId};
use holdfast_model::numbers::AuthorityEpoch;

use super::{Deed, Once, RequestKey};
use crate::authority::{Confirmed, confirm, raise};
use crate::error::Error;
use crate::pool::Store;
use crate::token::{TokenHash, insert_api_token, insert_enrol_token, revoke_api, revoke_enrol, truncated};

/// A token was revoked, or there is none or it was revoked before, which changes nothing.
fn revoked(is_new: bool) -> Deed<bool> {
    if is_new { Deed::Done { answer: true, kept: true, operation: None } } else { Deed::Refused(false) }
}

impl Store {
    /// Makes an enrolment token once.
    ///
    /// # Errors
    /// As [`Store::create_enrol_token`].
    pub async fn create_enrol_token_once(
        &self,
        actor: Actor,
        mut token: EnrolTokenCreated,
        hash: TokenHash,
        key: Option<RequestKey>,
    ) -> Result<Once<(), EnrolTokenId>, Error> {
        token.expires_at = truncated(token.expires_at);
        self.transact_once("create an enrolment token", key, move |tx| {
            let token = token.clone();
            Box::pin(async move {
                let kept = token.token;
                insert_enrol_token(tx, actor, token, hash).await?;
                Ok(Deed::Done { answer: (), kept, operation: None })
            })
        })
        .await
    }

    /// Makes an API token once.
    ///
    /// # Errors
    /// As [`Store::create_api_token`].
    pub async fn create_api_token_once(
        &self,
        actor: Actor,
        mut token: ApiTokenCreated,
        hash: TokenHash,
        key: Option<RequestKey>,
    ) -> Result<Once<(), ApiTokenId>, Error> {
        token.expires_at = token.expires_at.map(truncated);
        self.transact_once("create an API token", key, move |tx| {
            let token = token.clone();
            Box::pin(async move {
                let kept = token.token;
                insert_api_token(tx, actor, token, hash).await?;
                Ok(Deed::Done { answer: (), kept, operation: None })
            })
        })
        .await
    }

    /// Revokes an enrolment token once; false if there is none or it was revoked before by another request.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn revoke_enrol_token_once(
        &self,
        actor: Actor,
        token: EnrolTokenId,
        key: Option<RequestKey>,
    ) -> Result<Once<bool>, Error> {
        self.transact_once("revoke an enrolment token", key, move |tx| {
            Box::pin(async move { Ok(revoked(revoke_enrol(tx, actor, token).await?)) })
        })
        .await
    }

    /// Revokes an API token once; false if there is none or it was revoked before by another request.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn revoke_api_token_once(
        &self,
        actor: Actor,
        token: ApiTokenId,
        key: Option<RequestKey>,
    ) -> Result<Once<bool>, Error> {
        self.transact_once("revoke an API token", key, move |tx| {
            Box::pin(async move { Ok(revoked(revoke_api(tx, actor, token).await?)) })
        })
        .await
    }

    /// Raises the epoch once; which it is by that.
    ///
    /// # Errors
    /// As [`Store::raise_authority_epoch`].
    pub async fn raise_authority_epoch_once(
        &self,
        actor: Actor,
        detail: Detail,
        above: Option<AuthorityEpoch>,
        key: Option<RequestKey>,
    ) -> Result<Once<AuthorityEpoch>, Error> {
        self.transact_once("raise the authority's epoch", key, move |tx| {
            let detail = detail.clone();
            Box::pin(async move {
                let epoch = raise(tx, actor, detail, above).await?.epoch;
                Ok(Deed::Done { answer: epoch, kept: epoch, operation: None })
            })
        })
        .await
    }

    /// Lets those hosts go back once that wait for it; how many those were.
    ///
    /// # Errors
    /// As [`Store::confirm_rollback`].
    pub async fn confirm_rollback_once(
        &self,
        actor: Actor,
        expected: u64,
        key: Option<RequestKey>,
    ) -> Result<Once<Confirmed, u64>, Error> {
        self.transact_once("confirm a step back", key, move |tx| {
            Box::pin(async move {
                Ok(match confirm(tx, actor, expected).await? {
                    answer @ Confirmed::Hosts(kept) => Deed::Done { answer, kept, operation: None },
                    answer @ Confirmed::Unexpected(_) => Deed::Refused(answer),
                })
            })
        })
        .await
    }
}
