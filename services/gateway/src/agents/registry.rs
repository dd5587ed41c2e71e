//! The sessions that this replica holds, by host, and the scheduler of what is built for them.
//!
//! - A host has at most one session here: the one with the higher session_epoch stays, whatever came first.
//! - A session leaves only for itself: a late goodbye of an older one does not remove the newer.
//! - Whatever may let a build begin is followed by those that do, under the same lock: there is no moment at which one waits for nothing.
//!
//! Who stays, who leaves and what a compare ends is decided by the machine ([`holdfast_session::replica::Sessions`]), which the simulation drives too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_events::{Directive, DirectiveKind};
use holdfast_identity::VerifyingKey;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};
use holdfast_model::statement::Authority;
use holdfast_session::replica::{self, HeldNow};
use holdfast_session::scheduler::{Asker, Ended, Scheduler, Ticket};
use holdfast_session::time::Instant;
use holdfast_store::session::HostNewest;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::message::Drain;
use tokio::sync::Notify;

use super::clock::Clock;
use super::gauges;
use super::limits::{ANEW_EACH_MS, ANEW_SPREAD_MS, BUILDS, COUNTS_GATHER, LIFE_TOLD, NARROW_STATES_MAX};
use super::mailbox::Mailbox;
use super::outgoing::HeldBytes;
use super::polls::{Poll, Polls};
use super::recorder::Recorder;
use super::session::FAR;

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Registry {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sessions: Mutex<Sessions>,
    polls: Polls,
    held: HeldBytes,
    clock: Clock,
    changed: Notify,
}

#[derive(Debug)]
struct Sessions {
    /// Each with its mailbox.
    held: replica::Sessions<Arc<Mailbox>>,
    /// The authority as it was found last, and how often sessions are still to be told: a session may begin while they are.
    life: Option<(Authority, u8)>,
}

impl Registry {
    /// None are held yet; the seed chooses the jitter of retries.
    pub(super) fn new(clock: Clock, seed: u64, recorder: Recorder) -> Self {
        let held = replica::Sessions::new(Scheduler::new(BUILDS, seed), NARROW_STATES_MAX);
        let sessions = Sessions { held, life: None };
        let polls = Polls::new(recorder);
        let (sessions, held, changed) = (Mutex::new(sessions), HeldBytes::default(), Notify::new());
        Self { shared: Arc::new(Shared { sessions, polls, held, clock, changed }) }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        // Nothing that can panic runs under this lock.
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the scheduler something, sessions what may begin by that, and the clock that it may have another time to wake.
    fn schedule<T>(&self, tell: impl FnOnce(&mut Sessions, Instant) -> T) -> T {
        let told = self.schedule_quietly(tell);
        self.shared.changed.notify_one();
        told
    }

    fn schedule_quietly<T>(&self, tell: impl FnOnce(&mut Sessions, Instant) -> T) -> T {
        let now = self.shared.clock.now();
        let mut sessions = self.sessions();
        let told = tell(&mut sessions, now);
        while let Some((start, mailbox)) = sessions.held.poll_start(now) {
            gauges::record_start(&start);
            // The scheduler holds the sessions that are held here, changed under one lock.
            if let Some(mailbox) = mailbox {
                mailbox.put_start(start);
            }
        }
        told
    }

    /// What sessions hold for agents to read.
    pub(super) fn held_bytes(&self) -> &HeldBytes {
        &self.shared.held
    }

    /// The hosts that poll.
    pub(super) fn polls(&self) -> &Polls {
        &self.shared.polls
    }

    /// Takes a session of polls in and ends an older session of its host; nothing if a newer one is here already.
    pub(super) fn insert_poll(
        &self,
        host: HostId,
        session_epoch: SessionEpoch,
        authority: Authority,
        outcome_key: VerifyingKey,
    ) -> Option<Arc<Poll>> {
        let sessions = self.sessions();
        match sessions.held.of(host) {
            Some((held, _)) if held > session_epoch => return None,
            Some((_, older)) => supersede(older),
            None => {}
        }
        drop(sessions);
        self.polls().insert(host, session_epoch, authority, outcome_key)
    }

    /// Takes a session in and ends an older one of its host; false if a newer one is here already.
    pub(super) fn insert(
        &self,
        host: HostId,
        namespace: Name,
        session_epoch: SessionEpoch,
        mailbox: Arc<Mailbox>,
    ) -> bool {
        self.polls().supersede_before(host, session_epoch);
        self.schedule(|sessions, _| {
            let Ok(older) = sessions.held.handle_held(host, namespace, session_epoch, mailbox) else { return false };
            older.iter().for_each(|older| supersede(older));
            true
        })
    }

    /// A session is over.
    pub(super) fn remove(&self, host: HostId, session_epoch: SessionEpoch) {
        self.schedule(|sessions, _| sessions.held.handle_released(host, session_epoch));
    }

    /// A session asks for a component; false if it is held no more.
    pub(super) fn want(&self, host: HostId, session_epoch: SessionEpoch, component: Component, asker: Asker) -> bool {
        self.schedule(|sessions, now| {
            sessions.held.scheduler_mut().handle_want(host, session_epoch, component, asker, now)
        })
    }

    /// A build ended.
    pub(super) fn ended(&self, ticket: Ticket, ended: Ended) {
        if !self.schedule(|sessions, now| sessions.held.scheduler_mut().handle_ended(ticket, ended, now)) {
            tracing::debug!(host = %ticket.host, component = %ticket.component, ?ended, "a build ended that nobody waits for");
        }
    }

    /// Lets time go on: what failed comes again, and what is counted becomes metrics.
    pub(super) async fn run_clock(self) {
        loop {
            let next = self.sessions().held.scheduler().poll_timeout();
            let next =
                next.map_or_else(|| tokio::time::Instant::now() + FAR, |(at, _)| self.shared.clock.instant_of(at));
            tokio::select! {
                () = self.shared.changed.notified() => tokio::time::sleep(COUNTS_GATHER).await,
                () = tokio::time::sleep_until(next) => {}
            }
            self.schedule_quietly(|sessions, now| sessions.held.scheduler_mut().handle_timeout(now));
            let mut sessions = self.sessions();
            let scheduler = sessions.held.scheduler_mut();
            gauges::record(&scheduler.take_counts(), &scheduler.waiting(), &scheduler.building());
        }
    }

    /// How many builds are under way and how many slots wait, of all lanes.
    #[cfg(test)]
    pub(super) fn builds(&self) -> (usize, usize) {
        let sessions = self.sessions();
        let scheduler = sessions.held.scheduler();
        let [building, waiting] = [scheduler.building(), scheduler.waiting()].map(|of| of.host + of.first + of.bulk);
        (building, waiting)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.sessions().held.len()
    }

    /// Whether nobody's session is here, with a connection or by polls.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && self.polls().len() == 0
    }

