//! Named network namespaces: entering them, and telling what lives in them.
//!
//! - A namespace is entered by a thread that ends with the work in it, so no caller is left in the wrong one.
//! - Only exact names are opened; nothing here lists or matches namespaces.
//!
//! Names are those of `ip netns`, so `ip netns exec` works on every namespace of the lab. A name that is a whole path is that of a namespace's file, as
//! `/proc/PID/ns/net`: so the namespaces of others (containers) are entered too.

mod ip;
mod process;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

pub use ip::{BatchError, run_batch};
use nix::sched::{CloneFlags, setns};
pub use process::{StopError, find_process, stop_processes};

/// Where `ip netns` keeps the names.
const NAMES: &str = "/run/netns";

/// Why a namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no namespace of this name, or it may not be opened.
    #[error("cannot open the network namespace {name}")]
    Open {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel does not let this process in.
    #[error("cannot enter the network namespace {name}")]
    Enter {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: nix::Error,
    },
    /// The thread for it cannot be started.
    #[error("cannot start a thread for the network namespace {name}")]
    Thread {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A setting of the kernel cannot be written in it.
    #[error("cannot set {setting} in the network namespace {name}")]
    Setting {
        /// Its name.
        name: String,
        /// The file of the setting, below `/proc/sys`.
        setting: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The processes of the system cannot be listed.
    #[error("cannot list processes")]
    Processes(#[source] io::Error),
}

/// The file of a namespace.
#[must_use]
pub fn path_of(name: &str) -> PathBuf {
    // Joined to a whole path, a folder falls away.
    Path::new(NAMES).join(name)
}

fn open(name: &str) -> Result<File, Error> {
    File::open(path_of(name)).map_err(|source| Error::Open { name: name.to_owned(), source })
}

/// Moves the calling thread into a namespace, for good.
///
/// # Errors
/// [`Error::Open`] and [`Error::Enter`].
pub fn enter(name: &str) -> Result<(), Error> {
    setns(open(name)?, CloneFlags::CLONE_NEWNET).map_err(|source| Error::Enter { name: name.to_owned(), source })
}

/// Runs something in a namespace, on a thread of its own, and waits for it. What it starts or opens stays in that namespace.
///
/// # Errors
/// [`Error::Open`], [`Error::Enter`] and [`Error::Thread`].
///
/// # Panics
/// If the work panics.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let namespace = open(name)?;
    thread::scope(|scope| {
        let inside = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, || {
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|source| Error::Enter { name: name.to_owned(), source })
                .map(|()| work())
        });
        match inside.map_err(|source| Error::Thread { name: name.to_owned(), source })?.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Whether a namespace of this name is there and can be entered; what a crash or a reboot left of a name cannot.
///
/// # Errors
/// [`Error::Thread`].
pub fn is_live(name: &str) -> Result<bool, Error> {
    match within(name, || ()) {
        Ok(()) => Ok(true),
        Err(Error::Open { .. } | Error::Enter { .. }) => Ok(false),
        Err(error @ (Error::Thread { .. } | Error::Setting { .. } | Error::Processes(_))) => Err(error),
    }
}

/// Whether anything of this name is there, live or not.
#[must_use]
pub fn is_named(name: &str) -> bool {
    path_of(name).symlink_metadata().is_ok()
}

/// Writes settings below `/proc/sys` as the kernel shows them inside a namespace.
///
/// # Errors
/// [`Error::Setting`] for the first that fails, and those of [`within`].
pub fn apply_settings(name: &str, settings: &[(&str, &str)]) -> Result<(), Error> {
    within(name, || {
        settings.iter().try_for_each(|(setting, value)| {
            fs::write(Path::new("/proc/sys").join(setting), value).map_err(|source| Error::Setting {
                name: name.to_owned(),
                setting: (*setting).to_owned(),
                source,
            })
        })
    })?
}

/// The processes that live in any of these namespaces, without the calling one. Names without a live namespace have none.
///
/// # Errors
/// [`Error::Processes`].
pub fn processes_in<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<i32>, Error> {
    let inodes: HashSet<(u64, u64)> = names
        .into_iter()
        .filter_map(|name| fs::metadata(path_of(name)).ok())
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect();
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(Error::Processes)? {
        let entry = entry.map_err(Error::Processes)?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process that ended in the meantime has no namespace.
        let Ok(metadata) = fs::metadata(entry.path().join("ns/net")) else { continue };
        if inodes.contains(&(metadata.dev(), metadata.ino())) && u32::try_from(pid) != Ok(own) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_of_ip_netns_and_a_whole_path_is_itself() {
        assert_eq!(path_of("hf-1.web-1"), Path::new("/run/netns/hf-1.web-1"));
        assert_eq!(path_of("/proc/7/ns/net"), Path::new("/proc/7/ns/net"));
    }
}
