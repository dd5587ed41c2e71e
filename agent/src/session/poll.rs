//! A session by polls: the same machine as in a session with a connection, its messages carried by requests.
//!
//! - Every check is the machine's: signatures, order, bases, no going back. What is said of an update is signed by it, too.
//! - A request waits at the gateway until something changes; an outcome, a change of addresses, a local policy that comes or goes, and a disk that
//!   takes something again cut that short.
//! - States are taken only while nothing is under way, so that one body is in memory at once; a long apply keeps the host heard.
//! - What the disk did not take is asked for anew once it does, in the same session.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{self, Client, Request, Response};
use holdfast_identity::tls;
use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_runtime::Chain;
use holdfast_session::agent::{CloseCause, Dialer, Event, Session};
use holdfast_wire::code::{DirectiveCode, RefusalCode};
use holdfast_wire::decode_as;
use holdfast_wire::enrol::Problem;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::CHUNK_BYTES_MAX;
use holdfast_wire::message::{
    Chunk, Delivery, Directive, DriftReport, HelloAck, Inventory, Liveness, Message, OutcomeReport, SessionLimits,
    Update, UpdateContent,
};
use holdfast_wire::negotiate::{Protocol, ProtocolRange};
use holdfast_wire::sync::{
    SYNC_ANSWER_BYTES_MAX, SYNC_DRIFTS_MAX, SYNC_OUTCOMES_MAX, SYNC_PATH, SYNC_WAIT_MS_MAX, SeenState, SyncAnswer,
    SyncDrift, SyncInventory, SyncOutcome, SyncRequest, SyncState,
};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Shell;
use super::drive::{Applying, is_unkept, or_never, rename, start, warn_refused};
use super::keys::HostKeys;
use super::status::Link;
use crate::enrolment::{self, Enrolment};
use crate::service::{DriftLog, WorkerGone};

