//! A policy on trial: in force, and gone back from if it cut the host off from its gateways.
//!
//! - What was confirmed last stays at hand, on disk too, until what followed is confirmed; one confirmation is of all before it.
//! - What is kept beside a local policy is on trial once that is gone: it was never in force.
//! - An echo is no proof of a policy that the kernel is not known to hold.
//! - What an earlier process confirmed stays, and this one has seen no echo under it until it has one of its own.
//! - A content that cut the host off is known by its digest and not tried again: not by another version, a recovery, a restart.
//! - Where nothing was confirmed before, nothing is enforced again, also by the start after a crash.
//! - A disk that does not remember that is no reason to stay cut off.
//!
//! Whether a policy cuts the host off is not decided here.

use holdfast_model::desired::Stamp;
use holdfast_model::digest::Digest;
use holdfast_runtime::fail_point;

use super::{After, Cause, Engine, Entry, Held, Kernel, Store};
use crate::plan::{ObservedRule, is_gateway_cut};

/// Contents that are remembered; an operator has changed the policy long before there are so many.
const SHUNNED_MAX: usize = 16;

/// What the disk knows of trials.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    /// What to go back to while something is on trial: the last confirmed policy, or that there was none.
    pub fallback: Option<Option<Entry>>,
    /// Contents that are not tried any more, the latest last.
    pub shunned: Vec<Digest>,
    /// Whether the first policy of all was taken back: nothing is to be enforced, which is more than that nothing is known.
    pub is_opened: bool,
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
        let counts = |rule: &&ObservedRule| is_gateway_cut(rule.id.as_str());
        Ok(self.kernel.rules()?.iter().filter(counts).map(|rule| rule.counted.0).sum())
    }

    /// What is in force though this process has had no echo under it: an earlier one confirmed it.
    #[must_use]
    pub fn owes_echo(&self) -> Option<Stamp> {
        let is_settled = self.has_trials && self.local.is_none() && self.fallback.is_none();
        let held = self.held.as_ref().filter(|held| is_settled && self.echoed != Some(held.entry.stamp.digest));
        held.map(|held| held.entry.stamp)
    }

    /// What is in force led to a gateway, and with it all before it; whether that counts. It does not while the kernel is not known to hold it:
    /// whatever led to a gateway then is something else.
    ///
    /// # Errors
    /// The disk's reason; what is on trial still is then.
    pub fn confirm(&mut self) -> Result<bool, Cause> {
        let is_in_force = self.local.is_none() && !self.unproven;
        let Some(held) = self.held.as_ref().filter(|_| is_in_force) else { return Ok(false) };
        if self.fallback.is_some() {
            self.store.settle_confirmed(&After { good: Some(&held.entry), fallback: None })?;
            self.fallback = None;
            fail_point("a trial", "confirmed on disk, before it is told");
        }
        self.echoed = Some(held.entry.stamp.digest);
        Ok(true)
    }

    /// Goes back to what was confirmed last, and remembers what is on trial; what that was.
    ///
    /// # Errors
    /// The kernel's reason, and the slow tick tries again.
    pub fn take_back(&mut self) -> Result<Option<Stamp>, Cause> {
        let Some(stamp) = self.on_trial() else { return Ok(None) };
        let before = self.fallback.take().flatten();
        // On disk first: a crash from here on brings back the good one, and never this one again.
        let after = After { good: before.as_ref(), fallback: None };
        if let Err(error) = self.store.settle_taken_back(stamp.digest, &after) {
            tracing::error!(
                error = &*error as &dyn std::error::Error,
                "that a policy is taken back cannot be kept yet; an agent that starts meanwhile has it on trial once more"
            );
        }
        fail_point("a trial", "taken back on disk, before the kernel");
        shun(&mut self.shunned, stamp.digest);
        // With the gateways that are kept open now.
        self.held = before.map(|entry| self.lay_out(entry));
        self.owes_open = self.held.is_none();
        self.put_back()?;
        Ok(Some(stamp))
    }

    /// Makes an update good: on trial where its content is not the one that was confirmed last.
    pub(super) fn settle(&mut self, held: &Held) -> Result<(), Cause> {
        let good = Some(&held.entry);
        if !self.is_tried(held) {
            return self.store.settle_good(&After { good, fallback: None });
        }
        let before = self.held.as_ref().map(|held| &held.entry);
        let fallback = Some(self.fallback.as_ref().map_or(before, Option::as_ref));
        self.store.settle_trial(&After { good, fallback })
    }

    /// Holds what is in force now.
    pub(super) fn hold_in_force(&mut self, held: Held) {
        self.hold(held);
        self.prove();
    }

    /// Holds what was settled, on trial or not, as the disk has it.
    pub(super) fn hold(&mut self, held: Held) {
        let is_tried = self.is_tried(&held);
        let before = self.held.replace(held).map(|before| before.entry);
        self.fallback = is_tried.then(|| self.fallback.take().unwrap_or(before));
        self.owes_open = false;
    }

    fn is_tried(&self, held: &Held) -> bool {
        let before = self.held.as_ref().map(|held| &held.entry);
        let confirmed = self.fallback.as_ref().map_or(before, Option::as_ref);
        self.has_trials && confirmed.map(|confirmed| confirmed.stamp.digest) != Some(held.entry.stamp.digest)
    }

    /// What the disk says of trials, when the agent starts.
    pub(super) fn load_trial(&mut self) {
        Trial { fallback: self.fallback, shunned: self.shunned, is_opened: self.owes_open } = self.store.trial();
    }
}
