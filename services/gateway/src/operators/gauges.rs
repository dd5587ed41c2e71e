//! What becomes of operations, as metrics; `docs/metrics.md` lists them.

use std::time::Duration;

use holdfast_events::OperationState;
use holdfast_model::rollout::RolloutState;
use holdfast_store::rollout::Rollout;
use time::OffsetDateTime;

/// How many operations have not ended, as a look found them; nothing if it could not look.
pub(super) fn record_open(open: Option<usize>) {
    metrics::gauge!("holdfast_gateway_operations_open").set(open.map_or(f64::NAN, |open| number(open as u64)));
}

/// The rollout that is open, as a look found it: each of the states that one may be in while it is has a gauge of its own.
pub(super) fn record_rollout(open: Option<&Rollout>) {
    set_rollout(
        |state| f64::from(u8::from(open.is_some_and(|open| open.state == state))),
        open.map_or(0.0, |open| Duration::from_millis(open.stage_age_ms).as_secs_f64()),
        open.map_or(0.0, |open| number(open.held_hosts)),
    );
}

/// Nobody could look: what was true before is not shown, for alerts that others silence go by it.
pub(super) fn forget_rollout() {
    set_rollout(|_| f64::NAN, f64::NAN, f64::NAN);
}

fn set_rollout(of_state: impl Fn(RolloutState) -> f64, stage_seconds: f64, hosts_held: f64) {
    for state in RolloutState::ALL.into_iter().filter(|state| state.is_open()) {
        metrics::gauge!("holdfast_gateway_rollouts_open", "state" => state.word()).set(of_state(state));
    }
    metrics::gauge!("holdfast_gateway_rollout_stage_seconds").set(stage_seconds);
    metrics::gauge!("holdfast_gateway_rollout_hosts_held").set(hosts_held);
}

/// Far below 2^32.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
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
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn what_could_not_be_looked_at_is_no_number_until_it_can() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let shown = |what: &str| {
            let all = recorder.handle().render();
            all.lines().filter(|line| !line.starts_with('#')).filter(|line| line.ends_with(what)).count()
        };
        metrics::with_local_recorder(&recorder, || {
            record_open(Some(0));
            record_rollout(None);
            assert_eq!((shown(" 0"), shown(" NaN")), (6, 0));
            record_open(None);
            forget_rollout();
            assert_eq!((shown(" 0"), shown(" NaN")), (0, 6));
            record_open(Some(0));
            record_rollout(None);
            assert_eq!((shown(" 0"), shown(" NaN")), (6, 0));
        });
    }

    #[test]
    fn the_page_lists_every_end_of_an_operation() {
        let page = include_str!("../../../../docs/metrics.md");
        let ends = OperationState::ALL.iter().filter(|state| state.is_terminal());
        let missing: Vec<_> =
            ends.map(|state| state.word()).filter(|word| !page.contains(&format!("`{word}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
