//! The services as processes of their own, with real servers and without hosts.
//!
//! - Keys are those of `holdfast-renderer init`, the programs those that were built before; a program that is missing fails the test.
//! - Everything ends with the value, also when the test panics.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use holdfast_store::testing::{TEST_AUTHORITY, TestPostgres};
use holdfast_suite::nats::{NatsServer, NatsVersion};
use holdfast_suite::ports::free_port;

/// How long a service may take until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A program that was built.
pub(crate) fn program(name: &str) -> PathBuf {
    let built = || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = std::env::var_os("HOLDFAST_BIN").map_or_else(|| built().join("release"), PathBuf::from);
    let program = folder.join(name);
    assert!(program.exists(), "{} was not built: run ./ops/test", program.display());
    program
}

fn root() -> PathBuf {
    holdfast_suite::plane::root()
}

/// A running service, which ends with the value.
#[derive(Debug)]
pub(crate) struct Service {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `holdfast-<name>` with these settings alone and a log of this name, and waits until it is ready.
    pub(crate) fn start(name: &'static str, log: &str, folder: &Path, settings: &[Setting]) -> Self {
        let log = folder.join(format!("{log}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("the folder is ours");
        let mut command = command(name, folder, settings);
        let child = command.arg("run").stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
        let mut service = Self { name, child, log };
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            service.assert_runs();
            let ready = self::command(name, folder, settings).arg("healthcheck").output().expect("it runs");
            if ready.status.success() {
                return service;
            }
            assert!(Instant::now() < deadline, "{name} is not ready: {}", String::from_utf8_lossy(&ready.stderr));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.pid().to_string()]).status().expect("kill runs");
        assert!(status.success(), "{} runs", self.name);
    }

