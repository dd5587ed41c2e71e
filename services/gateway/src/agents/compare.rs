//! Waking sessions: by hints, and by a compare where hints may be missing.
//!
//! - The compare runs on every doubt about hints, and each 30 s ± jitter, by one query for all sessions of this replica. A hole in their numbers is a
//!   doubt, and so is another renderer's first: the one before may have stored what it never told. When exactly is decided by the machine
//!   ([`holdfast_session::replica::Compares`]), which the simulation drives too.
//! - One that fails is tried again within 5 s: what raised the doubt is not forgotten. Hints go on while one is under way, however long it hangs.
//! - It also finds a database that went back, and another life of the authority: sessions that are older begin anew, and say what they hold.
//! - Nothing else asks the database while nothing changes.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use holdfast_bus::Wake;
use holdfast_events::{Hint, HintNumbers};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use holdfast_runtime::Chain;
use holdfast_session::replica::{self, Compares, HeldNow, Pace};
use holdfast_store::session::{HostNewest, Newest};
use tokio::sync::mpsc;

use super::absence::Absence;
use super::answers::Answers;
use super::clock::Clock;
use super::limits::{COMPARE_RETRY, HOLE_PAUSE};
use super::registry::{Registry, newest_of};
use super::session::FAR;
use super::store::AgentsStore;

/// A compare that is under way.
type Comparing<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Runs until nobody wakes any more.
pub(super) async fn run<S: AgentsStore>(
    store: S,
    registry: Registry,
    answers: Answers,
    mut wakes: mpsc::Receiver<Wake>,
    interval: Duration,
    seed: u64,
) {
    let clock = Clock::start();
    let pace = Pace { interval, doubt_pause: HOLE_PAUSE, retry: COMPARE_RETRY };
    let mut compares = Compares::new(pace, seed, clock.now());
    let (mut numbers, absence) = (HintNumbers::new(), Absence::default());
    let mut comparing: Option<Comparing<'_>> = None;
    loop {
        if compares.poll_begin(clock.now()) {
            comparing = Some(Box::pin(compare_all(&store, &registry, &absence)));
        }
        let next =
            compares.poll_timeout().map_or_else(|| tokio::time::Instant::now() + FAR, |(at, _)| clock.instant_of(at));
        tokio::select! {
            is_compared = end_of(&mut comparing) => {
                comparing = None;
                compares.handle_ended(is_compared, clock.now());
            }
            wake = wakes.recv() => match wake {
                None => return,
                Some(Wake::Lapsed) => {
                    answers.look();
                    compares.handle_lapse(clock.now());
                }
                Some(Wake::Hint(hint)) => {
                    if let Hint::Host(hint) = &hint && numbers.are_in_doubt_before(hint) {
                        metrics::counter!("holdfast_gateway_hint_holes_total").increment(1);
                        compares.handle_doubt(clock.now());
                    }
                    handle_hint(&registry, &answers, hint);
                }
            },
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Waits for the end of the compare that is under way, for ever if there is none.
async fn end_of(comparing: &mut Option<Comparing<'_>>) -> bool {
    match comparing {
        Some(comparing) => comparing.await,
        None => std::future::pending().await,
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

/// Sessions that know more than the authority, and begin anew.
fn ahead(asked: &[HeldNow], newest: &[HostNewest]) -> Vec<(HostId, SessionEpoch)> {
    let ahead = replica::ahead(asked, newest.iter().map(newest_of));
    if !ahead.is_empty() {
        tracing::warn!(
            sessions = ahead.len(),
            "the database does not know sessions that it numbered, or versions that it had: their hosts were taken out, or it was restored or promoted; they begin anew"
        );
    }
    ahead
}
