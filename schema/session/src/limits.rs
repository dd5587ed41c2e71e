//! The caps and times of the machines.

use std::time::Duration;

use holdfast_model::desired::Component;
use holdfast_wire::limits::UPDATES_IN_FLIGHT_MAX;

/// How long either side waits for the other's first message.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a side says that it is there, before jitter.
pub const LIVENESS_INTERVAL: Duration = Duration::from_secs(15);
/// The jitter around it, in percent either way.
pub const LIVENESS_JITTER_PERCENT: u64 = 20;
/// After so many intervals of silence the other side is dead: 45 s at the default.
pub const LIVENESS_DEAD_INTERVALS: u32 = 3;
/// The shortest interval that an agent accepts from a gateway.
pub const LIVENESS_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest one: ten times the default.
pub const LIVENESS_INTERVAL_MAX: Duration = Duration::from_secs(150);

/// The window of the first retry.
pub const BACKOFF_BASE: Duration = Duration::from_secs(1);
/// The largest window.
pub const BACKOFF_CAP: Duration = Duration::from_secs(5 * 60);
/// A session that was open for so long was healthy: longer than silence can go unseen.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(45);
/// An agent never waits longer than this on a gateway's word.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(15 * 60);

/// How long a gateway half waits before it asks its shell again for what could not be read.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);
/// When a build is given up whose end nobody told. One reads rows and then bodies, in two rounds at most, and a gateway's store gives each up after
/// 20 s: what ends by itself is told as what it is before that.
pub const BUILD_TIMEOUT: Duration = Duration::from_secs(75);
/// The window of the first retry of a failed build.
pub const REBUILD_BASE: Duration = Duration::from_secs(1);
/// The largest one: an authority that comes back is asked by everybody within it, and an edit is to arrive within 30 s of that.
pub const REBUILD_CAP: Duration = Duration::from_secs(10);
/// How long a drained session may stay after the moment that it was given.
pub const DRAIN_GRACE: Duration = Duration::from_secs(10);

/// Faults that a session survives; a peer that makes more is ended.
pub const FAULTS_MAX: usize = 64;
/// Fault messages that wait to be written; more are counted and not sent.
pub const FAULTS_QUEUED_MAX: usize = 8;
/// Directives that wait to be written.
pub const DIRECTIVES_QUEUED_MAX: usize = 8;
/// How long an agent waits between two reports of drift of one kind.
pub const DRIFT_PAUSE: Duration = Duration::from_secs(2);
/// How many lists of what a host has a gateway passes on at once in a session, and after how long one more: a list that a host changed again meanwhile is
/// passed over for the newer one. Each is a change of rules for every peer.
pub const INVENTORIES_AT_ONCE: u32 = 4;
/// See [`INVENTORIES_AT_ONCE`].
pub const INVENTORY_PAUSE: Duration = Duration::from_secs(30);
/// How long an agent leaves a host unsaid that does not change.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(holdfast_model::report::REPORT_INTERVAL_MS);
/// How long it waits for what is about to settle by itself: a gateway's echo takes a few round trips.
pub const REPORT_SETTLE: Duration = Duration::from_millis(250);
/// How many reports of a host as a whole an agent says at once, and after how long it may say one more.
pub const REPORT_AT_ONCE: u32 = 8;
/// See [`REPORT_AT_ONCE`].
pub const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// How long an agent waits after the first report that a gateway did not take; twice as long after each more, up to [`REPORT_INTERVAL`].
pub const REPORT_REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// How many a gateway takes at once, and after how long one more: more than any agent says that keeps its own pauses.
pub const REPORTS_TAKEN_AT_ONCE: u32 = 4 * REPORT_AT_ONCE;
/// See [`REPORTS_TAKEN_AT_ONCE`].
pub const REPORTS_TAKEN_PAUSE: Duration = Duration::from_millis(500);
const _: () = assert!(REPORTS_TAKEN_PAUSE.as_millis() <= REPORT_PAUSE.as_millis());
/// How long a gateway waits before it asks one agent again for a report.
pub const REPORT_ASK_PAUSE: Duration = Duration::from_secs(10);
/// How many refused reports of one session are told at once, and after how long one more; all are counted.
pub const REFUSALS_AT_ONCE: u32 = 4;
/// See [`REFUSALS_AT_ONCE`].
pub const REFUSAL_PAUSE: Duration = Duration::from_secs(5 * 60);
/// Events that wait for the shell. One message makes at most two, so a shell that drains after each never meets this.
pub const EVENTS_MAX: usize = 2 * UPDATES_IN_FLIGHT_MAX + 4 * Component::ALL.len();
