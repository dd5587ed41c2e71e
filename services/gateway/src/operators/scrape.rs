//! The fleet and the plane as metrics, read for each scrape; `docs/metrics.md` lists them.
//!
//! - What is shown is what `GET /v1/status` and `GET /v1/plane` say, by the same functions, to a token that reaches all namespaces.
//! - What could not be read is shown as such: `…_known` is 0, and every value of that part is NaN, never what was true before.
//! - No host and no namespace is a label.

mod bootstrap;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_api::plane::{CheckState, PlaneCheck};
use holdfast_api::status::{ModeCounts, RevisionState, StatusView};
use holdfast_model::desired::Component;
use holdfast_model::policy::Mode;
use holdfast_model::silence::Presence;
use holdfast_model::status::State;
use holdfast_runtime::metrics::{Metrics, Reading};
use tokio::time::{Instant, timeout};

use super::door::{Door, Shared};
use super::fleet::{JudgedFleet, JudgedHost};
use super::plane;
use super::refuse::Refusal;
use super::report::forwards_uncovered;

/// How long one part may take to be read: a scraper waits for ten seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(6);

/// A gauge: its name, and its labels with their values.
type Key = (&'static str, Vec<(&'static str, String)>);
/// What one part shows.
type Values = BTreeMap<Key, f64>;

/// Shows the fleet and the plane to whoever scrapes this process.
pub(super) fn show(door: &Shared, metrics: &Metrics) {
    let (door, parts) =
        (Arc::clone(door), Arc::new([Part::new("holdfast_fleet_known"), Part::new("holdfast_plane_known")]));
    metrics.read_for_scrapes(move || {
        let (door, parts) = (Arc::clone(&door), Arc::clone(&parts));
        Box::pin(async move {
            let (fleet, plane) = tokio::join!(in_time(fleet(&door)), in_time(plane(&door)));
            let set: Reading = Box::new(move || {
                let [of_fleet, of_plane] = &*parts;
                of_fleet.set(fleet);
                of_plane.set(plane);
            });
            set
        })
    });
}

/// What was read; nothing if that failed or took too long.
async fn in_time(read: impl Future<Output = Result<Values, Refusal>>) -> Option<Values> {
    match timeout(READ_TIMEOUT, read).await {
        Ok(Ok(values)) => Some(values),
        Ok(Err(refusal)) => {
            tracing::debug!(?refusal, "not read for a scrape");
            None
        }
        Err(_elapsed) => {
            tracing::debug!("not read in time for a scrape");
            None
        }
    }
}

async fn fleet(door: &Door) -> Result<Values, Refusal> {
    let judged = door.fleet.read_since(Instant::now()).await?;
    let modes = door.effective_in(&judged).await?.modes(|_| true);
    let mut values = fleet_values(&judged, modes);
    values.extend(bootstrap::values(door, &judged).await);
    Ok(values)
}

async fn plane(door: &Door) -> Result<Values, Refusal> {
    let (checks, waiting) = plane::gauged(door).await?;
    let mut values = plane_values(&checks);
    for (before, waiting) in waiting {
        let labels = vec![("before", before.to_owned())];
        let (count, age) = waiting.map_or((f64::NAN, f64::NAN), |of| (number(of.count), of.age.as_secs_f64()));
        values.insert(("holdfast_plane_events_waiting", labels.clone()), count);
        values.insert(("holdfast_plane_events_waiting_seconds", labels), age);
    }
    Ok(values)
}

/// Whether it is on its way for nothing but that a rollout holds it.
fn only_waits(host: &JudgedHost) -> bool {
    host.state == State::Progressing && matches!(host.own_state, State::Converged | State::Degraded)
}

fn fleet_values(judged: &JudgedFleet, modes: ModeCounts) -> Values {
    let status = judged.status(judged.revision, |_| true);
    let mut values = status_values(&status);
    let ModeCounts { enforced, simulation, visibility } = modes;
    for (mode, count) in [(Mode::Enforced, enforced), (Mode::Simulation, simulation), (Mode::Visibility, visibility)] {
        values.insert(("holdfast_fleet_hosts_by_mode", vec![("mode", mode.word().to_owned())]), number(count));
    }
    let waiting = judged.hosts.iter().filter(|host| only_waits(host)).count() as u64;
    values.insert(("holdfast_fleet_hosts_held", Vec::new()), number(waiting));
    for presence in Presence::ALL {
        let count = judged.hosts.iter().filter(|host| host.status.presence == presence).count() as u64;
        values.insert(("holdfast_fleet_hosts_by_presence", vec![("presence", presence.to_string())]), number(count));
    }
    let uncovered = judged.hosts.iter().filter(|host| forwards_uncovered(host)).count() as u64;
    values.insert(("holdfast_fleet_hosts_forwarding_uncovered", Vec::new()), number(uncovered));
    for component in Component::ALL {
        for state in State::ALL {
            let labels = vec![("component", component.to_string()), ("state", state.to_string())];
            values.insert(("holdfast_fleet_components", labels), 0.0);
        }
    }
    for (part, judged) in judged.hosts.iter().flat_map(JudgedHost::judged) {
        let state = judged.state.to_string();
        let labels = vec![("component", part.component.to_string()), ("state", state)];
        *values.entry(("holdfast_fleet_components", labels)).or_default() += 1.0;
        if let Some(missing) = judged.missing {
            let condition = missing.condition().map(|kind| kind.to_string()).unwrap_or_default();
            let labels = vec![("fact", missing.word().to_owned()), ("condition", condition)];
            *values.entry(("holdfast_fleet_missing", labels)).or_default() += 1.0;
        }
    }
    values
}

