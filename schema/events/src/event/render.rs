//! Payloads about the authority, leases and what was rendered.

use holdfast_model::desired::Component;
use holdfast_model::digest::Digest;
use holdfast_model::ids::{AuthorityId, HostId, RolloutId};
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm, Revision, Version};

use super::payloads;
use crate::keys::SignatureBytes;
use crate::secret_free::entry;
use crate::text::{Detail, Label128};

/// The most desired states in one event. One is at most 360 bytes (host 39, component 11, version 20, digest 64, signature 128, names and
/// punctuation 98), so 150 are 54,000 of the 61,440 bytes that a payload may have.
pub const RENDERED_STATES_MAX: usize = 150;

/// The most hosts in one event about a confirmed step back: one is at most 42 bytes, so 1,000 are 42,000 of the 61,440 bytes that a payload may have.
pub const CONFIRMED_HOSTS_MAX: usize = 1_000;

payloads! {
    /// A database began its life.
    AuthorityCreated {
        /// The lineage.
        authority: AuthorityId,
        /// Its first epoch.
        epoch: AuthorityEpoch,
    }

    /// A database was restored or promoted.
    AuthorityEpochRaised {
        /// The epoch from now on.
        epoch: AuthorityEpoch,
        /// Why, for people.
        detail: Detail,
    }

    /// An operator confirmed that hosts go back to what a restored or promoted database has for them; at most [`CONFIRMED_HOSTS_MAX`] in each.
    AuthorityRollbackConfirmed {
        /// The epoch in which they go back.
        epoch: AuthorityEpoch,
        /// Which hosts.
        hosts: Vec<HostId>,
    }

    /// A lease has a new holder.
    LeaseAcquired {
        /// Which lease.
        name: Label128,
        /// Who holds it.
        holder: Label128,
        /// The number that fences earlier holders.
        term: LeaseTerm,
    }

    /// One desired state.
    DesiredState {
        /// For whom.
        host: HostId,
        /// Which part.
        component: Component,
        /// The version.
        version: Version,
        /// The content.
        digest: Digest,
        /// The renderer's word for it.
        signature: SignatureBytes,
    }

    /// Desired states have new content. One render makes as many of these as it needs, at most [`RENDERED_STATES_MAX`] states in each.
    RenderDesired {
        /// The revision of the intent that it was rendered from.
        revision: Revision,
        /// The renderer's lease.
        lease_term: LeaseTerm,
        /// The epoch that the signatures name.
        authority_epoch: AuthorityEpoch,
        /// The states.
        states: Vec<DesiredState>,
    }

    /// Desired states that did not change are the renderer's word in a new life of the authority too; at most [`RENDERED_STATES_MAX`] in each.
    RenderSignedAgain {
        /// The renderer's lease.
        lease_term: LeaseTerm,
        /// The epoch that the signatures name.
        authority_epoch: AuthorityEpoch,
        /// The states.
        states: Vec<DesiredState>,
    }

    /// A render was committed: every host has what it is to have at this revision. One that is held back by a rollout has it if it is not to change.
    RenderCommitted {
        /// The revision up to which every host is rendered.
        revision: Revision,
        /// The renderer's lease.
        lease_term: LeaseTerm,
        /// How many hosts were rendered.
        hosts_rendered: u32,
        /// How many desired states have new content.
        states_changed: u32,
        /// While a rollout holds hosts back: how far the others are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        let_go: Option<RenderedLetGo>,
    }

    /// How far those hosts are that a rollout does not hold back.
    RenderedLetGo {
        /// Which rollout.
        rollout: RolloutId,
        /// How many of its stages were opened then.
        stage: u32,
        /// The revision up to which every one of them is rendered.
        revision: Revision,
    }
}

entry!(DesiredState);
