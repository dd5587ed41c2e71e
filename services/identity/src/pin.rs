//! The pin of a CA: how a host knows the right CA before it ever spoke to it.
//!
//! - A pin is the SHA-256 of the CA's SubjectPublicKeyInfo, so it outlives a renewed CA certificate with the same key.
//! - A certificate found by its pin must also be a CA and must have signed itself: with only the key compared, a gateway
//!   could present a forged certificate around the true key.

use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;
use x509_parser::prelude::{FromDer, X509Certificate};

const PREFIX: &str = "sha256:";

/// Why no CA was found by a pin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no pin.
    #[error("a pin is `sha256:` and 64 lower-case hexadecimal characters")]
    Text,
    /// The bytes are no certificate.
    #[error("the bytes are no X.509 certificate")]
    Malformed,
    /// The chain holds no certificate with that key: another CA, or an impostor.
    #[error("no certificate that the server presented has the pinned key {pin}")]
    Absent {
        /// The pin that was looked for.
        pin: CaPin,
    },
    /// The pinned key is there, in a certificate that is no CA's own.
    #[error("the certificate with the pinned key {pin} is not that CA's own")]
    NotCa {
        /// The pin that was looked for.
        pin: CaPin,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Text => "pin-malformed",
            Self::Malformed => "certificate-malformed",
            Self::Absent { .. } => "pin-absent",
            Self::NotCa { .. } => "pin-not-ca",
        }
    }
}

/// SHA-256 of a CA's public key info.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CaPin([u8; 32]);

impl CaPin {
    /// The pin of one certificate's key.
    ///
    /// # Errors
    /// [`Error::Malformed`] for bytes that are no certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        Ok(Self::of_parsed(&parse(certificate)?))
    }

    fn of_parsed(certificate: &X509Certificate<'_>) -> Self {
        Self(Sha256::digest(certificate.public_key().raw).into())
    }

    /// Finds the CA with this key among presented certificates.
    ///
    /// # Errors
    /// [`Error::Absent`] when none has the key, [`Error::NotCa`] when the one that has it is not that CA's self-signed certificate.
    pub fn find_ca<'c>(&self, presented: &'c [CertificateDer<'c>]) -> Result<&'c CertificateDer<'c>, Error> {
        let mut has_key = false;
        for certificate in presented {
            // What is no certificate has no key: the search goes on, and the chain is verified afterwards.
            let Ok(parsed) = parse(certificate) else { continue };
            if Self::of_parsed(&parsed) == *self {
                has_key = true;
                if parsed.is_ca() && parsed.issuer() == parsed.subject() && parsed.verify_signature(None).is_ok() {
                    return Ok(certificate);
                }
            }
        }
        Err(if has_key { Error::NotCa { pin: *self } } else { Error::Absent { pin: *self } })
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    match X509Certificate::from_der(certificate) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) | Err(_) => Err(Error::Malformed),
    }
}

impl fmt::Display for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for CaPin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // Same shape as a content digest: 64 lower-case hexadecimal characters.
        let hex: holdfast_model::digest::Digest =
            text.strip_prefix(PREFIX).ok_or(Error::Text)?.parse().map_err(|_| Error::Text)?;
        Ok(Self(*hex.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_other_spellings_are_refused() {
        let pin = CaPin([0xab; 32]);
        let text = pin.to_string();
        assert_eq!(text.parse(), Ok(pin));
        for other in [text.to_uppercase(), text[1..].to_owned(), text[7..].to_owned(), format!("{text}0")] {
            assert_eq!(other.parse::<CaPin>(), Err(Error::Text), "{other}");
        }
    }
}
