//! From start to end of the process.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast_runtime::Chain;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::confirm;
use super::forwarding::Forwarded;
use super::lock::{Lock, LockError};
use super::notices;
use super::starts::Windows;
use super::status::{LastOutcome, PolicyStatus, Status, TableStatus};
use super::worker::{Report, Start, StartError, Worker, WorkerGone, take_table_away};
use crate::engine::Cause;
use crate::enrolment::{self, Enrolment};
use crate::ledger::{self, ensure_folder};
use crate::local::{self, Answer, Question, Server};
use crate::nft::{self, TableOwner};
use crate::plan::{Kept, KeptError};
use crate::session::{SessionStatus, Shell};
use crate::standalone::{self, load_local, load_policy};

/// Questions that are being answered at once.
const QUESTIONS_MAX: usize = 16;

/// From where policies come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// From a file on this host.
    File(PathBuf),
    /// From the gateways that this host was enrolled with.
    Gateways,
}

/// What the agent runs with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where its state lies.
    pub state_folder: PathBuf,
    /// From where policies come.
    pub source: Source,
    /// What is kept open whatever they say.
    pub kept: Kept,
    /// Whether the table is owned.
    pub table_owner: TableOwner,
    /// How often the whole table is read though nobody said that it changed.
    pub verify_interval: Duration,
    /// How long a policy has to prove that it leads to a gateway.
    pub confirm_window: Duration,
}

