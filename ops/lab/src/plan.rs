//! What a lab is asked to be: names and addresses of hosts, from whatever described them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// One host that the lab shall have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Its name in the estate; any text.
    pub name: String,
    /// Its own addresses, of both families and any ranges; the first of a family is the source of what the host itself sends.
    pub addresses: Vec<IpAddr>,
}