    /// Waits for its end, of itself.
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("it is a child of ours")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log is ours")
    }

    /// Fails if it ended.
    pub(crate) fn assert_runs(&mut self) {
        let ended = self.child.try_wait().expect("it is a child of ours");
        assert!(ended.is_none(), "{} ended: {ended:?}\n{}", self.name, self.log());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One setting of a service.
pub(crate) type Setting = (&'static str, String);

/// The services and what they stand on.
pub(crate) struct ControlPlane {
    // In the order in which they end.
    pub(crate) gateway: Service,
    pub(crate) audit: Service,
    pub(crate) renderer: Service,
    nats: NatsServer,
    pub(crate) postgres: TestPostgres,
    folder: tempfile::TempDir,
    agents_port: u16,
    operators_port: u16,
    audit_port: u16,
    gateway_admin: String,
    admin: String,
}

impl ControlPlane {
    /// Starts all of it and waits until each service is ready.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts all of it, the gateway with more settings than it needs.
    pub(crate) async fn start_with(more: &[Setting]) -> Self {
        Self::start_on(more, |keys| NatsServer::start_with(NatsVersion::Current, keys)).await
    }

    /// The same with a NATS that is started so, by what `init` made for it.
    pub(crate) async fn start_on(more: &[Setting], nats: impl FnOnce(&Path) -> NatsServer) -> Self {
        let folder = tempfile::Builder::new().prefix("hf-").tempdir().expect("a folder");
        let keys = folder.path().join("keys");
        let mut init = Command::new(program("holdfast-renderer"));
        let init = init.args(["init", "--dir"]).arg(&keys).env_clear().output().expect("it runs");
        assert!(init.status.success(), "init: {}", String::from_utf8_lossy(&init.stderr));
        let authority = std::fs::read_to_string(keys.join("public/authority")).expect("init made it");
        let authority = authority.trim().parse().unwrap_or(TEST_AUTHORITY);
        let postgres = TestPostgres::start_empty();
        postgres.store(holdfast_store::testing::OWNER).migrate(authority).await.expect("migrates");
        let nats = nats(&keys.join("nats"));

        let [agents_port, operators_port, audit_port] = [free_port(), free_port(), free_port()];
        let place = Place { folder: folder.path(), nats: &nats, postgres: &postgres };
        let renderer = place.service("renderer", &place.renderer());
        let audit = place.service("audit", &place.audit(audit_port));
        let mut gateway = place.gateway(agents_port, operators_port, audit_port);
        gateway.extend(more.iter().cloned());
        let gateway_admin = admin_of(&gateway);
        let token = place.command("gateway", &gateway).arg("admin-token").output().expect("it runs");
        assert!(token.status.success(), "{}", String::from_utf8_lossy(&token.stderr));
        let admin = String::from_utf8(token.stdout).expect("text").trim().to_owned();
        let gateway = place.service("gateway", &gateway);
        // A gateway that says that it is ready has its doors open: nobody asks twice.
        for port in [agents_port, operators_port] {
            let asked = TcpStream::connect(("127.0.0.1", port));
            assert!(asked.is_ok(), "it is ready, and a door is shut: {}", gateway.log());
        }
        Self {
            gateway,
            audit,
            renderer,
            nats,
            postgres,
            folder,
            agents_port,
            operators_port,
            audit_port,
            gateway_admin,
            admin,
        }
    }

    /// The first token.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// The folder that everything is in.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What a process is given, in a folder of its own.
    pub(crate) fn keys(&self, process: &str) -> PathBuf {
        self.folder().join("keys").join(process)
    }

    /// The agents' door.
    pub(crate) fn agents_door(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.agents_port))
    }

    /// The API.
    pub(crate) fn api(&self) -> String {
        format!("https://127.0.0.1:{}", self.operators_port)
    }

    /// The settings that the gateway was started with.
    pub(crate) fn gateway_settings(&self) -> Vec<Setting> {
        self.place().gateway(self.agents_port, self.operators_port, self.audit_port)
    }

    /// Those of the renderer.
    pub(crate) fn renderer_settings(&self) -> Vec<Setting> {
        self.place().renderer()
    }

    /// Those of the audit service.
    pub(crate) fn audit_settings(&self) -> Vec<Setting> {
        self.place().audit(self.audit_port)
    }

    /// Another gateway, for agents alone; where its door is.
    pub(crate) fn another_gateway(&self) -> (Service, SocketAddr) {
        let port = free_port();
        let place = self.place();
        let mut settings = place.gateway(port, free_port(), self.audit_port);
        settings.retain(|(name, _)| *name != "HOLDFAST_DOORS");
        settings.push(("HOLDFAST_DOORS", "agents".to_owned()));
        let service = place.service_as("gateway", "another-gateway", &settings);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert!(TcpStream::connect(address).is_ok(), "it is ready, and its door is shut: {}", service.log());
        (service, address)
    }

    /// Another gateway, for operators alone; where its API is.
    pub(crate) fn another_operators_door(&self) -> (Service, String) {
        let port = free_port();
        let place = self.place();
        let mut settings = place.gateway(free_port(), port, self.audit_port);
        settings.retain(|(name, _)| *name != "HOLDFAST_DOORS");
        settings.push(("HOLDFAST_DOORS", "operators".to_owned()));
        let service = place.service_as("gateway", "another-operators-door", &settings);
        (service, format!("https://127.0.0.1:{port}"))
    }

    /// Another renderer, which stands by.
    pub(crate) fn another_renderer(&self) -> Service {
        let place = self.place();
        place.service_as("renderer", "another-renderer", &place.renderer())
    }

    /// What the gateway counts.
    pub(crate) fn gateway_metrics(&self) -> String {
        metrics_of(&self.gateway_admin)
    }

    /// What the gateway counted under this name and these labels, whatever the others are.
    pub(crate) fn counted(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let metrics = self.gateway_metrics();
        let has = |line: &str| labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")));
        let of = |line: &str| {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']) && has(rest))?;
            rest.rsplit(' ').next()?.parse::<u64>().ok()
        };
        metrics.lines().filter_map(of).sum()
    }

    /// Waits until it counted this.
    pub(crate) fn until_counted(&self, name: &str, labels: &[(&str, &str)], wanted: u64) {
        let deadline = Instant::now() + READY_TIMEOUT;
        while self.counted(name, labels) != wanted {
            assert!(Instant::now() < deadline, "{name} {labels:?} is not {wanted}: {}", self.gateway_metrics());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends everything and starts it again against what it kept: services, then servers, none asked but the renderer, which gives its lease back.
    pub(crate) fn restart(&mut self) {
        for (service, signal) in
            [(&mut self.renderer, "-TERM"), (&mut self.audit, "-KILL"), (&mut self.gateway, "-KILL")]
        {
            service.signal(signal);
            service.ended();
        }
        self.nats.kill();
        self.postgres.stop();
        self.postgres.start();
        self.nats.resume();
        let place = self.place();
        let gateway = self.gateway_settings();
        let admin = admin_of(&gateway);
        let renderer = place.service("renderer", &place.renderer());
        let audit = place.service("audit", &place.audit(self.audit_port));
        let gateway = place.service("gateway", &gateway);
        (self.renderer, self.audit, self.gateway) = (renderer, audit, gateway);
        self.gateway_admin = admin;
    }

    /// Kills NATS, or starts it again.
    pub(crate) fn nats(&mut self) -> &mut NatsServer {
        &mut self.nats
    }

    /// How services and persons reach NATS.
    pub(crate) fn nats_url(&self) -> String {
        self.nats.url().replace("nats://", "tls://")
    }

    /// Stops Postgres, or starts it again.
    pub(crate) fn postgres(&mut self) -> &mut TestPostgres {
        &mut self.postgres
    }

    fn place(&self) -> Place<'_> {
        Place { folder: self.folder(), nats: &self.nats, postgres: &self.postgres }
    }

    /// A file below the folder, with this text.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder().join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("the folder is ours");
        std::fs::write(&path, bytes).expect("the folder is ours");
        path
    }

    /// `holdfast` as the first token.
    pub(crate) fn holdfast<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.holdfast_command().args(arguments).output().expect("it runs")
    }

    /// The same, before it runs.
    pub(crate) fn holdfast_command(&self) -> Command {
        let mut command = Command::new(program("holdfast"));
        command
            .current_dir(self.folder())
            .env_clear()
            .env("HOLDFAST_API", self.api())
            .env("HOLDFAST_CA", self.keys("public").join("ca.pem"))
            .env("HOLDFAST_TOKEN", &self.admin)
            .stdin(Stdio::null());
        command
    }

    /// Fails if a service ended.
    pub(crate) fn assert_runs(&mut self) {
        for service in [&mut self.gateway, &mut self.renderer, &mut self.audit] {
            service.assert_runs();
        }
    }
}

