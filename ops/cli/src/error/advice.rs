//! What can be done about an error, where that can be known from here.

use std::borrow::Cow;

use holdfast_api::problem::{Problem, ProblemType};
use holdfast_identity::{files, https};

use super::Error;

impl Error {
    /// What to do about it, where that can be known from here.
    pub(crate) fn advice(&self) -> Option<Cow<'static, str>> {
        if let Self::SecretFile(files::Error::Exposed { path, .. }) = self {
            return Some(format!("chmod 600 {}", path.display()).into());
        }
        if let Self::Refused(problem) = self {
            if let Some(brake) = &problem.brake {
                let digest = &brake.acknowledge;
                return Some(format!("if it is meant, add: --acknowledge '{digest}|why it is meant'").into());
            }
            return of_problem(problem).map(Cow::Borrowed);
        }
        self.fixed_advice().map(Cow::Borrowed)
    }

    fn fixed_advice(&self) -> Option<&'static str> {
        const OWNER: &str = "the file is another user's: run this as that user (sudo -E \"$(command -v holdfast)\" …), or have it made readable; \
                             ./ops/up run by sudo gives the demo's files to the user who ran it";
        match self {
            Self::Exchange(https::Error::Connect { .. } | https::Error::Timeout { .. }) => {
                Some("is the plane up? the demo's: ./ops/up --detach; `holdfast doctor` looks further")
            }
            Self::Exchange(https::Error::Tls { .. }) => {
                Some("is it this plane's CA? `holdfast doctor` shows names and dates of the certificate")
            }
            Self::Exchange(https::Error::HungUp { .. }) => {
                Some("something listens there and hangs up: is the gateway behind it up? the demo's: ./ops/up --detach")
            }
            Self::Token { .. } => Some(
                "an API token is one word that begins with hfa_; an admin makes one: holdfast api-token create NAME --role ROLE",
            ),
            Self::Exchange(https::Error::TooLarge { .. }) => Some("ask for less: one namespace, one kind"),
            Self::Exchange(https::Error::Url { .. }) => Some("an address is written as https://HOST:PORT"),
            Self::Foreign { .. } => {
                Some("is the address the operators' door of holdfast-gateway? `holdfast doctor` looks")
            }
            Self::Exec { .. } => {
                Some("it is built and installed with holdfast; . .holdfast/env puts the demo's on the PATH")
            }
            Self::Write { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
                Some("a secret is written over no file: name another one, or take this one away")
            }
            Self::Ca(_) | Self::SecretFile(_) | Self::Read { .. } => match io_kind(self) {
                Some(std::io::ErrorKind::PermissionDenied) => Some(OWNER),
                Some(std::io::ErrorKind::NotFound) if !matches!(self, Self::Read { .. }) => {
                    Some("the demo's files are made by ./ops/up, and named by . .holdfast/env")
                }
                Some(_) | None => None,
            },
            Self::NotKnown { source, .. } => source.fixed_advice(),
            Self::Refused(_)
            | Self::Exchange(https::Error::Header { .. } | https::Error::Exchange { .. })
            | Self::Missing { .. }
            | Self::Usage(..)
            | Self::Tls(_)
            | Self::Empty { .. }
            | Self::TooMuch { .. }
            | Self::Write { .. }
            | Self::NoDocument
            | Self::Interrupted { .. }
            | Self::Checkpoint { .. }
            | Self::Forged { .. }
            | Self::Form(_)
            | Self::Yaml(_)
            | Self::Print(_)
            | Self::Ended
            | Self::Runtime(_) => None,
        }
    }
}

/// What to do about a refusal that is not about what was asked.
fn of_problem(problem: &Problem) -> Option<&'static str> {
    match problem.known_type()? {
        ProblemType::DatabaseUnavailable => Some(
            "look at Postgres and at the gateway's log; `./ops/up --detach` starts again what has ended of the demo",
        ),
        ProblemType::AuditUnavailable => Some("look at holdfast-audit and its log; events wait and are not lost"),
        ProblemType::Unauthenticated => Some(
            "is the token of another fleet? `. STATE/env` of this one again; \
             an admin makes a new one: holdfast api-token create NAME --role ROLE",
        ),
        ProblemType::AgentOffline => {
            Some("it gets its whole state when it comes back; on the host, `holdfast-agent doctor` says why it is away")
        }
        ProblemType::AlreadyRevoked
        | ProblemType::Ambiguous
        | ProblemType::BlastRadius
        | ProblemType::BodyTooLarge
        | ProblemType::Busy
        | ProblemType::DocumentsRefused
        | ProblemType::IdempotencyKeyReused
        | ProblemType::Internal
        | ProblemType::InvalidCursor
        | ProblemType::InvalidRequest
        | ProblemType::MediaType
        | ProblemType::MethodNotAllowed
        | ProblemType::NotAllowed
        | ProblemType::NotFound
        | ProblemType::NotRendered
        | ProblemType::OperationEnded
        | ProblemType::OutcomeUnknown
        | ProblemType::RendererOutdated
        | ProblemType::RequestTimeout
        | ProblemType::SecretNotKept
        | ProblemType::StaleObject
        | ProblemType::StalePlan
        | ProblemType::RolloutOpen
        | ProblemType::RolloutState
        | ProblemType::StaleRevision
        | ProblemType::StaleRollout
        | ProblemType::UnexpectedCount => None,
    }
}

/// The system's own word in a chain of causes, if there is one.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_where_it_can_be_known() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let read = Error::Read { path: "x".into(), source: denied };
        assert!(read.to_text().contains("sudo"), "{}", read.to_text());
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(Error::Read { path: "x".into(), source: gone }.advice(), None, "that it is not there says it all");
        let there = Error::Write { path: "t".into(), source: std::io::ErrorKind::AlreadyExists.into() };
        assert!(there.to_text().contains("name another one"), "{}", there.to_text());
        let secret = files::Error::Read { path: "t".into(), source: std::io::ErrorKind::NotFound.into() };
        assert!(Error::SecretFile(secret).to_text().contains(".holdfast/env"));
    }
}
