//! The thread itself: what it does with each command, and what it tells of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_model::artifact;
use holdfast_model::desired::Stamp;
use holdfast_model::numbers::Version;
use holdfast_model::policy::{Body, delta};
use holdfast_model::statement::OutcomeKind;
use holdfast_wire::encode_changes;
use holdfast_wire::message::Writer;
use tokio::sync::mpsc;

use super::standing::Memory;
use super::{Command, Report, Start, StartError, Told, good_for};
use crate::engine::{Cause, Content, Engine, Entry, Loaded, Outcome, Update};
use crate::ledger::Ledger;
use crate::nft::Netfilter;
use crate::plan::Deviation;
use crate::service::drift::{Drift, LastWriter};
use crate::service::status::{LastDrift, LastOutcome, LedgerState, observe};

pub(super) struct Thread {
    pub(super) engine: Engine<Netfilter, Ledger>,
    owned: bool,
    last_outcome: Option<LastOutcome>,
    pub(super) ledger: LedgerState,
    fault: Option<String>,
    pub(super) memory: Memory,
    pub(super) drift: Drift,
    pub(super) told: Told,
    /// How long what is told of the policy counts without being told anew.
    pub(super) good_for: Duration,
    last_writer: LastWriter,
    /// Why the kernel's notices cannot be heard, while they cannot.
    pub(super) unheard: Option<String>,
    last_drift: Option<(Instant, LastDrift)>,
    /// How often what has still to lead to a gateway changed: one that has again is another.
    pub(super) unproven: u64,
    /// How often the whole table was read to see whether it is as it should be.
    reads: u64,
    /// Whether it was told that a confirmation cannot be kept: it is tried twice a second.
    pub(super) is_unkept_told: bool,
    /// The table was taken away, and the process is about to end.
    is_down: bool,
}

