//! What an operator asks of one host's session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A directive was sent: whether it was heard shows by what moves after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DirectiveView {
    /// Of which host.
    pub host: String,
    /// Its name, as `namespace/name`.
    pub name: String,
    /// What was asked: `resend-snapshot`, `reconnect` or `re-enrol`.
    #[schema(example = "resend-snapshot")]
    pub directive: String,
    /// When a whole state was last sent to the host, as it stood before: in RFC 3339 and UTC, null if none ever was.
    pub last_snapshot_sent_at: Option<String>,
    /// The number of the host's session, as it stood before.
    pub session_epoch: u64,
}
