//! A policy from a local file, for a host without a gateway and for trying things out.
//!
//! - Two forms: the flat bytes of an artifact (`*.hfp`, as `holdfast lab verify --render-only` and the renderer make them), told by their first byte,
//!   and JSON, concrete like a body: addresses and numbers, no selectors.
//! - A rule keeps its key while its direction, order, action, statement and place among equals stay, so that editing its peers edits elements in place.
//! - An unknown word is refused with its place; nothing is guessed.

mod json;
mod local;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_model::artifact;
use holdfast_model::policy::Body;

pub use json::PolicyError;
pub(crate) use json::parse_range;
pub use local::{load_local, local_file, save_local};

/// Why a file gives no policy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its bytes are no artifact.
    #[error("{} is no artifact", .path.display())]
    Artifact {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: artifact::DecodeError,
    },
    /// It cannot be taken away.
    #[error("cannot remove {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be put in place.
    #[error("cannot write {}", .path.display())]
    Keep {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: holdfast_identity::files::Error,
    },
    /// Its text is no policy.
    #[error("{} is no policy", .path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: PolicyError,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Read { .. } => "policy-unreadable",
            Self::Write { .. } | Self::Keep { .. } => "state-unusable",
            Self::Artifact { .. } => "policy-artifact",
            Self::Policy { .. } => "policy-malformed",
        }
    }
}

/// Reads the policy of a file.
///
/// # Errors
/// [`Error`] if the file cannot be read or says something that is no policy.
pub fn load_policy(path: &Path) -> Result<Body, Error> {
    let owned = || path.to_owned();
    let bytes = fs::read(path).map_err(|source| Error::Read { path: owned(), source })?;
    if bytes.first() == Some(&artifact::FORMAT) {
        return artifact::decode(&bytes).map_err(|source| Error::Artifact { path: owned(), source });
    }
    json::parse(&bytes).map_err(|source| Error::Policy { path: owned(), source })
}

/// Reads a policy from JSON text.
///
/// # Errors
/// [`PolicyError`] if it is none.
pub fn parse_policy(text: &[u8]) -> Result<Body, PolicyError> {
    json::parse(text)
}