/// What a service counts that shows it there.
pub(crate) fn metrics_of(admin: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect(admin).expect("the admin listener is there");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("it takes a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// Where a service with these settings shows what it counts.
pub(crate) fn admin_of(settings: &[Setting]) -> String {
    let is_admin = |(name, _): &&Setting| *name == "HOLDFAST_ADMIN_LISTEN";
    settings.iter().find(is_admin).map(|(_, address)| address.clone()).expect("it has one")
}

/// Where services are started.
struct Place<'a> {
    folder: &'a Path,
    nats: &'a NatsServer,
    postgres: &'a TestPostgres,
}

impl Place<'_> {
    fn keys(&self, process: &str) -> String {
        self.folder.join("keys").join(process).display().to_string()
    }

    fn database(&self, role: &str) -> String {
        format!("postgres://{role}@localhost/holdfast?host={}", self.postgres.config(role).host)
    }

    fn common(&self) -> Vec<Setting> {
        vec![
            ("HOLDFAST_LOG", "info".to_owned()),
            ("HOLDFAST_LOG_FORMAT", "text".to_owned()),
            ("HOLDFAST_NATS_URL", self.nats.url().replace("nats://", "tls://")),
            ("HOLDFAST_ADMIN_LISTEN", format!("127.0.0.1:{}", free_port())),
        ]
    }

    fn renderer(&self) -> Vec<Setting> {
        let mut settings = self.common();
        settings.push(("HOLDFAST_DATABASE_URL", self.database("holdfast_renderer")));
        settings.push(("HOLDFAST_IDENTITY", self.keys("renderer")));
        settings
    }

    fn audit(&self, port: u16) -> Vec<Setting> {
        let mut settings = self.common();
        settings.push(("HOLDFAST_IDENTITY", self.keys("audit")));
        settings.push(("HOLDFAST_DATA", self.folder.join("audit").display().to_string()));
        settings.push(("HOLDFAST_LISTEN", format!("127.0.0.1:{port}")));
        settings
    }

    fn gateway(&self, agents: u16, operators: u16, audit: u16) -> Vec<Setting> {
        let mut settings = self.common();
        settings.extend([
            ("HOLDFAST_DOORS", "both".to_owned()),
            ("HOLDFAST_AGENTS_IDENTITY", self.keys("gateway-agents")),
            ("HOLDFAST_AGENTS_DATABASE_URL", self.database("holdfast_gateway_agents")),
            ("HOLDFAST_AGENTS_GATEWAYS", format!("127.0.0.1:{agents}")),
            ("HOLDFAST_AGENTS_LISTEN", format!("127.0.0.1:{agents}")),
            ("HOLDFAST_OPERATORS_IDENTITY", self.keys("gateway-operators")),
            ("HOLDFAST_OPERATORS_DATABASE_URL", self.database("holdfast_gateway_operators")),
            ("HOLDFAST_OPERATORS_LISTEN", format!("127.0.0.1:{operators}")),
            ("HOLDFAST_OPERATORS_AUDIT_URL", format!("https://127.0.0.1:{audit}")),
        ]);
        settings
    }

    fn command(&self, name: &str, settings: &[Setting]) -> Command {
        command(name, self.folder, settings)
    }

    fn service(&self, name: &'static str, settings: &[Setting]) -> Service {
        self.service_as(name, name, settings)
    }

    /// A service whose log has a name of its own.
    fn service_as(&self, name: &'static str, log: &str, settings: &[Setting]) -> Service {
        Service::start(name, log, self.folder, settings)
    }
}

/// `holdfast-<program>` with these settings alone, run in a folder.
pub(crate) fn command(program: &str, folder: &Path, settings: &[Setting]) -> Command {
    let mut command = Command::new(self::program(&format!("holdfast-{program}")));
    command.env_clear().envs(settings.iter().cloned()).current_dir(folder).stdin(Stdio::null());
    command
}
