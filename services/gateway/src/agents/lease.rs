//! The process's lease: the proof that what it writes about its sessions still counts.
//!
//! - Renewed in the background, three times in its span. One that lapsed because the database was away ends no session: nothing is written, and no
//!   session is opened, until it is held again.
//! - It ends by the holder's own clock too, counted from before it asked: a process that was held still does not take it for held when it goes on.

use std::time::Duration;

use holdfast_runtime::{Chain, Shutdown};
use tokio::sync::watch;
use tokio::time::Instant;

use super::absence::Absence;
use super::store::AgentsStore;

/// How long a claim or a renewal that failed is waited with, as a part of the span between renewals.
const RETRY_PART: u32 = 10;

/// Whether the lease is held.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    until: watch::Receiver<Option<Instant>>,
}

/// What says so.
#[derive(Debug)]
pub(super) struct Holding {
    until: watch::Sender<Option<Instant>>,
}

/// One that is not held yet.
pub(super) fn new() -> (Holding, Lease) {
    let (holding, until) = watch::channel(None);
    (Holding { until: holding }, Lease { until })
}

impl Lease {
    /// Waits until it is held; false if nobody claims it any more.
    pub(super) async fn held(&mut self) -> bool {
        loop {
            if self.until.borrow_and_update().is_some_and(|until| Instant::now() < until) {
                return true;
            }
            if self.until.changed().await.is_err() {
                return false;
            }
        }
    }
}

/// Holds the lease until `stopped`, and says whether it is held.
pub(super) async fn run<S: AgentsStore>(store: S, ttl: Duration, holding: Holding, stopped: Shutdown) {
    let (mut was_held, absence) = (false, Absence::default());
    loop {
        let asked = Instant::now();
        let holds = match store.hold_lease(ttl).await {
            Ok(holds) => {
                if let Some(failures) = absence.ended() {
                    tracing::info!(failures, holds, "the lease can be asked for again");
                }
                holds
            }
            Err(error) => {
                let error = Chain(&error);
                if absence.is_news(&error) {
                    tracing::warn!(%error, "the lease cannot be renewed; trying again until it can");
                } else {
                    tracing::debug!(%error, "the lease cannot be renewed yet");
                }
                false
            }
        };
        if was_held && !holds {
            metrics::counter!("holdfast_gateway_lease_lapses_total").increment(1);
        }
        was_held = holds;
        holding.until.send_replace(holds.then(|| asked + ttl));
        let renewal = ttl / 3;
        let wait = if holds { renewal } else { renewal / RETRY_PART };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stopped.asked() => break,
        }
    }
    if let Err(error) = store.release_lease().await {
        tracing::debug!(error = %Chain(&error), "the lease is not given back; it ends by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_by_the_holders_own_clock_when_nobody_renews_it() {
        let (holding, mut lease) = new();
        holding.until.send_replace(Some(Instant::now() + Duration::from_secs(30)));
        assert!(lease.held().await);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(tokio::time::timeout(Duration::from_secs(1), lease.held()).await.is_err(), "it is over");
        holding.until.send_replace(Some(Instant::now() + Duration::from_secs(30)));
        assert!(lease.held().await, "held again");
        drop(holding);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!lease.held().await, "nobody claims it");
    }
}
