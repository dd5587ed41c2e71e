//! The renderer's side: reading requests and turning accepted ones into hosts, addresses and certificates.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdfast_events::{
    Actor, CertificateIssued, EnrolmentRefusal, EnrolmentRefused, Event, HostAddressesChanged, HostEnrolled, Label128,
};
use holdfast_model::desired::Component;
use holdfast_model::ids::{EventId, HostId};
use holdfast_model::numbers::{LeaseTerm, Revision};
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Request, RequestBody};
use crate::error::Error;
use crate::intent::{insert_revision, latest_revision, lock, next};
use crate::lease::fence;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::token::EnrolTokenRow;
use crate::value::{big, small, text, to_json, verifying_key};

/// A certificate that the renderer made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuedCertificate {
    /// Its serial number, in hexadecimal.
    pub serial: String,
    /// From when it is good.
    pub not_before: OffsetDateTime,
    /// Until when it is good.
    pub not_after: OffsetDateTime,
    /// The chain to hand to the host.
    pub chain: Vec<u8>,
}

/// What the renderer says to a request. What it does not say is decided by the database: whether a name is free, what of a report is new.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Grant it; enrolments and certificates with a certificate.
    Grant(Option<IssuedCertificate>),
    /// Refuse it.
    Refuse(EnrolmentRefusal),
}

/// What came of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decided {
    /// A machine became a host.
    Enrolled {
        /// The revision that this is.
        revision: Revision,
        /// The host.
        host: HostId,
    },
    /// A host is elsewhere.
    Moved {
        /// The revision that this is.
        revision: Revision,
        /// The host.
        host: HostId,
    },
    /// A host has a new certificate.
    Certified {
        /// The host.
        host: HostId,
    },
    /// Nothing that is said is new.
    NothingNew,
    /// It was refused.
    Refused(EnrolmentRefusal),
    /// Another renderer decided before.
    AlreadyDecided,
}

impl Store {
    /// Requests that wait, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored request cannot be read.
    pub async fn waiting_requests(&self, limit: u32) -> Result<Vec<Request>, Error> {
        self.transact("read requests", Mode::Snapshot, move |tx| Box::pin(async move { load_waiting(tx, limit).await }))
            .await
    }

    /// Decides one request, under the renderer's lease: events, revision, host and answer together.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the lease is no longer held.
    pub async fn decide_request(
        &self,
        lease_term: LeaseTerm,
        request: Request,
        decision: Decision,
    ) -> Result<Decided, Error> {
        self.transact("decide a request", Mode::Write, move |tx| {
            let (request, decision) = (request.clone(), decision.clone());
            Box::pin(async move { decide(tx, lease_term, request, decision).await })
        })
        .await
    }
}

#[derive(sqlx::FromRow)]
struct RequestRow {
    request_id: Uuid,
    kind: String,
    host_id: Uuid,
    token_id: Option<Uuid>,
    name: Option<String>,
    addresses: Option<Vec<IpNet>>,
    outcome_key: Option<Vec<u8>>,
    csr: Option<Vec<u8>>,
}

