//! The stack of `docker-compose.yml`, started by one compose program, and what must be so of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_suite::containers::Engine;
use holdfast_suite::plane::root;
use serde_json::Value;

const PROJECT: &str = "harbour";
const IMAGE: &str = "holdfast:test";
const API_PORT: &str = "17080";
/// From the last start to every health check's first good answer.
const HEALTHY_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// What a packet that nobody answers is waited for; an answer comes within milliseconds.
const UNANSWERED_SECS: &str = "5";
/// `CAP_NET_ADMIN` alone, as the kernel prints sets of capabilities.
const NET_ADMIN_ALONE: &str = "0000000000001000";
const NO_CAPABILITY: &str = "0000000000000000";
const SERVICES: [&str; 8] =
    ["postgres", "nats", "renderer", "audit", "gateway-agents-1", "gateway-agents-2", "gateway-operators", "operator"];
/// Containers that end when they have done their part.
const ENDING: [&str; 4] = ["init", "migrate", "token", "apply"];

/// The stack, by one program, in one engine.
#[derive(Debug)]
pub(super) struct Stack<'a> {
    engine: &'a Engine,
    program: PathBuf,
}

/// What became of a connection that was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tried {
    /// Refused by the other end, where nobody listens: the packets passed both ways.
    Passed,
    /// Nobody answered.
    Dropped,
}

impl<'a> Stack<'a> {
    pub(super) const fn new(engine: &'a Engine, program: PathBuf) -> Self {
        Self { engine, program }
    }

    pub(super) fn version(&self) -> String {
        self.compose(&["version"]).lines().next().unwrap_or_default().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.engine.command(&self.program);
        command
            .env("HOLDFAST_IMAGE", IMAGE)
            .env("HOLDFAST_RUST_IMAGE", "holdfast-test/rust")
            .env("HOLDFAST_BASE_IMAGE", "holdfast-test/debian")
            .env("HOLDFAST_POSTGRES_IMAGE", "holdfast-test/postgres")
            .env("HOLDFAST_NATS_IMAGE", "holdfast-test/nats")
            .env("HOLDFAST_API_PORT", API_PORT)
            .env("COMPOSE_PROJECT_NAME", PROJECT)
            .current_dir(root())
            .args(arguments);
        command
    }

    fn compose(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("compose can be run");
        self.succeeded(&output, arguments)
    }

