//! What is told of the session.

use holdfast_model::condition::Reason;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_model::statement::Authority;
use serde::{Deserialize, Serialize};

/// Where the connection stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Link {
    /// The next dial waits.
    Waiting {
        /// So long, when it was told.
        ms: u64,
    },
    /// A connection is being made.
    Dialling {
        /// To whom.
        gateway: String,
    },
    /// A session is open.
    Open {
        /// With whom.
        gateway: String,
        /// Its number.
        session_epoch: SessionEpoch,
    },
    /// Its session goes on by polls.
    Polling {
        /// Whom it asks.
        gateway: String,
        /// Its number.
        session_epoch: SessionEpoch,
    },
    /// An operator asked that the host be enrolled anew: nobody is dialled until a person acts.
    Stopped,
}

/// An update that was refused before anything was tried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RefusedUpdate {
    /// Who sent it.
    pub gateway: String,
    /// Which part.
    pub component: Component,
    /// What it named.
    pub wanted: Stamp,
    /// Why.
    pub reason: Reason,
    /// Whether an update of that part was taken after it.
    #[serde(default)]
    pub taken_since: bool,
}

/// The session and what it rests on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Who this host is.
    pub host: HostId,
    /// The authority that it was enrolled with.
    pub authority: String,
    /// The life of it that the gateway speaks for.
    pub authority_epoch: u64,
    /// Where the connection stands.
    pub link: Link,
    /// How the last one ended, or why there was none.
    pub last_end: Option<String>,
    /// The code by which a side refused the last one, until one is open again.
    #[serde(default)]
    pub refusal: Option<String>,
    /// The last update that was refused as it came, since the agent started.
    #[serde(default)]
    pub last_refused: Option<RefusedUpdate>,
    /// Updates that came in this session.
    pub updates: u64,
}

impl SessionStatus {
    pub(crate) fn new(host: HostId, authority: Authority) -> Self {
        Self {
            host,
            authority: authority.id.to_string(),
            authority_epoch: authority.epoch.raw(),
            link: Link::Waiting { ms: 0 },
            last_end: None,
            refusal: None,
            last_refused: None,
            updates: 0,
        }
    }

    /// An update was taken, to be tried.
    pub(crate) fn take(&mut self, component: Component) {
        self.updates += 1;
        if let Some(refused) = self.last_refused.as_mut().filter(|refused| refused.component == component) {
            refused.taken_since = true;
        }
    }
}
