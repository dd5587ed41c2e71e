//! Waking sessions: by hints, and by a compare where hints may be missing.
//!
//! - The compare runs on every doubt about hints and each 30 s ± jitter, by one query for all sessions of this replica.
//! - Nothing else asks the database while nothing changes.

use std::time::Duration;

use holdfast_bus::Wake;
use holdfast_events::Hint;
use holdfast_runtime::Chain;
use holdfast_session::random::Random;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answers::Answers;
use super::limits::COMPARE_INTERVAL;
use super::registry::Registry;
use super::store::AgentsStore;

/// Runs until nobody wakes any more.
pub(super) async fn run<S: AgentsStore>(
    store: S,
    registry: Registry,
    answers: Answers,
    mut wakes: mpsc::Receiver<Wake>,
    seed: u64,
) {
    let mut random = Random::new(seed);
    let mut next = Instant::now() + jittered(&mut random);
    loop {
        let compare = tokio::select! {
            wake = wakes.recv() => match wake {
                None => return,
                Some(Wake::Lapsed) => {
                    answers.look();
                    true
                }
                Some(Wake::Hint(hint)) => {
                    handle_hint(&registry, &answers, hint);
                    false
                }
            },
            () = tokio::time::sleep_until(next) => true,
        };
        if compare {
            next = Instant::now() + jittered(&mut random);
            compare_all(&store, &registry).await;
        }
    }
}

fn handle_hint(registry: &Registry, answers: &Answers, hint: Hint) {
    match hint {
        Hint::Host(hint) => {
            let of = hint.of.map_or(hint.states.len(), |of| usize::try_from(of).unwrap_or(usize::MAX));
            registry.hint(&hint.states, of);
        }
        Hint::Answer { .. } => answers.look(),
        // For the renderer and the relay.
        Hint::Event | Hint::Intent | Hint::Request => {}
    }
}

async fn compare_all<S: AgentsStore>(store: &S, registry: &Registry) {
    let hosts = registry.hosts();
    if hosts.is_empty() {
        return;
    }
    match store.compare(hosts).await {
        Ok(newest) => registry.compare(&newest),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "sessions cannot be compared; trying again at the next turn")
        }
    }
}

/// The interval within a fifth either way, so that replicas do not ask in step.
fn jittered(random: &mut Random) -> Duration {
    let whole = u64::try_from(COMPARE_INTERVAL.as_millis()).unwrap_or(30_000);
    Duration::from_millis(whole / 5 * 4 + random.up_to(whole / 5 * 2))
}