async fn load_waiting(tx: &mut PgConnection, limit: u32) -> Result<Vec<Request>, Error> {
    let rows: Vec<RequestRow> = sqlx::query_as(
        "SELECT request_id, kind, host_id, token_id, name, addresses, outcome_key, csr FROM requests \
         WHERE state = 'waiting' ORDER BY created_at, request_id LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(&mut *tx)
    .await?;
    let mut requests = Vec::with_capacity(rows.len());
    for row in rows {
        let addresses: Vec<IpAddr> = row.addresses.iter().flatten().map(IpNet::addr).collect();
        let lacks = |column| Error::value(column, "nothing");
        let body = match row.kind.as_str() {
            "addresses" => RequestBody::Addresses(addresses),
            "certificate" => RequestBody::Certificate { csr: row.csr.ok_or(lacks("requests.csr"))? },
            "enrolment" => RequestBody::Enrolment {
                name: text("requests.name", row.name.as_deref().unwrap_or_default())?,
                addresses,
                outcome_key: verifying_key("requests.outcome_key", row.outcome_key.as_deref().unwrap_or_default())?,
                csr: row.csr.ok_or(lacks("requests.csr"))?,
                token: Box::new(load_token(tx, row.token_id.ok_or(lacks("requests.token_id"))?).await?),
            },
            other => return Err(Error::value("requests.kind", other)),
        };
        requests.push(Request { id: EventId::new(row.request_id), host: HostId::new(row.host_id), body });
    }
    Ok(requests)
}

async fn load_token(tx: &mut PgConnection, token: Uuid) -> Result<crate::token::EnrolTokenEntry, Error> {
    let row: EnrolTokenRow = sqlx::query_as(
        "SELECT token_id, namespace, labels, ports, region, owner, address_scope, uses_max, uses, expires_at, \
                created_at, revoked_at FROM enrol_tokens WHERE token_id = $1",
    )
    .bind(token)
    .fetch_one(tx)
    .await?;
    row.entry()
}

/// The addresses of a list that are in a range, sorted and unique. An empty range is any.
fn within(addresses: &[IpAddr], scope: &[IpNet]) -> Vec<IpAddr> {
    let is_in = |address: &&IpAddr| scope.is_empty() || scope.iter().any(|net| net.contains(*address));
    let sorted: BTreeSet<IpAddr> = addresses.iter().filter(is_in).copied().collect();
    sorted.into_iter().collect()
}

/// Where a host is that reports these addresses, if that is elsewhere than before. A host that says it is nowhere within its range keeps its
/// last place: it can still be reached, or it could not have said so.
pub(super) fn moved_to(reported: &[IpAddr], scope: &[IpNet], old: &[IpNet]) -> Option<Vec<IpAddr>> {
    let addresses = within(reported, scope);
    let is_new = !addresses.is_empty() && !old.iter().map(IpNet::addr).eq(addresses.iter().copied());
    is_new.then_some(addresses)
}

async fn decide(
    tx: &mut PgConnection,
    lease_term: LeaseTerm,
    request: Request,
    decision: Decision,
) -> Result<Decided, Error> {
    fence(tx, lease_term).await?;
    let makes_revision = !matches!(request.body, RequestBody::Certificate { .. });
    let revision = if makes_revision {
        lock(tx).await?;
        Some(next(latest_revision(tx).await?)?)
    } else {
        None
    };
    let waits = sqlx::query("SELECT FROM requests WHERE request_id = $1 AND state = 'waiting' FOR UPDATE")
        .bind(request.id.uuid())
        .fetch_optional(&mut *tx)
        .await?;
    if waits.is_none() {
        return Ok(Decided::AlreadyDecided);
    }
    let mut outbox = Outbox::new(Actor::Renderer);
    let certificate = match &decision {
        Decision::Grant(certificate) => certificate.as_ref(),
        Decision::Refuse(_) => None,
    };
    let decided = match (&decision, &request.body, revision) {
        (Decision::Refuse(reason), _, _) => Decided::Refused(*reason),
        (Decision::Grant(_), RequestBody::Addresses(addresses), Some(revision)) => {
            relocate(tx, &mut outbox, revision, request.host, addresses).await?
        }
        (Decision::Grant(_), RequestBody::Enrolment { .. }, Some(revision)) => {
            enrol(tx, &mut outbox, revision, &request).await?
        }
        (Decision::Grant(_), _, _) if is_out(tx, request.host).await? => {
            Decided::Refused(EnrolmentRefusal::Decommissioned)
        }
        (Decision::Grant(_), _, _) => Decided::Certified { host: request.host },
    };
    match (&decided, certificate) {
        (Decided::Enrolled { host, .. } | Decided::Certified { host }, Some(certificate)) => {
            certify(tx, &mut outbox, *host, request.id, certificate).await?;
        }
        (Decided::Refused(reason), _) if matches!(request.body, RequestBody::Enrolment { .. }) => {
            let refused = EnrolmentRefused { request: request.id, host: request.host, reason: *reason };
            outbox.push_as(Actor::Renderer, Some(request.id), &Event::from(refused))?;
        }
        (_, _) => {}
    }
    answer(tx, request.id, &decided, certificate).await?;
    outbox.write(tx).await?;
    Ok(decided)
}

/// Whether a host was taken out.
async fn is_out(tx: &mut PgConnection, host: HostId) -> Result<bool, Error> {
    let out = "SELECT NOT EXISTS (SELECT FROM hosts WHERE host_id = $1 AND decommissioned_at IS NULL)";
    Ok(sqlx::query_scalar(out).bind(host.uuid()).fetch_one(tx).await?)
}

async fn answer(
    tx: &mut PgConnection,
    request: EventId,
    decided: &Decided,
    certificate: Option<&IssuedCertificate>,
) -> Result<(), Error> {
    let (state, refusal, chain) = match decided {
        Decided::Refused(reason) => ("refused", Some(reason.word()), None),
        Decided::Enrolled { .. }
        | Decided::Moved { .. }
        | Decided::Certified { .. }
        | Decided::NothingNew
        | Decided::AlreadyDecided => ("granted", None, certificate.map(|certificate| certificate.chain.as_slice())),
    };
    sqlx::query(
        "UPDATE requests SET state = $2, refusal = $3, certificate_chain = $4, answered_at = transaction_timestamp() \
         WHERE request_id = $1",
    )
    .bind(request.uuid())
    .bind(state)
    .bind(refusal)
    .bind(chain)
    .execute(tx)
    .await?;
    Ok(())
}

async fn relocate(
    tx: &mut PgConnection,
    outbox: &mut Outbox,
    revision: Revision,
    host: HostId,
    reported: &[IpAddr],
) -> Result<Decided, Error> {
    let row: Option<(Vec<IpNet>, Vec<IpNet>)> = sqlx::query_as(
        "SELECT h.address_scope, f.addresses FROM hosts h JOIN host_facts f USING (host_id) \
         WHERE h.host_id = $1 AND f.to_revision IS NULL",
    )
    .bind(host.uuid())
    .fetch_optional(&mut *tx)
    .await?;
    let Some((scope, old)) = row else { return Ok(Decided::NothingNew) };
    let Some(addresses) = moved_to(reported, &scope, &old) else { return Ok(Decided::NothingNew) };
    let nets: Vec<IpNet> = addresses.iter().copied().map(IpNet::from).collect();
    sqlx::query("UPDATE host_facts SET to_revision = $2 WHERE host_id = $1 AND to_revision IS NULL")
        .bind(host.uuid())
        .bind(big(revision.raw())?)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "INSERT INTO host_facts (host_id, labels, ports, addresses, from_revision) \
         SELECT host_id, labels, ports, $3, $2 FROM host_facts WHERE host_id = $1 AND to_revision = $2",
    )
    .bind(host.uuid())
    .bind(big(revision.raw())?)
    .bind(nets)
    .execute(&mut *tx)
    .await?;
    insert_revision(tx, revision, Actor::Host(host), None).await?;
    outbox.push_as(Actor::Host(host), None, &Event::from(HostAddressesChanged { revision, host, addresses }))?;
    Ok(Decided::Moved { revision, host })
}