    /// Whose sessions are held, which, and the newest versions that were built for each; those of polls among them, which read anew for each answer.
    pub(super) fn held(&self) -> Vec<HeldNow> {
        let built = [None; Component::ALL.len()];
        let polls = self.polls().sessions();
        let polls = polls.into_iter().map(|(host, session_epoch)| HeldNow { host, session_epoch, built });
        self.sessions().held.held_now().chain(polls).collect()
    }

    /// Versions that were rendered, of so many together; those of hosts that are elsewhere are nothing to this replica.
    pub(super) fn hint(&self, states: &[(HostId, Component, Version)], of: usize) {
        self.polls().hint(states.iter().map(|(host, ..)| *host));
        if !self.sessions().held.is_empty() {
            self.schedule(|sessions, now| sessions.held.handle_published(states, of, now));
        }
    }

    /// What the authority holds of hosts: newer versions are to be built, a newer session ends the one that is here.
    pub(super) fn compare(&self, newest: &[HostNewest]) {
        self.polls().compare(newest);
        self.schedule(|sessions, now| {
            let over = sessions.held.handle_newest(newest.iter().map(newest_of), now);
            over.into_iter().for_each(|mailbox| supersede(mailbox));
        });
    }

    /// Ends sessions whose host has a newer one. A newer one that is held here stays: what an older one said late is nothing against it.
    pub(super) fn supersede(&self, stale: &[(HostId, SessionEpoch)]) {
        self.polls().supersede(stale);
        let sessions = self.sessions();
        let held = stale.iter().filter_map(|(host, session_epoch)| sessions.held.session(*host, *session_epoch));
        held.for_each(|mailbox| supersede(mailbox));
    }

    /// Asks something of a host's session; false if it has none here.
    pub(super) fn direct(&self, directive: Directive) -> bool {
        if self.polls().direct(directive) {
            return true;
        }
        let Directive { kind, host } = directive;
        let sessions = self.sessions();
        let held = sessions.held.of(host);
        if let Some((_, mailbox)) = held {
            mailbox.put(|mail| match kind {
                DirectiveKind::Reconnect => mail.reconnect = true,
                DirectiveKind::Reenrol => mail.reenrol = true,
                DirectiveKind::ResendSnapshot => mail.resend = [true; Component::ALL.len()],
            });
        }
        held.is_some()
    }

