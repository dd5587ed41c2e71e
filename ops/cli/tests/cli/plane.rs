//! A control plane for one test, and the command as a process against it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_bus::Link;
use holdfast_events::{Actor, AgentVersion, Detail, Directive, Hint, RenderedLetGo, SignatureBytes, VerifyingKeyBytes};
use holdfast_gateway::operators::{self, AuditDoor, DoorConfig};
use holdfast_identity::tls::{ServerTls, https_door, install_crypto_provider};
use holdfast_identity::{Ca, ServerRole, SigningKey, Token, TokenKind};
use holdfast_model::brake::BrakeLimits;
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::ids::{GatewayId, HostId};
use holdfast_model::numbers::{AuthorityEpoch, LeaseTerm, Revision, SessionEpoch, UpdateSeq};
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Authority, Outcome, OutcomeKind, StatusPlace, outcome_bytes, status_bytes};
use holdfast_render::fleet::{Fleet, Holds as HeldBack, LetGo, MAX_WAIT_MS, Planned};
use holdfast_runtime::{Shutdown, Tasks};
use holdfast_store::Store;
use holdfast_store::intent::OpenRollout;
use holdfast_store::lease::{BusReport, Claim, RENDERER_LEASE};
use holdfast_store::order::Horizon;
use holdfast_store::render::{RenderCommit, SignedState};
use holdfast_store::request::{Decided, Decision, Enrolment, IssuedCertificate};
use holdfast_store::session::{Fact, Instance, Opened, Opening, OutcomeReport, Recorded, Seen, StatusSaid};
use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};
use holdfast_store::token::TokenHash;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls_pki_types::ServerName;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

/// Of how many hosts a change may take much away here.
const BRAKE_HOSTS_MAX: u32 = 2;

/// A host that is stood in for.
struct Host {
    id: HostId,
    key: SigningKey,
    session: Option<SessionEpoch>,
    said: u64,
    /// What its sessions speak.
    protocol: u16,
    /// How often it said how it is as a whole in its session.
    statuses: u64,
}

/// A control plane without bus, renderer and agents.
pub(crate) struct Plane {
    pub(crate) postgres: TestPostgres,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) hints: mpsc::Receiver<Hint>,
    /// What was asked of hosts' sessions, which nobody obeys here.
    pub(crate) directives: mpsc::Receiver<Directive>,
    renderer: Store,
    agents: Store,
    gateway: GatewayId,
    term: LeaseTerm,
    gateway_term: LeaseTerm,
    hosts: BTreeMap<String, Host>,
    address: String,
    admin: String,
    wakes: watch::Sender<u64>,
    /// Whether the door's bus is there.
    pub(crate) bus: watch::Sender<Link>,
    /// How far the audit log is that follows this plane's events.
    pub(crate) audited: Arc<AtomicU64>,
    // Kept: what ends with it is the door.
    _tasks: Tasks,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let code = output.status.code().expect("it ended by itself");
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// What it printed, after it ended as wanted.
    pub(crate) fn ended(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:#?}");
        self.stdout
    }

    /// What it printed, as JSON, after it ended in order.
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ended(0)).expect("JSON")
    }
}

impl Plane {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(audit: Option<AuditDoor>) -> Self {
        install_crypto_provider();
        let postgres = TestPostgres::start_migrated().await;
        let gateway = GatewayId::new(Uuid::now_v7());
        let (renderer, agents) = (postgres.store("holdfast_renderer"), postgres.store("holdfast_gateway_agents"));
        let claim = renderer.acquire_lease(Actor::Renderer, RENDERER_LEASE, "the test").await.expect("asks");
        let Claim::Acquired(term) = claim else { panic!("nobody else renders") };
        let name = gateway.to_string();
        let claim = agents.acquire_lease(Actor::Gateway(gateway), &name, &name).await.expect("asks");
        let Claim::Acquired(gateway_term) = claim else { panic!("the name is new") };
        // Nobody renews them here, and a busy machine takes its time.
        postgres.sql("UPDATE leases SET expires_at = expires_at + interval '1 hour'");

