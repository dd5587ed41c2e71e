//! The gateway's side: writing requests and reading their answers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_events::{Actor, CertificateRequested, EnrolmentRefusal, EnrolmentRequested, Event, VerifyingKeyBytes};
use holdfast_model::ids::{EnrolTokenId, EventId, GatewayId, HostId};
use holdfast_model::name::Name;
use ipnet::IpNet;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::decide::moved_to;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};
use crate::token::TokenHash;
use crate::value::text;

/// A machine that wants to become a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enrolment {
    /// The hash of the token's secret that it showed.
    pub hash: TokenHash,
    /// The name that it asks for.
    pub name: Name,
    /// The addresses that it says it has.
    pub addresses: Vec<IpAddr>,
    /// The key with which it will sign its outcomes.
    pub outcome_key: VerifyingKeyBytes,
    /// Its certificate request, in DER.
    pub csr: Vec<u8>,
}

/// Why a token was not taken. One answer for all would hide nothing worth hiding: nobody guesses 256 bits, and operators need the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenRefusal {
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
    /// It was used as often as it may be.
    Spent,
    /// There is no such token.
    Unknown,
}

/// How far a request is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestAnswer {
    /// The renderer has not decided.
    Waiting,
    /// It was granted.
    Granted {
        /// The certificate chain, as the renderer wrote it; absent for a report of addresses.
        certificate_chain: Option<Vec<u8>>,
    },
    /// It was refused.
    Refused(EnrolmentRefusal),
}

impl Store {
    /// Takes one use of a token and writes the request; if the token is not good, nothing is written. The same request once more is the one that is
    /// there and takes no use: whoever lost the answer asks again. Where its certificate is past two thirds of its life by then, and the host never
    /// had a session, the answer is a new request for the next certificate of the same host. Where its host was taken out, it is a new enrolment.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if a use may be gone without an answer.
    pub async fn request_enrolment(
        &self,
        gateway: GatewayId,
        enrolment: Enrolment,
    ) -> Result<Result<(EventId, HostId), TokenRefusal>, Error> {
        let host = HostId::new(Uuid::now_v7());
        self.transact("request an enrolment", Mode::Write, move |tx| {
            let enrolment = enrolment.clone();
            Box::pin(async move { enrol(tx, gateway, host, enrolment).await })
        })
        .await
    }

    /// Writes a host's request for its next certificate.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn request_certificate(&self, gateway: GatewayId, host: HostId, csr: Vec<u8>) -> Result<EventId, Error> {
        self.transact("request a certificate", Mode::Write, move |tx| {
            let csr = csr.clone();
            Box::pin(async move { insert_certificate_request(tx, gateway, host, &csr).await })
        })
        .await
    }

    /// Writes what hosts say of where they are; what is not new, or not in a host's range, is not written. The renderer decides again.
    ///
    /// # Errors
    /// [`Error`] of the connection.
    pub async fn report_addresses(
        &self,
        gateway: GatewayId,
        reports: Vec<(HostId, Vec<IpAddr>)>,
    ) -> Result<Vec<EventId>, Error> {
        self.transact("report addresses", Mode::Write, move |tx| {
            let reports = reports.clone();
            Box::pin(async move { write_reports(tx, gateway, &reports).await })
        })
        .await
    }

    /// How far requests are, and of which host each is; one that is not known is not in the answer.
    ///
    /// # Errors
    /// [`Error::Value`] if a stored answer cannot be read.
    pub async fn request_answers(
        &self,
        requests: Vec<EventId>,
    ) -> Result<Vec<(EventId, HostId, RequestAnswer)>, Error> {
        self.transact("read answers", Mode::Snapshot, move |tx| {
            let ids: Vec<Uuid> = requests.iter().map(|id| id.uuid()).collect();
            Box::pin(async move {
                let rows: Vec<AnswerRow> = sqlx::query_as(
                    "SELECT request_id, host_id, state, refusal, certificate_chain FROM requests \
                     WHERE request_id = ANY($1)",
                )
                .bind(ids)
                .fetch_all(tx)
                .await?;
                rows.into_iter().map(answer).collect()
            })
        })
        .await
    }
}

type AnswerRow = (Uuid, Uuid, String, Option<String>, Option<Vec<u8>>);

