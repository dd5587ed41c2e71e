//! What becomes of operations, as metrics; `docs/metrics.md` lists them.

use std::time::Duration;

use holdfast_events::OperationState;
use holdfast_model::rollout::RolloutState;
use holdfast_store::rollout::Rollout;
use time::OffsetDateTime;

/// How many operations have not ended, as a look found them.
pub(super) fn record_open(open: usize) {
    // Far below 2^32.
    metrics::gauge!("holdfast_gateway_operations_open").set(f64::from(u32::try_from(open).unwrap_or(u32::MAX)));
}

/// The rollout that is open, as a look found it: each of the states that one may be in while it is has a gauge of its own.
pub(super) fn record_rollout(open: Option<&Rollout>) {
    for state in RolloutState::ALL.into_iter().filter(|state| state.is_open()) {
        let is_so = open.is_some_and(|open| open.state == state);
        metrics::gauge!("holdfast_gateway_rollouts_open", "state" => state.word()).set(f64::from(u8::from(is_so)));
    }
    let seconds = open.map_or(0.0, |open| Duration::from_millis(open.stage_age_ms).as_secs_f64());
    metrics::gauge!("holdfast_gateway_rollout_stage_seconds").set(seconds);
    let held = open.map_or(0, Rollout::held);
    // Far below 2^32.
    metrics::gauge!("holdfast_gateway_rollout_hosts_held").set(f64::from(u32::try_from(held).unwrap_or(u32::MAX)));
}

/// An operation that was accepted then ended now, by this process.
pub(super) fn record_end(state: OperationState, accepted_at: OffsetDateTime) {
    metrics::counter!("holdfast_gateway_operations_ended_total", "state" => state.word()).increment(1);
    // A clock that was set back makes it end before it began: that took no time.
    let seconds = (OffsetDateTime::now_utc() - accepted_at).as_seconds_f64().max(0.0);
    metrics::histogram!("holdfast_gateway_operation_seconds", "state" => state.word()).record(seconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_end_of_an_operation() {
        let page = include_str!("../../../../docs/metrics.md");
        let ends = OperationState::ALL.iter().filter(|state| state.is_terminal());
        let missing: Vec<_> =
            ends.map(|state| state.word()).filter(|word| !page.contains(&format!("`{word}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
