//! How a command ends, and how it says why it did not do what was asked.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdfast_api::object::APPLY_BODY_BYTES_MAX;
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_identity::{credential, files, https, signing, tls, token};

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

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API refused.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// What answered is not the API.
    #[error("{url} answered {status} with something that is not understood")]
    Foreign {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
    },
    /// The API cannot be reached.
    #[error("the API cannot be reached")]
    Exchange(#[from] https::Error),
    /// A setting is missing.
    #[error("{what}: set {variable} or {flag}; for the demo: . .holdfast/env")]
    Missing {
        /// What.
        what: &'static str,
        /// The variable.
        variable: &'static str,
        /// The flag.
        flag: &'static str,
    },
    /// An argument cannot be used: the rule that it breaks, and what is wrong.
    #[error("{1}")]
    Usage(&'static str, String),
    /// The certificate of the authority.
    #[error("the CA's certificate cannot be used")]
    Ca(#[from] credential::Error),
    /// TLS.
    #[error("TLS cannot be set up")]
    Tls(#[from] tls::Error),
    /// The API token.
    #[error("what {origin} has is no API token")]
    Token {
        /// The file or variable that it came from.
        origin: String,
        /// Why not.
        #[source]
        source: token::Error,
    },
    /// The file of the API token.
    #[error("the token's file cannot be used")]
    SecretFile(#[from] files::Error),
    /// A file.
    #[error("{} cannot be read", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What was read is empty.
    #[error("no document is in what was given; nothing was changed")]
    NoDocument,
    /// A file that is to be made.
    #[error("{} cannot be made", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// More than one apply takes.
    #[error("{}", too_much(path, *bytes))]
    TooMuch {
        /// The file with which it became too much.
        path: PathBuf,
        /// How much it is, where that is known before it is read.
        bytes: Option<u64>,
    },
    /// A change was asked for, and no answer came.
    #[error("whether it was done is not known; to ask for it again and do nothing twice, add: --idempotency-key {key}")]
    NotKnown {
        /// The name that the request gave itself.
        key: String,
        /// What came instead of an answer.
        #[source]
        source: Box<Self>,
    },
    /// Ctrl-C while something was waited for.
    #[error("interrupted; the fleet goes on all the same, to wait again: holdfast {again}")]
    Interrupted {
        /// What to wait for again, as arguments.
        again: String,
    },
    /// A folder without documents.
    #[error("{} has no file that ends with .yaml, .yml or .json", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// A checkpoint.
    #[error("{what} is no checkpoint")]
    Checkpoint {
        /// Where it came from.
        what: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// A checkpoint that the key did not sign.
    #[error("the checkpoint of entry {n} was not signed by this key")]
    Forged {
        /// The entry that it names.
        n: u64,
        /// What the check said.
        #[source]
        source: signing::Error,
    },
    /// An answer that has no end of its own ended.
    #[error("the API ended the answer that was followed")]
    Ended,
    /// A program beside this one.
    #[error("{} cannot be run", program.display())]
    Exec {
        /// Which.
        program: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Something cannot be shown as wanted.
    #[error("the answer has no such form")]
    Form(#[from] serde_json::Error),
    /// Likewise in YAML.
    #[error("the answer has no YAML form")]
    Yaml(#[source] serde_saphyr::ser::Error),
    /// Stdout.
    #[error("nothing can be printed")]
    Print(#[from] std::io::Error),
    /// The runtime.
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
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

    /// The stable name of the rule that was broken; `docs/rules.md` has all of them.
    pub(crate) fn rule(&self) -> &str {
        match self {
            Self::Refused(problem) => problem.rule(),
            Self::NotKnown { source, .. } => source.rule(),
            Self::Foreign { .. } => "foreign-answer",
            Self::Exchange(error) => error.rule(),
            Self::Missing { .. } => "setting-missing",
            Self::Usage(rule, _) => rule,
            Self::Ca(error) => error.rule(),
            Self::Tls(error) => error.rule(),
            Self::Token { source, .. } => source.rule(),
            Self::SecretFile(error) => error.rule(),
            Self::Read { .. } => "input-unreadable",
            Self::TooMuch { .. } => "input-too-much",
            Self::Write { .. } => "output-unwritable",
            Self::NoDocument => "input-empty",
            Self::Interrupted { .. } => "interrupted",
            Self::Empty { .. } => "folder-empty",
            Self::Checkpoint { .. } => "checkpoint-malformed",
            Self::Forged { .. } => "checkpoint-forged",
            Self::Exec { .. } => "program-missing",
            Self::Form(_) | Self::Yaml(_) | Self::Print(_) => "print",
            Self::Ended => "answer-ended",
            Self::Runtime(_) => "runtime",
        }
    }

    /// Whether the same may be served a moment later: the API is away, or its database is.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Exchange(error) => match error {
                https::Error::Connect { .. }
                | https::Error::Exchange { .. }
                | https::Error::HungUp { .. }
                | https::Error::Timeout { .. } => true,
                https::Error::Url { .. }
                | https::Error::Header { .. }
                | https::Error::Tls { .. }
                | https::Error::TooLarge { .. } => false,
            },
            Self::Refused(problem) => problem.status == 503,
            Self::NotKnown { source, .. } => source.is_passing(),
            Self::Ended => true,
            Self::Foreign { status, .. } => (502..=504).contains(status),
            Self::Missing { .. }
            | Self::Usage(..)
            | Self::Ca(_)
            | Self::Tls(_)
            | Self::Token { .. }
            | Self::SecretFile(_)
            | Self::Read { .. }
            | Self::Empty { .. }
            | Self::TooMuch { .. }
            | Self::Write { .. }
            | Self::NoDocument
            | Self::Interrupted { .. }
            | Self::Checkpoint { .. }
            | Self::Forged { .. }
            | Self::Exec { .. }
            | Self::Form(_)
            | Self::Yaml(_)
            | Self::Print(_)
            | Self::Runtime(_) => false,
        }
    }

    /// Whether a change that was asked for may have been made all the same.
    pub(crate) fn is_uncertain(&self) -> bool {
        match self {
            Self::Exchange(error) => match error {
                https::Error::Exchange { .. } | https::Error::HungUp { .. } | https::Error::Timeout { .. } => true,
                https::Error::Connect { .. }
                | https::Error::Url { .. }
                | https::Error::Header { .. }
                | https::Error::Tls { .. }
                | https::Error::TooLarge { .. } => false,
            },
            Self::Refused(problem) => problem.known_type() == Some(ProblemType::OutcomeUnknown),
            Self::Foreign { status, .. } => (502..=504).contains(status),
            Self::Ended
            | Self::NotKnown { .. }
            | Self::Missing { .. }
            | Self::Usage(..)
            | Self::Ca(_)
            | Self::Tls(_)
            | Self::Token { .. }
            | Self::SecretFile(_)
            | Self::Read { .. }
            | Self::Empty { .. }
            | Self::TooMuch { .. }
            | Self::Write { .. }
            | Self::NoDocument
            | Self::Interrupted { .. }
            | Self::Checkpoint { .. }
            | Self::Forged { .. }
            | Self::Exec { .. }
            | Self::Form(_)
            | Self::Yaml(_)
            | Self::Print(_)
            | Self::Runtime(_) => false,
        }
    }

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

    /// For people: what happened, every finding on a line of its own, and the request's id.
    pub(crate) fn to_text(&self) -> String {
        let Self::Refused(problem) = self else {
            let advice = self.advice().map(|advice| format!("\n  -> {advice}")).unwrap_or_default();
            return format!("error: {} [{}]{advice}", chain(self), self.rule());
        };
        let mut text = String::new();
        // Writing into a string does not fail.
        let _written = refusal(&mut text, problem);
        if let Some(advice) = self.advice() {
            text.push_str("\n  -> ");
            text.push_str(&advice);
        }
        text
    }

    /// For programs: the API's problem as it came, or one of the same form.
    pub(crate) fn to_json(&self) -> String {
        if let Self::Refused(problem) = self {
            return serde_json::to_string(problem).unwrap_or_else(|_| self.to_text());
        }
        let problem = serde_json::json!({
            "type": "urn:holdfast:problem:client",
            "title": "The command did not reach its end",
            "detail": chain(self),
            "advice": self.advice(),
            "rule": self.rule(),
        });
        problem.to_string()
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
        | ProblemType::RequestTimeout
        | ProblemType::SecretNotKept
        | ProblemType::StaleObject
        | ProblemType::StalePlan
        | ProblemType::RolloutOpen
        | ProblemType::RolloutState
        | ProblemType::StaleRevision
        | ProblemType::UnexpectedCount => None,
    }
}

fn too_much(path: &Path, bytes: Option<u64>) -> String {
    let max = APPLY_BODY_BYTES_MAX >> 20;
    let found = match bytes {
        Some(bytes) => format!("have {} MiB, one apply takes at most {max} MiB", bytes >> 20),
        None => format!("do not end within {max} MiB, the most that one apply takes"),
    };
    format!("{} and what was read before it {found}: apply them in parts", path.display())
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

fn refusal(text: &mut String, problem: &Problem) -> std::fmt::Result {
    write!(text, "error: {}", problem.detail)?;
    for finding in &problem.findings {
        if finding.file.is_empty() && finding.message == problem.detail {
            // It was just said; only the rule is new.
            write!(text, " [{}]", finding.rule)?;
            continue;
        }
        text.push_str("\n  ");
        if !finding.file.is_empty() {
            text.push_str(&finding.file);
            if finding.line > 0 {
                write!(text, ":{}", finding.line)?;
            }
            text.push_str(": ");
        }
        if finding.document > 0 {
            write!(text, "document {}: ", finding.document)?;
        }
        if !finding.path.is_empty() {
            write!(text, "{}: ", finding.path)?;
        }
        write!(text, "{} [{}]", finding.message, finding.rule)?;
    }
    if let Some(id) = &problem.request_id {
        write!(text, "\n  request {id}, {} ({})", problem.kind, problem.status)?;
    }
    Ok(())
}

/// The text of an error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn end_of(problem: &Problem) -> End {
    match problem.known_type() {
        Some(ProblemType::NotFound) => End::NotFound,
        Some(
            ProblemType::AgentOffline
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
    use holdfast_api::problem::Finding;

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

    #[test]
    fn what_was_just_said_is_not_said_again() {
        let mut problem = Problem::new(ProblemType::InvalidRequest, "a service is written as 443/tcp");
        problem.findings.push(Finding {
            file: String::new(),
            document: 0,
            line: 0,
            path: "service".to_owned(),
            rule: "service".to_owned(),
            message: "a service is written as 443/tcp".to_owned(),
        });
        let text = Error::Refused(Box::new(problem)).to_text();
        assert_eq!(text, "error: a service is written as 443/tcp [service]");
    }

    #[test]
    fn advice_is_given_where_it_can_be_known() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let read = Error::Read { path: "x".into(), source: denied };
        assert!(read.to_text().contains("sudo"), "{}", read.to_text());
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(Error::Read { path: "x".into(), source: gone }.advice(), None, "that it is not there says it all");
        let secret = files::Error::Read { path: "t".into(), source: std::io::ErrorKind::NotFound.into() };
        assert!(Error::SecretFile(secret).to_text().contains(".holdfast/env"));
    }

    #[test]
    fn every_finding_has_a_line_with_its_place_and_rule() {
        let mut problem = Problem::new(ProblemType::DocumentsRefused, "the input has 1 fault");
        problem.request_id = Some("r1".to_owned());
        problem.findings.push(Finding {
            file: "a.yaml".to_owned(),
            document: 2,
            line: 9,
            path: "spec.ingress[0].from[0].cidr".to_owned(),
            rule: "cidr".to_owned(),
            message: "`x` is no prefix".to_owned(),
        });
        let text = Error::Refused(Box::new(problem)).to_text();
        assert_eq!(
            text,
            "error: the input has 1 fault\n  a.yaml:9: document 2: spec.ingress[0].from[0].cidr: `x` is no prefix \
             [cidr]\n  request r1, urn:holdfast:problem:documents-refused (422)"
        );
    }
}
