//! The settings of the renderer.

use std::net::SocketAddr;
use std::path::PathBuf;

use holdfast_runtime::config::{COMMON, Config, Key, Secret, admin_listen};
use holdfast_runtime::log::LogFormat;
use serde::{Deserialize, Serialize};

/// The settings of the renderer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RendererConfig {
    /// Which log lines are written.
    #[serde(default = "default_log")]
    pub log: String,
    /// How they look.
    pub log_format: Option<LogFormat>,
    /// Where health and metrics are served.
    #[serde(default = "default_admin_listen")]
    pub admin_listen: SocketAddr,
    /// Where Postgres is.
    pub database_url: Secret,
    /// Where NATS is; not used by `migrate`.
    pub nats_url: Option<String>,
    /// On how many servers of a NATS cluster each stream is kept.
    #[serde(default = "default_nats_replicas")]
    pub nats_replicas: usize,
    /// The folder with this process's keys and certificates, as `init` made it.
    pub identity: PathBuf,
}

fn default_log() -> String {
    "info".to_owned()
}

const fn default_nats_replicas() -> usize {
    1
}

fn default_admin_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7090))
}

impl Config for RendererConfig {
    const SERVICE: &'static str = "renderer";
    const KEYS: &'static [&'static [Key]] = &[
        COMMON,
        &[admin_listen("127.0.0.1:7090")],
        &[
            Key::secret(
                "database-url",
                "Where Postgres is: postgres://ROLE@HOST:PORT/DATABASE?sslrootcert=…&sslcert=…&sslkey=…",
            ),
            Key::plain(
                "nats-url",
                "Where NATS is, such as `tls://nats:4222`; several servers of a cluster with commas",
            ),
            Key::plain("nats-replicas", "On how many servers of a NATS cluster each stream is kept, 1 to 5").or("1"),
            Key::plain("identity", "The folder with this process's keys and certificates"),
        ],
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_described() {
        assert_eq!(holdfast_runtime::config::undescribed::<RendererConfig>(), Vec::<String>::new());
    }
}
