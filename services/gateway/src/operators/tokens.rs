//! Tokens of both kinds: make, list, revoke.
//!
//! The secret is in the answer that made it and nowhere else: the store has its hash.

pub(crate) mod api;
pub(crate) mod enrol;

use axum::http::StatusCode;
use holdfast_api::problem::{Finding, ProblemType};
use holdfast_events::{Hint, Label128};
use holdfast_identity::{Token, TokenKind};
use holdfast_model::ids::IdError;
use holdfast_model::name::Name;
use holdfast_model::secret::secret_at;
use holdfast_store::once::Once;
use holdfast_store::token::TokenHash;

use super::door::Shared;
use super::refuse::{Refusal, finding};

fn generate(kind: TokenKind) -> Result<(Token, TokenHash), Refusal> {
    let token = Token::generate(kind).map_err(|error| Refusal::defect(&error))?;
    let hash = TokenHash(*token.hash().as_bytes());
    Ok((token, hash))
}

fn name_of(path: &str, text: &str, faults: &mut Vec<Finding>) -> Option<Name> {
    match text.parse::<Name>() {
        Ok(name) => Some(name),
        Err(error) => {
            faults.push(finding(path, "name", error.to_string()));
            None
        }
    }
}

fn label_of(path: &str, text: &str, faults: &mut Vec<Finding>) -> Option<Label128> {
    if secret_at(text).is_some() {
        faults.push(finding(path, "secret", "this is a token, and would be shown in lists and events"));
        return None;
    }
    match Label128::try_from(text.to_owned()) {
        Ok(label) if !text.is_empty() => Some(label),
        Ok(_) => {
            faults.push(finding(path, "text", "the text is empty"));
            None
        }
        Err(error) => {
            faults.push(finding(path, "text", error.to_string()));
            None
        }
    }
}

fn bad_id(error: IdError) -> Refusal {
    Refusal::invalid("id", "id", error.to_string())
}

fn revoked(door: &Shared, revoked: Once<bool>) -> Result<StatusCode, Refusal> {
    match revoked {
        Once::Now(true) => {
            door.ring([Hint::Event]);
            Ok(StatusCode::NO_CONTENT)
        }
        Once::Before(_) => Ok(StatusCode::NO_CONTENT),
        Once::Now(false) => Err(Refusal::new(ProblemType::AlreadyRevoked, "the token was revoked before")),
        Once::Other => Err(Refusal::other_request()),
    }
}

#[cfg(test)]
mod tests;
