//! The 32-byte name of content.
//!
//! - A digest is BLAKE3 in key-derivation mode under one context, so that bytes made for another purpose never collide.
//! - The first byte of hashed content is its node tag (see [`crate::artifact`]), which keeps kinds apart.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const CONTEXT: &str = "holdfast.dev 2026-11 artifact node v1";

/// BLAKE3 of one artifact node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// The text is not 64 lower-case hexadecimal characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal characters")]
pub struct DigestError;

impl Digest {
    /// Hashes the bytes of one node.
    #[must_use]
    pub fn of(node: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(node);
        Self(*hasher.finalize().as_bytes())
    }

    /// Wraps bytes that a column or a frame carried.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for columns, frames and signatures.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 characters, for people.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(DigestError),
        };
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(DigestError);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_other_spellings_are_refused() {
        let digest = Digest::of(b"x");
        let text = digest.to_string();
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(text.to_uppercase().parse::<Digest>(), Err(DigestError));
        assert_eq!(text[1..].parse::<Digest>(), Err(DigestError));
    }
}
