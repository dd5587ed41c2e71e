//! What the engine needs of a kernel and of a disk.

use holdfast_model::desired::Stamp;
use holdfast_model::digest::Digest;

use super::{Entry, Held, Origin, Trial};
use crate::plan::{Deviation, Difference, ObservedRule, Ruleset};

/// Why a kernel or a disk did not do something; ends in a log line or in a condition's text.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// How an attempt to change the kernel ended, by what was read back.
#[derive(Debug)]
pub enum Attempt {
    /// The kernel was read and holds the target.
    Holds,
    /// The kernel still holds what it held.
    Refused(Cause),
    /// The kernel holds something else.
    Differs(Difference),
    /// The kernel could not be read.
    Unreadable(Cause),
}

/// How much is read back after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// What changed, by key, if nobody else wrote meanwhile.
    Changed,
    /// The whole table; before it is written, it is tried.
    Whole,
}

/// One network namespace's nf_tables.
pub trait Kernel {
    /// Makes the table hold `target`, by an edit of `base` if it is known to hold that, else of whatever it holds.
    fn apply(&mut self, base: Option<&Ruleset>, target: &Ruleset, depth: Depth) -> Attempt;

    /// Reads the whole table; what of it differs from `target`.
    ///
    /// # Errors
    /// The reason if it could not be read.
    fn check(&mut self, target: &Ruleset) -> Result<Option<Deviation>, Cause>;

    /// Whether anybody wrote to any ruleset since the table was last read and found right.
    ///
    /// # Errors
    /// The reason if that could not be read.
    fn has_moved(&mut self) -> Result<bool, Cause>;

    /// The rules, with what they counted.
    ///
    /// # Errors
    /// The reason if they could not be read.
    fn rules(&mut self) -> Result<Vec<ObservedRule>, Cause>;

    /// Whether a table of our name is there.
    ///
    /// # Errors
    /// The reason if that could not be read.
    fn holds_table(&mut self) -> Result<bool, Cause>;

    /// Takes the table away; whether there was one.
    ///
    /// # Errors
    /// The reason if it is still there.
    fn remove(&mut self) -> Result<bool, Cause>;
}

/// What is written down before the kernel is touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Who rendered it.
    pub origin: Option<Origin>,
    /// Which policy it leads to.
    pub stamp: Stamp,
    /// How.
    pub content: RecordContent,
}

/// How a record leads to its policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordContent {
    /// By its flat bytes.
    Whole(Vec<u8>),
    /// By changes of the last good one, as `holdfast_wire` encodes them.
    Changes(Vec<u8>),
    /// By the last good one, unchanged.
    Same,
}

/// What a disk leads to after a step: all that is still needed of what is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct After<'a> {
    /// What is in force, or would be without a local policy.
    pub good: Option<&'a Entry>,
    /// What to go back to while that is on trial: the last confirmed policy, or that there was none.
    pub fallback: Option<Option<&'a Entry>>,
}

impl<'a> After<'a> {
    /// Where a step changed nothing of it.
    pub(super) fn of(held: Option<&'a Held>, fallback: Option<&'a Option<Entry>>) -> Self {
        Self { good: held.map(|held| &held.entry), fallback: fallback.map(Option::as_ref) }
    }
}

/// Last good on disk. Every method returns after file and folder are synced.
pub trait Store {
    /// Writes a candidate down.
    ///
    /// # Errors
    /// The reason if it is not durable.
    fn append(&mut self, record: &Record) -> Result<(), Cause>;

    /// Marks the candidate good.
    ///
    /// # Errors
    /// The reason if that is not durable.
    fn settle_good(&mut self, after: &After<'_>) -> Result<(), Cause>;

    /// Marks the candidate in force and on trial: what was confirmed last stays to be gone back to.
    ///
    /// # Errors
    /// The reason if that is not durable.
    fn settle_trial(&mut self, after: &After<'_>) -> Result<(), Cause>;

    /// What is on trial stays.
    ///
    /// # Errors
    /// The reason if that is not durable.
    fn settle_confirmed(&mut self, after: &After<'_>) -> Result<(), Cause>;

    /// What is on trial, of this content, is gone back from and not tried any more.
    ///
    /// # Errors
    /// The reason if that is not durable yet; it is before anything else is written then.
    fn settle_taken_back(&mut self, digest: Digest, after: &After<'_>) -> Result<(), Cause>;

    /// What was on trial when the disk was read, and what is not tried any more.
    fn trial(&self) -> Trial;

    /// Sees that the disk still has what was written, and writes what it leads to anew where it has not; whether it had to.
    ///
    /// # Errors
    /// The reason if it is not there.
    fn ensure_kept(&mut self, after: &After<'_>) -> Result<bool, Cause>;

    /// Marks the candidate failed.
    ///
    /// # Errors
    /// The reason if that is not durable.
    fn settle_failed(&mut self, after: &After<'_>) -> Result<(), Cause>;
}
