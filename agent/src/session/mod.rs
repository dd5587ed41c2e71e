//! The shell around the session machine: dials, writes, reads, waits, and hands updates to the worker.
//!
//! - Last good is in force before the first dial; losing the gateway changes nothing that is enforced.
//! - The machine checks signatures, order and bases; the engine checks digests; nothing is applied that failed either.
//! - What the disk did not take is asked for anew, by a new session, once it takes something again.
//! - An apply runs on the worker's thread: liveness, reading and writing go on meanwhile.
//! - A gateway's address is kept open in the kernel before it is dialled.

mod components;
mod drive;
mod gateways;
pub(crate) mod inventory;
mod kept_file;
mod keys;
mod poll;
mod renewal;
mod room;
mod status;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_identity::tls::{self, ALPN_SESSION};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::report::HostReport;
use holdfast_model::statement::Authority;
use holdfast_runtime::Chain;
use holdfast_session::agent::{CloseCause, Config, DialState, Dialer, Ended, Session};
use holdfast_session::time::Instant;
use holdfast_wire::message::{Hello, Inventory};
use holdfast_wire::negotiate::SPOKEN;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use crate::enrolment::{self, Enrolment};
use crate::plan::Kept;
use crate::service::{DriftLog, Standing, Worker, WorkerGone};
use components::Components;
use gateways::Gateways;
use keys::HostKeys;
use room::Room;

pub use status::{Link, RefusedUpdate, SessionStatus};

