//! Facts of many sessions on their way to the authority: what waits, what goes together, what is tried again.
//!
//! - The first fact after quiet goes at once; then writes begin a gathering apart at least, and all that came between goes in one batch. One is under
//!   way at a time, and no fact overtakes another.
//! - Nothing is dropped while the authority is away: facts wait, within their room, and are tried again after waits that double.
//! - What a host says over and over coalesces: of how it is as a whole the newest waits, one for each host and behind what came before it. Of presence
//!   too, which says how long ago it was, as of the very try that says it; one whose first try failed is none, for the host is heard again.
//! - A goodbye is the last of its session: it is always taken, and the last status goes before it.
//! - A batch that is refused for a value in it is halved until the one fact is found that can never be written, and that one is left out.
//!
//! It knows no authority and no lease: the shell asks for a batch only while it may write.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use holdfast_model::ids::HostId;
use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::numbers::SessionEpoch;

use crate::time::Instant;

/// How a fact waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// In its place, within the room that there is.
    Kept,
    /// The newest of its host, behind what came before it.
    Status,
    /// Always, and the last status before it.
    Goodbye,
    /// As what it is worth now: it is made when a batch is.
    Presence,
}

/// Facts as a shell has them.
pub trait Kind {
    /// One of them.
    type Fact: Clone + Debug;

    /// Whose it is, and of which session.
    fn place(fact: &Self::Fact) -> (HostId, SessionEpoch);

    /// How it waits.
    fn sort(fact: &Self::Fact) -> Sort;

    /// A host was heard so long ago.
    fn presence(host: HostId, session_epoch: SessionEpoch, age: Duration) -> Self::Fact;
}

/// How much, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Facts that wait, without statuses (one for each host) and goodbyes (one for each session).
    pub waiting_max: usize,
    /// Facts in one batch.
    pub batch_max: usize,
    /// How far apart batches begin at least.
    pub gather: Duration,
    /// How long presence is gathered while there is nothing else.
    pub presence_gather: Duration,
    /// The wait before a batch that failed is tried again, and its cap.
    pub retry: Duration,
    /// See [`Limits::retry`].
    pub retry_max: Duration,
}

/// There is no room for another fact: the session that saw it cannot go on, since it would be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// What is done with the batch that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing: the next is free to begin.
    Idle,
    /// It is being written.
    UnderWay,
    /// It failed, and waits.
    Waiting(Instant),
}

/// Something that is being written.
#[derive(Clone, Debug)]
enum Entry<F> {
    Fact(F),
    Heard { host: HostId, session_epoch: SessionEpoch, at: Instant },
}

/// All that waits, and what is being written.
#[derive(Debug)]
pub struct Facts<K: Kind> {
    limits: Limits,
    /// In the order in which they were seen.
    waiting: VecDeque<K::Fact>,
    /// The newest word of each host of itself as a whole.
    statuses: BTreeMap<HostId, K::Fact>,
    heard: BTreeMap<HostId, (SessionEpoch, Instant)>,
    /// Since when presence is gathered.
    heard_since: Instant,
    /// When the last batch began.
    begun: Instant,
    /// The parts of a batch that are not written yet, the next one last.
    writing: Vec<Vec<Entry<K::Fact>>>,
    /// Since when none of it was written.
    writing_since: Instant,
    phase: Phase,
    /// After the next failure.
    retry: Duration,
    faults: Faults,
}

