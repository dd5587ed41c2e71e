//! Hints of this door: out after each commit, in as a reason to look again.
//!
//! Both are conveniences (A7): a hint that is lost costs a second, for everything is looked at by the clock too.

use std::convert::Infallible;

use holdfast_bus::{Bus, HintListener, Wake};
use holdfast_events::Hint;
use holdfast_runtime::{Chain, Shutdown, Tasks};
use tokio::sync::{mpsc, watch};

/// Hints that wait to go out: there are five kinds, and equal ones mean the same.
const OUT_MAX: usize = 64;
/// Hints that wait to be looked at: what does not fit is one lapse.
const IN_MAX: usize = 256;

/// Publishes hints in the order in which they were given.
pub(crate) fn ring_out(bus: Bus, tasks: &Tasks) -> mpsc::Sender<Hint> {
    let (bell, mut hints) = mpsc::channel(OUT_MAX);
    let shutdown = tasks.shutdown().clone();
    tasks.background("operators bell", async move {
        while let Some(hint) = next(&mut hints, &shutdown).await {
            if let Err(error) = bus.publish_hint(&hint).await {
                tracing::warn!(error = %Chain(&error), subject = hint.subject(), "a hint did not go out");
            }
        }
        Ok::<_, Infallible>(())
    });
    bell
}

/// The next hint; after the shutdown began, only those that wait already.
async fn next(hints: &mut mpsc::Receiver<Hint>, shutdown: &Shutdown) -> Option<Hint> {
    match shutdown.unless_asked(hints.recv()).await {
        Some(hint) => hint,
        None => hints.try_recv().ok(),
    }
}

/// Counts up whenever the bus says that something happened, or that it may have missed something.
pub(crate) fn listen(bus: &Bus, name: &str, tasks: &Tasks) -> watch::Receiver<u64> {
    let (count, wakes) = watch::channel(0_u64);
    let (heard, mut hints) = mpsc::channel(IN_MAX);
    for subject in [Hint::Event.subject(), "holdfast.hint.host"] {
        let own = format!("{name}-{}", subject.rsplit('.').next().unwrap_or_default());
        let listener = HintListener::new(bus.clone(), own, subject, heard.clone());
        let shutdown = tasks.shutdown().clone();
        tasks.background("operators hints", async move {
            shutdown.unless_asked(listener.run()).await;
            Ok::<_, Infallible>(())
        });
    }
    drop(heard);
    let shutdown = tasks.shutdown().clone();
    tasks.background("operators wakes", async move {
        while let Some(Some(Wake::Hint(_) | Wake::Lapsed)) = shutdown.unless_asked(hints.recv()).await {
            count.send_modify(|count| *count += 1);
        }
        Ok::<_, Infallible>(())
    });
    wakes
}
