//! Estates: hosts, what is authored for them, and what traffic must then be allowed or denied.
//!
//! Three forms are read: `estate/1` and `ipset-churn/1` (JSON of the public catalogue) and our own `holdfast-estate/1` (YAML beside ordinary
//! documents, see `ops/lab/estates/README.md`).
//!
//! - Every workload is an enrolled host of the namespace `default`, in mode enforced; ids and names follow from the texts alone, so two reads agree.
//! - Whatever an estate says is either understood or an error; a word of `needs` that is not known is reported as unmet.
//! - States are whole: the intent after each step, and what is expected of it.

mod build;
mod cells;
mod churn;
mod file;
mod identity;
mod own;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_model::address::Family;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{Intent, ObjectKey};
use holdfast_model::name::Name;
use holdfast_model::policy::PortRange;

pub use churn::{Churn, ChurnStep, Refused};
pub use file::{Facts, Total};
pub use own::read_own;

use crate::Faults;

/// The format of a public estate.
pub const ESTATE_FORMAT: &str = "estate/1";
/// The format of successive versions of one address list.
pub const CHURN_FORMAT: &str = "ipset-churn/1";

/// The words of `needs` that are understood.
pub const NEEDS_MET: [&str; 24] = [
    "cidr",
    "cidr_except",
    "dst_cidr",
    "dual_stack",
    "egress",
    "expr_absent",
    "expr_exists",
    "expr_in",
    "expr_notin",
    "ipset",
    "ipset_churn",
    "ipv6",
    "multi_address",
    "named_port",
    "other_proto",
    "peer_any",
    "port_range",
    "proto_all_ports",
    "relabel",
    "sctp",
    "service_any",
    "steps",
    "unenforced_workloads",
    "workload_churn",
];

/// Why an estate cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON of the wanted shape.
    #[error("the estate's JSON cannot be read")]
    Json(#[from] serde_json::Error),
    /// A format that is not read here.
    #[error("format `{0}` is not read: {ESTATE_FORMAT} and {CHURN_FORMAT} are")]
    Format(String),
    /// A file beside the estate is missing.
    #[error("the file `{0}` beside the estate cannot be read")]
    Beside(String),
    /// A value means nothing.
    #[error("{place}: {what}")]
    Value {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// Our own form or the documents of an estate have faults.
    #[error("the documents of the estate have faults")]
    Faults(#[from] Faults),
}

impl Error {
    fn value(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Value { place: place.into(), what: what.into() }
    }
}

/// Reads the text of a file beside an estate; `None` if it cannot be had.
pub type Beside<'a> = dyn FnMut(&str) -> Option<String> + 'a;

/// One file of a catalogue.
#[derive(Debug)]
pub enum Input {
    /// Hosts, rules and expectations.
    Estate(Box<Estate>),
    /// Versions of one address list.
    Churn(Churn),
}

/// One estate with all its states.
#[derive(Debug)]
pub struct Estate {
    /// Its name.
    pub id: String,
    /// A line about it.
    pub title: String,
    /// The features that it uses.
    pub needs: Vec<String>,
    /// What its hosts are called in the file; a host that a step removes stays here.
    pub host_names: BTreeMap<HostId, String>,
    /// Address lists with what is known about them.
    pub address_lists: Vec<AddressList>,
    /// The state as written, then the state after each step; never empty.
    pub states: Vec<State>,
}

impl Estate {
    /// The intent after step `k`; 0 is the state as written.
    #[must_use]
    pub fn intent_after(&self, k: usize) -> Option<&Intent> {
        self.states.get(k).map(|state| &state.intent)
    }

    /// What is expected after step `k`; 0 is the state as written.
    #[must_use]
    pub fn expectations_of(&self, k: usize) -> &[Cell] {
        self.states.get(k).map_or(&[], |state| &state.cells)
    }

    /// The needs that are not understood: none in any catalogue that keeps to the format.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        self.needs.iter().filter(|need| !NEEDS_MET.contains(&need.as_str())).cloned().collect()
    }

    /// What a party is called.
    #[must_use]
    pub fn name_of(&self, party: &Party) -> String {
        match party {
            Party::Host(id) => self.host_names.get(id).cloned().unwrap_or_else(|| id.to_string()),
            Party::Endpoint(key) => key.to_string(),
            Party::Address(address) => format!("ip:{address}"),
            Party::Span(first, last) => format!("net:{first}-{last}"),
        }
    }
}

/// An address list of an estate.
#[derive(Debug)]
pub struct AddressList {
    /// The address group that it became.
    pub group: Name,
    /// Its entries as written.
    pub entries: Vec<String>,
    /// What the file says about them.
    pub facts: Option<Facts>,
}

/// What is in force, and what traffic must then do.
#[derive(Debug, Default)]
pub struct State {
    /// Hosts and objects.
    pub intent: Intent,
    /// Expectations, one per judged pair and question.
    pub cells: Vec<Cell>,
}

/// Who is at one end of an expectation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// A host.
    Host(HostId),
    /// An endpoint.
    Endpoint(ObjectKey),
    /// An address outside.
    Address(IpAddr),
    /// All addresses from one to another, outside.
    Span(IpAddr, IpAddr),
}

/// Whose rules are asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Both ends'.
    BothEnds,
    /// The destination's alone.
    Destination,
}

/// One expectation.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Who opens the connection.
    pub from: Party,
    /// Toward whom.
    pub to: Party,
    /// In this family; in every family that both ends have if absent.
    pub family: Option<Family>,
    /// Whose rules are asked.
    pub at: At,
    /// What must come of it.
    pub want: Want,
}

/// What must come of an expectation.
#[derive(Clone, Debug)]
pub enum Want {
    /// One packet passes, or does not.
    Packet {
        /// The packet.
        probe: Probe,
        /// Whether it passes.
        allow: bool,
    },
    /// For each of these protocols, exactly these ports.
    Services(Arc<Services>),
}

/// Ports by protocol, ascending and never meeting.
pub type Services = BTreeMap<u8, Vec<PortRange>>;

/// One packet that opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Probe {
    /// TCP, UDP or SCTP to a port.
    Port {
        /// IP protocol number.
        protocol: u8,
        /// The port.
        port: u16,
    },
    /// An echo request of the family in question.
    Echo,
    /// A protocol without ports.
    Protocol(u8),
}

/// Reads one file of a catalogue; `beside` reads files of its folder.
///
/// # Errors
/// [`Error`].
pub fn read(text: &str, beside: &mut Beside<'_>) -> Result<Input, Error> {
    let head: file::Head = serde_json::from_str(text)?;
    match head.format.as_str() {
        ESTATE_FORMAT => {
            let file: file::EstateFile = serde_json::from_str(text)?;
            build::estate(file, beside).map(|estate| Input::Estate(Box::new(estate)))
        }
        CHURN_FORMAT => {
            let file: file::ChurnFile = serde_json::from_str(text)?;
            churn::churn(file).map(Input::Churn)
        }
        _ => Err(Error::Format(head.format)),
    }
}

#[cfg(test)]
mod tests;
