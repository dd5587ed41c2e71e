//! The one renderer that holds the lease: decides requests, renders, numbers and relays events.
//!
//! - Each activity is woken without data and reads the database (A7); what wakes it may come twice or never, and a clock of 30 s is behind it.
//! - Everything it writes is fenced by the lease's term in the same transaction. It stops by itself before the lease could have ended.
//! - A lost race, a refused version, an unreadable row: it ends its term and starts again from the database, never from memory.

mod decide;
mod follow;
mod hold;
mod relay;
mod render;
mod report;
mod streams;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_bus::Bus;
use holdfast_events::{Actor, HostHint};
use holdfast_identity::{Ca, SigningKey};
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm, Revision};
use holdfast_model::statement::Authority;
use holdfast_render::tenure::{Millis, Tenure};
use holdfast_store::Store;
use holdfast_store::lease::{Claim, LEASE_TTL, RENDERER_LEASE};
pub use report::{BusSeen, look_at_bus};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Behind every hint: how long a lost one can go unnoticed.
const BACKSTOP: Duration = Duration::from_secs(30);
/// The wait after a failure that may pass.
const RETRY: Duration = Duration::from_secs(1);
/// How often a standby looks whether the lease is free.
const STANDBY_LOOK: Duration = Duration::from_secs(5);

/// What wakes the activities, and what the relay of this term knows of the event stream.
#[derive(Debug, Default)]
pub struct Wakes {
    /// A gateway wrote a request.
    pub request: Notify,
    /// Intent changed.
    pub intent: Notify,
    /// Events wait for their numbers.
    pub event: Notify,
    /// A stream may be missing: what is kept in memory goes with its server.
    pub streams: Notify,
    /// Set while the event stream holds what this database never wrote.
    pub foreign: AtomicBool,
    /// Set while the server stores no event: what it says.
    pub refused: Mutex<Option<String>>,
    /// The bus is another than it was: say so.
    pub report: Notify,
    /// Set while hosts are in an earlier life of the authority: a session that begins may let one in.
    pub behind: AtomicBool,
    /// The last event that the stream is known to hold.
    pub relayed: Mutex<Option<(AuthorityEpoch, EventSeq)>>,
}

impl Wakes {
    /// Something may have been missed: look at everything.
    pub fn all(&self) {
        self.request.notify_one();
        self.intent.notify_one();
        self.event.notify_one();
        self.streams.notify_one();
    }

    /// A gateway wrote a request, or heard a host that is in an earlier life of the authority.
    pub fn ask(&self) {
        self.request.notify_one();
        if self.behind.load(Ordering::Relaxed) {
            self.intent.notify_one();
        }
    }

