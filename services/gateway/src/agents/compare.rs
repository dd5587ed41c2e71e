//! Waking sessions: by hints, and by a compare where hints may be missing.
//!
//! - The compare runs on every doubt about hints, and each 30 s ± jitter, by one query for all sessions of this replica. A hole in their numbers is a
//!   doubt, and so is another renderer's first: the one before may have stored what it never told.
//! - One that fails is tried again within 5 s: what raised the doubt is not forgotten.
//! - It also finds a database that went back, and another life of the authority: sessions that are older begin anew, and say what they hold.
//! - Nothing else asks the database while nothing changes.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use holdfast_bus::Wake;
use holdfast_events::{Hint, HintNumbers};
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_runtime::Chain;
use holdfast_session::random::Random;
use holdfast_store::session::{HostNewest, Newest};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::absence::Absence;
use super::answers::Answers;
use super::limits::{COMPARE_RETRY, HOLE_PAUSE};
use super::registry::{HeldNow, Registry};
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
    let mut numbers = HintNumbers::new();
    let (mut compared, absence) = (None, Absence::default());
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
            let pause = jittered(interval, &mut random);
            let is_compared = compare_all(&store, &registry, &absence).await;
            let now = Instant::now();
            next = now + if is_compared { pause } else { pause.min(COMPARE_RETRY) };
            compared = Some(now);
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

/// Whether all was compared that there is.
async fn compare_all<S: AgentsStore>(store: &S, registry: &Registry, absence: &Absence) -> bool {
    // One look: whoever leaves between two would be taken for one that the database does not know.
    let asked = registry.held();
    if asked.is_empty() {
        return true;
    }
    let hosts: BTreeSet<HostId> = asked.iter().map(|held| held.host).collect();
    metrics::counter!("holdfast_gateway_compares_total").increment(1);
    match store.compare(hosts.into_iter().collect()).await {
        Ok(Newest { authority, hosts: newest }) => {
            if let Some(failures) = absence.ended() {
                tracing::info!(failures, "sessions are compared again");
            }
            registry.compare(&newest);
            registry.begin_anew(&ahead(&asked, &newest));
            registry.tell_life(authority);
            true
        }
        Err(error) => {
            let error = Chain(&error);
            if absence.is_news(&error) {
                tracing::warn!(%error, "sessions cannot be compared; trying again every {} s at most", COMPARE_RETRY.as_secs());
            } else {
                tracing::debug!(%error, "sessions cannot be compared yet");
            }
            false
        }
    }
}

/// Sessions that know more than the authority: it was restored from a backup, or promoted without the last commits. Each session, and each version, was
/// there before it was asked.
fn ahead(asked: &[HeldNow], newest: &[HostNewest]) -> Vec<(HostId, SessionEpoch)> {
    let known: HashMap<HostId, &HostNewest> = newest.iter().map(|host| (host.host, host)).collect();
    let is_ahead = |held: &&HeldNow| {
        known.get(&held.host).is_none_or(|known| {
            let of = |component| known.versions.iter().find(|(of, _)| *of == component).map(|(_, version)| *version);
            known.session_epoch < held.session_epoch
                || Component::ALL.into_iter().zip(held.built).any(|(component, built)| built > of(component))
        })
    };
    let ahead: Vec<_> = asked.iter().filter(is_ahead).map(|held| (held.host, held.session_epoch)).collect();
    if !ahead.is_empty() {
        tracing::warn!(
            sessions = ahead.len(),
            "the database does not know sessions that it numbered, or versions that it had: their hosts were taken out, or it was restored or promoted; they begin anew"
        );
    }
    ahead
}

/// The interval within a fifth either way, so that replicas do not ask in step.
fn jittered(interval: Duration, random: &mut Random) -> Duration {
    let whole = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(whole / 5 * 4 + random.up_to(whole / 5 * 2))
}
