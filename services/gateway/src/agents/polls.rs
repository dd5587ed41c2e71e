//! The hosts that poll here: sessions without a connection of their own.
//!
//! - A poll session has a session_epoch of the authority like any other, and what it says is fenced by it. It lives on this replica and dies with it.
//! - It ends by silence, by a newer session of its host, where the authority has a new life or forgot it, or with this process; a request that
//!   waits is answered then. It never holds a place in the scheduler.
//! - What was answered and not yet heard of is kept by number, so that an outcome counts only for what this session answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_events::{CloseReason, Directive, DirectiveKind};
use holdfast_identity::VerifyingKey;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_model::statement::Authority;
use holdfast_store::session::{Fact, HostNewest, Seen};
use holdfast_wire::limits::UPDATES_IN_FLIGHT_MAX;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::limits::{POLL_SILENCE, POLL_SWEEP};
use super::recorder::{NoRoom, Recorder};

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Polls {
    held: Arc<Mutex<HashMap<HostId, Arc<Poll>>>>,
    recorder: Recorder,
    /// Some are to begin anew.
    anew: Arc<Notify>,
}

/// One host's session of polls.
#[derive(Debug)]
pub(super) struct Poll {
    pub(super) host: HostId,
    pub(super) session_epoch: SessionEpoch,
    pub(super) authority: Authority,
    pub(super) outcome_key: VerifyingKey,
    state: Mutex<State>,
    /// Moves when there is a reason to look again.
    looks: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    offered: BTreeMap<UpdateSeq, (Component, Stamp)>,
    /// What was desired at the last look.
    read: BTreeMap<Component, Version>,
    /// Told once: a body that does not travel is no reason to answer again.
    too_large: BTreeMap<Component, Stamp>,
    resend: bool,
    directives: Vec<DirectiveKind>,
    turn: u64,
    waits: bool,
    heard_at: Instant,
    /// When this session is to be left for one that begins anew.
    anew_at: Option<Instant>,
    ended: Option<Ending>,
}

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// It is over: a newer one is there, or nobody was.
    Over,
    /// Its host is to begin one at once: the authority has another life, or does not know this one.
    Anew,
}

/// What a waiting request is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Go on.
    Current,
    /// Answer: a newer request of this session is here.
    Replaced,
    /// The session is over.
    Ended(Ending),
}