fn answer((id, host, state, refusal, chain): AnswerRow) -> Result<(EventId, HostId, RequestAnswer), Error> {
    let answer = match state.as_str() {
        "waiting" => RequestAnswer::Waiting,
        "granted" => RequestAnswer::Granted { certificate_chain: chain },
        "refused" => RequestAnswer::Refused(text("requests.refusal", refusal.as_deref().unwrap_or_default())?),
        other => return Err(Error::value("requests.state", other)),
    };
    Ok((EventId::new(id), HostId::new(host), answer))
}

async fn why_refused(tx: &mut PgConnection, hash: TokenHash) -> Result<TokenRefusal, Error> {
    let row: Option<(bool, bool)> = sqlx::query_as(
        "SELECT t.revoked_at IS NOT NULL, t.uses >= t.uses_max FROM enrol_token_hashes h JOIN enrol_tokens t \
         USING (token_id) WHERE h.hash = $1",
    )
    .bind(hash.0.as_slice())
    .fetch_optional(tx)
    .await?;
    Ok(match row {
        None => TokenRefusal::Unknown,
        Some((true, _)) => TokenRefusal::Revoked,
        Some((false, true)) => TokenRefusal::Spent,
        Some((false, false)) => TokenRefusal::Expired,
    })
}

async fn insert_certificate_request(
    tx: &mut PgConnection,
    gateway: GatewayId,
    host: HostId,
    csr: &[u8],
) -> Result<EventId, Error> {
    let mut outbox = Outbox::new(Actor::Gateway(gateway));
    let id = outbox.push_as(Actor::Host(host), None, &Event::from(CertificateRequested { host }))?;
    sqlx::query(
        "INSERT INTO requests (request_id, kind, host_id, gateway_id, csr) VALUES ($1, 'certificate', $2, $3, $4)",
    )
    .bind(id.uuid())
    .bind(host.uuid())
    .bind(gateway.uuid())
    .bind(csr)
    .execute(&mut *tx)
    .await?;
    outbox.write(tx).await?;
    Ok(id)
}

/// The request whose answer is of use to whoever finishes the enrolment `enrolment` of `host`: that one, until what it was granted is past two
/// thirds of its life, when a certificate is renewed. Then it is the newest one for the same key that is of use, or a new one. A host that had a
/// session has an identity and renews by it. Held by the token's row, so that two who ask at once get one.
async fn usable_request(
    tx: &mut PgConnection,
    gateway: GatewayId,
    enrolment: EventId,
    host: HostId,
    csr: &[u8],
) -> Result<EventId, Error> {
    let is_late: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM certificates WHERE request_id = $1 AND host_id = $2 \
         AND clock_timestamp() >= not_before + (not_after - not_before) * 2 / 3) \
         AND EXISTS (SELECT FROM sessions WHERE host_id = $2 AND session_epoch = 0)",
    )
    .bind(enrolment.uuid())
    .bind(host.uuid())
    .fetch_one(&mut *tx)
    .await?;
    if !is_late {
        return Ok(enrolment);
    }
    let next: Option<Uuid> = sqlx::query_scalar(
        "SELECT r.request_id FROM requests r LEFT JOIN certificates c ON c.host_id = r.host_id \
         AND c.request_id = r.request_id WHERE r.kind = 'certificate' AND r.host_id = $1 AND r.csr = $2 \
         AND (r.state = 'waiting' OR clock_timestamp() < c.not_before + (c.not_after - c.not_before) * 2 / 3) \
         ORDER BY r.created_at DESC, r.request_id DESC LIMIT 1",
    )
    .bind(host.uuid())
    .bind(csr)
    .fetch_optional(&mut *tx)
    .await?;
    match next {
        Some(id) => Ok(EventId::new(id)),
        None => insert_certificate_request(tx, gateway, host, csr).await,
    }
}

