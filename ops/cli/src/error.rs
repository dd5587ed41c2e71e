//! Why a command did not do what was asked: how it ends by that, how that is told, and what to do.

mod advice;
mod end;
mod text;

use std::path::{Path, PathBuf};

use holdfast_api::object::APPLY_BODY_BYTES_MAX;
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_identity::{credential, files, https, signing, tls, token};

pub(crate) use self::end::End;

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
        if let Self::NotKnown { source, .. } = self {
            return source.is_passing();
        }
        let is_away = matches!(self, Self::Exchange(https::Error::Connect { .. }) | Self::Ended);
        is_away || self.is_broken_off() || matches!(self, Self::Refused(problem) if problem.status == 503)
    }

    /// Whether a change that was asked for may have been made all the same.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_broken_off()
            || matches!(self, Self::Refused(problem) if problem.known_type() == Some(ProblemType::OutcomeUnknown))
    }

    /// Whether the request may have been taken, and what came back is no answer to it.
    fn is_broken_off(&self) -> bool {
        if let Self::Foreign { status, .. } = self {
            return (502..=504).contains(status);
        }
        let Self::Exchange(error) = self else { return false };
        match error {
            https::Error::Exchange { .. } | https::Error::HungUp { .. } | https::Error::Timeout { .. } => true,
            https::Error::Connect { .. }
            | https::Error::Url { .. }
            | https::Error::Header { .. }
            | https::Error::Tls { .. }
            | https::Error::TooLarge { .. } => false,
        }
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
