//! Batches of `ip` commands: one process for many changes.
//!
//! - A batch ends at its first failing line, which is named in the error.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// The most bytes of what `ip` said that an error carries.
const DETAIL_BYTES_MAX: usize = 512;

/// Why a batch was not carried out in full.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// `ip` cannot be run.
    #[error("cannot run `ip` (the Debian package iproute2 has it)")]
    Run(#[source] io::Error),
    /// `ip` refused a line.
    #[error("`ip` refused line {line} of a batch, `{command}`: {detail}")]
    Refused {
        /// The number of the line, from 1; 0 where `ip` did not say.
        line: usize,
        /// The line.
        command: String,
        /// What `ip` said.
        detail: String,
    },
}

/// Runs `ip` commands in a namespace, or where the caller is.
///
/// # Errors
/// See [`BatchError`].
pub fn run_batch(namespace: Option<&str>, commands: &[String]) -> Result<(), BatchError> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut ip = Command::new("ip");
    if let Some(namespace) = namespace {
        ip.args(["-n", namespace]);
    }
    let mut child = ip
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(BatchError::Run)?;
    let mut stdin = child.stdin.take().expect("the batch's input is a pipe");
    let text = commands.join("\n") + "\n";
    // `ip` closes its input at the first line that fails; what it says then is the error, not the broken pipe.
    let written = match stdin.write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    };
    drop(stdin);
    let output = child.wait_with_output().map_err(BatchError::Run)?;
    written.map_err(BatchError::Run)?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused(commands, &String::from_utf8_lossy(&output.stderr)))
}

/// Finds the line that `ip` names, as in `Command failed -:3`.
fn refused(commands: &[String], stderr: &str) -> BatchError {
    let line: usize = stderr
        .rsplit_once("Command failed -:")
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let command = line.checked_sub(1).and_then(|index| commands.get(index)).cloned().unwrap_or_default();
    let detail = stderr.trim().chars().take(DETAIL_BYTES_MAX).collect();
    BatchError::Refused { line, command, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refused_line_is_named() {
        let commands = ["link set lo up".to_owned(), "link set nothing up".to_owned()];
        let error = refused(&commands, "Cannot find device \"nothing\"\nCommand failed -:2\n");
        assert!(matches!(error, BatchError::Refused { line: 2, command, .. } if command == "link set nothing up"));
    }
}
