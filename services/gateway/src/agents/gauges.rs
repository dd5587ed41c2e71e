//! What the scheduler does, as metrics; `docs/metrics.md` lists them.

use holdfast_session::scheduler::{Count, Lane, PerLane, Start};

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

#[cfg(test)]
mod tests {
    use holdfast_session::scheduler::Happening;

    use super::*;

    #[test]
    fn the_page_lists_every_lane_and_everything_that_happens() {
        let page = include_str!("../../../../docs/metrics.md");
        let words = Lane::ALL.map(Lane::word).into_iter().chain(Happening::ALL.map(Happening::word));
        let missing: Vec<_> = words.filter(|word| !page.contains(&format!("`{word}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
