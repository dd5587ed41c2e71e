//! `holdfast-agent override`: a policy of the host's own comes or goes, and the running agent follows.
//!
//! - What is no policy is not put in place. What the running agent refuses, or does not answer, is taken back: what was there before is there again,
//!   to the byte, also if it was no policy.
//! - An agent that answers late finds what was there before: it is told to read again, behind the question that it did not answer.

use std::path::Path;

use super::print;
use crate::local::{self, Answer, Question};
use crate::standalone;

/// Why the policy of the host's own is as it was, or is not.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The file says no policy, or what is in its place cannot be kept: nothing was changed.
    #[error("the local policy was not changed")]
    Unchanged(#[source] standalone::Error),
    /// The running agent does not take it.
    #[error("the running agent refuses it, and {before}: {reason}")]
    Refused { reason: String, before: Before },
    /// The running agent says nothing that is an answer.
    #[error("the running agent does not answer, and {before}; `holdfast-agent status` says what is in force")]
    Unanswered {
        before: Before,
        #[source]
        source: local::Error,
    },
    /// What was there before could not be put back.
    #[error("the running agent did not take it ({reason}), and what was there before cannot be put back")]
    NotBack {
        reason: String,
        #[source]
        source: standalone::Error,
    },
    /// What came of it cannot be printed.
    #[error("cannot print")]
    Print(#[source] std::io::Error),
}

/// What is in place again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    None,
    Policy,
    Broken,
}

impl std::fmt::Display for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "there is no local policy, as before",
            Self::Policy => "the local policy that was there is back",
            Self::Broken => {
                "the file that was there is back, which is no policy (`holdfast-agent override --clear` removes it)"
            }
        })
    }
}

impl Error {
    pub(super) fn rule(&self) -> &str {
        match self {
            Self::Unchanged(error) => error.rule(),
            Self::Refused { .. } => "override-refused",
            Self::Unanswered { .. } => "override-unanswered",
            Self::NotBack { .. } => "override-half-done",
            Self::Print(_) => "print",
        }
    }
}

/// Puts a policy of this host's own in place, or takes it away, and has the running agent follow. What it does not take is taken back.
pub(super) fn replace(state: &Path, file: Option<&Path>) -> Result<(), Error> {
    let body = file.map(standalone::load_policy).transpose().map_err(Error::Unchanged)?;
    let bytes = standalone::read_local(state).map_err(Error::Unchanged)?;
    let before = match (&bytes, standalone::load_local(state)) {
        (None, _) => Before::None,
        (Some(_), Ok(_)) => Before::Policy,
        (Some(_), Err(_)) => Before::Broken,
    };
    standalone::save_local(state, body.as_ref()).map_err(Error::Unchanged)?;
    let put_back = |reason: &str| {
        let written = standalone::write_local(state, bytes.as_deref());
        written.map_err(|source| Error::NotBack { reason: reason.to_owned(), source })
    };
    let refused = |reason: String| {
        put_back(&reason)?;
        Err(Error::Refused { reason, before })
    };
    match local::ask(state, Question::Reload) {
        Ok(Answer::Local { in_force }) => print::local(in_force).map_err(Error::Print),
        Ok(Answer::Reloaded(_)) => {
            refused("it takes its policy from a file; change that file, and `holdfast-agent reload`".to_owned())
        }
        Ok(Answer::Failed(reason)) => refused(reason),
        Ok(Answer::Status(_) | Answer::Down { .. }) => {
            refused("an answer to another question came: another build's agent runs, restart it".to_owned())
        }
        Err(local::Error::NotRunning(_)) => print::local_later(body.is_some()).map_err(Error::Print),
        Err(source) => {
            put_back("it does not answer")?;
            // An agent that is gone reads at its next start what is there again.
            let _told = local::tell(state, Question::Reload);
            Err(Error::Unanswered { before, source })
        }
    }
}
