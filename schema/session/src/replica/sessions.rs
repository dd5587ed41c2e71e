//! The sessions that a replica holds, by host, with the scheduler of what is built for them.
//!
//! - A host has at most one session here: the one with the higher number stays, whatever came first.
//! - A session leaves only for itself: the late end of an older one does not take the newer one with it, and what an older one said late ends it neither.
//! - A compare ends what moved elsewhere, and marks what is newer than what was built.
//!
//! What a session is to the shell (a mailbox, a connection) is the shell's: it is kept beside the number, and handed back.

use std::collections::BTreeMap;

use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::name::Name;
use holdfast_model::numbers::{SessionEpoch, Version};

use crate::scheduler::{Reach, Scheduler, Start};
use crate::time::Instant;

/// All of them.
#[derive(Debug)]
pub struct Sessions<T> {
    held: BTreeMap<HostId, (SessionEpoch, T)>,
    scheduler: Scheduler,
    narrow_states_max: usize,
    faults: Faults,
}

/// A newer session of the same host is held here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outlived;

/// A session as it is held at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldNow {
    /// Whose.
    pub host: HostId,
    /// Which.
    pub session_epoch: SessionEpoch,
    /// The newest version of each component that was built for it.
    pub built: [Option<Version>; Component::ALL.len()],
}

/// What the authority holds of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newest<'a> {
    /// Whose.
    pub host: HostId,
    /// Its newest session.
    pub session_epoch: SessionEpoch,
    /// The newest version of each component that has one.
    pub versions: &'a [(Component, Version)],
}

impl<T> Sessions<T> {
    /// None are held; so many states that were published together concern few hosts.
    #[must_use]
    pub fn new(scheduler: Scheduler, narrow_states_max: usize) -> Self {
        Self { held: BTreeMap::new(), scheduler, narrow_states_max, faults: Faults::default() }
    }

    /// The same with one seeded fault, in the scheduler too.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), scheduler: self.scheduler.with_mutant(mutant), ..self }
    }

    /// What is built for them.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// What is built for them, to be told of builds, questions and time. Who comes and goes is told here.
    pub const fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    /// Takes a session in; the older one of its host is over by that, and is handed back to be told so.
    ///
    /// # Errors
    /// [`Outlived`] if the one that is here is newer, or the same.
    pub fn handle_held(
        &mut self,
        host: HostId,
        namespace: Name,
        session_epoch: SessionEpoch,
        session: T,
    ) -> Result<Option<T>, Outlived> {
        if !self.scheduler.handle_held(host, namespace, session_epoch) {
            return Err(Outlived);
        }
        Ok(self.held.insert(host, (session_epoch, session)).map(|(_, older)| older))
    }

    /// A session is over.
    pub fn handle_released(&mut self, host: HostId, session_epoch: SessionEpoch) {
        self.scheduler.handle_released(host, session_epoch);
        let is_it = self.session(host, session_epoch).is_some() || self.faults.has(Mutant::OlderEndTakesNewer);
        if is_it {
            self.held.remove(&host);
        }
    }

    /// Versions that were published, of so many together; those of hosts that are elsewhere are nothing to this replica.
    pub fn handle_published(&mut self, states: &[(HostId, Component, Version)], of: usize, now: Instant) {
        let reach = if of <= self.narrow_states_max { Reach::Narrow } else { Reach::Wide };
        self.scheduler.handle_states(states, reach, now);
    }

    /// What the authority holds of hosts. Newer versions are to be built; sessions that are over since their hosts have newer ones are handed back.
    pub fn handle_newest<'a>(&mut self, newest: impl IntoIterator<Item = Newest<'a>>, now: Instant) -> Vec<&T> {
        let (mut states, mut over) = (Vec::new(), Vec::new());
        for of in newest {
            let Some((session_epoch, _)) = self.held.get(&of.host) else { continue };
            if *session_epoch < of.session_epoch {
                over.push(of.host);
                continue;
            }
            let news = of.versions.iter().filter(|(part, version)| self.scheduler.is_news(of.host, *part, *version));
            states.extend(news.map(|(component, version)| (of.host, *component, *version)));
        }
        if !states.is_empty() {
            self.handle_published(&states, states.len(), now);
        }
        over.iter().filter_map(|host| self.held.get(host)).map(|(_, session)| session).collect()
    }

    /// The next build that may begin, and whose session is to begin it.
    pub fn poll_start(&mut self, now: Instant) -> Option<(Start, Option<&T>)> {
        let start = self.scheduler.poll_start(now)?;
        Some((start, self.held.get(&start.ticket.host).map(|(_, session)| session)))
    }

    /// Exactly this session, if it is held.
    #[must_use]
    pub fn session(&self, host: HostId, session_epoch: SessionEpoch) -> Option<&T> {
        self.of(host).filter(|(held, _)| *held == session_epoch).map(|(_, session)| session)
    }

    /// The session of a host.
    #[must_use]
    pub fn of(&self, host: HostId) -> Option<(SessionEpoch, &T)> {
        self.held.get(&host).map(|(session_epoch, session)| (*session_epoch, session))
    }

    /// All of them, by host.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.held.values().map(|(_, session)| session)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Which they are, and what was built for each: what a compare asks about.
    pub fn held_now(&self) -> impl Iterator<Item = HeldNow> {
        self.held.iter().map(|(host, (session_epoch, _))| {
            let (session_epoch, built) = (*session_epoch, self.scheduler.built(*host));
            HeldNow { host: *host, session_epoch, built }
        })
    }
}

