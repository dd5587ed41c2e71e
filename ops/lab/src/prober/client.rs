//! The parent's end of a helper process.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{Answer, Listen, Patience, Probe, Reply, Request};
use crate::netns;

/// Why a helper is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its namespace fails.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// It does not start.
    #[error("cannot start a prober in the network namespace {namespace}")]
    Start {
        /// Its namespace.
        namespace: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It does not hear or answer.
    #[error("the prober in the network namespace {namespace} is gone")]
    Gone {
        /// Its namespace.
        namespace: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It answers something else.
    #[error("the prober in the network namespace {namespace} does not answer what it was asked")]
    Confused {
        /// Its namespace.
        namespace: String,
    },
    /// It cannot listen.
    #[error("the prober in the network namespace {namespace} cannot listen: {why}")]
    Listen {
        /// Its namespace.
        namespace: String,
        /// Why, in its own words.
        why: String,
    },
}

/// A helper process in one namespace. It ends when this is dropped.
pub struct Prober {
    namespace: String,
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Prober {
    /// Starts a helper: `program` is this binary, which knows the sub-command.
    ///
    /// # Errors
    /// [`Error::Namespace`] and [`Error::Start`].
    pub fn start(program: &Path, namespace: &str) -> Result<Self, Error> {
        let start = |source| Error::Start { namespace: namespace.to_owned(), source };
        let mut command = Command::new(program);
        command.arg("prober").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = netns::within(namespace, || command.spawn())?.map_err(start)?;
        let requests = child.stdin.take().expect("the helper's input is a pipe");
        let replies = BufReader::new(child.stdout.take().expect("the helper's output is a pipe"));
        Ok(Self { namespace: namespace.to_owned(), child, requests, replies })
    }

    /// Lets the helper answer more than before; it does when this returns.
    ///
    /// # Errors
    /// [`Error::Listen`], [`Error::Gone`] and [`Error::Confused`].
    pub fn listen(&mut self, listen: &Listen) -> Result<(), Error> {
        match self.ask(&Request::Listen(listen.clone()))? {
            Reply::Listening => Ok(()),
            Reply::CannotListen { why } => Err(Error::Listen { namespace: self.namespace.clone(), why }),
            Reply::Answers(_) => Err(self.confused()),
        }
    }

    /// Sends probes and waits for all of their ends, which come in any order.
    ///
    /// # Errors
    /// [`Error::Gone`] and [`Error::Confused`].
    pub fn probe(&mut self, patience: &Patience, probes: &[Probe]) -> Result<Vec<Answer>, Error> {
        match self.ask(&Request::Probe { patience: patience.clone(), probes: probes.to_vec() })? {
            Reply::Answers(answers) if answers.len() == probes.len() => Ok(answers),
            Reply::Answers(_) | Reply::Listening | Reply::CannotListen { .. } => Err(self.confused()),
        }
    }

    fn confused(&self) -> Error {
        Error::Confused { namespace: self.namespace.clone() }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        let mut exchange = || -> io::Result<Reply> {
            let mut text = serde_json::to_vec(request)?;
            text.push(b'\n');
            self.requests.write_all(&text)?;
            let mut line = String::new();
            if self.replies.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(serde_json::from_str(&line)?)
        };
        exchange().map_err(|source| Error::Gone { namespace: self.namespace.clone(), source })
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        // It may have ended by itself; waiting takes it off the list of processes in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
