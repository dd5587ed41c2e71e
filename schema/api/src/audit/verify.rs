//! Proof of a log, line by line, without the service that wrote it.

use std::fmt;

use serde::Serialize;

use super::chain::{Entry, EntryError, Head, Place};

/// What is wrong at one place of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// The entry at which it shows.
    pub n: u64,
    /// What it is.
    #[serde(flatten)]
    pub kind: FaultKind,
}

/// The kinds of faults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum FaultKind {
    /// The line is no entry.
    Unreadable {
        /// What the reader said.
        detail: String,
    },
    /// The entry does not have its own hash: its event, its number or its hash was changed.
    Changed,
    /// The entry does not continue the one before: one of the two was changed and hashed anew.
    Broken,
    /// Entries before this one are missing.
    Missing {
        /// The first number that is missing.
        from: u64,
        /// The last number that is missing.
        to: u64,
    },
    /// The entry stands after one that it should precede, or is there twice.
    Reordered,
    /// The chain holds, but the control plane's own order has a gap or goes back here.
    Order {
        /// What was expected.
        expected: Place,
        /// What was found.
        found: Place,
    },
    /// The log differs from the checkpoint at its entry: something up to here was rewritten.
    Rewritten,
    /// The log ends before the checkpoint.
    Cut {
        /// Where the log ends.
        end: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.n;
        match &self.kind {
            FaultKind::Unreadable { detail } => write!(f, "entry {n} cannot be read: {detail}"),
            FaultKind::Changed => write!(f, "entry {n} was changed: it does not have its own hash"),
            FaultKind::Broken => write!(f, "entry {n} does not continue the one before: one of the two was replaced"),
            FaultKind::Missing { from, to } if from == to => write!(f, "entry {from} is missing"),
            FaultKind::Missing { from, to } => write!(f, "entries {from} to {to} are missing"),
            FaultKind::Reordered => write!(f, "entry {n} is out of order or there twice"),
            FaultKind::Order { expected, found } => {
                write!(f, "entry {n} holds event {found} where {expected} follows")
            }
            FaultKind::Rewritten => write!(f, "the log is not the one of the checkpoint at entry {n}"),
            FaultKind::Cut { end } => write!(f, "the log ends at entry {end}, the checkpoint knows entry {n}"),
        }
    }
}

/// What a verification found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// How many entries were read.
    pub entries: u64,
    /// The last one.
    pub head: Head,
    /// The last entry that a checkpoint proves; what comes after could have been cut off or rewritten unseen.
    pub proven: Option<u64>,
    /// What is wrong, in the order of the log.
    pub faults: Vec<Fault>,
}

/// Reads a log from its first entry.
///
/// After a fault it goes on from what it found, so that one change is named once and later ones are found too.
pub struct Verifier {
    checkpoints: Vec<Head>,
    head: Head,
    place: Option<Place>,
    entries: u64,
    proven: Option<u64>,
    faults: Vec<Fault>,
}

impl Verifier {
    /// Verifies against the heads of checkpoints whose signatures were checked.
    #[must_use]
    pub fn new(mut checkpoints: Vec<Head>) -> Self {
        checkpoints.sort_by_key(|head| head.n);
        Self { checkpoints, head: Head::ORIGIN, place: None, entries: 0, proven: None, faults: Vec::new() }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: &str) {
        self.entries += 1;
        match Entry::parse(line) {
            Ok(entry) => {
                // Bytes beside the entry are no entry, but the log is not what was written.
                if entry.to_line() != line {
                    self.fault(entry.n, FaultKind::Changed);
                }
                self.entry(&entry);
            }
            Err(error) => {
                let detail = match error {
                    EntryError::Json(error) => error.to_string(),
                    EntryError::Place { .. } => error.to_string(),
                };
                // The next entry is held to what this one should have been; its own hash cannot be known.
                let n = self.head.n + 1;
                self.fault(n, FaultKind::Unreadable { detail });
                self.head.n = n;
            }
        }
    }

    fn entry(&mut self, entry: &Entry) {
        let after_unreadable = self
            .faults
            .last()
            .is_some_and(|fault| fault.n == self.head.n && matches!(fault.kind, FaultKind::Unreadable { .. }));
        let expected = self.head.n + 1;
        let changed = entry.computed_hash() != entry.hash;
        if entry.n > expected {
            self.fault(entry.n, FaultKind::Missing { from: expected, to: entry.n - 1 });
        } else if entry.n < expected {
            self.fault(entry.n, FaultKind::Reordered);
        } else if !after_unreadable && entry.prev != self.head.hash && !changed {
            self.fault(entry.n, FaultKind::Broken);
        }
        let told = self.faults.last().is_some_and(|fault| fault.n == entry.n && fault.kind == FaultKind::Changed);
        if changed && !told {
            self.fault(entry.n, FaultKind::Changed);
        }
        self.order(entry);
        // A moved entry does not set the place back: what follows it is held to the furthest entry seen.
        if entry.n >= expected {
            self.head = Head { n: entry.n, hash: entry.hash };
        }
        self.checkpoint(entry);
    }

    fn order(&mut self, entry: &Entry) {
        let found = match entry.place() {
            Ok(place) => place,
            Err(error) => return self.fault(entry.n, FaultKind::Unreadable { detail: error.to_string() }),
        };
        let expected = match self.place {
            None => Place { authority_epoch: found.authority_epoch, seq: 1 },
            // A later life of the database starts its order anew.
            Some(last) if found.authority_epoch > last.authority_epoch => Place { seq: 1, ..found },
            Some(last) => Place { seq: last.seq + 1, ..last },
        };
        // A break of the chain right here says it already.
        let told = self.faults.last().is_some_and(|fault| fault.n == entry.n);
        if found != expected && !told {
            self.fault(entry.n, FaultKind::Order { expected, found });
        }
        if self.place.is_none_or(|last| found > last) {
            self.place = Some(found);
        }
    }

    fn checkpoint(&mut self, entry: &Entry) {
        while let Some(known) = self.checkpoints.first().copied().filter(|known| known.n <= entry.n) {
            self.checkpoints.remove(0);
            if known.n == entry.n && known.hash == entry.hash {
                if self.faults.is_empty() {
                    self.proven = Some(known.n);
                }
            } else {
                self.fault(known.n, FaultKind::Rewritten);
            }
        }
    }

    fn fault(&mut self, n: u64, kind: FaultKind) {
        self.faults.push(Fault { n, kind });
    }

    /// Ends the log.
    #[must_use]
    pub fn finish(mut self) -> Report {
        let end = self.head.n;
        for known in std::mem::take(&mut self.checkpoints) {
            if known.n > 0 {
                self.fault(known.n, FaultKind::Cut { end });
            }
        }
        Report { entries: self.entries, head: self.head, proven: self.proven, faults: self.faults }
    }
}

#[cfg(test)]
mod tests;
