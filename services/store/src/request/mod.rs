//! Requests: what gateways ask the renderer to decide.
//!
//! - A gateway writes a request and the event that it happened, never a host: the renderer turns an accepted one into a revision.
//! - A request is named by the event that recorded it, so a certificate or refusal names what asked for it.

mod ask;
mod decide;

use std::net::IpAddr;

pub(crate) use ask::write_reports;
pub use ask::{Enrolment, RequestAnswer, TokenRefusal};
pub use decide::{Decided, Decision, IssuedCertificate};
use holdfast_events::VerifyingKeyBytes;
use holdfast_model::ids::{EventId, HostId};
use holdfast_model::name::Name;

use crate::token::EnrolTokenEntry;

/// A request that waits for the renderer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The event that recorded it; for a report of addresses, which is not recorded, an id of its own.
    pub id: EventId,
    /// The host, or for an enrolment the identity that it will have.
    pub host: HostId,
    /// What it asks for.
    pub body: RequestBody,
}

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestBody {
    /// A host says where it is.
    Addresses(Vec<IpAddr>),
    /// A host wants its next certificate.
    Certificate {
        /// The certificate request, in DER.
        csr: Vec<u8>,
    },
    /// A machine wants to become a host.
    Enrolment {
        /// The name that it asks for.
        name: Name,
        /// The addresses that it says it has.
        addresses: Vec<IpAddr>,
        /// The key with which it will sign its outcomes.
        outcome_key: VerifyingKeyBytes,
        /// The certificate request, in DER.
        csr: Vec<u8>,
        /// The token that it used.
        token: Box<EnrolTokenEntry>,
    },
}
