//! What tests make a gateway do wrong, to show that agents refuse it. Empty, and without cost, unless built with the feature `test-hooks`.

use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
#[cfg(feature = "test-hooks")]
use holdfast_runtime::fail_point::{self, fail_point};
use holdfast_session::gateway::{Form, Supply};

/// The wrongs that this gateway does.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// Bodies for these hosts get one byte changed.
    #[cfg(feature = "test-hooks")]
    pub altered: Vec<HostId>,
    /// Each of a pair gets what was rendered for the other.
    #[cfg(feature = "test-hooks")]
    pub swapped: Vec<(HostId, HostId)>,
}

#[cfg(feature = "test-hooks")]
impl Hooks {
    /// Reads variables that are no settings of the gateway: `HOLDFAST_TEST_GATEWAY_ALTER` (hosts with commas) and `HOLDFAST_TEST_GATEWAY_SWAP` (two hosts with a comma).
    ///
    /// # Errors
    /// The first text that is no host id.
    pub fn of_environment() -> Result<Self, holdfast_model::ids::IdError> {
        let hosts = |name: &str| -> Result<Vec<HostId>, holdfast_model::ids::IdError> {
            let text = std::env::var(name).unwrap_or_default();
            text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::parse).collect()
        };
        let (altered, swap) = (hosts("HOLDFAST_TEST_GATEWAY_ALTER")?, hosts("HOLDFAST_TEST_GATEWAY_SWAP")?);
        let swapped = match swap.as_slice() {
            [a, b] => vec![(*a, *b)],
            _ => Vec::new(),
        };
        Ok(Self { altered, swapped })
    }

    /// Whose desired state is read for a host.
    pub(super) fn read_as(&self, host: HostId) -> HostId {
        let other = |(a, b): &(HostId, HostId)| match host {
            one if one == *a => Some(*b),
            one if one == *b => Some(*a),
            _ => None,
        };
        self.swapped.iter().find_map(other).unwrap_or(host)
    }

    /// What is written for a host in place of what was read.
    pub(super) fn alter(&self, host: HostId, component: Component, supply: Supply) -> Supply {
        match supply {
            Supply::Whole { body, delta } if component == Component::Policy && self.altered.contains(&host) => {
                let mut altered = body.to_vec();
                if let Some(last) = altered.last_mut() {
                    *last ^= 1;
                }
                let delta = delta.map(|offer| {
                    let mut changes = offer.changes.to_vec();
                    if let Some(last) = changes.last_mut() {
                        *last ^= 1;
                    }
                    holdfast_session::gateway::DeltaOffer { changes: changes.into(), ..offer }
                });
                Supply::Whole { body: altered.into(), delta }
            }
            other @ (Supply::Whole { .. } | Supply::SameDigest) => other,
        }
    }
}

#[cfg(not(feature = "test-hooks"))]
impl Hooks {
    /// Whose desired state is read for a host: its own.
    #[expect(clippy::unused_self, reason = "one signature with and without the feature")]
    pub(super) const fn read_as(&self, host: HostId) -> HostId {
        host
    }

    /// What is written for a host: what was read.
    #[expect(clippy::unused_self, reason = "one signature with and without the feature")]
    pub(super) fn alter(&self, _host: HostId, _component: Component, supply: Supply) -> Supply {
        supply
    }
}

/// How far a session is in writing an update, for a test that ends the process before, within or after it.
#[derive(Debug, Default)]
pub(super) struct Midway {
    /// What is under way.
    #[cfg(feature = "test-hooks")]
    update: Option<&'static str>,
}

#[cfg(feature = "test-hooks")]
impl Midway {
    /// An update waits for the socket.
    pub(super) fn handle_sent(&mut self, form: Form) {
        self.update = match form {
            Form::Snapshot => Some("a snapshot"),
            Form::Delta => Some("a delta"),
            Form::VersionOnly => None,
        };
        if let Some(update) = self.update {
            fail_point(update, "before it is written");
        }
    }

    /// What of it is written at once.
    pub(super) fn portion<'a>(&self, waits: &'a [u8]) -> &'a [u8] {
        match self.update {
            Some(update) if fail_point::is_armed(update, "half written") => {
                waits.get(..waits.len() / 2).unwrap_or(waits)
            }
            Some(_) | None => waits,
        }
    }

    /// Some of it was written, or the last of it.
    pub(super) fn handle_written(&mut self, is_all: bool) {
        let Some(update) = self.update else { return };
        fail_point(update, "half written");
        if is_all {
            fail_point(update, "written, before its outcome");
            self.update = None;
        }
    }
}

#[cfg(not(feature = "test-hooks"))]
impl Midway {
    /// An update waits for the socket.
    #[expect(clippy::unused_self, reason = "one signature with and without the feature")]
    pub(super) const fn handle_sent(&mut self, _form: Form) {}

    /// What of it is written at once: all of it.
    #[expect(clippy::unused_self, reason = "one signature with and without the feature")]
    pub(super) const fn portion<'a>(&self, waits: &'a [u8]) -> &'a [u8] {
        waits
    }

    /// Some of it was written, or the last of it.
    #[expect(clippy::unused_self, reason = "one signature with and without the feature")]
    pub(super) const fn handle_written(&mut self, _is_all: bool) {}
}
