//! Directives: what an operator asks of one host's session, now or not at all.
//!
//! - A directive is no intent: nothing carries it out later, and one that nobody hears is lost on purpose. Whoever asked sees by what the host does
//!   whether it was heard, and may ask again. That somebody asked is a fact, and an event.
//! - It names the host in its bytes, which nothing but a directive has: the server's own answers, which any user may have sent to any subject of its
//!   account, are none.

use std::fmt;

use holdfast_model::ids::HostId;
use serde::{Deserialize, Serialize};

use crate::secret_free::{require_secret_free, secret_free};
use crate::subject::DIRECTIVE_PREFIX;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum DirectiveKind {
    /// Drop the session and dial once.
    #[serde(rename = "reconnect")]
    Reconnect,
    /// The identity is to be replaced: stop and wait for a new token.
    #[serde(rename = "re-enrol")]
    Reenrol,
    /// Send the whole state once more.
    #[serde(rename = "resend-snapshot")]
    ResendSnapshot,
}

impl DirectiveKind {
    /// All of them, by their words.
    pub const ALL: [Self; 3] = [Self::Reenrol, Self::Reconnect, Self::ResendSnapshot];

    /// The word in subjects, paths, commands and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reenrol => "re-enrol",
            Self::Reconnect => "reconnect",
            Self::ResendSnapshot => "resend-snapshot",
        }
    }

    /// The subject on which it travels.
    #[must_use]
    pub const fn subject(self) -> &'static str {
        match self {
            Self::Reenrol => "holdfast.directive.re-enrol",
            Self::Reconnect => "holdfast.directive.reconnect",
            Self::ResendSnapshot => "holdfast.directive.resend-snapshot",
        }
    }
}

impl fmt::Display for DirectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directive {
    /// What is asked.
    pub kind: DirectiveKind,
    /// Of whom.
    pub host: HostId,
}

const _: () = require_secret_free::<HostId>();
secret_free!(Directive, DirectiveKind);

/// Why a message is no directive of this build.
#[derive(Debug, thiserror::Error)]
pub enum DirectiveError {
    /// A kind that this build does not know: a later one may.
    #[error("`{0}` is no directive that this build knows")]
    Unknown(String),
    /// The bytes are not those of a directive.
    #[error("the bytes on `{subject}` are no directive")]
    Payload {
        /// The subject.
        subject: &'static str,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    host: HostId,
}

impl Directive {
    /// What whoever obeys directives listens to.
    pub const SUBJECTS: &'static str = "holdfast.directive.*";

    /// The bytes that travel.
    ///
    /// # Errors
    /// [`DirectiveError::Payload`], which an id never is.
    pub fn encode(&self) -> Result<Vec<u8>, DirectiveError> {
        let subject = self.kind.subject();
        serde_json::to_vec(&Asked { host: self.host }).map_err(|source| DirectiveError::Payload { subject, source })
    }

    /// Reads a directive.
    ///
    /// # Errors
    /// [`DirectiveError`] says why it is none.
    pub fn decode(subject: &str, bytes: &[u8]) -> Result<Self, DirectiveError> {
        let word = subject.strip_prefix(DIRECTIVE_PREFIX);
        let kind = DirectiveKind::ALL.into_iter().find(|kind| word == Some(kind.word()));
        let kind = kind.ok_or_else(|| DirectiveError::Unknown(subject.chars().take(128).collect()))?;
        let fault = |source| DirectiveError::Payload { subject: kind.subject(), source };
        let Asked { host } = serde_json::from_slice(bytes).map_err(fault)?;
        Ok(Self { kind, host })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_directive_comes_back_from_its_subject_and_bytes_and_nothing_else_is_one() {
        let host = HostId::new(Uuid::from_u128(7));
        for kind in DirectiveKind::ALL {
            let directive = Directive { kind, host };
            let bytes = directive.encode().expect("encodes");
            assert_eq!(kind.subject(), format!("{DIRECTIVE_PREFIX}{kind}"));
            assert_eq!(Directive::decode(kind.subject(), &bytes).expect("decodes"), directive);
            // What the server says by itself: nothing, or words of its own.
            let answer = format!(r#"{{"host":"{host}","type":"io.nats.jetstream.api.v1.stream_info_response"}}"#);
            for other in [&b""[..], b"{}", b"null", answer.as_bytes()] {
                let refused = Directive::decode(kind.subject(), other);
                assert!(matches!(refused, Err(DirectiveError::Payload { .. })), "{refused:?}");
            }
            for subject in ["holdfast.hint.event", "holdfast.directive.drain", "holdfast.directive.", kind.word()] {
                assert!(matches!(Directive::decode(subject, &bytes), Err(DirectiveError::Unknown(_))));
            }
        }
    }
}
