//! The kernel as the engine sees it: hold this, say what you hold, let go.
//!
//! - Write: read the generation, send a batch that names it, read back. No change of the generation proves that nothing was committed; one step
//!   up from a state that was verified proves that only our batch was.
//! - What is there is edited to what is wanted, from whatever it is. The table is replaced only where its flags are other ones or the kernel
//!   refuses the edit.
//! - After an edit of a verified state the changed rules and elements are read; otherwise, or when anybody else wrote meanwhile, the whole table.

use holdfast_runtime::fail_point;

use super::batch;
use super::link::{Answer, Error, Link};
use super::owner::{OWNED, PERSIST, TableOwner};
use super::{jitter, read, tracking};
use crate::engine::{Attempt, Cause, Depth, Kernel};
use crate::plan::{
    Deviation, Difference, Edits, Members, Observed, ObservedRule, Placed, Ruleset, Span, compare, compare_chain,
    edits_between, edits_from, tally,
};

/// How often a whole read begins anew because somebody wrote meanwhile.
const READS_MAX: u32 = 10;

/// The most changed intervals of a set that are read one by one: each costs two requests of some 10 µs, a dump about 1 µs an element.
const SPANS_BY_KEY_MAX: usize = 128;

/// A state of the table that was read back and found as planned.
struct Verified {
    generation: u32,
    placed: Placed,
}

/// How a change was taken.
enum Sent {
    /// The kernel holds what it held.
    Refused(Error),
    /// Something was committed.
    Committed {
        /// The generation now.
        generation: u32,
        /// Whether nothing but our batches was committed since the change began.
        is_alone: bool,
        /// What the kernel said.
        error: Option<Error>,
    },
}

/// Whether a ruleset has a hook that drops what nothing lets through.
fn drops(ruleset: &Ruleset) -> bool {
    ruleset.chains.iter().any(|chain| chain.drops)
}

/// nf_tables in this thread's network namespace.
pub struct Netfilter {
    link: Link,
    flags: u32,
    verified: Option<Verified>,
}

impl Netfilter {
    /// Opens the one socket and settles whether the table is owned.
    ///
    /// # Errors
    /// [`Error`] if there is no netlink socket to be had.
    pub fn open(owner: TableOwner) -> Result<Self, Error> {
        let mut link = Link::open(0)?;
        let flags = owner.flags(&mut link);
        Ok(Self { link, flags, verified: None })
    }

