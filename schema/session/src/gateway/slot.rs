//! The one slot of a component: a mark, the tip, at most one staged answer, and what is owed after a failure.

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::numbers::{UpdateSeq, Version};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::limits::DELTA_BYTES_MAX;
use holdfast_wire::message::SignatureBytes;

use super::event::{Answer, AnswerError, Cause, Form, Supply, Want};
use super::flight::InFlight;
use crate::limits::ASK_AGAIN;
use crate::time::Instant;

/// What a failure leads to. One recovery snapshot answers it; if that fails too, only a newer version, a new session or an operator does more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recovery {
    /// Nothing failed.
    None,
    /// The next update is the recovery.
    Owed,
    /// The recovery was written.
    Sent { update_seq: UpdateSeq, version: Version },
    /// The recovery failed too.
    Spent { update_seq: UpdateSeq, version: Version },
}

/// An answer that waits for the socket.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) stamp: Stamp,
    pub(super) signature: SignatureBytes,
    pub(super) supply: Supply,
}

/// What came of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// It is or is not staged; nothing else to say.
    Taken,
    /// Its body is too large for this session.
    TooLarge { stamp: Stamp, bytes: usize },
}

#[derive(Debug)]
pub(super) struct Slot {
    component: Component,
    /// Something may be newer; with the tick of the first mark, so that the oldest goes first.
    marked: Option<u64>,
    asked: bool,
    ask_not_before: Instant,
    staged: Option<Staged>,
    tip: Option<Stamp>,
    /// The newest version whose body is too large to be sent: a compare that finds it again leads to nothing.
    too_large: Option<Version>,
    /// Why the next update must be whole and is sent even if it is no newer than the tip.
    owed_snapshot: Option<Cause>,
    /// Whether the agent may be expected to hold the tip: not after a failure, until a snapshot was written.
    tip_is_base: bool,
    last_snapshot: Option<(UpdateSeq, Version)>,
    recovery: Recovery,
    faults: Faults,
}

impl Slot {
    /// The slot of a session that begins: it owes a snapshot.
    pub(super) const fn new(component: Component, tick: u64, faults: Faults, now: Instant) -> Self {
        Self {
            component,
            marked: Some(tick),
            asked: false,
            ask_not_before: now,
            staged: None,
            tip: None,
            too_large: None,
            owed_snapshot: Some(Cause::Connect),
            tip_is_base: false,
            last_snapshot: None,
            recovery: Recovery::None,
            faults,
        }
    }

    pub(super) const fn tip(&self) -> Option<Stamp> {
        self.tip
    }

    /// Something may be newer. A staged answer goes out first: dropping it would let a stream of hints keep a reader from everything.
    pub(super) fn mark(&mut self, tick: u64) {
        self.marked.get_or_insert(tick);
    }

    /// What is written or about to be, or was found to be too large for that.
    pub(super) fn latest(&self) -> Option<Version> {
        let written = self.staged.as_ref().map(|staged| staged.stamp).or(self.tip).map(|stamp| stamp.version);
        written.max(self.too_large)
    }

    /// An operator wants the current state sent once more.
    pub(super) fn resend(&mut self, tick: u64) {
        self.owed_snapshot.get_or_insert(Cause::Resend);
        self.drop_staged_without_body();
        self.mark(tick);
    }

    /// Whether something may be newer that was not asked for yet.
    pub(super) const fn is_marked(&self) -> bool {
        self.marked.is_some()
    }

    /// The tick since when this slot wants to ask, if it does now.
    pub(super) fn wants_since(&self, now: Instant) -> Option<u64> {
        self.marked.filter(|_| !self.asked && self.staged.is_none() && self.ask_not_before <= now)
    }

    /// When this slot will want to ask, if it waits.
    pub(super) fn wants_at(&self, now: Instant) -> Option<Instant> {
        let waits = self.marked.is_some() && !self.asked && self.staged.is_none() && self.ask_not_before > now;
        waits.then_some(self.ask_not_before)
    }

    pub(super) fn ask(&mut self) -> Want {
        self.asked = true;
        self.marked = None;
        Want { component: self.component, tip: self.tip, snapshot: self.owed_snapshot.is_some() || !self.tip_is_base }
    }

    pub(super) fn handle_answer(
        &mut self,
        answer: Answer,
        body_bytes_max: usize,
        tick: u64,
        now: Instant,
    ) -> Result<Answered, AnswerError> {
        let component = self.component;
        if !self.asked {
            return Err(AnswerError::NotAsked { component });
        }
        self.asked = false;
        let (stamp, signature, supply) = match answer {
            // Before the first render of a host there is nothing; once something was written there always is.
            Answer::Unchanged if self.owed_snapshot.is_none() || self.tip.is_none() => return Ok(Answered::Taken),
            Answer::Unchanged | Answer::Unavailable => {
                self.mark(tick);
                self.ask_not_before = now.plus(ASK_AGAIN);
                return Ok(Answered::Taken);
            }
            Answer::Current { stamp, signature, supply } => (stamp, signature, supply),
        };
        if let Some(tip) = self.tip {
            if stamp.version < tip.version {
                return Err(AnswerError::Backward { component, tip: tip.version, answered: stamp.version });
            }
            if stamp.version == tip.version {
                if stamp.digest != tip.digest {
                    return Err(AnswerError::OtherContent { component, version: tip.version });
                }
                if self.owed_snapshot.is_none() {
                    return Ok(Answered::Taken);
                }
            }
        }
        match &supply {
            Supply::SameDigest if self.may_skip_body(stamp) => {}
            // What is owed may have changed while the shell was reading: ask once more, for the body too.
            Supply::SameDigest if self.tip.is_some_and(|tip| tip.digest == stamp.digest) => {
                self.mark(tick);
                return Ok(Answered::Taken);
            }
            Supply::Whole { body, .. } if !body.is_empty() => {
                if body.len() > body_bytes_max {
                    self.too_large = Some(stamp.version);
                    return Ok(Answered::TooLarge { stamp, bytes: body.len() });
                }
            }
            Supply::SameDigest | Supply::Whole { .. } => return Err(AnswerError::NoBody { component }),
        }
        self.staged = Some(Staged { stamp, signature, supply });
        Ok(Answered::Taken)
    }

