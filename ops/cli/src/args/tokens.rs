//! The commands about tokens.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::help;
use crate::parse::{declared_port, key_value};
use crate::span::duration;

/// Enrolment tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum EnrolToken {
    /// Make a token and print it, this once.
    #[command(before_help = help::ENROL_CREATE)]
    Create {
        /// The namespace of its hosts [default: default].
        #[arg(short, long)]
        namespace: Option<String>,
        /// A label of its hosts; may be given more than once.
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
        labels: Vec<(String, String)>,
        /// A declared port of its hosts; may be given more than once.
        #[arg(long = "port", value_name = "NAME=PORT/PROTOCOL", value_parser = declared_port)]
        ports: Vec<(String, u16, String)>,
        /// A prefix in which addresses of its hosts must be; may be given more than once [default: any address].
        #[arg(long = "address", value_name = "CIDR")]
        addresses: Vec<String>,
        /// Where its hosts are.
        #[arg(long)]
        region: Option<String>,
        /// Whose its hosts are.
        #[arg(long)]
        owner: Option<String>,
        /// How many hosts it may enrol [default: 1].
        #[arg(long, value_name = "N")]
        uses: Option<u32>,
        /// How long it is good, at most 30d [default: 1h].
        #[arg(long, value_parser = duration, value_name = "DURATION")]
        ttl: Option<Duration>,
        /// Write the token to a new file of this name, which its owner alone can read, and do not print it.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List tokens, newest first.
    #[command(before_help = help::ENROL_LIST)]
    List,
    /// Make a token useless; hosts that it enrolled stay.
    #[command(before_help = help::ENROL_REVOKE)]
    Revoke {
        /// `et_…`
        id: String,
    },
}

/// API tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum ApiToken {
    /// Make a token and print it, this once.
    #[command(before_help = help::TOKEN_CREATE)]
    Create {
        /// What the token is called in lists and events.
        name: String,
        /// `viewer`, `editor`, `operator`, `auditor` or `admin`.
        #[arg(long)]
        role: String,
        /// In which namespace; may be given more than once [default: all of them].
        #[arg(short, long = "namespace", value_name = "NAMESPACE")]
        namespaces: Vec<String>,
        /// How long it is good [default: for ever].
        #[arg(long, value_parser = duration, value_name = "DURATION")]
        ttl: Option<Duration>,
        /// Write the token to a new file of this name, which its owner alone can read, and do not print it.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List tokens, newest first.
    #[command(before_help = help::TOKEN_LIST)]
    List,
    /// Make a token useless, at once.
    #[command(before_help = help::TOKEN_REVOKE)]
    Revoke {
        /// `at_…`
        id: String,
    },
}
