//! The process's lease: the proof that what it writes about its sessions still counts.
//!
//! - Renewed in the background, three times in its span. One that lapsed because the database was away ends no session: nothing is written, and no
//!   session is opened, until it is held again.
//! - It ends by the holder's own clock too, counted from before it asked: a process that was held still does not take it for held when it goes on.
//!
//! When it is held and when it is asked for is decided by the machine ([`holdfast_session::replica::Lease`]), which the simulation drives too.

use std::time::Duration;

use holdfast_runtime::{Chain, Shutdown};
use holdfast_session::replica::Lease as Machine;
use tokio::sync::watch;

use super::absence::Absence;
use super::clock::Clock;
use super::session::FAR;
use super::store::AgentsStore;

/// Whether the lease is held.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    machine: watch::Receiver<Machine>,
    clock: Clock,
}

/// What says so.
#[derive(Debug)]
pub(super) struct Holding {
    machine: watch::Sender<Machine>,
    ttl: Duration,
    clock: Clock,
}

/// One that is not held yet, and lasts so long.
pub(super) fn new(ttl: Duration, clock: Clock) -> (Holding, Lease) {
    let (holding, machine) = watch::channel(Machine::new(ttl));
    (Holding { machine: holding, ttl, clock }, Lease { machine, clock })
}

impl Lease {
    /// Waits until it is held; false if nobody claims it any more.
    pub(super) async fn held(&mut self) -> bool {
        loop {
            if self.machine.borrow_and_update().is_held(self.clock.now()) {
                return true;
            }
            if self.machine.changed().await.is_err() {
                return false;
            }
        }
    }
}

/// Holds the lease until `stopped`, and says whether it is held.
pub(super) async fn run<S: AgentsStore>(store: S, holding: Holding, stopped: Shutdown) {
    let Holding { machine: said, ttl, clock } = holding;
    let (mut machine, absence) = (*said.borrow(), Absence::default());
    loop {
        machine.handle_asked(clock.now());
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
        if machine.handle_answer(holds, clock.now()) {
            metrics::counter!("holdfast_gateway_lease_lapses_total").increment(1);
        }
        said.send_replace(machine);
        let next =
            machine.poll_timeout().map_or_else(|| tokio::time::Instant::now() + FAR, |(at, _)| clock.instant_of(at));
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
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

    const TTL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_by_the_holders_own_clock_when_nobody_renews_it() {
        let clock = Clock::start();
        let (holding, mut lease) = new(TTL, clock);
        let hold = || {
            holding.machine.send_modify(|machine| {
                machine.handle_asked(clock.now());
                machine.handle_answer(true, clock.now());
            });
        };
        hold();
        assert!(lease.held().await);
        tokio::time::sleep(TTL).await;
        assert!(tokio::time::timeout(Duration::from_secs(1), lease.held()).await.is_err(), "it is over");
        hold();
        assert!(lease.held().await, "held again");
        drop(holding);
        tokio::time::sleep(TTL).await;
        assert!(!lease.held().await, "nobody claims it");
    }
}
