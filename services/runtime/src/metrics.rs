//! Metrics of the process, in Prometheus's text.
//!
//! - Upkeep runs for as long as the process does; without it histograms grow without bound.
//! - Names begin with `holdfast_` and end in their unit; no host is a label on the control plane.
//! - What is a state and no count of happenings is read for each scrape, and no scrape shows parts of two readings.

use crate::Build;
use crate::tasks::Tasks;
use futures_util::future::{BoxFuture, join_all};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often histograms are drained into their sums; what the exporter itself uses when it serves.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Upper bounds of every `_seconds` histogram: 100 µs to 60 s, about three per decade, so that p99 of a millisecond
/// path and of a slow wait are both read within a factor of 2.5.
const SECONDS_BUCKETS: [f64; 18] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Metrics cannot be collected.
#[derive(Debug, thiserror::Error)]
#[error("cannot collect metrics")]
pub struct Error(#[source] BuildError);

/// What was read for a scrape, to be set right before it is answered.
pub type Reading = Box<dyn FnOnce() + Send>;

type Source = Arc<dyn Fn() -> BoxFuture<'static, Reading> + Send + Sync>;

/// The collected metrics.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    sources: Arc<Mutex<Vec<Source>>>,
    /// Held while readings are set and shown.
    showing: Arc<Mutex<()>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Collects for the whole process from now on. Called once.
    ///
    /// # Errors
    /// [`Error`] when somebody else collects already.
    pub fn install(build: Build, tasks: &Tasks) -> Result<Self, Error> {
        let handle = builder().map_err(Error)?.install_recorder().map_err(Error)?;
        let labels = [("service", build.service), ("version", build.version), ("commit", build.commit.unwrap_or(""))];
        metrics::gauge!("holdfast_build_info", &labels).set(1.0);
        // A series that begins at one has not risen, for whoever watches it.
        metrics::counter!("holdfast_log_lines_lost_total").increment(0);
        let upkeep = handle.clone();
        tasks.background("metrics upkeep", async move {
            let mut clock = tokio::time::interval(UPKEEP_INTERVAL);
            loop {
                clock.tick().await;
                upkeep.run_upkeep();
            }
            #[expect(unreachable_code, reason = "names the error type of a task that never ends")]
            Ok::<_, Infallible>(())
        });
        Ok(Self::of(handle))
    }

    fn of(handle: PrometheusHandle) -> Self {
        Self { handle, sources: Arc::default(), showing: Arc::default() }
    }

    /// Reads by `source` for each scrape from now on. It ends within a few seconds whatever happens: scrapers wait for ten.
    pub fn read_for_scrapes(&self, source: impl Fn() -> BoxFuture<'static, Reading> + Send + Sync + 'static) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(source));
    }

    /// Everything collected so far, and what is read now.
    pub async fn scrape(&self) -> String {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let readings = join_all(sources.iter().map(|source| source())).await;
        let _shown_as_one = self.showing.lock().unwrap_or_else(PoisonError::into_inner);
        readings.into_iter().for_each(|set| set());
        self.handle.render()
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let seconds = metrics_exporter_prometheus::Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS_BUCKETS)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn each_scrape_shows_what_is_read_for_it() {
        let recorder = builder().unwrap().build_recorder();
        let metrics = Metrics::of(recorder.handle());
        let reads = Arc::new(AtomicU32::new(0));
        let gauge = metrics::with_local_recorder(&recorder, || metrics::gauge!("holdfast_things"));
        metrics.read_for_scrapes(move || {
            let (read, gauge) = (reads.fetch_add(1, Ordering::Relaxed) + 1, gauge.clone());
            Box::pin(async move {
                let set: Reading = Box::new(move || gauge.set(f64::from(read)));
                set
            })
        });
        for read in 1..=2 {
            let text = metrics.scrape().await;
            assert!(text.contains(&format!("holdfast_things {read}\n")), "{text}");
        }
    }

    #[test]
    fn seconds_are_buckets_and_not_quantiles() {
        let recorder = builder().unwrap().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!("holdfast_apply_seconds").record(0.002);
            metrics::counter!("holdfast_task_panics_total", "task" => "x").increment(2);
        });
        let text = recorder.handle().render();
        assert!(text.contains("holdfast_apply_seconds_bucket{le=\"0.0025\"} 1"), "{text}");
        assert!(text.contains("holdfast_apply_seconds_bucket{le=\"0.001\"} 0"), "{text}");
        assert!(text.contains("holdfast_task_panics_total{task=\"x\"} 2"), "{text}");
    }
}