impl Polls {
    /// Nobody polls yet.
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { held: Arc::default(), recorder, anew: Arc::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<HostId, Arc<Poll>>> {
        // Nothing that can panic runs under this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session that begins; nothing if a newer one of its host is here.
    pub(super) fn insert(
        &self,
        host: HostId,
        session_epoch: SessionEpoch,
        authority: Authority,
        outcome_key: VerifyingKey,
    ) -> Option<Arc<Poll>> {
        let state = State {
            offered: BTreeMap::new(),
            read: BTreeMap::new(),
            too_large: BTreeMap::new(),
            resend: false,
            directives: Vec::new(),
            turn: 0,
            waits: false,
            heard_at: Instant::now(),
            anew_at: None,
            ended: None,
        };
        let looks = watch::Sender::new(0);
        let poll = Arc::new(Poll { host, session_epoch, authority, outcome_key, state: Mutex::new(state), looks });
        let mut held = self.held();
        match held.get(&host) {
            Some(newer) if newer.session_epoch > session_epoch => None,
            Some(_) | None => {
                if let Some(older) = held.insert(host, Arc::clone(&poll)) {
                    older.end(Ending::Over);
                }
                Some(poll)
            }
        }
    }

    /// The session that a request goes on with.
    pub(super) fn find(&self, host: HostId, session_epoch: SessionEpoch) -> Option<Arc<Poll>> {
        self.held().get(&host).filter(|poll| poll.session_epoch == session_epoch).map(Arc::clone)
    }

    /// Whose sessions are here.
    pub(super) fn hosts(&self) -> Vec<HostId> {
        self.held().keys().copied().collect()
    }

    /// Whose sessions are here, and which.
    pub(super) fn sessions(&self) -> Vec<(HostId, SessionEpoch)> {
        self.held().iter().map(|(host, poll)| (*host, poll.session_epoch)).collect()
    }

    /// Lets sessions begin anew, each after its own time; one that was followed by another meanwhile stays.
    pub(super) fn begin_anew(&self, forgotten: impl Iterator<Item = ((HostId, SessionEpoch), Duration)>) {
        for ((host, session_epoch), after) in forgotten {
            if let Some(poll) = self.find(host, session_epoch) {
                poll.begin_anew_after(after);
            }
        }
        self.anew.notify_one();
    }

    /// Lets sessions that began in another life of the authority begin anew, in this order.
    pub(super) fn tell_life(&self, authority: Authority, moments: impl Iterator<Item = Duration>) {
        let held = self.held();
        let others = held.values().filter(|poll| poll.authority != authority);
        others.zip(moments).for_each(|(poll, after)| poll.begin_anew_after(after));
        drop(held);
        self.anew.notify_one();
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.held().len()
    }

    /// Versions that were rendered: those who wait look.
    pub(super) fn hint(&self, hosts: impl Iterator<Item = HostId>) {
        let held = self.held();
        if !held.is_empty() {
            hosts.filter_map(|host| held.get(&host)).for_each(|poll| poll.look());
        }
    }

    /// What the authority holds of hosts: a newer session elsewhere ends the one here, a version that was not read is a reason to look.
    pub(super) fn compare(&self, newest: &[HostNewest]) {
        for host in newest {
            let Some(poll) = self.held().get(&host.host).map(Arc::clone) else { continue };
            if poll.session_epoch < host.session_epoch {
                self.end(&poll, None);
            } else if host.versions.iter().any(|(component, version)| poll.is_news(*component, *version)) {
                poll.look();
            }
        }
    }

    /// These hosts have a newer session; one of them that is held here stays.
    pub(super) fn supersede(&self, stale: &[(HostId, SessionEpoch)]) {
        for (host, session_epoch) in stale {
            let poll = self.find(*host, *session_epoch);
            if let Some(poll) = poll {
                self.end(&poll, None);
            }
        }
    }

    /// A session with a connection begins for this host.
    pub(super) fn supersede_before(&self, host: HostId, session_epoch: SessionEpoch) {
        let poll = self.held().get(&host).filter(|poll| poll.session_epoch < session_epoch).map(Arc::clone);
        if let Some(poll) = poll {
            self.end(&poll, None);
        }
    }

    /// Asks something of a host that polls; false if it does not here.
    pub(super) fn direct(&self, directive: Directive) -> bool {
        let poll = self.held().get(&directive.host).map(Arc::clone);
        if let Some(poll) = &poll {
            let mut state = poll.state();
            match directive.kind {
                DirectiveKind::ResendSnapshot => state.resend = true,
                kind @ (DirectiveKind::Reconnect | DirectiveKind::Reenrol) => {
                    if !state.directives.contains(&kind) {
                        state.directives.push(kind);
                    }
                }
            }
            drop(state);
            poll.look();
        }
        poll.is_some()
    }

    /// Ends a session. One that ends by itself says so to the authority; of one that a newer one replaced nothing counts any more.
    pub(super) fn end(&self, poll: &Arc<Poll>, reason: Option<CloseReason>) {
        let mut held = self.held();
        if held.get(&poll.host).is_some_and(|held| Arc::ptr_eq(held, poll)) {
            held.remove(&poll.host);
        }
        drop(held);
        let ending = if reason == Some(CloseReason::Drained) { Ending::Anew } else { Ending::Over };
        if poll.end(ending) {
            let (host, session_epoch) = (poll.host, poll.session_epoch);
            tracing::info!(%host, %session_epoch, reason = reason.map(|reason| reason.word()), "session of polls closed");
            if let Some(reason) = reason {
                // A goodbye is always taken.
                let _taken = poll.record(&self.recorder, Seen::Closed(reason));
            }
        }
    }

    /// This process goes away, and with it all of them.
    pub(super) fn drain(&self) {
        let all: Vec<Arc<Poll>> = self.held().values().cloned().collect();
        all.iter().for_each(|poll| self.end(poll, Some(CloseReason::GatewayStopped)));
    }

    /// Ends what is silent, and what is to begin anew, for ever.
    pub(super) async fn run_sweep(self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_SWEEP) => {}
                () = self.anew.notified() => {}
            }
            let due = |poll: &Arc<Poll>| poll.due().map(|reason| (Arc::clone(poll), reason));
            let ending: Vec<(Arc<Poll>, CloseReason)> = self.held().values().filter_map(due).collect();
            ending.iter().for_each(|(poll, reason)| self.end(poll, Some(*reason)));
            metrics::gauge!("holdfast_gateway_polls").set(u32::try_from(self.len()).unwrap_or(u32::MAX));
        }
    }
}

