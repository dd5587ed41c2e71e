//! An agent without a kernel: the real machines of dialling and of sessions over real TLS, applies that succeed or fail as told.
//!
//! - [`Line`] is one session, driven by the test; [`Live`] is an agent that dials for as long as it lives, in a task of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_identity::{Credential, Signature, SigningKey, TrustRoots, VerifyingKey};
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{SessionEpoch, UpdateSeq};
use holdfast_model::policy::Body;
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Authority, Outcome, OutcomeKind, outcome_bytes};
use holdfast_session::agent::{
    Apply, ApplyResult, CloseCause, Config, Content, Dialer, Ended, Event, Keys, Session, Settling, body_of_delta,
    body_of_snapshot,
};
use holdfast_session::time::Instant;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{Hello, Inventory, Message, OutcomeReport, SignatureBytes};
use holdfast_wire::negotiate::{Protocol, SPOKEN};
use holdfast_wire::{decode, encode};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use crate::peer::Peer;

/// How long a test waits for anything.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);
/// How often a driven session looks at its own clock.
const TICK: Duration = Duration::from_millis(50);

/// A host's identity, as its state folder would have it.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) host: HostId,
    pub(super) name: String,
    pub(super) credential: Arc<Credential>,
    pub(super) keys: HostKeys,
    pub(super) roots: TrustRoots,
    pub(super) pinned: Authority,
}

/// Keys as an agent has them.
#[derive(Clone, Debug)]
pub(super) struct HostKeys {
    pub(super) renderer: VerifyingKey,
    pub(super) outcome: Arc<SigningKey>,
}

impl Keys for HostKeys {
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool {
        self.renderer.verify(statement, &Signature(*signature)).is_ok()
    }

    fn sign(&self, statement: &[u8]) -> SignatureBytes {
        self.outcome.sign(statement).0
    }
}

impl Identity {
    /// A host that was enrolled at a real door.
    pub(super) fn of(peer: Peer, name: String) -> Self {
        let Peer { host, authority, credential, roots, renderer, outcomes } = peer;
        let keys = HostKeys { renderer, outcome: Arc::new(outcomes) };
        Self { host, name, credential: Arc::new(credential), keys, roots, pinned: authority }
    }
}

/// From where an agent comes, and what it does with policies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) from: [u8; 4],
    pub(super) boot_id: Uuid,
    /// Every update of its policy fails, but for this version and those before it.
    pub(super) fails_above: Option<u64>,
    /// The first update of its policy to this version fails.
    pub(super) fails_once_at: Option<u64>,
    /// It says in each session what it holds since those before, as one with a disk does, and refuses to go back.
    pub(super) remembers: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            from: [127, 0, 0, 1],
            boot_id: Uuid::from_u128(1),
            fails_above: None,
            fails_once_at: None,
            remembers: false,
        }
    }
}

/// An update of the policy that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Came {
    pub(super) form: &'static str,
    pub(super) stamp: Stamp,
    pub(super) taken: bool,
}

/// What a host holds when its session begins.
#[derive(Clone, Debug, Default)]
struct Held {
    policy: Body,
    in_force: BTreeMap<Component, Stamp>,
}

/// One session.
pub(super) struct Line {
    stream: TlsStream<TcpStream>,
    machine: Session<HostKeys>,
    deframer: Deframer,
    started: tokio::time::Instant,
    manner: Manner,
    policy: Body,
    in_force: BTreeMap<Component, Stamp>,
    /// What is applied waits here instead, while it is held.
    pub(super) hold: bool,
    held: Vec<Apply>,
    pub(super) epoch: Option<SessionEpoch>,
    gateways: Vec<String>,
    pub(super) policies: Vec<Came>,
    /// How many updates of any component were taken.
    pub(super) taken: usize,
    pub(super) ended: Option<CloseCause>,
}

impl Line {
    /// Dials, and says Hello.
    pub(super) async fn dial(who: &Identity, to: SocketAddr, manner: Manner) -> std::io::Result<Self> {
        Self::dial_holding(who, to, manner, &Held::default()).await
    }

