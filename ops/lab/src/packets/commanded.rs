//! A fleet whose modes are set by a program: the way to hosts that a control plane renders for.
//!
//! - Hosts that were opened are put into force again, however the check ends: also by an error, by SIGINT and by SIGTERM.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio, exit};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use holdfast_model::policy::Mode;
use nix::sys::signal::{SigSet, Signal};

use super::{Fleet, FleetError, observe_drops};
use crate::command::output::{complain, say};
use crate::lab::Lab;
use crate::record::Host;

/// How a shell tells of a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Hosts of a lab, and the program that sets their modes.
pub struct Commanded<'a> {
    lab: &'a Lab,
    modes: Modes,
}

/// Sets the modes of all hosts, one command at a time.
#[derive(Clone)]
struct Modes {
    program: PathBuf,
    folder: PathBuf,
    /// Whether hosts may be open; held while it changes.
    opened: Arc<Mutex<bool>>,
}

/// Why the program did not set a mode.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It cannot be run.
    #[error("cannot run {}", .program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It failed; what it said is on stderr.
    #[error("`{} {mode}` ended with {status}", .program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// The mode.
        mode: Mode,
        /// How it ended.
        status: ExitStatus,
    },
}

impl<'a> Commanded<'a> {
    /// The program gets the mode as its one argument, and the lab's folder as `HOLDFAST_LAB`. From now on SIGINT and SIGTERM end this process only after
    /// the hosts are in force again: to be called before the process has other threads.
    ///
    /// # Errors
    /// The signals cannot be held back.
    pub fn new(lab: &'a Lab, program: PathBuf) -> io::Result<Self> {
        let modes = Modes { program, folder: lab.folder().to_owned(), opened: Arc::default() };
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block()?;
        let on_signal = modes.clone();
        // It ends with the process.
        thread::spawn(move || {
            if signals.wait().is_ok() {
                on_signal.put_back("interrupted");
                exit(INTERRUPTED);
            }
        });
        Ok(Self { lab, modes })
    }
}

impl Modes {
    fn set(&self, mode: Mode) -> Result<(), CommandError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // Half of it is open too.
        *opened = true;
        run(&self.program, &self.folder, mode)?;
        *opened = mode != Mode::Enforced;
        Ok(())
    }

    /// Puts hosts that may be open into force again, and says why.
    fn put_back(&self, why: &str) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if !*opened {
            return;
        }
        // Nothing is left to say when stderr itself is closed.
        let _told = say(&format!("{why}: putting the hosts into force again"));
        match run(&self.program, &self.folder, Mode::Enforced) {
            Ok(()) => *opened = false,
            Err(error) => complain(&error),
        }
    }
}

fn run(program: &Path, folder: &Path, mode: Mode) -> Result<(), CommandError> {
    let mut command = Command::new(program);
    // Ctrl-C is this process's to answer.
    command.arg(mode.to_string()).env("HOLDFAST_LAB", folder).stdin(Stdio::null()).process_group(0);
    // Stdout is for the report.
    command.stdout(io::stderr());
    let status = command.status().map_err(|source| CommandError::Run { program: program.to_owned(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(CommandError::Failed { program: program.to_owned(), mode, status })
}

impl Fleet for Commanded<'_> {
    fn ensure_mode(&mut self, mode: Mode) -> Result<(), FleetError> {
        self.modes.set(mode).map_err(|error| FleetError(error.into()))
    }

    fn observe_drops(&mut self) -> Result<BTreeMap<String, u64>, FleetError> {
        drops_of_hosts(self.lab.record().hosts.iter())
    }
}

impl Drop for Commanded<'_> {
    fn drop(&mut self) {
        self.modes.put_back("the check was given up");
    }
}

/// Reads the drops of hosts.
pub(super) fn drops_of_hosts<'a>(hosts: impl Iterator<Item = &'a Host>) -> Result<BTreeMap<String, u64>, FleetError> {
    let mut drops = BTreeMap::new();
    for host in hosts {
        let dropped = observe_drops(&host.namespace).map_err(|error| FleetError(error.into()))?;
        drops.insert(host.name.clone(), dropped);
    }
    Ok(drops)
}
