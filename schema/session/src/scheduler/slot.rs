//! One component of one held session, as the scheduler sees it.

use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::Version;

use super::event::{Lane, News};
use crate::backoff::Backoff;
use crate::time::Instant;

/// Which one. A host has at most one held session.
pub(super) type SlotId = (HostId, Component);

#[derive(Debug)]
pub(super) struct Slot {
    /// Of the mark that it has, or had last.
    pub(super) lane: Lane,
    pub(super) phase: Phase,
    /// Where in the sequence the last read began that came to an end.
    pub(super) read: u64,
    /// The newest version that the session took.
    pub(super) taken: Option<Version>,
    /// How often it failed in a row; few do at a time.
    pub(super) backoff: Option<Box<Backoff>>,
}

/// Where it is; there is one mark at most.
#[derive(Debug)]
pub(super) enum Phase {
    /// There is nothing to do.
    Idle,
    /// The session holds the mark, and asks when it has room.
    Parked,
    /// It waits for its turn.
    Waiting(Mark),
    /// It failed, and waits for its next try.
    Delayed { until: Instant, mark: Mark },
    /// A build is under way.
    Building(Build),
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Its place in a queue.
    pub(super) place: u64,
    pub(super) since: Instant,
    pub(super) news: News,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Build {
    pub(super) number: u64,
    /// Out of which lane's share.
    pub(super) lane: Lane,
    /// Where in the sequence it began.
    pub(super) sequence: u64,
    /// When it is given up.
    pub(super) until: Instant,
    /// Why it began.
    pub(super) news: News,
    /// What was marked since it began.
    pub(super) again: Option<Again>,
    /// A pass came by and left it to this build to read: if nothing is read, that is still to be done.
    pub(super) is_counted_on: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) lane: Lane,
    pub(super) since: Instant,
    pub(super) news: News,
    /// Whether the session asked too: it waits then, whatever became of the build.
    pub(super) asked: bool,
}

impl Slot {
    /// Of a session that begins: it asks by itself for its first state, and whatever is published before that is in it.
    pub(super) const fn new(sequence: u64) -> Self {
        Self { lane: Lane::First, phase: Phase::Parked, read: sequence, taken: None, backoff: None }
    }
}

impl Build {
    pub(super) fn mark(&mut self, lane: Lane, news: News, now: Instant) {
        let asked = news == News::Asked;
        self.again = Some(match self.again {
            Some(again) => Again {
                lane: again.lane.min(lane),
                news: again.news.max(news),
                asked: again.asked || asked,
                since: again.since,
            },
            None => Again { lane, since: now, news, asked },
        });
    }
}