impl Poll {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the end: it comes once.
    fn end(&self, ending: Ending) -> bool {
        let mut state = self.state();
        let is_first = state.ended.is_none();
        state.ended.get_or_insert(ending);
        drop(state);
        self.look();
        is_first
    }

    /// It is to be left after this time, or at the earlier moment that it was told before.
    fn begin_anew_after(&self, after: Duration) {
        let at = Instant::now() + after;
        let mut state = self.state();
        state.anew_at = Some(state.anew_at.map_or(at, |told| told.min(at)));
    }

    /// Why it is to end now, if it is.
    fn due(&self) -> Option<CloseReason> {
        let state = self.state();
        if state.anew_at.is_some_and(|at| at <= Instant::now()) {
            return Some(CloseReason::Drained);
        }
        (!state.waits && state.heard_at.elapsed() > POLL_SILENCE).then_some(CloseReason::Lost)
    }

    fn look(&self) {
        self.looks.send_modify(|looks| *looks += 1);
    }

    fn is_news(&self, component: Component, version: Version) -> bool {
        self.state().read.get(&component).is_none_or(|read| *read < version)
    }

    /// Moves when there is a reason to look again.
    pub(super) fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }

    /// A request comes: the one before it, should it wait still, answers.
    pub(super) fn begin(self: &Arc<Self>) -> Turn {
        let mut state = self.state();
        state.turn += 1;
        state.waits = true;
        state.heard_at = Instant::now();
        let number = state.turn;
        drop(state);
        self.look();
        Turn { poll: Arc::clone(self), number }
    }

    /// What is seen in this session, for the authority.
    pub(super) fn record(&self, recorder: &Recorder, seen: Seen) -> Result<(), NoRoom> {
        recorder.put(Fact { host: self.host, session_epoch: self.session_epoch, seen })
    }

    /// What was answered under a number, if it was not heard of yet.
    pub(super) fn offered(&self, update_seq: UpdateSeq) -> Option<(Component, Stamp)> {
        self.state().offered.get(&update_seq).copied()
    }

    /// An outcome of it counts: a second one does not.
    pub(super) fn settle(&self, update_seq: UpdateSeq) {
        self.state().offered.remove(&update_seq);
    }

    /// Something is answered under a number. The same number once more means that the answer before was lost.
    pub(super) fn offer(&self, update_seq: UpdateSeq, component: Component, stamp: Stamp) {
        let mut state = self.state();
        state.offered.insert(update_seq, (component, stamp));
        while state.offered.len() > UPDATES_IN_FLIGHT_MAX {
            state.offered.pop_first();
        }
    }

    /// What is desired of a component was read.
    pub(super) fn has_read(&self, component: Component, version: Version) {
        self.state().read.insert(component, version);
    }

    /// Whether it was told already that this does not travel; it is now.
    pub(super) fn tell_too_large(&self, component: Component, stamp: Stamp) -> bool {
        self.state().too_large.insert(component, stamp) == Some(stamp)
    }

    /// Whether it was told that this does not travel.
    pub(super) fn is_too_large(&self, component: Component, stamp: Stamp) -> bool {
        self.state().too_large.get(&component) == Some(&stamp)
    }

    /// Whether an operator wants everything sent once more, and what else is asked; said once.
    pub(super) fn take_asked(&self) -> (bool, Vec<DirectiveKind>) {
        let mut state = self.state();
        (std::mem::take(&mut state.resend), std::mem::take(&mut state.directives))
    }
}

/// One request of a session: while it lives, the host is there.
#[derive(Debug)]
pub(super) struct Turn {
    poll: Arc<Poll>,
    number: u64,
}

impl Turn {
    /// What this request is to do.
    pub(super) fn standing(&self) -> Standing {
        let state = self.poll.state();
        match (state.ended, state.turn == self.number) {
            (Some(ending), _) => Standing::Ended(ending),
            (None, false) => Standing::Replaced,
            (None, true) => Standing::Current,
        }
    }

    /// It is answered: from now on the next one is waited for.
    pub(super) fn answered(self) {
        self.poll.state().heard_at = Instant::now();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.poll.state();
        if state.turn == self.number {
            state.waits = false;
        }
    }
}
