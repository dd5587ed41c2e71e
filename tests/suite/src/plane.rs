//! The whole of Holdfast on this machine, as `ops/up` starts it: real servers, services and agents, in a folder of its own.
//!
//! - Each value has a plane of its own; it is taken down and wiped when it goes, also when the test panics.
//! - However a test used it, its tables must be what its events say in the end: no test can forget to ask.
//! - Needs root and the release binaries, which `./ops/test` builds before.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::record::Record;
use serde_json::Value;

use crate::traffic::Places;

/// How long the last events may take to be numbered.
const NUMBERED_TIMEOUT: Duration = Duration::from_secs(10);

/// A running plane.
#[derive(Debug)]
pub struct Plane {
    folder: tempfile::TempDir,
    arguments: Vec<String>,
}

impl Plane {
    /// Starts one with the estate of the project, or as further arguments of `ops/up` say.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        // Short, for the sockets in it.
        let folder = tempfile::Builder::new().prefix("hf-").tempdir().expect("a folder for the plane");
        let plane = Self { folder, arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() };
        plane.up();
        plane
    }

    /// Starts what does not run; what it said.
    pub fn up(&self) -> String {
        let mut command = self.script("up");
        let output = command.arg("--detach").args(&self.arguments).output().expect("ops/up can be run");
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

    /// Asks whether its tables are what its events say, and ends all of it; nothing stays.
    ///
    /// # Panics
    /// When they are not, after everything is gone.
    pub fn wipe(&self) {
        let rebuilt = self.rebuild_check();
        self.remove();
        assert_eq!(rebuilt, Ok(()), "holdfast rebuild --check");
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
        let output = self.lab(&["exec", host, "--", "nft", "-j", "list", "table", "inet", "holdfast"]);
        assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("nft prints JSON")
    }

    /// The names of all hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        self.record().hosts.into_iter().map(|host| host.name).collect()
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
            let complaint = |line: &str| Complaint { log: log.clone(), line: line.to_owned() };
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

    /// Runs `holdfast-lab` on the plane's lab.
    #[must_use]
    pub fn lab(&self, arguments: &[&str]) -> Output {
        self.sourced("holdfast-lab", arguments)
    }

    fn sourced(&self, program: &str, arguments: &[&str]) -> Output {
        let env = self.folder().join("env");
        let mut command = Command::new("bash");
        command.args(["-euc", r#"source "$0"; exec "$@""#]).arg(env).arg(program).args(arguments);
        command.output().expect("bash can be run")
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(root().join("ops").join(name));
        command.env("HOLDFAST_STATE", self.folder()).env("HOLDFAST_BUILD", "no");
        command
    }
}

/// One line of a log that says that something is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    log: PathBuf,
    line: String,
}

impl Complaint {
    /// Whether an agent says only that there is no session with a gateway because it has no process there, or lost the one that it had: what the
    /// kill of that gateway provokes in whoever dials it before it is back.
    #[must_use]
    pub fn is_of_killed_gateway(&self, port: u16) -> bool {
        // Refused while nobody listens; the others where the kill met a connection that was just being made.
        const ENDS: [&str; 5] = [
            "cannot connect to the gateway: Connection refused",
            "cannot connect to the gateway: Connection reset by peer",
            "the handshake with the gateway failed: Connection reset by peer",
            "the handshake with the gateway failed: Broken pipe",
            "the handshake with the gateway failed: tls handshake eof",
        ];
        let Some((_, said)) =
            self.line.split_once(" WARN holdfast_agent::session: no session with the gateway gateway=\"")
        else {
            return false;
        };
        let Some((gateway, error)) = said.split_once("\" error=\"") else { return false };
        let is_agent = self.log.file_name().is_some_and(|name| name == "agent.log");
        is_agent && gateway.ends_with(&format!(":{port}")) && ENDS.iter().any(|end| error.starts_with(end))
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.log.display(), self.line)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if !self.folder().join("plane.env").exists() {
            return;
        }
        if thread::panicking() {
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

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "2026-11-29T16:00:00.000000Z  WARN holdfast_agent::session: no session with the gateway \
         gateway=\"198.19.240.2:7443\" error=\"cannot connect to the gateway: Connection refused (os error 111)\"";

    #[test]
    fn only_an_agent_that_finds_the_killed_gateway_gone_is_excused() {
        let of = |log: &str, line: &str| Complaint { log: log.into(), line: line.to_owned() };
        let excused = |line: &str| of("hosts/web-1/agent.log", line).is_of_killed_gateway(7443);
        assert!(excused(REFUSED));
        assert!(excused(&REFUSED.replace(
            "cannot connect to the gateway: Connection refused (os error 111)",
            "the handshake with the gateway failed: tls handshake eof"
        )));
        assert!(!excused(&REFUSED.replace(":7443", ":7444")), "the other gateway was there");
        assert!(!excused(&REFUSED.replace("Connection refused", "No route to host")));
        assert!(!excused(&REFUSED.replace(" WARN ", " ERROR ")));
        assert!(!excused("2026-11-29T16:00:00.000000Z  WARN holdfast_agent::service: policy is not in force"));
        assert!(!of("run/renderer.log", REFUSED).is_of_killed_gateway(7443));
    }
}
