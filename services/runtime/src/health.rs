//! Readiness: what a process says of the things it needs.
//!
//! - A check that never reported is not ready: nothing is assumed.
//! - A check with a largest age is not ready when its last report is older, so that a hung reporter does not look well.
//! - While draining, nothing is ready.
//!
//! Checks are reported by those who use the thing; nothing is called when somebody asks, so asking costs and blocks nothing.

use crate::shutdown::Shutdown;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The checks of a process.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

struct Inner {
    shutdown: Shutdown,
    checks: Mutex<BTreeMap<&'static str, State>>,
}

struct State {
    age_max: Option<Duration>,
    last: Option<(Instant, Result<(), String>)>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&self.report()).finish()
    }
}

/// The reporting end of one check; dropping it takes nothing back.
#[derive(Clone)]
pub struct Check {
    name: &'static str,
    inner: Arc<Inner>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Check({})", self.name)
    }
}

/// The answer to "are you ready".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every check is well and the process does not drain.
    pub ready: bool,
    /// Whether the process was asked to end.
    pub draining: bool,
    /// Every check, by name.
    pub checks: Vec<CheckReport>,
}

/// One check of a [`Report`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Its name.
    pub name: &'static str,
    /// Whether it is well.
    pub ok: bool,
    /// How long ago it last reported; absent before its first report.
    pub age_ms: Option<u64>,
    /// Why it is not well.
    pub reason: Option<String>,
}

impl Health {
    /// No checks yet: ready until draining.
    #[must_use]
    pub fn new(shutdown: Shutdown) -> Self {
        Self { inner: Arc::new(Inner { shutdown, checks: Mutex::default() }) }
    }

    /// Adds a check, not ready until it reports. With `age_max`, a report counts only for that long.
    /// A second check of the same name replaces the first one's state.
    #[must_use]
    pub fn register(&self, name: &'static str, age_max: Option<Duration>) -> Check {
        self.inner.checks().insert(name, State { age_max, last: None });
        Check { name, inner: Arc::clone(&self.inner) }
    }

    /// Adds the check `started`, which is not well until it is said to be: what registers its checks later is waited for.
    #[must_use]
    pub fn starting(&self) -> Check {
        let check = self.register("started", None);
        check.fail("not every part of the process has said yet what it needs");
        check
    }

    /// The state of everything, now.
    #[must_use]
    pub fn report(&self) -> Report {
        let now = Instant::now();
        let checks: Vec<_> = self.inner.checks().iter().map(|(name, state)| state.report(name, now)).collect();
        let draining = self.inner.shutdown.is_asked();
        Report { ready: !draining && checks.iter().all(|check| check.ok), draining, checks }
    }
}

impl Check {
    /// The thing is well.
    pub fn ok(&self) {
        self.set(Ok(()));
    }

    /// The thing is not well.
    pub fn fail(&self, reason: impl Into<String>) {
        self.set(Err(reason.into().chars().take(1_024).collect()));
    }

    fn set(&self, result: Result<(), String>) {
        if let Some(state) = self.inner.checks().get_mut(self.name) {
            state.last = Some((Instant::now(), result));
        }
    }
}

impl Inner {
    fn checks(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        // No code that can panic runs under this lock.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn report(&self, name: &'static str, now: Instant) -> CheckReport {
        let Some((at, result)) = &self.last else {
            return CheckReport { name, ok: false, age_ms: None, reason: Some("it has not reported yet".to_owned()) };
        };
        let age = now.duration_since(*at);
        let reason = match (result, self.age_max) {
            (Err(reason), _) => Some(reason.clone()),
            (Ok(()), Some(age_max)) if age > age_max => {
                Some(format!("its last report is older than {} ms", age_max.as_millis()))
            }
            (Ok(()), Some(_) | None) => None,
        };
        let age_ms = Some(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        CheckReport { name, ok: reason.is_none(), age_ms, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn check_is_ready_only_while_its_last_report_is_good_and_fresh() {
        let health = Health::new(Shutdown::new());
        assert!(health.report().ready, "nothing is needed");
        let check = health.register("postgres", Some(Duration::from_secs(10)));
        assert_eq!(only(&health).reason.as_deref(), Some("it has not reported yet"));
        check.ok();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(only(&health), CheckReport { name: "postgres", ok: true, age_ms: Some(10_000), reason: None });
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!health.report().ready);
        check.fail("refused");
        assert_eq!(only(&health).reason.as_deref(), Some("refused"));
        check.ok();
        assert!(health.report().ready);
    }

    #[tokio::test]
    async fn a_process_is_not_ready_before_its_last_part_has_registered_although_every_check_is_well() {
        let health = Health::new(Shutdown::new());
        let started = health.starting();
        health.register("x", None).ok();
        assert!(!health.report().ready);
        let late = health.register("a door", None);
        started.ok();
        assert!(!health.report().ready, "the door has not reported");
        late.ok();
        assert!(health.report().ready);
    }

    #[tokio::test]
    async fn draining_process_is_not_ready_although_every_check_is_well() {
        let shutdown = Shutdown::new();
        let health = Health::new(shutdown.clone());
        health.register("x", None).ok();
        shutdown.ask();
        let report = health.report();
        assert!(!report.ready && report.draining && report.checks.iter().all(|check| check.ok));
    }

    fn only(health: &Health) -> CheckReport {
        health.report().checks.remove(0)
    }
}