async fn enrol(
    tx: &mut PgConnection,
    gateway: GatewayId,
    host: HostId,
    enrolment: Enrolment,
) -> Result<Result<(EventId, HostId), TokenRefusal>, Error> {
    let Enrolment { hash, name, addresses, outcome_key, csr } = enrolment;
    let nets: Vec<IpNet> = addresses.iter().copied().map(IpNet::from).collect();
    // The token first: by the time that it is ours, the same request by another gateway is written whole or not at all.
    sqlx::query(
        "SELECT FROM enrol_tokens t JOIN enrol_token_hashes h USING (token_id) WHERE h.hash = $1 \
         FOR NO KEY UPDATE OF t",
    )
    .bind(hash.0.as_slice())
    .execute(&mut *tx)
    .await?;
    let known: Option<(Uuid, Uuid)> = sqlx::query_as(
        "SELECT r.request_id, r.host_id FROM requests r JOIN enrol_token_hashes h USING (token_id) \
         WHERE r.kind = 'enrolment' AND r.outcome_key = $2 AND h.hash = $1 AND r.csr = $3 AND r.name = $4 \
         AND r.addresses = $5 \
         AND NOT EXISTS (SELECT FROM hosts o WHERE o.host_id = r.host_id AND o.decommissioned_at IS NOT NULL)",
    )
    .bind(hash.0.as_slice())
    .bind(outcome_key.as_bytes().as_slice())
    .bind(&csr)
    .bind(name.as_str())
    .bind(&nets)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some((id, host)) = known {
        let (id, host) = (EventId::new(id), HostId::new(host));
        return Ok(Ok((usable_request(tx, gateway, id, host, &csr).await?, host)));
    }
    let token: Option<Uuid> = sqlx::query_scalar(
        "UPDATE enrol_tokens t SET uses = uses + 1 FROM enrol_token_hashes h \
         WHERE h.hash = $1 AND t.token_id = h.token_id AND t.uses < t.uses_max AND t.revoked_at IS NULL \
         AND t.expires_at > clock_timestamp() RETURNING t.token_id",
    )
    .bind(hash.0.as_slice())
    .fetch_optional(&mut *tx)
    .await?;
    let Some(token) = token else { return Ok(Err(why_refused(tx, hash).await?)) };
    let mut outbox = Outbox::new(Actor::Gateway(gateway));
    let requested =
        EnrolmentRequested { host, token: EnrolTokenId::new(token), name: name.clone(), addresses, outcome_key };
    let id = outbox.push_as(Actor::Host(host), None, &requested.into())?;
    sqlx::query(
        "INSERT INTO requests (request_id, kind, host_id, gateway_id, token_id, name, addresses, outcome_key, csr) \
         VALUES ($1, 'enrolment', $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(id.uuid())
    .bind(host.uuid())
    .bind(gateway.uuid())
    .bind(token)
    .bind(name.as_str())
    .bind(nets)
    .bind(outcome_key.as_bytes().as_slice())
    .bind(csr)
    .execute(&mut *tx)
    .await?;
    outbox.write(tx).await?;
    Ok(Ok((id, host)))
}

/// Writes the reports that say something new.
pub(crate) async fn write_reports(
    tx: &mut PgConnection,
    gateway: GatewayId,
    reports: &[(HostId, Vec<IpAddr>)],
) -> Result<Vec<EventId>, Error> {
    let hosts: Vec<Uuid> = reports.iter().map(|(host, _)| host.uuid()).collect();
    let rows: Vec<(Uuid, Vec<IpNet>, Vec<IpNet>)> = sqlx::query_as(
        "SELECT h.host_id, h.address_scope, f.addresses FROM hosts h JOIN host_facts f USING (host_id) \
         WHERE h.host_id = ANY($1) AND f.to_revision IS NULL",
    )
    .bind(hosts)
    .fetch_all(&mut *tx)
    .await?;
    let known: BTreeMap<HostId, (Vec<IpNet>, Vec<IpNet>)> =
        rows.into_iter().map(|(host, scope, old)| (HostId::new(host), (scope, old))).collect();
    let news = reports.iter().filter(|(host, reported)| {
        known.get(host).is_some_and(|(scope, old)| moved_to(reported, scope, old).is_some())
    });
    let (mut ids, mut hosts, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    for (host, reported) in news {
        ids.push(Uuid::now_v7());
        hosts.push(host.uuid());
        addresses.push(reported.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    }
    sqlx::query(
        "INSERT INTO requests (request_id, kind, host_id, gateway_id, addresses) \
         SELECT id, 'addresses', host, $4, string_to_array(addresses, ',')::inet[] \
         FROM UNNEST($1::uuid[], $2::uuid[], $3::text[]) AS r (id, host, addresses)",
    )
    .bind(&ids)
    .bind(hosts)
    .bind(addresses)
    .bind(gateway.uuid())
    .execute(tx)
    .await?;
    Ok(ids.into_iter().map(EventId::new).collect())
}
