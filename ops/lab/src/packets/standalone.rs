//! A fleet of agents without a control plane: each takes what was rendered for its host from a file.
//!
//! - The body is the renderer's, but for the mode, which a run sets; agents read their file again when asked and answer with the outcome.
//! - A host is in a mode only when its agent says that the kernel was read back and holds the policy of that mode.
//! - Nothing is kept open besides what the agent always keeps: no failsafe port, no gateway, no resolver.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_agent::local::{self, Answer, Question};
use holdfast_model::artifact;
use holdfast_model::policy::{Body, Mode};

use super::commanded::drops_of_hosts;
use super::{Fleet, FleetError};
use crate::agents;
use crate::lab::Lab;
use crate::netns;
use crate::record::{Host, Process};

/// How long an agent has to start and put its first policy in force.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a starting agent is asked; it has no way to call.
const ASK_INTERVAL: Duration = Duration::from_millis(10);

/// Why a fleet of agents does not follow.
#[derive(Debug, thiserror::Error)]
pub enum StandaloneError {
    /// Nothing was rendered for a host.
    #[error("nothing was rendered for the host `{host}`")]
    NotRendered {
        /// The host.
        host: String,
    },
    /// The file of its policy cannot be written.
    #[error("cannot write {}", .file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An agent does not start.
    #[error(transparent)]
    Agent(#[from] agents::Error),
    /// An agent ended.
    #[error("the agent of the host `{host}` ended; its log in {} may say why", .state.display())]
    Ended {
        /// The host.
        host: String,
        /// Its state folder.
        state: PathBuf,
    },
    /// An agent does not answer.
    #[error("cannot ask the agent of the host `{host}`")]
    Ask {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: local::Error,
    },
    /// A policy is not in force.
    #[error("the agent of the host `{host}` does not hold its policy in the mode {mode}: {said}")]
    NotInForce {
        /// The host.
        host: String,
        /// The mode.
        mode: Mode,
        /// What it said.
        said: String,
    },
}

/// Agents of a lab's hosts, and what was rendered for them.
#[derive(Debug)]
pub struct Standalone {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    host: Host,
    agent: Process,
    policy: PathBuf,
    body: Arc<Body>,
}

impl Standalone {
    /// Starts the agents that do not run yet, with everything in visibility. `bodies` is by host name.
    ///
    /// # Errors
    /// See [`StandaloneError`].
    pub fn start(lab: &mut Lab, program: &Path, bodies: &BTreeMap<String, Arc<Body>>) -> Result<Self, StandaloneError> {
        let hosts = lab.record().hosts.clone();
        let mut members = Vec::with_capacity(hosts.len());
        for host in hosts {
            let body =
                bodies.get(&host.name).ok_or_else(|| StandaloneError::NotRendered { host: host.name.clone() })?;
            let policy = host.state.with_extension("hfp");
            write_policy(&policy, body, Mode::Visibility)?;
            let flags = ["run", "--standalone", &policy.display().to_string(), "--state", "{state}"];
            let arguments: Vec<String> = flags.into_iter().chain(["--failsafe-ports", ""]).map(str::to_owned).collect();
            let agent = agents::start(lab, &host.name, &program.display().to_string(), &arguments)?;
            members.push(Member { host, agent, policy, body: Arc::clone(body) });
        }
        members.iter().try_for_each(Member::await_start)?;
        Ok(Self { members })
    }

    fn set_mode(&self, mode: Mode) -> Result<(), StandaloneError> {
        for member in &self.members {
            write_policy(&member.policy, &member.body, mode)?;
        }
        // Agents work at the same time: each waits for its own kernel and disk.
        thread::scope(|scope| {
            let asked: Vec<_> = self.members.iter().map(|member| scope.spawn(move || member.reload(mode))).collect();
            asked.into_iter().try_for_each(|asked| match asked.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

impl Fleet for Standalone {
    fn ensure_mode(&mut self, mode: Mode) -> Result<(), FleetError> {
        self.set_mode(mode).map_err(|error| FleetError(error.into()))
    }

    fn observe_drops(&mut self) -> Result<BTreeMap<String, u64>, FleetError> {
        drops_of_hosts(self.members.iter().map(|member| &member.host))
    }
}

impl Member {
    fn ask(&self, question: Question) -> Result<Answer, local::Error> {
        local::ask(&self.host.state, question)
    }

    fn failed(&self, source: local::Error) -> StandaloneError {
        StandaloneError::Ask { host: self.host.name.clone(), source }
    }

    fn not_in_force(&self, mode: Mode, said: String) -> StandaloneError {
        StandaloneError::NotInForce { host: self.host.name.clone(), mode, said }
    }

    /// Waits until the agent answers; what it then holds is seen when a mode is set.
    fn await_start(&self) -> Result<(), StandaloneError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.ask(Question::Status) {
                Ok(_) => return Ok(()),
                Err(local::Error::NotRunning(_)) if Instant::now() < deadline => {
                    if netns::find_process(self.agent.pid) != Some(self.agent) {
                        let (host, state) = (self.host.name.clone(), self.host.state.clone());
                        return Err(StandaloneError::Ended { host, state });
                    }
                    thread::sleep(ASK_INTERVAL);
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Makes the agent read its file again, and sees that the kernel holds it.
    fn reload(&self, mode: Mode) -> Result<(), StandaloneError> {
        match self.ask(Question::Reload).map_err(|error| self.failed(error))? {
            Answer::Reloaded(outcome) if outcome.is_applied() => {}
            answer @ (Answer::Reloaded(_)
            | Answer::Status(_)
            | Answer::Local { .. }
            | Answer::Down { .. }
            | Answer::Failed(_)) => {
                return Err(self.not_in_force(mode, format!("{answer:?}")));
            }
        }
        match self.ask(Question::Status).map_err(|error| self.failed(error))? {
            Answer::Status(status) if status.policy.proven && status.policy.mode == mode => Ok(()),
            answer @ (Answer::Reloaded(_)
            | Answer::Status(_)
            | Answer::Local { .. }
            | Answer::Down { .. }
            | Answer::Failed(_)) => Err(self.not_in_force(mode, format!("{answer:?}"))),
        }
    }
}

/// Puts a body in a mode into a file, in one step: an agent may read it at any moment.
fn write_policy(file: &Path, body: &Body, mode: Mode) -> Result<(), StandaloneError> {
    let bytes = artifact::encode(&Body { mode, ..body.clone() });
    let next = file.with_extension("next");
    let write = || fs::write(&next, bytes).and_then(|()| fs::rename(&next, file));
    write().map_err(|source| StandaloneError::Write { file: file.to_owned(), source })
}