    /// The same for a host that holds this.
    async fn dial_holding(who: &Identity, to: SocketAddr, manner: Manner, held: &Held) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((manner.from, 0)))?;
        let stream = socket.connect(to).await?;
        let config = agent(&who.credential, &who.roots, AgentProtocol::Session).expect("a configuration");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let hello = Hello {
            protocols: SPOKEN,
            agent_version: "0.1.0".to_owned(),
            boot_id: manner.boot_id,
            applied: held.in_force.iter().map(|(component, stamp)| (*component, *stamp)).collect(),
            capabilities: vec![],
            inventory: Inventory::default(),
        };
        let config = Config { host: who.host, hello, pinned: who.pinned };
        Ok(Self {
            stream,
            machine: Session::new(config, who.keys.clone(), 5, Instant::default()),
            deframer: Deframer::new(FRAME_BYTES_MAX),
            started: tokio::time::Instant::now(),
            manner,
            policy: held.policy.clone(),
            in_force: held.in_force.clone(),
            hold: false,
            held: Vec::new(),
            epoch: None,
            gateways: Vec::new(),
            policies: Vec::new(),
            taken: 0,
            ended: None,
        })
    }

    /// Drives the session until something holds, or it is over.
    pub(super) async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let drive = async {
            loop {
                self.step().await;
                if done(self) || self.ended.is_some() {
                    return;
                }
                self.turn().await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, drive).await;
        assert!(waited.is_ok(), "{what}: not in time: {:?}, {:?}", self.policies, self.ended);
        assert!(done(self), "{what}: the session ended before: {:?}", self.ended);
    }

    /// Waits until the session is over.
    pub(super) async fn closed(&mut self) -> CloseCause {
        self.until("the session ends", |line| line.ended.is_some()).await;
        self.ended.expect("it ended")
    }

    /// Takes what comes next, or lets a tick go by.
    async fn turn(&mut self) {
        let mut buffer = vec![0; 16 * 1024];
        tokio::select! {
            read = self.stream.read(&mut buffer) => match read {
                Ok(0) | Err(_) => self.machine.handle_lost(),
                Ok(count) => self.take(buffer.get(..count).unwrap_or_default()),
            },
            () = tokio::time::sleep(TICK) => self.machine.handle_timeout(self.now()),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_millis(u64::try_from(self.started.elapsed().as_millis()).expect("a short test"))
    }

    fn take(&mut self, bytes: &[u8]) {
        self.deframer.push(bytes);
        while let Some(frame) = self.deframer.poll_frame().expect("frames of a gateway") {
            self.machine.handle_message(decode(&frame).expect("a message of a gateway"), self.now());
        }
    }

    /// Does what the machine wants, and writes what it has to say.
    pub(super) async fn step(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Apply(apply) if self.hold => self.held.push(*apply),
                Event::Apply(apply) => self.apply(*apply),
                Event::Closed(cause) => self.ended = Some(cause),
                Event::Opened(ack) => {
                    self.epoch = Some(ack.session_epoch);
                    self.gateways = ack.gateways;
                    self.report();
                }
                Event::Drain(_) | Event::Fault { .. } | Event::Directive(_) => {}
                // What it builds on failed a moment before.
                Event::Refused { component: Component::Policy, reason: Reason::WrongBase, stamp }
                    if self.has_just_failed() =>
                {
                    self.policies.push(Came { form: "delta", stamp, taken: false });
                }
                // It holds something newer, or something else under that version.
                Event::Refused { component, reason, stamp }
                    if self.manner.remembers
                        && matches!(reason, Reason::Backward | Reason::SameVersionOtherContent) =>
                {
                    self.report();
                    if component == Component::Policy {
                        self.policies.push(Came { form: "refused", stamp, taken: false });
                    }
                }
                Event::Refused { component, reason, .. } => panic!("an honest update of {component}: {reason:?}"),
            }
        }
        let mut out = Vec::new();
        while self.machine.poll_transmit(&mut out).expect("an agent's frames").is_some() {}
        if !out.is_empty() {
            // The gateway may have closed already.
            drop(self.stream.write_all(&out).await);
            drop(self.stream.flush().await);
        }
    }

    /// How many applies wait.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The first that waits: as which update it came, and what it names.
    pub(super) fn first_held(&self) -> (UpdateSeq, Stamp) {
        let apply = self.held.first().expect("one waits");
        (apply.update_seq, apply.stamp)
    }

    /// Says past the machine that an update of the policy was applied, with the host's own signature.
    pub(super) async fn say_raw(&mut self, who: &Identity, update_seq: UpdateSeq, wanted: Stamp, held: Stamp) {
        let session_epoch = self.epoch.expect("the session is open");
        let (component, kind, applied) = (Component::Policy, OutcomeKind::Applied, Some(held));
        let conditions: Vec<Condition> =
            ConditionType::OF_ATTEMPT.into_iter().map(|kind| holds(kind, wanted)).collect();
        let outcome = Outcome { host: who.host, session_epoch, update_seq, component, kind, wanted, applied };
        let signature = who.keys.sign(&outcome_bytes(who.pinned, &outcome, &conditions));
        let report = OutcomeReport { update_seq, component, kind, wanted, applied, conditions, signature };
        let mut out = Vec::new();
        encode(Protocol::NEWEST, &Message::Outcome(report), &mut out).expect("a message");
        self.stream.write_all(&out).await.and(self.stream.flush().await).expect("the gateway takes bytes");
    }

    /// Applies the first that waits.
    pub(super) fn release_one(&mut self) {
        let apply = self.held.remove(0);
        self.apply(apply);
    }

    /// Applies what waits.
    pub(super) fn release(&mut self) {
        self.hold = false;
        for apply in std::mem::take(&mut self.held) {
            self.apply(apply);
        }
    }

    fn has_just_failed(&self) -> bool {
        self.policies.last().is_some_and(|came| !came.taken)
    }

    fn apply(&mut self, apply: Apply) {
        let is_policy = apply.component == Component::Policy;
        let follows_failure = self.has_just_failed();
        let (form, body) = match &apply.content {
            Content::Snapshot(bytes) if is_policy => {
                ("snapshot", Some(body_of_snapshot(bytes, apply.stamp).expect("a body of its digest")))
            }
            Content::Snapshot(_) => ("snapshot", Some(self.policy.clone())),
            Content::Delta { base, changes } => match body_of_delta(&self.policy, *base, changes, apply.stamp) {
                Ok(body) => ("delta", Some(body)),
                // What it builds on failed a moment before.
                Err(_) if follows_failure => ("delta", None),
                Err(error) => panic!("no delta of its base: {error}"),
            },
            Content::VersionOnly => ("version", Some(self.policy.clone())),
        };
        let version = apply.stamp.version.raw();
        let once = self.manner.fails_once_at.take_if(|at| is_policy && *at == version).is_some();
        let fails = once || body.is_none() || is_policy && self.manner.fails_above.is_some_and(|last| version > last);
        if is_policy {
            self.policies.push(Came { form, stamp: apply.stamp, taken: !fails });
        }
        let result = if fails {
            ApplyResult { kind: OutcomeKind::Failed, in_force: None, conditions: vec![] }
        } else {
            self.policy = body.expect("it does not fail");
            self.taken += 1;
            self.in_force.insert(apply.component, apply.stamp);
            ApplyResult {
                kind: OutcomeKind::Applied,
                in_force: Some(apply.stamp),
                conditions: ConditionType::OF_ATTEMPT.into_iter().map(|kind| holds(kind, apply.stamp)).collect(),
            }
        };
        self.report();
        self.machine.handle_result(apply.update_seq, result);
    }

    /// All is well with what it holds.
    fn report(&mut self) {
        let held: Vec<(Component, Stamp)> =
            self.in_force.iter().map(|(component, stamp)| (*component, *stamp)).collect();
        let report = HostReport::of_health(&held, UpdateSeq::ZERO, 0);
        self.machine.handle_status(report, Settling::Stands, self.now());
    }
}

