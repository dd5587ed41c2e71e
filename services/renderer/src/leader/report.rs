//! What is wrong with the bus, said beside the lease for those who ask how the plane is: the doors of operators see neither stream themselves.
//!
//! - It is written when it is another than before, and looked at by a clock and at each wake.
//! - Failing to say it costs nobody anything: the lease, renders and events do not wait for it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_bus::BusError;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm};
use holdfast_runtime::Chain;
use holdfast_store::lease::BusReport;

use super::{Means, TermEnd, Wakes};

/// How often it is looked at: half of what an operator waits before asking again.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The two streams as they are now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BusSeen {
    /// What is wrong with hints.
    pub hint_fault: Option<String>,
    /// What is wrong with events.
    pub event_fault: Option<String>,
    /// Whether a stream is missing, another's, or nobody answers for it; what the streams hold is another matter.
    pub is_away: bool,
}

/// Looks at both streams.
pub async fn look_at_bus(means: &Means) -> BusSeen {
    let words = |error: BusError| Chain(&error).to_string();
    // At once: a server that is away lets each of them wait for its whole time.
    let (hints, events) = tokio::join!(means.bus.check_hints(), means.events.check_events());
    let (hint_fault, event_fault) = (hints.err().map(words), events.err().map(words));
    let is_away = hint_fault.is_some() || event_fault.is_some();
    let foreign = means.wakes.foreign.load(Ordering::Relaxed);
    let foreign = foreign.then(|| "the event stream holds what this database never wrote".to_owned());
    let refused = || means.wakes.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
    BusSeen { hint_fault, event_fault: event_fault.or(foreign).or_else(refused), is_away }
}

/// The relay says how far the stream is.
pub(super) fn relayed(wakes: &Wakes, at: (AuthorityEpoch, EventSeq)) {
    *wakes.relayed.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
}

/// The relay says that the server stores no event, or that it does.
pub(super) fn refused(wakes: &Wakes, words: Option<String>) {
    let mut said = wakes.refused.lock().unwrap_or_else(PoisonError::into_inner);
    if *said != words {
        *said = words;
        wakes.report.notify_one();
    }
}

/// Says how the bus is, for as long as the term lasts.
pub(super) async fn run(means: &Means, term: LeaseTerm) -> TermEnd {
    let mut said = None;
    loop {
        let seen = look_at_bus(means).await;
        let relayed = *means.wakes.relayed.lock().unwrap_or_else(PoisonError::into_inner);
        let report = BusReport { hint_fault: seen.hint_fault, event_fault: seen.event_fault, relayed };
        if said.as_ref() != Some(&report) {
            match means.store.report_bus(term, &report).await {
                Ok(true) => said = Some(report),
                Ok(false) => return TermEnd::Lapsed,
                Err(error) => tracing::debug!(error = %Chain(&error), "how the bus is was not written"),
            }
        }
        tokio::select! {
            () = means.wakes.report.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
