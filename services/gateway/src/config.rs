//! The settings of the gateway.
//!
//! - Each door has its own database role and its own folder of keys, also where one process serves both.

use std::net::SocketAddr;
use std::path::PathBuf;

use holdfast_model::brake::BrakeLimits;
use holdfast_runtime::config::{COMMON, Config, Key, Secret, Span, admin_listen};
use holdfast_runtime::log::LogFormat;
use holdfast_wire::message::Delivery;
use serde::{Deserialize, Serialize};

/// Which doors this process opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Doors {
    /// Sessions and enrolment.
    Agents,
    /// The API of operators.
    Operators,
    /// One process for both.
    #[default]
    Both,
}

impl Doors {
    /// Whether agents are let in.
    #[must_use]
    pub const fn has_agents(self) -> bool {
        matches!(self, Self::Agents | Self::Both)
    }

    /// Whether operators are let in.
    #[must_use]
    pub const fn has_operators(self) -> bool {
        matches!(self, Self::Operators | Self::Both)
    }
}

/// The settings of the gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayConfig {
    /// Which log lines are written.
    #[serde(default = "default_log")]
    pub log: String,
    /// How they look.
    pub log_format: Option<LogFormat>,
    /// Where health and metrics are served.
    #[serde(default = "default_admin_listen")]
    pub admin_listen: SocketAddr,
    /// Which doors are opened.
    #[serde(default)]
    pub doors: Doors,
    /// Where NATS is.
    pub nats_url: String,
    /// Where the agents' door is.
    #[serde(default = "default_agents_listen")]
    pub agents_listen: SocketAddr,
    /// The database, in the role of the agents' door.
    pub agents_database_url: Option<Secret>,
    /// The folder with the keys and certificates of the agents' door.
    pub agents_identity: Option<PathBuf>,
    /// Where agents may dial, this gateway and others, as `host:port` with commas.
    #[serde(default)]
    pub agents_gateways: String,
    /// How desired states are brought to hosts.
    #[serde(default)]
    pub delivery_mode: Delivery,
    /// How often agents and gateway say that they are there.
    #[serde(default = "default_liveness_interval")]
    pub agents_liveness_interval: Span,
    /// How long this gateway's sessions count without a sign of life of it.
    #[serde(default = "default_lease")]
    pub agents_lease: Span,
    /// How often sessions are compared with the database, should hints be lost.
    #[serde(default = "default_compare_interval")]
    pub agents_compare_interval: Span,
    /// Over how long a gateway that ends spreads its agents.
    #[serde(default = "default_drain_spread")]
    pub agents_drain_spread: Span,
    /// How many sessions may wait to be opened at once.
    #[serde(default = "default_openings_max")]
    pub agents_openings_max: u32,
    /// Where the operators' door is.
    #[serde(default = "default_operators_listen")]
    pub operators_listen: SocketAddr,
    /// The database, in the role of the operators' door.
    pub operators_database_url: Option<Secret>,
    /// The folder with the keys and certificates of the operators' door.
    pub operators_identity: Option<PathBuf>,
    /// Where the audit service's door is; without it operators cannot read the log here.
    pub operators_audit_url: Option<String>,
    /// How many hosts a change may take much from without anybody saying so.
    #[serde(default = "default_brake_hosts")]
    pub operators_brake_hosts: u32,
    /// How much of a host's rules is much, in percent.
    #[serde(default = "default_brake_share")]
    pub operators_brake_share: u32,
}

impl GatewayConfig {
    /// The list of gateways that agents are told.
    #[must_use]
    pub fn gateways(&self) -> Vec<String> {
        self.agents_gateways.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect()
    }
}

fn default_log() -> String {
    "info".to_owned()
}

fn default_admin_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7090))
}

fn default_agents_listen() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7443))
}

fn default_operators_listen() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7080))
}

const fn default_liveness_interval() -> Span {
    Span::from_secs(15)
}

const fn default_lease() -> Span {
    Span::from_secs(30)
}

const fn default_compare_interval() -> Span {
    Span::from_secs(30)
}

const fn default_drain_spread() -> Span {
    Span::from_secs(10)
}

const fn default_openings_max() -> u32 {
    8_000
}

fn default_brake_hosts() -> u32 {
    BrakeLimits::default().hosts_max
}

fn default_brake_share() -> u32 {
    BrakeLimits::default().share_percent
}

impl Config for GatewayConfig {
    const SERVICE: &'static str = "gateway";
    const KEYS: &'static [&'static [Key]] = &[
        COMMON,
        &[admin_listen("127.0.0.1:7090")],
        &[
            Key::plain("doors", "Which doors are opened: `agents`, `operators` or `both`").or("both"),
            Key::plain("nats-url", "Where NATS is, such as `tls://nats:4222`"),
        ],
        &[
            Key::plain("agents-listen", "Where the agents' door is (sessions and enrolment, TLS)").or("0.0.0.0:7443"),
            Key::secret("agents-database-url", "The database, in the role of the agents' door"),
            Key::plain("agents-identity", "The folder with the keys and certificates of the agents' door"),
            Key::plain("agents-gateways", "Where agents may dial, as host:port with commas"),
            Key::plain("delivery-mode", "How desired states are brought to hosts: `push` by sessions, or `poll`")
                .or("push"),
            Key::plain("agents-liveness-interval", "How often agents and gateway say that they are there").or("15s"),
            Key::plain("agents-lease", "How long the hosts of a gateway that was killed are shown as before").or("30s"),
            Key::plain("agents-compare-interval", "How often sessions are compared with the database").or("30s"),
            Key::plain("agents-drain-spread", "Over how long agents leave a gateway that ends, 14s at most").or("10s"),
            Key::plain("agents-openings-max", "How many sessions may wait to be opened at once").or("8000"),
        ],
        &[
            Key::plain("operators-listen", "Where the operators' door is (HTTPS)").or("0.0.0.0:7080"),
            Key::secret("operators-database-url", "The database, in the role of the operators' door"),
            Key::plain("operators-identity", "The folder with the keys and certificates of the operators' door"),
            Key::plain("operators-audit-url", "Where the audit service is, such as `https://audit:7081`"),
            Key::plain(
                "operators-brake-hosts",
                "How many hosts a change may take much from without an acknowledgement",
            )
            .or("10"),
            Key::plain("operators-brake-share", "How much of a host's rules is much, in percent").or("50"),
        ],
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_described_default_is_the_one_in_force() {
        let wrong =
            holdfast_runtime::config::misdescribed_defaults::<GatewayConfig>(&[("nats_url", "tls://nats:4222")]);
        assert_eq!(wrong.expect("loads"), Vec::<String>::new());
    }

    #[test]
    fn every_setting_is_described() {
        assert_eq!(holdfast_runtime::config::undescribed::<GatewayConfig>(), Vec::<String>::new());
    }
}
