//! Named points of the code at which a test ends the process as a power cut would.
//!
//! - Likewise it waits for `HOLDFAST_TEST_STALL_MS` milliseconds, each time, at the point that `HOLDFAST_TEST_STALL_POINT` names: a slow disk or kernel.
//! - In a build with the feature `test-hooks` the process takes SIGKILL when it passes the point that `HOLDFAST_TEST_FAIL_POINT` names: nothing is
//!   flushed, no destructor runs, no peer is told. `HOLDFAST_TEST_FAIL_POINT_NTH` says at which time it passes (the first without it).
//! - Any other build has neither names nor code of it.
//!
//! Which points there are, and what makes a process pass each of them, is a list of the tests, which is held to the code.

#[cfg(feature = "test-hooks")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// The point that ends this process, and at which time.
    struct Armed {
        name: String,
        nth: u64,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    fn armed() -> Option<&'static Armed> {
        let read = || {
            let name = std::env::var("HOLDFAST_TEST_FAIL_POINT").ok()?;
            let nth = std::env::var("HOLDFAST_TEST_FAIL_POINT_NTH").ok().and_then(|text| text.parse().ok());
            Some(Armed { name, nth: nth.unwrap_or(1) })
        };
        ARMED.get_or_init(read).as_ref()
    }

    pub(super) fn is_armed(subject: &str, moment: &str) -> bool {
        armed().is_some_and(|armed| {
            armed.name.strip_prefix(subject).and_then(|rest| rest.strip_prefix(": ")) == Some(moment)
        })
    }

    /// The point at which this process waits, and for how long.
    struct Stalled {
        name: String,
        wait: Duration,
    }

    static STALLED: OnceLock<Option<Stalled>> = OnceLock::new();

    fn stall(subject: &str, moment: &str) {
        let read = || {
            let name = std::env::var("HOLDFAST_TEST_STALL_POINT").ok()?;
            let wait_ms = std::env::var("HOLDFAST_TEST_STALL_MS").ok().and_then(|text| text.parse().ok())?;
            Some(Stalled { name, wait: Duration::from_millis(wait_ms) })
        };
        if let Some(Stalled { name, wait }) = STALLED.get_or_init(read)
            && name.strip_prefix(subject).and_then(|rest| rest.strip_prefix(": ")) == Some(moment)
        {
            std::thread::sleep(*wait);
        }
    }

    pub(super) fn pass(subject: &str, moment: &str) {
        stall(subject, moment);
        if !is_armed(subject, moment) {
            return;
        }
        let time = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
        if armed().is_some_and(|armed| armed.nth == time) {
            // The kernel does not come back from this one.
            let killed = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
            debug_assert_eq!(killed, Ok(()), "SIGKILL to oneself is never refused");
            std::process::abort();
        }
    }
}

/// Passes the point `SUBJECT: MOMENT`.
#[cfg(feature = "test-hooks")]
pub fn fail_point(subject: &'static str, moment: &'static str) {
    armed::pass(subject, moment);
}

/// Passes the point `SUBJECT: MOMENT`: nothing, in this build.
#[cfg(not(feature = "test-hooks"))]
#[inline]
pub const fn fail_point(_subject: &'static str, _moment: &'static str) {}

/// Whether the process is to end at the point `SUBJECT: MOMENT`, for what must be prepared to end there.
#[cfg(feature = "test-hooks")]
#[must_use]
pub fn is_armed(subject: &'static str, moment: &'static str) -> bool {
    armed::is_armed(subject, moment)
}
