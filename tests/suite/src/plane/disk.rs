//! A disk of a host's agent that is small enough to be filled.
//!
//! - Its folder becomes a file system of its own in memory, with what was in it; when the value goes, it is a plain folder again with what is there then.
//! - What fills it is one file of ours: the agent meets `ENOSPC` as on any full disk, for data as for names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Plane;
use crate::ballast;

/// Room for a policy and its history of some edits, and little else.
const SIZE: &str = "size=4m,mode=0700";

/// A small disk under the state of one agent, until the value goes.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
    beside: PathBuf,
}

impl Plane {
    /// Puts a small disk under the state of a host's agent, which must not run.
    ///
    /// # Panics
    /// When the host is none of the plane's, or it cannot be mounted.
    #[must_use]
    pub fn small_disk(&self, host: &str) -> SmallDisk {
        let record = self.record();
        let folder = record.host(host).unwrap_or_else(|| panic!("there is no host {host}")).state.clone();
        let disk = SmallDisk { beside: folder.with_extension("beside"), folder };
        run("cp", &["-a", text(&disk.folder), text(&disk.beside)]);
        run("mount", &["-t", "tmpfs", "-o", SIZE, "holdfast-test", text(&disk.folder)]);
        run("cp", &["-a", &format!("{}/.", text(&disk.beside)), text(&disk.folder)]);
        disk
    }
}

impl SmallDisk {
    /// Fills it to the last byte.
    ///
    /// # Panics
    /// When something else than the end of the room ends it.
    pub fn fill(&self) {
        ballast::fill(&self.folder);
    }

    /// Gives the room back.
    ///
    /// # Panics
    /// When it was not filled.
    pub fn free(&self) {
        ballast::free(&self.folder);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever still has a file open keeps the old one; a plane that goes away next needs nothing of it.
        let kept = Command::new("cp").args(["-a", &format!("{}/.", text(&self.folder)), text(&self.beside)]).status();
        let freed = Command::new("umount").args(["--lazy", text(&self.folder)]).status();
        let back = Command::new("cp").args(["-a", &format!("{}/.", text(&self.beside)), text(&self.folder)]).status();
        let is_done = [kept, freed, back].into_iter().all(|status| status.is_ok_and(|status| status.success()));
        drop(fs::remove_dir_all(&self.beside));
        assert!(is_done || std::thread::panicking(), "the small disk of {} is not gone", self.folder.display());
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