    fn succeeded(&self, output: &Output, arguments: &[&str]) -> String {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {said}\n{}", self.program.display(), self.logs());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What every container said, for people who read a failure.
    fn logs(&self) -> String {
        let output = self.command(&["logs", "--no-color", "--tail", "8"]).output().expect("compose can be run");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command in a service's container, as people do.
    fn exec(&self, service: &str, command: &[&str]) -> Output {
        let arguments = [&["exec", "-T", service], command].concat();
        self.command(&arguments).stdin(Stdio::null()).output().expect("compose can be run")
    }

    /// The JSON that a command of `holdfast` prints at the operators' seat; it must succeed.
    fn ask(&self, arguments: &[&str]) -> Value {
        let output = self.exec("operator", &[&["holdfast"], arguments, &["-o", "json"]].concat());
        let text = self.succeeded(&output, arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("holdfast {arguments:?}: {error}: {text}"))
    }

    /// What the engine knows of every container, by its service.
    fn containers(&self) -> BTreeMap<String, Value> {
        let label = format!("label=com.docker.compose.project={PROJECT}");
        let ids = self.engine.ask(&["ps", "--all", "--quiet", "--filter", &label]);
        let ids: Vec<&str> = ids.split_whitespace().collect();
        let text = self.engine.ask(&[&["inspect"], ids.as_slice()].concat());
        let all: Vec<Value> = serde_json::from_str(&text).expect("docker prints JSON");
        let service = |one: &Value| one["Config"]["Labels"]["com.docker.compose.service"].as_str().map(str::to_owned);
        all.into_iter().map(|one| (service(&one).expect("compose labels its containers"), one)).collect()
    }

    pub(super) fn up(&self) {
        self.compose(&["config", "-q"]);
        self.compose(&["up", "-d"]);
    }

    /// Every service becomes healthy, and what ends ended well.
    pub(super) fn is_healthy(&self) {
        let ill = |one: &Value| {
            let state = &one["State"];
            let ended_well = state["Status"] == "exited" && state["ExitCode"] == 0;
            let health = state["Health"]["Status"].as_str();
            health.map_or(!ended_well, |health| health != "healthy")
        };
        let deadline = Instant::now() + HEALTHY_TIMEOUT;
        loop {
            let containers = self.containers();
            let ills: Vec<&String> =
                containers.iter().filter(|(_, one)| ill(one)).map(|(service, _)| service).collect();
            if ills.is_empty() {
                let ended = |one: &&Value| one["State"]["Status"] == "exited";
                assert_eq!(containers.values().filter(ended).count(), ENDING.len(), "{:?}", containers.keys());
                return;
            }
            assert!(Instant::now() < deadline, "these are not healthy: {ills:?}\n{}", self.logs());
            thread::sleep(POLL_INTERVAL);
        }
    }

    pub(super) fn is_converged(&self) {
        self.ask(&["wait", "--for", "converged", "--timeout", "60s"]);
        let status = self.ask(&["status"]);
        assert_eq!(status["state"], "converged", "{status}");
        assert_eq!((&status["hosts"]["total"], &status["hosts"]["converged"]), (&12.into(), &12.into()), "{status}");
        let proof = self.exec("operator", &["holdfast", "audit", "verify"]);
        self.succeeded(&proof, &["holdfast", "audit", "verify"]);
    }

    /// Tries a connection from one host's container to another's, by its name.
    fn try_connection(&self, from: &str, to: &str, port: u16) -> Tried {
        let connect = format!("</dev/tcp/{to}/{port}");
        let output = self.exec(from, &["timeout", UNANSWERED_SECS, "bash", "-c", &connect]);
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(1) if said.contains("Connection refused") => Tried::Passed,
            Some(124) => Tried::Dropped,
            code => panic!("{from} to {to}:{port}: {code:?}: {said}"),
        }
    }

    /// Real packets, by names and by the ports that the hosts declare.
    pub(super) fn obeys(&self) {
        for (from, to, port, wanted) in [
            ("edge-1", "web-1", 8080, Tried::Passed),
            ("edge-1", "web-2", 8081, Tried::Passed),
            ("edge-1", "web-2", 8080, Tried::Dropped),
            ("edge-1", "db-1", 5432, Tried::Dropped),
            ("api-2", "db-1", 5432, Tried::Passed),
            ("db-2", "db-1", 5432, Tried::Passed),
            ("bastion-1", "cache-1", 22, Tried::Passed),
            ("metrics-1", "cache-1", 22, Tried::Dropped),
        ] {
            assert_eq!(self.try_connection(from, to, port), wanted, "{from} to {to}:{port}");
        }
    }

    /// Services are nobody in particular and may do nothing in particular; agents may change their network and nothing else.
    pub(super) fn rights_are_few(&self) {
        for (service, container) in self.containers() {
            if ENDING.contains(&service.as_str()) {
                continue;
            }
            let id = container["Id"].as_str().expect("a container has an id");
            let status = self.engine.ask(&["exec", id, "cat", "/proc/1/status"]);
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
                line.unwrap_or_else(|| panic!("{service}: no {name}")).to_owned()
            };
            let is_root = field("Uid").split_whitespace().any(|uid| uid == "0");
            let is_agent = !SERVICES.contains(&service.as_str());
            assert_eq!(is_root, is_agent, "{service} runs as {}", field("Uid"));
            let (effective, most) =
                if is_agent { (NET_ADMIN_ALONE, NET_ADMIN_ALONE) } else { (NO_CAPABILITY, NO_CAPABILITY) };
            assert_eq!((field("CapEff").as_str(), field("CapBnd").as_str()), (effective, most), "{service}");
            assert_eq!(field("NoNewPrivs"), "1", "{service}");
            let policy = &container["HostConfig"]["RestartPolicy"]["Name"];
            assert_eq!(policy, "unless-stopped", "{service}");
            assert!(
                container["HostConfig"]["Memory"].as_u64().is_some_and(|bytes| bytes > 0),
                "{service} has no limit"
            );
        }
    }

    /// One port of the machine, and that on loopback.
    pub(super) fn ports_are_of_loopback(&self) {
        let mut published = Vec::new();
        for (service, container) in self.containers() {
            let ports = container["NetworkSettings"]["Ports"].as_object().cloned().unwrap_or_default();
            for binding in ports.values().filter_map(Value::as_array).flatten() {
                published.push((service.clone(), binding["HostIp"].clone(), binding["HostPort"].clone()));
            }
        }
        assert_eq!(published, [("gateway-operators".to_owned(), "127.0.0.1".into(), API_PORT.into())]);
    }

