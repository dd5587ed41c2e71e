//! Hints as a reason to look again for those who wait.
//!
//! A convenience (A7): a hint that is lost costs a second, for whoever waits looks by the clock too.

use std::convert::Infallible;
use std::time::Duration;

use holdfast_bus::{Bus, HintListener, Wake};
use holdfast_model::ids::GatewayId;
use holdfast_runtime::{Shutdown, Tasks};
use tokio::sync::{mpsc, watch};

/// Hints that wait to be counted: what does not fit is one lapse.
const WAITING_MAX: usize = 256;
/// Facts wait to be numbered, or desired states are newer: either may be what somebody waits for.
const SUBJECTS: [(&str, &str); 2] = [("event", "holdfast.hint.event"), ("host", "holdfast.hint.host")];

/// How long what is said is gathered: a fleet answers in many batches.
pub(crate) const GATHER: Duration = Duration::from_millis(200);

/// Waits until there may be something to look at: the bus says so, or it is time; false once the process is to end.
pub(crate) async fn news(shutdown: &Shutdown, wakes: &mut watch::Receiver<u64>, wait: Duration) -> bool {
    let said = async {
        if wakes.changed().await.is_err() {
            // No bus: time alone wakes.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = shutdown.asked() => {}
        () = tokio::time::sleep(wait) => {}
        () = said => tokio::time::sleep(GATHER).await,
    }
    wakes.mark_unchanged();
    !shutdown.is_asked()
}

/// Counts up whenever the bus says that something happened, or that it may have missed something.
pub fn listen(bus: &Bus, gateway: GatewayId, tasks: &Tasks) -> watch::Receiver<u64> {
    let (count, wakes) = watch::channel(0_u64);
    let (heard, mut hints) = mpsc::channel(WAITING_MAX);
    for (word, subject) in SUBJECTS {
        let name = format!("operators-{}-{word}", gateway.uuid().simple());
        let listener = HintListener::new(bus.clone(), name, subject, heard.clone());
        tasks.background("operators hints", async move {
            listener.run().await;
            Ok::<_, Infallible>(())
        });
    }
    drop(heard);
    tasks.background("operators wakes", async move {
        while let Some(Wake::Hint(_) | Wake::Lapsed) = hints.recv().await {
            count.send_modify(|count| *count += 1);
        }
        Ok::<_, Infallible>(())
    });
    wakes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_said_wakes_after_a_moment_silence_when_it_is_time_and_the_end_at_once() {
        let (says, mut wakes) = watch::channel(0);
        let shutdown = Shutdown::new();
        let wait = Duration::from_secs(30);
        let took = async |wakes: &mut watch::Receiver<u64>| {
            let began = tokio::time::Instant::now();
            let goes_on = news(&shutdown, wakes, wait).await;
            (goes_on, began.elapsed())
        };
        says.send_modify(|count| *count += 1);
        assert_eq!(took(&mut wakes).await, (true, GATHER));
        assert_eq!(took(&mut wakes).await, (true, wait));
        drop(says);
        assert_eq!(took(&mut wakes).await, (true, wait), "without a bus time alone wakes");
        shutdown.ask();
        assert_eq!(took(&mut wakes).await, (false, Duration::ZERO));
    }
}
