//! `holdfast-lab publish`: ports of the control plane on this machine's loopback.

use std::path::Path;
use std::process::ExitCode;

use crate::lab::{self, Lab};
use crate::publish::{self, Port, publish};

/// Flags of `publish`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// `LISTEN=TO`: a loopback address and port here, and the address and port in the control plane's namespace.
    #[arg(required = true, value_name = "LISTEN=TO")]
    ports: Vec<Port>,
}

/// Why nothing is published.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab fails.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// The publisher fails.
    #[error(transparent)]
    Publish(#[from] publish::Error),
}

/// Publishes until the process is ended or the lab goes down.
///
/// # Errors
/// See [`Error`].
pub fn run(folder: &Path, args: &Args) -> Result<ExitCode, Error> {
    let lab = Lab::open(folder)?;
    publish(&lab.record().control, &args.ports)?;
    Ok(ExitCode::SUCCESS)
}