        let folder = tempfile::tempdir().expect("a folder");
        let ca = Ca::create(TEST_AUTHORITY, OffsetDateTime::now_utc()).expect("a CA");
        std::fs::write(folder.path().join("ca.pem"), ca.certificate_pem()).expect("writes");
        let names = [ServerName::try_from("127.0.0.1").expect("an address")];
        let server = ca.issue_server(ServerRole::GatewayOperators, &names, OffsetDateTime::now_utc()).expect("issues");
        let tls = Arc::new(ServerTls::new(https_door(&server).expect("a configuration")));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("an address").to_string();
        let operators = postgres.store("holdfast_gateway_operators");
        let admin = operators::create_admin_token(&operators, "the test").await.expect("a token");
        let (bell, hints) = mpsc::channel(64);
        let (asked, directives) = mpsc::channel(64);
        let (wakes, woken) = watch::channel(0);
        let (bus, link) = watch::channel(Link { connections: 1, up: true });
        let tasks = Tasks::new(Shutdown::new());
        operators::start(
            DoorConfig {
                gateway,
                tls,
                audit,
                bus: link,
                directives: asked,
                metrics: None,
                brake: BrakeLimits { hosts_max: BRAKE_HOSTS_MAX, ..BrakeLimits::default() },
            },
            operators,
            listener,
            bell,
            woken,
            &tasks,
        );
        Self {
            postgres,
            folder,
            hints,
            directives,
            renderer,
            agents,
            gateway,
            term,
            gateway_term,
            hosts: BTreeMap::new(),
            address,
            admin: admin.reveal().to_owned(),
            wakes,
            bus,
            audited: Arc::default(),
            _tasks: tasks,
        }
    }

    /// Numbers every event and says that the stream has it, as the relay does; an audit log that follows has it, too.
    pub(crate) async fn number_events(&self) {
        self.renderer_says(None, None).await;
    }

    /// The same, and what the renderer says of the streams of hints and events.
    pub(crate) async fn renderer_says(&self, hint_fault: Option<&str>, event_fault: Option<&str>) {
        let numbered = self.renderer.number_events(self.term, Horizon::default()).await.expect("numbers");
        let report = BusReport {
            hint_fault: hint_fault.map(str::to_owned),
            event_fault: event_fault.map(str::to_owned),
            relayed: Some((numbered.authority_epoch, numbered.last)),
        };
        assert!(self.renderer.report_bus(self.term, &report).await.expect("reports"));
        self.audited.store(numbered.last.raw(), Ordering::Relaxed);
    }

    /// The renderer gives its lease up, as one that ends.
    pub(crate) async fn renderer_ends(&self) {
        assert!(self.renderer.release_lease(RENDERER_LEASE, self.term).await.expect("releases"));
    }

    /// The gateway for agents gives its lease up, as one that ends.
    pub(crate) async fn gateway_ends(&self) {
        let name = self.gateway.to_string();
        assert!(self.agents.release_lease(&name, self.gateway_term).await.expect("releases"));
    }

    /// Everything that happened was an hour earlier.
    pub(crate) fn age_events(&self) {
        self.postgres.sql("SET session_replication_role = replica; UPDATE events SET at = at - interval '1 hour'");
    }

    /// Where the door is.
    pub(crate) fn api(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Runs the command with other settings than those of the plane.
    pub(crate) async fn run_with(&self, settings: &[(&str, &str)], arguments: &[&str]) -> Ran {
        let mut command = self.command(&self.admin, arguments);
        for (variable, value) in settings {
            if value.is_empty() {
                command.env_remove(variable);
            } else {
                command.env(variable, value);
            }
        }
        Ran::of(&command.output().await.expect("it runs"))
    }

    /// The folder in which commands run.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The token that allows everything.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// Writes a file that a command reads.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).expect("a folder");
        std::fs::write(&path, text).expect("writes");
        path
    }

    /// The command, as it is run with a token.
    pub(crate) fn command(&self, token: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOLDFAST_API", self.api())
            .env("HOLDFAST_CA", self.folder.path().join("ca.pem"))
            .env("HOLDFAST_TOKEN", token)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs the command with everything allowed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        self.run_as(&self.admin, arguments).await
    }

