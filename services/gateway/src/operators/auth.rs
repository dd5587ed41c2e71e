//! Who calls, and what that token allows.
//!
//! - Every path but `/openapi.json` needs an API token, checked against the store for each request: a revoked token is refused at once. An answer
//!   that goes on looks again ([`Caller::is_still_good`]).
//! - Roles are a closed table ([`allows`]); a namespace scope narrows what is seen and what is changed.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_api::problem::ProblemType;
use holdfast_events::{Actor, NamespaceScope, Role};
use holdfast_identity::{Token, TokenKind};
use holdfast_model::intent::{Kind, ObjectKey};
use holdfast_model::name::Name;
use holdfast_store::Store;
use holdfast_store::token::{ApiGrant, TokenHash};

use super::door::Shared;
use super::refuse::Refusal;

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Reads intent, status, operations.
    Read,
    /// Changes intent.
    Edit,
    /// Makes and revokes enrolment tokens.
    Operate,
    /// Reads the audit log and checks the tables against the events.
    Audit,
    /// Makes and revokes API tokens.
    Administer,
}

/// The table of roles.
const fn allows(role: Role, act: Act) -> bool {
    match act {
        Act::Read => true,
        Act::Edit => matches!(role, Role::Editor | Role::Operator | Role::Admin),
        Act::Operate => matches!(role, Role::Operator | Role::Admin),
        Act::Audit => matches!(role, Role::Auditor | Role::Admin),
        Act::Administer => matches!(role, Role::Admin),
    }
}

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    grant: ApiGrant,
    /// What the token is known by, to look once more while an answer goes on.
    hash: TokenHash,
}

impl Caller {
    /// As events name them.
    pub(crate) const fn actor(&self) -> Actor {
        Actor::Operator(self.grant.token)
    }

    /// The token that was shown, and what it allows.
    pub(crate) const fn grant(&self) -> &ApiGrant {
        &self.grant
    }

    /// Whether the token is still what it was when it was shown.
    ///
    /// # Errors
    /// As [`Store::authorize_api`].
    pub(crate) async fn is_still_good(&self, store: &Store) -> Result<bool, holdfast_store::Error> {
        Ok(store.authorize_api(self.hash).await?.is_some_and(|grant| grant == self.grant))
    }

    /// Whether the token's scope has a namespace.
    pub(crate) fn sees(&self, namespace: &Name) -> bool {
        match &self.grant.namespaces {
            NamespaceScope::All => true,
            NamespaceScope::Of(names) => names.contains(namespace),
        }
    }

    /// Refuses what the role does not allow.
    pub(crate) fn may(&self, act: Act) -> Result<(), Refusal> {
        if allows(self.grant.role, act) {
            return Ok(());
        }
        let text = format!("the role {} does not allow this", self.grant.role);
        Err(Refusal::new(ProblemType::NotAllowed, text))
    }

    /// Refuses what the role does not allow, or not in this namespace.
    pub(crate) fn may_in(&self, act: Act, namespace: &Name) -> Result<(), Refusal> {
        self.may(act)?;
        if self.sees(namespace) {
            return Ok(());
        }
        let text = format!("the token does not reach the namespace {namespace}");
        Err(Refusal::new(ProblemType::NotAllowed, text))
    }

    /// Refuses a change of this object. The labels of a namespace are what all others go by: they need a token for all.
    pub(crate) fn may_change(&self, act: Act, key: &ObjectKey) -> Result<(), Refusal> {
        self.may_in(act, &key.namespace)?;
        if key.kind == Kind::Namespace && !self.reaches_all() {
            let text =
                format!("other namespaces go by the labels of {key}: changing it needs a token for all namespaces");
            return Err(Refusal::new(ProblemType::NotAllowed, text));
        }
        Ok(())
    }

    /// Whether the token is for all namespaces.
    pub(crate) const fn reaches_all(&self) -> bool {
        matches!(self.grant.namespaces, NamespaceScope::All)
    }

    /// Refuses what the role does not allow, or not everywhere.
    pub(crate) fn may_everywhere(&self, act: Act) -> Result<(), Refusal> {
        self.may(act)?;
        if self.reaches_all() {
            return Ok(());
        }
        Err(Refusal::new(ProblemType::NotAllowed, "this needs a token for all namespaces"))
    }
}