/// Why the agent does not run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another agent, or no lock to be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The state folder cannot be made.
    #[error("cannot use the state folder")]
    Folder(#[source] ledger::Error),
    /// Kernel or disk cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Nothing can be heard of the kernel's changes.
    #[error("cannot watch the kernel's rulesets")]
    Watch(#[source] nft::Error),
    /// The local socket fails.
    #[error("cannot open the local socket")]
    Local(#[source] local::Error),
    /// What is to be kept open cannot be.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The file gives no policy and none was in force before.
    #[error("cannot start without a policy")]
    Policy(#[source] standalone::Error),
    /// No signals.
    #[error("cannot listen to signals")]
    Signal(#[source] std::io::Error),
    /// The host is not enrolled, or its identity cannot be used.
    #[error(transparent)]
    Enrolment(#[from] enrolment::Error),
    /// The worker ended by itself.
    #[error(transparent)]
    Worker(#[from] WorkerGone),
    /// The table could not be taken away.
    #[error("the table is still in the kernel")]
    Down(#[source] Cause),
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Lock(error) => error.rule(),
            Self::Folder(_) => "state-unusable",
            Self::Start(error) => error.rule(),
            Self::Watch(_) => "kernel",
            Self::Local(error) => error.rule(),
            Self::Kept(KeptError::Interface(_)) => "interface-name",
            Self::Policy(error) => error.rule(),
            Self::Signal(_) => "signals",
            Self::Enrolment(error) => error.rule(),
            Self::Worker(WorkerGone) => "task-ended",
            Self::Down(_) => "table-stays",
        }
    }
}

/// How long the end of the session may take: whoever stops an agent waits for it.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long what is being answered may still take then: a thread that hangs answers nothing.
const QUESTIONS_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until a signal or `down`.
///
/// # Errors
/// [`Error`] if it cannot start; what the kernel held stays.
pub async fn run(config: Config) -> Result<(), Error> {
    config.kept.check()?;
    ensure_folder(&config.state_folder).map_err(Error::Folder)?;
    let _lock = Lock::take(&config.state_folder)?;
    let enrolment = match &config.source {
        Source::File(_) => None,
        Source::Gateways => Some(Arc::new(Enrolment::load(&config.state_folder)?)),
    };
    if enrolment.is_some()
        && let Err(error) = Enrolment::tidy(&config.state_folder)
    {
        tracing::warn!(error = %Chain(&error), "what an enrolment left behind cannot be removed");
    }
    let kept = match &enrolment {
        None => config.kept.clone(),
        Some(enrolment) => Shell::kept_at_start(&config.state_folder, enrolment, &config.kept),
    };
    let local = match &config.source {
        Source::File(_) => None,
        Source::Gateways => load_local(&config.state_folder).unwrap_or_else(|error| {
            tracing::error!(error = %Chain(&error), "local policy cannot be used; what was rendered is in force");
            None
        }),
    };
    let worker = Worker::start(Start {
        state_folder: config.state_folder.clone(),
        enrolment: enrolment.clone(),
        kept,
        table_owner: config.table_owner,
        local,
        verify_interval: config.verify_interval,
    })?;
    let carried = worker.unproven().borrow().filter(|one| one.is_on_trial).map(|one| one.stamp);
    let windows = Windows::at_start(&config.state_folder, carried, config.confirm_window);
    notices::listen(&worker)?;
    let server = Server::listen(&config.state_folder).map_err(Error::Local)?;
    let (local_changes, leaving) = (watch::Sender::new(0_u64), watch::Sender::new(false));
    let (shell, session) = match enrolment {
        None => (None, None),
        Some(enrolment) => {
            let folder = config.state_folder.clone();
            let (shell, session) = Shell::new(enrolment, worker.clone(), folder, config.kept.clone());
            let shell = shell.with_local_changes(local_changes.subscribe()).with_leaving(leaving.subscribe());
            (Some(shell), Some(session))
        }
    };
    let service = Arc::new(Service { config, worker, session, local_changes });
    if let Err(error) = service.reload().await? {
        tracing::error!(error = %Chain(&error), "policy file cannot be used");
        if service.worker.held().await?.is_none() {
            return Err(Error::Policy(error));
        }
    }
    let proofs = confirm::run(service.worker.clone(), windows);
    let sessions = Box::pin(async move {
        let Some(shell) = shell else { return std::future::pending().await };
        tokio::select! {
            ended = shell.run() => ended,
            ended = proofs => match ended? {},
        }
    });
    serve(&service, &server, sessions, &leaving).await
}

async fn serve(
    service: &Arc<Service>,
    server: &Server,
    sessions: impl Future<Output = Result<(), WorkerGone>>,
    leaving: &watch::Sender<bool>,
) -> Result<(), Error> {
    let mut sessions = pin!(sessions);
    let mut hangup = signal(SignalKind::hangup()).map_err(Error::Signal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let mut tick = interval(service.config.verify_interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (down, mut is_down) = watch::channel(false);
    let down = Arc::new(down);
    let (mut questions, mut rereading) = (JoinSet::new(), JoinSet::new());
    let mut silent_ticks = 0;
    loop {
        tokio::select! {
            // 1. Ending goes before everything else.
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = is_down.changed() => break,
            () = service.worker.ended() => return Err(Error::Worker(WorkerGone)),
            // 2. A new policy; beside the session, whose signs of life wait for no kernel.
            _ = hangup.recv(), if rereading.is_empty() => {
                let service = Arc::clone(service);
                rereading.spawn(async move { service.reread().await });
            }
            Some(reread) = rereading.join_next() => {
                if let Ok(reread) = reread {
                    reread?;
                }
            }
            // 3. The session.
            ended = &mut sessions => return ended.map_err(Error::Worker),
            // 4. Those who ask.
            Some(_) = questions.join_next() => {}
            accepted = server.accept(), if questions.len() < QUESTIONS_MAX => match accepted {
                Ok(stream) => {
                    questions.spawn(answer(Arc::clone(service), Arc::clone(&down), stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "local socket cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            // 5. The slow look at the kernel.
            _ = tick.tick() => {
                service.worker.verify();
                silent_ticks = tell_silence(service.worker.is_silent(), silent_ticks);
            }
        }
    }
    let answered = async { while questions.join_next().await.is_some() {} };
    if timeout(QUESTIONS_TIMEOUT, answered).await.is_err() {
        tracing::warn!("the agent ends, and who asked it something has no answer");
    }
    leaving.send_replace(true);
    if service.session.is_some() {
        // A gateway that takes no goodbye finds out by itself.
        drop(timeout(FAREWELL_TIMEOUT, &mut sessions).await);
    }
    tracing::info!("agent ends; what is enforced stays");
    Ok(())
}

/// Says once that the thread of kernel and disk hangs, and that it goes on; how many ticks in a row it was silent. At the first of them this process
/// itself may have been held still.
fn tell_silence(is_silent: bool, ticks: u32) -> u32 {
    const TOLD_AT: u32 = 2;
    let now = if is_silent { ticks.saturating_add(1) } else { 0 };
    match (now == TOLD_AT, ticks >= TOLD_AT && now == 0) {
        (true, _) => tracing::error!(
            "the thread that reads the kernel does not answer: nothing is known of the table, what it holds is enforced; end the agent and start it again"
        ),
        (false, true) => tracing::warn!("the thread that reads the kernel answers again"),
        (false, false) => {}
    }
    now
}

async fn answer(service: Arc<Service>, down: Arc<watch::Sender<bool>>, mut stream: UnixStream) {
    let Some(question) = local::read_question(&mut stream).await else { return };
    let answer = service.answer(question).await.unwrap_or_else(|gone| Answer::Failed(gone.to_string()));
    let ends = matches!(answer, Answer::Down { .. });
    local::write_answer(stream, &answer).await;
    if ends {
        down.send_replace(true);
    }
}

/// What answers questions.
struct Service {
    config: Config,
    worker: Worker,
    session: Option<tokio::sync::watch::Receiver<SessionStatus>>,
    /// Counts changes of the local policy: a session that is open begins anew, so that gateways hear of it.
    local_changes: watch::Sender<u64>,
}

impl Service {
    async fn answer(&self, question: Question) -> Result<Answer, WorkerGone> {
        Ok(match question {
            Question::Status => Answer::Status(Box::new(self.status(false).await?)),
            Question::Counters => Answer::Status(Box::new(self.status(true).await?)),
            Question::Reload => match self.reload().await? {
                Ok(Some(outcome)) => Answer::Reloaded(outcome),
                Ok(None) => match self.reload_local().await? {
                    Ok(in_force) => Answer::Local { in_force },
                    Err(reason) => Answer::Failed(reason),
                },
                Err(error) => Answer::Failed(Chain(&error).to_string()),
            },
            Question::Down => match self.worker.down().await? {
                Ok(removed) => Answer::Down { removed },
                Err(error) => Answer::Failed(error),
            },
        })
    }

    /// Reads again whatever files say what is to be enforced.
    async fn reread(&self) -> Result<(), WorkerGone> {
        if let Err(error) = self.reload().await? {
            tracing::error!(error = %Chain(&error), "policy file cannot be used");
        }
        if self.session.is_some()
            && let Err(reason) = self.reload_local().await?
        {
            tracing::error!(reason, "local policy cannot be used");
        }
        Ok(())
    }

    /// Reads the policy file again, where there is one.
    async fn reload(&self) -> Result<Result<Option<LastOutcome>, standalone::Error>, WorkerGone> {
        let Source::File(path) = &self.config.source else { return Ok(Ok(None)) };
        match load_policy(path) {
            Ok(body) => self.worker.offer(body).await.map(|outcome| Ok(Some(outcome))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Reads the local policy again; whether there is one.
    async fn reload_local(&self) -> Result<Result<bool, String>, WorkerGone> {
        let local = match load_local(&self.config.state_folder) {
            Ok(local) => local,
            Err(error) => return Ok(Err(Chain(&error).to_string())),
        };
        let in_force = local.is_some();
        Ok(self.worker.enforce_local(local).await?.map(|changed| {
            if changed {
                self.local_changes.send_modify(|changes| *changes += 1);
            }
            in_force
        }))
    }

    async fn status(&self, with_counters: bool) -> Result<Status, WorkerGone> {
        let Report { seen, on_trial, contended, unheard, reads, last_drift, owned, last_outcome, ledger } =
            self.worker.observe().await?;
        let source = match &self.config.source {
            Source::File(path) => format!("file {}", path.display()),
            Source::Gateways => "gateways".to_owned(),
        };
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            state_folder: self.config.state_folder.clone(),
            source,
            policy: PolicyStatus {
                applied: seen.applied,
                local: seen.local,
                mode: seen.mode,
                proven: seen.proven,
                on_trial,
                last_outcome,
                reads,
                drifts: seen.drifts,
                last_drift,
                contended,
                unheard,
                fault: seen.fault,
                ledger,
            },
            table: TableStatus {
                name: "inet holdfast".to_owned(),
                owned,
                forwarded_enforced: seen.forwarded == Forwarded::Enforced,
                forwarded: seen.forwarded,
                dropped_packets: seen.dropped_packets,
                would_drop_packets: seen.would_drop_packets,
                counters: with_counters.then_some(seen.counters),
            },
            session: self.session.as_ref().map(|session| session.borrow().clone().at(tokio::time::Instant::now())),
        })
    }
}

/// Takes our table away: by the running agent, or by this process where none runs. Whether there was one.
///
/// # Errors
/// [`Error`] if the table is still there, or that cannot be told.
pub fn take_down(state_folder: &Path) -> Result<bool, Error> {
    match local::ask(state_folder, Question::Down) {
        Ok(Answer::Down { removed }) => Ok(removed),
        Ok(Answer::Failed(reason)) => Err(Error::Down(reason.into())),
        Ok(Answer::Status(_) | Answer::Reloaded(_) | Answer::Local { .. }) => {
            Err(Error::Down("an answer to another question came: another build's agent runs".into()))
        }
        Err(local::Error::NotRunning(_)) => {
            ensure_folder(state_folder).map_err(Error::Folder)?;
            let _lock = Lock::take(state_folder)?;
            take_table_away().map_err(Error::Down)
        }
        Err(error) => Err(Error::Local(error)),
    }
}