    /// Runs the command with a token.
    pub(crate) async fn run_as(&self, token: &str, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(token, arguments).output().await.expect("it runs"))
    }

    /// Starts the command, and sends it what Ctrl-C sends once it has been at it for a moment and has asked.
    pub(crate) async fn interrupted(&self, arguments: &[&str]) -> Ran {
        let mut command = self.command(&self.admin, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("it runs");
        let pid = Pid::from_raw(child.id().and_then(|id| id.try_into().ok()).expect("a pid"));
        // Until it waits for the signal, the signal ends it: the handler is what /proc shows.
        let status = format!("/proc/{pid}/status");
        let catches = || std::fs::read_to_string(&status).is_ok_and(|text| catches_interrupts(&text));
        let caught = async {
            while !catches() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), caught).await.expect("it waits, and would hear Ctrl-C");
        kill(pid, Signal::SIGINT).expect("it is there");
        Ran::of(&child.wait_with_output().await.expect("it ends"))
    }

    /// Starts the command; it runs while the test goes on.
    pub(crate) fn running(&self, arguments: &[&str]) -> tokio::task::JoinHandle<Ran> {
        let mut command = self.command(&self.admin, arguments);
        #[expect(clippy::disallowed_methods, reason = "the test awaits it")]
        tokio::spawn(async move { Ran::of(&command.output().await.expect("it runs")) })
    }

    /// Enrols a host as a gateway and the renderer do, with a token that the command makes.
    pub(crate) async fn enrol(&mut self, name: &str, address: &str) {
        self.enrol_in("default", name, address).await;
    }

    /// The same in a namespace.
    pub(crate) async fn enrol_in(&mut self, namespace: &str, name: &str, address: &str) {
        let label = format!("app={}", name.split('-').next().unwrap_or(name));
        let allowed = ["--namespace", namespace, "--label", &label, "--address", "10.0.0.0/8"];
        let made = self.run(&[["enrol-token", "create"].as_slice(), &allowed].concat()).await;
        let secret = Token::parse(TokenKind::Enrol, &made.ended(0)).expect("a token on stdout alone");
        let key = SigningKey::generate().expect("a key");
        let enrolment = Enrolment {
            hash: TokenHash(*secret.hash().as_bytes()),
            name: name.parse().expect("a name"),
            addresses: vec![address.parse().expect("an address")],
            outcome_key: VerifyingKeyBytes::from_bytes(*key.verifying_key().as_bytes()),
            csr: vec![1],
        };
        let asked = self.agents.request_enrolment(self.gateway, enrolment).await.expect("asks");
        let (request, id) = asked.expect("the token is good");
        let waiting = self.renderer.waiting_requests(10).await.expect("reads");
        let waiting = waiting.into_iter().find(|one| one.id == request).expect("it waits");
        let now = OffsetDateTime::now_utc();
        let serial = id.uuid().as_simple().to_string();
        let certificate =
            IssuedCertificate { serial, not_before: now, not_after: now + time::Duration::DAY, chain: vec![9] };
        let decided = self.renderer.decide_request(self.term, waiting, Decision::Grant(Some(certificate))).await;
        assert!(matches!(decided.expect("decides"), Decided::Enrolled { .. }));
        self.hosts.insert(name.to_owned(), Host { id, key, session: None, said: 0, protocol: 2, statuses: 0 });
    }

    /// The identity of a host.
    pub(crate) fn id_of(&self, name: &str) -> String {
        self.hosts.get(name).expect("it is enrolled").id.to_string()
    }

    /// Renders the last revision, as a renderer does that has just started: it knows what is stored, and nothing else.
    pub(crate) async fn render(&self) {
        let (revision, intent) = self.renderer.load_intent(None).await.expect("reads");
        let rendered = self.renderer.rendered_revision().await.expect("reads");
        let latest = self.renderer.all_latest().await.expect("reads");
        let latest = latest.into_iter().map(|one| one.state.desired);
        let mut fleet = Fleet::new(&intent, revision, rendered, latest, 0);
        fleet.handle_holds(self.holds(revision).await);
        while let Some(pin) = fleet.poll_pin() {
            let (_, at_pin) = self.renderer.load_intent(Some(pin)).await.expect("reads");
            let planned = fleet.plan_pinned(&at_pin);
            self.commit(&mut fleet, &planned).await;
        }
        while let Some(planned) = fleet.poll_plan(MAX_WAIT_MS) {
            self.commit(&mut fleet, &planned).await;
        }
        self.wake();
    }

    async fn holds(&self, revision: Revision) -> Option<HeldBack> {
        let changes = self.renderer.changes_since(revision).await.expect("reads");
        assert_eq!(changes.until, revision, "nobody changes anything while a test renders");
        let OpenRollout { rollout, stage, held_revision: pin } = changes.rollout?;
        let hosts = self.renderer.hosts_after_stage(rollout, stage).await.expect("reads");
        Some(HeldBack { rollout, stage, pin, hosts })
    }

    async fn commit(&self, fleet: &mut Fleet, planned: &Planned) {
        let signature = SignatureBytes::from_bytes([5; 64]);
        let plan = &planned.plan;
        let let_go = plan.let_go.map(|LetGo { rollout, stage, revision }| RenderedLetGo { rollout, stage, revision });
        let commit = RenderCommit {
            lease_term: self.term,
            authority_epoch: AuthorityEpoch::from_raw(1),
            earlier: BTreeMap::new(),
            revision: plan.revision,
            intent: plan.intent,
            is_of_held: plan.is_of_held,
            let_go,
            hosts_rendered: plan.hosts_rendered,
            states: plan.states.iter().map(|desired| SignedState { desired: *desired, signature }).collect(),
            artifacts: plan.artifacts.clone(),
        };
        self.renderer.commit_render(commit).await.expect("commits");
        fleet.handle_committed(planned);
    }

    /// Says that something happened, as the bus does.
    pub(crate) fn wake(&self) {
        self.wakes.send_modify(|count| *count += 1);
    }

    /// Every host says how its latest states ended, as an agent does by its gateway.
    pub(crate) async fn all_say(&mut self, kind: OutcomeKind) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            self.says(&name, kind).await;
        }
    }

    /// One host says how its latest states ended.
    pub(crate) async fn says(&mut self, name: &str, kind: OutcomeKind) {
        self.says_by(name, kind, Reason::KernelRefused).await;
    }

    /// One host did not take its policy, for a reason; the rest it took.
    pub(crate) async fn refuses(&mut self, name: &str, reason: Reason) {
        self.says_by(name, OutcomeKind::Failed, reason).await;
    }

    async fn says_by(&mut self, name: &str, kind: OutcomeKind, refused_by: Reason) {
        let id = self.hosts.get(name).expect("it is enrolled").id;
        let epoch = self.session(name).await;
        let host = self.hosts.get_mut(name).expect("it is enrolled");
        let mut reports = Vec::new();
        for latest in self.agents.latest_of(vec![id]).await.expect("reads") {
            host.said += 1;
            let desired = latest.state.desired;
            // Only policy may fail here; what is empty is always taken.
            let kind = if desired.component == Component::Policy { kind } else { OutcomeKind::Applied };
            reports.push(mk_report(host, epoch, desired, kind, refused_by));
        }
        let heard = self.agents.record_presence(vec![(id, epoch, 0)]).await.expect("records");
        assert!(heard.is_empty(), "the session is the host's");
        let recorded = self.agents.record_outcomes(self.gateway, reports).await.expect("records");
        assert!(recorded.iter().all(|one| *one == Recorded::Current), "{recorded:?}");
        self.wake();
    }

    /// The policy that is desired of a host.
    pub(crate) async fn policy_of(&self, name: &str) -> Desired {
        let id = self.hosts.get(name).expect("it is enrolled").id;
        let latest = self.agents.latest_of(vec![id]).await.expect("reads");
        let mut desired = latest.iter().map(|latest| latest.state.desired);
        desired.find(|desired| desired.component == Component::Policy).expect("it is rendered")
    }

    /// A host says that it has a state in force, whichever that is.
    pub(crate) async fn says_it_has(&mut self, name: &str, desired: Desired) {
        let epoch = self.session(name).await;
        let host = self.hosts.get_mut(name).expect("it is enrolled");
        host.said += 1;
        let report = mk_report(host, epoch, desired, OutcomeKind::Applied, Reason::Done);
        let recorded = self.agents.record_outcomes(self.gateway, vec![report]).await.expect("records");
        assert_eq!(recorded, [Recorded::Current]);
        self.wake();
    }

    /// From its next session on a host speaks another protocol.
    pub(crate) fn speaks(&mut self, name: &str, protocol: u16) {
        let host = self.hosts.get_mut(name).expect("it is enrolled");
        (host.protocol, host.session, host.statuses) = (protocol, None, 0);
    }

    /// One host has a session, and said nothing in it.
    pub(crate) async fn opens(&mut self, name: &str) {
        self.session(name).await;
    }

    /// One host says how it is as a whole: well with its latest states, but for what a test changes of that.
    pub(crate) async fn reports(&mut self, name: &str, change: impl FnOnce(&mut HostReport)) {
        let id = self.hosts.get(name).expect("it is enrolled").id;
        let session_epoch = self.session(name).await;
        let latest = self.agents.latest_of(vec![id]).await.expect("reads");
        let held: Vec<(Component, Stamp)> =
            latest.iter().map(|row| (row.state.desired.component, row.state.desired.stamp)).collect();
        let host = self.hosts.get_mut(name).expect("it is enrolled");
        host.statuses += 1;
        let mut report = HostReport::of_health(&held, UpdateSeq::from_raw(host.said), 1_790_000_000_000);
        change(&mut report);
        let place = StatusPlace { host: id, session_epoch, seq: host.statuses };
        let authority = Authority { id: TEST_AUTHORITY, epoch: AuthorityEpoch::from_raw(1) };
        let signature = host.key.sign(&status_bytes(authority, place, &report));
        let signature = SignatureBytes::from_bytes(signature.0);
        let seen = Seen::Status(Box::new(StatusSaid { seq: place.seq, report, signature }));
        let facts = vec![Fact { host: id, session_epoch, seen }];
        let recorded = self.agents.record_facts(self.gateway, facts).await.expect("records");
        assert_eq!(recorded.stale, []);
        self.wake();
    }

    async fn session(&mut self, name: &str) -> SessionEpoch {
        let host = self.hosts.get_mut(name).expect("it is enrolled");
        if let Some(epoch) = host.session {
            return epoch;
        }
        let opening = Opening {
            host: host.id,
            certificate_serial: host.id.uuid().as_bytes().to_vec(),
            agent_version: AgentVersion::new("0.1.0"),
            instance: Instance { boot_id: Uuid::from_u128(4), address: [10, 0, 0, 1].into() },
            applied: Vec::new(),
            protocol: Some(host.protocol),
        };
        let opened = self.agents.open_sessions(self.gateway, vec![opening]).await.expect("opens");
        let [Opened::Session { session_epoch, .. }] = opened.as_slice() else { panic!("{opened:?}") };
        host.session = Some(*session_epoch);
        *session_epoch
    }
}

