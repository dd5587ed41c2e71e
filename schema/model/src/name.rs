//! Names that people give: namespaces, hosts, policies and other authored objects.
//!
//! One grammar at every entry (Kubernetes' object names, RFC 1123 subdomain): 1 to 253 bytes of lower-case letters, digits, `-` and `.`, a letter
//! or digit at both ends.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::HostId;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 253;

/// A checked name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// The text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {NAME_BYTES_MAX} bytes of a-z, 0-9, `-` and `.`, with a letter or digit at both ends")]
pub struct NameError;

impl Name {
    /// The namespace of objects that name none.
    #[must_use]
    pub fn default_namespace() -> Self {
        Self("default".to_owned())
    }

    /// What stands in the place of a stored name of a host that cannot be read: the host's id, which no name can be, so that nobody gives it, is limited
    /// to it or finds anything by it.
    #[must_use]
    pub fn unreadable(of: HostId) -> Self {
        Self(of.to_string())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let inner = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
        let end = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let bytes = text.as_bytes();
        let good = bytes.len() <= NAME_BYTES_MAX && bytes.iter().all(inner) && end(bytes.first()) && end(bytes.last());
        if good { Ok(Self(text.to_owned())) } else { Err(NameError) }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
