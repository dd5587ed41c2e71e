//! The arguments of changes that go through the fleet in stages.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::help;
use crate::span::duration;

/// Whether a change goes through the fleet in stages, and which.
#[derive(Clone, Debug, Args)]
pub(crate) struct Stages {
    /// Go through the fleet in stages: the next one opens when every host of those before is proven to have it.
    #[arg(long, requires = "stages")]
    pub(crate) rollout: bool,
    /// A stage, in order: labels, as canary=true, or a share of all hosts, those before included, as 10%; the hosts of none come last.
    #[arg(long = "stage", id = "stages", value_name = "LABELS|SHARE", requires = "rollout")]
    pub(crate) stages: Vec<String>,
    /// How many hosts may fail before it halts.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "rollout")]
    pub(crate) max_failed: u32,
    /// How many hosts may be unknown before it halts.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "rollout")]
    pub(crate) max_unknown: u32,
    /// How long a stage may take before it halts.
    #[arg(long, value_parser = duration, default_value = "30m", value_name = "DURATION", requires = "rollout")]
    pub(crate) stage_timeout: Duration,
}

/// Rollouts.
#[derive(Debug, Subcommand)]
pub(crate) enum Rollout {
    /// List rollouts, newest first.
    #[command(before_help = help::ROLLOUT_LIST)]
    List,
    /// Show one: each stage, and how its hosts are.
    #[command(before_help = help::ROLLOUT_GET)]
    Get {
        /// `ro_…`
        id: String,
    },
    /// Wait until one has ended, or halted.
    #[command(before_help = help::ROLLOUT_WATCH, after_help = help::ROLLOUT_ENDS)]
    Watch {
        /// `ro_…`
        id: String,
        /// How long to wait.
        #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
        timeout: Duration,
    },
    /// Open no further stage until it is resumed; hosts keep what they have.
    #[command(before_help = help::ROLLOUT_PAUSE)]
    Pause {
        /// `ro_…`
        id: String,
    },
    /// Let one that was paused, or halted by itself, go on.
    #[command(before_help = help::ROLLOUT_RESUME)]
    Resume {
        /// `ro_…`
        id: String,
    },
    /// Put back what it changed, and hold no host any more.
    #[command(before_help = help::ROLLOUT_ABORT)]
    Abort {
        /// `ro_…`
        id: String,
    },
}