fn holds(kind: ConditionType, stamp: Stamp) -> Condition {
    Condition {
        kind,
        status: Holds::True,
        reason: Reason::Done,
        message: String::new(),
        observed_version: Some(stamp.version),
    }
}

/// What an agent that lives has gone through.
#[derive(Clone, Debug, Default)]
pub(super) struct Lived {
    /// Dials that reached a gateway and those that did not.
    pub(super) dials: usize,
    /// Every session: when it opened and with which gateway.
    pub(super) opened: Vec<(tokio::time::Instant, SocketAddr)>,
    /// When the dial of each of them began.
    pub(super) dialled: Vec<tokio::time::Instant>,
    /// How each connection with a gateway ended, and when.
    pub(super) ended: Vec<(tokio::time::Instant, CloseCause)>,
    /// What came of its policy, in every session.
    pub(super) policies: Vec<Came>,
    /// Whether the session that is open now took every component.
    pub(super) is_whole: bool,
}

/// An agent that dials for as long as it lives; it ends with the value.
pub(super) struct Live {
    pub(super) who: Identity,
    lived: Arc<Mutex<Lived>>,
    _task: JoinSet<()>,
}

impl Live {
    /// Lets one live; the seed chooses its jitter.
    pub(super) fn start(who: &Identity, gateways: &[SocketAddr], manner: Manner, seed: u64) -> Self {
        let lived = Arc::new(Mutex::new(Lived::default()));
        let gateways = gateways.iter().map(ToString::to_string).collect();
        let mut task = JoinSet::new();
        task.spawn(live(who.clone(), gateways, manner, seed, Arc::clone(&lived)));
        Self { who: who.clone(), lived, _task: task }
    }