    /// What one term knew of the event stream is not known outside of it: another may lead, and mend it.
    fn forget(&self) {
        self.foreign.store(false, Ordering::Relaxed);
        self.behind.store(false, Ordering::Relaxed);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.relayed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What a leader works with.
#[derive(Clone)]
pub struct Means {
    /// The database.
    pub store: Store,
    /// The bus of hints.
    pub bus: Bus,
    /// The bus of events, which gateways have no part in.
    pub events: Bus,
    /// Issues certificates.
    pub ca: Arc<Ca>,
    /// Signs desired states.
    pub key: Arc<SigningKey>,
    /// What wakes the activities.
    pub wakes: Arc<Wakes>,
    /// Who holds the lease, for people.
    pub holder: String,
}

/// Why a term ended.
#[derive(Debug, thiserror::Error)]
pub enum TermEnd {
    /// The lease ended or could not be renewed in time.
    #[error("the lease was not renewed in time")]
    Lapsed,
    /// The database.
    #[error("the database ended the term")]
    Store(#[from] holdfast_store::Error),
    /// The database belongs to another authority than the keys.
    #[error("the database is of another authority than the keys of this renderer")]
    ForeignAuthority,
    /// The database has forgotten revisions: it was restored from a backup.
    #[error("the database ends at revision {found} and had {known}: it was restored from a backup")]
    Rewound {
        /// What was rendered.
        known: Revision,
        /// Where it ends now.
        found: Revision,
    },
    /// The authority has another life than the term began in: everything is read anew.
    #[error(
        "the authority is in epoch {found} and was in {known}: an operator says that the database was restored or promoted"
    )]
    OtherLife {
        /// In which the term began.
        known: AuthorityEpoch,
        /// Which it is now.
        found: AuthorityEpoch,
    },
    /// Another server took over as the database: it may lack what was read, and everything is read anew.
    #[error("another server took over as the database, and everything is read anew from it")]
    OtherServer,
    /// A render did not come back.
    #[error("a render did not come back")]
    Render(#[from] tokio::task::JoinError),
    /// A numbered event cannot be published as it is.
    #[error("a numbered event cannot be published")]
    Event(#[from] holdfast_events::CloudEventError),
}

/// Leads whenever the lease is free, until asked to stop; then it gives the lease up, so that a successor need not wait for its end.
pub async fn run(means: Means, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let clock = Clock(Instant::now());
        match means.store.acquire_lease(Actor::Renderer, RENDERER_LEASE, &means.holder).await {
            Ok(Claim::Acquired(term)) => {
                tracing::info!(%term, "leading");
                metrics::gauge!("holdfast_renderer_leading").set(1.0);
                means.wakes.forget();
                let end = stop.run_until_cancelled(Box::pin(lead(&means, term, clock))).await;
                means.wakes.forget();
                metrics::gauge!("holdfast_renderer_leading").set(0.0);
                match end {
                    Some(end) => tracing::warn!(%term, reason = %holdfast_runtime::Chain(&end), "no longer leading"),
                    None => tracing::info!(%term, "leading ends"),
                }
                give_up(&means, term).await;
                pause(&stop, RETRY).await;
            }
            Ok(Claim::Held { holder, remaining }) => {
                tracing::debug!(%holder, ?remaining, "standing by");
                pause(&stop, remaining.clamp(Duration::from_millis(100), STANDBY_LOOK)).await;
            }
            Err(error) => {
                tracing::warn!(error = %holdfast_runtime::Chain(&error), "the lease cannot be claimed");
                pause(&stop, RETRY).await;
            }
        }
    }
}

/// Waits, but not beyond the stop.
async fn pause(stop: &CancellationToken, span: Duration) {
    stop.run_until_cancelled(tokio::time::sleep(span)).await;
}

/// Failing costs time only.
async fn give_up(means: &Means, term: LeaseTerm) {
    if let Err(error) = means.store.release_lease_of(&means.holder, RENDERER_LEASE, term).await {
        tracing::debug!(error = %holdfast_runtime::Chain(&error), "the lease ends by itself");
    }
}

/// One term, from its lease to its end; the clock began before the lease was asked for.
async fn lead(means: &Means, term: LeaseTerm, clock: Clock) -> TermEnd {
    let mut successors = means.store.successors();
    let authority = match means.store.load_authority().await {
        Ok(authority) if authority.id == means.ca.authority() => authority,
        Ok(_) => return TermEnd::ForeignAuthority,
        Err(error) => return TermEnd::Store(error),
    };
    means.wakes.all();
    // Dropping the others is safe: each transaction runs to its end in a task of its own.
    tokio::select! {
        end = keep_lease(means, term, clock) => end,
        () = successors.next() => TermEnd::OtherServer,
        end = decide::run(means, term) => end,
        end = render::run(means, term, authority) => end,
        end = relay::run(means, term, authority) => end,
        end = streams::run(means) => end,
        end = report::run(means, term) => end,
        never = tell_term(means, term) => match never {},
    }
}

async fn keep_lease(means: &Means, term: LeaseTerm, clock: Clock) -> TermEnd {
    let mut tenure = Tenure::new(0, Millis::try_from(LEASE_TTL.as_millis()).unwrap_or(Millis::MAX));
    loop {
        tokio::time::sleep_until(clock.at(tenure.poll_timeout().0)).await;
        let asked = clock.now();
        if tenure.is_over(asked) {
            return TermEnd::Lapsed;
        }
        let good_until = clock.at(tenure.good_until());
        let renewed = tokio::time::timeout_at(good_until, means.store.renew_lease(RENDERER_LEASE, term)).await;
        match renewed {
            Ok(Ok(true)) => tenure.handle_renewed(asked),
            Ok(Ok(false)) | Err(_) => return TermEnd::Lapsed,
            Ok(Err(error)) => {
                tracing::warn!(error = %holdfast_runtime::Chain(&error), "the lease was not renewed");
                tenure.handle_failed(clock.at_millis(Instant::now() + RETRY));
            }
        }
    }
}

/// Waits for a wake, a moment of one's own, or the backstop.
async fn wait(wake: &Notify, until: Option<Instant>) {
    let backstop = Instant::now() + BACKSTOP;
    tokio::select! {
        () = wake.notified() => {}
        () = tokio::time::sleep_until(until.map_or(backstop, |until| until.min(backstop))) => {}
    }
}

/// Says that another leads now: whoever led before may have stored what it never told, and gateways compare when they hear of it. One that is lost is
/// missed in the numbers of the next.
async fn tell_term(means: &Means, term: LeaseTerm) -> Infallible {
    let begins = HostHint { lease_term: term, n: 1, of: Some(0), states: Vec::new() };
    hint(&means.bus, holdfast_events::Hint::Host(begins)).await;
    std::future::pending().await
}

/// Whether a failure passes by waiting, which is then done; otherwise the term ends by it.
async fn passes(doing: &'static str, error: holdfast_store::Error) -> Result<(), TermEnd> {
    use holdfast_store::Retry;
    let pause = match error.retry() {
        Retry::Now => Duration::ZERO,
        Retry::After(pause) => pause,
        Retry::Never => return Err(TermEnd::Store(error)),
    };
    tracing::warn!(doing, error = %holdfast_runtime::Chain(&error), "trying again");
    tokio::time::sleep(pause).await;
    Ok(())
}

/// Publishes a hint, if the bus takes it: losing one costs time only.
async fn hint(bus: &Bus, hint: holdfast_events::Hint) {
    let published = tokio::time::timeout(Duration::from_secs(5), bus.publish_hint(&hint)).await;
    match published {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = %holdfast_runtime::Chain(&error), "a hint was not published"),
        Err(_elapsed) => tracing::debug!("a hint was not published in time"),
    }
}

/// An authority in words of the statements that are signed.
fn words(authority: Authority) -> String {
    format!("{}/{}", authority.id, authority.epoch)
}

/// The caller's monotonic clock in the machines' milliseconds.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Millis {
        self.at_millis(Instant::now())
    }

    fn at(self, millis: Millis) -> Instant {
        self.0 + Duration::from_millis(millis)
    }

    fn at_millis(self, at: Instant) -> Millis {
        Millis::try_from(at.saturating_duration_since(self.0).as_millis()).unwrap_or(Millis::MAX)
    }
}