/// Lets nobody in without a good token.
pub(crate) async fn authenticate(State(door): State<Shared>, mut request: Request, next: Next) -> Response {
    let caller = match shown_token(request.headers()) {
        Ok(token) => caller_of(&door, &token).await,
        Err(refusal) => Err(refusal),
    };
    match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn unauthenticated(text: &str) -> Refusal {
    Refusal::new(ProblemType::Unauthenticated, text)
}

fn shown_token(headers: &HeaderMap) -> Result<Token, Refusal> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = shown.and_then(|shown| shown.split_once(' '));
    let text = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, text)| text);
    let text = text.ok_or_else(|| unauthenticated("an API token is shown as `Authorization: Bearer hfa_…`"))?;
    Token::parse(TokenKind::Api, text).map_err(|error| unauthenticated(&error.to_string()))
}

async fn caller_of(door: &Shared, token: &Token) -> Result<Caller, Refusal> {
    let hash = TokenHash(*token.hash().as_bytes());
    let grant = door.store.authorize_api(hash).await?;
    let grant = grant.ok_or_else(|| unauthenticated("the token is unknown, revoked or past its time"))?;
    tracing::debug!(token = %grant.token, role = %grant.role, "a caller is known");
    Ok(Caller { grant, hash })
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _door: &Shared) -> Result<Self, Refusal> {
        // There wherever `authenticate` lies above: a route outside it has no caller.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Refusal::new(ProblemType::Unauthenticated, "no API token was shown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::ids::ApiTokenId;
    use uuid::Uuid;

    fn mk_caller(role: Role, namespaces: NamespaceScope) -> Caller {
        let token = ApiTokenId::new(Uuid::from_u128(1));
        Caller { grant: ApiGrant { token, name: "t".to_owned(), role, namespaces }, hash: TokenHash([0; 32]) }
    }

    #[test]
    fn a_token_of_one_namespace_changes_what_is_in_it_and_not_its_labels() {
        let key = |kind, namespace: &str| {
            let namespace: Name = namespace.parse().expect("a name");
            ObjectKey { kind, name: namespace.clone(), namespace }
        };
        let scoped = mk_caller(Role::Editor, NamespaceScope::Of(["edge".parse().expect("a name")].into()));
        assert!(scoped.may_change(Act::Edit, &key(Kind::Policy, "edge")).is_ok());
        assert!(scoped.may_change(Act::Edit, &key(Kind::Policy, "core")).is_err());
        assert!(scoped.may_change(Act::Edit, &key(Kind::Namespace, "edge")).is_err());
        let all = mk_caller(Role::Editor, NamespaceScope::All);
        assert!(all.may_change(Act::Edit, &key(Kind::Namespace, "edge")).is_ok());
    }

    #[test]
    fn each_role_may_what_the_table_says_and_no_more() {
        let may = |role| {
            let acts = [Act::Read, Act::Edit, Act::Operate, Act::Audit, Act::Administer];
            acts.map(|act| mk_caller(role, NamespaceScope::All).may(act).is_ok())
        };
        assert_eq!(may(Role::Viewer), [true, false, false, false, false]);
        assert_eq!(may(Role::Editor), [true, true, false, false, false]);
        assert_eq!(may(Role::Operator), [true, true, true, false, false]);
        assert_eq!(may(Role::Auditor), [true, false, false, true, false]);
        assert_eq!(may(Role::Admin), [true; 5]);
    }

    #[test]
    fn a_scope_narrows_where_a_role_holds() {
        let (own, other): (Name, Name) = ("own".parse().expect("a name"), "other".parse().expect("a name"));
        let caller = mk_caller(Role::Admin, NamespaceScope::Of(vec![own.clone()]));
        assert!(caller.may_in(Act::Edit, &own).is_ok());
        assert_eq!(caller.may_in(Act::Edit, &other).expect_err("refused").problem().status, 403);
        assert!(caller.may_everywhere(Act::Audit).is_err());
        assert!(mk_caller(Role::Admin, NamespaceScope::All).may_everywhere(Act::Audit).is_ok());
    }
}
