//! Payloads about what hosts found in their kernels.
//!
//! - A host's agent says them; nobody signs them, and no state of a policy follows from them.
//! - `total` counts within one start of the agent, `count` is what is new since the host was last heard of it.

use holdfast_model::drift::DriftCounts;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::SessionEpoch;
use uuid::Uuid;

use super::payloads;
use crate::text::ProcessName;

payloads! {
    /// A kernel holds something else than it should.
    DriftFound {
        /// Whose.
        host: HostId,
        /// In which session it was told.
        session_epoch: SessionEpoch,
        /// The start of the agent that counts.
        instance: Uuid,
        /// How often since that start.
        total: u64,
        /// How often since it was last told.
        count: u64,
        /// How long before this event the last one was, by the host's clock.
        age_ms: u64,
        /// The process that wrote, where the kernel told.
        process: Option<ProcessName>,
        /// Its number.
        pid: Option<u32>,
        /// What differed the last time.
        counts: DriftCounts,
    }

    /// A kernel was put right, and read back so.
    DriftRepaired {
        /// Whose.
        host: HostId,
        /// In which session it was told.
        session_epoch: SessionEpoch,
        /// The start of the agent that counts.
        instance: Uuid,
        /// How often since that start.
        total: u64,
        /// How often since it was last told.
        count: u64,
        /// How long before this event the last one was, by the host's clock.
        age_ms: u64,
        /// The process whose writing was undone, where the kernel told.
        process: Option<ProcessName>,
        /// Its number.
        pid: Option<u32>,
        /// What had differed the last time.
        counts: DriftCounts,
    }

    /// Another process undoes each repair: the slow tick alone repairs from now on.
    DriftContended {
        /// Whose.
        host: HostId,
        /// In which session it was told.
        session_epoch: SessionEpoch,
        /// The start of the agent that counts.
        instance: Uuid,
        /// How often since that start.
        total: u64,
        /// How often since it was last told.
        count: u64,
        /// How long before this event it began, by the host's clock.
        age_ms: u64,
        /// The process that fights for the table, where the kernel told.
        process: Option<ProcessName>,
        /// Its number.
        pid: Option<u32>,
    }

    /// Nobody undoes repairs any more.
    DriftSettled {
        /// Whose.
        host: HostId,
        /// In which session it was told.
        session_epoch: SessionEpoch,
        /// The start of the agent that counts.
        instance: Uuid,
        /// How often since that start.
        total: u64,
        /// How often since it was last told.
        count: u64,
        /// How long before this event it was noticed, by the host's clock.
        age_ms: u64,
    }
}
