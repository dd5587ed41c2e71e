//! Bounded text for people: no control characters, a fixed number of bytes, each kind its own type.

use std::fmt;

use holdfast_model::condition::{DETAIL_BYTES_MAX, bounded};
use holdfast_model::drift::WRITER_BYTES_MAX;
use serde::{Deserialize, Serialize};

use crate::secret_free::secret_free;

/// The text is too long or has control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a text of this kind has at most {bytes_max} bytes and no control characters")]
pub struct TextError {
    /// The most bytes.
    pub bytes_max: usize,
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident, $max:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The most bytes of such a text.
            pub const BYTES_MAX: usize = $max;

            /// Cuts a text to the limit and replaces control characters by spaces.
            #[must_use]
            pub fn new(text: &str) -> Self {
                Self(bounded(text, Self::BYTES_MAX))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = TextError;
            fn try_from(text: String) -> Result<Self, TextError> {
                let good = text.len() <= Self::BYTES_MAX && !text.contains(char::is_control);
                if good { Ok(Self(text)) } else { Err(TextError { bytes_max: Self::BYTES_MAX }) }
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        secret_free!($name);
    )+};
}

texts! {
    /// What an agent says of its build.
    AgentVersion, 64;
    /// Why something is as it is, in words of the one who saw it.
    Detail, DETAIL_BYTES_MAX;
    /// What people call something that has an id: a token, a lease, its holder.
    Label128, 128;
    /// What a kernel calls a process.
    ProcessName, WRITER_BYTES_MAX;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_when_made_and_refused_when_read() {
        let long = "x".repeat(200);
        assert_eq!(Label128::new(&long).as_str().len(), 128);
        assert!(Label128::try_from(long).is_err());
        assert!(Label128::try_from("a\u{0}b".to_owned()).is_err());
        assert_eq!(Detail::new("a\nb").as_str(), "a b");
    }
}
