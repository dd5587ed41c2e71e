//! Directives between the two doors: out of the operators', into the sessions of the agents'.
//!
//! - Nothing waits for a bus that is away, and nothing is kept for a listener that is: whoever asked sees that nothing moved, and may ask again.
//! - Every replica hears every directive, and the one that holds the host's session obeys.

use holdfast_bus::{Bus, BusError};
use holdfast_events::Directive;
use holdfast_runtime::Chain;
use tokio::sync::mpsc;

use crate::agents::AgentsDoor;

/// Directives that wait to be said or obeyed; more are lost.
const WAITING_MAX: usize = 1_024;

/// Where directives are put, and what says them until everybody who may ask is gone.
pub(crate) fn say(bus: Bus) -> (mpsc::Sender<Directive>, impl Future<Output = ()> + Send) {
    let (asked, mut waiting) = mpsc::channel::<Directive>(WAITING_MAX);
    let saying = async move {
        while let Some(directive) = waiting.recv().await {
            let outcome = match bus.publish_directive(&directive).await {
                Ok(()) => "said",
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), directive = %directive.kind, host = %directive.host, "a directive is lost");
                    if matches!(error, BusError::Away) { "bus_away" } else { "unknown" }
                }
            };
            metrics::counter!(
                "holdfast_gateway_directives_sent_total",
                "directive" => directive.kind.word(), "outcome" => outcome
            )
            .increment(1);
        }
    };
    (asked, saying)
}

/// Obeys what is heard, for hosts whose sessions are here.
pub(crate) async fn obey(bus: Bus, door: AgentsDoor) {
    let (heard, mut hearing) = mpsc::channel(WAITING_MAX);
    let listening = bus.listen_to_directives(heard);
    let mut strange = 0_u64;
    let obeying = async {
        while let Some(heard) = hearing.recv().await {
            let (word, outcome) = match heard {
                Ok(directive) => (directive.kind.word(), if door.direct(directive) { "obeyed" } else { "not_held" }),
                Err(error) => {
                    strange += 1;
                    // A crowd of them fills no log.
                    if strange.is_power_of_two() {
                        tracing::warn!(count = strange, error = %Chain(&error), "a directive that this build does not know is ignored");
                    }
                    ("unknown", "ignored")
                }
            };
            metrics::counter!("holdfast_gateway_directives_total", "directive" => word, "outcome" => outcome)
                .increment(1);
        }
    };
    tokio::join!(listening, obeying);
}
