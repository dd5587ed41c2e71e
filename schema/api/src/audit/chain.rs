//! Entries and the hashes that join them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

const ENTRY: &[u8] = b"holdfast.dev audit entry v1\n";

/// SHA-256, as 64 lower-case hexadecimal characters in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

/// The text is not 64 lower-case hexadecimal characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 lower-case hexadecimal characters")]
pub struct HashError;

impl Hash {
    /// What stands before the first entry.
    pub const ORIGIN: Self = Self([0; 32]);
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        // A digest has the very same text form.
        text.parse::<holdfast_model::digest::Digest>().map(|digest| Self(*digest.as_bytes())).map_err(|_| HashError)
    }
}

impl TryFrom<String> for Hash {
    type Error = HashError;
    fn try_from(text: String) -> Result<Self, HashError> {
        text.parse()
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

/// Where an event stands in the order of the control plane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Which life of the database.
    pub authority_epoch: u64,
    /// The position in it, from 1, without gaps.
    pub seq: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.authority_epoch, self.seq)
    }
}

/// One entry of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The position in the log, from 1, without gaps.
    pub n: u64,
    /// The hash of the entry before; zeros before the first.
    pub prev: Hash,
    /// The hash of this one.
    pub hash: Hash,
    /// The event, byte for byte as it was received.
    pub event: Box<RawValue>,
}

/// Why a line is no entry.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Not the JSON of an entry.
    #[error("the line is no entry of the log")]
    Json(#[from] serde_json::Error),
    /// The event does not say where it stands.
    #[error("the event of entry {n} does not say where it stands")]
    Place {
        /// Which entry.
        n: u64,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// The extension attributes of the CloudEvent that place it: numbers that may pass 2³¹ are text there.
#[derive(Deserialize)]
struct PlaceAttributes {
    #[serde(deserialize_with = "number_in_text")]
    authorityepoch: u64,
    #[serde(deserialize_with = "number_in_text")]
    sequence: u64,
}

fn number_in_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

impl Entry {
    /// Reads one line.
    ///
    /// # Errors
    /// [`EntryError::Json`].
    pub fn parse(line: &str) -> Result<Self, EntryError> {
        Ok(serde_json::from_str(line)?)
    }

    /// The line, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        // By hand, so that the event stays byte for byte what was hashed.
        format!(r#"{{"n":{},"prev":"{}","hash":"{}","event":{}}}"#, self.n, self.prev, self.hash, self.event.get())
    }

    /// The hash that this entry should have.
    #[must_use]
    pub fn computed_hash(&self) -> Hash {
        let mut hasher = Sha256::new();
        hasher.update(ENTRY);
        hasher.update(self.prev.0);
        hasher.update(self.n.to_be_bytes());
        hasher.update(self.event.get().as_bytes());
        Hash(hasher.finalize().into())
    }

    /// Where its event stands in the order of the control plane.
    ///
    /// # Errors
    /// [`EntryError::Place`].
    pub fn place(&self) -> Result<Place, EntryError> {
        let read: Result<PlaceAttributes, _> = serde_json::from_str(self.event.get());
        let attributes = read.map_err(|source| EntryError::Place { n: self.n, source })?;
        Ok(Place { authority_epoch: attributes.authorityepoch, seq: attributes.sequence })
    }
}

/// The last entry of a log, or what stands before the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Its position; 0 for an empty log.
    pub n: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Head {
    /// The head of an empty log.
    pub const ORIGIN: Self = Self { n: 0, hash: Hash::ORIGIN };
}

/// The growing end of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    head: Head,
}

impl Chain {
    /// Goes on after an entry.
    #[must_use]
    pub const fn after(head: Head) -> Self {
        Self { head }
    }

    /// The last entry so far.
    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Makes the next entry of an event.
    ///
    /// # Errors
    /// [`EntryError::Json`] if the event is not one JSON value on one line.
    pub fn append(&mut self, event: &str) -> Result<Entry, EntryError> {
        let event: Box<RawValue> = serde_json::from_str(event)?;
        if event.get().contains(['\n', '\r']) {
            return Err(EntryError::Json(serde::de::Error::custom("an event is one line")));
        }
        let mut entry = Entry { n: self.head.n + 1, prev: self.head.hash, hash: Hash::ORIGIN, event };
        entry.hash = entry.computed_hash();
        self.head = Head { n: entry.n, hash: entry.hash };
        Ok(entry)
    }
}
