//! From the lines of a ledger to the last good policy, the candidate, and what is on trial.
//!
//! - Every content is held against the digest that its record names; changes apply to the last good one and to nothing else.
//! - A trial begins with the first policy that was not confirmed: however many follow, what was confirmed last is what is gone back to.
//! - A good one ends it. A confirmation of what is on no trial says nothing new: agents have written that.

use holdfast_model::artifact;
use holdfast_model::digest::Digest;
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::{self, Delta};
use holdfast_wire::decode_changes;

use super::record::Line;
use crate::engine::{Entry, Record, RecordContent, Trial, shun};

/// What the lines of a ledger lead to.
#[derive(Default)]
pub(super) struct Folded {
    pub(super) good: Option<Entry>,
    pub(super) candidate: Option<Entry>,
    pub(super) trial: Trial,
}

/// What the lines lead to; `None` if they do not fit together.
pub(super) fn fold(lines: Vec<Line>) -> Option<Folded> {
    let mut all = Folded::default();
    for line in lines {
        match line {
            Line::Candidate(record) => all.candidate = Some(entry(all.good.as_ref(), record)?),
            Line::Good => {
                all.good = Some(all.candidate.take()?);
                (all.trial.fallback, all.trial.is_opened) = (None, false);
            }
            Line::Trial => {
                let before = all.good.replace(all.candidate.take()?);
                all.trial.fallback.get_or_insert(before);
                all.trial.is_opened = false;
            }
            Line::Failed => drop(all.candidate.take()?),
            Line::Confirmed => all.trial.fallback = None,
            Line::TakenBack => {
                let digest: Digest = all.good.as_ref()?.stamp.digest;
                all.good = all.trial.fallback.take()?;
                all.trial.is_opened = all.good.is_none();
                shun(&mut all.trial.shunned, digest);
            }
            Line::Shunned(digest) => shun(&mut all.trial.shunned, digest),
            Line::Opened => all.trial.is_opened = true,
        }
    }
    Some(all)
}

fn entry(good: Option<&Entry>, record: Record) -> Option<Entry> {
    let body: Body = match record.content {
        RecordContent::Whole(bytes) => artifact::decode(&bytes).ok()?,
        RecordContent::Changes(changes) => {
            let good = good?;
            let changes = decode_changes(&changes).ok()?;
            delta::apply(&good.body, &Delta { base: good.stamp.digest, target: record.stamp.digest, changes }).ok()?
        }
        RecordContent::Same => good?.body.clone(),
    };
    (body.digest() == record.stamp.digest).then_some(Entry { origin: record.origin, stamp: record.stamp, body })
}