/// Whether the status of a process says that it has a handler for SIGINT, the second signal.
fn catches_interrupts(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 0b10 != 0))
}

/// `refused_by` is the reason of one that was not taken.
fn mk_report(
    host: &Host,
    epoch: SessionEpoch,
    desired: Desired,
    kind: OutcomeKind,
    refused_by: Reason,
) -> OutcomeReport {
    let has_it = kind == OutcomeKind::Applied;
    let (status, reason) = if has_it { (Holds::True, Reason::Done) } else { (Holds::False, refused_by) };
    let detail = match (has_it, reason == Reason::KernelRefused) {
        (true, _) => "",
        (false, true) => "no room in the kernel",
        (false, false) => "the content differs",
    };
    let condition = |kind| Condition {
        kind,
        status,
        reason,
        message: String::new(),
        observed_version: Some(desired.stamp.version),
    };
    let outcome = Outcome {
        host: host.id,
        session_epoch: epoch,
        update_seq: UpdateSeq::from_raw(host.said),
        component: desired.component,
        kind,
        wanted: desired.stamp,
        applied: has_it.then_some(desired.stamp),
    };
    let authority = Authority { id: TEST_AUTHORITY, epoch: AuthorityEpoch::from_raw(1) };
    let conditions = ConditionType::OF_ATTEMPT.map(condition).to_vec();
    let signature = host.key.sign(&outcome_bytes(authority, &outcome, &conditions));
    OutcomeReport {
        outcome,
        reason,
        detail: Detail::new(detail),
        conditions,
        signature: SignatureBytes::from_bytes(signature.0),
    }
}
