//! The hosts that poll here: sessions without a connection of their own.
//!
//! - A poll session has a session_epoch of the authority like any other, and what it says is fenced by it. It lives on this replica and dies with it.
//! - It ends by silence, by a newer session of its host, where the authority has a new life or forgot it, or with this process; a request that
//!   waits is answered then. It never holds a place in the scheduler.
//! - What was answered and not yet heard of is kept by number, so that an outcome counts only for what this session answered.
//! - An answer on its way is a request that waits still, and its reader is heard; a newer request of its host ends it. What is asked of a host stays
//!   until an answer with it went out whole, and what is to be sent once more until each part of it went.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_events::{CloseReason, Directive, DirectiveKind};
use holdfast_identity::VerifyingKey;
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq, Version};
use holdfast_model::statement::Authority;
use holdfast_session::gateway::DriftBudget;
use holdfast_session::limits::FAULTS_MAX;
use holdfast_store::session::{Fact, HostNewest, Seen};
use holdfast_wire::limits::UPDATES_IN_FLIGHT_MAX;
use holdfast_wire::message::SignatureBytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::addresses::Addresses;
use super::limits::{
    POLL_SILENCE, POLL_SWEEP, POLL_TELL, SENDINGS_RECORDED_MAX, SYNC_BYTES_PER_SECOND_MIN, SYNC_TAIL_BYTES_MAX,
};
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
    /// Those of them that the log names.
    too_large_logged: BTreeMap<Component, Stamp>,
    /// What an operator asks, by number.
    asked: BTreeMap<u64, DirectiveKind>,
    asked_last: u64,
    /// What is to be sent once more and did not go yet.
    owed: BTreeSet<Component>,
    addresses: Addresses,
    faults_seen: usize,
    /// Outcomes that counted: the same word once more is none, and no fault.
    settled: BTreeMap<UpdateSeq, SignatureBytes>,
    drift_budget: Option<DriftBudget>,
    /// What was sent whole of each component, and how often.
    sent: BTreeMap<Component, (Stamp, usize)>,
    turn: u64,
    waits: bool,
    /// An answer is on its way.
    is_answering: bool,
    heard_at: Instant,
    /// When the authority was told last that the host is there.
    told_at: Instant,
    /// How much longer the host may be silent: what was answered last may still be on its way.
    tail: Duration,
    /// When this session is to be left because this process goes away.
    leave_at: Option<Instant>,
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
            too_large_logged: BTreeMap::new(),
            asked: BTreeMap::new(),
            asked_last: 0,
            owed: BTreeSet::new(),
            addresses: Addresses::default(),
            faults_seen: 0,
            settled: BTreeMap::new(),
            drift_budget: None,
            sent: BTreeMap::new(),
            turn: 0,
            waits: false,
            is_answering: false,
            heard_at: Instant::now(),
            told_at: Instant::now(),
            tail: Duration::ZERO,
            leave_at: None,
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
    #[cfg(test)]
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

    /// Where facts wait.
    pub(super) const fn recorder(&self) -> &Recorder {
        &self.recorder
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
            // What is asked once more while an answer with it is on its way is asked once more.
            state.asked.retain(|_, kind| *kind != directive.kind);
            state.asked_last += 1;
            let number = state.asked_last;
            state.asked.insert(number, directive.kind);
            if directive.kind == DirectiveKind::ResendSnapshot {
                state.sent.clear();
                state.owed.extend(Component::ALL);
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

    /// This process goes away, and with it all of them, each at its own moment.
    pub(super) fn drain(&self, moments: impl Iterator<Item = Duration>) {
        let (held, now) = (self.held(), Instant::now());
        held.values().zip(moments).for_each(|(poll, after)| poll.state().leave_at = Some(now + after));
        drop(held);
        self.anew.notify_one();
    }

    /// When to look next: a moment that a session was given may come before the clock's.
    fn next_look(&self) -> Instant {
        let moments = self.held().values().flat_map(|poll| poll.moments()).min();
        let at = Instant::now() + POLL_SWEEP;
        moments.map_or(at, |moment| moment.min(at))
    }

    /// Ends what is silent, what is to begin anew, and what is to leave, for ever.
    pub(super) async fn run_sweep(self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(self.next_look()) => {}
                () = self.anew.notified() => {}
            }
            let due = |poll: &Arc<Poll>| poll.due().map(|reason| (Arc::clone(poll), reason));
            let ending: Vec<(Arc<Poll>, CloseReason)> = self.held().values().filter_map(due).collect();
            ending.iter().for_each(|(poll, reason)| self.end(poll, Some(*reason)));
            let readers: Vec<Arc<Poll>> = self.held().values().filter(|poll| poll.is_to_be_told()).cloned().collect();
            readers.iter().for_each(|poll| self.recorder.put_heard(poll.host, poll.session_epoch));
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
        let (state, now) = (self.state(), Instant::now());
        if state.leave_at.is_some_and(|at| at <= now) {
            return Some(CloseReason::GatewayStopped);
        }
        if state.anew_at.is_some_and(|at| at <= now) {
            return Some(CloseReason::Drained);
        }
        (!state.waits && state.heard_at.elapsed() > POLL_SILENCE + state.tail).then_some(CloseReason::Lost)
    }

    /// Whether the authority is to be told that the host is there: it reads, and asks nothing meanwhile.
    fn is_to_be_told(&self) -> bool {
        let mut state = self.state();
        let is_due = state.waits && state.is_answering && state.told_at.elapsed() >= POLL_TELL;
        if is_due {
            state.told_at = Instant::now();
        }
        is_due
    }

    /// The moments that it was given.
    fn moments(&self) -> impl Iterator<Item = Instant> + use<> {
        let state = self.state();
        [state.leave_at, state.anew_at].into_iter().flatten()
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
        state.is_answering = false;
        state.heard_at = Instant::now();
        // Whoever takes the request tells it.
        state.told_at = state.heard_at;
        state.tail = Duration::ZERO;
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
    pub(super) fn settle(&self, update_seq: UpdateSeq, signature: SignatureBytes) {
        let mut state = self.state();
        state.offered.remove(&update_seq);
        state.settled.insert(update_seq, signature);
        while state.settled.len() > UPDATES_IN_FLIGHT_MAX {
            state.settled.pop_first();
        }
    }

    /// Whether this very word of an update counted already: the answer to it was lost, or refused for another.
    pub(super) fn is_settled(&self, update_seq: UpdateSeq, signature: &SignatureBytes) -> bool {
        self.state().settled.get(&update_seq) == Some(signature)
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

    /// Whether the log named already that this does not travel; it does now.
    pub(super) fn log_too_large(&self, component: Component, stamp: Stamp) -> bool {
        self.state().too_large_logged.insert(component, stamp) == Some(stamp)
    }

    /// Whether it was told that this does not travel.
    pub(super) fn is_too_large(&self, component: Component, stamp: Stamp) -> bool {
        self.state().too_large.get(&component) == Some(&stamp)
    }

    /// What an operator asks of this host, until an answer with it went out.
    pub(super) fn asked(&self) -> Asked {
        let state = self.state();
        Asked { kinds: state.asked.clone(), owed: state.owed.clone(), ..Asked::default() }
    }

    /// What it says of its addresses.
    pub(super) fn addresses<T>(&self, on: impl FnOnce(&mut Addresses) -> T) -> T {
        on(&mut self.state().addresses)
    }

    /// Something is sent whole; whether that is to be recorded: not, if the host has it sent over and over by itself.
    pub(super) fn is_sending_recorded(&self, component: Component, stamp: Stamp) -> bool {
        let mut state = self.state();
        let sent = state.sent.entry(component).or_insert((stamp, 0));
        if sent.0 != stamp {
            *sent = (stamp, 0);
        }
        sent.1 = sent.1.saturating_add(1);
        sent.1 <= SENDINGS_RECORDED_MAX
    }

    /// Whether another report of drift is taken now.
    pub(super) fn may_tell_drift(&self, now: holdfast_session::time::Instant) -> bool {
        self.state().drift_budget.get_or_insert_with(|| DriftBudget::new(now)).take(now)
    }

    /// Another fault; whether there are more now than a session survives.
    pub(super) fn is_fault_too_many(&self) -> bool {
        let mut state = self.state();
        state.faults_seen += 1;
        state.faults_seen > FAULTS_MAX
    }
}

/// What is asked of a host, by number, and what of it an answer leaves for the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Asked {
    kinds: BTreeMap<u64, DirectiveKind>,
    owed: BTreeSet<Component>,
    left: BTreeSet<Component>,
    /// What the answer says of bodies that do not travel.
    too_large: BTreeMap<Component, Stamp>,
}

impl Asked {
    /// Whether this is to be sent once more.
    pub(super) fn is_resend_of(&self, component: Component) -> bool {
        self.kinds.values().any(|kind| *kind == DirectiveKind::ResendSnapshot) && self.owed.contains(&component)
    }

    /// This has no room in the answer: it is to be sent once more still.
    pub(super) fn leave(&mut self, component: Component) {
        self.left.insert(component);
    }

    /// The answer says of this that it does not travel.
    pub(super) fn tell_too_large(&mut self, component: Component, stamp: Stamp) {
        self.too_large.insert(component, stamp);
    }

    /// The rest of it: what is said in words.
    pub(super) fn words(&self) -> impl Iterator<Item = DirectiveKind> {
        self.kinds.values().copied().filter(|kind| *kind != DirectiveKind::ResendSnapshot)
    }

    /// All of it but what could not be read.
    pub(super) fn without_resend(mut self) -> Self {
        self.kinds.retain(|_, kind| *kind != DirectiveKind::ResendSnapshot);
        self
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

    /// Whether its answer is still one that its host waits for: it asked nothing newer, and has no newer session. One whose session ends with this
    /// process is read to its end.
    pub(super) fn is_wanted(&self) -> bool {
        let state = self.poll.state();
        state.turn == self.number && (state.ended.is_none() || state.leave_at.is_some())
    }

    /// A piece of its answer was taken: somebody reads.
    pub(super) fn is_read(&self) {
        let mut state = self.poll.state();
        state.heard_at = Instant::now();
        state.is_answering |= state.turn == self.number;
    }

    /// The last piece of so many bytes is on its way, and with it what was asked: from now on the next request is waited for.
    pub(super) fn answered(self, bytes: usize, asked: &Asked) {
        let mut state = self.poll.state();
        let left = &asked.left;
        let is_left = |kind: DirectiveKind| kind == DirectiveKind::ResendSnapshot && !left.is_empty();
        let mut is_resent = false;
        state.asked.retain(|number, kind| {
            let went = asked.kinds.contains_key(number);
            is_resent |= went && *kind == DirectiveKind::ResendSnapshot;
            !went || is_left(*kind)
        });
        if is_resent {
            state.owed.clone_from(left);
        }
        state.too_large.extend(asked.too_large.iter().map(|(component, stamp)| (*component, *stamp)));
        if state.turn == self.number {
            state.heard_at = Instant::now();
            state.tail = tail(bytes);
        }
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

/// How long the end of an answer may be on its way once nothing of it waits here any more.
fn tail(bytes: usize) -> Duration {
    let millis = u64::try_from(bytes.min(SYNC_TAIL_BYTES_MAX)).unwrap_or(u64::MAX) * 1_000 / SYNC_BYTES_PER_SECOND_MIN;
    Duration::from_millis(millis)
}
