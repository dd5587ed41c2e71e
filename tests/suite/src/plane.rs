//! The whole of Holdfast on this machine, as `ops/up` starts it: real servers, services and agents, in a folder of its own.
//!
//! - Each value has a plane of its own; it is taken down and wiped when it goes, also when the test panics.
//! - However a test used it, in the end its tables must be what its events say, and the event stream and the audit log must have the same events as
//!   Postgres: no test can forget to ask.
//! - Needs root and the release binaries, which `./ops/test` builds before.

mod database;
mod disk;
mod gateways;
mod history;
mod network;
mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::netns;
use holdfast_lab::record::Record;
use serde_json::Value;

use crate::complaint::Complaint;
use crate::traffic::Places;

pub use database::Database;
pub use disk::SmallDisk;
pub use gateways::THIRD_PORT;
pub use network::Cut;
pub use service::{Frozen, Readiness, Recipe, wait_for};

/// How long the last events may take to be numbered: whose hint was lost, waits for the relay's own clock of 30 s.
const NUMBERED_TIMEOUT: Duration = Duration::from_secs(40);
/// How long a program may take until it runs.
const RUNS_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the kernel may take to end what was killed.
const KILLED_TIMEOUT: Duration = Duration::from_secs(10);

/// How many programs were run beside planes: each has a log of its own.
static BESIDE: AtomicU32 = AtomicU32::new(0);
/// How many complaints a test that failed tells.
const COMPLAINTS_TOLD: usize = 60;

/// A running plane.
#[derive(Debug)]
pub struct Plane {
    folder: tempfile::TempDir,
    arguments: Vec<String>,
    /// What services and agents log; else as the scripts say.
    log: Option<&'static str>,
}

