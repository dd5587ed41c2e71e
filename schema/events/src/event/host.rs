//! Payloads about hosts: enrolment, addresses, certificates.

use std::net::IpAddr;

use holdfast_model::ids::{EnrolTokenId, EventId, HostId};
use holdfast_model::intent::DeclaredPort;
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use ipnet::IpNet;
use time::OffsetDateTime;

use super::payloads;
use crate::codes::EnrolmentRefusal;
use crate::directive::DirectiveKind;
use crate::keys::VerifyingKeyBytes;
use crate::text::{Detail, Label128};

payloads! {
    /// A machine used an enrolment token; the id of this event names the request.
    EnrolmentRequested {
        /// The identity that it will have if it is taken.
        host: HostId,
        /// The token, one use of which is gone.
        token: EnrolTokenId,
        /// The name that it asks for.
        name: Name,
        /// The addresses that it says it has.
        addresses: Vec<IpAddr>,
        /// The key with which it will sign its outcomes.
        outcome_key: VerifyingKeyBytes,
    }

    /// A machine used an enrolment token and was not taken.
    EnrolmentRefused {
        /// The event that asked.
        request: EventId,
        /// The identity that it would have had.
        host: HostId,
        /// Why.
        reason: EnrolmentRefusal,
    }

    /// A machine became a host. Labels, ports, region, owner and range come from its token.
    HostEnrolled {
        /// The change of intent that this is.
        revision: Revision,
        /// Its identity.
        host: HostId,
        /// Its namespace.
        namespace: Name,
        /// Its name.
        name: Name,
        /// Its labels.
        labels: Labels,
        /// Its declared ports.
        ports: Vec<DeclaredPort>,
        /// Its addresses within the range, sorted.
        addresses: Vec<IpAddr>,
        /// The range that its addresses must be in; empty is any.
        address_scope: Vec<IpNet>,
        /// Where it is.
        region: Option<Name>,
        /// Whose it is.
        owner: Option<Label128>,
        /// The token that it used.
        token: EnrolTokenId,
        /// The key with which it signs its outcomes.
        outcome_key: VerifyingKeyBytes,
    }

    /// A host is elsewhere.
    HostAddressesChanged {
        /// The change of intent that this is.
        revision: Revision,
        /// Which host.
        host: HostId,
        /// Its addresses within its range, sorted.
        addresses: Vec<IpAddr>,
    }

    /// A host was taken out: nothing is rendered for it, and no session of it begins. What it enforces stays with it.
    HostDecommissioned {
        /// The change of intent that this is.
        revision: Revision,
        /// Which host.
        host: HostId,
        /// Its namespace, whose name is free again.
        namespace: Name,
        /// Its name.
        name: Name,
        /// Why, in the words of whoever asked.
        detail: Detail,
    }

    /// An operator asked something of a host's session, now or not at all; whether anybody heard it is told by what follows.
    HostDirected {
        /// Which host.
        host: HostId,
        /// What was asked.
        directive: DirectiveKind,
    }

    /// A host asked for a certificate; the id of this event names the request.
    CertificateRequested {
        /// Which host.
        host: HostId,
    }

    /// A host got a certificate.
    CertificateIssued {
        /// Which host.
        host: HostId,
        /// The event that asked.
        request: EventId,
        /// The certificate's serial number, in hexadecimal.
        serial: Label128,
        /// From when it is good.
        #[serde(with = "time::serde::rfc3339")]
        not_before: OffsetDateTime,
        /// Until when it is good.
        #[serde(with = "time::serde::rfc3339")]
        not_after: OffsetDateTime,
    }
}
