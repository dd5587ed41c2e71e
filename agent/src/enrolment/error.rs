//! Why a host is not enrolled, and what that says of what was asked.

use std::path::PathBuf;

use holdfast_identity::{credential, files, https, pin, signing, tls, token};
use holdfast_model::name::Name;
use time::OffsetDateTime;

use super::Error;

/// Why a host is not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// It is already.
    #[error("this host is enrolled already; its identity lies in {}", .0.display())]
    Already(PathBuf),
    /// Another process enrols it just now.
    #[error("another `enrol` is under way in {}", .0.display())]
    UnderWay(PathBuf),
    /// Another enrolment was begun and never answered.
    #[error(
        "an enrolment as `{name}` under the CA {ca_pin} was begun here and never answered, so it may have been granted: \
         finish it by the same name and CA, or give it up with --anew"
    )]
    Pending {
        /// The name that it asked for.
        name: Name,
        /// Whose CA it was begun under.
        ca_pin: String,
    },
    /// What was begun before cannot be read.
    #[error("the enrolment that was begun here cannot be taken up; give it up with --anew")]
    Begun(#[source] Error),
    /// The token's file cannot be read.
    #[error("cannot read the token")]
    TokenFile(#[source] files::Error),
    /// The file holds no token.
    #[error("{} holds no enrolment token", .path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: token::Error,
    },
    /// A key or request cannot be made, or the answer's certificate does not fit.
    #[error("the certificate cannot be made or used")]
    Credential(#[from] credential::Error),
    /// The certificate that was granted is over by this host's clock.
    #[error(
        "the certificate that was granted is over since {ended}, by this host's clock, and is not put in place; what was begun is kept: \
         see that the clock is right, then run the same command again"
    )]
    Over {
        /// Its last moment.
        ended: OffsetDateTime,
    },
    /// A signing key cannot be made or read.
    #[error("a signing key cannot be made or used")]
    Key(#[from] signing::Error),
    /// The TLS configuration cannot be made.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The gateway cannot be asked.
    #[error("cannot ask the gateway")]
    Gateway(#[from] https::Error),
    /// The gateway showed no CA with the pinned key.
    #[error("the gateway's CA is not the pinned one")]
    Pin(#[from] pin::Error),
    /// The gateway says no.
    #[error("the gateway refuses, {code}: {detail}")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// The stable word for why.
        code: String,
        /// What to do about it.
        detail: String,
    },
    /// The answer cannot be read.
    #[error("the gateway's answer cannot be read")]
    Answer(#[source] serde_json::Error),
    /// The identity, or what is asked for it, cannot be kept.
    #[error("the host's identity cannot be kept")]
    Save(#[source] Error),
}

impl EnrolError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub fn rule(&self) -> &str {
        match self {
            Self::Already(_) => "enrolled-already",
            Self::UnderWay(_) => "enrolment-underway",
            Self::Pending { .. } => "enrolment-pending",
            Self::TokenFile(error) => error.rule(),
            Self::Token { source, .. } => source.rule(),
            Self::Credential(error) => error.rule(),
            Self::Over { .. } => "certificate-over",
            Self::Key(error) => error.rule(),
            Self::Tls(error) => error.rule(),
            Self::Gateway(error) => error.rule(),
            Self::Pin(error) => error.rule(),
            Self::Refused { code, .. } => code,
            Self::Answer(_) => "gateway-answer",
            Self::Begun(error) | Self::Save(error) => error.rule(),
        }
    }

    /// Whether it may pass by itself: an answer that was lost is there for whoever asks the same again.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Gateway(error) => {
                use https::Error::{Connect, Exchange, HungUp, Timeout};
                matches!(error, Connect { .. } | Exchange { .. } | HungUp { .. } | Timeout { .. })
            }
            Self::Refused { code, .. } => ["busy", "authority-away", "no-answer"].contains(&code.as_str()),
            Self::Already(_)
            | Self::UnderWay(_)
            | Self::Pending { .. }
            | Self::Begun(_)
            | Self::TokenFile(_)
            | Self::Token { .. }
            | Self::Credential(_)
            | Self::Over { .. }
            | Self::Key(_)
            | Self::Tls(_)
            | Self::Pin(_)
            | Self::Answer(_)
            | Self::Save(_) => false,
        }
    }

    /// Whether the control plane decided against it: a token that is no good, or the renderer's refusal (409). Nothing was enrolled then.
    pub(super) fn is_decided(&self) -> bool {
        matches!(self, Self::Refused { status, code, .. } if *status == 409 || code.starts_with("token-"))
    }

    /// Whether the control plane may have taken the request all the same.
    pub(super) fn may_be_taken(&self) -> bool {
        use https::Error::{Connect, Header, HungUp, Tls, Url};
        match self {
            Self::Gateway(Connect { .. } | HungUp { .. } | Header { .. } | Tls { .. } | Url { .. }) | Self::Tls(_) => {
                false
            }
            Self::Refused { .. } => self.passes(),
            Self::Already(_)
            | Self::UnderWay(_)
            | Self::Pending { .. }
            | Self::Begun(_)
            | Self::TokenFile(_)
            | Self::Token { .. }
            | Self::Credential(_)
            | Self::Over { .. }
            | Self::Key(_)
            | Self::Gateway(_)
            | Self::Pin(_)
            | Self::Answer(_)
            | Self::Save(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str) -> EnrolError {
        EnrolError::Refused { status, code: code.to_owned(), detail: String::new() }
    }

    #[test]
    fn only_an_answer_that_decides_ends_what_may_have_been_granted() {
        for (error, passes, is_decided, may_be_taken) in [
            (refused(409, "name-taken"), false, true, false),
            (refused(401, "token-spent"), false, true, false),
            (refused(422, "bad-field"), false, false, false),
            (refused(504, "no-answer"), true, false, true),
            (refused(503, "authority-away"), true, false, true),
            (refused(503, "busy"), true, false, true),
        ] {
            let found = (error.passes(), error.is_decided(), error.may_be_taken());
            assert_eq!(found, (passes, is_decided, may_be_taken), "{error}");
        }
        let authority = || "gw.example:7443".to_owned();
        let nobody =
            https::Error::Connect { authority: authority(), source: std::io::ErrorKind::ConnectionRefused.into() };
        assert!(!EnrolError::Gateway(nobody).may_be_taken());
        let silent = https::Error::Timeout { authority: authority(), limit: std::time::Duration::ZERO };
        assert!(EnrolError::Gateway(silent).may_be_taken());
    }
}
