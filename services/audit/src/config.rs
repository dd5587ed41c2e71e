//! The settings of the audit service.

use std::net::SocketAddr;
use std::path::PathBuf;

use holdfast_runtime::config::{COMMON, Config, Key, admin_listen};
use holdfast_runtime::log::LogFormat;
use serde::{Deserialize, Serialize};

/// The settings of the audit service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuditConfig {
    /// Which log lines are written.
    #[serde(default = "default_log")]
    pub log: String,
    /// How they look.
    pub log_format: Option<LogFormat>,
    /// Where health and metrics are served.
    #[serde(default = "default_admin_listen")]
    pub admin_listen: SocketAddr,
    /// Where the log is handed out.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Where NATS is.
    pub nats_url: String,
    /// The folder with this service's keys and certificates, as `holdfast-renderer init` made it.
    pub identity: PathBuf,
    /// The folder of the log.
    pub data: PathBuf,
    /// Which client certificates may read, by role, with commas.
    #[serde(default = "default_readers")]
    pub readers: String,
}

fn default_log() -> String {
    "info".to_owned()
}

fn default_admin_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7091))
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7081))
}

fn default_readers() -> String {
    "auditor,holdfast_gateway_operators".to_owned()
}

impl Config for AuditConfig {
    const SERVICE: &'static str = "audit";
    const KEYS: &'static [&'static [Key]] = &[
        COMMON,
        &[admin_listen("127.0.0.1:7091")],
        &[
            Key::plain("listen", "Where the log is handed out (HTTPS, client certificate)").or("0.0.0.0:7081"),
            Key::plain("nats-url", "Where NATS is, such as `tls://nats:4222`"),
            Key::plain("identity", "The folder with this service's keys and certificates"),
            Key::plain("data", "The folder of the log"),
            Key::plain("readers", "Which client certificates may read, by role, with commas")
                .or("auditor,holdfast_gateway_operators"),
        ],
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_described_default_is_the_one_in_force() {
        let given = &[("nats_url", "x"), ("identity", "x"), ("data", "x")];
        let wrong = holdfast_runtime::config::misdescribed_defaults::<AuditConfig>(given);
        assert_eq!(wrong.expect("loads"), Vec::<String>::new());
    }

    #[test]
    fn every_setting_is_described() {
        assert_eq!(holdfast_runtime::config::undescribed::<AuditConfig>(), Vec::<String>::new());
    }
}