    /// Secrets are files that nobody else can read, and are nowhere else: not in what the engine knows of a container, not in a log.
    pub(super) fn secrets_are_kept(&self) {
        let mut secrets = Vec::new();
        let volumes = self.engine.ask(&["volume", "ls", "--quiet"]);
        for volume in volumes.split_whitespace() {
            for path in files(&self.engine.volume(volume)) {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let text = String::from_utf8_lossy(&bytes);
                let is_token = volume.ends_with("_enrolment") || volume.ends_with("_operator");
                if !(is_token || text.contains("PRIVATE KEY") || name.ends_with(".key") || name == "superuser-password")
                {
                    continue;
                }
                let mode = fs::metadata(&path).expect("it is there").permissions().mode() & 0o7777;
                assert_eq!(mode & 0o027, 0, "{} has mode {mode:o}", path.display());
                // A line that a secret is made of; markers of a file's form are none.
                secrets
                    .extend(text.lines().filter(|line| line.len() >= 32 && !line.contains("---")).map(str::to_owned));
            }
        }
        // Keys of eight services and of twelve hosts, and fourteen tokens and passwords.
        assert!(secrets.len() > 40, "only {} secrets were found", secrets.len());
        let mut told = vec![("compose config".to_owned(), self.compose(&["config"]))];
        for (service, container) in self.containers() {
            let output = self.engine.docker(&["logs", container["Id"].as_str().expect("a container has an id")]);
            let log = [output.stdout, output.stderr].concat();
            told.push((service, format!("{container}\n{}", String::from_utf8_lossy(&log))));
        }
        for (place, text) in told {
            assert!(!secrets.iter().any(|secret| text.contains(secret)), "a secret is told by {place}");
        }
    }

    /// A quarantine cuts what was allowed, and a restart of everything neither takes it back nor puts the demo's documents over it.
    pub(super) fn an_edit_arrives_and_outlives_a_restart(&self) {
        let edit = fs::read(root().join("ops/lab/estates/harbour/steps/quarantine.yaml")).expect("it is ours");
        let arguments = ["exec", "-T", "operator", "holdfast", "apply", "-f", "-", "--wait"];
        let mut child = self.command(&arguments);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("compose can be run");
        // Taken, so that it is closed.
        child.stdin.take().expect("it is piped").write_all(&edit).expect("compose reads");
        self.succeeded(&child.wait_with_output().expect("it ends"), &arguments);
        assert_eq!(self.try_connection("edge-1", "web-2", 8081), Tried::Dropped);
        assert_eq!(self.try_connection("edge-1", "web-1", 8080), Tried::Passed);

        self.compose(&["stop"]);
        let codes = |one: Value| one["State"]["ExitCode"].as_i64();
        let ended: BTreeMap<_, _> = self.containers().into_iter().map(|(service, one)| (service, codes(one))).collect();
        // The seat is not asked, it is ended: it holds nothing.
        let badly: Vec<_> = ended.iter().filter(|(name, code)| **code != Some(0) && *name != "operator").collect();
        assert!(badly.is_empty(), "these did not end in order: {badly:?}\n{}", self.logs());
        self.compose(&["up", "-d"]);
        self.is_healthy();
        self.is_converged();
        assert_eq!(self.try_connection("edge-1", "web-2", 8081), Tried::Dropped);
        assert_eq!(self.try_connection("edge-1", "web-1", 8080), Tried::Passed);
    }

    pub(super) fn goes_without_a_trace(&self) {
        self.compose(&["down", "--volumes"]);
        for list in [&["ps", "--all", "--quiet"][..], &["volume", "ls", "--quiet"]] {
            assert_eq!(self.engine.ask(list), "", "{list:?}");
        }
        let networks = self.engine.ask(&["network", "ls", "--format", "{{.Name}}"]);
        let networks: BTreeSet<&str> = networks.split_whitespace().collect();
        assert_eq!(networks, BTreeSet::from(["bridge", "host", "none"]), "the engine's own");
        // The next one builds it anew.
        drop(self.engine.ask(&["image", "rm", IMAGE]));
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let entry = entry.expect("an entry can be read");
            let kind = entry.file_type().expect("an entry has a type");
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found
}
