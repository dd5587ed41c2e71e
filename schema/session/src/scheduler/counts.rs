//! What became of marks and builds, counted.

use super::event::{Lane, PerLane};

/// One thing that can become of a mark or a build.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Happening {
    /// A mark was made.
    Admitted,
    /// A mark was there already, or a build that answers it.
    Coalesced,
    /// The session has what was published.
    Current,
    /// A build began.
    Started,
    /// A session took what was built.
    Built,
    /// What was read was no news.
    Unchanged,
    /// The session had it by the time.
    Declined,
    /// The session has no room and keeps the mark.
    Parked,
    /// What was built contradicts what the session wrote.
    Refused,
    /// It could not be read.
    Failed,
    /// Its end was not told in time.
    Overdue,
    /// The wait after a failure is over.
    Retried,
    /// What was published meanwhile was built already.
    Superseded,
    /// The end of a build that nobody waits for any more: its session is over, or it was overdue.
    Stale,
    /// The session went away with a mark or a build.
    Abandoned,
}

impl Happening {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Admitted,
        Self::Coalesced,
        Self::Current,
        Self::Started,
        Self::Built,
        Self::Unchanged,
        Self::Declined,
        Self::Parked,
        Self::Refused,
        Self::Failed,
        Self::Overdue,
        Self::Retried,
        Self::Superseded,
        Self::Stale,
        Self::Abandoned,
    ];

    /// The word in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Coalesced => "coalesced",
            Self::Current => "current",
            Self::Started => "started",
            Self::Built => "built",
            Self::Unchanged => "unchanged",
            Self::Declined => "declined",
            Self::Parked => "parked",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Overdue => "overdue",
            Self::Retried => "retried",
            Self::Superseded => "superseded",
            Self::Stale => "stale",
            Self::Abandoned => "abandoned",
        }
    }
}

/// How often something happened in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// In which lane.
    pub lane: Lane,
    /// What.
    pub happening: Happening,
    /// How often.
    pub count: u64,
}

/// Everything since it was taken last.
#[derive(Debug, Default)]
pub(super) struct Counts {
    lanes: PerLane<[u64; Happening::ALL.len()]>,
}

impl Counts {
    pub(super) fn add(&mut self, lane: Lane, happening: Happening) {
        // Declared in this order, so its discriminant is its place.
        if let Some(count) = self.lanes.of_mut(lane).get_mut(happening as usize) {
            *count += 1;
        }
    }

    pub(super) fn take(&mut self) -> Vec<Count> {
        let mut counts = Vec::new();
        for lane in Lane::ALL {
            let of_lane = std::mem::take(self.lanes.of_mut(lane));
            let some = Happening::ALL.into_iter().zip(of_lane).filter(|(_, count)| *count > 0);
            counts.extend(some.map(|(happening, count)| Count { lane, happening, count }));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_happening_has_a_place_and_a_word_of_its_own() {
        let mut counts = Counts::default();
        for happening in Happening::ALL {
            counts.add(Lane::First, happening);
        }
        let taken = counts.take();
        let once = Happening::ALL.map(|happening| Count { lane: Lane::First, happening, count: 1 });
        assert_eq!(taken, once);
        assert_eq!(counts.take(), []);
        let words: std::collections::BTreeSet<_> = Happening::ALL.iter().map(|happening| happening.word()).collect();
        assert_eq!(words.len(), Happening::ALL.len());
    }
}
