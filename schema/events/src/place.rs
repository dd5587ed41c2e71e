//! Where the content of an authored object is: in the event, or, if it is large, in an artifact that the event names.

use holdfast_model::digest::Digest;
use holdfast_model::intent::{Kind, Spec};
use serde::{Deserialize, Serialize};

use crate::secret_free::secret_free;

/// The largest content that an event carries itself. An event has 64 KiB in all; a quarter leaves room for the rest many times over.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Tag of an artifact node that holds an authored object's content as JSON (see `holdfast_model::artifact` for the others).
const TAG_SPEC: u8 = 32;

/// The content of an authored object, or its name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Here it is.
    Inline(Spec),
    /// It is the artifact with this digest.
    Artifact {
        /// The kind of the object.
        kind: Kind,
        /// The name of the artifact.
        digest: Digest,
    },
}

secret_free!(Content);

/// Why an artifact is not the content that it should be.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The bytes have another digest.
    #[error("artifact {0} does not have its own digest")]
    Altered(Digest),
    /// The bytes are no content of an object of this kind.
    #[error("artifact {digest} holds no content of a {kind}")]
    Malformed {
        /// Which artifact.
        digest: Digest,
        /// The kind of the object.
        kind: Kind,
        /// What is wrong, if it is the JSON.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// The content cannot be written as JSON.
    #[error("the content of a {kind} cannot be written as JSON")]
    Unwritable {
        /// The kind of the object.
        kind: Kind,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

impl Content {
    /// Places a content; large content comes back as the bytes of an artifact beside its name.
    ///
    /// # Errors
    /// [`ContentError::Unwritable`], which no value that a document made has.
    pub fn place(spec: Spec) -> Result<(Self, Option<Vec<u8>>), ContentError> {
        let kind = spec.kind();
        let mut bytes = vec![TAG_SPEC];
        serde_json::to_writer(&mut bytes, &spec).map_err(|source| ContentError::Unwritable { kind, source })?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok((Self::Inline(spec), None));
        }
        Ok((Self::Artifact { kind, digest: Digest::of(&bytes) }, Some(bytes)))
    }

    /// The kind of the object.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Inline(spec) => spec.kind(),
            Self::Artifact { kind, .. } => *kind,
        }
    }

    /// The artifact that is needed to read it, if any.
    #[must_use]
    pub const fn artifact(&self) -> Option<Digest> {
        match self {
            Self::Inline(_) => None,
            Self::Artifact { digest, .. } => Some(*digest),
        }
    }

    /// Reads a content back from the bytes of its artifact.
    ///
    /// # Errors
    /// [`ContentError`] says why the bytes are not the content.
    pub fn read(kind: Kind, digest: Digest, bytes: &[u8]) -> Result<Spec, ContentError> {
        if Digest::of(bytes) != digest {
            return Err(ContentError::Altered(digest));
        }
        let malformed = |source| ContentError::Malformed { digest, kind, source };
        let json = bytes.strip_prefix(&[TAG_SPEC]).ok_or_else(|| malformed(None))?;
        let spec: Spec = serde_json::from_slice(json).map_err(|source| malformed(Some(source)))?;
        if spec.kind() == kind { Ok(spec) } else { Err(malformed(None)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::intent::AddressGroupSpec;

    fn mk_group(len: u32) -> Spec {
        let cidr = |n: u32| ipnet::Ipv4Net::new((n << 8).into(), 24).expect("a prefix").into();
        Spec::AddressGroup(AddressGroupSpec { cidrs: (0..len).map(cidr).collect() })
    }

    #[test]
    fn small_content_stays_and_large_content_becomes_an_artifact_that_reads_back() {
        let (small, none) = Content::place(mk_group(3)).expect("writes");
        assert_eq!((small, none), (Content::Inline(mk_group(3)), None));
        let (large, bytes) = Content::place(mk_group(50_000)).expect("writes");
        let (digest, bytes) = (large.artifact().expect("an artifact"), bytes.expect("bytes"));
        assert_eq!(Content::read(Kind::AddressGroup, digest, &bytes).expect("reads"), mk_group(50_000));
        assert!(matches!(
            Content::read(Kind::Policy, digest, &bytes),
            Err(ContentError::Malformed { source: None, .. })
        ));
        assert!(matches!(Content::read(Kind::AddressGroup, digest, &bytes[1..]), Err(ContentError::Altered(_))));
    }
}