impl Plane {
    /// Starts one with the estate of the project, or as further arguments of `ops/up` say.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, None)
    }

    /// The same, with services and agents that log by this filter.
    #[must_use]
    pub fn start_logging(arguments: &[&str], filter: &'static str) -> Self {
        Self::start_with(arguments, Some(filter))
    }

    fn start_with(arguments: &[&str], log: Option<&'static str>) -> Self {
        // Short, for the sockets in it.
        let folder = tempfile::Builder::new().prefix("hf-").tempdir().expect("a folder for the plane");
        let plane = Self { folder, arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(), log };
        plane.up();
        plane
    }

    /// Starts what does not run; what it said.
    pub fn up(&self) -> String {
        self.up_with(&[])
    }

    /// The same with more arguments.
    pub fn up_with(&self, more: &[&str]) -> String {
        let mut command = self.script("up");
        let output = command.arg("--detach").args(&self.arguments).args(more).output().expect("ops/up can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "ops/up: {said}");
        said
    }

    /// Ends all of it; the data stays.
    pub fn down(&self) {
        let output = self.script("down").output().expect("ops/down can be run");
        assert!(output.status.success(), "ops/down: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Ends every process; the hosts stay with what their kernels hold, and so does the data.
    pub fn down_but_for_hosts(&self) {
        let output = self.script("down").arg("--keep-hosts").output().expect("ops/down can be run");
        assert!(output.status.success(), "ops/down --keep-hosts: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Asks whether its tables are what its events say and all its histories are the same, and ends all of it; nothing stays.
    ///
    /// # Panics
    /// When they are not, after everything is gone.
    pub fn wipe(&self) {
        let rebuilt = self.rebuild_check();
        let compared = self.compared_histories().map(drop);
        self.remove();
        assert_eq!(rebuilt, Ok(()), "holdfast rebuild --check");
        assert_eq!(compared, Ok(()), "Postgres, the event stream and the audit log");
    }

    /// Whether its tables are what its events say and the audit log is proven; else what was said.
    ///
    /// # Errors
    /// The words of whoever found a difference.
    pub fn proven(&self) -> Result<(), String> {
        self.rebuild_check()?;
        let verified = self.holdfast(&["audit", "verify"]);
        if verified.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&verified.stderr).into_owned()) }
    }

    /// Ends all of it without asking anything: what a test left of it is not whole. Nothing stays.
    pub fn discard(&self) {
        self.remove();
    }

    fn remove(&self) {
        let output = self.script("down").arg("--wipe").output().expect("ops/down can be run");
        assert!(output.status.success(), "ops/down --wipe: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Whether the tables are what the events say, once all events are numbered; else what was said.
    fn rebuild_check(&self) -> Result<(), String> {
        let deadline = Instant::now() + NUMBERED_TIMEOUT;
        loop {
            let output = self.holdfast(&["rebuild", "--check", "-o", "json"]);
            let report = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
            if output.status.success() && report["clean"] == true && report["unnumbered"] == 0 {
                return Ok(());
            }
            let waits = report["clean"] == true && report["unnumbered"].as_u64().is_some_and(|count| count > 0);
            if !waits || Instant::now() > deadline {
                return Err(format!("{report}\n{}", String::from_utf8_lossy(&output.stderr)));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends a service without a word, as a power cut would.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&self, service: &str) {
        let pid = self.pid_of(service);
        let status = Command::new("kill").args(["-KILL", &pid]).status().expect("kill can be run");
        assert!(status.success(), "{service} runs");
        Self::wait_gone(&pid, service);
    }

    /// The program that a service runs.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn program_of(&self, service: &str) -> PathBuf {
        let program = fs::read_link(Path::new("/proc").join(self.pid_of(service)).join("exe"));
        program.unwrap_or_else(|error| panic!("{service}: {error}"))
    }

    /// The environment that a service runs with.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn settings_of(&self, service: &str) -> Vec<(String, String)> {
        let environment = fs::read(Path::new("/proc").join(self.pid_of(service)).join("environ"));
        let environment = environment.unwrap_or_else(|error| panic!("{service}: {error}"));
        let environment = String::from_utf8(environment).expect("settings are text");
        let setting = |text: &str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        environment.split('\0').filter_map(setting).collect()
    }

    /// Runs a program in the place of a service, with these settings and no others, and waits until its log has these words.
    ///
    /// # Panics
    /// When it ends before, or takes too long.
    #[must_use]
    pub fn run_beside(&self, program: &Path, settings: &[(String, String)], until: &str) -> Running {
        let mut running = self.spawn_beside(program, settings);
        assert!(running.says(until), "{}: {}", program.display(), running.said());
        running
    }

    /// The same without waiting for anything.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn spawn_beside(&self, program: &Path, settings: &[(String, String)]) -> Running {
        let nth = BESIDE.fetch_add(1, Ordering::Relaxed);
        let log = self.folder().join(format!("beside-{nth}.log"));
        let file = fs::File::create(&log).expect("the folder is ours");
        let namespace = self.control();
        let child = netns::within(&namespace, || {
            let mut command = Command::new(program);
            command.arg("run").env_clear().envs(settings.iter().cloned());
            let file_too = file.try_clone().expect("a descriptor more");
            command.stdin(Stdio::null()).stdout(file).stderr(file_too).spawn()
        });
        let child = child.unwrap_or_else(|error| panic!("{namespace}: {error}"));
        Running { child: child.unwrap_or_else(|error| panic!("{}: {error}", program.display())), log }
    }

    fn pid_of(&self, service: &str) -> String {
        let file = self.folder().join("run").join(format!("{service}.pid"));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.split_whitespace().next().expect("a pid").to_owned()
    }

    /// Puts every host into a mode, by the documents of the estate, and waits until all are proven in it.
    pub fn set_mode(&self, mode: &str) {
        let mut command = self.script("lib/set-mode");
        let output = command.arg(mode).env("HOLDFAST_LAB", self.folder().join("lab")).output();
        let output = output.expect("ops/lib/set-mode can be run");
        assert!(output.status.success(), "set-mode {mode}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The hosts of the plane and what is around them, for packets.
    #[must_use]
    pub fn places(&self) -> Places {
        Places::new(self.record())
    }

    /// Our table in the kernel of a host, with handles and counters.
    #[must_use]
    pub fn table(&self, host: &str) -> Value {
        Self::table_in(&self.namespace_of(host))
    }

    /// Our table in the kernel of a namespace.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn table_in(namespace: &str) -> Value {
        let nft = ["netns", "exec", namespace, "nft", "-j", "list", "table", "inet", "holdfast"];
        let output = Command::new("ip").args(nft).output().expect("iproute2 is installed");
        assert!(output.status.success(), "{namespace}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("nft prints JSON")
    }

    /// Another process changes the rulesets of a host's kernel; whether it was let.
    #[must_use]
    pub fn nft(&self, host: &str, change: &[&str]) -> bool {
        let namespace = self.namespace_of(host);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace, "nft"]).args(change);
        command.output().expect("iproute2 is installed").status.success()
    }

    fn namespace_of(&self, host: &str) -> String {
        let record = self.record();
        record.host(host).unwrap_or_else(|| panic!("there is no host {host}")).namespace.clone()
    }

    /// The names of all hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        self.record().hosts.into_iter().map(|host| host.name).collect()
    }

    /// The namespace of the control plane.
    ///
    /// # Panics
    /// When the plane has no lab.
    #[must_use]
    pub fn control(&self) -> String {
        self.record().control
    }

    fn record(&self) -> Record {
        Record::load(&self.folder().join("lab")).unwrap_or_else(|error| panic!("the plane has a lab: {error}"))
    }

    /// The folder of the plane.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Every line that a process of ours logged as a warning or worse.
    ///
    /// # Panics
    /// When a log cannot be read, or there is none.
    #[must_use]
    pub fn complaints(&self) -> Vec<Complaint> {
        let entries = |folder: &str| fs::read_dir(self.folder().join(folder)).expect("it is ours").flatten();
        let services = entries("run").map(|entry| entry.path());
        let services = services.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let logs: Vec<_> = services.chain(entries("lab/hosts").map(|host| host.path().join("agent.log"))).collect();
        assert!(logs.len() > 2, "these are not all logs: {logs:?}");
        let loud = |line: &&str| line.contains(" WARN ") || line.contains("ERROR ") || line.contains("panicked");
        let complaints = |log: PathBuf| {
            let text = fs::read_to_string(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
            let complaint = |line: &str| Complaint::new(&log, line);
            text.lines().filter(loud).map(complaint).collect::<Vec<_>>()
        };
        logs.into_iter().flat_map(complaints).collect()
    }

    /// Runs `holdfast` as the plane's first token.
    #[must_use]
    pub fn holdfast(&self, arguments: &[&str]) -> Output {
        self.sourced("holdfast", arguments)
    }

    /// The JSON that a command of `holdfast` prints; it must succeed.
    #[must_use]
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let output = self.holdfast(&[arguments, &["-o", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "holdfast {arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("holdfast {arguments:?}: {error}: {said}"))
    }

    /// Runs `holdfast-agent` on a host, with that host's state.
    ///
    /// # Panics
    /// When there is no such host.
    #[must_use]
    pub fn agent(&self, host: &str, arguments: &[&str]) -> Output {
        let record = self.record();
        let state = record.hosts.iter().find(|one| one.name == host).map(|one| &one.state);
        let state = state.unwrap_or_else(|| panic!("there is no host {host}")).to_str().expect("a plain path");
        self.lab(&[&["exec", host, "--", "holdfast-agent", "--state", state], arguments].concat())
    }

    /// Runs `holdfast-lab` on the plane's lab.
    #[must_use]
    pub fn lab(&self, arguments: &[&str]) -> Output {
        self.sourced("holdfast-lab", arguments)
    }

    /// `holdfast-lab` of the plane, to be started.
    pub fn lab_command(&self, arguments: &[&str]) -> Command {
        self.sourced_command("holdfast-lab", arguments)
    }

    fn sourced(&self, program: &str, arguments: &[&str]) -> Output {
        self.sourced_command(program, arguments).output().expect("bash can be run")
    }

    fn sourced_command(&self, program: &str, arguments: &[&str]) -> Command {
        let env = self.folder().join("env");
        let mut command = Command::new("bash");
        command.args(["-euc", r#"source "$0"; exec "$@""#]).arg(env).arg(program).args(arguments);
        command
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(root().join("ops").join(name));
        command.env("HOLDFAST_STATE", self.folder()).env("HOLDFAST_BUILD", "no");
        command.envs(self.log.map(|filter| ("HOLDFAST_LOG", filter)));
        command
    }
}

impl Plane {
    /// What a test that failed leaves of the logs.
    #[expect(clippy::print_stderr, reason = "the logs go with the plane")]
    fn tell_complaints(&self) {
        let complaints = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.complaints()));
        for complaint in complaints.unwrap_or_default().iter().rev().take(COMPLAINTS_TOLD).rev() {
            eprintln!("{complaint}");
        }
    }
}

/// A program that runs beside the plane until the value goes.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Whether it says these words before it ends, and in time.
    ///
    /// # Panics
    /// When the system cannot say whether it runs.
    pub fn says(&mut self, words: &str) -> bool {
        let deadline = Instant::now() + RUNS_TIMEOUT;
        loop {
            // First whether it runs: what it said before it ended is then read.
            let has_ended = self.child.try_wait().expect("it is a child of ours").is_some();
            if self.said().contains(words) {
                return true;
            }
            if has_ended || Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it said so far.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How it ended, once it has; nothing if it did not in time.
    ///
    /// # Panics
    /// When the system cannot say whether it runs.
    pub fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            let ended = self.child.try_wait().expect("it is a child of ours");
            if ended.is_some() || Instant::now() > deadline {
                return ended;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end.
    ///
    /// # Panics
    /// When it has ended.
    pub fn ask_to_end(&self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(status.expect("kill can be run").success(), "it runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that ended by itself is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if !self.folder().join("plane.env").exists() {
            return;
        }
        if thread::panicking() {
            self.tell_complaints();
            self.remove();
        } else {
            self.wipe();
        }
    }
}

/// The root of the project.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
