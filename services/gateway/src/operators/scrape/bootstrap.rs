//! How many hosts had no bootstrap in their newest session, by what came of it, as `GET /v1/hosts` says of each.
//!
//! Whether a policy is too large to travel is known once it is laid out. That is done for hosts that wait, those that wait for long first, up to a
//! number of them and within a time, for a scrape waits for neither a fleet that starts nor the plans of operators.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::ids::HostId;
use holdfast_model::status::Bootstrap;
use tokio::time::{Instant, timeout_at};

use super::super::door::Door;
use super::super::fleet::{JudgedFleet, JudgedHost};
use super::super::hosts::too_large;
use super::super::report::initialized;
use super::{Values, number};

/// The most policies that are laid out for a scrape: as many as for a page of hosts.
const LAID_OUT_MAX: usize = 500;
/// How long that may take, with the time in which plans are in the way.
const LAYOUT_TIMEOUT: Duration = Duration::from_secs(2);

/// The gauges; no numbers of those of which it was not known in time whether policies are too large.
pub(super) async fn values(door: &Door, judged: &JudgedFleet) -> Values {
    let (wait, until) = (waiting(&judged.hosts), Instant::now() + LAYOUT_TIMEOUT);
    let laid_out = async {
        if wait.is_empty() {
            return Ok(wait);
        }
        let intent = door.effective_in(judged).await?;
        too_large(door, &intent, wait, Some(until)).await
    };
    let too_large = match timeout_at(until, laid_out).await {
        // What was cut short by then is not all of it.
        Ok(Ok(too_large)) => (Instant::now() < until).then_some(too_large),
        Ok(Err(refusal)) => {
            tracing::debug!(?refusal, "policies of hosts that wait were not laid out for a scrape");
            None
        }
        Err(_elapsed) => {
            tracing::debug!("policies of hosts that wait were not laid out in time for a scrape");
            None
        }
    };
    counted(&judged.hosts, too_large.as_ref())
}

/// Those whose policies are to be laid out.
fn waiting(hosts: &[JudgedHost]) -> BTreeSet<HostId> {
    let who = |outcome| {
        let waits = move |host: &&JudgedHost| initialized(host, false).bootstrap == outcome;
        hosts.iter().filter(waits).map(|host| host.status.host)
    };
    who(Bootstrap::TimedOut).chain(who(Bootstrap::Pending)).take(LAID_OUT_MAX).collect()
}

fn counted(hosts: &[JudgedHost], too_large: Option<&BTreeSet<HostId>>) -> Values {
    let mut counts = BTreeMap::<Bootstrap, u64>::new();
    for host in hosts {
        let is_too_large = too_large.is_some_and(|hosts| hosts.contains(&host.status.host));
        *counts.entry(initialized(host, is_too_large).bootstrap).or_default() += 1;
    }
    let outcomes = Bootstrap::ALL.into_iter().filter(|outcome| *outcome != Bootstrap::Complete);
    let gauge = |outcome: Bootstrap| {
        // Of the others it does not matter what is too large.
        let is_known =
            too_large.is_some() || matches!(outcome, Bootstrap::Failed | Bootstrap::Mismatched | Bootstrap::Missing);
        let count = || number(counts.get(&outcome).copied().unwrap_or_default());
        let value = if is_known { count() } else { f64::NAN };
        (("holdfast_fleet_hosts_uninitialized", vec![("outcome", outcome.word().to_owned())]), value)
    };
    outcomes.map(gauge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_laid_out_is_no_number_and_each_outcome_but_the_good_one_has_a_gauge() {
        let values =
            |too_large: Option<&BTreeSet<HostId>>| -> Vec<f64> { counted(&[], too_large).into_values().collect() };
        let (known, unknown) = (values(Some(&BTreeSet::new())), values(None));
        assert_eq!((known.len(), unknown.len()), (Bootstrap::ALL.len() - 1, Bootstrap::ALL.len() - 1));
        assert!(known.iter().all(|value| *value == 0.0));
        assert_eq!(unknown.iter().filter(|value| value.is_nan()).count(), 3, "pending, timed out and oversized");
    }

    #[test]
    fn the_page_lists_every_outcome() {
        let page = include_str!("../../../../../docs/metrics.md");
        let row =
            page.lines().find(|line| line.contains("`holdfast_fleet_hosts_uninitialized`")).expect("it is listed");
        let outcomes = Bootstrap::ALL.into_iter().filter(|outcome| *outcome != Bootstrap::Complete);
        let missing: Vec<_> =
            outcomes.map(Bootstrap::word).filter(|word| !row.contains(&format!("`{word}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
