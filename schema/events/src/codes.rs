//! Closed lists of codes in events and columns. A word is never reused for another meaning.

use std::fmt;
use std::str::FromStr;

use holdfast_model::name::Name;
use serde::{Deserialize, Serialize};

use crate::secret_free::secret_free;

/// The text is no word of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no {what}")]
pub struct CodeError {
    /// The list.
    pub what: &'static str,
    /// The offending word, cut to 64 characters.
    pub word: String,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word in events, columns and commands.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $name {
            type Err = CodeError;
            fn from_str(word: &str) -> Result<Self, CodeError> {
                let unknown = || CodeError { what: $what, word: word.chars().take(64).collect() };
                Self::ALL.iter().copied().find(|code| code.word() == word).ok_or_else(unknown)
            }
        }

        secret_free!($name);
    )+};
}

codes! {
    /// What an operator may do.
    Role, "role" {
        /// Everything, tokens and authority included.
        Admin "admin",
        /// Reads events and the audit log.
        Auditor "auditor",
        /// Changes intent.
        Editor "editor",
        /// Changes intent and acts on hosts.
        Operator "operator",
        /// Reads intent and status.
        Viewer "viewer",
    }

    /// What an operation was asked to do.
    OperationVerb, "verb of an operation" {
        /// Put these objects in force.
        Apply "apply",
        /// Take these objects out of force.
        Delete "delete",
        /// Take this host out.
        Decommission "decommission",
        /// Put these hosts into a mode.
        Mode "mode",
        /// Put in force again what was in force at an earlier revision.
        Restore "restore",
        /// Put back what a rollout changed.
        Abort "abort",
    }

    /// Why a rollout opens no further stage.
    HaltReason, "reason of a halt" {
        /// More hosts failed than may.
        Failed "failed",
        /// More hosts are unknown than may be.
        Unknown "unknown",
        /// Its stage takes too long.
        Late "late",
        /// No host of its stage is left.
        Nobody "nobody",
        /// A renderer leads that knows no rollouts, and holds nobody back.
        Renderer "renderer",
    }

    /// How far an operation is; all but the first are terminal.
    OperationState, "state of an operation" {
        /// Committed; its effect is on its way.
        Accepted "accepted",
        /// In force on every target host.
        Applied "applied",
        /// It has no target.
        Inactive "inactive",
        /// A target did not take it.
        Failed "failed",
        /// A later revision overwrote it.
        Superseded "superseded",
        /// An operator gave it up.
        Cancelled "cancelled",
    }

    /// Why a session ended.
    CloseReason, "reason of a session's end" {
        /// The agent closed it.
        AgentLeft "agent_left",
        /// Its host was taken out.
        Decommissioned "decommissioned",
        /// The gateway asked the agent to go elsewhere.
        Drained "drained",
        /// The gateway stopped.
        GatewayStopped "gateway_stopped",
        /// Nothing was heard for three intervals, or the connection broke.
        Lost "lost",
        /// The agent broke the protocol.
        ProtocolFault "protocol_fault",
        /// Its certificate is no longer good.
        Revoked "revoked",
        /// A newer session of the same host began.
        Superseded "superseded",
    }

    /// Why an enrolment was refused after its token was found good.
    EnrolmentRefusal, "reason of a refused enrolment" {
        /// None of the addresses is in the token's range.
        AddressOutOfScope "address_out_of_scope",
        /// The certificate request cannot be read or proves nothing.
        BadCertificateRequest "bad_certificate_request",
        /// The host was taken out.
        Decommissioned "decommissioned",
        /// The namespace has a host of this name.
        NameTaken "name_taken",
    }

    /// How a peer broke the protocol.
    Fault, "protocol fault" {
        /// The host's signature does not cover what came.
        BadSignature "bad_signature",
        /// A message that cannot be read or is not allowed now.
        Malformed "malformed",
        /// An answer that says applied and names another state as the one in force.
        OutcomeContradiction "outcome_contradiction",
        /// An answer that names another part, version or content than its update had.
        OutcomeMismatch "outcome_mismatch",
        /// An answer to an update that came before one already answered.
        OutOfOrder "out_of_order",
        /// Something from a session that is no longer this host's.
        StaleSession "stale_session",
        /// A host's word of itself as a whole that cannot be read, is stale, is forged or comes too often.
        StatusRefused "status_refused",
        /// An answer to an update that was never sent.
        UnknownUpdate "unknown_update",
    }
}

impl OperationState {
    /// Whether nothing more will happen to it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Accepted)
    }
}

/// For which namespaces a grant holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceScope {
    /// All, those to come included.
    All,
    /// These, sorted.
    Of(Vec<Name>),
}

secret_free!(NamespaceScope);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_and_the_serialized_form_are_one() {
        for reason in CloseReason::ALL {
            assert_eq!(serde_json::to_value(reason).expect("a word"), reason.word());
            assert_eq!(reason.word().parse(), Ok(*reason));
        }
        assert!("root".parse::<Role>().is_err());
    }
}