/// How much longer than the wait an answer may take to begin, and how long nothing of it may come: a slow link has as long as it takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a host says that it is there while it puts something into force.
const BUSY_INTERVAL: Duration = Duration::from_secs(15);
/// When nothing is waited for: longer than any request.
const FAR: Duration = Duration::from_secs(3600);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("cannot use the host's certificate")]
    Enrolment(#[from] enrolment::Error),
    #[error("cannot make a TLS configuration")]
    Config(#[from] tls::Error),
    #[error("the request has no JSON form")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Exchange(#[from] https::Error),
}

/// What a request that waited came to.
enum Heard {
    Answer(Box<SyncAnswer>),
    /// The session is over, for this reason.
    Closed(CloseCause),
    /// Nothing came of it; why.
    Lost(String),
    /// Something is to be said or asked for that does not wait behind what is only waited for.
    News,
}

/// A session and what it owes.
struct Polls {
    gateway: String,
    machine: Session<HostKeys>,
    session_epoch: Option<SessionEpoch>,
    last_update_seq: UpdateSeq,
    seen: BTreeMap<Component, SeenState>,
    /// What failed once and was asked for once more: one recovery, as in any session.
    retried: BTreeMap<Component, Stamp>,
    /// What the disk did not take.
    unkept: BTreeSet<Component>,
    /// A look at the disk that is under way.
    looking: Option<JoinHandle<bool>>,
    outcomes: Vec<OutcomeReport>,
    drifts: Vec<DriftReport>,
    drift_changes: watch::Receiver<DriftLog>,
    inventory: Option<Inventory>,
    inventory_changes: watch::Receiver<Inventory>,
    local_changes: watch::Receiver<u64>,
    taken_back: watch::Receiver<u64>,
    applying: Option<Applying>,
    closed: Option<CloseCause>,
}

/// Polls a gateway until it is over; why it is. The first request goes on with the session that the gateway's answer to Hello opened.
pub(super) async fn poll(
    shell: &mut Shell,
    dialer: &mut Dialer,
    gateway: &str,
    session_epoch: Option<SessionEpoch>,
) -> Result<CloseCause, WorkerGone> {
    let mut machine = shell.session().await?;
    // Its Hello is what the requests say.
    drop(machine.poll_transmit(&mut Vec::new()));
    let mut polls = Polls {
        gateway: gateway.to_owned(),
        machine,
        session_epoch,
        last_update_seq: UpdateSeq::ZERO,
        seen: BTreeMap::new(),
        retried: BTreeMap::new(),
        unkept: BTreeSet::new(),
        looking: None,
        outcomes: Vec::new(),
        drifts: Vec::new(),
        drift_changes: shell.drift.clone(),
        inventory: Some(shell.inventory.borrow().clone()),
        inventory_changes: shell.inventory.clone(),
        local_changes: shell.local_changes.clone(),
        taken_back: shell.taken_back.clone(),
        applying: None,
        closed: None,
    };
    loop {
        polls.take_events(shell, dialer);
        if let Some(cause) = polls.closed {
            return Ok(cause);
        }
        // What had to wait a moment goes with the next request.
        shell.tell_drift(&mut polls.machine);
        polls.take_words(shell);
        let request = polls.request(shell);
        match polls.hear(shell, &request).await {
            Heard::News => continue,
            Heard::Closed(cause) => return Ok(cause),
            Heard::Lost(why) => {
                shell.tell(|status| status.last_end = Some(why));
                return Ok(CloseCause::Lost);
            }
            Heard::Answer(answer) => {
                polls.outcomes.drain(..request.outcomes.len());
                let is_told = |report: &DriftReport| {
                    request.drifts.iter().any(|told| (told.kind, told.total) == (report.kind, report.total))
                };
                polls.drifts.retain(|report| !is_told(report));
                polls.inventory = None;
                polls.take(shell, dialer, *answer).await?;
            }
        }
        polls.work(shell, dialer).await?;
    }
}

impl Polls {
    /// Asks, and waits for the answer unless something comes that is to be said before.
    async fn hear(&mut self, shell: &mut Shell, request: &SyncRequest) -> Heard {
        let (enrolment, gateway) = (Arc::clone(&shell.enrolment), self.gateway.clone());
        let mut asked = pin!(ask(&enrolment, &gateway, request));
        // What a request says that does not wait is not said twice.
        let may_be_cut = self.is_idle();
        loop {
            self.look_for_room(shell);
            let until = shell.room.poll_timeout().filter(|_| self.looking.is_none());
            let look_in = until.map_or(FAR, |until| until.since(shell.now()));
            tokio::select! {
                heard = &mut asked => return heard,
                // Gateways hear of it by what they send next: at once, by a session that begins anew.
                Ok(()) = self.local_changes.changed() => return Heard::Closed(CloseCause::Lost),
                Ok(()) = self.taken_back.changed() => return Heard::Closed(CloseCause::Lost),
                Ok(()) = self.inventory_changes.changed(), if may_be_cut => {
                    self.inventory = Some(self.inventory_changes.borrow_and_update().clone());
                    return Heard::News;
                }
                Ok(()) = self.drift_changes.changed() => {
                    shell.tell_drift(&mut self.machine);
                    self.take_words(shell);
                    if may_be_cut && !self.drifts.is_empty() {
                        return Heard::News;
                    }
                }
                looked = or_never(&mut self.looking) => {
                    self.looking = None;
                    if matches!(looked, Ok(true)) {
                        self.ask_for_unkept(shell);
                        if may_be_cut {
                            return Heard::News;
                        }
                    }
                }
                () = tokio::time::sleep(look_in) => {}
            }
        }
    }

    /// Looks at a disk that did not take something, when it is time.
    fn look_for_room(&mut self, shell: &mut Shell) {
        if self.looking.is_none() {
            let now = shell.now();
            self.looking = shell.room.look(now);
        }
    }

    /// The disk takes what it did not take before: the next request has not seen what was not kept.
    fn ask_for_unkept(&mut self, shell: &mut Shell) {
        let unkept = std::mem::take(&mut self.unkept);
        tracing::info!(components = unkept.len(), "the disk takes what it did not take before");
        self.seen.retain(|component, _| !unkept.contains(component));
        shell.room.handle_opened();
    }

    /// Whether nothing is under way and nothing is owed: then a request may wait.
    fn is_idle(&self) -> bool {
        self.applying.is_none() && self.outcomes.is_empty() && self.drifts.is_empty() && self.machine.is_open()
    }

    fn request(&self, shell: &Shell) -> SyncRequest {
        let outcomes = self.outcomes.iter().take(SYNC_OUTCOMES_MAX).map(outcome_out).collect();
        let inventory = self.inventory.as_ref().map(|inventory| SyncInventory {
            hostname: inventory.hostname.clone(),
            kernel: inventory.kernel.clone(),
            addresses: inventory.addresses.clone(),
        });
        SyncRequest {
            session_epoch: self.session_epoch,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: Some(shell.boot_id),
            last_update_seq: self.last_update_seq,
            seen: self.seen.values().copied().collect(),
            outcomes,
            drifts: self.drifts.iter().take(SYNC_DRIFTS_MAX).map(drift_out).collect(),
            inventory,
            wait_ms: Some(if self.is_idle() { SYNC_WAIT_MS_MAX } else { 0 }),
        }
    }

    /// Waits for what is under way: its end, or the time to say that the host is there.
    async fn work(&mut self, shell: &mut Shell, dialer: &mut Dialer) -> Result<(), WorkerGone> {
        let until = tokio::time::Instant::now() + BUSY_INTERVAL;
        while let Some(applying) = &mut self.applying {
            let (update_seq, result) = tokio::select! {
                done = applying => done?,
                () = tokio::time::sleep_until(until) => return Ok(()),
            };
            self.applying = None;
            self.machine.handle_result(update_seq, result);
            self.take_events(shell, dialer);
        }
        Ok(())
    }

    /// Takes an answer: what it says of the session first, then states, then what is asked.
    async fn take(&mut self, shell: &mut Shell, dialer: &mut Dialer, answer: SyncAnswer) -> Result<(), WorkerGone> {
        let now = shell.now();
        self.session_epoch = Some(answer.session_epoch);
        if !self.machine.is_open() {
            let ack = ack_of(&answer);
            self.machine.handle_message(Message::HelloAck(ack), now);
        }
        self.take_events(shell, dialer);
        rename(shell, dialer, &answer.gateways).await?;
        for fault in &answer.faults {
            tracing::warn!(gateway = self.gateway, code = fault.code, "the gateway passed over what this host said");
        }
        if self.applying.is_none() && self.closed.is_none() {
            for state in &answer.states {
                self.take_state(state, now);
                self.take_events(shell, dialer);
            }
        }
        for word in &answer.directives {
            let code = match word.as_str() {
                "reconnect" => DirectiveCode::Reconnect,
                "re-enrol" => DirectiveCode::Reenrol,
                _ => DirectiveCode::Unknown(0),
            };
            self.machine.handle_message(Message::Directive(Directive { code, argument: Vec::new() }), now);
            self.take_events(shell, dialer);
        }
        if answer.delivery == Delivery::Push && self.closed.is_none() {
            tracing::info!(gateway = self.gateway, "gateway pushes");
            self.closed = Some(CloseCause::Directed);
        }
        Ok(())
    }

    /// Hands one state to the machine, as the messages that it would be in a session.
    fn take_state(&mut self, state: &SyncState, now: holdfast_session::time::Instant) {
        let SyncState { component, stamp, signature, update_seq, body, too_large_bytes } = state;
        if let Some(bytes) = too_large_bytes {
            tracing::warn!(%component, version = %stamp.version, bytes, "a state is larger than what travels");
        }
        let Some(update_seq) = *update_seq else { return };
        let signature = STANDARD.decode(signature).ok().and_then(|bytes| bytes.try_into().ok());
        let body = body.as_ref().map(|body| STANDARD.decode(body)).transpose();
        let (Some(signature), Ok(body)) = (signature, body) else {
            return self.machine.handle_close(RefusalCode::Malformed, "a state is no base64");
        };
        self.last_update_seq = update_seq;
        self.seen.insert(*component, SeenState { component: *component, stamp: *stamp, applied: false });
        let bytes_total = body.as_ref().map(|body| u32::try_from(body.len()).unwrap_or(u32::MAX));
        let content =
            bytes_total.map_or(UpdateContent::VersionOnly, |bytes_total| UpdateContent::Snapshot { bytes_total });
        let update = Update { update_seq, component: *component, stamp: *stamp, signature, content };
        self.machine.handle_message(Message::Update(update), now);
        let mut offset = 0;
        for piece in body.unwrap_or_default().chunks(CHUNK_BYTES_MAX) {
            self.machine.handle_message(Message::Chunk(Chunk { update_seq, offset, bytes: piece.to_vec() }), now);
            offset += u32::try_from(piece.len()).unwrap_or(0);
        }
        // What was heard by an answer is a sign of life.
        self.machine.handle_message(Message::Liveness(Liveness { counter: 0, status: None }), now);
    }

    /// What the machine tells and says.
    fn take_events(&mut self, shell: &mut Shell, dialer: &mut Dialer) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Opened(ack) => {
                    dialer.handle_opened(shell.now());
                    let gateway = self.gateway.clone();
                    tracing::info!(gateway, session_epoch = ack.session_epoch.raw(), "session of polls is open");
                    shell.tell(|status| {
                        status.authority_epoch = ack.authority.epoch.raw();
                        status.updates = 0;
                        status.refusal = None;
                        status.link = Link::Polling { gateway, session_epoch: ack.session_epoch };
                    });
                    shell.tell_drift(&mut self.machine);
                }
                Event::Apply(apply) => {
                    shell.tell(|status| status.take(apply.component));
                    self.applying = Some(start(shell, *apply));
                }
                Event::Refused { component, stamp, reason } => {
                    warn_refused(shell, &self.gateway, component, stamp, reason);
                }
                Event::Directive(code) => tracing::info!(gateway = self.gateway, ?code, "gateway asks"),
                Event::Fault { code, .. } => {
                    tracing::warn!(gateway = self.gateway, %code, "something out of the protocol")
                }
                Event::Drain(_) => {}
                Event::Closed(cause) => self.closed = Some(cause),
            }
        }
        self.take_words(shell);
    }

    /// Outcomes that the machine has signed; the rest of what it says has no place in a request.
    fn take_words(&mut self, shell: &mut Shell) {
        let mut deframer = Deframer::new(self.machine.frame_bytes_max());
        let mut bytes = Vec::new();
        while let Ok(Some(_)) = self.machine.poll_transmit(&mut bytes) {
            deframer.push(&std::mem::take(&mut bytes));
            let Ok(Some(frame)) = deframer.poll_frame() else { continue };
            match decode_as(ProtocolRange::only(Protocol::NEWEST), &frame) {
                Ok(Message::Outcome(report)) => {
                    self.settle(shell, &report);
                    self.outcomes.push(report);
                }
                Ok(Message::Drift(report)) => {
                    // The newest of a kind counts those before it.
                    self.drifts.retain(|older| older.kind != report.kind);
                    self.drifts.push(report);
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// What came of an update decides what is asked for: what failed once is, once more.
    fn settle(&mut self, shell: &mut Shell, report: &OutcomeReport) {
        self.unkept.remove(&report.component);
        match report.kind {
            OutcomeKind::Applied | OutcomeKind::RetainedLocalOverride => {
                if let Some(seen) = self.seen.get_mut(&report.component).filter(|seen| seen.stamp == report.wanted) {
                    seen.applied = true;
                }
            }
            OutcomeKind::Failed => {
                if report.conditions.iter().any(is_unkept) {
                    self.unkept.insert(report.component);
                    shell.room.handle_unkept(shell.now());
                }
                let again = self.retried.insert(report.component, report.wanted);
                if again != Some(report.wanted) {
                    self.seen.remove(&report.component);
                }
            }
        }
    }
}

/// What an answer says of its session, in the words of a gateway that has a connection.
fn ack_of(answer: &SyncAnswer) -> HelloAck {
    use holdfast_wire::limits::{BYTES_IN_FLIGHT_MAX, UPDATES_IN_FLIGHT_MAX};
    HelloAck {
        protocol: Protocol::NEWEST.number(),
        session_epoch: answer.session_epoch,
        authority: Authority { id: answer.authority_id, epoch: answer.authority_epoch },
        delivery: Delivery::Push,
        liveness_interval_ms: SYNC_WAIT_MS_MAX,
        limits: SessionLimits {
            body_bytes_max: answer.body_bytes_max,
            updates_in_flight_max: u16::try_from(UPDATES_IN_FLIGHT_MAX).unwrap_or(u16::MAX),
            bytes_in_flight_max: u32::try_from(BYTES_IN_FLIGHT_MAX).unwrap_or(u32::MAX),
        },
        gateways: answer.gateways.clone(),
    }
}

fn drift_out(report: &DriftReport) -> SyncDrift {
    let DriftReport { kind, instance, total, age_ms, writer, counts } = report.clone();
    let (process, pid) = writer.map(|writer| (writer.name, writer.pid)).unzip();
    SyncDrift { kind, instance, total, age_ms, process, pid, counts }
}

fn outcome_out(report: &OutcomeReport) -> SyncOutcome {
    SyncOutcome {
        update_seq: report.update_seq,
        component: report.component,
        kind: report.kind.word().to_owned(),
        wanted: report.wanted,
        applied: report.applied,
        conditions: report.conditions.clone(),
        signature: STANDARD.encode(report.signature),
    }
}

/// Asks once.
async fn ask(enrolment: &Enrolment, gateway: &str, request: &SyncRequest) -> Heard {
    let response = match post(enrolment, gateway, request).await {
        Ok(response) => response,
        Err(error) => {
            let text = Chain(&error).to_string();
            tracing::warn!(gateway, error = text, "a poll has no answer");
            return Heard::Lost(text);
        }
    };
    if response.status.is_success() {
        return match serde_json::from_slice(&response.body) {
            Ok(answer) => Heard::Answer(Box::new(answer)),
            Err(error) => {
                tracing::warn!(gateway, %error, "an answer to a poll cannot be read");
                Heard::Lost(format!("the gateway's answer cannot be read: {error}"))
            }
        };
    }
    let retry_after = response.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let retry_after_ms = retry_after.unwrap_or(0).saturating_mul(1_000);
    let problem = serde_json::from_slice::<Problem>(&response.body).ok();
    let status = response.status;
    let (word, detail) =
        problem.map_or_else(|| (String::new(), status.to_string()), |problem| (problem.code, problem.detail));
    let word = word.as_str();
    let theirs = |code, retry_after_ms| Heard::Closed(CloseCause::Theirs { code, retry_after_ms });
    let heard = match word {
        // As a gateway that pushes says by a drain: at once, and with what the host holds.
        "begin-anew" => Heard::Closed(CloseCause::Drained),
        // One that waited goes when it is told; who comes late is told when.
        "draining" => theirs(RefusalCode::Draining, retry_after_ms),
        "too-many-faults" => theirs(RefusalCode::TooManyFaults, 0),
        "certificate-unknown" => theirs(RefusalCode::CertificateRevoked, 0),
        "certificate-expired" => theirs(RefusalCode::CertificateExpired, 0),
        "host-unknown" => theirs(RefusalCode::HostUnknown, 0),
        "contested" => theirs(RefusalCode::Superseded, 30_000),
        "overloaded" => theirs(RefusalCode::Overloaded, 5_000),
        "authority-away" => theirs(RefusalCode::AuthorityAway, 5_000),
        // Its gateway was started anew, or another agent has the session: dialling tells which.
        _ => Heard::Lost(format!("the gateway refuses polls: {detail}")),
    };
    if matches!(word, "begin-anew" | "draining") {
        tracing::info!(gateway, code = word, "a session of polls ends");
    } else {
        tracing::warn!(gateway, status = status.as_u16(), code = word, "a poll is refused");
    }
    heard
}

/// Sends a request and keeps the answer.
async fn post(enrolment: &Enrolment, gateway: &str, request: &SyncRequest) -> Result<Response, PostError> {
    let credential = enrolment.credential()?;
    let config = agent(&credential, &enrolment.roots, AgentProtocol::Http)?;
    let wait = Duration::from_millis(u64::from(request.wait_ms.unwrap_or(SYNC_WAIT_MS_MAX)));
    let asked = Request::new(Method::POST, format!("https://{gateway}{SYNC_PATH}"))
        .header(CONTENT_TYPE, "application/json")?
        .timeout(wait + ANSWER_TIMEOUT)
        .body(serde_json::to_vec(request)?);
    let answer = Client::new(config).open(asked).await?;
    Ok(answer.collect_paced(SYNC_ANSWER_BYTES_MAX, ANSWER_TIMEOUT).await?)
}