/// Sessions that know more than the authority: it was restored from a backup, or promoted without the last commits. Each session, and each version, was
/// there before it was asked.
pub fn ahead<'a>(asked: &[HeldNow], newest: impl IntoIterator<Item = Newest<'a>>) -> Vec<(HostId, SessionEpoch)> {
    let known: BTreeMap<HostId, Newest<'a>> = newest.into_iter().map(|of| (of.host, of)).collect();
    let is_ahead = |held: &&HeldNow| {
        known.get(&held.host).is_none_or(|known| {
            let of = |component| known.versions.iter().find(|(of, _)| *of == component).map(|(_, version)| *version);
            known.session_epoch < held.session_epoch
                || Component::ALL.into_iter().zip(held.built).any(|(component, built)| built > of(component))
        })
    };
    asked.iter().filter(is_ahead).map(|held| (held.host, held.session_epoch)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::scheduler::{Asker, Capacity, Ended, News};

    const NOW: Instant = Instant::from_millis(1);

    fn mk_sessions() -> Sessions<&'static str> {
        Sessions::new(Scheduler::new(Capacity::of(8).expect("it can be shared"), 1), 4)
    }

    fn mk_host(number: u128) -> HostId {
        HostId::new(Uuid::from_u128(number))
    }

    const fn epoch(raw: u64) -> SessionEpoch {
        SessionEpoch::from_raw(raw)
    }

    fn version(raw: u64) -> Version {
        Version::from_raw(raw).expect("not zero")
    }

    fn hold<T>(sessions: &mut Sessions<T>, host: u128, raw: u64, session: T) -> Result<Option<T>, Outlived> {
        sessions.handle_held(mk_host(host), Name::default_namespace(), epoch(raw), session)
    }

    #[test]
    fn the_newer_session_stays_whatever_came_first_and_leaves_only_for_itself() {
        let mut sessions = mk_sessions();
        assert_eq!(hold(&mut sessions, 1, 1, "old"), Ok(None));
        assert_eq!(hold(&mut sessions, 1, 3, "new"), Ok(Some("old")));
        assert_eq!(hold(&mut sessions, 1, 2, "late"), Err(Outlived));
        sessions.handle_released(mk_host(1), epoch(1));
        assert_eq!(sessions.of(mk_host(1)), Some((epoch(3), &"new")));
        assert_eq!(
            (sessions.session(mk_host(1), epoch(1)), sessions.session(mk_host(1), epoch(3))),
            (None, Some(&"new"))
        );
        sessions.handle_released(mk_host(1), epoch(3));
        assert!(sessions.is_empty());
    }

    #[test]
    fn a_compare_marks_what_is_newer_and_hands_back_what_moved_elsewhere() {
        let mut sessions = mk_sessions();
        for host in 1..=2 {
            assert_eq!(hold(&mut sessions, host, 5, "held"), Ok(None));
            for component in Component::ALL {
                assert!(sessions.scheduler_mut().handle_want(mk_host(host), epoch(5), component, Asker::Session, NOW));
            }
        }
        while let Some((start, session)) = sessions.poll_start(NOW) {
            assert_eq!(session, Some(&"held"));
            assert!(sessions.scheduler_mut().handle_ended(start.ticket, Ended::Built { version: version(1) }, NOW));
        }
        let versions = [(Component::Policy, version(2)), (Component::Settings, version(1))];
        let newest = |host, raw| Newest { host: mk_host(host), session_epoch: epoch(raw), versions: &versions };
        assert_eq!(sessions.handle_newest([newest(1, 5), newest(2, 6), newest(3, 1)], NOW), [&"held"]);
        let started: Vec<_> = std::iter::from_fn(|| sessions.poll_start(NOW).map(|(start, _)| start)).collect();
        let [start] = started.as_slice() else { panic!("what it has already is no work: {started:?}") };
        assert_eq!((start.ticket.host, start.ticket.component), (mk_host(1), Component::Policy));
        assert_eq!(start.news, News::Newer(version(2)));
    }

    #[test]
    fn a_session_is_ahead_of_an_authority_that_does_not_know_it_or_a_version_that_was_built_for_it() {
        let built = [Some(version(3)), None, None, None];
        let held = |host, raw| HeldNow { host: mk_host(host), session_epoch: epoch(raw), built };
        let asked = [held(1, 5), held(2, 5), held(3, 5), held(4, 5), held(5, 5)];
        let (behind, level) = ([(Component::Policy, version(2))], [(Component::Policy, version(3))]);
        let newest = [(1, 5, &level), (2, 6, &level), (3, 4, &level), (4, 5, &behind)];
        let newest =
            newest.map(|(host, raw, versions)| Newest { host: mk_host(host), session_epoch: epoch(raw), versions });
        assert_eq!(ahead(&asked, newest), [3, 4, 5].map(|host| (mk_host(host), epoch(5))));
    }

    proptest! {
        /// Whatever comes and goes in whatever order: the highest number that came and did not leave for itself is held, and the scheduler holds the same.
        #[test]
        fn the_map_and_the_scheduler_hold_the_same_sessions(
            steps in prop::collection::vec((0..3_u128, 1..12_u64, any::<bool>()), 1..80),
        ) {
            let (mut sessions, mut model) = (Sessions::new(Scheduler::new(Capacity::of(8).expect("it can be shared"), 1), 4), BTreeMap::new());
            for (host, raw, comes) in steps {
                let known: Option<u64> = model.get(&host).copied();
                if comes {
                    let expected = if known.is_some_and(|known| known >= raw) { Err(Outlived) } else { Ok(known) };
                    prop_assert_eq!(hold(&mut sessions, host, raw, raw), expected);
                    model.insert(host, known.map_or(raw, |known| known.max(raw)));
                } else {
                    sessions.handle_released(mk_host(host), epoch(raw));
                    model.retain(|of, known| *of != host || *known != raw);
                }
                prop_assert_eq!(sessions.len(), model.len());
                for (host, raw) in &model {
                    prop_assert_eq!(sessions.of(mk_host(*host)), Some((epoch(*raw), raw)));
                    let of_it = sessions.scheduler_mut().handle_want(mk_host(*host), epoch(*raw), Component::Policy, Asker::Session, NOW);
                    prop_assert!(of_it, "the scheduler holds it too");
                }
            }
        }
    }
}
