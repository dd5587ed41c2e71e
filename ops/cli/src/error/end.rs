//! How a command ends, as scripts see it.

use std::process::ExitCode;

use holdfast_api::problem::{Problem, ProblemType};

use super::Error;

/// The ends of a command, as scripts see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// As asked.
    Done,
    /// It failed, or what was checked is not so.
    Failed,
    /// There are differences, and that was the question.
    Differences,
    /// There is no such thing.
    NotFound,
    /// A conflict, or something newer is there.
    Conflict,
    /// Not allowed.
    NotAllowed,
    /// Not applied by the deadline.
    NotApplied,
    /// Applied everywhere but not proven.
    NotConverged,
    /// Nothing is in trouble, but something is under way or overdue.
    UnderWay,
    /// Ctrl-C ended a wait.
    Interrupted,
    /// A flow is not allowed, and that was the question.
    Denied,
    /// The command line or its environment is wrong.
    Usage,
}

impl From<End> for ExitCode {
    fn from(end: End) -> Self {
        Self::from(match end {
            End::Done => 0,
            End::Failed => 1,
            End::Differences => 2,
            End::NotFound => 3,
            End::Conflict => 4,
            End::NotAllowed => 5,
            End::NotApplied => 6,
            End::NotConverged => 7,
            End::UnderWay => 8,
            End::Denied => 9,
            End::Usage => 64,
            // As a shell tells of a program that SIGINT ended.
            End::Interrupted => 130,
        })
    }
}

impl Error {
    /// How the command ends by it.
    pub(crate) fn end(&self) -> End {
        match self {
            Self::Refused(problem) => end_of(problem),
            Self::Missing { .. } | Self::Usage(..) => End::Usage,
            Self::Interrupted { .. } => End::Interrupted,
            Self::NotKnown { source, .. } => source.end(),
            Self::Foreign { .. }
            | Self::Exchange(_)
            | Self::Ca(_)
            | Self::Tls(_)
            | Self::Token { .. }
            | Self::SecretFile(_)
            | Self::Read { .. }
            | Self::Empty { .. }
            | Self::TooMuch { .. }
            | Self::Write { .. }
            | Self::NoDocument
            | Self::Checkpoint { .. }
            | Self::Forged { .. }
            | Self::Exec { .. }
            | Self::Form(_)
            | Self::Yaml(_)
            | Self::Print(_)
            | Self::Ended
            | Self::Runtime(_) => End::Failed,
        }
    }
}

fn end_of(problem: &Problem) -> End {
    match problem.known_type() {
        Some(ProblemType::NotFound) => End::NotFound,
        Some(
            ProblemType::AgentOffline
            | ProblemType::RendererOutdated
            | ProblemType::RolloutOpen
            | ProblemType::RolloutState
            | ProblemType::AlreadyRevoked
            | ProblemType::BlastRadius
            | ProblemType::IdempotencyKeyReused
            | ProblemType::NotRendered
            | ProblemType::OperationEnded
            | ProblemType::SecretNotKept
            | ProblemType::StaleObject
            | ProblemType::StalePlan
            | ProblemType::StaleRevision
            | ProblemType::StaleRollout
            | ProblemType::UnexpectedCount,
        ) => End::Conflict,
        Some(ProblemType::NotAllowed | ProblemType::Unauthenticated) => End::NotAllowed,
        Some(
            ProblemType::Ambiguous
            | ProblemType::AuditUnavailable
            | ProblemType::BodyTooLarge
            | ProblemType::Busy
            | ProblemType::DatabaseUnavailable
            | ProblemType::DocumentsRefused
            | ProblemType::Internal
            | ProblemType::InvalidCursor
            | ProblemType::InvalidRequest
            | ProblemType::MediaType
            | ProblemType::MethodNotAllowed
            | ProblemType::OutcomeUnknown
            | ProblemType::RequestTimeout,
        ) => End::Failed,
        // A type of a newer API: its status tells enough.
        None => match problem.status {
            404 => End::NotFound,
            409 | 412 => End::Conflict,
            401 | 403 => End::NotAllowed,
            _ => End::Failed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_end_as_the_table_of_exit_codes_says() {
        let end = |kind| Error::Refused(Box::new(Problem::new(kind, "x"))).end();
        assert_eq!(end(ProblemType::NotFound), End::NotFound);
        assert_eq!(end(ProblemType::StaleRevision), End::Conflict);
        assert_eq!(end(ProblemType::Unauthenticated), End::NotAllowed);
        assert_eq!(end(ProblemType::DocumentsRefused), End::Failed);
        let mut newer = Problem::new(ProblemType::NotFound, "x");
        newer.kind = "urn:holdfast:problem:something-new".to_owned();
        newer.status = 412;
        assert_eq!(Error::Refused(Box::new(newer)).end(), End::Conflict);
    }
}
