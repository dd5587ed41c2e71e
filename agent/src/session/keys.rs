//! The keys of a session: the renderer's public one, pinned at enrolment, and the host's own.

use std::sync::Arc;

use holdfast_identity::Signature;
use holdfast_session::agent::Keys;
use holdfast_wire::message::SignatureBytes;

use crate::enrolment::Enrolment;

/// The keys of an enrolled host.
#[derive(Debug)]
pub(super) struct HostKeys(pub(super) Arc<Enrolment>);

impl Keys for HostKeys {
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool {
        self.0.renderer_key.verify(statement, &Signature(*signature)).is_ok()
    }

    fn sign(&self, statement: &[u8]) -> SignatureBytes {
        self.0.outcome_key.sign(statement).0
    }
}