    /// What it has gone through.
    pub(super) fn lived(&self) -> Lived {
        locked(&self.lived).clone()
    }

    /// Waits until something holds of it.
    pub(super) async fn until(&self, what: &str, done: impl Fn(&Lived) -> bool) {
        let wait = async {
            while !done(&self.lived()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        assert!(waited.is_ok(), "{what}: not in time: {}: {:?}", self.who.name, self.lived());
    }
}

fn locked(lived: &Mutex<Lived>) -> MutexGuard<'_, Lived> {
    lived.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn live(who: Identity, gateways: Vec<String>, manner: Manner, seed: u64, lived: Arc<Mutex<Lived>>) {
    let began = tokio::time::Instant::now();
    let now = || Instant::from_millis(u64::try_from(began.elapsed().as_millis()).expect("a short test"));
    let mut dialer = Dialer::new(gateways, seed, now());
    let mut held = Held::default();
    loop {
        let Some(gateway) = dialer.poll_dial(now()) else {
            let wait = dialer.poll_timeout().map_or(TICK, |(at, _)| at.since(now()));
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
            continue;
        };
        let to: SocketAddr = gateway.parse().expect("an address");
        locked(&lived).dials += 1;
        let dialled = tokio::time::Instant::now();
        let Ok(mut line) = Line::dial_holding(&who, to, manner, &held).await else {
            dialer.handle_ended(Ended::NoSession, now());
            continue;
        };
        let (mut is_open, mut policies) = (false, 0);
        while line.ended.is_none() {
            line.step().await;
            if line.epoch.is_some() && !is_open {
                is_open = true;
                dialer.handle_opened(now());
                dialer.handle_gateways(line.gateways.clone());
                let mut lived = locked(&lived);
                lived.opened.push((tokio::time::Instant::now(), to));
                lived.dialled.push(dialled);
            }
            {
                let mut lived = locked(&lived);
                lived.policies.extend(line.policies.iter().skip(policies));
                policies = line.policies.len();
                lived.is_whole = line.taken >= Component::ALL.len();
            }
            if line.ended.is_none() {
                line.turn().await;
            }
        }
        let cause = line.ended.expect("the loop's end");
        if manner.remembers {
            held = Held { policy: line.policy.clone(), in_force: line.in_force.clone() };
        }
        {
            let mut lived = locked(&lived);
            lived.ended.push((tokio::time::Instant::now(), cause));
            lived.is_whole = false;
        }
        dialer.handle_ended(Ended::Session(cause), now());
    }
}

/// The newest version of the policy that each of these agents took.
pub(super) fn versions(agents: &[Live]) -> BTreeMap<String, u64> {
    let newest = |agent: &Live| {
        let lived = agent.lived();
        lived.policies.iter().rev().find(|came| came.taken).map_or(0, |came| came.stamp.version.raw())
    };
    agents.iter().map(|agent| (agent.who.name.clone(), newest(agent))).collect()
}
