//! Settings, credentials and workloads as far as they exist: explicit, versioned, empty.
//!
//! - Their versions are kept on disk, so that nothing goes back over a restart either.
//! - This build has no drivers; content other than the empty one is refused, not ignored.
//! - What is written is read back before it is called verified, and on each slow tick since; what is not there then is written again. What was read
//!   counts for so long and no longer.
//! - One update is written at a time, in the order in which they were taken, also by a session that ended meanwhile; a disk that takes its time holds
//!   up nobody who asks what is held.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_identity::files;
use holdfast_model::condition::{Basis, Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::AuthorityId;
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_model::report::{ComponentReport, StatedCondition};
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_runtime::{Chain, fail_point};
use holdfast_session::agent::{Apply, ApplyResult, Content, check_snapshot};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::kept_file;
use crate::service::unix_ms;

const FILE: &str = "components.json";

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Stored {
    authority: AuthorityId,
    epoch: AuthorityEpoch,
    applied: Vec<(Component, Stamp)>,
    /// Those that were taken in an earlier life than `epoch`.
    #[serde(default)]
    earlier: Vec<Component>,
}

/// What an attempt came to, and when.
struct Attempt {
    is_taken: bool,
    conditions: Vec<Condition>,
    at_ms: u64,
}

/// What the file was found to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// What is held.
    Same,
    /// Something else.
    Other,
    /// It could not be read.
    Unread,
}

/// A look at the file.
#[derive(Clone, Copy)]
struct Look {
    found: Found,
    at_ms: u64,
    good_until: Instant,
}

/// What is held of the components beside `policy`; its copies hold the same.
#[derive(Clone)]
pub(super) struct Components {
    file: Arc<Path>,
    stored: Arc<Mutex<Stored>>,
    /// Held by who writes.
    writing: Arc<Mutex<()>>,
    /// What the last attempt of each came to since the agent started, and when.
    attempts: Arc<Mutex<BTreeMap<Component, Attempt>>>,
    /// The last look at the file since the agent started.
    look: Arc<Mutex<Option<Look>>>,
    /// How long a look counts.
    good_for: Duration,
}

impl Components {
    /// What the disk says; nothing if it says nothing of this authority. One that is damaged is told and set aside. A look at it counts for so long.
    pub(super) fn load(state_folder: &Path, authority: Authority, good_for: Duration) -> Self {
        let file: PathBuf = state_folder.join(FILE);
        let fresh =
            Stored { authority: authority.id, epoch: authority.epoch, applied: Vec::new(), earlier: Vec::new() };
        let stored =
            kept_file::load::<Stored>(&file).filter(|stored| stored.authority == authority.id).unwrap_or(fresh);
        Self {
            file: file.into(),
            stored: Arc::new(Mutex::new(stored)),
            writing: Arc::default(),
            attempts: Arc::default(),
            look: Arc::default(),
            good_for,
        }
    }

    /// Looks at the file again and again, for as long as it is polled.
    pub(super) async fn watch(self, interval: Duration) -> Infallible {
        loop {
            sleep(interval).await;
            // Beside everything: a disk that takes its time holds up nobody, and what was seen before counts no more meanwhile.
            let looking = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || looking.look()).await {
                tracing::error!(%error, "what the disk holds of components was not looked at");
            }
        }
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        // Nothing that can panic, and nothing slow, runs under this lock.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The authority in the life that they were taken from.
    pub(super) fn authority(&self) -> Authority {
        let stored = self.stored();
        Authority { id: stored.authority, epoch: stored.epoch }
    }

    pub(super) fn applied(&self) -> Vec<(Component, Stamp)> {
        self.stored().applied.clone()
    }

    /// Those that were taken in an earlier life than [`Self::authority`] tells.
    pub(super) fn earlier(&self) -> Vec<Component> {
        self.stored().earlier.clone()
    }

