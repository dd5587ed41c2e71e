//! The updates of a session on an agent: in order, one at a time, each answered once.

use std::collections::VecDeque;

use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::message::{SessionLimits, Update};

use super::event::Content;

/// An update whose bytes are all here.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) update: Update,
    pub(super) content: Content,
    /// Refused already, before its turn.
    pub(super) refused: Option<Reason>,
    pub(super) bytes: usize,
}

/// What is known of one component in this session.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    /// In force, under this authority in this life; nothing older is taken.
    held: Option<Stamp>,
    /// What this session took last: the only base.
    base: Option<Stamp>,
    /// The highest version that was handed to the shell in this session, whether it came into force or not.
    named: Option<Stamp>,
}

#[derive(Debug)]
pub(super) struct Updates {
    queue: VecDeque<Pending>,
    /// The one that the shell works on.
    working: Option<(UpdateSeq, Component, Stamp, usize)>,
    known: [Known; Component::ALL.len()],
    bytes: usize,
    unanswered: usize,
    updates_max: usize,
    bytes_max: usize,
    faults: Faults,
}

impl Updates {
    pub(super) fn new(limits: SessionLimits, applied: &[(Component, Stamp)], faults: Faults) -> Self {
        let held = |component| applied.iter().find(|(of, _)| *of == component).map(|(_, stamp)| *stamp);
        Self {
            queue: VecDeque::new(),
            working: None,
            known: Component::ALL.map(|component| Known { held: held(component), ..Known::default() }),
            bytes: 0,
            unanswered: 0,
            updates_max: usize::from(limits.updates_in_flight_max),
            bytes_max: usize::try_from(limits.bytes_in_flight_max).unwrap_or(usize::MAX),
            faults,
        }
    }

    /// Whether the gateway may have another update of so many bytes on its way. One alone always may.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.bytes.checked_add(bytes).is_some_and(|sum| sum <= self.bytes_max);
        self.unanswered < self.updates_max && (fits || self.unanswered == 0)
    }

    /// An update was announced: it counts from now on.
    pub(super) const fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.unanswered += 1;
    }

    /// An outcome was written for an update of so many bytes.
    pub(super) const fn uncount(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    pub(super) fn put(&mut self, pending: Pending) {
        self.queue.push_back(pending);
    }

    /// The next update whose turn it is, with the reason why it is refused, if it is. None while the shell works.
    pub(super) fn next(&mut self) -> Option<(Pending, Option<Reason>)> {
        if self.working.is_some() {
            return None;
        }
        let pending = self.queue.pop_front()?;
        let refused = pending.refused.or_else(|| self.fault_of(&pending));
        if refused.is_none() {
            let Update { update_seq, component, stamp, .. } = pending.update;
            self.working = Some((update_seq, component, stamp, pending.bytes));
            if let Some(known) = self.known.get_mut(index(component))
                && known.named.is_none_or(|named| named.version < stamp.version)
            {
                known.named = Some(stamp);
            }
        }
        Some((pending, refused))
    }

    /// What is wrong with an update now that all before it are answered.
    fn fault_of(&self, pending: &Pending) -> Option<Reason> {
        let Update { component, stamp, .. } = pending.update;
        let known = self.known.get(index(component))?;
        for seen in [known.held, known.named].into_iter().flatten() {
            if stamp.version == seen.version && stamp.digest != seen.digest {
                return Some(Reason::SameVersionOtherContent);
            }
        }
        if known.held.is_some_and(|held| stamp.version < held.version) {
            return Some(Reason::Backward);
        }
        match &pending.content {
            Content::Snapshot(_) => None,
            Content::Delta { base, .. } => {
                if component != Component::Policy {
                    return Some(Reason::Malformed);
                }
                let is_wrong = known.base != Some(*base) && !self.faults.has(Mutant::WrongBaseAccepted);
                is_wrong.then_some(Reason::WrongBase)
            }
            Content::VersionOnly => {
                let same = known.base.is_some_and(|base| base.digest == stamp.digest);
                (!same).then_some(Reason::WrongBase)
            }
        }
    }

    /// Whether the shell works on one.
    pub(super) const fn is_working(&self) -> bool {
        self.working.is_some()
    }

    /// The shell is done with the update that it works on; `None` if it works on another or none.
    pub(super) fn finish(
        &mut self,
        update_seq: UpdateSeq,
        kind: OutcomeKind,
        in_force: Option<Stamp>,
    ) -> Option<(Component, Stamp, usize)> {
        let (_, component, stamp, bytes) = self.working.take_if(|working| working.0 == update_seq)?;
        if let Some(known) = self.known.get_mut(index(component)) {
            match kind {
                OutcomeKind::Applied => {
                    known.held = Some(stamp);
                    known.base = Some(stamp);
                }
                // Kept beside the local policy: what comes next is relative to it.
                OutcomeKind::RetainedLocalOverride => known.base = Some(stamp),
                OutcomeKind::Failed => known.held = known.held.or(in_force),
            }
        }
        Some((component, stamp, bytes))
    }

    /// What is in force of a component, as far as this session knows.
    pub(super) fn held(&self, component: Component) -> Option<Stamp> {
        self.known.get(index(component))?.held
    }
}

/// The conditions of an update that was refused before its apply.
pub(super) fn refused_conditions(reason: Reason, stamp: Stamp) -> Vec<Condition> {
    let condition = |kind, status, reason| Condition {
        kind,
        status,
        reason,
        message: String::new(),
        observed_version: Some(stamp.version),
    };
    let one = |kind| match kind == ConditionType::SnapshotAccepted {
        true => condition(kind, Holds::False, reason),
        false => condition(kind, Holds::Unknown, Reason::NotReached),
    };
    ConditionType::OF_ATTEMPT.map(one).into()
}

const fn index(component: Component) -> usize {
    match component {
        Component::Policy => 0,
        Component::Settings => 1,
        Component::Credentials => 2,
        Component::Workloads => 3,
    }
}