/// How long a TCP connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a change of what is kept open is waited for: longer than it takes, and no longer than both sides of a session can be silent.
const KEEP_PATIENCE: Duration = Duration::from_secs(5);

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("`{0}` is no host:port")]
    Address(String),
    #[error("cannot find the gateway's address")]
    Resolve(#[source] std::io::Error),
    #[error("cannot connect to the gateway")]
    Connect(#[source] std::io::Error),
    #[error("the gateway does not answer")]
    Silent,
    #[error("cannot use the host's certificate")]
    Enrolment(#[source] enrolment::Error),
    #[error("cannot make a TLS configuration")]
    Config(#[source] tls::Error),
    #[error("the handshake with the gateway failed")]
    Handshake(#[source] std::io::Error),
    #[error("the gateway does not speak sessions")]
    Protocol,
    #[error("the kernel does not keep the gateway's address open: {0}")]
    Kept(String),
    #[error(transparent)]
    Worker(#[from] WorkerGone),
}

/// Everything that outlives a session.
pub struct Shell {
    enrolment: Arc<Enrolment>,
    worker: Worker,
    base: Kept,
    gateways: Gateways,
    components: Components,
    room: Room,
    inventory: watch::Receiver<Inventory>,
    status: watch::Sender<SessionStatus>,
    tls: Arc<Mutex<Option<Arc<ClientConfig>>>>,
    started: std::time::Instant,
    boot_id: Uuid,
    /// The session that goes on by polls.
    handed_over: Option<SessionEpoch>,
    /// What can be told of drift.
    drift: watch::Receiver<DriftLog>,
    /// How the policy stands.
    standing: watch::Receiver<Standing>,
    /// Moves when a policy was taken back.
    taken_back: watch::Receiver<u64>,
    /// Moves when the host's own policy comes or goes.
    local_changes: watch::Receiver<u64>,
    /// Turns true when the process is about to end: gateways are told, and nobody is dialled any more.
    leaving: watch::Receiver<bool>,
    /// Why this host ended its last session to begin one anew.
    own_end: Option<&'static str>,
}

impl Shell {
    /// A shell that has not dialled yet, and where its state is told.
    #[must_use]
    pub fn new(
        enrolment: Arc<Enrolment>,
        worker: Worker,
        state_folder: PathBuf,
        base: Kept,
    ) -> (Self, watch::Receiver<SessionStatus>) {
        let (status, told) = watch::channel(SessionStatus::new(enrolment.host, enrolment.authority));
        let shell = Self {
            gateways: Gateways::load(&state_folder, &enrolment.gateways),
            components: Components::load(&state_folder, enrolment.authority, worker.good_for()),
            room: Room::new(&state_folder),
            own_end: None,
            inventory: inventory::watch(),
            enrolment,
            drift: worker.drift(),
            standing: worker.standing(),
            taken_back: worker.taken_back(),
            worker,
            base,
            status,
            tls: Arc::default(),
            started: std::time::Instant::now(),
            boot_id: inventory::boot_id(),
            handed_over: None,
            local_changes: watch::channel(0).1,
            leaving: watch::channel(false).1,
        };
        (shell, told)
    }

    /// The same, told of each change of the host's own policy.
    #[must_use]
    pub fn with_local_changes(mut self, local_changes: watch::Receiver<u64>) -> Self {
        self.local_changes = local_changes;
        self
    }

    /// The same, told when the process is about to end: it ends its session in order then.
    #[must_use]
    pub fn with_leaving(mut self, leaving: watch::Receiver<bool>) -> Self {
        self.leaving = leaving;
        self
    }

    /// What is to be kept open from the start on: what configuration says, and the gateways known from before.
    #[must_use]
    pub fn kept_at_start(state_folder: &std::path::Path, enrolment: &Enrolment, base: &Kept) -> Kept {
        Gateways::load(state_folder, &enrolment.gateways).kept(base)
    }

    fn now(&self) -> Instant {
        Instant::from_millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Hands what is to be told of drift to a session, which says what it did not say yet.
    fn tell_drift(&mut self, session: &mut Session<HostKeys>) {
        let (now, at) = (self.now(), std::time::Instant::now());
        let reports = self.drift.borrow_and_update().reports(at);
        for report in reports {
            session.handle_drift(report, now);
        }
    }

    /// Hands to a session how the host stands as a whole: every component with every condition. Before an outcome that it tells of, so that what is
    /// said after that is newer.
    fn tell_standing(&mut self, session: &mut Session<HostKeys>) {
        let now = self.now();
        let Standing { report, settling, .. } = self.standing.borrow_and_update().clone().at(std::time::Instant::now());
        let one = |component| match component {
            Component::Policy => report.clone(),
            Component::Settings | Component::Credentials | Component::Workloads => self.components.report(component),
        };
        let report = HostReport { answered: UpdateSeq::ZERO, components: Component::ALL.map(one).into() };
        #[cfg(feature = "test-hooks")]
        let report = wordy(report);
        session.handle_status(report, settling, now);
    }

    /// Both of it: what was found in the kernel, and how the host stands.
    fn tell_all(&mut self, session: &mut Session<HostKeys>) {
        self.tell_drift(session);
        self.tell_standing(session);
    }

    fn tell(&self, change: impl FnOnce(&mut SessionStatus)) {
        self.status.send_modify(change);
    }

    /// Dials and holds sessions for as long as it is polled, or until the process is about to end and its session is over.
    ///
    /// # Errors
    /// [`WorkerGone`] when the process is about to end.
    pub async fn run(mut self) -> Result<(), WorkerGone> {
        let renewal = renewal::run(Arc::clone(&self.enrolment), self.gateways.asked(), Arc::clone(&self.tls));
        let looks = self.components.clone().watch(self.worker.verify_interval());
        let sessions = async move {
            let dialer = Dialer::new(self.gateways.names().to_vec(), random(), self.now());
            let mut dialer = dialer.with_enrolled(self.gateways.enrolled().to_vec());
            while dialer.state() != DialState::Stopped {
                self.wait_and_dial(&mut dialer).await?;
                if is_leaving(&self.leaving) {
                    return Ok(());
                }
            }
            tracing::error!(
                "an operator asked that this host be enrolled anew: its sessions end, what it enforces stays; enrol it with a new token, \
                 or start the agent again to go on with the identity that it has"
            );
            self.tell(|status| status.link = Link::Stopped);
            // Enrolling is a person's act; until then the host goes on enforcing, without sessions. Its certificate is renewed beside this, so that
            // starting the agent again is enough however late it is.
            left(&mut self.leaving).await;
            Ok(())
        };
        tokio::select! {
            ended = sessions => ended,
            never = renewal => match never {},
            never = looks => match never {},
        }
    }

    /// One wait, one dial, one session if it comes to one.
    async fn wait_and_dial(&mut self, dialer: &mut Dialer) -> Result<(), WorkerGone> {
        let Some(gateway) = dialer.poll_dial(self.now()) else {
            let until = dialer.poll_timeout().map_or(CONNECT_TIMEOUT, |(until, _)| until.since(self.now()));
            let now = tokio::time::Instant::now();
            self.tell(|status| status.wait_until(now + until, now));
            tokio::select! {
                () = left(&mut self.leaving) => {}
                // At least a little, so that a clock that stands still does not spin.
                () = tokio::time::sleep(until.max(Duration::from_millis(1))) => {}
                // What kept this host from every gateway is gone.
                Ok(()) = self.taken_back.changed() => {
                    dialer.handle_ended(Ended::Session(CloseCause::Directed), self.now());
                }
            }
            return Ok(());
        };
        self.tell(|status| status.link = Link::Dialling { gateway: gateway.clone() });
        self.gateways.turn_to(Some(&gateway));
        let ended = self.dial(dialer, &gateway).await?;
        if self.gateways.turn_to(None) {
            drive::keep(self).await?;
        }
        if let Some(ended) = ended {
            dialer.handle_ended(ended, self.now());
        }
        Ok(())
    }

    /// One dial, and the session that it comes to; how it ended, unless the process is about to.
    async fn dial(&mut self, dialer: &mut Dialer, gateway: &str) -> Result<Option<Ended>, WorkerGone> {
        let mut leaving = self.leaving.clone();
        let connected = tokio::select! {
            () = left(&mut leaving) => return Ok(None),
            connected = self.connect(gateway) => connected,
        };
        Ok(Some(match connected {
            Ok(stream) => {
                // What changed before is what this session tells of; what changes as it is begun ends it, for its Hello may be of before.
                self.local_changes.mark_unchanged();
                self.taken_back.mark_unchanged();
                let mut session = self.session().await?;
                // Why a poll had no answer is told where it is known.
                let mut is_told = false;
                let mut cause = drive::drive(self, dialer, gateway, stream, &mut session).await?;
                if cause == CloseCause::Polls {
                    let session_epoch = self.handed_over.take();
                    cause = tokio::select! {
                        () = left(&mut leaving) => return Ok(None),
                        polled = Box::pin(poll::poll(self, dialer, gateway, session_epoch)) => polled?,
                    };
                    is_told = cause == CloseCause::Lost;
                }
                // Gateways hear of a local policy by what they send next: at once, by a session that begins anew.
                let is_changed = self.local_changes.has_changed().unwrap_or(false);
                let local = is_changed.then_some("the local policy of this host came or went");
                let is_taken_back = self.taken_back.has_changed().unwrap_or(false);
                let taken = is_taken_back.then_some("a policy that cut this host off was taken back");
                let own = self.own_end.take().or(local).or(taken).filter(|_| cause == CloseCause::Lost);
                tracing::info!(gateway, ?cause, own, "session ended");
                self.tell(|status| {
                    if let Some(own) = own {
                        status.last_end = Some(own.to_owned());
                    } else if !is_told {
                        status.last_end = Some(cause.to_string());
                    }
                    status.refusal = cause.refusal().map(|code| code.word().to_owned());
                });
                Ended::Session(if own.is_some() { CloseCause::Directed } else { cause })
            }
            Err(DialError::Worker(gone)) => return Err(gone),
            Err(error) => {
                let text = Chain(&error).to_string();
                tracing::warn!(gateway, error = text, "no session with the gateway");
                self.tell(|status| status.last_end = Some(text));
                Ended::NoSession
            }
        }))
    }

    async fn session(&self) -> Result<Session<HostKeys>, WorkerGone> {
        let held = self.worker.held().await?;
        let policy = held.map(|(_, stamp)| (Component::Policy, stamp));
        let applied: Vec<(Component, Stamp)> = policy.into_iter().chain(self.components.applied()).collect();
        let hello = Hello {
            protocols: SPOKEN,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: self.boot_id,
            applied,
            capabilities: Vec::new(),
            inventory: self.inventory.borrow().clone(),
        };
        let origin = held.map(|(origin, _)| origin);
        let pinned = self.pinned(origin);
        self.tell(|status| status.authority_epoch = pinned.epoch.raw());
        let earlier = self.earlier(origin.flatten(), pinned);
        let config = Config { host: self.enrolment.host, hello, pinned };
        let keys = HostKeys(Arc::clone(&self.enrolment));
        Ok(Session::new(config, keys, random(), self.now()).with_earlier(earlier))
    }

    /// The authority in the latest life that this host ever took a state from.
    fn pinned(&self, held: Option<Option<Authority>>) -> Authority {
        let enrolled = self.enrolment.authority;
        let seen = [held.flatten(), Some(self.components.authority())];
        let epoch = seen.into_iter().flatten().map(|authority| authority.epoch).fold(enrolled.epoch, Ord::max);
        Authority { epoch, ..enrolled }
    }

    /// The components that were taken in an earlier life than that: a session may have ended between the first and the last of a new life.
    fn earlier(&self, policy: Option<Authority>, pinned: Authority) -> Vec<Component> {
        let policy = policy.filter(|policy| policy.epoch < pinned.epoch).map(|_| Component::Policy);
        let others: Vec<Component> = if self.components.authority().epoch < pinned.epoch {
            self.components.applied().into_iter().map(|(component, _)| component).collect()
        } else {
            self.components.earlier()
        };
        policy.into_iter().chain(others).collect()
    }

    async fn connect(&mut self, gateway: &str) -> Result<TlsStream<TcpStream>, DialError> {
        let bad = || DialError::Address(gateway.to_owned());
        let (host, port) = gateway.rsplit_once(':').ok_or_else(bad)?;
        let (host, port) =
            (host.trim_start_matches('[').trim_end_matches(']'), port.parse::<u16>().map_err(|_| bad())?);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| bad())?;
        let found = timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((host, port))).await;
        let addresses: Vec<_> = found.map_err(|_| DialError::Silent)?.map_err(DialError::Resolve)?.collect();
        if self.gateways.learn(gateway, &addresses) {
            self.keep().await?;
        }
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses.as_slice())).await;
        let stream = stream.map_err(|_| DialError::Silent)?.map_err(DialError::Connect)?;
        stream.set_nodelay(true).map_err(DialError::Connect)?;
        let connector = TlsConnector::from(self.tls_config()?);
        let shaken = timeout(tls::HANDSHAKE_TIMEOUT, connector.connect(name, stream)).await;
        let stream = shaken.map_err(|_| DialError::Silent)?.map_err(DialError::Handshake)?;
        if stream.get_ref().1.alpn_protocol() == Some(ALPN_SESSION) { Ok(stream) } else { Err(DialError::Protocol) }
    }

    /// Keeps the gateways open. A thread that does not answer takes that up when it goes on; until then they are dialled as they are.
    async fn keep(&self) -> Result<(), DialError> {
        match timeout(KEEP_PATIENCE, self.worker.keep(self.gateways.kept(&self.base))).await {
            Ok(kept) => kept?.map_err(DialError::Kept),
            Err(_elapsed) => {
                tracing::warn!("it is not known yet whether the kernel keeps the gateways open");
                Ok(())
            }
        }
    }

    fn tls_config(&self) -> Result<Arc<ClientConfig>, DialError> {
        let mut cached = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*cached {
            return Ok(Arc::clone(config));
        }
        let credential = self.enrolment.credential().map_err(DialError::Enrolment)?;
        let config = agent(&credential, &self.enrolment.roots, AgentProtocol::Session).map_err(DialError::Config)?;
        Ok(Arc::clone(cached.insert(Arc::new(config))))
    }
}

/// Whether the process is about to end.
fn is_leaving(leaving: &watch::Receiver<bool>) -> bool {
    *leaving.borrow()
}

/// Waits until the process is about to end.
async fn left(leaving: &mut watch::Receiver<bool>) {
    if leaving.wait_for(|leaving| *leaving).await.is_err() {
        // Nobody can say it any more.
        std::future::pending().await
    }
}

/// A seed; without randomness the time of day spreads a fleet as well.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp_nanos() & 0xffff_ffff).unwrap_or(0),
    }
}

/// For tests only: every condition says more than may be said, if `HOLDFAST_AGENT_TEST_WORDY` is there.
#[cfg(feature = "test-hooks")]
fn wordy(mut report: HostReport) -> HostReport {
    if std::env::var_os("HOLDFAST_AGENT_TEST_WORDY").is_some() {
        for stated in report.components.iter_mut().flat_map(|of| &mut of.conditions) {
            stated.condition.message = "ö".repeat(holdfast_model::report::REPORT_TEXT_BYTES_MAX);
        }
    }
    report
}
