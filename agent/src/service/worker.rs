//! The thread that owns kernel and disk.
//!
//! - Commands are worked off one by one; each is answered, also when the asker has gone.
//! - What the kernel was found to hold instead of the policy is told and repaired here, on a notice, before an update and on the slow tick.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use holdfast_model::artifact;
use holdfast_model::desired::Stamp;
use holdfast_model::numbers::Version;
use holdfast_model::policy::{Body, delta};
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_wire::encode_changes;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

mod standing;
mod trials;

use super::drift::{Drift, DriftLog, LastWriter};
use super::status::{LastDrift, LastOutcome, LedgerState, Seen, observe};
use crate::engine::{Cause, Content, Engine, Entry, Kernel, Loaded, Outcome, Update};
use crate::enrolment::Enrolment;
use crate::ledger::{self, Ledger};
use crate::nft::{self, Netfilter, TableOwner};
use crate::plan::{Deviation, Kept};
use standing::Memory;
pub(crate) use standing::{Standing, unix_ms};

/// Commands that wait; beyond it whoever asks waits too.
const COMMANDS_MAX: usize = 64;

/// What the worker starts from.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) state_folder: PathBuf,
    pub(super) enrolment: Option<Arc<Enrolment>>,
    pub(super) kept: Kept,
    pub(super) table_owner: TableOwner,
    /// A policy of this host's own, in place of what was rendered.
    pub(super) local: Option<Body>,
}

/// Why the worker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No netlink socket.
    #[error("cannot reach the kernel's nf_tables")]
    Kernel(#[source] nft::Error),
    /// The disk fails.
    #[error("cannot open the ledger")]
    Ledger(#[source] ledger::Error),
    /// No thread.
    #[error("cannot start the netfilter thread")]
    Thread(#[source] std::io::Error),
}

impl StartError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Ledger(_) => "state-unusable",
            Self::Thread(_) => "runtime",
        }
    }
}

/// The worker has ended; the process is about to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the netfilter thread has ended")]
pub struct WorkerGone;

pub(super) enum Command {
    Apply(Box<Update>, oneshot::Sender<Outcome>),
    Offer(Box<Body>, oneshot::Sender<LastOutcome>),
    Local(Option<Box<Body>>, oneshot::Sender<Result<bool, String>>),
    Keep(Kept, oneshot::Sender<Result<(), String>>),
    Observe(oneshot::Sender<Report>),
    Held(oneshot::Sender<Option<(Option<Authority>, Stamp)>>),
    Noticed,
    Verify,
    Gateways(oneshot::Sender<Vec<SocketAddr>>),
    GatewayDrops(oneshot::Sender<Option<u64>>),
    Confirm(OnTrial, oneshot::Sender<bool>),
    TakeBack(OnTrial, oneshot::Sender<bool>),
    Down(oneshot::Sender<Result<bool, String>>),
}

/// A policy on trial; one that follows it is another, also with the same content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OnTrial {
    stamp: Stamp,
    nth: u64,
}

/// What the worker knows.
pub(super) struct Report {
    pub(super) seen: Seen,
    pub(super) on_trial: bool,
    pub(super) contended: bool,
    pub(super) reads: u64,
    pub(super) last_drift: Option<LastDrift>,
    pub(super) owned: bool,
    pub(super) last_outcome: Option<LastOutcome>,
    pub(super) ledger: LedgerState,
}

/// A handle on the worker.
#[derive(Clone, Debug)]
pub struct Worker {
    commands: mpsc::Sender<Command>,
    last_writer: LastWriter,
    drift: watch::Receiver<DriftLog>,
    trials: watch::Receiver<Option<OnTrial>>,
    taken_back: watch::Receiver<u64>,
    standing: watch::Receiver<Standing>,
}

