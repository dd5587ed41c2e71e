//! One end of a flow: a host of the lab, or an address outside.
//!
//! - What the operators' command line takes is taken here too: `NAMESPACE/NAME` of a host, an address without `ip:`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use holdfast_documents::near::did_you_mean;
use serde::{Deserialize, Serialize};

use crate::record::{Host, Record};

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
    #[error("the lab has no host `{name}`{near}")]
    UnknownHost {
        /// The name.
        name: String,
        /// The one that may have been meant, in words.
        near: String,
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
                let host = record.host(name).or_else(|| qualified(name, record));
                Ok(host.ok_or_else(|| unknown(name, record))?.addresses.clone())
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

/// The host that `NAMESPACE/NAME` means: the lab knows hosts by their names alone, their estate knows of each namespace.
fn qualified<'a>(text: &str, record: &'a Record) -> Option<&'a Host> {
    let (namespace, name) = text.split_once('/')?;
    let is_there = |host: &&Host| host.estate_namespace.as_deref().is_none_or(|known| known == namespace);
    record.host(name).filter(is_there)
}

fn unknown(text: &str, record: &Record) -> PartyError {
    let (has_namespace, name) = match text.split_once('/') {
        Some((_, name)) => (true, name),
        None => (false, text),
    };
    let full = |host: &Host| match &host.estate_namespace {
        Some(namespace) if has_namespace && !host.name.contains('/') => format!("{namespace}/{}", host.name),
        Some(_) | None => host.name.clone(),
    };
    let known: Vec<String> = record.hosts.iter().map(full).collect();
    let by_name = known.iter().filter(|known| known.rsplit('/').next() == Some(name)).map(String::as_str);
    let near = match by_name.collect::<Vec<_>>().as_slice() {
        [one] => format!("; did you mean `{one}`?"),
        [] | [_, _, ..] => did_you_mean(text, known.iter().map(String::as_str)),
    };
    PartyError::UnknownHost { name: text.to_owned(), near }
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
            None => Ok(text.parse().map_or_else(|_| Self::Host(text.to_owned()), Self::Outside)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Blocks;

    fn mk_record() -> Record {
        let blocks: Blocks = serde_json::from_str(r#"{"v4": "10.0.0.0", "v6": "fd00::"}"#).expect("blocks");
        let mut record = Record::new("t".to_owned(), blocks);
        record.hosts.push(Host {
            name: "web-1".to_owned(),
            namespace: "t.web-1".to_owned(),
            estate_namespace: Some("booking".to_owned()),
            addresses: vec![IpAddr::from([10, 0, 0, 1])],
            management: Vec::new(),
            agent: None,
            state: "state".into(),
        });
        record
    }

    #[test]
    fn a_host_is_known_by_its_name_with_and_without_its_namespace_and_an_address_with_and_without_its_prefix() {
        let record = mk_record();
        let of = |text: &str| text.parse::<Party>().expect("reads").addresses(&record);
        assert_eq!(of("web-1"), Ok(vec![IpAddr::from([10, 0, 0, 1])]));
        assert_eq!(of("booking/web-1"), of("web-1"));
        assert_eq!(of("192.0.2.9"), of("ip:192.0.2.9"));
        assert_eq!(of("fd00::9"), of("ip:fd00::9"));
        let unknown = of("booking/wbe-1").expect_err("no host");
        assert_eq!(unknown.to_string(), "the lab has no host `booking/wbe-1`; did you mean `booking/web-1`?");
        let elsewhere = of("bookng/web-1").expect_err("of another namespace");
        assert_eq!(elsewhere.to_string(), "the lab has no host `bookng/web-1`; did you mean `booking/web-1`?");
        assert_eq!(of("printer").expect_err("no host").to_string(), "the lab has no host `printer`");
    }
}
