//! `POST /agent/v1/sync`: a host asks for what it is to hold, waits while that is what it has, and says how updates ended.
//!
//! - Identity and revocation are checked as for any session, by the same statement, when a session of polls begins.
//! - Version, digest and signature come from one row each; the body is named by that digest. Outcomes count by the same rules as in a session.
//! - Nothing of it goes through the scheduler, and an answer holds no copy of a body: pieces are made as the socket takes them.
//! - What a host says is bounded by session, and sessions by host: who says what is not so, or begins one after the other, is told to stop.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use holdfast_events::{AgentVersion, CloseReason, Fault as FaultWord};
use holdfast_identity::tls::{Admission, HostPeer};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::statement::{OutcomeKind, outcome_bytes};
use holdfast_session::gateway::{Answer, FaultOrigin, Supply, Want};
use holdfast_store::session::{Instance, Opening, Seen};
use holdfast_wire::code::FaultCode;
use holdfast_wire::limits::{
    ADDRESSES_MAX, AGENT_VERSION_BYTES_MAX, BODY_BYTES_MAX, CONDITIONS_MAX, HOSTNAME_BYTES_MAX, KERNEL_BYTES_MAX,
    NUMBER_MAX, TEXT_BYTES_MAX, WRITER_BYTES_MAX,
};
use holdfast_wire::message::{DriftReport, OutcomeReport, SignatureBytes, Writer};
use holdfast_wire::sync::{
    SYNC_DRIFTS_MAX, SYNC_LAST_UPDATE_SEQ_MAX, SYNC_OUTCOMES_MAX, SYNC_PATH, SYNC_REQUEST_BYTES_MAX, SYNC_WAIT_MS_MAX,
    SyncAnswer, SyncDrift, SyncFault, SyncInventory, SyncOutcome, SyncRequest, SyncState,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::context::Context;
use super::enrol::{Refusal, read_to};
use super::gauges;
use super::limits::{POLL_READ_RETRY, SYNC_PIECE_BYTES};
use super::polls::{Asked, Ending, Poll, Standing, Turn};
use super::store::Admitted;
use super::words::{drift_of, outcome_of, statement_of};

/// From where a connection came, for its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct CameFrom(pub(super) IpAddr);

/// The call.
pub(super) fn router(context: Arc<Context>) -> Router {
    Router::new().route(SYNC_PATH, post(sync)).method_not_allowed_fallback(async || Refusal::Method).with_state(context)
}

async fn sync(
    State(at): State<Arc<Context>>,
    Extension(admission): Extension<Admission>,
    Extension(CameFrom(from)): Extension<CameFrom>,
    body: Body,
) -> Result<Response, Refusal> {
    let peer = match admission {
        Admission::HttpHost(peer) => peer,
        Admission::HttpAnonymous | Admission::Session(_) => return Err(Refusal::NoCertificate),
    };
    let request: SyncRequest = read_to(body, SYNC_REQUEST_BYTES_MAX).await?;
    check(&request)?;
    // A connection is authenticated once, and lives on.
    if at.is_past(peer.validity.not_after) {
        return Err(Refusal::CertificateExpired);
    }
    if at.shutdown.is_asked() {
        return Err(Refusal::Draining(at.leave_after()));
    }
    let poll = session_of(&at, &peer, from, &request).await?;
    let turn = poll.begin();
    at.recorder.put_heard(poll.host, poll.session_epoch);
    if let Some(inventory) = &request.inventory {
        take_addresses(&poll, inventory);
    }
    record_addresses(&at, &poll)?;
    let faults = take_outcomes(&at, &poll, &request.outcomes)?;
    take_drifts(&at, &poll, request.drifts.clone())?;
    let Looked { found, mut asked, unread } = look_until(&at, &peer, &poll, &request, || turn.standing()).await?;
    let (head, pieces) = answer(&at, &poll, &request, found, &mut asked, faults, unread)?;
    metrics::counter!("holdfast_gateway_syncs_total", "outcome" => head).increment(1);
    Ok(streamed(pieces, turn, asked))
}

/// Takes a host's addresses.
fn take_addresses(poll: &Poll, inventory: &SyncInventory) {
    let mut addresses: Vec<_> = inventory.addresses.iter().map(|address| address.to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    poll.addresses(|known| known.handle_said(addresses));
}

/// Records a host's newest addresses once their turn is there: an agent says them once.
fn record_addresses(at: &Context, poll: &Poll) -> Result<(), Refusal> {
    let Some(addresses) = poll.addresses(|known| known.poll_record(at.now())) else { return Ok(()) };
    record(at, poll, Seen::Addresses(addresses.clone()))?;
    poll.addresses(|known| known.handle_recorded(addresses));
    Ok(())
}

/// Records what a host found in its kernel. What comes too often is passed over: the next one of its kind counts it.
fn take_drifts(at: &Context, poll: &Poll, drifts: Vec<SyncDrift>) -> Result<(), Refusal> {
    for drift in drifts {
        let SyncDrift { kind, instance, total, age_ms, process, pid, counts } = drift;
        if total == 0 {
            return Err(Refusal::Field { field: "drifts.total", reason: "what never happened is not told".to_owned() });
        }
        if !poll.may_tell_drift(at.now()) {
            tracing::debug!(host = %poll.host, "drift is told too often and passed over");
            continue;
        }
        let writer = process.map(|name| Writer { pid: pid.unwrap_or(0), name });
        let said = drift_of(DriftReport { kind, instance, total, age_ms, writer, counts });
        record(at, poll, Seen::Drift(Box::new(said)))?;
    }
    Ok(())
}

/// Takes outcomes; those that are passed over. A session survives so many of them, as any other.
fn take_outcomes(at: &Context, poll: &Arc<Poll>, outcomes: &[SyncOutcome]) -> Result<Vec<SyncFault>, Refusal> {
    let mut faults = Vec::new();
    for outcome in outcomes {
        if let Err((code, word)) = take_outcome(at, poll, outcome)? {
            tracing::warn!(host = %poll.host, %code, "the agent broke the protocol");
            gauges::record_fault(FaultOrigin::Seen, code);
            record(at, poll, Seen::Fault { fault: word, component: None, update_seq: Some(outcome.update_seq) })?;
            faults.push(SyncFault { code: code.word().to_owned(), update_seq: outcome.update_seq });
            if poll.is_fault_too_many() {
                at.registry.polls().end(poll, Some(CloseReason::ProtocolFault));
                return Err(Refusal::TooManyFaults);
            }
        }
    }
    Ok(faults)
}

/// Holds the fields of a request against their caps; what is beyond the body's own cap never came here.
fn check(request: &SyncRequest) -> Result<(), Refusal> {
    let over = |field, size: usize, size_max: usize| {
        let reason = format!("{size} where at most {size_max} are taken");
        if size <= size_max { Ok(()) } else { Err(Refusal::Field { field, reason }) }
    };
    over(
        "wait_ms",
        request.wait_ms.map_or(0, |ms| usize::try_from(ms).unwrap_or(usize::MAX)),
        SYNC_WAIT_MS_MAX as usize,
    )?;
    over("agent_version", request.agent_version.len(), AGENT_VERSION_BYTES_MAX)?;
    over("outcomes", request.outcomes.len(), SYNC_OUTCOMES_MAX)?;
    over("seen", request.seen.len(), Component::ALL.len())?;
    over("drifts", request.drifts.len(), SYNC_DRIFTS_MAX)?;
    for drift in &request.drifts {
        over("drifts.process", drift.process.as_ref().map_or(0, String::len), WRITER_BYTES_MAX)?;
    }
    for outcome in &request.outcomes {
        over("outcomes.conditions", outcome.conditions.len(), CONDITIONS_MAX)?;
        for condition in &outcome.conditions {
            over("outcomes.conditions.message", condition.message.len(), TEXT_BYTES_MAX)?;
        }
    }
    if let Some(inventory) = &request.inventory {
        over("inventory.hostname", inventory.hostname.len(), HOSTNAME_BYTES_MAX)?;
        over("inventory.kernel", inventory.kernel.len(), KERNEL_BYTES_MAX)?;
        over("inventory.addresses", inventory.addresses.len(), ADDRESSES_MAX)?;
    }
    check_numbers(request)
}

/// Holds the numbers of a request against what is stored of them: one that is too large would be in the way of what others said.
fn check_numbers(request: &SyncRequest) -> Result<(), Refusal> {
    let over = |field, number: u64, number_max: u64| {
        let reason = format!("{number} where at most {number_max} is taken");
        if number <= number_max { Ok(()) } else { Err(Refusal::Field { field, reason }) }
    };
    let version = |field, stamp: &Stamp| over(field, stamp.version.raw(), NUMBER_MAX);
    // What is answered has numbers that follow it.
    over("last_update_seq", request.last_update_seq.raw(), SYNC_LAST_UPDATE_SEQ_MAX)?;
    request.seen.iter().try_for_each(|seen| version("seen.version", &seen.stamp))?;
    for outcome in &request.outcomes {
        over("outcomes.update_seq", outcome.update_seq.raw(), NUMBER_MAX)?;
        version("outcomes.wanted", &outcome.wanted)?;
        outcome.applied.iter().try_for_each(|applied| version("outcomes.applied", applied))?;
        for observed in outcome.conditions.iter().filter_map(|condition| condition.observed_version) {
            over("outcomes.conditions.observed_version", observed.raw(), NUMBER_MAX)?;
        }
    }
    Ok(())
}

/// The session that a request goes on with, or a new one.
async fn session_of(at: &Context, peer: &HostPeer, from: IpAddr, request: &SyncRequest) -> Result<Arc<Poll>, Refusal> {
    if let Some(session_epoch) = request.session_epoch {
        return at.registry.polls().find(peer.host, session_epoch).ok_or(Refusal::SessionOver);
    }
    let opening = Opening {
        host: peer.host,
        certificate_serial: peer.serial.clone(),
        agent_version: AgentVersion::new(&request.agent_version),
        instance: Instance { boot_id: request.boot_id.unwrap_or(Uuid::nil()), address: from },
        applied: request.seen.iter().filter(|seen| seen.applied).map(|seen| (seen.component, seen.stamp)).collect(),
        protocol: None,
    };
    at.openings.begin(peer.host, std::time::Instant::now()).map_err(Refusal::OpenedJustNow)?;
    let place = at.admission.enter().map_err(|crowded| {
        at.openings.give_back(peer.host);
        Refusal::Crowded(millis(crowded.retry_after_ms))
    })?;
    let admitted = at.opens.ask(opening).await.flatten();
    drop(place);
    match admitted {
        Some(Admitted::Session { session_epoch, authority, outcome_key, .. }) => {
            let poll = at.registry.insert_poll(peer.host, session_epoch, authority, outcome_key);
            let poll = poll.ok_or(Refusal::SessionOver)?;
            tracing::info!(host = %peer.host, %session_epoch, "session of polls opened");
            // One that came in beside the drain was told no moment to leave.
            if at.shutdown.is_asked() {
                at.registry.polls().end(&poll, Some(CloseReason::GatewayStopped));
                return Err(Refusal::Draining(at.leave_after()));
            }
            Ok(poll)
        }
        Some(Admitted::Contested { retry_after_ms }) => Err(Refusal::Contested(millis(retry_after_ms))),
        Some(Admitted::CertificateUnknown) => Err(Refusal::CertificateUnknown),
        Some(Admitted::HostUnknown) => Err(Refusal::HostUnknown),
        None => {
            // It began none: what the authority could not be asked is not counted against who asked.
            at.openings.give_back(peer.host);
            Err(Refusal::AuthorityAway)
        }
    }
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

fn record(at: &Context, poll: &Poll, seen: Seen) -> Result<(), Refusal> {
    poll.record(&at.recorder, seen).map_err(|_| Refusal::AuthorityAway)
}

/// Takes an outcome that is this host's word on what this session answered; what is wrong with another.
fn take_outcome(at: &Context, poll: &Poll, said: &SyncOutcome) -> Result<Result<(), (FaultCode, FaultWord)>, Refusal> {
    let fault = |code, word| Ok(Err((code, word)));
    let signature: Option<SignatureBytes> =
        STANDARD.decode(&said.signature).ok().and_then(|bytes| bytes.try_into().ok());
    let Some((component, stamp)) = poll.offered(said.update_seq) else {
        if signature.is_some_and(|signature| poll.is_settled(said.update_seq, &signature)) {
            return Ok(Ok(()));
        }
        return fault(FaultCode::OutcomeUnmatched, FaultWord::UnknownUpdate);
    };
    let kind = [OutcomeKind::Applied, OutcomeKind::Failed, OutcomeKind::RetainedLocalOverride];
    let kind = kind.into_iter().find(|kind| kind.word() == said.kind);
    let kind = kind.ok_or_else(|| Refusal::Field { field: "outcomes.kind", reason: "no such kind".to_owned() })?;
    if (said.component, said.wanted) != (component, stamp) {
        return fault(FaultCode::OutcomeMismatch, FaultWord::OutcomeMismatch);
    }
    if kind == OutcomeKind::Applied && said.applied != Some(stamp) {
        return fault(FaultCode::OutcomeContradiction, FaultWord::OutcomeContradiction);
    }
    let Some(signature) = signature else { return fault(FaultCode::BadSignature, FaultWord::BadSignature) };
    let report = OutcomeReport {
        update_seq: said.update_seq,
        component,
        kind,
        wanted: stamp,
        applied: said.applied,
        conditions: said.conditions.clone(),
        signature,
    };
    let statement = statement_of(poll.host, poll.session_epoch, &report);
    let bytes = outcome_bytes(poll.authority, &statement, &report.conditions);
    if poll.outcome_key.verify(&bytes, &holdfast_identity::Signature(signature)).is_err() {
        return fault(FaultCode::BadSignature, FaultWord::BadSignature);
    }
    // Where there is no room for it, it counts when it comes again.
    record(at, poll, Seen::Outcome(Box::new(outcome_of(poll.host, poll.session_epoch, report))))?;
    poll.settle(said.update_seq, signature);
    Ok(Ok(()))
}

/// One component as it is desired now.
#[derive(Clone, Debug)]
struct Found {
    component: Component,
    stamp: Stamp,
    signature: SignatureBytes,
    body: Arc<[u8]>,
    is_news: bool,
}

/// What a look came to.
#[derive(Debug)]
struct Looked {
    found: Vec<Found>,
    asked: Asked,
    /// Nothing is known of what is desired.
    unread: bool,
}

/// Looks until there is something to answer or the wait is over: then there is nothing, or nothing could be read.
async fn look_until(
    at: &Context,
    peer: &HostPeer,
    poll: &Arc<Poll>,
    request: &SyncRequest,
    standing: impl Fn() -> Standing,
) -> Result<Looked, Refusal> {
    let wait = request.wait_ms.unwrap_or(SYNC_WAIT_MS_MAX).min(SYNC_WAIT_MS_MAX);
    let deadline = Instant::now() + Duration::from_millis(u64::from(wait));
    let mut looks = poll.looks();
    let mut unread = true;
    loop {
        looks.borrow_and_update();
        match standing() {
            Standing::Current => {}
            Standing::Replaced => return Ok(Looked { found: Vec::new(), asked: Asked::default(), unread }),
            // At its own moment: it may go at once.
            Standing::Ended(_) if at.shutdown.is_asked() => return Err(Refusal::Draining(Duration::ZERO)),
            Standing::Ended(Ending::Over) => return Err(Refusal::SessionOver),
            Standing::Ended(Ending::Anew) => return Err(Refusal::BeginAnew),
        }
        if at.is_past(peer.validity.not_after) {
            return Err(Refusal::CertificateExpired);
        }
        let asked = poll.asked();
        let found = look(at, poll, request, &asked).await?;
        unread = found.is_none();
        let is_news = found.as_ref().is_some_and(|found| found.iter().any(|one| one.is_news));
        if is_news || asked.words().next().is_some() {
            // What could not be read stays asked for.
            let asked = if found.is_some() { asked } else { asked.without_resend() };
            return Ok(Looked { found: found.filter(|_| is_news).unwrap_or_default(), asked, unread });
        }
        // What could not be read is tried again before long.
        let until = if found.is_some() { deadline } else { deadline.min(Instant::now() + POLL_READ_RETRY) };
        tokio::select! {
            _ = looks.changed() => {}
            () = tokio::time::sleep_until(until.min(at.until(peer.validity.not_after))) => {}
        }
        if Instant::now() >= deadline {
            return Ok(Looked { found: Vec::new(), asked: Asked::default(), unread });
        }
    }
}

/// The desired state of every component, if any is another than the host has seen; nothing of it where none is. `None` if it cannot be read now.
async fn look(
    at: &Context,
    poll: &Arc<Poll>,
    request: &SyncRequest,
    asked: &Asked,
) -> Result<Option<Vec<Found>>, Refusal> {
    let seen = |component| request.seen.iter().find(|seen| seen.component == component).map(|seen| seen.stamp);
    let tips = Component::ALL.map(|component| (component, seen(component).filter(|_| !asked.is_resend_of(component))));
    let first = tips.map(|(component, tip)| Want { component, tip, snapshot: tip.is_none() });
    let mut is_news = false;
    for (want, read) in first.iter().zip(ask(at, poll, &first).await?) {
        let Some(answer) = read else { return Ok(None) };
        match answer {
            Answer::Unavailable => return Ok(None),
            Answer::Unchanged => {}
            Answer::Current { stamp, .. } => {
                poll.has_read(want.component, stamp.version);
                is_news |= asked.is_resend_of(want.component) || !poll.is_too_large(want.component, stamp);
            }
        }
    }
    if !is_news {
        return Ok(Some(Vec::new()));
    }
    // Whole, all of them: what is answered is the state of one moment for each component.
    let whole = Component::ALL.map(|component| Want { component, tip: None, snapshot: true });
    let mut found = Vec::new();
    for (component, read) in Component::ALL.into_iter().zip(ask(at, poll, &whole).await?) {
        match read {
            None | Some(Answer::Unavailable) => return Ok(None),
            // Never rendered.
            Some(Answer::Unchanged) => {}
            Some(Answer::Current { stamp, signature, supply: Supply::Whole { body, .. } }) => {
                let is_news = asked.is_resend_of(component) || seen(component) != Some(stamp);
                found.push(Found { component, stamp, signature, body, is_news });
            }
            Some(Answer::Current { supply: Supply::SameDigest, .. }) => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Reads; what was signed in another life of the authority is no answer of this session.
async fn ask(at: &Context, poll: &Arc<Poll>, wants: &[Want]) -> Result<Vec<Option<Answer>>, Refusal> {
    let reads = join_all(wants.iter().map(|want| at.narrow.ask((poll.host, *want)))).await;
    let mut answers = Vec::with_capacity(reads.len());
    for read in reads {
        // The host went elsewhere meanwhile: what was read is for its newer session.
        if read.as_ref().and_then(|read| read.newest_session).is_some_and(|newest| newest > poll.session_epoch) {
            at.registry.polls().end(poll, None);
            return Err(Refusal::SessionOver);
        }
        let signed = read.as_ref().and_then(|read| read.authority_epoch);
        match signed.map(|signed| signed.cmp(&poll.authority.epoch)) {
            // The authority has a new life: the host begins a session in it.
            Some(std::cmp::Ordering::Greater) => {
                at.registry.polls().end(poll, Some(CloseReason::Drained));
                return Err(Refusal::BeginAnew);
            }
            // To be signed again.
            Some(std::cmp::Ordering::Less) => answers.push(None),
            Some(std::cmp::Ordering::Equal) | None => answers.push(read.map(|read| read.answer)),
        }
    }
    Ok(answers)
}

/// A part of an answer: text as it is, or a body that becomes base64 as it is sent.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Body(Arc<[u8]>),
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Body(body) => body.len().div_ceil(3) * 4,
        }
    }
}

/// The answer in pieces; its word for who counts.
fn answer(
    at: &Context,
    poll: &Poll,
    request: &SyncRequest,
    found: Vec<Found>,
    asked: &mut Asked,
    faults: Vec<SyncFault>,
    unread: bool,
) -> Result<(&'static str, Vec<Piece>), Refusal> {
    let head = match (found.is_empty(), unread) {
        (false, _) => "changed",
        (true, false) => "unchanged",
        (true, true) => "unread",
    };
    let whole = SyncAnswer {
        host_id: poll.host,
        authority_id: poll.authority.id,
        authority_epoch: poll.authority.epoch,
        session_epoch: poll.session_epoch,
        delivery: at.session.delivery,
        body_bytes_max: at.session.limits.body_bytes_max,
        gateways: at.session.gateways.clone(),
        states: Vec::new(),
        directives: asked.words().map(|kind| kind.word().to_owned()).collect(),
        faults,
        unread,
    };
    let text = json_text(&whole)?;
    let (before, after) = text.split_once("\"states\":[]").ok_or(Refusal::NoAnswer)?;
    let mut pieces = vec![Piece::Text(format!("{before}\"states\":["))];
    let mut next = request.last_update_seq;
    let mut bytes = 0;
    for (nth, found) in found.into_iter().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        let (state, body) = state_of(at, poll, request, &found, asked, &mut next, &mut bytes)?;
        let text = json_text(&state)?;
        match (body, text.strip_suffix('}')) {
            (Some(body), Some(open)) => {
                pieces.push(Piece::Text(format!("{comma}{open},\"body\":\"")));
                pieces.push(Piece::Body(body));
                pieces.push(Piece::Text("\"}".to_owned()));
            }
            (None, _) | (_, None) => pieces.push(Piece::Text(format!("{comma}{text}"))),
        }
    }
    pieces.push(Piece::Text(format!("]{after}")));
    Ok((head, pieces))
}

fn json_text<T: serde::Serialize>(value: &T) -> Result<String, Refusal> {
    serde_json::to_string(value).map_err(|error| {
        tracing::error!(%error, "an answer has no JSON form");
        Refusal::NoAnswer
    })
}

type StateAndBody = (SyncState, Option<Arc<[u8]>>);

/// One component of an answer, and its body if that goes with it.
fn state_of(
    at: &Context,
    poll: &Poll,
    request: &SyncRequest,
    found: &Found,
    asked: &mut Asked,
    next: &mut UpdateSeq,
    bytes: &mut usize,
) -> Result<StateAndBody, Refusal> {
    let Found { component, stamp, signature, body, is_news } = found;
    let (component, stamp) = (*component, *stamp);
    let mut state = SyncState {
        component,
        stamp,
        signature: STANDARD.encode(signature),
        update_seq: None,
        body: None,
        too_large_bytes: None,
    };
    if body.len() > usize::try_from(at.session.limits.body_bytes_max).unwrap_or(usize::MAX) {
        state.too_large_bytes = u64::try_from(body.len()).ok();
        asked.tell_too_large(component, stamp);
        if !poll.log_too_large(component, stamp) {
            gauges::record_too_large(component);
            tracing::error!(host = %poll.host, %component, version = %stamp.version, bytes = body.len(), "a body is too large to be sent");
        }
        return Ok((state, None));
    }
    let seen = request.seen.iter().find(|seen| seen.component == component);
    let is_resend = asked.is_resend_of(component);
    let is_held =
        !is_resend && seen.is_some_and(|seen| seen.applied && seen.stamp.digest == stamp.digest && seen.stamp != stamp);
    let size = if is_held { 0 } else { body.len() };
    let bytes_max = usize::try_from(at.session.limits.bytes_in_flight_max).unwrap_or(usize::MAX).min(BODY_BYTES_MAX);
    // The first body always has room; what has none comes with the next answer.
    if !is_news || (*bytes > 0 && *bytes + size > bytes_max) {
        if is_resend {
            asked.leave(component);
        }
        return Ok((state, None));
    }
    let Some(update_seq) = next.next() else { return Ok((state, None)) };
    *next = update_seq;
    *bytes += size;
    poll.offer(update_seq, component, stamp);
    state.update_seq = Some(update_seq);
    if is_held {
        return Ok((state, None));
    }
    if poll.is_sending_recorded(component, stamp) {
        record(at, poll, Seen::SnapshotSent { component, stamp, update_seq })?;
    }
    Ok((state, Some(Arc::clone(body))))
}

/// The host asks something newer: what its older request was answered is not read to its end.
#[derive(Debug, thiserror::Error)]
#[error("a newer request of this host ended the answer")]
struct NotWanted;

/// An answer whose pieces are made as the socket takes them; until the last of them is taken, its request is under way. One that is not wanted any
/// more is cut off: of the answers to one host one is being made.
pub(super) fn streamed(pieces: Vec<Piece>, turn: Turn, asked: Asked) -> Response {
    let bytes = pieces.iter().map(Piece::bytes).sum();
    let (pieces, end) = (pieces.into_iter(), Some((turn, asked)));
    let made =
        stream::unfold((pieces, None::<(Arc<[u8]>, usize)>, end), move |(mut pieces, mut under_way, mut end)| {
            if let Some((turn, _)) = &end {
                if !turn.is_wanted() {
                    return std::future::ready(Some((Err(NotWanted), (Vec::new().into_iter(), None, None))));
                }
                turn.is_read();
            }
            let made = loop {
                if let Some((body, from)) = under_way.take() {
                    let to = (from + SYNC_PIECE_BYTES).min(body.len());
                    let text = STANDARD.encode(body.get(from..to).unwrap_or_default());
                    under_way = (to < body.len()).then_some((body, to));
                    break Some(text);
                }
                match pieces.next() {
                    Some(Piece::Text(text)) => break Some(text),
                    Some(Piece::Body(body)) => under_way = Some((body, 0)),
                    None => break None,
                }
            };
            if made.is_none()
                && let Some((turn, asked)) = end.take()
            {
                turn.answered(bytes, &asked);
            }
            let made = made.map(|text| (Ok(Bytes::from(text)), (pieces, under_way, end)));
            std::future::ready(made)
        });
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (StatusCode::OK, headers, Body::from_stream(made)).into_response()
}