    /// How one of them stands: what an attempt that failed came to of its own version, and what stands of what is held.
    pub(super) fn report(&self, component: Component) -> ComponentReport {
        let applied = self.applied().into_iter().find(|(held, _)| *held == component).map(|(_, stamp)| stamp);
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = attempts.get(&component);
        if let Some(Attempt { conditions, at_ms, .. }) = attempt.filter(|attempt| !attempt.is_taken) {
            let stated = |condition: &Condition| StatedCondition {
                condition: condition.clone(),
                basis: Basis::Observed,
                observed_at_ms: *at_ms,
            };
            return ComponentReport { component, applied, conditions: conditions.iter().map(stated).collect() };
        }
        let mut report = ComponentReport::unreached(component, applied, unix_ms());
        if applied.is_none() {
            return report;
        }
        let is_over = |look: &Look| Instant::now() >= look.good_until;
        let look = *self.look.lock().unwrap_or_else(PoisonError::into_inner);
        for one in &mut report.conditions {
            let (status, reason, message) = match (one.condition.kind, look) {
                (ConditionType::Verified, None) => continue,
                (ConditionType::Verified, Some(look)) => {
                    one.observed_at_ms = look.at_ms;
                    match look.found {
                        _ if is_over(&look) => (Holds::Unknown, Reason::ReadBackFailed, "the disk does not answer"),
                        Found::Same => (Holds::True, Reason::Done, ""),
                        Found::Other => (Holds::False, Reason::ReadBackDiffers, "the file has something else"),
                        Found::Unread => (Holds::Unknown, Reason::ReadBackFailed, "the file cannot be read"),
                    }
                }
                (_, _) => {
                    let seen_at_ms = attempt.map(|attempt| attempt.at_ms);
                    one.basis = if seen_at_ms.is_some() { Basis::Observed } else { Basis::Inferred };
                    one.observed_at_ms = seen_at_ms.unwrap_or(one.observed_at_ms);
                    (Holds::True, Reason::Done, "")
                }
            };
            (one.condition.status, one.condition.reason) = (status, reason);
            message.clone_into(&mut one.condition.message);
        }
        report
    }

    /// Reads the file back, and writes it again where it is not what is held.
    fn look(&self) {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self.stored().clone();
        if stored.applied.is_empty() {
            return;
        }
        let mut found = self.read_back(&stored);
        if found != Found::Same {
            match self.save(&stored) {
                Ok(()) => {
                    tracing::warn!(?found, file = %self.file.display(), "what is held of components was not on disk, and is written again");
                    found = self.read_back(&stored);
                }
                Err(error) => {
                    tracing::error!(?found, error, file = %self.file.display(), "what is held of components is not on disk");
                }
            }
        }
        self.looked(found);
    }

    fn looked(&self, found: Found) {
        let look = Look { found, at_ms: unix_ms(), good_until: Instant::now() + self.good_for };
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
    }

    fn read_back(&self, stored: &Stored) -> Found {
        let Ok(text) = fs::read(&self.file) else { return Found::Unread };
        let is_same = serde_json::from_slice::<Stored>(&text).is_ok_and(|read| read == *stored);
        if is_same { Found::Same } else { Found::Other }
    }

    fn save(&self, stored: &Stored) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(stored).map_err(|error| error.to_string())?;
        files::write_secret(&self.file, &text).map_err(|error| Chain(&error).to_string())
    }

    /// Takes one update: whole, written down, or not at all. It waits for the disk.
    pub(super) fn apply(&self, apply: &Apply) -> ApplyResult {
        let result = self.try_apply(apply);
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_taken, conditions) = (result.kind == OutcomeKind::Applied, result.conditions.clone());
        attempts.insert(apply.component, Attempt { is_taken, conditions, at_ms: unix_ms() });
        drop(attempts);
        result
    }

    fn try_apply(&self, apply: &Apply) -> ApplyResult {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (component, stamp, stored) = (apply.component, apply.stamp, self.stored().clone());
        let held = stored.applied.iter().find(|(held, _)| *held == component).map(|(_, stamp)| *stamp);
        let failed = |at, status, reason, message: &str| ApplyResult {
            kind: OutcomeKind::Failed,
            in_force: held,
            conditions: conditions(stamp, Some((at, status, reason)), message),
        };
        let unacceptable =
            |reason, message: &str| failed(ConditionType::SnapshotAccepted, Holds::False, reason, message);
        if let Content::Snapshot(bytes) = &apply.content
            && let Err(error) = check_snapshot(component, bytes, stamp)
        {
            return unacceptable(error.reason(), &error.to_string());
        }
        if stamp.digest != component.empty_digest() {
            return unacceptable(Reason::Malformed, "this agent knows only the empty component");
        }
        let mut next = stored.clone();
        if apply.authority.epoch > next.epoch {
            next.epoch = apply.authority.epoch;
            next.earlier = next.applied.iter().map(|(held, _)| *held).collect();
        }
        next.earlier.retain(|earlier| *earlier != component);
        next.applied.retain(|(held, _)| *held != component);
        next.applied.push((component, stamp));
        next.applied.sort_unstable_by_key(|(held, _)| *held);
        let taken = || {
            self.looked(Found::Same);
            ApplyResult { kind: OutcomeKind::Applied, in_force: Some(stamp), conditions: conditions(stamp, None, "") }
        };
        // What is there already is not written again: a disk without room is no reason to refuse it.
        if next == stored && self.read_back(&next) == Found::Same {
            return taken();
        }
        fail_point("a component", "accepted, before it is on disk");
        if let Err(error) = self.save(&next) {
            return failed(ConditionType::Applied, Holds::False, Reason::NotDurable, &error);
        }
        match self.read_back(&next) {
            Found::Same => {
                *self.stored() = next;
                taken()
            }
            Found::Other => {
                let message = "the file does not have what was written";
                failed(ConditionType::Verified, Holds::False, Reason::ReadBackDiffers, message)
            }
            Found::Unread => {
                let message = "the file cannot be read";
                failed(ConditionType::Verified, Holds::Unknown, Reason::ReadBackFailed, message)
            }
        }
    }
}