    /// Whether the table is owned.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.flags == OWNED
    }

    fn attempt(&mut self, base: Option<&Ruleset>, target: &Ruleset, depth: Depth) -> Result<Attempt, Error> {
        let generation = read::generation(&mut self.link)?;
        let (Some(base), Some(verified)) = (base, &self.verified) else { return self.reach(base, target) };
        let Some(edits) = edits_between(base, &verified.placed, target) else { return self.reach(Some(base), target) };
        let by_key = depth == Depth::Changed && verified.generation == generation && edits.keeps_the_frame();
        if edits.is_empty() {
            return if by_key { Ok(Attempt::Holds) } else { self.settle(Some(base), target, None) };
        }
        if drops(target) && !drops(base) {
            self.tell_tracking();
        }
        match self.commit(&edits, target, depth, generation)? {
            // Perhaps the table is not what was read last: once from what it holds now, and as a whole if that is refused too.
            Sent::Refused(error) if !error.is_transient() => {
                tracing::warn!(%error, "the table cannot be edited as it was read and is read anew");
                self.reach(Some(base), target)
            }
            Sent::Refused(error) => Ok(Attempt::Refused(error.into())),
            Sent::Committed { generation, is_alone, error } => {
                if by_key && is_alone && self.read_edited(&edits, target, generation)? {
                    return Ok(Attempt::Holds);
                }
                self.settle(Some(base), target, error)
            }
        }
    }

    /// Makes the table hold `target`, from whatever it holds.
    fn reach(&mut self, base: Option<&Ruleset>, target: &Ruleset) -> Result<Attempt, Error> {
        self.verified = None;
        let (generation, observed) = self.observe_ours()?;
        let is_edit = observed.as_ref().is_some_and(|observed| observed.flags == self.flags);
        let edits = match &observed {
            Some(_) if !is_edit => Edits::replacing(target),
            observed => edits_from(observed.as_ref(), target),
        };
        if edits.is_empty() {
            return self.settle(base, target, None);
        }
        let is_first = observed.is_none();
        if is_first || drops(target) && !observed.as_ref().is_some_and(Observed::drops) {
            self.tell_tracking();
        }
        let sent = match self.commit(&edits, target, Depth::Whole, generation)? {
            Sent::Refused(error) if is_edit && !matches!(error, Error::Stale) => {
                tracing::warn!(%error, "the table cannot be edited and is replaced");
                self.commit(&Edits::replacing(target), target, Depth::Whole, generation)?
            }
            sent @ (Sent::Refused(_) | Sent::Committed { .. }) => sent,
        };
        match sent {
            Sent::Refused(error) => Ok(Attempt::Refused(error.into())),
            Sent::Committed { error, .. } => {
                if is_first {
                    // Tracking sees packets only from now on, and what began since it was told it took up in the middle.
                    self.tell_tracking();
                }
                self.settle(base, target, error)
            }
        }
    }

    /// Tells connection tracking of what it did not see begin. Without it policies are enforced all the same, so a failure is said and no more.
    fn tell_tracking(&mut self) {
        match tracking::tell(&mut self.link) {
            Ok(told) => {
                tracing::debug!(new = told.new, turned = told.turned, "connection tracking knows all open connections")
            }
            Err(error) => {
                tracing::warn!(%error, "connections older than the table may be taken for opened from the other end")
            }
        }
    }

    /// Sends a change: on trial first if all of it is to be read anyway, and sets that come before what asks for them.
    fn commit(&mut self, edits: &Edits, target: &Ruleset, depth: Depth, generation: u32) -> Result<Sent, Error> {
        if depth == Depth::Whole {
            let trial = batch::edit(edits, self.flags, generation)?;
            let answer = self.link.batch(trial.dry(), "take the change on trial");
            // Answers that found no room are no refusal.
            if let Some(error) = answer.error.filter(|error| !error.is_overrun()) {
                return Ok(Sent::Refused(error));
            }
        }
        let Some((sets, rest)) = edits.split() else {
            let sent = self.send(edits, generation, "commit the change")?;
            fail_point("an update", "in the kernel, before it is read back");
            self.alter(target);
            return Ok(sent);
        };
        let between = match self.send(&sets, generation, "commit the sets that come")? {
            Sent::Committed { generation, is_alone: true, .. } => generation,
            other @ (Sent::Refused(_) | Sent::Committed { .. }) => return Ok(other),
        };
        fail_point("an update", "its sets in the kernel, before its rules");
        let sent = self.send(&rest, between, "commit the change")?;
        fail_point("an update", "in the kernel, before it is read back");
        self.alter(target);
        let Sent::Refused(error) = sent else { return Ok(sent) };
        let sets_drop = if sets.table_put { Vec::new() } else { sets.sets_put.into_keys().collect() };
        let undone = Edits { table_drop: sets.table_put, sets_drop, ..Edits::default() };
        let generation = read::generation(&mut self.link)?;
        Ok(match self.send(&undone, generation, "take sets back that nothing asks for")? {
            Sent::Committed { is_alone: true, .. } if generation == between => Sent::Refused(error),
            Sent::Refused(_) => Sent::Committed { generation, is_alone: false, error: Some(error) },
            Sent::Committed { generation, .. } => Sent::Committed { generation, is_alone: false, error: Some(error) },
        })
    }

    /// Sends one batch.
    fn send(&mut self, edits: &Edits, generation: u32, doing: &'static str) -> Result<Sent, Error> {
        let bytes = batch::edit(edits, self.flags, generation)?;
        let Answer { error } = self.link.batch(bytes.whole(), doing);
        let now = read::generation(&mut self.link)?;
        if now == generation {
            return Ok(Sent::Refused(error.unwrap_or(Error::Silent)));
        }
        Ok(Sent::Committed { generation: now, is_alone: now == generation.wrapping_add(1), error })
    }

    #[cfg(feature = "test-hooks")]
    fn alter(&mut self, target: &Ruleset) {
        super::hook::alter(&mut self.link, target);
    }

    #[cfg(not(feature = "test-hooks"))]
    #[expect(clippy::unused_self, reason = "a build with the hook uses it")]
    fn alter(&self, _: &Ruleset) {}

    /// Reads the whole table and says which of the two it is.
    fn settle(&mut self, base: Option<&Ruleset>, target: &Ruleset, error: Option<Error>) -> Result<Attempt, Error> {
        self.verified = None;
        let (generation, observed) = self.observe()?;
        let Some(observed) = observed else { return Ok(Attempt::Differs(Difference::NoTable)) };
        let difference = match self.compare(target, &observed) {
            Ok(placed) => {
                self.verified = Some(Verified { generation, placed });
                return Ok(Attempt::Holds);
            }
            Err(difference) => difference,
        };
        if let (Some(error), Some(base)) = (error, base)
            && let Ok(placed) = self.compare(base, &observed)
        {
            self.verified = Some(Verified { generation, placed });
            return Ok(Attempt::Refused(error.into()));
        }
        Ok(Attempt::Differs(difference))
    }

    fn compare(&self, planned: &Ruleset, observed: &Observed) -> Result<Placed, Difference> {
        if observed.flags != self.flags {
            return Err(Difference::TableFlags(observed.flags));
        }
        compare(planned, observed)
    }

    /// The whole table at one generation.
    fn observe(&mut self) -> Result<(u32, Option<Observed>), Error> {
        for _ in 0..READS_MAX {
            let before = read::generation(&mut self.link)?;
            match read::whole(&mut self.link) {
                Ok(observed) if read::generation(&mut self.link)? == before => return Ok((before, observed)),
                // Something went while it was listed: that is a change as well.
                Ok(_) | Err(Error::Stale | Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Restless)
    }

    /// Reads what an edit changed, by key; whether it is all as planned and nobody wrote since the edit.
    fn read_edited(&mut self, edits: &Edits, target: &Ruleset, generation: u32) -> Result<bool, Error> {
        let Some(mut verified) = self.verified.take() else { return Ok(false) };
        for edit in &edits.chains {
            let observed = read::rules(&mut self.link, Some(edit.name))?;
            let observed: Vec<&ObservedRule> = observed.iter().collect();
            let Some(planned) = target.chain(edit.name) else { return Ok(false) };
            match compare_chain(planned, &observed) {
                Ok(handles) => verified.placed.insert(edit.name, handles),
                Err(_) => return Ok(false),
            };
        }
        for edit in &edits.sets {
            let Some(planned) = target.sets.get(&edit.name) else { return Ok(false) };
            let as_planned = if edit.remove.len() + edit.add.len() > SPANS_BY_KEY_MAX {
                self.holds_all(&edit.name, planned)?
            } else {
                self.members_are(&edit.name, &edit.remove, &edit.add)?
            };
            if !as_planned {
                return Ok(false);
            }
        }
        for (name, members) in &edits.sets_put {
            if !self.holds_all(name, members)? {
                return Ok(false);
            }
        }
        if read::generation(&mut self.link)? != generation {
            return Ok(false);
        }
        verified.generation = generation;
        self.verified = Some(verified);
        Ok(true)
    }

    /// Whether a set has these members and no others.
    fn holds_all(&mut self, set: &str, members: &Members) -> Result<bool, Error> {
        let planned: Vec<_> = members.spans().into_iter().flat_map(Span::boundaries).collect();
        Ok(read::elements(&mut self.link, set)? == planned)
    }

    /// Whether every boundary that came is there and every one that went, and did not come again, is gone.
    fn members_are(&mut self, set: &str, gone: &[Span], come: &[Span]) -> Result<bool, Error> {
        let come: std::collections::BTreeSet<_> = come.iter().flat_map(|span| span.boundaries()).collect();
        for boundary in &come {
            if read::has_boundary(&mut self.link, set, *boundary)? != Some(true) {
                return Ok(false);
            }
        }
        for boundary in gone.iter().flat_map(|span| span.boundaries()) {
            if !come.contains(&boundary) && read::has_boundary(&mut self.link, set, boundary)? != Some(false) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The whole table at one generation, taken over first if its owner is gone.
    fn observe_ours(&mut self) -> Result<(u32, Option<Observed>), Error> {
        let (generation, observed) = self.observe()?;
        if self.flags == OWNED && observed.as_ref().is_some_and(|observed| observed.flags == PERSIST) {
            self.take_over(generation)?;
            return self.observe();
        }
        Ok((generation, observed))
    }

    fn take_over(&mut self, generation: u32) -> Result<(), Error> {
        let bytes = batch::adopt(self.flags, generation)?;
        match self.link.batch(bytes.whole(), "take an orphaned table over").error {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn check_whole(&mut self, target: &Ruleset) -> Result<Option<Deviation>, Error> {
        self.verified = None;
        #[cfg(feature = "test-hooks")]
        {
            super::hook::hang();
            if super::hook::is_dark() {
                return Err(Error::Silent);
            }
        }
        let (generation, observed) = self.observe_ours()?;
        let Some(observed) = observed else { return Ok(Some(Deviation::of_table(Difference::NoTable))) };
        Ok(match self.compare(target, &observed) {
            Ok(placed) => {
                self.verified = Some(Verified { generation, placed });
                None
            }
            Err(first @ (Difference::NoTable | Difference::TableFlags(_))) => Some(Deviation::of_table(first)),
            Err(first) => Some(Deviation { first, counts: tally(target, &observed) }),
        })
    }

    /// Tries again what the kernel may grant a moment later.
    fn patiently<T>(&mut self, mut ask: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let mut attempt = 0;
        loop {
            match ask(self) {
                Err(error) if error.is_transient() && attempt < jitter::RETRIES => {
                    attempt += 1;
                    tracing::debug!(%error, attempt, "netfilter request tried again");
                    jitter::pause(attempt);
                }
                other => return other,
            }
        }
    }
}

impl Kernel for Netfilter {
    fn apply(&mut self, base: Option<&Ruleset>, target: &Ruleset, depth: Depth) -> Attempt {
        let tried = self.patiently(|kernel| match kernel.attempt(base, target, depth)? {
            // A refusal that may pass goes round again like any other error.
            Attempt::Refused(cause) => match cause.downcast::<Error>() {
                Ok(error) if error.is_transient() => Err(*error),
                Ok(error) => Ok(Attempt::Refused(error)),
                Err(cause) => Ok(Attempt::Refused(cause)),
            },
            settled @ (Attempt::Holds | Attempt::Differs(_) | Attempt::Unreadable(_)) => Ok(settled),
        });
        tried.unwrap_or_else(|error| {
            self.verified = None;
            Attempt::Unreadable(error.into())
        })
    }

    fn check(&mut self, target: &Ruleset) -> Result<Option<Deviation>, Cause> {
        self.patiently(|kernel| kernel.check_whole(target)).map_err(Cause::from)
    }

    fn has_moved(&mut self) -> Result<bool, Cause> {
        let verified = self.verified.as_ref().map(|verified| verified.generation);
        let now = self.patiently(|kernel| read::generation(&mut kernel.link)).map_err(Cause::from)?;
        Ok(verified != Some(now))
    }

    fn rules(&mut self) -> Result<Vec<ObservedRule>, Cause> {
        self.patiently(|kernel| match read::table_flags(&mut kernel.link)? {
            None => Ok(Vec::new()),
            Some(_) => read::rules(&mut kernel.link, None),
        })
        .map_err(Cause::from)
    }

    fn holds_table(&mut self) -> Result<bool, Cause> {
        self.patiently(|kernel| Ok(read::table_flags(&mut kernel.link)?.is_some())).map_err(Cause::from)
    }

    fn remove(&mut self) -> Result<bool, Cause> {
        self.patiently(|kernel| {
            kernel.verified = None;
            let generation = read::generation(&mut kernel.link)?;
            if read::table_flags(&mut kernel.link)?.is_none() {
                return Ok(false);
            }
            let bytes = batch::remove(generation)?;
            let Answer { error } = kernel.link.batch(bytes.whole(), "let the table go");
            match read::table_flags(&mut kernel.link)? {
                None => Ok(true),
                Some(_) => Err(error.unwrap_or(Error::Silent)),
            }
        })
        .map_err(Cause::from)
    }
}