    /// Lets sessions begin anew, each at its own moment; one that was followed by another meanwhile stays.
    pub(super) fn begin_anew(&self, forgotten: &[(HostId, SessionEpoch)]) {
        self.polls().begin_anew(forgotten.iter().copied().zip(moments(forgotten.len())));
        let sessions = self.sessions();
        let held = forgotten.iter().filter_map(|(host, session_epoch)| sessions.held.session(*host, *session_epoch));
        for (mailbox, after) in held.zip(moments(forgotten.len())) {
            mailbox.put(|mail| mail.drain = Some(drain_after(after)));
        }
    }

    /// Tells sessions in which life the authority is, when that is another than before: those that began in another one begin anew.
    pub(super) fn tell_life(&self, authority: Authority) {
        let mut sessions = self.sessions();
        let left = match sessions.life {
            Some((known, left)) if known == authority => left,
            Some(_) | None => LIFE_TOLD,
        };
        sessions.life = Some((authority, left.saturating_sub(1)));
        if left > 0 {
            for (mailbox, after) in sessions.held.iter().zip(moments(sessions.held.len())) {
                mailbox.put(|mail| mail.life = Some((authority, drain_after(after))));
            }
            self.polls().tell_life(authority, moments(self.polls().len()));
        }
    }

    /// Tells every agent when to leave, each at its own moment of this span; sessions of polls end each at its own.
    pub(super) fn drain(&self, spread: Duration) {
        self.polls().drain(moments_of(self.polls().len(), spread));
        let sessions = self.sessions();
        for (mailbox, after) in sessions.held.iter().zip(moments_of(sessions.held.len(), spread)) {
            mailbox.put(|mail| mail.drain = Some(drain_after(after)));
        }
    }
}

/// After how long each of so many sessions is to begin anew, so that they do not come back at once.
fn moments(count: usize) -> impl Iterator<Item = Duration> {
    let spread_ms = u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(ANEW_EACH_MS).min(ANEW_SPREAD_MS);
    moments_of(count, Duration::from_millis(spread_ms))
}

/// The moments of so many, spread evenly over a span.
fn moments_of(count: usize, spread: Duration) -> impl Iterator<Item = Duration> {
    let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
    let spread_ms = u64::try_from(spread.as_millis()).unwrap_or(u64::MAX);
    (0..count).map(move |nth| Duration::from_millis(spread_ms.saturating_mul(nth) / count))
}

/// What a session is told that is to be left after this time.
fn drain_after(after: Duration) -> Drain {
    Drain { reconnect_after_ms: u32::try_from(after.as_millis()).unwrap_or(u32::MAX), gateways: Vec::new() }
}

/// Ends a session whose host has a newer one.
fn supersede(mailbox: &Mailbox) {
    mailbox.put(|mail| mail.close = Some(RefusalCode::Superseded));
}

/// What a compare found of a host, as machines take it.
pub(super) fn newest_of(of: &HostNewest) -> replica::Newest<'_> {
    replica::Newest { host: of.host, session_epoch: of.session_epoch, versions: &of.versions }
}

#[cfg(test)]
mod tests {
    use holdfast_session::scheduler::News;
    use uuid::Uuid;

    use super::super::mailbox::Mail;
    use super::*;

