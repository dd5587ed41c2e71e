//! One session, from the handshake to its end.
//!
//! Priorities of each turn: what happened is handled; what is to be written is written; then whatever comes first of a byte, a result, a change of
//! addresses, a deadline.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use holdfast_model::condition::{Condition, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::statement::OutcomeKind;
use holdfast_session::agent::{Apply, ApplyResult, CloseCause, Content, Dialer, Event, Session};
use holdfast_session::time::sooner;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::decode_as;
use holdfast_wire::error::FrameError;
use holdfast_wire::frame::Deframer;
use holdfast_wire::message::{Delivery, Inventory};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_rustls::client::TlsStream;

use super::keys::HostKeys;
use super::status::{Link, RefusedUpdate};
use super::{DialError, Shell, left};
use crate::engine::{self, Origin, Update};
use crate::service::{Standing, WorkerGone};

/// One read: a chunk of a body and a little.
const READ_BYTES: usize = 64 << 10;
/// How long a last word may take to be written.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) type Applying = Pin<Box<dyn Future<Output = Result<(UpdateSeq, ApplyResult), WorkerGone>>>>;

/// What the socket owes and is owed.
struct Pump {
    deframer: Deframer,
    out: Vec<u8>,
    is_flushed: bool,
    applying: Option<Applying>,
    /// A look at the disk that is under way.
    looking: Option<JoinHandle<bool>>,
    /// Which end of what is known of the policy was told.
    over_at: Option<std::time::Instant>,
    closed: Option<CloseCause>,
}

/// Holds one session until it is over; why it ended.
pub(super) async fn drive(
    shell: &mut Shell,
    dialer: &mut Dialer,
    gateway: &str,
    stream: TlsStream<TcpStream>,
    session: &mut Session<HostKeys>,
) -> Result<CloseCause, WorkerGone> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut pump = Pump::new(session.frame_bytes_max());
    let mut input = vec![0; READ_BYTES];
    let mut inventory = shell.inventory.clone();
    let (mut local_changes, mut taken_back) = (shell.local_changes.clone(), shell.taken_back.clone());
    let (mut drift, mut standing, mut leaving) = (shell.drift.clone(), shell.standing.clone(), shell.leaving.clone());
    loop {
        // 1. What happened.
        pump.take_events(shell, dialer, gateway, session).await?;
        // 2. What is to be written: one frame at a time, so that liveness never waits behind more than one.
        if pump.out.is_empty()
            && let Err(error) = session.poll_transmit(&mut pump.out)
        {
            tracing::error!(%error, "a message of this host is too large for its frame");
            continue;
        }
        if let Some(cause) = pump.closed
            && pump.out.is_empty()
            && pump.is_flushed
        {
            return Ok(cause);
        }
        pump.look_for_room(shell);
        // 3. Whatever comes first.
        let deadline = pump.deadline(shell, session);
        tokio::select! {
            written = push(&mut writer, &pump.out), if !pump.out.is_empty() || !pump.is_flushed => match written {
                Ok(0) => pump.is_flushed = true,
                Ok(len) => {
                    pump.out.drain(..len);
                    pump.is_flushed = false;
                }
                Err(error) => pump.lose(session, &error),
            },
            read = reader.read(&mut input), if pump.closed.is_none() => match read {
                Ok(0) => session.handle_lost(),
                Ok(len) => {
                    let bytes = input.get(..len).unwrap_or_default();
                    pump.handle_bytes(bytes, shell, dialer, gateway, session).await?;
                }
                Err(error) => pump.lose(session, &error),
            },
            result = or_never(&mut pump.applying) => pump.handle_result(result?, shell, session),
            looked = or_never(&mut pump.looking) => {
                pump.looking = None;
                if matches!(looked, Ok(true)) {
                    shell.own_end = Some("the disk takes what it did not take before");
                    return Ok(CloseCause::Lost);
                }
            }
            Ok(()) = inventory.changed() => session.handle_inventory(now_of(&mut inventory)),
            () = either_moves(&mut drift, &mut standing) => shell.tell_all(session),
            over_at = runs_out(&shell.standing, pump.over_at) => {
                pump.over_at = Some(over_at);
                shell.tell_standing(session);
            }
            () = either_moves(&mut local_changes, &mut taken_back) => return Ok(CloseCause::Lost),
            () = left(&mut leaving) => return say_goodbye(&mut writer).await,
            () = sleep(deadline.unwrap_or(FAREWELL_TIMEOUT)), if deadline.is_some() => match pump.closed {
                Some(cause) => return Ok(cause),
                None => session.handle_timeout(shell.now()),
            },
        }
    }
}

/// What this host is now.
fn now_of(inventory: &mut watch::Receiver<Inventory>) -> Inventory {
    let now = inventory.borrow_and_update().clone();
    tracing::info!(addresses = now.addresses.len(), "own addresses changed");
    now
}

