//! The command line, and what its help teaches.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::output::Format;
use crate::span::duration;

/// Says what every host of a fleet is to enforce, and shows what it does.
#[derive(Debug, Parser)]
#[command(
    name = "holdfast",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  holdfast apply -f policies/ --wait       put policies in force and wait until every host has proven it
  holdfast plan -f policies/               what that would change, host by host; writes nothing
  holdfast status                          how far the fleet is
  holdfast explain flow web-1 db-1 5432/tcp
  holdfast get hosts -o wide

Environment:
  HOLDFAST_API         where the API is, as https://holdfast.example:7080
  HOLDFAST_CA          the file with the CA's certificate
  HOLDFAST_TOKEN       the API token, or HOLDFAST_TOKEN_FILE the file that holds it
  HOLDFAST_AUDIT_KEY   the public key of the audit service, or the file that holds it
  NO_COLOR             no colours

Exit codes: 0 done, 1 failed, 2 differences, 3 not found, 4 conflict, 5 not allowed, 6 not applied by the deadline,
7 applied everywhere but not converged, 64 wrong usage."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How the API is reached.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// Where the API is.
    #[arg(long, global = true, env = "HOLDFAST_API", value_name = "URL", help_heading = "Connection")]
    pub(crate) api: Option<String>,
    /// The file with the CA's certificate.
    #[arg(long, global = true, env = "HOLDFAST_CA", value_name = "FILE", help_heading = "Connection")]
    pub(crate) ca: Option<PathBuf>,
    /// The file with the API token (or the token itself in `HOLDFAST_TOKEN`).
    #[arg(long, global = true, env = "HOLDFAST_TOKEN_FILE", value_name = "FILE", help_heading = "Connection")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What every command has.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// How the answer is shown.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORM")]
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
    #[arg(long, value_name = "N")]
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

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Goal {
    /// Applied on every host, proven or not.
    Applied,
    /// Proven on every host.
    Converged,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put documents in force, all of them or none.
    #[command(after_help = "Examples:
  holdfast apply -f policy.yaml
  holdfast apply -f policies/ --prune --wait --timeout 5m
  cat policy.yaml | holdfast apply -f -")]
    Apply {
        #[command(flatten)]
        documents: Documents,
        /// Refuse unless this would do exactly what a plan with this digest says.
        #[arg(long, value_name = "DIGEST")]
        plan: Option<String>,
        /// Wait until every host has it.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Take objects out of force, all of them or none.
    #[command(after_help = "Examples:
  holdfast delete Policy/default/web
  holdfast delete Endpoint/edge/printer Namespace/edge")]
    Delete {
        /// `Kind/namespace/name`, or `Kind/name` for `default`.
        #[arg(required = true, value_name = "OBJECT")]
        objects: Vec<String>,
        /// Wait until every host has it.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// List hosts, objects, operations or tokens, or show one.
    #[command(after_help = "Examples:
  holdfast get hosts
  holdfast get host edge/web-1 -o json
  holdfast get policies -n default -o yaml > policies.yaml
  holdfast get Policy/default/web -o yaml
  holdfast get objects")]
    Get {
        /// `hosts`, `objects`, a kind such as `policies`, `operations`, `enrol-tokens`, `api-tokens`; or an object as `Kind/namespace/name`.
        #[arg(value_name = "WHAT")]
        what: String,
        /// The name of one: `namespace/name`, a name in `default`, or an id.
        name: Option<String>,
        /// Only this namespace.
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Everything that is known of one host or object, for people.
    #[command(after_help = "Examples:
  holdfast describe host web-1
  holdfast describe Policy/default/web")]
    Describe {
        /// `host`, or an object as `Kind/namespace/name`.
        #[arg(value_name = "WHAT")]
        what: String,
        /// The name of the host.
        name: Option<String>,
    },
    /// What documents would change, host by host; writes nothing.
    #[command(after_help = "Examples:
  holdfast plan -f policies/
  holdfast plan -f policies/ --detailed-exitcode   exit 2 if anything would change")]
    Plan {
        #[command(flatten)]
        documents: Documents,
        /// Exit 2 if anything would change.
        #[arg(long)]
        detailed_exitcode: bool,
    },
    /// How far the fleet is with the last revision.
    Status {
        /// About which revision.
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        /// Go on and tell every change.
        #[arg(short, long)]
        watch: bool,
    },
    /// Wait until the fleet has a revision.
    #[command(
        after_help = "Exit codes: 0 reached, 1 a host did not take it, 6 not applied by the deadline, 7 applied but not converged."
    )]
    Wait {
        /// Which revision; the last one if absent.
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Why something is as it is.
    Explain {
        #[command(subcommand)]
        what: Explain,
    },
    /// What a host holds against what it is to hold.
    Diff {
        /// `ho_…`, `namespace/name`, or a name in `default`.
        host: String,
    },
    /// Tokens with which hosts enrol.
    EnrolToken {
        #[command(subcommand)]
        command: EnrolToken,
    },
    /// Tokens with which operators call the API.
    ApiToken {
        #[command(subcommand)]
        command: ApiToken,
    },
    /// Accepted changes, newest first, or one of them.
    Operation {
        /// `op_…`
        id: Option<String>,
        /// Wait for its end.
        #[arg(long, requires = "id")]
        wait: bool,
        /// How long to wait.
        #[arg(long, value_parser = duration, default_value = "60s", value_name = "DURATION")]
        timeout: Duration,
    },
    /// Compare the database's tables with its events.
    Rebuild {
        /// Only compare, change nothing. There is no other way yet.
        #[arg(long, required = true)]
        check: bool,
    },
    /// The audit log: read it, prove it.
    Audit {
        #[command(subcommand)]
        command: Audit,
    },
    /// Run `holdfast-lab` with these arguments.
    #[command(disable_help_flag = true)]
    Lab {
        /// What it is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Print the completions of a shell.
    Completion {
        /// Which shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for every command.
    Man {
        /// The folder to write them to.
        #[arg(long, value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

/// What can be explained.
#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// Whether a connection may be opened, and which policies say so at each end.
    #[command(after_help = "Examples:
  holdfast explain flow web-1 db-1 5432/tcp
  holdfast explain flow 198.51.100.7 edge/web-1 443/tcp
  holdfast explain flow web-1 db-1 icmp")]
    Flow {
        /// A host, an endpoint or an address.
        from: String,
        /// A host, an endpoint or an address.
        to: String,
        /// `443/tcp`, `53/udp`, `7/sctp`, `icmp`, `icmp/TYPE[/CODE]` or `protocol/47`.
        service: String,
    },
}

/// Enrolment tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum EnrolToken {
    /// Make a token and print it, this once.
    #[command(after_help = "Examples:
  holdfast enrol-token create --label app=web --address 10.0.0.0/24 > web.token
  holdfast enrol-token create --uses 50 --ttl 24h --port http=80/tcp -o json")]
    Create {
        /// The namespace of its hosts.
        #[arg(short, long)]
        namespace: Option<String>,
        /// A label of its hosts; may be given more than once.
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
        labels: Vec<(String, String)>,
        /// A declared port of its hosts; may be given more than once.
        #[arg(long = "port", value_name = "NAME=PORT/PROTOCOL", value_parser = declared_port)]
        ports: Vec<(String, u16, String)>,
        /// A prefix in which addresses of its hosts must be; may be given more than once.
        #[arg(long = "address", value_name = "CIDR")]
        addresses: Vec<String>,
        /// Where its hosts are.
        #[arg(long)]
        region: Option<String>,
        /// Whose its hosts are.
        #[arg(long)]
        owner: Option<String>,
        /// How many hosts it may enrol.
        #[arg(long, value_name = "N")]
        uses: Option<u32>,
        /// How long it is good.
        #[arg(long, value_parser = duration, value_name = "DURATION")]
        ttl: Option<Duration>,
    },
    /// List tokens, newest first.
    List,
    /// Make a token useless; hosts that it enrolled stay.
    Revoke {
        /// `et_…`
        id: String,
    },
}

/// API tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum ApiToken {
    /// Make a token and print it, this once.
    #[command(after_help = "Examples:
  holdfast api-token create ci --role editor --namespace shop --ttl 90d > ci.token")]
    Create {
        /// What the token is called in lists and events.
        name: String,
        /// `viewer`, `editor`, `operator`, `auditor` or `admin`.
        #[arg(long)]
        role: String,
        /// In which namespace; may be given more than once; all of them if absent.
        #[arg(short, long = "namespace", value_name = "NAMESPACE")]
        namespaces: Vec<String>,
        /// How long it is good; for ever if absent.
        #[arg(long, value_parser = duration, value_name = "DURATION")]
        ttl: Option<Duration>,
    },
    /// List tokens, newest first.
    List,
    /// Make a token useless, at once.
    Revoke {
        /// `at_…`
        id: String,
    },
}

/// The audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Print entries, one JSON object a line.
    #[command(after_help = "Examples:
  holdfast audit tail --since 1h
  holdfast audit tail --follow | jq .event.type")]
    Tail {
        /// Only events of this time and later: `1h`, or a time in RFC 3339.
        #[arg(long, value_name = "DURATION|TIME")]
        since: Option<String>,
        /// From this entry on.
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        /// Wait for more.
        #[arg(long)]
        follow: bool,
    },
    /// Prove that no entry was changed, taken out or moved.
    #[command(
        after_help = "The whole log is read and every hash computed here. Only a checkpoint that was kept elsewhere shows that the end
was not cut off or rewritten: keep what `holdfast audit checkpoint` prints.

Examples:
  holdfast audit verify --against checkpoint.json --key audit-signing.pub
  holdfast audit verify --log copy.ndjson"
    )]
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
    Checkpoint,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is written as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn declared_port(text: &str) -> Result<(String, u16, String), String> {
    let wrong = || "a port is written as NAME=PORT or NAME=PORT/PROTOCOL".to_owned();
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (port, protocol) = rest.split_once('/').unwrap_or((rest, "tcp"));
    Ok((name.to_owned(), port.parse().map_err(|_| wrong())?, protocol.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_help() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }

    #[test]
    fn declared_ports_default_to_tcp() {
        assert_eq!(declared_port("http=80"), Ok(("http".to_owned(), 80, "tcp".to_owned())));
        assert_eq!(declared_port("dns=53/udp"), Ok(("dns".to_owned(), 53, "udp".to_owned())));
        assert!(declared_port("80").is_err() && declared_port("a=b").is_err());
    }
}
