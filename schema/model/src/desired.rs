//! The desired state of a host, component by component.
//!
//! - A host has an explicit state for every component from enrolment on; empty is a value with a digest of its own.
//! - Components version independently; only `policy` travels as deltas.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::HostId;
use crate::numbers::Version;
use crate::policy::Body;

/// An independently versioned part of a host's desired state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Component {
    /// Network policy in the kernel.
    Policy,
    /// Files of settings.
    Settings,
    /// Sealed credentials.
    Credentials,
    /// Placed workloads.
    Workloads,
}

impl Component {
    /// All of them, in canonical order.
    pub const ALL: [Self; 4] = [Self::Policy, Self::Settings, Self::Credentials, Self::Workloads];

    /// The word in columns, hints and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Settings => "settings",
            Self::Credentials => "credentials",
            Self::Workloads => "workloads",
        }
    }

    /// The number in frames, signed statements and columns; never reused.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Policy => 1,
            Self::Settings => 2,
            Self::Credentials => 3,
            Self::Workloads => 4,
        }
    }

    /// The component with a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|component| component.number() == number)
    }

    /// The digest of this component with nothing in it, as a host has it from its first render on.
    #[must_use]
    pub fn empty_digest(self) -> Digest {
        match self {
            Self::Policy => Body::default().digest(),
            Self::Settings | Self::Credentials | Self::Workloads => Digest::of(&self.empty_node()),
        }
    }

    /// The bytes that stand for this component with nothing in it; for `policy` its flat bytes.
    #[must_use]
    pub fn empty_bytes(self) -> Vec<u8> {
        match self {
            Self::Policy => crate::artifact::encode(&Body::default()),
            Self::Settings | Self::Credentials | Self::Workloads => self.empty_node().to_vec(),
        }
    }

    /// Tag 16 is "a whole component in one node", followed by the component and the count of its entries.
    const fn empty_node(self) -> [u8; 3] {
        [16, self.number(), 0]
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The text names no component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a component is one of policy, settings, credentials, workloads")]
pub struct ComponentError;

impl FromStr for Component {
    type Err = ComponentError;

    fn from_str(text: &str) -> Result<Self, ComponentError> {
        Self::ALL.into_iter().find(|component| component.word() == text).ok_or(ComponentError)
    }
}

/// Which content a host is to have, or has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Stamp {
    /// The version of the (host, component).
    pub version: Version,
    /// The digest of the content.
    pub digest: Digest,
}

/// What was rendered for one (host, component), without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Desired {
    /// For whom.
    pub host: HostId,
    /// Which part.
    pub component: Component,
    /// Which content.
    pub stamp: Stamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_has_its_own_empty_digest_and_number() {
        let digests: std::collections::BTreeSet<_> = Component::ALL.map(Component::empty_digest).into();
        assert_eq!(digests.len(), Component::ALL.len());
        for component in Component::ALL {
            assert_eq!(Component::from_number(component.number()), Some(component));
            assert_eq!(component.word().parse(), Ok(component));
        }
    }
}
