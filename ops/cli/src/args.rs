//! The command line, and what its help teaches.

pub(crate) mod past;
mod rollout;
mod tokens;

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use holdfast_api::brake::Acknowledgement;

pub(crate) use self::rollout::{Rollout, Stages};
pub(crate) use self::tokens::{ApiToken, EnrolToken};
use crate::help;
use crate::output::Format;
use crate::parse::acknowledgement;
use crate::span::duration;

/// Says what every host of a fleet is to enforce, and shows what it does.
#[derive(Debug, Parser)]
#[command(
    name = "holdfast",
    version,
    arg_required_else_help = true,
    before_help = help::ROOT,
    after_help = help::ROOT_END
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How the API is reached. Not on every page: the first one has them.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// Where the API is.
    #[arg(long, global = true, env = "HOLDFAST_API", value_name = "URL", hide = true)]
    pub(crate) api: Option<String>,
    /// The file with the CA's certificate.
    #[arg(long, global = true, env = "HOLDFAST_CA", value_name = "FILE", hide = true)]
    pub(crate) ca: Option<PathBuf>,
    /// The file with the API token (or the token itself in `HOLDFAST_TOKEN`).
    #[arg(long, global = true, env = "HOLDFAST_TOKEN_FILE", value_name = "FILE", hide = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// The name of the change that this command asks for: the same again under it is answered, not done [default: a new one].
    #[arg(long, global = true, value_name = "KEY", hide = true)]
    pub(crate) idempotency_key: Option<String>,
    /// Where each of them came from.
    #[arg(skip)]
    pub(crate) origins: Origins,
}

/// Where the settings came from, for people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origins {
    pub(crate) api: &'static str,
    pub(crate) ca: &'static str,
    pub(crate) token_file: &'static str,
}

impl Origins {
    fn of(matches: &clap::ArgMatches) -> Self {
        let origin = |id: &str, flag, variable| match matches.value_source(id) {
            Some(ValueSource::CommandLine) => flag,
            Some(ValueSource::EnvVariable) => variable,
            Some(_) | None => "not set",
        };
        Self {
            api: origin("api", "--api", "HOLDFAST_API"),
            ca: origin("ca", "--ca", "HOLDFAST_CA"),
            token_file: origin("token_file", "--token-file", "HOLDFAST_TOKEN_FILE"),
        }
    }
}

/// What every command has.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// How the answer is shown: table, wide, json, yaml or name.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t = Format::Table,
        value_name = "FORM",
        hide_possible_values = true
    )]
    pub(crate) output: Format,
}

/// Documents to be read.
#[derive(Clone, Debug, Args)]
pub(crate) struct Documents {
    /// A file, a folder (its .yaml, .yml and .json files), or `-` for stdin; may be given more than once.
    #[arg(short = 'f', long = "file", required = true, value_name = "FILE|DIR|-")]
    pub(crate) files: Vec<PathBuf>,
    /// Read folders within folders too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Take everything else in the namespaces of these documents out of force.
    #[arg(long)]
    pub(crate) prune: bool,
    /// Refuse if there is a later revision than this one.
    #[arg(long, value_name = "N", visible_alias = "if-revision")]
    pub(crate) expected_revision: Option<u64>,
}

/// How long is waited, and for what.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Waiting {
    /// How long to wait.
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "DURATION")]
    pub(crate) timeout: Duration,
    /// What to wait for.
    #[arg(long = "for", value_enum, default_value_t = Goal::Converged, value_name = "STATE")]
    pub(crate) goal: Goal,
}

