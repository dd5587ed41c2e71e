//! From the lines of a ledger to the last good policy and the candidate.
//!
//! - Every content is held against the digest that its record names; changes apply to the last good one and to nothing else.

use holdfast_model::artifact;
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::{self, Delta};
use holdfast_wire::decode_changes;

use super::record::Line;
use crate::engine::{Entry, Record, RecordContent};

/// What the lines lead to; `None` if they do not fit together.
pub(super) fn fold(lines: Vec<Line>) -> Option<(Option<Entry>, Option<Entry>)> {
    let (mut good, mut candidate): (Option<Entry>, Option<Entry>) = (None, None);
    for line in lines {
        match line {
            Line::Candidate(record) => candidate = Some(entry(good.as_ref(), record)?),
            Line::Good => good = Some(candidate.take()?),
            Line::Failed => {
                candidate.take()?;
            }
        }
    }
    Some((good, candidate))
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
