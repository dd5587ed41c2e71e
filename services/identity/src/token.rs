//! Bearer tokens: what a host shows to enrol and an operator's client shows to the API.
//!
//! - 32 random bytes in URL-safe base64 behind a prefix that names the kind (`hfe_`, `hfa_`), so that a leak is found by a search.
//! - At rest there is only the SHA-256 of the text (256 random bits need no slow hash); comparison takes constant time.
//! - A token has no `Display` and a redacted `Debug`, and is wiped from memory; [`Token::reveal`] is its one way out.
//!
//! Scope, expiry and uses belong to the store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const SECRET_BYTES: usize = 32;
/// 4 of the prefix and 43 of 32 bytes in base64 without padding.
const TEXT_LEN: usize = 47;
/// How many characters a listing keeps: the prefix and 8.
const PREVIEW_LEN: usize = 12;

/// Why a text is no token. The text itself is never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither prefix, or another alphabet or length.
    #[error("the text is no token")]
    Malformed,
    /// A token of the other kind.
    #[error("this is {found}, where {wanted} is wanted")]
    OtherKind {
        /// What was wanted.
        wanted: TokenKind,
        /// What it is.
        found: TokenKind,
    },
    /// The system gives no randomness.
    #[error("the system gives no randomness")]
    Randomness,
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Malformed => "token-malformed",
            Self::OtherKind { .. } => "token-kind",
            Self::Randomness => "randomness",
        }
    }
}

/// What a token opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Calls the operators' API.
    Api,
    /// Enrols hosts.
    Enrol,
}

impl TokenKind {
    /// What the text begins with.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Api => "hfa_",
            Self::Enrol => "hfe_",
        }
    }
}

impl fmt::Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "an API token",
            Self::Enrol => "an enrolment token",
        })
    }
}

/// A token in the clear, for as long as it is shown or checked.
pub struct Token {
    kind: TokenKind,
    text: Zeroizing<String>,
}

impl Token {
    /// Makes a token from the system's randomness.
    ///
    /// # Errors
    /// [`Error::Randomness`] when there is none.
    pub fn generate(kind: TokenKind) -> Result<Self, Error> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        SystemRandom::new().fill(secret.as_mut()).map_err(|_| Error::Randomness)?;
        // Sized once, so that no shorter copy is left behind by a growing string.
        let mut text = Zeroizing::new(String::with_capacity(TEXT_LEN));
        text.push_str(kind.prefix());
        URL_SAFE_NO_PAD.encode_string(secret.as_ref(), &mut text);
        Ok(Self { kind, text })
    }

    /// Reads a token that somebody showed; white space around it (a file's last line) is not part of it.
    ///
    /// # Errors
    /// [`Error::OtherKind`] for a token of another kind, [`Error::Malformed`] for anything else.
    pub fn parse(wanted: TokenKind, text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let kinds = [TokenKind::Api, TokenKind::Enrol];
        let found = kinds.into_iter().find(|kind| text.starts_with(kind.prefix())).ok_or(Error::Malformed)?;
        let body = text.strip_prefix(found.prefix()).ok_or(Error::Malformed)?;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        // The engine refuses padding and left-over bits: one spelling per secret.
        if URL_SAFE_NO_PAD.decode_slice(body, secret.as_mut()) != Ok(SECRET_BYTES) {
            return Err(Error::Malformed);
        }
        if found != wanted {
            return Err(Error::OtherKind { wanted, found });
        }
        Ok(Self { kind: found, text: Zeroizing::new(text.to_owned()) })
    }

    /// What it opens.
    #[must_use]
    pub const fn kind(&self) -> TokenKind {
        self.kind
    }

    /// The text: to be shown once, or sent.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The prefix and 8 characters, for listings: 48 of 256 bits.
    #[must_use]
    pub fn preview(&self) -> String {
        self.text.chars().take(PREVIEW_LEN).collect()
    }

    /// What is kept at rest and looked up.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.text.as_bytes()).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.kind.prefix())
    }
}

/// SHA-256 of a token's text. Compared in constant time, also by `==`.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Wraps a stored hash.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the column.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether `token` is the one that was hashed.
    #[must_use]
    pub fn matches(&self, token: &Token) -> bool {
        *self == token.hash()
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_reads_back_and_matches_its_own_hash_only() {
        for kind in [TokenKind::Api, TokenKind::Enrol] {
            let (one, two) = (Token::generate(kind).unwrap(), Token::generate(kind).unwrap());
            assert_eq!(one.reveal().len(), TEXT_LEN);
            let shown = Token::parse(kind, &format!("{}\n", one.reveal())).unwrap();
            assert!(one.hash().matches(&shown) && !one.hash().matches(&two));
        }
    }

    #[test]
    fn other_kind_is_told_apart_from_no_token_at_all() {
        let token = Token::generate(TokenKind::Enrol).unwrap();
        let other = Token::parse(TokenKind::Api, token.reveal());
        assert!(matches!(other, Err(Error::OtherKind { wanted: TokenKind::Api, found: TokenKind::Enrol })));
        let text = token.reveal();
        for bad in [
            "",
            "hfe_",
            &text[4..],
            &text[..46],
            &format!("{text}A"),
            &format!("{text}="),
            &format!("hfe_{}", "+".repeat(43)),
        ] {
            assert!(matches!(Token::parse(TokenKind::Enrol, bad), Err(Error::Malformed)));
        }
    }

    #[test]
    fn debug_and_errors_never_show_the_secret() {
        let token = Token::generate(TokenKind::Api).unwrap();
        let secret = &token.reveal()[12..];
        let shown = format!("{token:?} {:?} {:?}", token.hash(), Token::parse(TokenKind::Enrol, token.reveal()));
        assert!(!shown.contains(secret), "{shown}");
        assert_eq!(token.preview().len(), PREVIEW_LEN);
    }
}