    #[test]
    fn the_newer_session_stays_whatever_came_first() {
        let registry = Registry::new(Clock::start(), 1, Recorder::default());
        let host = HostId::new(Uuid::from_u128(1));
        let (old, new) = (Arc::new(Mailbox::default()), Arc::new(Mailbox::default()));
        assert!(registry.insert(host, Name::default_namespace(), SessionEpoch::from_raw(1), Arc::clone(&old)));
        assert!(registry.insert(host, Name::default_namespace(), SessionEpoch::from_raw(3), Arc::clone(&new)));
        assert_eq!(old.take().close, Some(RefusalCode::Superseded));
        assert!(
            !registry.insert(host, Name::default_namespace(), SessionEpoch::from_raw(2), Arc::clone(&old)),
            "late, and older"
        );
        registry.remove(host, SessionEpoch::from_raw(1));
        assert_eq!(registry.len(), 1, "the loser does not take the winner with it");
        assert_eq!(new.take().close, None);
        registry.remove(host, SessionEpoch::from_raw(3));
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn a_compare_wakes_with_versions_and_ends_what_moved_elsewhere() {
        let registry = Registry::new(Clock::start(), 1, Recorder::default());
        let hosts = [1, 2].map(|n| HostId::new(Uuid::from_u128(n)));
        let boxes = hosts.map(|host| {
            let mailbox = Arc::new(Mailbox::default());
            registry.insert(host, Name::default_namespace(), SessionEpoch::from_raw(5), Arc::clone(&mailbox));
            mailbox
        });
        let version = Version::FIRST.next().expect("a second one");
        for (host, mailbox) in hosts.iter().zip(&boxes) {
            // They have their first states.
            for component in Component::ALL {
                assert!(registry.want(*host, SessionEpoch::from_raw(5), component, Asker::Session));
            }
            for start in mailbox.take().starts.into_iter().flatten() {
                registry.ended(start.ticket, Ended::Built { version: Version::FIRST });
            }
        }
        let newest = |host, epoch| HostNewest {
            host,
            session_epoch: SessionEpoch::from_raw(epoch),
            versions: vec![(Component::Policy, version), (Component::Policy, Version::FIRST)],
        };
        registry.compare(&[newest(hosts[0], 5), newest(hosts[1], 6)]);
        let mails = boxes.each_ref().map(|mailbox| mailbox.take());
        let news = |mail: &Mail| mail.starts[0].map(|start| start.news);
        assert_eq!((mails[0].close, news(&mails[0])), (None, Some(News::Newer(version))), "the highest counts");
        assert_eq!((mails[1].close, news(&mails[1])), (Some(RefusalCode::Superseded), None));
        // The same once more, and what it has already, is no work for anybody.
        registry.compare(&[newest(hosts[0], 5)]);
        assert!(boxes[0].take().starts.iter().all(Option::is_none));
    }

    #[test]
    fn what_an_older_session_said_late_does_not_end_the_newer_one_of_its_host() {
        let registry = Registry::new(Clock::start(), 1, Recorder::default());
        let (host, mailbox) = (HostId::new(Uuid::from_u128(1)), Arc::new(Mailbox::default()));
        let epoch = SessionEpoch::from_raw;
        assert!(registry.insert(host, Name::default_namespace(), epoch(2), Arc::clone(&mailbox)));
        registry.supersede(&[(host, epoch(1))]);
        assert_eq!(mailbox.take().close, None);
        registry.supersede(&[(host, epoch(2))]);
        assert_eq!(mailbox.take().close, Some(RefusalCode::Superseded), "its successor is elsewhere");
    }

    #[test]
    fn another_life_of_the_authority_is_told_to_every_session_twice_and_then_no_more() {
        let registry = Registry::new(Clock::start(), 1, Recorder::default());
        let mailbox = Arc::new(Mailbox::default());
        let host = HostId::new(Uuid::from_u128(1));
        registry.insert(host, Name::default_namespace(), SessionEpoch::from_raw(1), Arc::clone(&mailbox));
        let life = |epoch| Authority {
            id: holdfast_model::ids::AuthorityId::new(Uuid::from_u128(7)),
            epoch: holdfast_model::numbers::AuthorityEpoch::from_raw(epoch),
        };
        let told = |epoch| {
            registry.tell_life(life(epoch));
            mailbox.take().life.map(|(authority, _)| authority)
        };
        for epoch in [1, 2, 1] {
            assert_eq!([told(epoch), told(epoch)], [Some(life(epoch)); 2], "a session may begin while they are told");
            assert_eq!(told(epoch), None);
        }
    }

    #[test]
    fn a_session_that_the_database_forgot_begins_anew_unless_another_followed_it() {
        let registry = Registry::new(Clock::start(), 1, Recorder::default());
        let hosts = [1, 2].map(|n| HostId::new(Uuid::from_u128(n)));
        let boxes = hosts.map(|host| {
            let mailbox = Arc::new(Mailbox::default());
            registry.insert(host, Name::default_namespace(), SessionEpoch::from_raw(5), Arc::clone(&mailbox));
            mailbox
        });
        registry.begin_anew(&[(hosts[0], SessionEpoch::from_raw(5)), (hosts[1], SessionEpoch::from_raw(4))]);
        assert_eq!(boxes.map(|mailbox| mailbox.take().drain.is_some()), [true, false]);
    }

    #[test]
    fn a_drain_gives_each_session_its_own_moment() {
        let registry = Registry::new(Clock::start(), 1, Recorder::default());
        let boxes: Vec<_> = (0..10_u128)
            .map(|n| {
                let mailbox = Arc::new(Mailbox::default());
                let host = HostId::new(Uuid::from_u128(n));
                registry.insert(host, Name::default_namespace(), SessionEpoch::from_raw(1), Arc::clone(&mailbox));
                mailbox
            })
            .collect();
        registry.drain(Duration::from_secs(10));
        let mut moments: Vec<u32> = boxes.iter().filter_map(|b| b.take().drain).map(|d| d.reconnect_after_ms).collect();
        moments.sort_unstable();
        assert_eq!(moments, (0..10).map(|n| n * 1_000).collect::<Vec<_>>());
    }
}
