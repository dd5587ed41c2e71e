//! How the API refuses: RFC 9457 problems with type names that never change.
//!
//! - A type name is public: appended to, never renamed. Each has one status.
//! - `detail` is for people and may change; programs read `type` and `findings`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::brake::BrakeView;

/// What every type begins with.
pub const TYPE_PREFIX: &str = "urn:holdfast:problem:";
/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

macro_rules! problem_types {
    ($($(#[$doc:meta])* $variant:ident, $word:literal, $status:literal, $title:literal;)+) => {
        /// The kinds of refusals.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ProblemType {$(
            $(#[$doc])*
            $variant,
        )+}

        impl ProblemType {
            /// All of them, by name.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name after [`TYPE_PREFIX`].
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// A short summary that is the same each time.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

problem_types! {
    /// The host has no open session.
    AgentOffline, "agent-offline", 409, "The host has no open session";
    /// A name means more than one thing.
    Ambiguous, "ambiguous", 422, "The name means more than one thing";
    /// The thing was revoked before.
    AlreadyRevoked, "already-revoked", 409, "It was revoked before";
    /// The audit service does not answer.
    AuditUnavailable, "audit-unavailable", 502, "The audit service does not answer";
    /// The change takes so much away that somebody has to say that it is meant; nothing was changed.
    BlastRadius, "blast-radius", 409, "The change takes much away, and nobody said that it is meant";
    /// The body is larger than this call takes.
    BodyTooLarge, "body-too-large", 413, "The body is too large";
    /// Too many large requests at once.
    Busy, "busy", 503, "Too many large requests at once";
    /// Postgres does not answer; nothing was changed.
    DatabaseUnavailable, "database-unavailable", 503, "The database does not answer";
    /// Documents break rules; `findings` has each.
    DocumentsRefused, "documents-refused", 422, "The documents have faults";
    /// The name of this request is that of another one; nothing was changed.
    IdempotencyKeyReused, "idempotency-key-reused", 409, "The name of this request is that of another one";
    /// A defect of the control plane; the log has it under the request's id.
    Internal, "internal", 500, "A defect of the control plane";
    /// A cursor of another list, or of none.
    InvalidCursor, "invalid-cursor", 400, "The cursor is not one of this list";
    /// The request cannot be understood; `findings` says where.
    InvalidRequest, "invalid-request", 400, "The request cannot be understood";
    /// The body is of a kind that is not read here.
    MediaType, "media-type", 415, "The body is of a kind that is not read";
    /// The path has no such method.
    MethodNotAllowed, "method-not-allowed", 405, "The path has no such method";
    /// The token does not allow this.
    NotAllowed, "not-allowed", 403, "The token does not allow this";
    /// There is no such thing.
    NotFound, "not-found", 404, "There is no such thing";
    /// Nothing was rendered for the host yet.
    NotRendered, "not-rendered", 409, "Nothing was rendered yet";
    /// The operation ended before.
    OperationEnded, "operation-ended", 409, "The operation ended before";
    /// The connection to Postgres was lost while committing: the change was made or it was not.
    OutcomeUnknown, "outcome-unknown", 503, "It is not known whether the change was made";
    /// The renderer that leads knows no rollouts; nothing was changed.
    RendererOutdated, "renderer-outdated", 409, "The renderer knows no rollouts";
    /// The body of the request came too slowly.
    RequestTimeout, "request-timeout", 408, "The request came too slowly";
    /// Another change goes through the fleet in stages.
    RolloutOpen, "rollout-open", 409, "Another rollout is open";
    /// The rollout is in a state from which it does not go there.
    RolloutState, "rollout-state", 409, "The rollout does not go there from where it is";
    /// This request made a token before, and its secret is not kept.
    SecretNotKept, "secret-not-kept", 409, "The token was made before, and its secret is not kept";
    /// The object is not the one that was read; nothing was changed.
    StaleObject, "stale-object", 412, "The object is not the one that was read";
    /// The plan is not the one that would be carried out now.
    StalePlan, "stale-plan", 409, "The plan is no longer the one that would be carried out";
    /// There is a later revision than the one that was expected.
    StaleRevision, "stale-revision", 409, "There is a later revision";
    /// The rollout is not as it was read; nothing was changed.
    StaleRollout, "stale-rollout", 412, "The rollout is not as it was read";
    /// Another number of things than was expected; nothing was changed.
    UnexpectedCount, "unexpected-count", 409, "Another number was expected";
    /// No API token, or one that is not good.
    Unauthenticated, "unauthenticated", 401, "No good API token was shown";
}

impl ProblemType {
    /// The URN.
    #[must_use]
    pub fn urn(self) -> String {
        format!("{TYPE_PREFIX}{}", self.word())
    }

    /// The type with a URN; nothing for one that this build does not know.
    #[must_use]
    pub fn from_urn(urn: &str) -> Option<Self> {
        let word = urn.strip_prefix(TYPE_PREFIX)?;
        Self::ALL.iter().copied().find(|known| known.word() == word)
    }
}

/// One thing that is wrong with an input.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// The name that the input came with; empty if it is the request itself.
    pub file: String,
    /// Which document of the file, from 1; 0 if it is the file's.
    pub document: u64,
    /// The line in the file, from 1; 0 if it is not known.
    #[serde(default)]
    pub line: u64,
    /// Where in the document, as `spec.ingress[1].from[0].cidr`; or which field of the request.
    pub path: String,
    /// The stable name of the rule that it breaks.
    pub rule: String,
    /// What is wrong.
    pub message: String,
}

/// A refusal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind, as `urn:holdfast:problem:not-found`.
    #[serde(rename = "type")]
    #[schema(example = "urn:holdfast:problem:not-found")]
    pub kind: String,
    /// A short summary of the kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, for people.
    pub detail: String,
    /// The id of the request, to be found in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The revision that there is, where another was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// When an absent host was last heard, in RFC 3339 and UTC; null if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub last_seen_at: Option<Option<String>>,
    /// What the change would take away, and how it is acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<BrakeView>,
    /// Everything that is wrong with the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

impl Problem {
    /// A refusal of a kind.
    #[must_use]
    pub fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self {
            kind: kind.urn(),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
            request_id: None,
            revision: None,
            last_seen_at: None,
            brake: None,
            findings: Vec::new(),
        }
    }

    /// The name that its type ends with: the rule that was broken, where no finding is more exact.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.kind.strip_prefix(TYPE_PREFIX).unwrap_or(&self.kind)
    }

    /// Its kind, if this build knows it.
    #[must_use]
    pub fn known_type(&self) -> Option<ProblemType> {
        ProblemType::from_urn(&self.kind)
    }
}

/// A field that is there, be it null.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_of_its_own_that_reads_back() {
        for kind in ProblemType::ALL {
            assert_eq!(ProblemType::from_urn(&kind.urn()), Some(*kind));
            assert!((400..600).contains(&kind.status()));
        }
        let mut words: Vec<&str> = ProblemType::ALL.iter().map(|kind| kind.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), ProblemType::ALL.len());
        assert_eq!(ProblemType::from_urn("about:blank"), None);
    }

    #[test]
    fn a_host_that_was_never_heard_is_told_from_a_problem_that_is_about_none() {
        let about = |last_seen_at| Problem { last_seen_at, ..Problem::new(ProblemType::AgentOffline, "away") };
        for last_seen_at in [None, Some(None), Some(Some("2026-01-02T03:04:05Z".to_owned()))] {
            let problem = about(last_seen_at.clone());
            let json = serde_json::to_value(&problem).expect("JSON");
            assert_eq!(json.get("last_seen_at").is_some(), last_seen_at.is_some(), "{json}");
            assert_eq!(serde_json::from_value::<Problem>(json).expect("it reads back"), problem);
        }
    }

    #[test]
    fn a_problem_leaves_out_what_it_does_not_have() {
        let json = serde_json::to_value(Problem::new(ProblemType::NotFound, "there is no x")).expect("JSON");
        assert_eq!(
            json,
            serde_json::json!({
                "type": "urn:holdfast:problem:not-found", "title": "There is no such thing", "status": 404,
                "detail": "there is no x",
            })
        );
    }
}