impl Thread {
    pub(super) fn open(start: Start, drift: Drift, told: Told, last_writer: LastWriter) -> Result<Self, StartError> {
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
            good_for: good_for(start.verify_interval),
            last_writer,
            unheard: None,
            last_drift: None,
            unproven: 0,
            reads: 0,
            is_unkept_told: false,
            is_down: false,
        };
        match started {
            Ok(started) => tracing::info!(?started, version, owned, "kernel holds what the disk says"),
            // The slow tick tries again.
            Err(error) => thread.failed(&error, "last good policy is not in force"),
        }
        thread.tell_unproven();
        thread.tell_standing(true);
        Ok(thread)
    }

    /// Works off what comes. A look that is owed goes behind whatever was under way as it was asked for, however much waits.
    pub(super) fn serve(mut self, mut inbox: mpsc::Receiver<Command>, owes_look: &AtomicBool) {
        // What has no answer any more, since the process is about to end.
        let mut unanswered = Vec::new();
        while let Some(command) = inbox.blocking_recv() {
            let asked = if self.is_down { decline(command, &mut unanswered) } else { Some(command) };
            if let Some(command) = asked {
                self.work(command);
            }
            if owes_look.swap(false, Ordering::AcqRel) {
                self.look();
            }
        }
    }

    fn work(&mut self, command: Command) {
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
                let has_looked = self.noticed();
                self.tell_standing(has_looked);
            }
            Command::Hears(unheard) => {
                self.unheard = unheard;
                // What was changed meanwhile nobody heard.
                let has_looked = self.unheard.is_none() && self.noticed();
                self.tell_standing(has_looked);
            }
            Command::Gateways(reply) => drop(reply.send(self.engine.kept().gateways.clone())),
            Command::GatewayDrops(reply) => drop(reply.send(self.gateway_drops())),
            Command::Confirm(trial, reply) => drop(reply.send(self.confirm(trial))),
            Command::TakeBack(trial, reply) => drop(reply.send(self.take_back(trial))),
            // It is owed.
            Command::Look => {}
            Command::Down(reply) => drop(reply.send(self.down())),
        }
    }

    /// The slow tick: table and ledger are looked at.
    fn look(&mut self) {
        self.verify();
        self.ensure_kept();
        self.memory.forget_forwarded();
        self.tell_standing(!self.is_down);
    }

    /// Takes our table away. One that is still there is kept and looked at as before.
    fn down(&mut self) -> Result<bool, String> {
        let removed = self.engine.down();
        self.is_down = removed.is_ok();
        if let Err(error) = &removed {
            self.failed(error, "our table cannot be taken away");
            self.verify();
            self.tell_standing(true);
        }
        removed.map_err(|error| error.to_string())
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
        self.tell_unproven();
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
        self.tell_unproven();
        self.tell_standing(true);
        changed.map_err(|error| error.to_string())
    }

    /// Somebody changed a table; whether ours was looked at.
    fn noticed(&mut self) -> bool {
        if self.is_down {
            return false;
        }
        match self.engine.has_moved() {
            // The change was our own and has been read back, or another table's.
            Ok(false) => {
                self.last_writer.forget();
                self.engine.is_proven()
            }
            Ok(true) if self.drift.is_contended(Instant::now()) => {
                // Not read until the slow tick: nothing is known of it until then.
                self.engine.doubt();
                tracing::debug!("ruleset is contended");
                false
            }
            Ok(true) => {
                self.verify();
                true
            }
            Err(error) => {
                self.failed(&error, "ruleset cannot be read after a notice");
                true
            }
        }
    }

    /// What somebody wrote since the table was read is told and repaired before an update comes: it is none of the update's doing.
    pub(super) fn settle_drift(&mut self) {
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
        let is_owed = self.engine.owes_table();
        match self.engine.find_drift() {
            Ok(None) => {
                // Whoever was named did nothing that stayed: what is found next is somebody else's doing.
                self.last_writer.forget();
                (self.fault, self.memory.differs) = (None, false);
            }
            Ok(Some(deviation)) if is_owed => self.make_good(&deviation),
            Ok(Some(deviation)) => self.repair(&deviation),
            Err(error) => {
                self.memory.differs = false;
                self.failed(&error, "policy in the kernel cannot be read");
            }
        }
    }

    /// Sees that the disk still has what is held.
    fn ensure_kept(&mut self) {
        let kept = self.engine.ensure_kept();
        match &kept {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the ledger was removed or changed by somebody else, and is made again"),
            Err(error) if !self.memory.is_lost => {
                tracing::error!(error = &**error as &dyn std::error::Error, "the ledger is not on the disk any more");
            }
            Err(_) => {}
        }
        self.memory.is_lost = kept.is_err();
    }

    /// Gets what is to be in force into the kernel, which did not take it when it was put there: that is nobody else's doing.
    fn make_good(&mut self, deviation: &Deviation) {
        let repaired = self.engine.repair();
        self.memory.differs = repaired.is_err();
        match repaired {
            Ok(()) => {
                self.fault = None;
                tracing::warn!(%deviation, "what is to be in force is in the kernel now, which did not take it before");
                if let Some((_, last)) = self.last_drift.as_mut().filter(|(_, last)| !last.repaired) {
                    // What another did was told, and not yet that it is put right.
                    last.repaired = true;
                    let (process, counts) = (last.process.clone(), last.differed);
                    let writer = last.pid.zip(process).map(|(pid, name)| Writer { pid, name });
                    self.drift.repaired(Instant::now(), writer, counts);
                    self.tell_drift();
                }
            }
            Err(error) => self.failed(&error, "what is to be in force is not in the kernel yet"),
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

    pub(super) fn failed(&mut self, error: &Cause, what: &'static str) {
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
            unheard: self.unheard.clone(),
            reads: self.reads,
            last_drift: self.last_drift.clone().map(|(at, last)| LastDrift { ms_ago: ms_since(at), ..last }),
            owned: self.owned,
            last_outcome: self.last_outcome.clone(),
            ledger: self.ledger.clone(),
        }
    }
}

/// What would lay our table again behind its end, of which somebody was told: it is declined, and anything else given back. An update has no answer, for
/// it neither failed nor is in force; the process is about to end, and its gateway sees a goodbye.
fn decline(command: Command, unanswered: &mut Vec<Command>) -> Option<Command> {
    let gone = || "our table was taken away, and the agent ends".to_owned();
    match command {
        Command::Apply(..) | Command::Offer(..) => unanswered.push(command),
        Command::Local(_, reply) => drop(reply.send(Err(gone()))),
        Command::Keep(_, reply) => drop(reply.send(Err(gone()))),
        Command::Confirm(_, reply) | Command::TakeBack(_, reply) => drop(reply.send(false)),
        Command::Observe(_)
        | Command::Held(_)
        | Command::Noticed
        | Command::Hears(_)
        | Command::Look
        | Command::Gateways(_)
        | Command::GatewayDrops(_)
        | Command::Down(_) => return Some(command),
    }
    None
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
