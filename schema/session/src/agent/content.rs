//! From what an update carries to the body that it names: for the shell's worker, off the session's path, since a large body takes a while.
//!
//! - Nothing comes out whose digest is not the one that the renderer signed.

use holdfast_model::artifact::{DecodeError, decode};
use holdfast_model::condition::Reason;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::policy::Body;
use holdfast_model::policy::delta::{Delta, DeltaError, apply};

/// Why content is not what its update names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContentError {
    /// The bytes are no body.
    #[error("the snapshot cannot be read")]
    Snapshot(#[source] DecodeError),
    /// The body has another digest.
    #[error("the content has digest {found}, the update names {named}")]
    Digest {
        /// What the content has.
        found: Digest,
        /// What the update names.
        named: Digest,
    },
    /// The changes cannot be read.
    #[error("the changes cannot be read")]
    Changes(#[source] holdfast_wire::error::DecodeError),
    /// The changes do not lead from the body held to the one named.
    #[error("the changes do not apply")]
    Delta(#[source] DeltaError),
}

impl ContentError {
    /// The code for the condition.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Snapshot(_) | Self::Changes(_) => Reason::Malformed,
            Self::Digest { .. } => Reason::WrongDigest,
            Self::Delta(error) => match error {
                DeltaError::WrongBase { .. } => Reason::WrongBase,
                DeltaError::WrongTarget { .. } => Reason::WrongDigest,
                DeltaError::NoRule { .. }
                | DeltaError::NoSet { .. }
                | DeltaError::Edit { .. }
                | DeltaError::Body(_) => Reason::Malformed,
            },
        }
    }
}

/// The policy of a snapshot.
///
/// # Errors
/// [`ContentError`] if the bytes are not the body that the stamp names.
pub fn body_of_snapshot(bytes: &[u8], stamp: Stamp) -> Result<Body, ContentError> {
    let body = decode(bytes).map_err(ContentError::Snapshot)?;
    let found = body.digest();
    if found == stamp.digest { Ok(body) } else { Err(ContentError::Digest { found, named: stamp.digest }) }
}

/// The policy that changes make of the one held.
///
/// # Errors
/// [`ContentError`] if they were made for another body or do not lead to the digest that the stamp names; nothing is half-changed.
pub fn body_of_delta(held: &Body, base: Stamp, changes: &[u8], stamp: Stamp) -> Result<Body, ContentError> {
    let changes = holdfast_wire::decode_changes(changes).map_err(ContentError::Changes)?;
    let delta = Delta { base: base.digest, target: stamp.digest, changes };
    apply(held, &delta).map_err(ContentError::Delta)
}

/// Whether the bytes of a component other than `policy` are the ones that the stamp names: today only the empty component exists.
///
/// # Errors
/// [`ContentError`] if their digest is another one.
pub fn check_snapshot(component: Component, bytes: &[u8], stamp: Stamp) -> Result<(), ContentError> {
    let found = match component {
        Component::Policy => return body_of_snapshot(bytes, stamp).map(|_| ()),
        Component::Settings | Component::Credentials | Component::Workloads => Digest::of(bytes),
    };
    if found == stamp.digest { Ok(()) } else { Err(ContentError::Digest { found, named: stamp.digest }) }
}

#[cfg(test)]
mod tests {
    use holdfast_model::artifact::encode;
    use holdfast_model::numbers::Version;
    use holdfast_model::policy::Mode;
    use holdfast_model::policy::delta::diff;

    use super::*;

    #[test]
    fn a_body_comes_out_only_under_its_own_digest() {
        let body = Body { mode: Mode::Enforced, ..Body::default() };
        let stamp = Stamp { version: Version::FIRST, digest: body.digest() };
        assert_eq!(body_of_snapshot(&encode(&body), stamp), Ok(body.clone()));
        let other = encode(&Body::default());
        assert_eq!(body_of_snapshot(&other, stamp).map_err(|error| error.reason()), Err(Reason::WrongDigest));
        assert_eq!(body_of_snapshot(&[9], stamp).map_err(|error| error.reason()), Err(Reason::Malformed));

        let from = Stamp { version: Version::FIRST, digest: Body::default().digest() };
        let changes = holdfast_wire::encode_changes(&diff(&Body::default(), &body).changes).expect("small");
        assert_eq!(body_of_delta(&Body::default(), from, &changes, stamp), Ok(body.clone()));
        let refused = body_of_delta(&body, from, &changes, stamp).map_err(|error| error.reason());
        assert_eq!(refused, Err(Reason::WrongBase));
        let forged = holdfast_wire::encode_changes(&[]).expect("small");
        let refused = body_of_delta(&Body::default(), from, &forged, stamp).map_err(|error| error.reason());
        assert_eq!(refused, Err(Reason::WrongDigest));
    }

    #[test]
    fn the_empty_components_are_their_own_bytes() {
        for component in Component::ALL {
            let stamp = Stamp { version: Version::FIRST, digest: component.empty_digest() };
            assert_eq!(check_snapshot(component, &component.empty_bytes(), stamp), Ok(()));
            assert!(check_snapshot(component, &[7], stamp).is_err());
        }
    }
}
