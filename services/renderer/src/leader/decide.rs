//! Decides what gateways asked for: enrolments, certificates, changed addresses.

use holdfast_events::{EnrolmentRefusal, Hint};
use holdfast_identity::KeyRequest;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::LeaseTerm;
use holdfast_runtime::fail_point;
use holdfast_store::request::{Decided, Decision, IssuedCertificate, Request, RequestBody};
use time::OffsetDateTime;

use super::{Means, TermEnd, hint, passes, wait};

/// How many requests are read at once.
const BATCH: u32 = 200;

pub(super) async fn run(means: &Means, term: LeaseTerm) -> TermEnd {
    loop {
        match means.store.waiting_requests(BATCH).await {
            Ok(requests) if requests.is_empty() => wait(&means.wakes.request, None).await,
            Ok(requests) => {
                for request in requests {
                    if let Err(end) = decide(means, term, request).await {
                        return end;
                    }
                }
            }
            Err(error) => {
                if let Err(end) = passes("reading requests", error).await {
                    return end;
                }
            }
        }
    }
}

async fn decide(means: &Means, term: LeaseTerm, request: Request) -> Result<(), TermEnd> {
    let id = request.id;
    let decision = decision_of(means, &request, OffsetDateTime::now_utc());
    let decided = match means.store.decide_request(term, request, decision).await {
        Ok(decided) => decided,
        Err(error) => return passes("deciding a request", error).await,
    };
    match &decided {
        Decided::Enrolled { revision, host } | Decided::Moved { revision, host } => {
            tracing::info!(%host, %revision, "a host enrolled or moved");
            means.wakes.intent.notify_one();
        }
        Decided::Refused(reason) => tracing::warn!(request = %id, %reason, "a request was refused"),
        Decided::Certified { .. } | Decided::NothingNew | Decided::AlreadyDecided => {}
    }
    means.wakes.event.notify_one();
    fail_point("a request", "decided, before it is announced");
    hint(&means.bus, Hint::Answer { request: id }).await;
    Ok(())
}

/// What can be said of a request without the database: whether its certificate request proves a key of a kind that we take.
fn decision_of(means: &Means, request: &Request, now: OffsetDateTime) -> Decision {
    match &request.body {
        RequestBody::Addresses(_) => Decision::Grant(None),
        RequestBody::Certificate { csr } | RequestBody::Enrolment { csr, .. } => {
            match issue(means, request.host, csr, now) {
                Some(certificate) => Decision::Grant(Some(certificate)),
                None => Decision::Refuse(EnrolmentRefusal::BadCertificateRequest),
            }
        }
    }
}

fn issue(means: &Means, host: HostId, csr: &[u8], now: OffsetDateTime) -> Option<IssuedCertificate> {
    let request = match KeyRequest::from_der(csr) {
        Ok(request) => request,
        Err(error) => {
            tracing::warn!(%host, error = %holdfast_runtime::Chain(&error), "a certificate request is refused");
            return None;
        }
    };
    match means.ca.issue_host(host, &request, now) {
        Ok(leaf) => Some(IssuedCertificate {
            serial: leaf.serial.iter().map(|byte| format!("{byte:02x}")).collect(),
            not_before: leaf.validity.not_before,
            not_after: leaf.validity.not_after,
            chain: leaf.chain_pem.into_bytes(),
        }),
        Err(error) => {
            tracing::error!(%host, error = %holdfast_runtime::Chain(&error), "the CA does not sign");
            None
        }
    }
}