/// Ends a session since the process ends, in the middle of a frame or not: the end of TLS says that it was meant.
async fn say_goodbye(writer: &mut (impl AsyncWrite + Unpin)) -> Result<CloseCause, WorkerGone> {
    if !matches!(timeout(FAREWELL_TIMEOUT, writer.shutdown()).await, Ok(Ok(()))) {
        tracing::debug!("the gateway took no goodbye");
    }
    Ok(CloseCause::Lost)
}

/// Waits until either moves.
async fn either_moves<A, B>(one: &mut watch::Receiver<A>, other: &mut watch::Receiver<B>) {
    tokio::select! {
        Ok(()) = one.changed() => {}
        Ok(()) = other.changed() => {}
        else => std::future::pending().await,
    }
}

/// Waits until what was told of the policy counts no more, unless that was said.
async fn runs_out(standing: &watch::Receiver<Standing>, said: Option<std::time::Instant>) -> std::time::Instant {
    let until = standing.borrow().good_until;
    if said == Some(until) {
        return std::future::pending().await;
    }
    sleep_until(until.into()).await;
    until
}

/// What comes of something, if it is under way at all.
pub(super) async fn or_never<T>(under_way: &mut Option<impl Future<Output = T> + Unpin>) -> T {
    match under_way {
        Some(under_way) => under_way.await,
        None => std::future::pending().await,
    }
}

/// Writes some of what is to be written, or flushes where nothing is left: 0. Either may be dropped half way and begun again.
async fn push(writer: &mut (impl AsyncWrite + Unpin), out: &[u8]) -> std::io::Result<usize> {
    if out.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(out).await {
        Ok(0) => Err(std::io::ErrorKind::WriteZero.into()),
        written => written,
    }
}

impl Pump {
    /// A connection on which nothing happened yet.
    fn new(frame_bytes_max: usize) -> Self {
        Self {
            deframer: Deframer::new(frame_bytes_max),
            out: Vec::new(),
            is_flushed: true,
            applying: None,
            looking: None,
            over_at: None,
            closed: None,
        }
    }

    /// The connection broke: nothing more is to be written.
    fn lose(&mut self, session: &mut Session<HostKeys>, error: &std::io::Error) {
        tracing::debug!(%error, "connection to the gateway broke");
        self.out.clear();
        self.is_flushed = true;
        session.handle_lost();
    }

    /// An apply ended: how the host stands after it is handed over first, so that what is said of it is newer than the outcome.
    fn handle_result(&mut self, ended: (UpdateSeq, ApplyResult), shell: &mut Shell, session: &mut Session<HostKeys>) {
        self.applying = None;
        let (update_seq, result) = ended;
        if result.kind == OutcomeKind::Failed && result.conditions.iter().any(is_unkept) {
            shell.room.handle_unkept(shell.now());
        }
        shell.tell_standing(session);
        session.handle_result(update_seq, result);
    }

    /// How long nothing may happen.
    fn deadline(&self, shell: &Shell, session: &Session<HostKeys>) -> Option<Duration> {
        if self.closed.is_some() {
            return Some(FAREWELL_TIMEOUT);
        }
        let look = shell.room.poll_timeout().map(|until| (until, "a look at the disk"));
        let (until, _) = sooner(session.poll_timeout(), look)?;
        Some(until.since(shell.now()).max(Duration::from_millis(1)))
    }

    /// Looks at a disk that did not take something, when it is time.
    fn look_for_room(&mut self, shell: &mut Shell) {
        let now = shell.now();
        if self.looking.is_none() {
            self.looking = shell.room.look(now);
        }
    }

