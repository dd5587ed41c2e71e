//! Ringing bells on the bus: hints of one process, one after the other.
//!
//! - Hints that mean the same and wait together are rung once. One that cannot be rung costs time, never correctness.

use holdfast_bus::Bus;
use holdfast_events::Hint;
use holdfast_runtime::Chain;
use tokio::sync::mpsc;

/// Hints that wait for the bus; more are dropped by whoever rings.
const WAITING_MAX: usize = 1_024;

/// Where hints are put, and what publishes them until everybody who may ring is gone.
pub fn bell(bus: Bus) -> (mpsc::Sender<Hint>, impl Future<Output = ()> + Send) {
    let (rings, waiting) = mpsc::channel(WAITING_MAX);
    (rings, publish(bus, waiting))
}

async fn publish(bus: Bus, mut waiting: mpsc::Receiver<Hint>) {
    let mut hints: Vec<Hint> = Vec::new();
    while waiting.recv_many(&mut hints, WAITING_MAX).await > 0 {
        let mut rung: Vec<Hint> = Vec::new();
        for hint in hints.drain(..) {
            if rung.contains(&hint) {
                continue;
            }
            if let Err(error) = bus.publish_hint(&hint).await {
                tracing::debug!(error = %Chain(&error), "a hint is not rung");
            }
            rung.push(hint);
        }
    }
}