/// The conditions of an attempt, all true or up to the step that was not.
fn conditions(stamp: Stamp, failed: Option<(ConditionType, Holds, Reason)>, message: &str) -> Vec<Condition> {
    let one = |kind: ConditionType| {
        let (status, reason, message) = match failed {
            Some((at, status, reason)) if kind == at => (status, reason, message),
            Some((at, ..)) if kind > at => (Holds::Unknown, Reason::NotReached, ""),
            Some(_) | None => (Holds::True, Reason::Done, ""),
        };
        Condition { kind, status, reason, message: message.to_owned(), observed_version: Some(stamp.version) }
    };
    ConditionType::OF_ATTEMPT.map(one).into()
}

#[cfg(test)]
mod tests {
    use holdfast_model::digest::Digest;
    use holdfast_model::numbers::{UpdateSeq, Version};
    use uuid::Uuid;

    use super::*;

    const GOOD_FOR: Duration = Duration::from_secs(90);

    #[test]
    fn the_empty_component_is_taken_kept_over_a_restart_and_anything_else_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(2) };
        let components = Components::load(folder.path(), authority, GOOD_FOR);
        let stamp = |digest| Stamp { version: Version::FIRST, digest };
        let update = |bytes: Vec<u8>, digest| Apply {
            update_seq: UpdateSeq::from_raw(1),
            authority: Authority { epoch: AuthorityEpoch::from_raw(3), ..authority },
            component: Component::Settings,
            stamp: stamp(digest),
            signature: [0; 64],
            content: Content::Snapshot(bytes),
        };
        let empty = Component::Settings.empty_digest();
        let taken = components.apply(&update(Component::Settings.empty_bytes(), empty));
        assert_eq!(taken.kind, OutcomeKind::Applied);
        for bytes in [b"wrong".to_vec(), b"other".to_vec()] {
            let digest = if bytes == b"other" { Digest::of(&bytes) } else { empty };
            let refused = components.apply(&update(bytes, digest));
            assert_eq!((refused.kind, refused.in_force), (OutcomeKind::Failed, Some(stamp(empty))));
        }
        let again = Components::load(folder.path(), authority, GOOD_FOR);
        assert_eq!(again.applied(), [(Component::Settings, stamp(empty))]);
        assert_eq!(again.authority().epoch.raw(), 3);
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_what_is_taken_then_begins_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
        fs::write(folder.path().join(FILE), "{\"authority\":").expect("written");
        assert_eq!(Components::load(folder.path(), authority, GOOD_FOR).applied(), []);
        let aside = folder.path().join(format!("{FILE}.unusable"));
        assert_eq!(fs::read_to_string(aside).expect("it is there"), "{\"authority\":");
        assert!(!folder.path().join(FILE).exists());
    }

    #[test]
    fn how_a_component_stands_is_inferred_before_its_first_attempt_and_observed_after_it_also_where_it_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
        let components = Components::load(folder.path(), authority, GOOD_FOR);
        let update = |bytes: Vec<u8>, version| Apply {
            update_seq: UpdateSeq::from_raw(1),
            authority,
            component: Component::Settings,
            stamp: Stamp {
                version: Version::from_raw(version).expect("not zero"),
                digest: Component::Settings.empty_digest(),
            },
            signature: [0; 64],
            content: Content::Snapshot(bytes),
        };
        let told = |components: &Components| {
            let ComponentReport { applied, conditions, .. } = components.report(Component::Settings);
            let one = |one: &StatedCondition| (one.condition.status, one.condition.reason, one.basis);
            (applied.map(|stamp| stamp.version.raw()), conditions.iter().map(one).collect::<Vec<_>>())
        };
        let unseen = (Holds::Unknown, Reason::NotReached, Basis::Observed);
        let seen = (Holds::True, Reason::Done, Basis::Observed);
        let kept = (Holds::True, Reason::Done, Basis::Inferred);
        assert_eq!(told(&components), (None, vec![unseen; 3]));
        components.apply(&update(Component::Settings.empty_bytes(), 1));
        assert_eq!(told(&components), (Some(1), vec![seen; 3]));
        components.apply(&update(b"wrong".to_vec(), 2));
        let (applied, conditions) = told(&components);
        assert_eq!((applied, conditions[0].0, &conditions[1..]), (Some(1), Holds::False, &[unseen; 2][..]));
        let again = Components::load(folder.path(), authority, GOOD_FOR);
        assert_eq!(told(&again), (Some(1), vec![kept, kept, unseen]));
        again.look();
        assert_eq!(told(&again), (Some(1), vec![kept, kept, seen]), "the file was read");
    }

    fn mk_update(component: Component, epoch: u64) -> Apply {
        Apply {
            update_seq: UpdateSeq::from_raw(1),
            authority: Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(epoch) },
            component,
            stamp: Stamp { version: Version::FIRST, digest: component.empty_digest() },
            signature: [0; 64],
            content: Content::Snapshot(component.empty_bytes()),
        }
    }

    #[test]
    fn what_is_held_already_and_there_is_not_written_again_and_what_the_disk_does_not_take_is_not_called_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("it is ours");
        let components = Components::load(&state, mk_update(Component::Settings, 1).authority, GOOD_FOR);
        for component in [Component::Workloads, Component::Settings] {
            assert_eq!(components.apply(&mk_update(component, 1)).kind, OutcomeKind::Applied);
        }
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(state.join(FILE)).expect("there"));
        let before = inode();
        for component in [Component::Settings, Component::Workloads] {
            assert_eq!(components.apply(&mk_update(component, 1)).kind, OutcomeKind::Applied);
        }
        assert_eq!(inode(), before, "a disk without room is no reason to refuse it");
        // A file where the folder was: nothing can be written or read.
        std::fs::remove_dir_all(&state).expect("it is ours");
        std::fs::write(&state, "no folder").expect("it is ours");
        for apply in
            [mk_update(Component::Credentials, 1), mk_update(Component::Settings, 2), mk_update(Component::Settings, 1)]
        {
            let failed = components.apply(&apply);
            assert_eq!(failed.kind, OutcomeKind::Failed);
            let told: Vec<_> = failed.conditions.iter().map(|one| (one.status, one.reason)).collect();
            let not_durable = (Holds::False, Reason::NotDurable);
            assert_eq!(told, [(Holds::True, Reason::Done), not_durable, (Holds::Unknown, Reason::NotReached)]);
        }
    }

    #[test]
    fn what_is_kept_is_read_back_again_and_again_written_where_it_is_gone_and_not_known_where_it_cannot_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(FILE);
        let load = |good_for| {
            let authority = mk_update(Component::Settings, 1).authority;
            let components = Components::load(folder.path(), authority, good_for);
            assert_eq!(components.apply(&mk_update(Component::Settings, 1)).kind, OutcomeKind::Applied);
            components
        };
        let components = load(GOOD_FOR);
        let verified = |components: &Components| {
            let report = components.report(Component::Settings);
            let one = report.conditions.last().expect("the last step");
            assert_eq!((one.condition.kind, one.basis), (ConditionType::Verified, Basis::Observed));
            (one.condition.status, one.condition.reason)
        };
        let (yes, unread) = ((Holds::True, Reason::Done), (Holds::Unknown, Reason::ReadBackFailed));
        assert_eq!(verified(&components), yes);
        let written = std::fs::read(&file).expect("there");
        for harm in
            [&|| std::fs::write(&file, "{}"), &|| std::fs::remove_file(&file)] as [&dyn Fn() -> std::io::Result<()>; 2]
        {
            harm().expect("it is ours");
            components.look();
            assert_eq!((verified(&components), std::fs::read(&file).expect("there")), (yes, written.clone()));
        }
        // What is no file can be neither read nor written.
        std::fs::remove_file(&file).expect("it is ours");
        std::fs::create_dir(&file).expect("it is ours");
        components.look();
        assert_eq!(verified(&components), unread);
        std::fs::remove_dir(&file).expect("it is ours");
        components.look();
        assert_eq!(verified(&components), yes);
        // A disk that does not answer: nothing was seen for too long.
        assert_eq!(verified(&load(Duration::ZERO)), unread);
    }

    #[test]
    fn what_was_taken_in_an_earlier_life_is_known_as_such_until_it_is_taken_in_the_later_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority =
            |epoch| Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(epoch) };
        let components = Components::load(folder.path(), authority(1), GOOD_FOR);
        let take = |component: Component, epoch| {
            let applied = components.apply(&Apply {
                update_seq: UpdateSeq::from_raw(1),
                authority: authority(epoch),
                component,
                stamp: Stamp { version: Version::FIRST, digest: component.empty_digest() },
                signature: [0; 64],
                content: Content::Snapshot(component.empty_bytes()),
            });
            assert_eq!(applied.kind, OutcomeKind::Applied);
            Components::load(folder.path(), authority(1), GOOD_FOR).earlier()
        };
        assert_eq!(take(Component::Settings, 1), []);
        assert_eq!(take(Component::Credentials, 1), []);
        assert_eq!(take(Component::Credentials, 2), [Component::Settings]);
        assert_eq!(take(Component::Settings, 2), []);
    }
}
