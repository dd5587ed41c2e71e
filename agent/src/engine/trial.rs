//! A policy on trial: in force, and gone back from if it cut the host off from its gateways.
//!
//! - What was confirmed last stays at hand, on disk too, until what followed is confirmed; one confirmation is of all before it.
//! - What is kept beside a local policy is on trial once that is gone: it was never in force.
//! - An echo is no proof of a policy that the kernel is not known to hold.
//! - A content that cut the host off is known by its digest and not tried again: not by another version, a recovery, a restart.
//!
//! Whether a policy cuts the host off is not decided here.

use holdfast_model::desired::Stamp;
use holdfast_model::digest::Digest;

use super::{Cause, Engine, Entry, Held, Kernel, Store};
use crate::plan::{GATEWAY_CUT, ObservedRule};

/// Contents that are remembered; an operator has changed the policy long before there are so many.
const SHUNNED_MAX: usize = 16;

/// What the disk knows of trials.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    /// What to go back to while something is on trial: the last confirmed policy, or that there was none.
    pub fallback: Option<Option<Entry>>,
    /// Contents that are not tried any more, the latest last.
    pub shunned: Vec<Digest>,
}

/// Remembers one more content.
pub(crate) fn shun(shunned: &mut Vec<Digest>, digest: Digest) {
    shunned.retain(|known| *known != digest);
    shunned.push(digest);
    if shunned.len() > SHUNNED_MAX {
        shunned.remove(0);
    }
}

impl<K: Kernel, S: Store> Engine<K, S> {
    /// The same on a host whose policies have to prove that they lead to a gateway.
    #[must_use]
    pub fn with_trials(mut self) -> Self {
        self.has_trials = true;
        self
    }

    /// What is on trial; nothing while a local policy is in force, which nobody takes back.
    #[must_use]
    pub fn on_trial(&self) -> Option<Stamp> {
        let held = self.held.as_ref().filter(|_| self.local.is_none() && self.fallback.is_some());
        held.map(|held| held.entry.stamp)
    }

    /// Whether what an update leads to was taken back once.
    pub(super) fn is_shunned(&self, digest: Digest) -> bool {
        self.shunned.contains(&digest)
    }

    /// How many packets of gateways the policy dropped, by what the kernel counts.
    ///
    /// # Errors
    /// The kernel's reason if that cannot be read.
    pub fn gateway_drops(&mut self) -> Result<u64, Cause> {
        let counts = |rule: &ObservedRule| [GATEWAY_CUT.0, GATEWAY_CUT.1].contains(&rule.id.as_str());
        Ok(self.kernel.rules()?.iter().filter(|rule| counts(rule)).map(|rule| rule.counted.0).sum())
    }

    /// What is on trial led to a gateway, and with it all before it; whether that ended its trial. It does not while the kernel is not known to hold it:
    /// whatever led to a gateway then is something else.
    ///
    /// # Errors
    /// The disk's reason; it is still on trial then.
    pub fn confirm(&mut self) -> Result<bool, Cause> {
        let is_in_force = self.on_trial().is_some() && !self.unproven;
        let Some(held) = self.held.as_ref().filter(|_| is_in_force) else { return Ok(false) };
        self.store.settle_confirmed(&held.entry)?;
        self.fallback = None;
        Ok(true)
    }

    /// Goes back to what was confirmed last, and remembers what is on trial; what that was.
    ///
    /// # Errors
    /// The disk's reason, and it is still on trial; or the kernel's, and the slow tick tries again.
    pub fn take_back(&mut self) -> Result<Option<Stamp>, Cause> {
        let Some(stamp) = self.on_trial() else { return Ok(None) };
        // On disk first: a crash from here on brings back the good one, and never this one again.
        self.store.settle_taken_back(stamp.digest)?;
        shun(&mut self.shunned, stamp.digest);
        self.held = self.fallback.take().flatten();
        self.owes_open = self.held.is_none();
        self.put_back()?;
        Ok(Some(stamp))
    }

    /// Makes an update good: on trial where its content is not the one that was confirmed last.
    pub(super) fn settle(&mut self, held: &Held) -> Result<(), Cause> {
        if self.is_tried(held) {
            return self.store.settle_trial();
        }
        self.store.settle_good(&held.entry)
    }

    /// Holds what is in force now.
    pub(super) fn hold_in_force(&mut self, held: Held) {
        self.hold(held);
        self.unproven = false;
    }

    /// Holds what was settled, on trial or not, as the disk has it.
    pub(super) fn hold(&mut self, held: Held) {
        let is_tried = self.is_tried(&held);
        let before = self.held.replace(held);
        self.fallback = is_tried.then(|| self.fallback.take().unwrap_or(before));
    }

    fn is_tried(&self, held: &Held) -> bool {
        let confirmed = self.fallback.as_ref().unwrap_or(&self.held);
        let digest = confirmed.as_ref().map(|confirmed| confirmed.entry.stamp.digest);
        self.has_trials && digest != Some(held.entry.stamp.digest)
    }

    /// What the disk says of trials, when the agent starts.
    pub(super) fn load_trial(&mut self) {
        let Trial { fallback, shunned } = self.store.trial();
        self.shunned = shunned;
        self.fallback = fallback.map(|entry| entry.map(|entry| self.lay_out(entry)));
    }
}
