//! Processes of the lab: telling them apart from later ones of the same id, and ending them.
//!
//! - A process is ended only if it still is the one that was recorded.
//! - First it is asked to end, then it is made to; both have a deadline.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::record::Process;

/// How long a process has to end after it was asked to.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the kernel has to end a process that must.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the end of processes that are no children is looked for; the kernel tells only parents.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// The place of the start time among the fields of `/proc/PID/stat` behind the name in brackets.
const STARTED_FIELD: usize = 19;

/// Why processes live on.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A signal was not delivered.
    #[error("cannot signal the process {pid}")]
    Signal {
        /// Its id.
        pid: i32,
        /// Why.
        #[source]
        source: nix::Error,
    },
    /// It does not end.
    #[error("the process {pid} lives on after it was killed")]
    Alive {
        /// Its id.
        pid: i32,
    },
}

/// The live process of this id, if there is one. A process that has ended and waits for its parent is none.
#[must_use]
pub fn find_process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.clone().next()?;
    let started_ticks = fields.nth(STARTED_FIELD)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(Process { pid, started_ticks })
}

/// Ends processes; those that ended before are no fault.
///
/// # Errors
/// See [`StopError`]; the others are ended all the same.
pub fn stop_processes(processes: &[Process]) -> Result<(), StopError> {
    let asked = signal_all(processes, Signal::SIGTERM);
    if await_end(processes, ASK_TIMEOUT).is_none() {
        return Ok(());
    }
    let killed = signal_all(processes, Signal::SIGKILL);
    match await_end(processes, KILL_TIMEOUT) {
        None => Ok(()),
        Some(alive) => asked.and(killed).and(Err(StopError::Alive { pid: alive.pid })),
    }
}

fn signal_all(processes: &[Process], signal: Signal) -> Result<(), StopError> {
    let mut outcome = Ok(());
    for process in processes.iter().filter(|process| find_process(process.pid) == Some(**process)) {
        match kill(Pid::from_raw(process.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(source) => outcome = Err(StopError::Signal { pid: process.pid, source }),
        }
    }
    outcome
}

/// Waits until all have ended, or gives one that has not.
fn await_end(processes: &[Process], timeout: Duration) -> Option<Process> {
    let deadline = Instant::now() + timeout;
    loop {
        let alive = processes.iter().find(|process| find_process(process.pid) == Some(**process))?;
        if Instant::now() >= deadline {
            return Some(*alive);
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_recorded_process_is_ended_and_another_of_its_id_is_not_touched() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = find_process(child.id().cast_signed()).unwrap();
        let other = Process { started_ticks: process.started_ticks + 1, ..process };
        stop_processes(&[other]).unwrap();
        assert_eq!(find_process(process.pid), Some(process));
        stop_processes(&[process]).unwrap();
        assert_eq!(find_process(process.pid), None);
        child.wait().unwrap();
    }
}
