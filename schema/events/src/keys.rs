//! Public keys and signatures as events and columns carry them. No private key has this form anywhere in Holdfast.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::secret_free::secret_free;

/// The text is no key or signature in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {bytes} bytes in lower-case hexadecimal")]
pub struct KeyTextError {
    /// What was wanted.
    pub what: &'static str,
    /// How many bytes it has.
    pub bytes: usize,
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident, $bytes:literal, $what:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Wraps the bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// The bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = KeyTextError;

            fn from_str(text: &str) -> Result<Self, KeyTextError> {
                let bad = || KeyTextError { what: $what, bytes: $bytes };
                let nibble = |c: u8| match c {
                    b'0'..=b'9' => Ok(c - b'0'),
                    b'a'..=b'f' => Ok(c - b'a' + 10),
                    _ => Err(bad()),
                };
                let (pairs, rest) = text.as_bytes().as_chunks::<2>();
                let mut bytes = [0; $bytes];
                if pairs.len() != bytes.len() || !rest.is_empty() {
                    return Err(bad());
                }
                for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
                    *byte = nibble(*high)? << 4 | nibble(*low)?;
                }
                Ok(Self(bytes))
            }
        }

        impl TryFrom<String> for $name {
            type Error = KeyTextError;
            fn try_from(text: String) -> Result<Self, KeyTextError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(key: $name) -> Self {
                key.to_string()
            }
        }

        secret_free!($name);
    )+};
}

keys! {
    /// An Ed25519 signature.
    SignatureBytes, 64, "a signature";
    /// An Ed25519 public key.
    VerifyingKeyBytes, 32, "a public key";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_other_lengths_are_refused() {
        let signature = SignatureBytes::from_bytes([0xa5; 64]);
        assert_eq!(signature.to_string().parse(), Ok(signature));
        assert!("a5".parse::<SignatureBytes>().is_err());
        assert!("A5".repeat(64).parse::<SignatureBytes>().is_err());
    }
}