impl Worker {
    /// Starts the thread; returns when the last good policy is in force, or was found not to be there.
    pub(super) fn start(start: Start) -> Result<Self, StartError> {
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        // Totals are counted within one start of the agent, and this names it.
        let drift = Drift::new(Uuid::now_v7());
        let (told, heard) = watch::channel(drift.log().clone());
        let last_writer = LastWriter::default();
        let (trial, trials) = watch::channel(None);
        let (taken, taken_back) = watch::channel(0);
        let (stands, standing) = watch::channel(Standing::unknown());
        let told = Told { drift: told, trial, taken_back: taken, standing: stands };
        let writer = last_writer.clone();
        let run = move || match Thread::open(start, drift, told, writer) {
            Ok(thread) => {
                drop(ready.send(Ok(())));
                thread.serve(inbox);
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        thread::Builder::new().name("netfilter".to_owned()).spawn(run).map_err(StartError::Thread)?;
        match started.recv() {
            Ok(result) => result.map(|()| Self { commands, last_writer, drift: heard, trials, taken_back, standing }),
            Err(gone) => Err(StartError::Thread(std::io::Error::other(gone))),
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, WorkerGone> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| WorkerGone)?;
        answer.await.map_err(|_| WorkerGone)
    }

    /// Applies one update.
    ///
    /// # Errors
    /// [`WorkerGone`].
    pub async fn apply(&self, update: Update) -> Result<Outcome, WorkerGone> {
        self.ask(|reply| Command::Apply(Box::new(update), reply)).await
    }

    /// Puts a policy from a file into force; its version is one more than the last if it says something else.
    ///
    /// # Errors
    /// [`WorkerGone`].
    pub async fn offer(&self, body: Body) -> Result<LastOutcome, WorkerGone> {
        self.ask(|reply| Command::Offer(Box::new(body), reply)).await
    }

    /// Enforces a policy of this host's own, or none any more; whether that changed anything.
    ///
    /// # Errors
    /// [`WorkerGone`].
    pub(super) async fn enforce_local(&self, body: Option<Body>) -> Result<Result<bool, String>, WorkerGone> {
        self.ask(|reply| Command::Local(body.map(Box::new), reply)).await
    }

    /// Changes what is kept open.
    ///
    /// # Errors
    /// [`WorkerGone`].
    pub async fn keep(&self, kept: Kept) -> Result<Result<(), String>, WorkerGone> {
        self.ask(|reply| Command::Keep(kept, reply)).await
    }

    /// What is in force, and under whose authority.
    ///
    /// # Errors
    /// [`WorkerGone`].
    pub async fn held(&self) -> Result<Option<(Option<Authority>, Stamp)>, WorkerGone> {
        self.ask(Command::Held).await
    }

    pub(super) async fn observe(&self) -> Result<Report, WorkerGone> {
        self.ask(Command::Observe).await
    }

    pub(super) async fn down(&self) -> Result<Result<bool, String>, WorkerGone> {
        self.ask(Command::Down).await
    }

    /// Reads the whole table soon.
    pub(super) fn verify(&self) {
        // A full queue has changes in it, and each of them is read back.
        drop(self.commands.try_send(Command::Verify));
    }

    /// Tells that somebody changed our table, and who, where that was heard; from a thread of its own.
    pub(super) fn noticed(&self, writer: Option<(u32, &str)>) -> Result<(), WorkerGone> {
        if let Some((pid, name)) = writer {
            self.last_writer.put(pid, name);
        }
        self.commands.blocking_send(Command::Noticed).map_err(|_| WorkerGone)
    }

    /// What is on trial, and each change of it.
    pub(super) fn trials(&self) -> watch::Receiver<Option<OnTrial>> {
        self.trials.clone()
    }

    /// Moves when a policy was taken back.
    pub(crate) fn taken_back(&self) -> watch::Receiver<u64> {
        self.taken_back.clone()
    }

    /// Where gateways are kept open.
    pub(super) async fn gateways(&self) -> Result<Vec<SocketAddr>, WorkerGone> {
        self.ask(Command::Gateways).await
    }

    /// How many packets of gateways the policy dropped; nothing where that cannot be read.
    pub(super) async fn gateway_drops(&self) -> Result<Option<u64>, WorkerGone> {
        self.ask(Command::GatewayDrops).await
    }

    /// What is on trial led to a gateway; whether that ended its trial. One that something newer followed is none any more.
    pub(super) async fn confirm(&self, trial: OnTrial) -> Result<bool, WorkerGone> {
        self.ask(|reply| Command::Confirm(trial, reply)).await
    }

    /// What is on trial cut the host off; whether that ended its trial. One that something newer followed is none any more.
    pub(super) async fn take_back(&self, trial: OnTrial) -> Result<bool, WorkerGone> {
        self.ask(|reply| Command::TakeBack(trial, reply)).await
    }

    /// How the policy stands, and each look at it.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// What can be told of drift, and each change of it.
    pub(crate) fn drift(&self) -> watch::Receiver<DriftLog> {
        self.drift.clone()
    }
}

/// What others hear of the worker.
struct Told {
    drift: watch::Sender<DriftLog>,
    trial: watch::Sender<Option<OnTrial>>,
    taken_back: watch::Sender<u64>,
    standing: watch::Sender<Standing>,
}

struct Thread {
    engine: Engine<Netfilter, Ledger>,
    owned: bool,
    last_outcome: Option<LastOutcome>,
    ledger: LedgerState,
    fault: Option<String>,
    memory: Memory,
    drift: Drift,
    told: Told,
    last_writer: LastWriter,
    last_drift: Option<(Instant, LastDrift)>,
    /// How often what is on trial changed: one that is on trial again is another.
    trials: u64,
    /// How often the whole table was read to see whether it is as it should be.
    reads: u64,
    /// Whether it was told that a confirmation cannot be kept: it is tried twice a second.
    is_unkept_told: bool,
    is_down: bool,
}

impl Thread {
    fn open(start: Start, drift: Drift, told: Told, last_writer: LastWriter) -> Result<Self, StartError> {
        let host = start.enrolment.as_ref().map(|enrolment| enrolment.host);
        // A file's policy has no signature; whoever writes that file may write this one.
        let is_genuine = |entry: &Entry| start.enrolment.as_ref().is_none_or(|enrolment| enrolment.is_genuine(entry));
        let (ledger, loaded, fault) =
            Ledger::open(&start.state_folder, host, &is_genuine).map_err(StartError::Ledger)?;
        let kernel = Netfilter::open(start.table_owner).map_err(StartError::Kernel)?;
        let owned = kernel.is_owned();
        let state = match (&loaded, fault) {
            (Loaded::Missing, _) => LedgerState::Missing,
            (Loaded::Found { .. }, _) => LedgerState::Loaded,
            (Loaded::Unusable, fault) => {
                let fault = fault.map_or_else(String::new, |fault| fault.to_string());
                tracing::error!(file = %ledger.file().display(), fault, "last good policy on disk cannot be used");
                LedgerState::Unusable(fault)
            }
        };
        let mut engine = Engine::new(kernel, ledger, start.kept).with_local(start.local);
        if start.enrolment.is_some() {
            engine = engine.with_trials();
        }
        let started = engine.start(loaded);
        let version = engine.held().map(|held| held.entry.stamp.version.raw());
        let mut thread = Self {
            engine,
            owned,
            last_outcome: None,
            ledger: state,
            fault: None,
            memory: Memory::new(),
            drift,
            told,
            last_writer,
            last_drift: None,
            trials: 0,
            reads: 0,
            is_unkept_told: false,
            is_down: false,
        };
        match started {
            Ok(started) => tracing::info!(?started, version, owned, "kernel holds what the disk says"),
            // The slow tick tries again.
            Err(error) => thread.failed(&error, "last good policy is not in force"),
        }
        thread.tell_trial();
        thread.tell_standing(true);
        Ok(thread)
    }

    fn serve(mut self, mut inbox: mpsc::Receiver<Command>) {
        while let Some(command) = inbox.blocking_recv() {
            match command {
                Command::Apply(update, reply) => drop(reply.send(self.apply(&update))),
                Command::Offer(body, reply) => drop(reply.send(self.offer(&body))),
                Command::Local(body, reply) => drop(reply.send(self.enforce_local(body.map(|body| *body)))),
                Command::Keep(kept, reply) => {
                    self.settle_drift();
                    let keeping = self.engine.keep(kept).map_err(|error| error.to_string());
                    self.memory.forget_forwarded();
                    self.tell_standing(true);
                    drop(reply.send(keeping));
                }
                Command::Observe(reply) => drop(reply.send(self.report())),
                Command::Held(reply) => {
                    let held = self.engine.held().map(|held| &held.entry);
                    let held = held.map(|held| (held.origin.map(|origin| origin.authority), held.stamp));
                    let _asker_gone = reply.send(held);
                }
                Command::Noticed => {
                    self.noticed();
                    self.tell_standing(true);
                }
                Command::Gateways(reply) => drop(reply.send(self.engine.kept().gateways.clone())),
                Command::GatewayDrops(reply) => drop(reply.send(self.gateway_drops())),
                Command::Confirm(trial, reply) => drop(reply.send(self.confirm(trial))),
                Command::TakeBack(trial, reply) => drop(reply.send(self.take_back(trial))),
                Command::Verify => {
                    self.verify();
                    self.memory.forget_forwarded();
                    self.tell_standing(true);
                }
                Command::Down(reply) => {
                    self.is_down = true;
                    drop(reply.send(self.engine.down().map_err(|error| error.to_string())));
                }
            }
        }
    }

    fn apply(&mut self, update: &Update) -> Outcome {
        self.settle_drift();
        let outcome = self.engine.apply(update);
        let (version, digest) = (update.stamp.version.raw(), update.stamp.digest.short());
        if outcome.kind == OutcomeKind::Applied {
            self.fault = None;
            tracing::info!(version, digest, "policy is in force and read back");
        } else {
            let (reason, detail) = (outcome.reason(), outcome.detail());
            tracing::warn!(version, digest, %reason, detail, "policy is not in force");
        }
        self.last_outcome = Some(LastOutcome::from(&outcome));
        self.memory.attempted(&outcome);
        self.tell_trial();
        self.tell_standing(true);
        outcome
    }

    fn offer(&mut self, body: &Body) -> LastOutcome {
        let update = offered(self.engine.held().map(|held| &held.entry), body);
        LastOutcome::from(&self.apply(&update))
    }

    fn enforce_local(&mut self, body: Option<Body>) -> Result<bool, String> {
        self.settle_drift();
        let digest = body.as_ref().map(Body::digest);
        if self.engine.local().map(|local| local.body.digest()) == digest {
            return Ok(false);
        }
        self.memory.displaced();
        let changed = match body {
            Some(body) => self.engine.enforce_local(body).map(|()| true),
            None => self.engine.lift_local(),
        };
        match &changed {
            Ok(_) => {
                self.fault = None;
                let digest = digest.map(|digest| digest.short());
                tracing::warn!(digest, "what is enforced is this host's own policy, or is it no longer");
            }
            Err(error) => self.failed(error, "local policy cannot be changed"),
        }
        self.tell_trial();
        self.tell_standing(true);
        changed.map_err(|error| error.to_string())
    }

    fn noticed(&mut self) {
        if self.is_down {
            return;
        }
        match self.engine.has_moved() {
            // The change was our own and has been read back, or another table's.
            Ok(false) => self.last_writer.forget(),
            Ok(true) if self.drift.is_contended(Instant::now()) => {
                // Not read until the slow tick: nothing is known of it until then.
                self.engine.doubt();
                tracing::debug!("ruleset is contended");
            }
            Ok(true) => self.verify(),
            Err(error) => self.failed(&error, "ruleset cannot be read after a notice"),
        }
    }

    /// What somebody wrote since the table was read is told and repaired before an update comes: it is none of the update's doing.
    fn settle_drift(&mut self) {
        if self.engine.is_proven()
            && !self.drift.is_contended(Instant::now())
            && matches!(self.engine.has_moved(), Ok(true))
        {
            self.verify();
        }
    }

    fn verify(&mut self) {
        if self.is_down {
            return;
        }
        if self.drift.tick(Instant::now()) {
            tracing::info!("nobody fights for our table any more");
            self.tell_drift();
        }
        self.reads += 1;
        match self.engine.find_drift() {
            Ok(None) => {
                // Whoever was named did nothing that stayed: what is found next is somebody else's doing.
                self.last_writer.forget();
                (self.fault, self.memory.differs) = (None, false);
            }
            Ok(Some(deviation)) => self.repair(&deviation),
            Err(error) => {
                self.memory.differs = false;
                self.failed(&error, "policy in the kernel cannot be read");
            }
        }
    }

    /// Tells what differs, and puts it right.
    fn repair(&mut self, deviation: &Deviation) {
        let (now, writer, counts) = (Instant::now(), self.last_writer.take(), deviation.counts);
        let (pid, process) = writer.as_ref().map(|writer| (writer.pid, writer.name.clone())).unzip();
        tracing::warn!(%deviation, process, pid, "another process changed our table");
        let begins = self.drift.found(now, writer.clone(), counts);
        let last = LastDrift { ms_ago: 0, process, pid, differed: counts, repaired: false };
        let last = &mut self.last_drift.insert((now, last)).1;
        // Told before it is repaired: who is told knows of it however long that takes.
        self.told.drift.send_replace(self.drift.log().clone());
        let repaired = self.engine.repair();
        self.memory.differs = repaired.is_err();
        match repaired {
            Ok(()) => {
                last.repaired = true;
                self.fault = None;
                self.drift.repaired(Instant::now(), writer, counts);
                tracing::warn!("our table is repaired");
            }
            Err(error) => self.failed(&error, "policy in the kernel cannot be repaired"),
        }
        if begins {
            tracing::error!("another process fights for our table; it is repaired on the slow tick only");
        }
        self.tell_drift();
    }

    fn tell_drift(&self) {
        self.told.drift.send_replace(self.drift.log().clone());
    }

    fn failed(&mut self, error: &Cause, what: &'static str) {
        self.fault = Some(error.to_string());
        tracing::error!(error = &**error as &dyn std::error::Error, "{what}");
    }

    fn report(&mut self) -> Report {
        let mut seen = observe(&mut self.engine);
        seen.fault = seen.fault.or_else(|| self.fault.clone());
        let now = Instant::now();
        let ms_since = |at| u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX);
        Report {
            seen,
            on_trial: self.engine.on_trial().is_some(),
            contended: self.drift.is_contended(now),
            reads: self.reads,
            last_drift: self.last_drift.clone().map(|(at, last)| LastDrift { ms_ago: ms_since(at), ..last }),
            owned: self.owned,
            last_outcome: self.last_outcome.clone(),
            ledger: self.ledger.clone(),
        }
    }
}

/// The update that leads from what is held to a policy from a file.
fn offered(held: Option<&Entry>, body: &Body) -> Update {
    let digest = body.digest();
    let whole = |version| Update {
        origin: None,
        stamp: Stamp { version, digest },
        content: Content::Whole(artifact::encode(body)),
    };
    let Some(held) = held else { return whole(Version::FIRST) };
    if held.stamp.digest == digest {
        // Said again: read it back whole.
        return whole(held.stamp.version);
    }
    let Some(version) = held.stamp.version.next() else { return whole(held.stamp.version) };
    // What is more than a delta carries travels whole; the kernel gets an edit either way.
    match encode_changes(&delta::diff(&held.body, body).changes) {
        Ok(changes) => Update {
            origin: None,
            stamp: Stamp { version, digest },
            content: Content::Changes { base: held.stamp, changes },
        },
        Err(_) => whole(version),
    }
}

/// Takes our table away where no agent runs that could do it.
pub(super) fn take_table_away() -> Result<bool, Cause> {
    Netfilter::open(TableOwner::Off)?.remove()
}
