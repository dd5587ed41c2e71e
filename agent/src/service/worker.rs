//! The thread that owns kernel and disk.
//!
//! - Commands are worked off one by one; each is answered, also when the asker has gone.
//! - What the kernel was found to hold instead of the policy is told and repaired there, on a notice, before an update and on the slow tick.
//! - A thread that hangs is seen from outside: what it told counts for so many slow ticks and no longer.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_model::desired::Stamp;
use holdfast_model::policy::Body;
use holdfast_model::statement::Authority;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use uuid::Uuid;

mod standing;
mod thread;
mod trials;

use super::drift::{Drift, DriftLog, LastWriter};
use super::status::{LastDrift, LastOutcome, LedgerState, Seen};
use crate::engine::{Cause, Kernel, Outcome, Update};
use crate::enrolment::Enrolment;
use crate::ledger;
use crate::nft::{self, Netfilter, TableOwner};
use crate::plan::Kept;
pub(crate) use standing::{Standing, unix_ms};
use thread::Thread;

/// Commands that wait; beyond it whoever asks waits too.
const COMMANDS_MAX: usize = 64;

/// For how many slow ticks the thread may say nothing: each tick asks it, one may come while a large table is repaired, and the next one is late by that.
const SILENT_TICKS: u32 = 3;

/// How long what was seen counts, by the slow tick.
const fn good_for(verify_interval: Duration) -> Duration {
    verify_interval.saturating_mul(SILENT_TICKS)
}

/// How long a session that begins waits for what is held: longer than most updates take. Then what was told last has to do.
const HELD_PATIENCE: Duration = Duration::from_secs(5);

/// What the worker starts from.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) state_folder: PathBuf,
    pub(super) enrolment: Option<Arc<Enrolment>>,
    pub(super) kept: Kept,
    pub(super) table_owner: TableOwner,
    /// A policy of this host's own, in place of what was rendered.
    pub(super) local: Option<Body>,
    /// How often the whole table is read though nobody said that it changed.
    pub(super) verify_interval: Duration,
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
    Hears(Option<String>),
    /// Wakes the thread, which looks at what it owes.
    Look,
    Gateways(oneshot::Sender<Vec<SocketAddr>>),
    GatewayDrops(oneshot::Sender<Option<u64>>),
    Confirm(Unproven, oneshot::Sender<bool>),
    TakeBack(Unproven, oneshot::Sender<bool>),
    Down(oneshot::Sender<Result<bool, String>>),
}

/// A policy under which this process has still to have an echo; one that follows it is another, also with the same content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unproven {
    pub(super) stamp: Stamp,
    pub(super) nth: u64,
    /// Whether it is gone back from if it cuts the host off; else an earlier process confirmed it.
    pub(super) is_on_trial: bool,
}

