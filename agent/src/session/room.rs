//! A disk that did not take a state: when to look whether it does again.
//!
//! - A gateway sends nothing twice to a host that failed: what could not be kept is asked for by a new session, or by the next poll, once there is
//!   room for it.
//! - A disk that takes the look and not the state is looked at less and less often.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_identity::files;
use holdfast_session::time::Instant;
use tokio::task::JoinHandle;

/// The wait before the first look, and the longest one.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// What a look writes: more than a change of a policy takes.
const LOOK_BYTES: usize = 256 << 10;
const FILE: &str = "room.look";

/// What is known of the room on the disk.
#[derive(Debug)]
pub(super) struct Room {
    file: PathBuf,
    pause: Duration,
    look_at: Option<Instant>,
}

impl Room {
    pub(super) fn new(state_folder: &Path) -> Self {
        Self { file: state_folder.join(FILE), pause: PAUSE, look_at: None }
    }

    /// A session begins, or what was not kept is asked for in the one that is open: it is sent anew.
    pub(super) const fn handle_opened(&mut self) {
        if self.look_at.is_none() {
            // In the one before, everything was kept.
            self.pause = PAUSE;
        }
        self.look_at = None;
    }

    /// Something was not kept.
    pub(super) fn handle_unkept(&mut self, now: Instant) {
        if self.look_at.is_none() {
            self.look_at = Some(now.plus(self.pause));
        }
    }

    /// When the disk is to be looked at.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// Begins a look, when it is time.
    pub(super) fn look(&mut self, now: Instant) -> Option<JoinHandle<bool>> {
        self.look_at.filter(|until| now >= *until)?;
        let file = self.handle_timeout(now);
        Some(tokio::task::spawn_blocking(move || is_there(&file)))
    }

    /// The disk is about to be looked at by [`is_there`]; the next look is later.
    fn handle_timeout(&mut self, now: Instant) -> PathBuf {
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.look_at = Some(now.plus(self.pause));
        self.file.clone()
    }
}

/// Whether the disk takes what a look writes; nothing of it stays.
fn is_there(file: &Path) -> bool {
    let is_taken = files::write_secret(file, &[0x5a; LOOK_BYTES]).is_ok();
    // One that cannot be removed is written over by the next look.
    let _left = std::fs::remove_file(file);
    is_taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_disk_that_took_no_state_is_looked_at_less_and_less_often_until_it_takes_one() {
        let mut room = Room::new(Path::new("/nowhere"));
        room.handle_opened();
        assert_eq!(room.poll_timeout(), None);
        room.handle_unkept(at(0));
        room.handle_unkept(at(5));
        assert_eq!(room.poll_timeout(), Some(at(10)), "the first one counts");
        let mut looks = Vec::new();
        while let Some(next) = room.poll_timeout().filter(|next| *next < at(3_000)) {
            looks.push(next);
            let _file = room.handle_timeout(next);
        }
        assert_eq!(looks, [10, 30, 70, 150, 310, 630, 1_230, 1_830, 2_430].map(at));

        // The look was taken, and the state was not.
        room.handle_opened();
        assert_eq!(room.poll_timeout(), None);
        room.handle_unkept(at(3_000));
        assert_eq!(room.poll_timeout(), Some(at(3_600)));

        room.handle_opened();
        room.handle_opened();
        room.handle_unkept(at(4_000));
        assert_eq!(room.poll_timeout(), Some(at(4_010)), "it was well for a whole session");
    }

    #[test]
    fn a_look_finds_room_where_there_is_some_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(is_there(&folder.path().join(FILE)));
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "no folder").expect("it is ours");
        assert!(!is_there(&plain.join(FILE)));
    }
}
