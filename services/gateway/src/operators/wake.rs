//! Hints as a reason to look again for those who wait.
//!
//! A convenience (A7): a hint that is lost costs a second, for whoever waits looks by the clock too.

use std::convert::Infallible;

use holdfast_bus::{Bus, HintListener, Wake};
use holdfast_model::ids::GatewayId;
use holdfast_runtime::Tasks;
use tokio::sync::{mpsc, watch};

/// Hints that wait to be counted: what does not fit is one lapse.
const WAITING_MAX: usize = 256;
/// Facts wait to be numbered, or desired states are newer: either may be what somebody waits for.
const SUBJECTS: [(&str, &str); 2] = [("event", "holdfast.hint.event"), ("host", "holdfast.hint.host")];

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
