//! The process's lease: the proof that what it writes about its sessions still counts.
//!
//! - Renewed in the background. One that lapsed because the database was away ends no session: nothing is written until it is held again.

use holdfast_runtime::{Chain, Shutdown};
use tokio::sync::watch;

use super::limits::LEASE_RENEWAL;
use super::store::AgentsStore;

/// Holds the lease until `stopped`, and says whether it is held.
pub(super) async fn run<S: AgentsStore>(store: S, held: watch::Sender<bool>, stopped: Shutdown) {
    loop {
        let holds = match store.hold_lease().await {
            Ok(holds) => holds,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the lease cannot be renewed");
                false
            }
        };
        held.send_if_modified(|before| std::mem::replace(before, holds) != holds);
        let wait = if holds { LEASE_RENEWAL } else { LEASE_RENEWAL / 10 };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stopped.asked() => break,
        }
    }
    if let Err(error) = store.release_lease().await {
        tracing::debug!(error = %Chain(&error), "the lease is not given back; it ends by itself");
    }
}
