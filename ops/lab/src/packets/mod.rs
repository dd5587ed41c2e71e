//! Verification by real packets: what must be allowed gets through, what must be denied is dropped by our own rules and by nothing else.
//!
//! - Every probe must first get through with all hosts in visibility, in the same run; one that does not proves nothing and is a difference.
//! - A denied probe agrees only if nobody answered it **and** our own drop counters, of its source or its destination, rose by the packets that it
//!   sent. Denied probes go in waves of their own, so that nothing else moves the counters.
//! - Modes and counters are somebody else's ([`Fleet`]): the same run judges hosts with agents from files and hosts of a control plane.

mod commanded;
mod counters;
mod evidence;
mod expand;
mod run;
mod standalone;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::net::IpAddr;

use holdfast_model::address::Family;
use holdfast_model::policy::Mode;
use serde::Serialize;

pub use commanded::{CommandError, Commanded};
pub use counters::{CountersError, observe_drops};
pub use expand::{Expansion, Skipped, Why, cells_of};
pub use run::{Error, Run};
pub use standalone::{Standalone, StandaloneError};

use crate::flow::Flow;
use crate::party::Party;
use crate::prober::Outcome;

/// What must come of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// It gets through.
    Allowed,
    /// It is dropped.
    Denied,
}

/// One thing to be seen by packets, between all addresses of the family that the ends have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Cell {
    /// Who opens the connection.
    pub from: Party,
    /// Toward whom.
    pub to: Party,
    /// The family.
    pub family: Family,
    /// What is opened.
    pub flow: Flow,
    /// What must come of it.
    pub expected: Expected,
}

/// Why an answer is not the wanted one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "finding")]
pub enum Finding {
    /// It did not get through with all hosts in visibility, so it proves nothing.
    NotInVisibility {
        /// How it ended there.
        outcome: Outcome,
    },
    /// It must get through and did not.
    Blocked {
        /// How it ended.
        outcome: Outcome,
    },
    /// It must be dropped and got through.
    Leaked,
    /// It must be dropped without a word, and somebody answered, or it could not be sent.
    NotDropped {
        /// How it ended.
        outcome: Outcome,
    },
    /// Nobody answered it, but our own rules did not count it as dropped.
    NotCounted,
}

/// One difference between what must be and what packets did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// The cell.
    pub cell: Cell,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// What is different.
    #[serde(flatten)]
    pub finding: Finding,
}

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Cells that were probed.
    pub cells: usize,
    /// Cells of which every probe was as it must be.
    pub agree: usize,
    /// Probes that were sent once the hosts enforced, retries not counted.
    pub probes: usize,
    /// The differences, all of them.
    pub differences: Vec<Difference>,
}

/// Hosts whose modes can be set and whose drops can be read.
pub trait Fleet {
    /// Puts every host into a mode and returns when all of them are.
    ///
    /// # Errors
    /// A host is not in the mode.
    fn ensure_mode(&mut self, mode: Mode) -> Result<(), FleetError>;

    /// Reads how many packets the rules of each host dropped since some moment in the past, by the host's name.
    ///
    /// # Errors
    /// A host does not say.
    fn observe_drops(&mut self) -> Result<BTreeMap<String, u64>, FleetError>;
}

/// What a fleet says when it fails, in its own type.
#[derive(Debug, thiserror::Error)]
#[error("the hosts do not follow")]
pub struct FleetError(#[source] pub Box<dyn StdError + Send + Sync>);

/// What a run tells about how far it is.
pub trait Progress: Sync {
    /// A part begins, of this many probes.
    fn begin(&self, part: &str, probes: usize);
    /// So many more probes have ended.
    fn advance(&self, probes: usize);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _part: &str, _probes: usize) {}

    fn advance(&self, _probes: usize) {}
}
