//! One end of a flow: a host of the lab, or an address outside.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::record::Record;

/// What stands before an outside address.
const OUTSIDE_PREFIX: &str = "ip:";

/// A host by name, or `ip:ADDRESS`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Party {
    /// A host.
    Host(String),
    /// An address that is no host's.
    Outside(IpAddr),
}

/// Why an end has no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartyError {
    /// What follows `ip:` is no address.
    #[error("`{text}` is no address")]
    Address {
        /// The text.
        text: String,
    },
    /// There is no such host.
    #[error("the lab has no host `{name}`")]
    UnknownHost {
        /// The name.
        name: String,
    },
    /// The two ends share no family.
    #[error("`{from}` and `{to}` have no addresses of one family")]
    NoFamily {
        /// One end.
        from: Party,
        /// The other.
        to: Party,
    },
}

impl Party {
    /// Its addresses in a lab.
    ///
    /// # Errors
    /// [`PartyError::UnknownHost`].
    pub fn addresses(&self, record: &Record) -> Result<Vec<IpAddr>, PartyError> {
        match self {
            Self::Outside(address) => Ok(vec![*address]),
            Self::Host(name) => {
                let host = record.host(name).ok_or_else(|| PartyError::UnknownHost { name: name.clone() })?;
                Ok(host.addresses.clone())
            }
        }
    }

    /// Every pair of one of its addresses and one of another's, of one family.
    ///
    /// # Errors
    /// See [`PartyError`]; no pair at all is [`PartyError::NoFamily`].
    pub fn pairs(&self, to: &Self, record: &Record) -> Result<Vec<(IpAddr, IpAddr)>, PartyError> {
        let destinations = to.addresses(record)?;
        let mut pairs = Vec::new();
        for source in self.addresses(record)? {
            let same = destinations.iter().filter(|destination| destination.is_ipv4() == source.is_ipv4());
            pairs.extend(same.map(|destination| (source, *destination)));
        }
        if pairs.is_empty() {
            return Err(PartyError::NoFamily { from: self.clone(), to: to.clone() });
        }
        Ok(pairs)
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Outside(address) => write!(f, "{OUTSIDE_PREFIX}{address}"),
        }
    }
}

impl FromStr for Party {
    type Err = PartyError;

    fn from_str(text: &str) -> Result<Self, PartyError> {
        match text.strip_prefix(OUTSIDE_PREFIX) {
            Some(address) => {
                let parsed = address.parse().map_err(|_| PartyError::Address { text: address.to_owned() })?;
                Ok(Self::Outside(parsed))
            }
            None => Ok(Self::Host(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Party {
    type Error = PartyError;

    fn try_from(text: String) -> Result<Self, PartyError> {
        text.parse()
    }
}

impl From<Party> for String {
    fn from(party: Party) -> Self {
        party.to_string()
    }
}
