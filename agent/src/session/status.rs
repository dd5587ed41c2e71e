//! What is told of the session.

use holdfast_model::condition::Reason;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_model::statement::Authority;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Where the connection stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Link {
    /// The next dial waits.
    Waiting {
        /// So long from now on.
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
    /// When the next dial is, while one is waited for: what is told of it is counted from here.
    #[serde(skip)]
    pub(crate) dials_at: Option<Instant>,
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
            dials_at: None,
        }
    }

    /// The next dial is at that time.
    pub(crate) fn wait_until(&mut self, dials_at: Instant, now: Instant) {
        self.dials_at = Some(dials_at);
        self.link = Link::Waiting { ms: left(dials_at, now) };
    }

    /// The same as it is at a moment: what is left of a wait becomes less.
    #[must_use]
    pub(crate) fn at(mut self, now: Instant) -> Self {
        if let (Link::Waiting { ms }, Some(dials_at)) = (&mut self.link, self.dials_at) {
            *ms = left(dials_at, now);
        }
        self
    }

    /// An update was taken, to be tried.
    pub(crate) fn take(&mut self, component: Component) {
        self.updates += 1;
        if let Some(refused) = self.last_refused.as_mut().filter(|refused| refused.component == component) {
            refused.taken_since = true;
        }
    }
}

fn left(until: Instant, now: Instant) -> u64 {
    u64::try_from(until.saturating_duration_since(now).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdfast_model::ids::AuthorityId;
    use holdfast_model::numbers::AuthorityEpoch;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_wait_for_the_next_dial_is_counted_down_and_not_told_as_it_was() {
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
        let mut status = SessionStatus::new(HostId::new(Uuid::from_u128(2)), authority);
        let now = Instant::now();
        status.wait_until(now + Duration::from_secs(60), now);
        let told = |after_s| status.clone().at(now + Duration::from_secs(after_s)).link;
        assert_eq!([0, 20, 60, 70].map(told), [60_000, 40_000, 0, 0].map(|ms| Link::Waiting { ms }));
        let text = serde_json::to_string(&status).expect("JSON");
        assert!(!text.contains("dials_at"), "a moment of this process is nothing to others: {text}");
    }
}
