//! A fleet whose modes are set by a program: the way to hosts that a control plane renders for.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use holdfast_model::policy::Mode;

use super::{Fleet, FleetError, observe_drops};
use crate::lab::Lab;
use crate::record::Host;

/// Hosts of a lab, and the program that sets their modes.
pub struct Commanded<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// Gets the mode as its one argument, and the lab's folder as `HOLDFAST_LAB`.
    pub program: PathBuf,
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

impl Commanded<'_> {
    fn command(&self, mode: Mode) -> Result<(), CommandError> {
        let mut command = Command::new(&self.program);
        command.arg(mode.to_string()).env("HOLDFAST_LAB", self.lab.folder()).stdin(Stdio::null());
        // Stdout is for the report.
        command.stdout(io::stderr());
        let ran = command.status();
        let status = ran.map_err(|source| CommandError::Run { program: self.program.clone(), source })?;
        if status.success() {
            return Ok(());
        }
        Err(CommandError::Failed { program: self.program.clone(), mode, status })
    }
}

impl Fleet for Commanded<'_> {
    fn ensure_mode(&mut self, mode: Mode) -> Result<(), FleetError> {
        self.command(mode).map_err(|error| FleetError(error.into()))
    }

    fn observe_drops(&mut self) -> Result<BTreeMap<String, u64>, FleetError> {
        drops_of_hosts(self.lab.record().hosts.iter())
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
