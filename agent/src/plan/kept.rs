//! What the agent keeps open by itself, whatever was rendered: gateways, resolvers, failsafe ports; and which interfaces are uplinks.
//!
//! - Outside the digest: it comes from configuration and from the gateway, never from a policy, and nothing rendered can take it away.

use std::net::{IpAddr, SocketAddr};

use holdfast_model::address::{Either, Interval, number_of};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{PortRange, Statement, protocol};

use super::set::Members;

/// The longest interface name.
const INTERFACE_NAME_CHARS_MAX: usize = 15;

/// What stays open, and where packets come from outside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Gateways: the host may open TCP to them.
    pub gateways: Vec<SocketAddr>,
    /// Resolvers: the host may ask them on port 53.
    pub resolvers: Vec<IpAddr>,
    /// TCP ports that anybody may reach on this host.
    pub failsafe_ports: Vec<PortRange>,
    /// Leaves gateways to the policy: for a test of what happens then, and never on a host.
    pub is_unguarded: bool,
    /// Interfaces that lead out of the host; what is forwarded between them and the inside obeys the policy.
    pub uplinks: Vec<String>,
}

/// Why a kept thing cannot be kept.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeptError {
    /// No interface can have that name.
    #[error("`{0}` is no name of an interface")]
    Interface(String),
}

impl Kept {
    /// Checks what would not survive the way into the kernel.
    ///
    /// # Errors
    /// [`KeptError`] for an interface name that is empty, too long or not plain.
    pub fn check(&self) -> Result<(), KeptError> {
        let plain = |name: &&String| {
            !name.is_empty()
                && name.len() <= INTERFACE_NAME_CHARS_MAX
                && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'/' | b'*' | b'\\'))
        };
        match self.uplinks.iter().find(|name| !plain(name)) {
            None => Ok(()),
            Some(name) => Err(KeptError::Interface(name.clone())),
        }
    }

    pub(super) fn gateway_sets(&self) -> (Members, Members) {
        addresses(self.gateways.iter().map(SocketAddr::ip))
    }

    pub(super) fn gateway_ports(&self) -> Members {
        ports(self.gateways.iter().map(|gateway| PortRange::single(gateway.port())).collect())
    }

    pub(super) fn resolver_sets(&self) -> (Members, Members) {
        addresses(self.resolvers.iter().copied())
    }

    pub(super) fn failsafe_set(&self) -> Members {
        ports(self.failsafe_ports.clone())
    }
}

fn addresses(all: impl Iterator<Item = IpAddr>) -> (Members, Members) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in all {
        match number_of(address) {
            Either::V4(number) => v4.push(Interval::single(number)),
            Either::V6(number) => v6.push(Interval::single(number)),
        }
    }
    (Members::V4(IntervalSet::covering(v4)), Members::V6(IntervalSet::covering(v6)))
}

fn ports(ranges: Vec<PortRange>) -> Members {
    // The model joins ranges that meet; which protocol carries them does not matter here.
    match Statement::ports(protocol::TCP, ranges) {
        Statement::Ports { ranges, .. } => Members::Ports(ranges),
        Statement::Any | Statement::Protocol(_) | Statement::Icmp { .. } => {
            Members::Ports(vec![PortRange { first: 0, last: u16::MAX }])
        }
    }
}
