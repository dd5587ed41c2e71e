//! The commands about modes, and about what was before.

use clap::{Args, Subcommand, ValueEnum};
use holdfast_api::brake::Acknowledgement;
use holdfast_model::policy::Mode;

use super::{Stages, Waiting};
use crate::parse::acknowledgement;
use crate::span::duration;
use std::time::Duration;

pub(crate) const MODE: &str = "\
Examples:
  holdfast mode set app=web simulation --expect 3   # counts what would drop
  holdfast mode set app=web enforced --expect 3 --wait
";

pub(crate) const MODE_SET: &str = "\
SELECTOR names labels as app=web, app!=web, app (has it) or !app, several with commas; `all` is every host.
Which hosts match is found when the change is stored; if they are not as many as expected, nothing is changed.

Examples:
  holdfast mode set app=web,env=prod simulation --expect 12
  holdfast mode set all enforced -n booking --expect 12 --wait
  holdfast mode set all enforced --expect 12 --rollout --stage 10%
";

pub(crate) const HISTORY: &str = "\
Examples:
  holdfast history web-1                # what it is to hold, newest first
  holdfast history host booking/web-1
  holdfast history Policy/booking/web   # who changed it, and when
";

pub(crate) const RESTORE: &str = "\
What was in force at that revision is put in force again, by a new change; what came in between stays in the history.

Examples:
  holdfast restore 12 --plan-only   # what that would change
  holdfast restore 12 --wait
  holdfast restore 12 --object Policy/booking/web
  holdfast restore 12 --rollout --stage 10% --stage 100% --wait=1h
";

/// A change after which may be waited, and which the brake may hold.
#[derive(Debug, Args)]
pub(crate) struct Careful {
    /// Refuse if there is a later revision than this one.
    #[arg(long, value_name = "N")]
    pub(crate) if_revision: Option<u64>,
    /// That it is meant to take as much away as it does: the digest that the refusal or the plan named, and why.
    #[arg(long, value_parser = acknowledgement, value_name = "DIGEST[|WHY]")]
    pub(crate) acknowledge: Option<Acknowledgement>,
    #[command(flatten)]
    pub(crate) stages: Stages,
    /// Wait until every host that it is for has it: for this long, else for as long as --timeout says.
    #[arg(long, value_parser = duration, num_args = 0..=1, require_equals = true, value_name = "DURATION")]
    pub(crate) wait: Option<Option<Duration>>,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// A mode, as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ModeWord {
    /// Nothing is dropped.
    Visibility,
    /// What would be dropped is counted.
    Simulation,
    /// What the rules do not allow is dropped.
    Enforced,
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::Visibility => Self::Visibility,
            ModeWord::Simulation => Self::Simulation,
            ModeWord::Enforced => Self::Enforced,
        }
    }
}

/// Modes.
#[derive(Debug, Subcommand)]
pub(crate) enum ModeCommand {
    /// Put all hosts that a selector matches into a mode, or none of them.
    #[command(before_help = MODE_SET, after_help = crate::help::WAIT_ENDS)]
    Set {
        /// Labels, or `all`.
        selector: String,
        /// Into which.
        #[arg(value_enum)]
        mode: ModeWord,
        /// How many hosts that are.
        #[arg(long, value_name = "N")]
        expect: u64,
        /// Only hosts of this namespace.
        #[arg(short, long)]
        namespace: Option<String>,
        #[command(flatten)]
        careful: Careful,
    },
}

/// Which thing's.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// A host, or an object as `Kind/namespace/name`.
    #[arg(value_name = "WHAT")]
    pub(crate) what: String,
    /// The name of the host, after the word `host`.
    pub(crate) name: Option<String>,
    /// How many, the newest.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) limit: u32,
}

/// Back to which revision, and what of it.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The revision.
    pub(crate) revision: u64,
    /// Only this object, as `Kind/namespace/name`; may be given more than once.
    #[arg(long = "object", value_name = "OBJECT")]
    pub(crate) objects: Vec<String>,
    /// Show what it would change, and write nothing.
    #[arg(long)]
    pub(crate) plan_only: bool,
    #[command(flatten)]
    pub(crate) careful: Careful,
}
