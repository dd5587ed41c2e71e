//! Signed statements of how far a log went.

use serde::{Deserialize, Serialize};

use super::chain::Head;

/// A statement of the head of a log at a time, signed by the audit service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Whose log: the text of the authority's id.
    pub log: String,
    /// The head.
    #[serde(flatten)]
    pub head: Head,
    /// When, in RFC 3339 and UTC.
    pub at: String,
    /// Ed25519 over [`Checkpoint::statement`], as 128 lower-case hexadecimal characters.
    pub signature: String,
}

impl Checkpoint {
    /// The bytes that are signed.
    #[must_use]
    pub fn statement(&self) -> Vec<u8> {
        format!("holdfast.dev audit checkpoint v1\n{}\n{}\n{}\n{}\n", self.log, self.head.n, self.head.hash, self.at)
            .into_bytes()
    }
}