impl<K: Kind> Facts<K> {
    /// Nothing waits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            statuses: BTreeMap::new(),
            heard: BTreeMap::new(),
            heard_since: Instant::default(),
            begun: Instant::default(),
            writing: Vec::new(),
            writing_since: Instant::default(),
            phase: Phase::Idle,
            retry: limits.retry,
            faults: Faults::default(),
        }
    }

    /// The same with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// A host was heard: it coalesces, so it is always taken.
    pub fn put_heard(&mut self, host: HostId, session_epoch: SessionEpoch, now: Instant) {
        if self.heard.is_empty() {
            self.heard_since = now;
        }
        self.heard.insert(host, (session_epoch, now));
    }

    /// Takes a fact. One of presence is taken as a sign of life of just now.
    ///
    /// # Errors
    /// [`NoRoom`] if as many wait as may.
    pub fn put(&mut self, fact: K::Fact, now: Instant) -> Result<(), NoRoom> {
        let (host, session_epoch) = K::place(&fact);
        match K::sort(&fact) {
            Sort::Presence => self.put_heard(host, session_epoch, now),
            // It takes the room of the one before it.
            Sort::Status => {
                let is_older = self.statuses.get(&host).is_some_and(|known| K::place(known).1 > session_epoch);
                if !is_older {
                    self.statuses.insert(host, fact);
                }
            }
            Sort::Goodbye if self.faults.has(Mutant::GoodbyeFirst) => self.waiting.push_front(fact),
            Sort::Goodbye => {
                let last = self.statuses.remove(&host);
                self.waiting.extend(last);
                self.waiting.push_back(fact);
            }
            Sort::Kept if self.waiting.len() >= self.limits.waiting_max => return Err(NoRoom),
            Sort::Kept => self.waiting.push_back(fact),
        }
        Ok(())
    }

    /// How many facts wait, and of how many hosts a sign of life.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiting.len() + self.statuses.len(), self.heard.len())
    }

    /// How many facts were taken to be written and are not yet.
    #[must_use]
    pub fn writing(&self) -> usize {
        self.writing.iter().map(Vec::len).sum()
    }

    /// For how long nothing was written of what is being written; nothing if there is none.
    #[must_use]
    pub fn waits(&self, now: Instant) -> Option<Duration> {
        (!self.writing.is_empty()).then(|| now.since(self.writing_since))
    }

    /// When there is a batch to write; nothing while one is under way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        match self.phase {
            Phase::UnderWay => None,
            Phase::Waiting(until) => Some((until, "try facts again")),
            Phase::Idle if !self.writing.is_empty() => Some((self.writing_since, "write the rest of a batch")),
            Phase::Idle if self.waiting().0 > 0 => Some((self.begun.plus(self.limits.gather), "write facts")),
            Phase::Idle if !self.heard.is_empty() => {
                Some((self.heard_since.plus(self.limits.presence_gather), "write presence"))
            }
            Phase::Idle => None,
        }
    }

    /// The next batch, if it is time; what came of it is to be told before there is another.
    pub fn poll_batch(&mut self, now: Instant) -> Option<Vec<K::Fact>> {
        if self.poll_timeout().is_none_or(|(due, _)| due > now) {
            return None;
        }
        if self.writing.is_empty() {
            let batch = self.take(now);
            self.writing.push(batch);
            (self.begun, self.writing_since, self.retry) = (now, now, self.limits.retry);
        }
        self.phase = Phase::UnderWay;
        let said_at = if self.faults.has(Mutant::PresenceKept) { self.begun } else { now };
        Some(self.writing.last()?.iter().map(|entry| said::<K>(entry, said_at)).collect())
    }

    /// The next facts to write; how hosts are after what they answered, and signs of life after that.
    fn take(&mut self, now: Instant) -> Vec<Entry<K::Fact>> {
        let batch_max = self.limits.batch_max;
        let count = self.waiting.len().min(batch_max);
        let mut batch: Vec<Entry<K::Fact>> = self.waiting.drain(..count).map(Entry::Fact).collect();
        while batch.len() < batch_max
            && let Some((_, status)) = self.statuses.pop_first()
        {
            batch.push(Entry::Fact(status));
        }
        while batch.len() < batch_max
            && let Some((host, (session_epoch, at))) = self.heard.pop_first()
        {
            batch.push(Entry::Heard { host, session_epoch, at });
        }
        self.heard_since = now;
        batch
    }

    /// The batch was written, and is given back.
    pub fn handle_written(&mut self, now: Instant) -> Vec<K::Fact> {
        (self.phase, self.retry, self.writing_since) = (Phase::Idle, self.limits.retry, now);
        self.writing.pop().unwrap_or_default().iter().map(|entry| said::<K>(entry, now)).collect()
    }

    /// The batch was refused for a value in it: its halves come next. If it is of a single fact, that one is left out and given back: it would be refused
    /// for ever, and what waits behind it with it.
    pub fn handle_refused(&mut self, now: Instant) -> Option<K::Fact> {
        self.phase = Phase::Idle;
        let mut facts = self.writing.pop()?;
        if facts.len() <= 1 {
            self.writing_since = now;
            return facts.pop().map(|entry| said::<K>(&entry, now));
        }
        let later = facts.split_off(facts.len() / 2);
        if !self.faults.has(Mutant::HalfForgotten) {
            self.writing.push(later);
        }
        self.writing.push(facts);
        None
    }

    /// The batch was not written, or not known to be: it is tried again after a wait, without signs of life.
    pub fn handle_failed(&mut self, now: Instant) {
        if !self.faults.has(Mutant::PresenceKept) {
            let is_fact = |entry: &Entry<K::Fact>| matches!(entry, Entry::Fact(_));
            self.writing.iter_mut().for_each(|part| part.retain(is_fact));
            self.writing.retain(|part| !part.is_empty());
        }
        if self.writing.is_empty() {
            self.phase = Phase::Idle;
            return;
        }
        self.phase = Phase::Waiting(now.plus(self.retry));
        self.retry = self.limits.retry_max.min(self.retry * 2);
    }
}

/// What an entry says at a moment.
fn said<K: Kind>(entry: &Entry<K::Fact>, now: Instant) -> K::Fact {
    match entry {
        Entry::Fact(fact) => fact.clone(),
        Entry::Heard { host, session_epoch, at } => K::presence(*host, *session_epoch, now.since(*at)),
    }
}

#[cfg(test)]
mod tests;
