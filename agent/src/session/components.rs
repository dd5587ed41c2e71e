//! Settings, credentials and workloads as far as they exist: explicit, versioned, empty.
//!
//! - Their versions are kept on disk, so that nothing goes back over a restart either.
//! - This build has no drivers; content other than the empty one is refused, not ignored.
//! - One update is written at a time, in the order in which they were taken, also by a session that ended meanwhile; a disk that takes its time holds
//!   up nobody who asks what is held.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_identity::files;
use holdfast_model::condition::{Basis, Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::AuthorityId;
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_model::report::{ComponentReport, StatedCondition};
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_runtime::fail_point;
use holdfast_session::agent::{Apply, ApplyResult, Content, check_snapshot};
use serde::{Deserialize, Serialize};

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
type Attempt = (Vec<Condition>, u64);

/// What is held of the components beside `policy`; its copies hold the same.
#[derive(Clone)]
pub(super) struct Components {
    file: Arc<Path>,
    stored: Arc<Mutex<Stored>>,
    /// Held by who writes.
    writing: Arc<Mutex<()>>,
    /// What the last attempt of each came to since the agent started, and when.
    attempts: Arc<Mutex<BTreeMap<Component, Attempt>>>,
}

impl Components {
    /// What the disk says; nothing if it says nothing of this authority.
    pub(super) fn load(state_folder: &Path, authority: Authority) -> Self {
        let file: PathBuf = state_folder.join(FILE);
        let fresh =
            Stored { authority: authority.id, epoch: authority.epoch, applied: Vec::new(), earlier: Vec::new() };
        let stored = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Stored>(&text).ok());
        let stored = stored.filter(|stored| stored.authority == authority.id).unwrap_or(fresh);
        Self {
            file: file.into(),
            stored: Arc::new(Mutex::new(stored)),
            writing: Arc::default(),
            attempts: Arc::default(),
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

    /// How one of them stands: by its last attempt, and before one by what the disk vouches for.
    pub(super) fn report(&self, component: Component) -> ComponentReport {
        let applied = self.applied().into_iter().find(|(held, _)| *held == component).map(|(_, stamp)| stamp);
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((conditions, at_ms)) = attempts.get(&component) {
            let stated = |condition: &Condition| StatedCondition {
                condition: condition.clone(),
                basis: Basis::Observed,
                observed_at_ms: *at_ms,
            };
            return ComponentReport { component, applied, conditions: conditions.iter().map(stated).collect() };
        }
        let mut report = ComponentReport::unreached(component, applied, unix_ms());
        let is_kept = |one: &&mut StatedCondition| applied.is_some() && !one.condition.kind.can_decay();
        for one in report.conditions.iter_mut().filter(is_kept) {
            (one.condition.status, one.condition.reason, one.basis) = (Holds::True, Reason::Done, Basis::Inferred);
        }
        report
    }

    /// Takes one update: whole, written down, or not at all. It waits for the disk.
    pub(super) fn apply(&self, apply: &Apply) -> ApplyResult {
        let result = self.try_apply(apply);
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.insert(apply.component, (result.conditions.clone(), unix_ms()));
        drop(attempts);
        result
    }

    fn try_apply(&self, apply: &Apply) -> ApplyResult {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (component, stamp, stored) = (apply.component, apply.stamp, self.stored().clone());
        let held = stored.applied.iter().find(|(held, _)| *held == component).map(|(_, stamp)| *stamp);
        let failed = |reason, message: &str| ApplyResult {
            kind: OutcomeKind::Failed,
            in_force: held,
            conditions: conditions(stamp, Some(reason), message),
        };
        if let Content::Snapshot(bytes) = &apply.content
            && let Err(error) = check_snapshot(component, bytes, stamp)
        {
            return failed(error.reason(), &error.to_string());
        }
        if stamp.digest != component.empty_digest() {
            return failed(Reason::Malformed, "this agent knows only the empty component");
        }
        let mut next = stored.clone();
        if apply.authority.epoch > next.epoch {
            next.epoch = apply.authority.epoch;
            next.earlier = next.applied.iter().map(|(held, _)| *held).collect();
        }
        next.earlier.retain(|earlier| *earlier != component);
        next.applied.retain(|(held, _)| *held != component);
        next.applied.push((component, stamp));
        // What is there already is not written again: a disk without room is no reason to refuse it.
        next.applied.sort_unstable_by_key(|(held, _)| *held);
        if next == stored {
            return ApplyResult {
                kind: OutcomeKind::Applied,
                in_force: Some(stamp),
                conditions: conditions(stamp, None, ""),
            };
        }
        fail_point("a component", "accepted, before it is on disk");
        let text = serde_json::to_vec_pretty(&next).map_err(|error| error.to_string());
        let saved = text.and_then(|text| files::write_secret(&self.file, &text).map_err(|error| error.to_string()));
        if let Err(error) = saved {
            return failed(Reason::NotDurable, &error);
        }
        *self.stored() = next;
        ApplyResult { kind: OutcomeKind::Applied, in_force: Some(stamp), conditions: conditions(stamp, None, "") }
    }
}

fn conditions(stamp: Stamp, failed: Option<Reason>, message: &str) -> Vec<Condition> {
    ConditionType::OF_ATTEMPT
        .into_iter()
        .map(|kind| {
            let (status, reason, message) = match failed {
                None => (Holds::True, Reason::Done, ""),
                Some(reason) if kind == ConditionType::SnapshotAccepted => (Holds::False, reason, message),
                Some(_) => (Holds::Unknown, Reason::NotReached, ""),
            };
            Condition { kind, status, reason, message: message.to_owned(), observed_version: Some(stamp.version) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use holdfast_model::digest::Digest;
    use holdfast_model::numbers::{UpdateSeq, Version};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_empty_component_is_taken_kept_over_a_restart_and_anything_else_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(2) };
        let components = Components::load(folder.path(), authority);
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
        let again = Components::load(folder.path(), authority);
        assert_eq!(again.applied(), [(Component::Settings, stamp(empty))]);
        assert_eq!(again.authority().epoch.raw(), 3);
    }

    #[test]
    fn how_a_component_stands_is_inferred_before_its_first_attempt_and_observed_after_it_also_where_it_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
        let components = Components::load(folder.path(), authority);
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
        assert_eq!(told(&Components::load(folder.path(), authority)), (Some(1), vec![kept, kept, unseen]));
    }

    #[test]
    fn what_is_held_already_is_taken_by_a_disk_that_takes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("it is ours");
        let authority = Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(1) };
        let update = |component: Component, epoch| Apply {
            update_seq: UpdateSeq::from_raw(1),
            authority: Authority { epoch: AuthorityEpoch::from_raw(epoch), ..authority },
            component,
            stamp: Stamp { version: Version::FIRST, digest: component.empty_digest() },
            signature: [0; 64],
            content: Content::Snapshot(component.empty_bytes()),
        };
        let components = Components::load(&state, authority);
        for component in [Component::Workloads, Component::Settings] {
            assert_eq!(components.apply(&update(component, 1)).kind, OutcomeKind::Applied);
        }
        // A file where the folder was: nothing can be written.
        std::fs::remove_dir_all(&state).expect("it is ours");
        std::fs::write(&state, "no folder").expect("it is ours");
        for component in [Component::Settings, Component::Workloads] {
            assert_eq!(components.apply(&update(component, 1)).kind, OutcomeKind::Applied);
        }
        for apply in [update(Component::Credentials, 1), update(Component::Settings, 2)] {
            let failed = components.apply(&apply);
            assert_eq!(failed.kind, OutcomeKind::Failed);
            assert!(failed.conditions.iter().any(|one| one.reason == Reason::NotDurable), "{failed:?}");
        }
    }

    #[test]
    fn what_was_taken_in_an_earlier_life_is_known_as_such_until_it_is_taken_in_the_later_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority =
            |epoch| Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(epoch) };
        let components = Components::load(folder.path(), authority(1));
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
            Components::load(folder.path(), authority(1)).earlier()
        };
        assert_eq!(take(Component::Settings, 1), []);
        assert_eq!(take(Component::Credentials, 1), []);
        assert_eq!(take(Component::Credentials, 2), [Component::Settings]);
        assert_eq!(take(Component::Settings, 2), []);
    }
}
