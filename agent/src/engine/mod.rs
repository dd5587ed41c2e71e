//! One update at a time: accepted, made durable, put into the kernel, read back, made good.
//!
//! - Order: candidate on disk → kernel → read back → good on disk → outcome. A crash at any point leaves the old state or the new one, and the start
//!   after it can tell which.
//! - What is not proven is not called applied: anything but a read-back that equals the plan brings the last good state back.
//! - A local policy goes before what was rendered: what is sent meanwhile is checked and kept, and in force once the local one is gone: on trial then,
//!   where its content was never confirmed.
//! - What is held and what is on trial are the same in memory and on disk after each step.
//! - A table that the disk does not know is left alone until something takes its place, also by an update that fails.
//! - Kernel and disk are traits here; the machine itself touches neither clock nor socket.
//!
//! It does not check signatures (the session does, before) and does not decide when to drop a session.

mod accept;
mod ports;
mod trial;
mod update;

use holdfast_model::condition::Reason;
use holdfast_model::desired::Stamp;
use holdfast_model::digest::Digest;
use holdfast_model::policy::Body;
use holdfast_model::statement::Authority;
use holdfast_runtime::fail_point;

pub use ports::{After, Attempt, Cause, Depth, Kernel, Record, RecordContent, Store};
pub use trial::Trial;
pub(crate) use trial::shun;
pub use update::{Content, Outcome, Update};

use crate::plan::{Deviation, Kept, ObservedRule, Ruleset, layout};
use accept::Refusal;

/// Who rendered a policy, and the proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Under whose authority.
    pub authority: Authority,
    /// The renderer's signature over the statement of the desired state.
    pub signature: [u8; 64],
}

/// A policy that is in force.
#[derive(Clone, Debug)]
pub struct Held {
    /// Itself.
    pub entry: Entry,
    /// What the kernel holds for it.
    pub ruleset: Ruleset,
}

/// A policy as the disk has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Who rendered it; absent for one from a local file.
    pub origin: Option<Origin>,
    /// Which one it is.
    pub stamp: Stamp,
    /// Itself.
    pub body: Body,
}

/// What the disk gave at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "one value, once per start")]
pub enum Loaded {
    /// There is no file.
    Missing,
    /// There is a file, and it cannot be used; it stays where it is until something good is to be kept.
    Unusable,
    /// What was good last, and what was on its way into the kernel.
    Found {
        /// The last good one.
        good: Option<Entry>,
        /// One that was written down and not settled.
        candidate: Option<Entry>,
    },
}

/// How a start ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// The kernel held it already and nothing was written.
    Untouched,
    /// It was put into the kernel again.
    Restored,
    /// The candidate of the crash was in the kernel, whole, and is good now.
    Completed,
    /// There was nothing to enforce; the kernel counts and drops nothing.
    Fresh,
    /// The disk gave nothing, and the kernel keeps the table that it has until something good is to be kept.
    LeftAlone,
}

/// A policy of this host's own that is enforced in place of what was rendered for it.
#[derive(Clone, Debug)]
pub struct Local {
    /// Itself.
    pub body: Body,
    /// What the kernel holds for it.
    pub ruleset: Ruleset,
}

/// The machine.
pub struct Engine<K, S> {
    kernel: K,
    store: S,
    kept: Kept,
    held: Option<Held>,
    /// What is enforced in place of what is held.
    local: Option<Local>,
    /// Whether policies have to prove that they lead to a gateway.
    has_trials: bool,
    /// What to go back to while something is on trial.
    fallback: Option<Option<Entry>>,
    /// The content under which this process had an echo of a gateway last.
    echoed: Option<Digest>,
    /// Contents that are not tried any more.
    shunned: Vec<Digest>,
    /// Nothing is to be enforced, since what was enforced was taken back: the open table is ours to keep.
    owes_open: bool,
    /// Set while the kernel is not known to hold what it should.
    unproven: bool,
    /// Set until the kernel has taken what is to be in force, from the start on and each time that it refused to: what differs meanwhile is nobody
    /// else's doing.
    owes_table: bool,
    /// The kernel has a table from before that the disk does not know: it stays until something takes its place.
    leaves_alone: bool,
    drifts: u64,
}

