//! The real binary in a namespace.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::namespace::Namespace;

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast-agent");
const PATIENCE: Duration = Duration::from_secs(20);

/// An agent's host: a namespace, a state folder, a policy file, and the agent if it runs.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    folder: TempDir,
    child: Mutex<Option<Child>>,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Host {
    /// A host with a policy and no agent yet.
    pub(crate) fn new(policy: &str) -> Self {
        Self::with_environment(policy, &[])
    }

    /// The same; names of variables go with files in its folder.
    pub(crate) fn with_environment(policy: &str, variables: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = variables.iter().map(|(name, file)| (*name, folder.path().join(file))).collect();
        let host = Self { namespace: Namespace::new(), folder, child: Mutex::default(), environment };
        host.write_policy(policy);
        host
    }

    /// A host in a given namespace, without a policy.
    pub(crate) fn within(namespace: Namespace) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { namespace, folder, child: Mutex::default(), environment: Vec::new() }
    }

    /// Gives the agent a variable from its next start on, or takes it away.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: Option<&str>) {
        self.environment.retain(|(set, _)| *set != name);
        self.environment.extend(value.map(|value| (name, PathBuf::from(value))));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write_policy(&self, policy: &str) {
        std::fs::write(self.path("policy.json"), policy).expect("the policy can be written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).arg("--state").arg(self.path("state"));
        // No test of anything else is to end on what its gateway does not answer.
        command.env("HOLDFAST_AGENT_CONFIRM_WINDOW_MS", "600000");
        command.env("HOLDFAST_AGENT_FAILSAFE_PORTS", "").env("HOLDFAST_LOG", "warn");
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Starts the agent and waits until it answers.
    pub(crate) fn start(&self) {
        self.spawn();
        self.wait_until("the agent answers", || self.ask(&["status"]).status.success());
    }

    /// Starts the agent and does not wait.
    pub(crate) fn spawn(&self) {
        let mut command = self.command(&["run"]);
        command.arg("--standalone").arg(self.path("policy.json"));
        self.start_child(command);
    }

    /// Starts the agent of an enrolled host and does not wait.
    pub(crate) fn run_session(&self) {
        self.start_child(self.command(&["run"]));
    }

    /// Starts a command of the agent's program and does not wait.
    pub(crate) fn begin(&self, arguments: &[&str]) {
        self.start_child(self.command(arguments));
    }

    fn start_child(&self, mut command: Command) {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = self.namespace.run(move || command.spawn().expect("the agent starts"));
        *self.child.lock().expect("not poisoned") = Some(child);
    }

    /// Ends the agent by a signal and waits for it; its exit code.
    pub(crate) fn end(&self, signal: nix::sys::signal::Signal) -> Option<i32> {
        let mut child = self.child.lock().expect("not poisoned").take().expect("an agent runs");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("it can be signalled");
        child.wait().expect("it ends").code()
    }

    /// What the agent's doctor finds in trouble: the name of each, and what is told of it.
    pub(crate) fn troubles(&self) -> Vec<(String, String)> {
        troubles_of(&self.ask(&["doctor", "-o", "json"]))
    }

    /// The same of a process that has no capability.
    pub(crate) fn troubles_without_rights(&self) -> Vec<(String, String)> {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all", BINARY, "doctor", "-o", "json", "--state"]);
        command.arg(self.path("state"));
        self.namespace.run(move || troubles_of(&command.output().expect("setpriv is installed")))
    }

    /// Sends the agent a signal.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let child = self.child.lock().expect("not poisoned");
        let pid = i32::try_from(child.as_ref().expect("an agent runs").id()).expect("a pid");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("it can be signalled");
    }

    /// The process of the agent.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.lock().expect("not poisoned").as_ref().expect("an agent runs").id()
    }

    /// Waits until the agent has ended by itself; its exit code.
    pub(crate) fn ended(&self) -> Option<i32> {
        let mut child = self.child.lock().expect("not poisoned").take().expect("an agent ran");
        child.wait().expect("it ends").code()
    }

    /// Waits until the agent has ended by itself or answers; whether it answers.
    pub(crate) fn answers(&self) -> bool {
        let mut has_ended = false;
        self.wait_until("the agent answers or ends", || {
            let mut child = self.child.lock().expect("not poisoned");
            has_ended = child.as_mut().expect("an agent was started").try_wait().expect("it is ours").is_some();
            drop(child);
            has_ended || self.ask(&["status"]).status.success()
        });
        !has_ended
    }

    /// Waits until a signal has ended the agent; which one.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn killed(&self) -> Option<i32> {
        let mut child = self.child.lock().expect("not poisoned").take().expect("an agent ran");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                return std::os::unix::process::ExitStatusExt::signal(&status);
            }
            if Instant::now() > deadline {
                child.kill().expect("it runs");
                panic!("the agent did not end: {:?}", child.wait());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs a command of the agent's program.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        self.namespace.run(move || command.output().expect("the command runs"))
    }

    /// The agent's status.
    pub(crate) fn status(&self) -> serde_json::Value {
        let output = self.ask(&["status", "-o", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("status is JSON")
    }

    pub(crate) fn applied_version(&self) -> Option<u64> {
        self.status()["policy"]["applied"]["version"].as_u64()
    }

    /// Waits for something with a deadline.
    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The ledger's file.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.path("state").join("standalone.ledger")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Ok(mut child) = self.child.lock()
            && let Some(mut child) = child.take()
        {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn troubles_of(output: &Output) -> Vec<(String, String)> {
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |check: &serde_json::Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let checks = found["checks"].as_array().expect("checks");
    let troubles: Vec<(String, String)> = checks
        .iter()
        .filter(|check| check["ok"] != true)
        .map(|check| (text(check, "name"), format!("{} -> {}", text(check, "detail"), text(check, "remedy"))))
        .collect();
    assert_eq!(output.status.success(), troubles.is_empty(), "{found}");
    troubles
}