    async fn handle_bytes(
        &mut self,
        bytes: &[u8],
        shell: &mut Shell,
        dialer: &mut Dialer,
        gateway: &str,
        session: &mut Session<HostKeys>,
    ) -> Result<(), WorkerGone> {
        self.deframer.push(bytes);
        loop {
            let frame = match self.deframer.poll_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let code = match error {
                        FrameError::TooLong { .. } => RefusalCode::TooLarge,
                        FrameError::TooShort { .. } => RefusalCode::Malformed,
                    };
                    session.handle_close(code, &format!("{}: {error}", error.rule()));
                    return Ok(());
                }
            };
            match decode_as(session.spoken(), &frame) {
                Ok(message) => session.handle_message(message, shell.now()),
                Err(error) => session.handle_close(RefusalCode::Malformed, &format!("{}: {error}", error.rule())),
            }
            // After each: the machine keeps only so many.
            self.take_events(shell, dialer, gateway, session).await?;
            if session.is_closed() {
                return Ok(());
            }
        }
    }

    async fn take_events(
        &mut self,
        shell: &mut Shell,
        dialer: &mut Dialer,
        gateway: &str,
        session: &mut Session<HostKeys>,
    ) -> Result<(), WorkerGone> {
        while let Some(event) = session.poll_event() {
            match event {
                Event::Opened(ack) if ack.delivery == Delivery::Poll => {
                    dialer.handle_opened(shell.now());
                    rename(shell, dialer, &ack.gateways).await?;
                    tracing::info!(gateway, session_epoch = ack.session_epoch.raw(), "gateway delivers by poll");
                    shell.handed_over = Some(ack.session_epoch);
                }
                Event::Opened(ack) => {
                    dialer.handle_opened(shell.now());
                    rename(shell, dialer, &ack.gateways).await?;
                    shell.room.handle_opened();
                    tracing::info!(gateway, session_epoch = ack.session_epoch.raw(), "session is open");
                    shell.tell(|status| {
                        status.authority_epoch = ack.authority.epoch.raw();
                        status.updates = 0;
                        status.refusal = None;
                        status.link = Link::Open { gateway: gateway.to_owned(), session_epoch: ack.session_epoch };
                    });
                    shell.tell_all(session);
                }
                Event::Apply(apply) => {
                    shell.tell(|status| status.take(apply.component));
                    self.applying = Some(start(shell, *apply));
                }
                Event::Drain(drain) => {
                    tracing::info!(gateway, reconnect_after_ms = drain.reconnect_after_ms, "gateway will go away");
                    dialer.handle_drain(&drain, shell.now());
                    rename(shell, dialer, &drain.gateways).await?;
                }
                Event::Directive(code) => tracing::info!(gateway, ?code, "gateway asks"),
                Event::Fault { code, update_seq } => {
                    let update_seq = update_seq.map(UpdateSeq::raw);
                    tracing::warn!(gateway, ?code, update_seq, "something out of the protocol");
                }
                Event::Refused { component, stamp, reason } => {
                    warn_refused(shell, gateway, component, stamp, reason);
                }
                Event::Closed(cause) => self.closed = Some(cause),
            }
        }
        Ok(())
    }
}

/// Tells the host what its gateway is told by the outcome.
pub(super) fn warn_refused(shell: &Shell, gateway: &str, component: Component, stamp: Stamp, reason: Reason) {
    let (version, digest) = (stamp.version.raw(), stamp.digest.short());
    // What was on its way behind a failure is relative to what failed: a whole state follows.
    if reason == Reason::WrongBase {
        tracing::info!(gateway, %component, version, digest, %reason, "an update is refused as it came");
    } else {
        tracing::warn!(gateway, %component, version, digest, %reason, "an update is refused as it came");
    }
    let gateway = gateway.to_owned();
    let refused = RefusedUpdate { gateway, component, wanted: stamp, reason, taken_since: false };
    shell.tell(|status| status.last_refused = Some(refused));
}

/// Takes a gateway's list of gateways: what of it may be dialled is dialled and kept open.
pub(super) async fn rename(shell: &mut Shell, dialer: &mut Dialer, names: &[String]) -> Result<(), WorkerGone> {
    let is_new = shell.gateways.rename(names);
    dialer.handle_gateways(shell.gateways.names().to_vec());
    if is_new { keep(shell).await } else { Ok(()) }
}

/// Keeps a changed list of gateways open; a kernel that refuses is told and tried again at the next dial.
pub(super) async fn keep(shell: &Shell) -> Result<(), WorkerGone> {
    match shell.keep().await {
        Ok(()) => Ok(()),
        Err(DialError::Worker(gone)) => Err(gone),
        Err(error) => {
            tracing::warn!(%error, "new gateways are not kept open");
            Ok(())
        }
    }
}

/// Whether this tells of a failed update that the disk did not take it.
pub(super) fn is_unkept(condition: &Condition) -> bool {
    condition.reason == Reason::NotDurable
}

/// Begins an apply; what it gives back is the session's next result.
pub(super) fn start(shell: &mut Shell, apply: Apply) -> Applying {
    let update_seq = apply.update_seq;
    if apply.component != Component::Policy {
        // Beside the session: a disk that takes its time delays no sign of life.
        let components = shell.components.clone();
        let applying = tokio::task::spawn_blocking(move || components.apply(&apply));
        // Nobody aborts it: without an end it panicked, and the process is about to.
        return Box::pin(async move { Ok((update_seq, applying.await.map_err(|_| WorkerGone)?)) });
    }
    let content = match apply.content {
        Content::Snapshot(bytes) => engine::Content::Whole(bytes),
        Content::Delta { base, changes } => engine::Content::Changes { base, changes },
        Content::VersionOnly => engine::Content::Same,
    };
    let origin = Some(Origin { authority: apply.authority, signature: apply.signature });
    let update = Update { origin, stamp: apply.stamp, content };
    let worker = shell.worker.clone();
    Box::pin(async move {
        let outcome = worker.apply(update).await?;
        let result = ApplyResult { kind: outcome.kind, in_force: outcome.applied, conditions: outcome.conditions };
        Ok((update_seq, result))
    })
}