async fn enrol(
    tx: &mut PgConnection,
    outbox: &mut Outbox,
    revision: Revision,
    request: &Request,
) -> Result<Decided, Error> {
    let RequestBody::Enrolment { name, addresses, outcome_key, token, .. } = &request.body else {
        return Err(Error::value("requests.kind", "not an enrolment"));
    };
    let scope = &token.scope;
    let addresses = within(addresses, &scope.address_scope);
    if addresses.is_empty() {
        return Ok(Decided::Refused(EnrolmentRefusal::AddressOutOfScope));
    }
    let is_taken: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM hosts WHERE namespace = $1 AND name = $2 AND decommissioned_at IS NULL)",
    )
    .bind(scope.namespace.as_str())
    .bind(name.as_str())
    .fetch_one(&mut *tx)
    .await?;
    if is_taken {
        return Ok(Decided::Refused(EnrolmentRefusal::NameTaken));
    }
    let enrolled = HostEnrolled {
        revision,
        host: request.host,
        namespace: scope.namespace.clone(),
        name: name.clone(),
        labels: scope.labels.clone(),
        ports: scope.ports.clone(),
        addresses,
        address_scope: scope.address_scope.clone(),
        region: scope.region.clone(),
        owner: scope.owner.clone(),
        token: scope.token,
        outcome_key: *outcome_key,
    };
    insert_revision(tx, revision, Actor::Host(request.host), None).await?;
    insert_host(tx, &enrolled).await?;
    outbox.push_as(Actor::Host(request.host), Some(request.id), &Event::from(enrolled))?;
    Ok(Decided::Enrolled { revision, host: request.host })
}

