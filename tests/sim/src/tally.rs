//! What was seen in schedules, counted: a run that never meets a fault or a form of update shows nothing about it.

use holdfast_model::fence::Recorded;
use holdfast_model::statement::OutcomeKind;
use holdfast_session::gateway::Form;

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counts of one schedule, or of many.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Tally {
            /// Takes in what another schedule saw.
            pub fn add(&mut self, other: &Self) {
                let rest = self.rest_ms_max.max(other.rest_ms_max);
                $(self.$name += other.$name;)+
                self.rest_ms_max = rest;
            }

            /// Each count with its name.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

tally! {
    /// Faults.
    faults,
    /// Connections that came about.
    connections,
    /// Sessions that agents saw open.
    sessions,
    /// Hellos that a gateway without its lease sent away.
    refused_without_lease,
    /// Times that a gateway's lease could not be renewed.
    lapses,
    /// Doubts about hints.
    doubts,
    /// Compares.
    compares,
    /// Facts that found no room.
    without_room,
    /// Facts that can never be written, and were left out.
    left_out,
    /// Versions that were committed.
    versions,
    /// Updates written whole.
    snapshots,
    /// Updates written as changes.
    deltas,
    /// Updates of a version alone.
    versions_only,
    /// Outcomes of updates in force.
    applied,
    /// Outcomes of updates that failed.
    failed,
    /// Updates that an agent half refused before its shell.
    refused,
    /// Outcomes that hosts made up.
    lies,
    /// Outcomes that the authority recorded.
    recorded,
    /// Outcomes that it had already.
    repeated,
    /// Outcomes of sessions that were no longer their hosts'.
    stale,
    /// Ends of sessions that were written.
    ends,
    /// Ends that came after the session of another.
    late_ends,
    /// Times that a component was looked at and called converged.
    synced,
    /// Terms of renderers.
    terms,
    /// Events that the stream took.
    published,
    /// Batches of events of which the relay did not hear everything.
    unclear,
    /// Those of them that were still on their way when it gave them up.
    given_up,
    /// Times that an operator asked for what had failed.
    asked_again,
    /// The longest way to rest, in simulated milliseconds.
    rest_ms_max,
}

impl Tally {
    pub(crate) const fn count_sent(&mut self, form: Form) {
        *match form {
            Form::Snapshot => &mut self.snapshots,
            Form::Delta => &mut self.deltas,
            Form::VersionOnly => &mut self.versions_only,
        } += 1;
    }

    pub(crate) const fn count_outcome(&mut self, kind: OutcomeKind) {
        *match kind {
            OutcomeKind::Applied | OutcomeKind::RetainedLocalOverride => &mut self.applied,
            OutcomeKind::Failed => &mut self.failed,
        } += 1;
    }

    pub(crate) const fn count_judged(&mut self, judged: Recorded) {
        match judged {
            Recorded::Current => self.recorded += 1,
            Recorded::Repeated => self.repeated += 1,
            Recorded::StaleSession | Recorded::OutOfOrder | Recorded::UnknownHost => self.stale += 1,
        }
    }
}