/// What the worker knows.
pub(super) struct Report {
    pub(super) seen: Seen,
    pub(super) on_trial: bool,
    pub(super) contended: bool,
    pub(super) unheard: Option<String>,
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
    unproven: watch::Receiver<Option<Unproven>>,
    taken_back: watch::Receiver<u64>,
    standing: watch::Receiver<Standing>,
    /// Whether table and ledger are to be looked at.
    owes_look: Arc<AtomicBool>,
    verify_interval: Duration,
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
        let (owed, unproven) = watch::channel(None);
        let (taken, taken_back) = watch::channel(0);
        let (stands, standing) = watch::channel(Standing::unknown());
        let told = Told { drift: told, unproven: owed, taken_back: taken, standing: stands };
        let (writer, verify_interval) = (last_writer.clone(), start.verify_interval);
        let owes_look = Arc::new(AtomicBool::new(false));
        let owed_look = Arc::clone(&owes_look);
        let run = move || match Thread::open(start, drift, told, writer) {
            Ok(thread) => {
                drop(ready.send(Ok(())));
                thread.serve(inbox, &owed_look);
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        std::thread::Builder::new().name("netfilter".to_owned()).spawn(run).map_err(StartError::Thread)?;
        match started.recv() {
            Ok(result) => result.map(|()| Self {
                commands,
                last_writer,
                drift: heard,
                unproven,
                taken_back,
                standing,
                owes_look,
                verify_interval,
            }),
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

    /// What is in force, and under whose authority; what was in force when the thread told last, where it does not answer.
    ///
    /// # Errors
    /// [`WorkerGone`].
    pub async fn held(&self) -> Result<Option<(Option<Authority>, Stamp)>, WorkerGone> {
        match timeout(HELD_PATIENCE, self.ask(Command::Held)).await {
            Ok(held) => held,
            Err(_elapsed) => Ok(self.standing.borrow().held),
        }
    }

    /// How often the whole table is read though nobody said that it changed: the slow tick.
    pub(crate) const fn verify_interval(&self) -> Duration {
        self.verify_interval
    }

    /// How long what was seen counts without being seen anew.
    pub(crate) const fn good_for(&self) -> Duration {
        good_for(self.verify_interval)
    }

    /// Whether the thread has not told how the policy stands for longer than it may take.
    pub(super) fn is_silent(&self) -> bool {
        Instant::now() >= self.standing.borrow().good_until
    }

    /// Waits for the thread's end, which nobody asked for.
    pub(super) async fn ended(&self) {
        self.commands.closed().await;
    }

    pub(super) async fn observe(&self) -> Result<Report, WorkerGone> {
        self.ask(Command::Observe).await
    }

    pub(super) async fn down(&self) -> Result<Result<bool, String>, WorkerGone> {
        self.ask(Command::Down).await
    }

    /// Reads the whole table soon, and sees that the ledger is there.
    pub(super) fn verify(&self) {
        self.owes_look.store(true, Ordering::Release);
        // Where the queue is full it is awake: it looks behind what it is at.
        drop(self.commands.try_send(Command::Look));
    }

    /// Tells that somebody changed our table, and who, where that was heard; from a thread of its own.
    pub(super) fn noticed(&self, writer: Option<(u32, &str)>) -> Result<(), WorkerGone> {
        if let Some((pid, name)) = writer {
            self.last_writer.put(pid, name);
        }
        self.commands.blocking_send(Command::Noticed).map_err(|_| WorkerGone)
    }

    /// Tells that the kernel's notices cannot be heard, and why, or that they are again; from a thread of its own.
    pub(super) fn hears(&self, unheard: Option<String>) -> Result<(), WorkerGone> {
        self.commands.blocking_send(Command::Hears(unheard)).map_err(|_| WorkerGone)
    }

    /// What has still to lead to a gateway, and each change of it.
    pub(super) fn unproven(&self) -> watch::Receiver<Option<Unproven>> {
        self.unproven.clone()
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

    /// It led to a gateway; whether nothing has to any more. One that something newer followed is none any more.
    pub(super) async fn confirm(&self, one: Unproven) -> Result<bool, WorkerGone> {
        self.ask(|reply| Command::Confirm(one, reply)).await
    }

    /// What is on trial cut the host off; whether that ended its trial. One that something newer followed is none any more.
    pub(super) async fn take_back(&self, trial: Unproven) -> Result<bool, WorkerGone> {
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
    unproven: watch::Sender<Option<Unproven>>,
    taken_back: watch::Sender<u64>,
    standing: watch::Sender<Standing>,
}

/// Takes our table away where no agent runs that could do it.
pub(super) fn take_table_away() -> Result<bool, Cause> {
    Netfilter::open(TableOwner::Off)?.remove()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_finds_no_room_in_the_queue_is_owed_and_taken_behind_what_the_thread_is_at() {
        let (commands, mut inbox) = mpsc::channel(1);
        let drift = Drift::new(Uuid::from_u128(1));
        let worker = Worker {
            commands,
            last_writer: LastWriter::default(),
            drift: watch::channel(drift.log().clone()).1,
            unproven: watch::channel(None).1,
            taken_back: watch::channel(0).1,
            standing: watch::channel(Standing::unknown()).1,
            owes_look: Arc::default(),
            verify_interval: Duration::from_secs(30),
        };
        worker.verify();
        assert!(matches!(inbox.try_recv(), Ok(Command::Look)), "a thread that waits is woken");
        assert!(worker.owes_look.swap(false, Ordering::AcqRel));
        // What fills the queue has no change in it, and nobody would look for its sake.
        let (reply, _answer) = oneshot::channel();
        worker.commands.try_send(Command::Gateways(reply)).expect("room for one");
        worker.verify();
        assert!(matches!(inbox.try_recv(), Ok(Command::Gateways(_))) && inbox.try_recv().is_err());
        assert!(worker.owes_look.load(Ordering::Acquire));
    }
}
