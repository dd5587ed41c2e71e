//! What the agents' door counts, as metrics; `docs/metrics.md` lists them.
//!
//! - Labels are words of closed lists: nothing that a peer chooses becomes one.

use holdfast_events::Fault;
use holdfast_model::desired::Component;
use holdfast_model::drift::DriftKind;
use holdfast_session::gateway::{CloseCause, FaultOrigin};
use holdfast_session::scheduler::{Count, Lane, PerLane, Start};
use holdfast_wire::code::FaultCode;

/// Shows the counters that alerts read before anything is counted: a series that begins at one has not risen.
pub(super) fn begin() {
    for kind in DriftKind::ALL {
        count_drift(kind, 0);
    }
    for by in [FaultOrigin::Seen, FaultOrigin::Reported].map(by) {
        FaultCode::KNOWN.iter().for_each(|code| fault(by, code.word(), 0));
    }
    for component in Component::ALL {
        too_large(component, 0);
    }
    for reason in ["overloaded", "contested"] {
        metrics::counter!("holdfast_gateway_openings_refused_total", "reason" => reason).increment(0);
    }
    metrics::counter!("holdfast_gateway_lease_lapses_total").increment(0);
    metrics::counter!("holdfast_gateway_facts_refused_total").increment(0);
}

/// A host reported something of its kernel.
pub(super) fn record_drift(kind: DriftKind) {
    count_drift(kind, 1);
}

fn count_drift(kind: DriftKind, count: u64) {
    metrics::counter!("holdfast_gateway_drifts_total", "kind" => kind.word()).increment(count);
}

/// A build begins.
pub(super) fn record_start(start: &Start) {
    let lane = start.ticket.lane.word();
    metrics::histogram!("holdfast_gateway_build_wait_seconds", "lane" => lane).record(start.waited.as_secs_f64());
}

/// What happened since this was recorded last, and how it stands.
pub(super) fn record(counts: &[Count], waiting: &PerLane<usize>, building: &PerLane<usize>) {
    for Count { lane, happening, count } in counts {
        let (lane, happening) = (lane.word(), happening.word());
        metrics::counter!("holdfast_gateway_builds_total", "lane" => lane, "happening" => happening).increment(*count);
    }
    for lane in Lane::ALL {
        gauge("holdfast_gateway_builds_waiting", lane, *waiting.of(lane));
        gauge("holdfast_gateway_builds_under_way", lane, *building.of(lane));
    }
}

fn gauge(name: &'static str, lane: Lane, value: usize) {
    // Below 2^32: there are four slots a session.
    metrics::gauge!(name, "lane" => lane.word()).set(f64::from(u32::try_from(value).unwrap_or(u32::MAX)));
}

/// A session is over: counted, if one side refused to go on with it.
pub(super) fn record_closed(cause: CloseCause) {
    let (by, code) = match cause {
        CloseCause::Ours(code) => ("gateway", code),
        CloseCause::Theirs(code) => ("agent", code),
        CloseCause::Lost | CloseCause::Polls => return,
    };
    metrics::counter!("holdfast_gateway_sessions_refused_total", "by" => by, "code" => code.word()).increment(1);
}

/// A call is refused by this problem.
pub(super) fn record_call_refused(code: &str) {
    metrics::counter!("holdfast_gateway_calls_refused_total", "code" => code.to_owned()).increment(1);
}

/// A connection that became neither a session nor a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stranger {
    /// It said nothing.
    Silent,
    /// It spoke neither TLS nor an echo.
    NoTls,
    /// Its handshake failed.
    Handshake,
    /// Its certificate is no host's of this authority.
    Identity,
}

impl Stranger {
    #[cfg(test)]
    const ALL: [Self; 4] = [Self::Silent, Self::NoTls, Self::Handshake, Self::Identity];

    const fn word(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::NoTls => "no_tls",
            Self::Handshake => "handshake",
            Self::Identity => "identity",
        }
    }
}

/// A connection is turned away.
pub(super) fn record_stranger(stranger: Stranger) {
    metrics::counter!("holdfast_gateway_connections_refused_total", "reason" => stranger.word()).increment(1);
}

/// One side saw the other break the protocol.
pub(super) fn record_fault(origin: FaultOrigin, code: FaultCode) {
    fault(by(origin), code.word(), 1);
}

const fn by(origin: FaultOrigin) -> &'static str {
    match origin {
        FaultOrigin::Seen => "gateway",
        FaultOrigin::Reported => "agent",
    }
}

/// A fault that the authority found in what was to be recorded, or of bytes that are no message.
pub(super) fn record_other_fault(kind: Fault) {
    fault(by(FaultOrigin::Seen), kind.word(), 1);
}

fn fault(by: &'static str, kind: &'static str, count: u64) {
    metrics::counter!("holdfast_gateway_faults_total", "by" => by, "kind" => kind).increment(count);
}

/// A body is above what may travel, and stays here.
pub(super) fn record_too_large(component: Component) {
    too_large(component, 1);
}

fn too_large(component: Component, count: u64) {
    metrics::counter!("holdfast_gateway_bodies_too_large_total", "component" => component.word()).increment(count);
}

#[cfg(test)]
mod tests {
    use holdfast_session::scheduler::Happening;
    use holdfast_wire::code::RefusalCode;

    use super::*;

    #[test]
    fn the_page_lists_every_lane_and_everything_that_happens() {
        let page = include_str!("../../../../docs/metrics.md");
        let words = Lane::ALL.map(Lane::word).into_iter().chain(Happening::ALL.map(Happening::word));
        let refusals = RefusalCode::KNOWN.iter().map(|code| code.word());
        let faults = FaultCode::KNOWN.iter().map(|code| code.word());
        let words = words.chain(refusals).chain(faults).chain(Stranger::ALL.map(Stranger::word));
        let missing: Vec<_> = words.filter(|word| !page.contains(&format!("`{word}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
