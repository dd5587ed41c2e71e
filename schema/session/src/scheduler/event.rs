//! What the scheduler is told and tells.

use std::time::Duration;

use holdfast_model::desired::Component;
use holdfast_model::ids::{HostId, ObjectId};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};

/// Whose turn a build is, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// What concerns few hosts, and what an operator asked for one.
    Host,
    /// The first state of a session.
    First,
    /// What concerns many hosts.
    Bulk,
}

impl Lane {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Host, Self::First, Self::Bulk];

    /// The word in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::First => "first",
            Self::Bulk => "bulk",
        }
    }
}

/// One value for each lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerLane<T> {
    /// Of [`Lane::Host`].
    pub host: T,
    /// Of [`Lane::First`].
    pub first: T,
    /// Of [`Lane::Bulk`].
    pub bulk: T,
}

impl<T> PerLane<T> {
    /// The value of a lane.
    #[must_use]
    pub const fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Host => &self.host,
            Lane::First => &self.first,
            Lane::Bulk => &self.bulk,
        }
    }

    pub(super) const fn of_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Host => &mut self.host,
            Lane::First => &mut self.first,
            Lane::Bulk => &mut self.bulk,
        }
    }
}

/// Whom a publication concerns that names no versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One host.
    Host(HostId),
    /// Every host of a namespace.
    Namespace(Name),
    /// Every host that uses a credential, and every host of which that is not known.
    Credential(ObjectId),
    /// Every host.
    Fleet,
}

/// How many hosts a publication that names versions concerns, of all that were published together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Few: it goes first.
    Narrow,
    /// Many: it goes with other wide work.
    Wide,
}

/// What a mark says; of two marks the greater one holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum News {
    /// Nothing was published: the session asks by itself.
    Asked,
    /// There is this version.
    Newer(Version),
    /// Something may be newer, and only a read tells.
    Unnamed,
}

/// Who leads a session to ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// The session itself: a first state, a recovery, what could not be read before, or room after a slow reader read.
    Session,
    /// An operator.
    Operator,
}

/// The right to one build. It is given back by [`super::Scheduler::handle_ended`], once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// For whom.
    pub host: HostId,
    /// For which session: a later one gets nothing of it.
    pub session_epoch: SessionEpoch,
    /// Which part.
    pub component: Component,
    /// Out of which lane's share.
    pub lane: Lane,
    pub(super) number: u64,
}

/// A build to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// The right to it.
    pub ticket: Ticket,
    /// Why.
    pub news: News,
    /// How long it waited since it was marked.
    pub waited: Duration,
}

/// How a build ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The session took what was read.
    Built {
        /// Which version that is.
        version: Version,
    },
    /// What was read is no news to the session.
    Unchanged,
    /// Nothing was read: the session has what the mark told of.
    Declined,
    /// Nothing was read: the session has no room, keeps the mark, and asks when it has.
    Parked,
    /// What was read contradicts what the session wrote; trying again leads to the same.
    Refused,
    /// It could not be read.
    Failed,
}
