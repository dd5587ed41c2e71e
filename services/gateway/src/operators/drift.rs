//! A host's drift, as answers have it.
//!
//! - A war is told as one only while it is heard of: an agent that ended in the middle of one says nothing more, and its next start counts anew.

use holdfast_api::status::DriftView;
use holdfast_model::drift::DriftKind;
use holdfast_store::drift::KeptDrift;
use time::{Duration, OffsetDateTime};

use super::hosts::rfc3339;

/// A war leads to a repair on each slow tick of its agent, which is told: so much later without one it is over.
const CONTENDED_FOR: Duration = Duration::minutes(2);

/// What is kept of one host's drift in one view; nothing if nothing ever drifted.
pub(crate) fn drift_view(kept: &[KeptDrift], now: OffsetDateTime) -> Option<DriftView> {
    let of = |kind| kept.iter().find(|one| one.kind == kind);
    let found = of(DriftKind::Found)?;
    let of_same_start = |kind| of(kind).filter(|one| one.instance == found.instance);
    let total = |kind| of_same_start(kind).map_or(0, |one| one.total);
    let is_repaired = of_same_start(DriftKind::Repaired).is_some_and(|repaired| repaired.at >= found.at);
    let is_contended = total(DriftKind::Contended) > total(DriftKind::Settled) && now - found.at < CONTENDED_FOR;
    let (process, pid) = found.process.clone().unzip();
    Some(DriftView {
        found: found.total,
        last_found_at: rfc3339(found.at),
        process,
        pid,
        differed: found.counts.map(|counts| counts.to_string()).unwrap_or_default(),
        repaired: is_repaired,
        contended: is_contended,
    })
}

#[cfg(test)]
mod tests {
    use holdfast_model::drift::DriftCounts;
    use uuid::Uuid;

    use super::*;

    const BEGIN: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn kept(kind: DriftKind, instance: u128, total: u64, second: i64) -> KeptDrift {
        KeptDrift {
            kind,
            instance: Uuid::from_u128(instance),
            total,
            at: BEGIN + Duration::seconds(second),
            process: Some(("nft".to_owned(), 7)),
            counts: Some(DriftCounts { rules_missing: 1, ..DriftCounts::default() }),
        }
    }

    fn viewed(kept: &[KeptDrift], second: i64) -> DriftView {
        drift_view(kept, BEGIN + Duration::seconds(second)).unwrap()
    }

    #[test]
    fn a_kernel_is_repaired_when_that_was_told_after_it_was_last_found_otherwise() {
        assert_eq!(drift_view(&[], BEGIN), None);
        let found = kept(DriftKind::Found, 1, 3, 10);
        let view = viewed(std::slice::from_ref(&found), 11);
        assert_eq!((view.found, view.process.as_deref(), view.differed.as_str()), (3, Some("nft"), "rules missing: 1"));
        assert!(!view.repaired && !view.contended);
        assert!(!viewed(&[found.clone(), kept(DriftKind::Repaired, 1, 2, 9)], 11).repaired, "an older one");
        assert!(!viewed(&[found.clone(), kept(DriftKind::Repaired, 9, 2, 10)], 11).repaired, "of another start");
        assert!(viewed(&[found, kept(DriftKind::Repaired, 1, 3, 10)], 11).repaired);
    }

    #[test]
    fn a_war_is_told_until_it_is_settled_or_was_not_heard_of_for_two_minutes() {
        let war = [kept(DriftKind::Found, 1, 9, 100), kept(DriftKind::Contended, 1, 2, 50)];
        assert!(viewed(&war, 110).contended);
        assert!(!viewed(&war, 221).contended, "its agent is gone");
        let [found, contended] = war;
        assert!(viewed(&[found.clone(), contended.clone(), kept(DriftKind::Settled, 1, 1, 40)], 110).contended);
        assert!(!viewed(&[found, contended, kept(DriftKind::Settled, 1, 2, 105)], 110).contended);
    }
}