fn status_values(status: &StatusView) -> Values {
    let StatusView { revision: _, state, hosts, latest_revision, rendered_revision, held: _, modes: _, wait: _ } =
        status;
    let by_state = [
        (RevisionState::Converged, hosts.converged),
        (RevisionState::Degraded, hosts.degraded),
        (RevisionState::Progressing, hosts.progressing),
        (RevisionState::Failed, hosts.failed),
        (RevisionState::Unknown, hosts.unknown),
    ];
    let mut values = Values::new();
    for (of, count) in by_state {
        values.insert(("holdfast_fleet_hosts", vec![("state", of.word().to_owned())]), number(count));
        values.insert(("holdfast_fleet_state", vec![("state", of.word().to_owned())]), f64::from(*state == of));
    }
    let published = vec![("state", RevisionState::Published.word().to_owned())];
    values.insert(("holdfast_fleet_state", published), f64::from(*state == RevisionState::Published));
    values.insert(("holdfast_fleet_latest_revision", Vec::new()), number(*latest_revision));
    values.insert(("holdfast_fleet_rendered_revision", Vec::new()), number(*rendered_revision));
    values
}

fn plane_values(checks: &[PlaneCheck]) -> Values {
    let mut values = Values::new();
    for check in checks {
        for (state, word) in [(CheckState::Ok, "ok"), (CheckState::Watch, "watch"), (CheckState::Trouble, "trouble")] {
            let labels = vec![("check", check.name.clone()), ("state", word.to_owned())];
            values.insert(("holdfast_plane_check", labels), f64::from(check.state == state));
        }
    }
    values
}

/// Exact up to 2^53: more hosts or revisions than there will ever be.
#[expect(clippy::cast_precision_loss, reason = "said above")]
const fn number(count: u64) -> f64 {
    count as f64
}

/// One part of what is shown, and every gauge of it that was ever set.
struct Part {
    /// The gauge that says whether it could be read.
    known: &'static str,
    set: Mutex<BTreeSet<Key>>,
}

impl Part {
    const fn new(known: &'static str) -> Self {
        Self { known, set: Mutex::new(BTreeSet::new()) }
    }

    /// Sets every gauge anew: one that was not read is 0, and NaN if nothing was.
    fn set(&self, read: Option<Values>) {
        metrics::gauge!(self.known).set(f64::from(read.is_some()));
        let otherwise = if read.is_some() { 0.0 } else { f64::NAN };
        let values = read.unwrap_or_default();
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        set.extend(values.keys().cloned());
        for key in set.iter() {
            let (name, labels) = key;
            metrics::gauge!(*name, labels).set(values.get(key).copied().unwrap_or(otherwise));
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn mk_check(name: &str, state: CheckState) -> PlaneCheck {
        PlaneCheck { name: name.to_owned(), state, ok: state == CheckState::Ok, detail: None, remedy: None }
    }

    #[test]
    fn what_is_gone_is_zero_and_what_cannot_be_read_is_nothing() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let shown = || recorder.handle().render();
        metrics::with_local_recorder(&recorder, || {
            let part = Part::new("holdfast_plane_known");
            part.set(Some(plane_values(&[
                mk_check("renderer", CheckState::Ok),
                mk_check("host identities", CheckState::Trouble),
            ])));
            assert!(
                shown().contains(r#"holdfast_plane_check{check="host identities",state="trouble"} 1"#),
                "{}",
                shown()
            );
            part.set(Some(plane_values(&[mk_check("renderer", CheckState::Watch)])));
            assert!(
                shown().contains(r#"holdfast_plane_check{check="host identities",state="trouble"} 0"#),
                "{}",
                shown()
            );
            assert!(shown().contains(r#"holdfast_plane_check{check="renderer",state="watch"} 1"#), "{}", shown());
            assert!(shown().contains("holdfast_plane_known 1"), "{}", shown());
            part.set(None);
            assert!(shown().contains("holdfast_plane_known 0"), "{}", shown());
            let left = shown()
                .lines()
                .filter(|line| line.starts_with("holdfast_plane_check") && !line.ends_with("NaN"))
                .count();
            assert_eq!(left, 0, "{}", shown());
        });
    }
}