impl Waiting {
    /// What is waited for after a change, if anything: for how long stands at either place.
    pub(crate) fn of(wait: Option<Option<Duration>>, waiting: Self) -> Option<Self> {
        wait.map(|timeout| Self { timeout: timeout.unwrap_or(waiting.timeout), ..waiting })
    }
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Goal {
    /// Applied on every host, though not all of it may be proven.
    Applied,
    /// Proven on every host.
    Converged,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put documents in force, all of them or none.
    #[command(before_help = help::APPLY, after_help = help::WAIT_ENDS)]
    Apply {
        #[command(flatten)]
        documents: Documents,
        /// Refuse unless this would do exactly what a plan with this digest says.
        #[arg(long, value_name = "DIGEST")]
        plan: Option<String>,
        /// That it is meant to take as much away as it does: the digest that the refusal or the plan named, and why.
        #[arg(long, value_parser = acknowledgement, value_name = "DIGEST[|WHY]")]
        acknowledge: Option<Acknowledgement>,
        #[command(flatten)]
        stages: Stages,
        /// Wait until every host that it is for has it: for this long, else for as long as --timeout says.
        #[arg(long, value_parser = duration, num_args = 0..=1, require_equals = true, value_name = "DURATION")]
        wait: Option<Option<Duration>>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Take objects out of force, all of them or none.
    #[command(before_help = help::DELETE, after_help = help::WAIT_ENDS)]
    Delete {
        /// `Kind/namespace/name`, or `Kind/name` for `default`.
        #[arg(required = true, value_name = "OBJECT")]
        objects: Vec<String>,
        /// Refuse if there is a later revision than this one.
        #[arg(long, value_name = "N", visible_alias = "expected-revision")]
        if_revision: Option<u64>,
        /// That it is meant to take as much away as it does: the digest that the refusal or the plan named, and why.
        #[arg(long, value_parser = acknowledgement, value_name = "DIGEST[|WHY]")]
        acknowledge: Option<Acknowledgement>,
        #[command(flatten)]
        stages: Stages,
        /// Wait until every host that it is for has it: for this long, else for as long as --timeout says.
        #[arg(long, value_parser = duration, num_args = 0..=1, require_equals = true, value_name = "DURATION")]
        wait: Option<Option<Duration>>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// How far hosts enforce.
    #[command(before_help = past::MODE)]
    Mode {
        #[command(subcommand)]
        command: past::ModeCommand,
    },
    /// What a host was to hold before, or who changed an object.
    #[command(before_help = past::HISTORY)]
    History(past::History),
    /// Put in force again what was in force at a revision.
    #[command(before_help = past::RESTORE, after_help = help::WAIT_ENDS)]
    Restore(past::Restore),
    /// List hosts, objects, operations, revisions or tokens, or show one.
    #[command(before_help = help::GET)]
    Get {
        /// `hosts`, `objects`, a kind such as `policies`, `operations`, `revisions`, `enrol-tokens`, `api-tokens`; or an object as `Kind/namespace/name`.
        #[arg(value_name = "WHAT")]
        what: String,
        /// The name of one: `namespace/name`, a name in `default`, or an id.
        name: Option<String>,
        /// Only this namespace.
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Everything that is known of one host, object or revision, for people.
    #[command(before_help = help::DESCRIBE)]
    Describe {
        /// `host`, `revision`, or an object as `Kind/namespace/name`.
        #[arg(value_name = "WHAT")]
        what: String,
        /// The name of the host, or the number of the revision.
        name: Option<String>,
    },
    /// What documents would change, host by host; writes nothing.
    #[command(before_help = help::PLAN, after_help = help::PLAN_ENDS)]
    Plan {
        #[command(flatten)]
        documents: Documents,
        #[command(flatten)]
        stages: Stages,
        /// Exit 2 if anything would change.
        #[arg(long)]
        detailed_exitcode: bool,
    },
    /// How far the fleet is with the last revision.
    #[command(before_help = help::STATUS)]
    Status {
        /// About which revision [default: the last one].
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        /// Go on and tell every change.
        #[arg(short, long)]
        watch: bool,
    },
    /// Wait until the fleet has a revision, or an operation has ended.
    #[command(before_help = help::WAIT, after_help = help::WAIT_CODES, args_conflicts_with_subcommands = true)]
    Wait {
        #[command(subcommand)]
        what: Option<WaitOn>,
        /// Which revision [default: the last one].
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Why something is as it is.
    #[command(before_help = help::EXPLAIN)]
    Explain {
        #[command(subcommand)]
        what: Explain,
    },
    /// What a host enforces against what is rendered for it.
    #[command(before_help = help::DIFF)]
    Diff {
        /// `namespace/name`, a name that one namespace alone has, or `ho_…`.
        host: String,
    },
    /// Ask something of one host's agent, now.
    #[command(before_help = help::HOST, after_help = help::HOST_ENDS)]
    Host {
        #[command(subcommand)]
        command: Host,
    },
    /// Tokens with which hosts enrol.
    #[command(before_help = help::ENROL)]
    EnrolToken {
        #[command(subcommand)]
        command: EnrolToken,
    },
    /// Tokens with which operators call the API.
    #[command(before_help = help::TOKEN)]
    ApiToken {
        #[command(subcommand)]
        command: ApiToken,
    },
    /// Accepted changes: what became of them, and on which hosts.
    #[command(before_help = help::OPERATION, after_help = help::OPERATION_ENDS, args_conflicts_with_subcommands = true)]
    Operation {
        #[command(subcommand)]
        command: Option<Operation>,
        /// `op_…`, to show it, as `operation get` does.
        id: Option<String>,
        /// Wait for its end.
        #[arg(long, requires = "id")]
        wait: bool,
        /// How long to wait.
        #[arg(long, value_parser = duration, default_value = "60s", value_name = "DURATION")]
        timeout: Duration,
    },
    /// Changes that go through the fleet in stages: how far they are, and holding, ending or taking back one.
    #[command(before_help = help::ROLLOUT)]
    Rollout {
        #[command(subcommand)]
        command: Rollout,
    },
    /// Which life of the database this is, and what hosts hold that it never rendered: after a restore or a promotion.
    #[command(before_help = help::AUTHORITY)]
    Authority {
        #[command(subcommand)]
        command: Authority,
    },
    /// Prove that the database says what its events say.
    #[command(before_help = help::REBUILD)]
    Rebuild {
        /// Only compare, write nothing; required.
        #[arg(long, required = true)]
        check: bool,
    },
    /// The audit log: what happened and who caused it, and the proof that nothing was changed.
    #[command(before_help = help::AUDIT)]
    Audit {
        #[command(subcommand)]
        command: Audit,
    },
    /// What is wrong here, and what to do: settings, the way to the API, the plane, the fleet.
    #[command(before_help = help::DOCTOR, after_help = help::DOCTOR_ENDS)]
    Doctor,
    /// Run `holdfast-lab` with these arguments: hosts and real packets on this machine.
    #[command(disable_help_flag = true, before_help = help::LAB)]
    Lab {
        /// What it is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Print the completions of a shell.
    #[command(before_help = help::COMPLETION)]
    Completion {
        /// Which shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for every command.
    #[command(before_help = help::MAN)]
    Man {
        /// The folder to write them to.
        #[arg(long, value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

/// What else is waited for.
#[derive(Debug, Subcommand)]
pub(crate) enum WaitOn {
    /// Wait until an operation has ended.
    #[command(before_help = help::WAIT_OPERATION, after_help = help::WAIT_ENDS)]
    Operation {
        /// `op_…`
        id: String,
        #[command(flatten)]
        waiting: Waiting,
    },
}

/// Operations.
#[derive(Debug, Subcommand)]
pub(crate) enum Operation {
    /// List operations, newest first.
    #[command(before_help = help::OPERATION_LIST)]
    List,
    /// Show one: how far it is, and on how many hosts.
    #[command(before_help = help::OPERATION_GET)]
    Get {
        /// `op_…`
        id: String,
    },
    /// List the hosts that one is for, and what became of it on each.
    #[command(before_help = help::OPERATION_HOSTS)]
    Hosts {
        /// `op_…`
        id: String,
        /// Only those with this outcome: applied, inactive, failed, superseded, cancelled or pending.
        #[arg(long, value_name = "OUTCOME")]
        outcome: Option<String>,
    },
    /// End the waiting for one; no host is changed by it, and what it put in force stays in force.
    #[command(before_help = help::OPERATION_CANCEL)]
    Cancel {
        /// `op_…`
        id: String,
    },
}

/// What can be explained.
#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// Why a host is not converged: the first fact that a proof lacks, and what would satisfy it.
    #[command(before_help = help::EXPLAIN_HOST)]
    Host {
        /// `namespace/name`, a name that one namespace alone has, or `ho_…`.
        host: String,
    },
    /// Whether a connection may be opened, and which policies say so at each end.
    #[command(before_help = help::FLOW)]
    Flow {
        /// Who opens: a host, an endpoint or an address.
        from: String,
        /// Toward whom, likewise.
        to: String,
        /// `443/tcp`, `53/udp`, `7/sctp`, `icmp`, `icmp/TYPE[/CODE]` or `protocol/47`.
        service: String,
        /// At which revision, or at which time in RFC 3339 [default: now]; a revision's time is when its change was begun, not yet in force.
        #[arg(long, value_name = "TIME|REVISION")]
        at: Option<String>,
        /// Exit 9 if it is not allowed between all addresses.
        #[arg(long)]
        exit_code: bool,
    },
}

/// What is asked of a host's agent.
#[derive(Debug, Subcommand)]
pub(crate) enum Host {
    /// Send a host its whole state once more.
    #[command(before_help = help::HOST_RESEND, after_help = help::HOST_ENDS)]
    ResendSnapshot(Directed),
    /// Have a host's agent drop its session and dial once.
    #[command(before_help = help::HOST_RECONNECT, after_help = help::HOST_ENDS)]
    Reconnect(Directed),
    /// Have a host's agent end its sessions until it is enrolled anew.
    #[command(before_help = help::HOST_RE_ENROL, after_help = help::HOST_ENDS)]
    ReEnrol(Directed),
    /// Take a host out of the fleet.
    #[command(before_help = help::HOST_DECOMMISSION, after_help = help::HOST_DECOMMISSION_ENDS)]
    Decommission {
        /// `namespace/name`, a name that one namespace alone has, or `ho_…`.
        host: String,
        /// Why, for the audit log.
        #[arg(long, value_name = "TEXT", default_value = "")]
        because: String,
        /// That it is meant to take as much away from its peers as it does: the digest that the refusal named, and why.
        #[arg(long, value_parser = acknowledgement, value_name = "DIGEST[|WHY]")]
        acknowledge: Option<Acknowledgement>,
    },
}

/// Of whom, and whether its effect is waited for.
#[derive(Debug, Args)]
pub(crate) struct Directed {
    /// `namespace/name`, a name that one namespace alone has, or `ho_…`.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// Look until it shows that the host was reached.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to look.
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "DURATION", requires = "wait")]
    pub(crate) timeout: Duration,
}

/// The authority.
#[derive(Debug, Subcommand)]
pub(crate) enum Authority {
    /// Show which life it is, since when, and which hosts are ahead of it or would go back.
    #[command(before_help = help::AUTHORITY_SHOW)]
    Show,
    /// Say that the database was restored or promoted: its next life begins, and no host goes back before that is confirmed.
    #[command(before_help = help::AUTHORITY_BUMP)]
    Bump {
        /// Why; it stands in the audit log.
        #[arg(long, value_name = "TEXT")]
        because: String,
        /// An epoch that hosts may know though this database and its audit log do not: the new one is above it.
        #[arg(long, value_name = "EPOCH")]
        above: Option<u64>,
    },
    /// Let those hosts go back that wait for it.
    #[command(before_help = help::AUTHORITY_CONFIRM)]
    Confirm {
        /// How many they are: refused if it is another number.
        #[arg(long, value_name = "N")]
        expect: u64,
    },
}

/// The audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Show what happened and who caused it, the last 20 events unless more is asked for.
    #[command(before_help = help::TAIL)]
    Tail {
        /// The last N entries of what is asked for [default: 20; all with --since or --from].
        #[arg(short = 'n', long = "lines", value_name = "N")]
        lines: Option<u64>,
        /// Only events of this time and later: `1h` ago, or a time in RFC 3339.
        #[arg(long, value_name = "DURATION|TIME")]
        since: Option<String>,
        /// From this entry on.
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        /// Wait for more, until Ctrl-C.
        #[arg(long, short = 'f')]
        follow: bool,
        /// How long the log may be away while it is followed.
        #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
        retry_for: Duration,
    },
    /// Prove that no entry was changed, taken out or moved.
    #[command(before_help = help::VERIFY)]
    Verify {
        /// A file with one checkpoint or several; may be given more than once.
        #[arg(long, value_name = "FILE")]
        against: Vec<PathBuf>,
        /// The audit service's public key, or the file that holds it.
        #[arg(long, env = "HOLDFAST_AUDIT_KEY", value_name = "KEY|FILE")]
        key: Option<String>,
        /// A copy of the log (`-` for stdin) instead of the audit service's own.
        #[arg(long, value_name = "FILE|-")]
        log: Option<PathBuf>,
    },
    /// Print a signed statement of how far the log is now.
    #[command(before_help = help::CHECKPOINT)]
    Checkpoint,
}

/// The whole command line, as it is parsed, completed and printed.
pub(crate) fn command() -> clap::Command {
    help::taught(Cli::command())
}

/// Reads the command line.
///
/// # Errors
/// What is wrong with it, or the help that was asked for, to be printed.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches()?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.connection.origins = Origins::of(&matches);
    Ok(cli)
}

/// The stable name of the rule that a command line breaks.
pub(crate) fn usage_rule(kind: ErrorKind) -> &'static str {
    const RULES: [(ErrorKind, &str); 12] = [
        (ErrorKind::ArgumentConflict, "argument-conflict"),
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, "command-missing"),
        (ErrorKind::InvalidSubcommand, "command-unknown"),
        (ErrorKind::InvalidUtf8, "argument-not-text"),
        (ErrorKind::InvalidValue, "argument-value"),
        (ErrorKind::MissingRequiredArgument, "argument-missing"),
        (ErrorKind::MissingSubcommand, "command-missing"),
        (ErrorKind::NoEquals, "argument-value"),
        (ErrorKind::TooFewValues, "argument-count"),
        (ErrorKind::TooManyValues, "argument-count"),
        (ErrorKind::UnknownArgument, "argument-unknown"),
        (ErrorKind::ValueValidation, "argument-form"),
    ];
    RULES.iter().find(|(known, _)| *known == kind).map_or("usage", |(_, rule)| rule)
}
