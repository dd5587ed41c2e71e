//! Waking sessions: by hints, and by a compare where hints may be missing.
//!
//! - The compare runs on every doubt about hints, and each 30 s ± jitter, by one query for all sessions of this replica. A hole in their numbers is a
//!   doubt, and so is another renderer's first: the one before may have stored what it never told.
//! - It also finds a database that went back, and another life of the authority: sessions that are older begin anew, and say what they hold.
//! - Nothing else asks the database while nothing changes.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_bus::Wake;
use holdfast_events::{Hint, HostHint};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{LeaseTerm, SessionEpoch};
use holdfast_runtime::Chain;
use holdfast_session::random::Random;
use holdfast_store::session::HostNewest;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answers::Answers;
use super::limits::HOLE_PAUSE;
use super::registry::Registry;
use super::store::AgentsStore;

/// Runs until nobody wakes any more.
pub(super) async fn run<S: AgentsStore>(
    store: S,
    registry: Registry,
    answers: Answers,
    mut wakes: mpsc::Receiver<Wake>,
    interval: Duration,
    seed: u64,
) {
    let mut random = Random::new(seed);
    let mut next = Instant::now() + jittered(interval, &mut random);
    let mut numbers = Numbers::default();
    let mut compared = None;
    loop {
        let compare = tokio::select! {
            wake = wakes.recv() => match wake {
                None => return,
                Some(Wake::Lapsed) => {
                    answers.look();
                    true
                }
                Some(Wake::Hint(hint)) => {
                    if let Hint::Host(hint) = &hint && numbers.are_in_doubt_before(hint) {
                        metrics::counter!("holdfast_gateway_hint_holes_total").increment(1);
                        next = next.min(compared.map_or_else(Instant::now, |at| at + HOLE_PAUSE));
                    }
                    handle_hint(&registry, &answers, hint);
                    false
                }
            },
            () = tokio::time::sleep_until(next) => true,
        };
        if compare {
            next = Instant::now() + jittered(interval, &mut random);
            compare_all(&store, &registry).await;
            compared = Some(Instant::now());
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
    let (asked, hosts) = (registry.held(), registry.hosts());
    if hosts.is_empty() {
        return;
    }
    metrics::counter!("holdfast_gateway_compares_total").increment(1);
    let found = match store.compare(hosts).await {
        Ok(newest) => store.load_authority().await.map(|authority| (newest, authority)),
        Err(error) => Err(error),
    };
    match found {
        Ok((newest, authority)) => {
            registry.compare(&newest);
            registry.begin_anew(&forgotten(&asked, &newest));
            registry.tell_life(authority);
        }
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "sessions cannot be compared; trying again at the next turn")
        }
    }
}

/// Sessions that the authority gave their numbers and does not know: it was restored from a backup. Each was there before it was asked.
fn forgotten(asked: &[(HostId, SessionEpoch)], newest: &[HostNewest]) -> Vec<(HostId, SessionEpoch)> {
    let known: HashMap<HostId, SessionEpoch> = newest.iter().map(|host| (host.host, host.session_epoch)).collect();
    let is_forgotten = |(host, epoch): &&(HostId, SessionEpoch)| known.get(host).is_none_or(|known| known < epoch);
    let forgotten: Vec<_> = asked.iter().filter(is_forgotten).copied().collect();
    if !forgotten.is_empty() {
        tracing::warn!(
            sessions = forgotten.len(),
            "the database does not know sessions that it numbered: it was restored or promoted; they begin anew"
        );
    }
    forgotten
}

/// The number of the last host hint, to find what is missing before the next.
#[derive(Debug, Default)]
struct Numbers {
    last: Option<(LeaseTerm, u64)>,
}

impl Numbers {
    /// Whether hints may be missing before this one: under one lease they are numbered from 1 without a hole. One that repeats an older number tells
    /// nothing.
    fn are_in_doubt_before(&mut self, hint: &HostHint) -> bool {
        let this = (hint.lease_term, hint.n);
        if self.last.is_some_and(|last| this <= last) {
            return false;
        }
        let is_next = self.last.is_some_and(|(term, n)| term == hint.lease_term && n.saturating_add(1) == hint.n);
        self.last = Some(this);
        !is_next
    }
}

/// The interval within a fifth either way, so that replicas do not ask in step.
fn jittered(interval: Duration, random: &mut Random) -> Duration {
    let whole = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(whole / 5 * 4 + random.up_to(whole / 5 * 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_in_the_numbers_of_hints_and_another_renderer_are_told_once_and_repetition_is_none() {
        let mut numbers = Numbers::default();
        let mut are_in_doubt = |term, n| {
            let lease_term = LeaseTerm::from_raw(term);
            numbers.are_in_doubt_before(&HostHint { lease_term, n, of: None, states: Vec::new() })
        };
        assert!(are_in_doubt(2, 40), "the first that is heard");
        assert!(!are_in_doubt(2, 41));
        assert!(are_in_doubt(2, 43));
        assert!(!are_in_doubt(2, 44), "told once");
        assert!(!are_in_doubt(2, 42) && !are_in_doubt(2, 44) && !are_in_doubt(1, 99), "late, again, and of an older renderer");
        assert!(are_in_doubt(3, 1), "another renderer: the one before may have stored what it never told");
        assert!(!are_in_doubt(3, 2));
        assert!(are_in_doubt(5, 2), "another one, whose first is missing");
        assert!(are_in_doubt(5, u64::MAX) && !are_in_doubt(5, 3) && are_in_doubt(6, 1), "whatever a stranger numbers");
    }
}
