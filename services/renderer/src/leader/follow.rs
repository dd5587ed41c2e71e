//! The hosts that are not in this life of the authority yet, and letting them in.
//!
//! - A database that was restored or promoted begins a new life. What is desired of a host is signed in it once the host was heard and holds nothing
//!   that it would take back, or an operator confirmed that it may (ADR 0017).
//! - Until then what is rendered for it is signed in the life that it is in: no gateway can make it go back by that, whatever it carries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use holdfast_events::SignatureBytes;
use holdfast_model::desired::Desired;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm};
use holdfast_model::statement::{Authority, desired_bytes};
use holdfast_store::render::{LatestState, SignedState};

use super::render::tell_hosts;
use super::{Means, TermEnd, passes};

/// In whose name a term signs, and for whom not yet.
pub(super) struct Following {
    pub(super) term: LeaseTerm,
    pub(super) authority: Authority,
    /// The hosts with a state that is signed in an earlier life, and which.
    behind: BTreeMap<HostId, AuthorityEpoch>,
}

impl Following {
    /// What the database says of each host's life.
    pub(super) fn new(means: &Means, term: LeaseTerm, authority: Authority, latest: &[LatestState]) -> Self {
        let mut behind = BTreeMap::new();
        for state in latest.iter().filter(|state| state.authority_epoch < authority.epoch) {
            behind.entry(state.state.desired.host).or_insert(state.authority_epoch);
        }
        let following = Self { term, authority, behind };
        following.say(means);
        following
    }

    /// Whether a session that begins may let a host in.
    fn say(&self, means: &Means) {
        means.wakes.behind.store(!self.behind.is_empty(), Ordering::Relaxed);
    }

    /// The renderer's word for a state, in the life that its host is in.
    pub(super) fn sign(&self, means: &Means, desired: Desired) -> SignedState {
        let epoch = self.behind.get(&desired.host).copied().unwrap_or(self.authority.epoch);
        sign(means, Authority { epoch, ..self.authority }, desired)
    }

    /// Those of these hosts that are in an earlier life.
    pub(super) fn earlier_of(&self, hosts: impl Iterator<Item = HostId>) -> BTreeMap<HostId, AuthorityEpoch> {
        if self.behind.is_empty() {
            return BTreeMap::new();
        }
        hosts.filter_map(|host| self.behind.get(&host).map(|epoch| (host, *epoch))).collect()
    }

    /// Signs for those that may follow; nothing is asked while all have.
    pub(super) async fn let_in(&mut self, means: &Means, hints: &mut u64) -> Result<(), TermEnd> {
        while !self.behind.is_empty() {
            let found = match means.store.states_to_sign_again(self.authority.epoch).await {
                Ok(found) if found.is_empty() => return Ok(()),
                Ok(found) => found,
                Err(error) => {
                    passes("looking who follows", error).await?;
                    continue;
                }
            };
            let states: Vec<Desired> = found.iter().map(|found| found.state.desired).collect();
            let signed = states.iter().map(|state| sign(means, self.authority, *state)).collect();
            if let Err(error) = means.store.sign_again(self.term, self.authority.epoch, signed).await {
                passes("signing in a new life", error).await?;
                continue;
            }
            let hosts: BTreeSet<HostId> = states.iter().map(|state| state.host).collect();
            tracing::info!(hosts = hosts.len(), states = states.len(), epoch = %self.authority.epoch, "let into this life of the authority");
            self.behind.retain(|host, _| !hosts.contains(host));
            self.say(means);
            tell_hosts(means, self.term, &states, hints).await;
        }
        Ok(())
    }
}

fn sign(means: &Means, authority: Authority, desired: Desired) -> SignedState {
    let signature = means.key.sign(&desired_bytes(authority, &desired));
    SignedState { desired, signature: SignatureBytes::from_bytes(signature.0) }
}