/// The rows of a new host: what it is, and an explicit "nothing yet" for its session and each component.
async fn insert_host(tx: &mut PgConnection, host: &HostEnrolled) -> Result<(), Error> {
    let nets: Vec<IpNet> = host.addresses.iter().copied().map(IpNet::from).collect();
    sqlx::query(
        "INSERT INTO hosts (host_id, namespace, name, region, owner, address_scope, token_id, outcome_key, enrolled_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, transaction_timestamp())",
    )
    .bind(host.host.uuid())
    .bind(host.namespace.as_str())
    .bind(host.name.as_str())
    .bind(host.region.as_ref().map(holdfast_model::name::Name::as_str))
    .bind(host.owner.as_ref().map(Label128::as_str))
    .bind(&host.address_scope)
    .bind(host.token.uuid())
    .bind(host.outcome_key.as_bytes().as_slice())
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "INSERT INTO host_facts (host_id, labels, ports, addresses, from_revision) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(host.host.uuid())
    .bind(to_json("host_facts.labels", &host.labels)?)
    .bind(to_json("host_facts.ports", &host.ports)?)
    .bind(nets)
    .bind(big(host.revision.raw())?)
    .execute(&mut *tx)
    .await?;
    sqlx::query("INSERT INTO sessions (host_id, session_epoch) VALUES ($1, 0)")
        .bind(host.host.uuid())
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "INSERT INTO observed (host_id, component, session_epoch, update_seq, conditions) \
         SELECT $1, component, 0, 0, '[]' FROM UNNEST($2::smallint[]) AS r (component)",
    )
    .bind(host.host.uuid())
    .bind(Component::ALL.map(small).as_slice())
    .execute(tx)
    .await?;
    Ok(())
}

async fn certify(
    tx: &mut PgConnection,
    outbox: &mut Outbox,
    host: HostId,
    request: EventId,
    certificate: &IssuedCertificate,
) -> Result<(), Error> {
    let issued = CertificateIssued {
        host,
        request,
        serial: Label128::new(&certificate.serial),
        not_before: certificate.not_before.truncate_to_microsecond(),
        not_after: certificate.not_after.truncate_to_microsecond(),
    };
    sqlx::query(
        "INSERT INTO certificates (serial, host_id, request_id, not_before, not_after, issued_at) \
         VALUES ($1, $2, $3, $4, $5, transaction_timestamp())",
    )
    .bind(issued.serial.as_str())
    .bind(host.uuid())
    .bind(request.uuid())
    .bind(issued.not_before)
    .bind(issued.not_after)
    .execute(tx)
    .await?;
    outbox.push_as(Actor::Renderer, Some(request), &Event::from(issued))?;
    Ok(())
}