impl<K: Kernel, S: Store> Engine<K, S> {
    /// A machine that holds nothing yet.
    pub fn new(kernel: K, store: S, kept: Kept) -> Self {
        Self {
            kernel,
            store,
            kept,
            held: None,
            local: None,
            has_trials: false,
            fallback: None,
            echoed: None,
            shunned: Vec::new(),
            owes_open: false,
            unproven: true,
            owes_table: true,
            leaves_alone: false,
            drifts: 0,
        }
    }

    /// The same, with a policy of this host's own from the start on: nothing else is in force for a moment.
    #[must_use]
    pub fn with_local(mut self, body: Option<Body>) -> Self {
        self.local = body.map(|body| self.lay_out_local(body));
        self
    }

    /// What is in force, or would be without a local policy.
    #[must_use]
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// What is in force in its place.
    #[must_use]
    pub fn local(&self) -> Option<&Local> {
        self.local.as_ref()
    }

    /// What the kernel is to hold; absent if nothing was ever told.
    #[must_use]
    pub fn in_force(&self) -> Option<(&Body, &Ruleset)> {
        in_force(self.local.as_ref(), self.held.as_ref())
    }

    /// Whether the kernel was read and holds what it should.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        !self.unproven
    }

    /// Whether the kernel has not taken what is to be in force, which this process is to get there: what differs then is nobody else's doing.
    #[must_use]
    pub fn owes_table(&self) -> bool {
        self.owes_table
    }

    /// How often the kernel was found to hold something else, by another's doing.
    #[must_use]
    pub fn drifts(&self) -> u64 {
        self.drifts
    }

    /// Puts the last good state into force, before anybody is dialled.
    ///
    /// # Errors
    /// The kernel's or the disk's reason if the last good state could not be proven; what the kernel held stays.
    pub fn start(&mut self, loaded: Loaded) -> Result<Started, Cause> {
        self.load_trial();
        if self.local.is_some() {
            return self.start_with_local(loaded);
        }
        match loaded {
            Loaded::Unusable if self.kernel.holds_table()? => Ok(self.leave_alone()),
            Loaded::Missing | Loaded::Unusable => self.start_with_nothing(),
            Loaded::Found { good, candidate } => {
                // Held before the kernel is asked: if it does not answer now, the repair knows what to bring back.
                self.held = good.map(|entry| self.lay_out(entry));
                if let Some(entry) = candidate {
                    let held = self.lay_out(entry);
                    if self.kernel.check(&held.ruleset)?.is_none() {
                        self.settle(&held)?;
                        self.hold_in_force(held);
                        return Ok(Started::Completed);
                    }
                    self.store.settle_failed(&After::of(self.held.as_ref(), self.fallback.as_ref()))?;
                }
                // A file that was cut right behind its head looks like one that never had a policy, but not like one whose policy was taken back.
                if self.held.is_none() && !self.owes_open {
                    return self.start_with_nothing();
                }
                if self.find_difference()?.is_some() {
                    self.put_back()?;
                    return Ok(Started::Restored);
                }
                Ok(Started::Untouched)
            }
        }
    }

    /// The local policy is in force, whatever the disk has; what is on its way there was never in the kernel.
    fn start_with_local(&mut self, loaded: Loaded) -> Result<Started, Cause> {
        if let Loaded::Found { good, candidate } = loaded {
            self.held = good.map(|entry| self.lay_out(entry));
            if candidate.is_some() {
                self.store.settle_failed(&After::of(self.held.as_ref(), self.fallback.as_ref()))?;
            }
        }
        let Some(local) = &self.local else { return self.start_with_nothing() };
        if self.kernel.check(&local.ruleset)?.is_some() {
            self.put_back()?;
            return Ok(Started::Restored);
        }
        self.prove();
        Ok(Started::Untouched)
    }

    /// Enforces a policy of this host's own in place of what was rendered for it.
    ///
    /// # Errors
    /// The kernel's reason if it is not in force; what was in force before is.
    pub fn enforce_local(&mut self, body: Body) -> Result<(), Cause> {
        let local = self.lay_out_local(body);
        let base = in_force(self.local.as_ref(), self.held.as_ref()).filter(|_| !self.unproven).map(|(_, rules)| rules);
        let cause: Cause = match self.kernel.apply(base, &local.ruleset, Depth::Whole) {
            Attempt::Holds => {
                self.local = Some(local);
                self.prove();
                return Ok(());
            }
            Attempt::Refused(cause) => return Err(cause),
            Attempt::Unreadable(cause) => cause,
            Attempt::Differs(difference) => difference.to_string().into(),
        };
        self.bring_back();
        Err(cause)
    }

    /// Enforces again what was rendered; false if nothing was in its place.
    ///
    /// # Errors
    /// The kernel's reason if that is not in force; the local policy still is then, as whoever asked is told.
    pub fn lift_local(&mut self) -> Result<bool, Cause> {
        let Some(local) = self.local.take() else { return Ok(false) };
        match self.put_back() {
            Ok(()) => Ok(true),
            Err(cause) => {
                self.local = Some(local);
                self.bring_back();
                Err(cause)
            }
        }
    }

    /// The disk names nothing to enforce. Where there is no table: one that counts and drops nothing, so that connections are tracked from the first
    /// day.
    fn start_with_nothing(&mut self) -> Result<Started, Cause> {
        if !self.kernel.holds_table()? {
            self.put_back()?;
            return Ok(Started::Fresh);
        }
        if self.kernel.check(&self.open_table())?.is_none() {
            self.prove();
            return Ok(Started::Fresh);
        }
        Ok(self.leave_alone())
    }

    /// Somebody's last good, though nobody knows whose: less than that is never enforced.
    fn leave_alone(&mut self) -> Started {
        self.leaves_alone = true;
        Started::LeftAlone
    }

    /// Takes one update, whole or not at all.
    pub fn apply(&mut self, update: &Update) -> Outcome {
        if self.local.is_some() {
            return match self.try_retain(update) {
                Ok(held) => {
                    self.hold(held);
                    Outcome::retained(update)
                }
                Err(refusal) => Outcome::new(update, None, Some(refusal)),
            };
        }
        match self.try_apply(update) {
            Ok(held) => {
                self.hold_in_force(held);
                self.outcome(update, None)
            }
            Err(refusal) => self.outcome(update, Some(refusal)),
        }
    }

    fn try_apply(&mut self, update: &Update) -> Result<Held, Refusal> {
        if self.is_shunned(update.stamp.digest) {
            return Err(Refusal::cut_off());
        }
        let body = accept::accept(self.held.as_ref().map(|held| &held.entry), update)?;
        let held = self.lay_out(Entry { origin: update.origin, stamp: update.stamp, body });
        let record = Record { origin: update.origin, stamp: update.stamp, content: accept::record(update) };
        fail_point("an update", "accepted, before it is on disk");
        self.store.append(&record).map_err(|cause| Refusal::accepted(Reason::NotDurable, &*cause))?;
        fail_point("an update", "on disk, before it is in the kernel");
        // A kernel that is not known to hold the base is read before it is edited.
        let base = self.held.as_ref().filter(|_| !self.unproven).map(|held| &held.ruleset);
        let depth = match update.content {
            Content::Whole(_) => Depth::Whole,
            Content::Changes { .. } | Content::Same => Depth::Changed,
        };
        let failed = match self.kernel.apply(base, &held.ruleset, depth) {
            Attempt::Holds => {
                fail_point("an update", "read back, before it is good on disk");
                match self.settle(&held) {
                    Ok(()) => {
                        fail_point("an update", "good on disk, before it is told");
                        return Ok(held);
                    }
                    Err(cause) => {
                        self.bring_back();
                        return Err(Refusal::accepted(Reason::NotDurable, &*cause));
                    }
                }
            }
            Attempt::Refused(cause) => Refusal::refused_by_kernel(&*cause),
            Attempt::Differs(difference) => {
                self.bring_back();
                Refusal::differs(&difference)
            }
            Attempt::Unreadable(cause) => {
                self.bring_back();
                Refusal::unreadable(&*cause)
            }
        };
        let after = After::of(self.held.as_ref(), self.fallback.as_ref());
        if let Err(error) = self.store.settle_failed(&after) {
            // The candidate stays unsettled; the next start compares it with the kernel and finds that it is not there.
            tracing::warn!(%error, "failed update could not be settled on disk");
        }
        Err(failed)
    }

    /// Checks an update and makes it durable, for the day on which the local policy goes; the kernel is not touched.
    fn try_retain(&mut self, update: &Update) -> Result<Held, Refusal> {
        if self.is_shunned(update.stamp.digest) {
            return Err(Refusal::cut_off());
        }
        let body = accept::accept(self.held.as_ref().map(|held| &held.entry), update)?;
        let held = self.lay_out(Entry { origin: update.origin, stamp: update.stamp, body });
        let record = Record { origin: update.origin, stamp: update.stamp, content: accept::record(update) };
        self.store.append(&record).map_err(|cause| Refusal::accepted(Reason::NotDurable, &*cause))?;
        self.settle(&held).map_err(|cause| Refusal::accepted(Reason::NotDurable, &*cause))?;
        Ok(held)
    }

    fn outcome(&self, update: &Update, refusal: Option<Refusal>) -> Outcome {
        Outcome::new(update, self.held.as_ref().map(|held| held.entry.stamp), refusal)
    }

    /// The last good state after an update went wrong half way. Where nobody knows it, what the kernel has stays: what was there before, or what
    /// was to take its place.
    fn bring_back(&mut self) {
        if self.leaves_alone && self.in_force().is_none() {
            self.unproven = true;
            return;
        }
        if let Err(error) = self.put_back() {
            tracing::error!(%error, "last good policy could not be brought back");
        }
    }

    /// Brings back what is to be in force, or the open table if nothing is, from whatever the kernel holds.
    fn put_back(&mut self) -> Result<(), Cause> {
        self.unproven = true;
        let open;
        let ruleset = match in_force(self.local.as_ref(), self.held.as_ref()) {
            Some((_, ruleset)) => ruleset,
            None => {
                open = self.open_table();
                &open
            }
        };
        let cause = match self.kernel.apply(None, ruleset, Depth::Whole) {
            Attempt::Holds => {
                self.prove();
                return Ok(());
            }
            Attempt::Refused(cause) => {
                self.owes_table = true;
                cause
            }
            Attempt::Unreadable(cause) => cause,
            Attempt::Differs(difference) => {
                // The kernel took it, and what is there is another's.
                self.owes_table = false;
                difference.to_string().into()
            }
        };
        Err(cause)
    }

    /// The kernel was seen to hold what is to be in force.
    fn prove(&mut self) {
        (self.unproven, self.owes_table, self.leaves_alone) = (false, false, false);
    }

    /// Reads the whole table; what differs, if anything does: it is to be repaired. It is drift unless it [was owed](Self::owes_table) before.
    ///
    /// # Errors
    /// The kernel's reason if it could not be read; nothing is proven then.
    pub fn find_drift(&mut self) -> Result<Option<Deviation>, Cause> {
        let is_owed = self.owes_table;
        let deviation = self.find_difference()?;
        self.drifts += u64::from(deviation.is_some() && !is_owed);
        Ok(deviation)
    }

    /// What of the table differs from what is to be in force.
    fn find_difference(&mut self) -> Result<Option<Deviation>, Cause> {
        let open;
        let ruleset = match in_force(self.local.as_ref(), self.held.as_ref()) {
            Some((_, ruleset)) => ruleset,
            None if self.owes_open => {
                open = self.open_table();
                &open
            }
            None => return Ok(None),
        };
        let found = self.kernel.check(ruleset);
        if matches!(found, Ok(None)) {
            self.prove();
        } else {
            self.doubt();
        }
        found
    }

    /// Sees that the disk still has what is held, and what is on trial; whether it had to be written anew.
    ///
    /// # Errors
    /// The disk's reason if it has not.
    pub fn ensure_kept(&mut self) -> Result<bool, Cause> {
        self.store.ensure_kept(&After::of(self.held.as_ref(), self.fallback.as_ref()))
    }

    /// Brings back what is to be in force.
    ///
    /// # Errors
    /// The kernel's reason if that is not there yet; it is to be tried again.
    pub fn repair(&mut self) -> Result<(), Cause> {
        self.put_back()
    }

    /// Whether anybody wrote to any ruleset since ours was last read and found right.
    ///
    /// # Errors
    /// The kernel's reason if that could not be read; what is to be in force is not proven then.
    pub fn has_moved(&mut self) -> Result<bool, Cause> {
        let moved = self.kernel.has_moved();
        if moved.is_err() && (self.owes_open || self.in_force().is_some()) {
            self.doubt();
        }
        moved
    }

    /// Somebody wrote to the table and it is not read now: nothing is proven until the next read.
    pub fn doubt(&mut self) {
        self.unproven = true;
    }

    /// Changes what is kept open whatever was rendered; the version stays.
    ///
    /// # Errors
    /// The kernel's reason if the table could not be changed; what was kept before stays.
    pub fn keep(&mut self, kept: Kept) -> Result<(), Cause> {
        if kept == self.kept {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.kept, kept);
        let Some((body, before_it)) = in_force(self.local.as_ref(), self.held.as_ref()) else { return Ok(()) };
        let ruleset = layout(body, &self.kept);
        let base = (!self.unproven).then_some(before_it);
        let cause = match self.kernel.apply(base, &ruleset, Depth::Changed) {
            Attempt::Holds => {
                self.prove();
                match self.local.take() {
                    None => self.held = self.held.take().map(|held| Held { ruleset, ..held }),
                    Some(local) => {
                        self.held = self.held.take().map(|held| self.lay_out(held.entry));
                        self.local = Some(Local { ruleset, ..local });
                    }
                }
                return Ok(());
            }
            Attempt::Refused(cause) => cause,
            Attempt::Unreadable(cause) => {
                self.unproven = true;
                cause
            }
            Attempt::Differs(difference) => {
                self.unproven = true;
                difference.to_string().into()
            }
        };
        self.kept = before;
        if self.unproven {
            self.bring_back();
        }
        Err(cause)
    }

    /// What is kept open.
    #[must_use]
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The rules in the kernel, with what they counted.
    ///
    /// # Errors
    /// The kernel's reason if they cannot be read.
    pub fn rules(&mut self) -> Result<Vec<ObservedRule>, Cause> {
        self.kernel.rules()
    }

    /// Takes our table out of the kernel; whether there was one. The disk keeps the last good state.
    ///
    /// # Errors
    /// The kernel's reason if the table is still there.
    pub fn down(&mut self) -> Result<bool, Cause> {
        self.unproven = true;
        self.kernel.remove()
    }

    /// What a host enforces that was never told anything.
    fn open_table(&self) -> Ruleset {
        layout(&Body::default(), &self.kept)
    }

    fn lay_out(&self, entry: Entry) -> Held {
        let ruleset = layout(&entry.body, &self.kept);
        Held { entry, ruleset }
    }

    fn lay_out_local(&self, body: Body) -> Local {
        let ruleset = layout(&body, &self.kept);
        Local { body, ruleset }
    }
}

/// A local policy goes before what is held.
fn in_force<'a>(local: Option<&'a Local>, held: Option<&'a Held>) -> Option<(&'a Body, &'a Ruleset)> {
    let local = local.map(|local| (&local.body, &local.ruleset));
    local.or_else(|| held.map(|held| (&held.entry.body, &held.ruleset)))
}

#[cfg(test)]
mod tests;