    /// How the staged answer would travel now, and how many bytes count as in flight.
    pub(super) fn staged_form(&self) -> Option<(Form, usize)> {
        let staged = self.staged.as_ref()?;
        if self.may_skip_body(staged.stamp) {
            return Some((Form::VersionOnly, 0));
        }
        let Supply::Whole { body, delta } = &staged.supply else { return None };
        let base = self.tip.filter(|_| self.component == Component::Policy && self.whole_is_not_due());
        let delta = delta.as_ref().filter(|delta| {
            let size = delta.changes.len();
            // Beyond half of the snapshot a delta saves little and costs the agent more.
            base.is_some_and(|base| base.digest == delta.base) && size <= DELTA_BYTES_MAX && 2 * size <= body.len()
        });
        Some(delta.map_or((Form::Snapshot, body.len()), |delta| (Form::Delta, delta.changes.len())))
    }

    /// The bytes of the staged answer: its body, and its changes beside it.
    pub(super) fn staged_bytes(&self) -> usize {
        match self.staged.as_ref().map(|staged| &staged.supply) {
            Some(Supply::Whole { body, delta }) => body.len() + delta.as_ref().map_or(0, |delta| delta.changes.len()),
            Some(Supply::SameDigest) | None => 0,
        }
    }

    /// Takes the staged answer as written under a sequence, with the base of its delta and why it is sent.
    pub(super) fn write(&mut self, update_seq: UpdateSeq, form: Form) -> Option<(Staged, Option<Stamp>, Cause)> {
        let staged = self.staged.take()?;
        let base = self.tip;
        if base.is_none() || !self.faults.has(Mutant::TipNotAdvanced) {
            self.tip = Some(staged.stamp);
        }
        let cause = self.owed_snapshot.take().unwrap_or(Cause::Newer);
        match form {
            Form::Snapshot => {
                self.tip_is_base = true;
                self.last_snapshot = Some((update_seq, staged.stamp.version));
                if self.recovery == Recovery::Owed {
                    self.recovery = Recovery::Sent { update_seq, version: staged.stamp.version };
                }
            }
            Form::Delta | Form::VersionOnly => {}
        }
        Some((staged, base, cause))
    }

    pub(super) fn handle_outcome(&mut self, update: &InFlight, kind: OutcomeKind, tick: u64) {
        match kind {
            OutcomeKind::Applied | OutcomeKind::RetainedLocalOverride => match self.recovery {
                Recovery::None | Recovery::Owed => {}
                Recovery::Sent { update_seq, .. } | Recovery::Spent { update_seq, .. } => {
                    if update.update_seq >= update_seq {
                        self.recovery = Recovery::None;
                        self.tip_is_base = true;
                    }
                }
            },
            OutcomeKind::Failed => self.handle_failed(update, tick),
        }
    }

    fn handle_failed(&mut self, update: &InFlight, tick: u64) {
        let version = update.stamp.version;
        match self.recovery {
            Recovery::None => self.owe_recovery(update, tick),
            Recovery::Owed => {}
            Recovery::Sent { update_seq, .. }
                if update.update_seq == update_seq && self.faults.has(Mutant::RecoveryLoops) =>
            {
                self.owe_recovery(update, tick);
            }
            Recovery::Sent { update_seq, version: tried } if update.update_seq == update_seq => {
                self.recovery = Recovery::Spent { update_seq, version: tried };
                self.tip_is_base = false;
            }
            Recovery::Sent { update_seq, version: tried } | Recovery::Spent { update_seq, version: tried } => {
                if update.update_seq > update_seq && version > tried {
                    self.owe_recovery(update, tick);
                } else if update.update_seq > update_seq {
                    self.recovery = Recovery::Spent { update_seq: update.update_seq, version: tried };
                    self.tip_is_base = false;
                }
            }
        }
    }

    fn owe_recovery(&mut self, update: &InFlight, tick: u64) {
        if let Some((update_seq, version)) = self.last_snapshot.filter(|(seq, _)| *seq > update.update_seq) {
            // A snapshot written after the failed update is on its way already: it is the recovery.
            self.recovery = Recovery::Sent { update_seq, version };
            return;
        }
        self.recovery = Recovery::Owed;
        self.owed_snapshot = Some(Cause::Recovery);
        self.tip_is_base = false;
        self.drop_staged_without_body();
        self.mark(tick);
    }

    /// Whether the next update may be relative to the tip.
    fn whole_is_not_due(&self) -> bool {
        self.owed_snapshot.is_none() && self.tip_is_base
    }

    fn may_skip_body(&self, stamp: Stamp) -> bool {
        self.whole_is_not_due() && self.tip.is_some_and(|tip| tip.digest == stamp.digest)
    }

    /// An answer without a body cannot become a snapshot: it is dropped and the slot asks again.
    fn drop_staged_without_body(&mut self) {
        if self.staged.as_ref().is_some_and(|staged| matches!(staged.supply, Supply::SameDigest)) {
            self.staged = None;
        }
    }
}
