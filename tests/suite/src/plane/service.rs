//! Single processes of a plane: how each is run, ended, held still and started again.
//!
//! - A service is run as it was found running: the same program, arguments, folder and settings, but for what a test changes of them.
//! - What is started here is written down like what `ops/up` started, so that `ops/down` ends it.
//! - What is held still goes on when the value for it goes, also when the test panics.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{KILLED_TIMEOUT, Plane, root};

/// How long a service may take until it is ready, or the kernel to stop or end one.
const DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long a service may take to answer on its admin listener.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How a service is run.
#[derive(Clone, Debug)]
pub struct Recipe {
    service: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    settings: Vec<(String, String)>,
}

impl Recipe {
    /// The same with another value of a setting.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.retain(|(set, _)| set != name);
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with another last argument.
    #[must_use]
    pub fn with_last_argument(mut self, argument: &str) -> Self {
        self.arguments.pop();
        self.arguments.push(argument.to_owned());
        self
    }

    /// The same for a service of another name.
    #[must_use]
    pub fn renamed(self, service: &str) -> Self {
        Self { service: service.to_owned(), ..self }
    }

    /// Of which service it is.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The value of a setting.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn setting(&self, name: &str) -> &str {
        let found = self.settings.iter().find(|(set, _)| set == name);
        found.map_or_else(|| panic!("{} has no {name}", self.service), |(_, value)| value)
    }
}

/// What a service says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readiness {
    /// Whether it is ready.
    pub ready: bool,
    /// Each check, as it is shown.
    pub report: Value,
}

impl Readiness {
    /// Why a check is not well; absent if it is.
    #[must_use]
    pub fn fault_of(&self, check: &str) -> Option<String> {
        let found = self.report["checks"].as_array().and_then(|checks| checks.iter().find(|one| one["name"] == check));
        // One that is not there yet is not well.
        found
            .map_or_else(|| Some(format!("there is no check {check}")), |one| one["reason"].as_str().map(str::to_owned))
    }
}

impl Plane {
    /// How a service is run now.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn recipe(&self, service: &str) -> Recipe {
        let process = Path::new("/proc").join(self.pid_of(service));
        let line = fs::read(process.join("cmdline")).unwrap_or_else(|error| panic!("{service}: {error}"));
        let line = String::from_utf8(line).expect("arguments are text");
        let words = line.trim_end_matches('\0').split('\0').skip(1);
        Recipe {
            service: service.to_owned(),
            program: self.program_of(service),
            arguments: words.map(str::to_owned).collect(),
            folder: fs::read_link(process.join("cwd")).expect("it runs"),
            settings: self.settings_of(service),
        }
    }

    /// Starts a service that does not run, where the plane has its services.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_service(&self, recipe: &Recipe) {
        let run = self.folder().join("run");
        let lib = root().join("ops/lib");
        let script = r#"source "$0/common.sh"; source "$0/process.sh"; start_process "$@""#;
        let settings = recipe.settings.iter().map(|(name, value)| format!("{name}={value}"));
        let mut command = Command::new("bash");
        command.args(["-euc", script]).arg(lib);
        command.arg(run.join(format!("{}.pid", recipe.service))).arg(run.join(format!("{}.log", recipe.service)));
        command.args(["env", "-i", "-C"]).arg(&recipe.folder).args(settings);
        command.arg(&recipe.program).args(&recipe.arguments);
        let output = netns::within(&self.control(), || command.output()).expect("the control namespace stands");
        let output = output.expect("bash can be run");
        assert!(output.status.success(), "{}: {}", recipe.service, String::from_utf8_lossy(&output.stderr));
        // The shell's child becomes the program in a moment, and has its settings a moment after its name.
        let is_it = || {
            let program = fs::read_link(Path::new("/proc").join(self.pid_of(&recipe.service)).join("exe"));
            program.is_ok_and(|program| program == recipe.program)
                && self.settings_of(&recipe.service) == recipe.settings
        };
        wait_for(&format!("{} runs", recipe.service), DEADLINE, is_it);
    }

    /// Kills a service and starts it again as it was run.
    ///
    /// # Panics
    /// When it does not run, or cannot be started.
    pub fn kill_and_start(&self, service: &str) {
        let recipe = self.recipe(service);
        self.kill(service);
        self.start_service(&recipe);
    }

    /// Asks a service to end and waits until it has.
    ///
    /// # Panics
    /// When it does not run, or does not end.
    pub fn end(&self, service: &str) {
        self.signal(service, Signal::SIGTERM);
        wait_for(&format!("{service} ends"), DEADLINE, || !self.runs(service));
    }

    /// Signals a service.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, service: &str, signal: Signal) {
        kill(self.process(service), signal).unwrap_or_else(|error| panic!("{service}: {error}"));
    }

    /// Whether a service runs.
    #[must_use]
    pub fn runs(&self, service: &str) -> bool {
        netns::find_process(self.process(service).as_raw()).is_some()
    }

    /// Holds a service still: its connections stay open and it says nothing.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn freeze(&self, service: &str) -> Frozen {
        Frozen::new(vec![self.process(service)])
    }

    /// Holds the agent of a host still.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn freeze_agent(&self, host: &str) -> Frozen {
        Frozen::new(vec![self.agent_process(host)])
    }

    /// The process of a host's agent.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn agent_process(&self, host: &str) -> Pid {
        let record = self.record();
        let agent = record.host(host).and_then(|host| host.agent);
        Pid::from_raw(agent.unwrap_or_else(|| panic!("{host} has no agent")).pid)
    }

    /// How the agent of a host is run, as words in which `{state}` stands for the folder of a host.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn agent_command(&self, host: &str) -> Vec<String> {
        let process = Path::new("/proc").join(self.agent_process(host).to_string());
        let words = |file: &str| {
            let bytes = fs::read(process.join(file)).unwrap_or_else(|error| panic!("{host}: {error}"));
            let text = String::from_utf8(bytes).expect("settings and arguments are text");
            text.trim_end_matches('\0').split('\0').map(str::to_owned).collect::<Vec<_>>()
        };
        let state = self.record().host(host).expect("it has an agent").state.display().to_string();
        let program = fs::read_link(process.join("exe")).expect("it runs").display().to_string();
        let arguments = words("cmdline").into_iter().skip(1).map(|word| word.replace(&state, "{state}"));
        let run = ["env".to_owned(), "-i".to_owned()].into_iter().chain(words("environ"));
        run.chain([program]).chain(arguments).collect()
    }

    /// Kills the agent of a host; what its kernel holds stays.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill_agent(&self, host: &str) {
        let agent = self.agent_process(host);
        kill(agent, Signal::SIGKILL).unwrap_or_else(|error| panic!("{host}: {error}"));
        Self::wait_gone(&agent.to_string(), host);
    }

    /// Starts the agents that do not run.
    ///
    /// # Panics
    /// When one does not start.
    pub fn start_agents(&self, command: &[String]) {
        let words: Vec<&str> = ["start", "--"].into_iter().chain(command.iter().map(String::as_str)).collect();
        let output = self.lab(&words);
        assert!(output.status.success(), "the agents do not start: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn process(&self, service: &str) -> Pid {
        Pid::from_raw(self.pid_of(service).parse().expect("a pid is a number"))
    }

    /// What a service says of itself.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn readiness(&self, service: &str) -> Readiness {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.asked_readiness(service) {
                Ok(said) => return said,
                // One that was only just started does not listen yet.
                Err(_) if Instant::now() < deadline => thread::sleep(LOOK),
                Err(error) => panic!("{service}: {error}"),
            }
        }
    }

    fn asked_readiness(&self, service: &str) -> io::Result<Readiness> {
        let (head, body) = self.asked(service, "/readyz")?;
        let report = serde_json::from_str(&body).unwrap_or_default();
        Ok(Readiness { ready: head.starts_with("HTTP/1.1 200"), report })
    }

    /// The sum of all series of a metric of a service.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn metric(&self, service: &str, name: &str) -> f64 {
        let (_, body) = self.asked(service, "/metrics").unwrap_or_else(|error| panic!("{service}: {error}"));
        let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        body.lines().filter(of_it).filter_map(value).sum()
    }

    /// The most memory that a service has used, in KiB.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn memory_max_kib(&self, service: &str) -> u64 {
        let status = fs::read_to_string(Path::new("/proc").join(self.pid_of(service)).join("status"));
        let status = status.unwrap_or_else(|error| panic!("{service}: {error}"));
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Waits until a service is ready, or is not.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn wait_ready(&self, service: &str, ready: bool) {
        let is_so = || self.asked_readiness(service).is_ok_and(|said| said.ready == ready);
        wait_for(&format!("{service} is ready: {ready}"), DEADLINE, is_so);
    }

    fn asked(&self, service: &str, path: &str) -> io::Result<(String, String)> {
        let address: SocketAddr =
            self.recipe(service).setting("HOLDFAST_ADMIN_LISTEN").parse().map_err(io::Error::other)?;
        let stream = netns::within(&self.control(), || TcpStream::connect_timeout(&address, ANSWER_TIMEOUT));
        let mut stream = stream.map_err(io::Error::other)??;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        Ok((head.to_owned(), body.to_owned()))
    }

    /// Waits until a process has ended: the first thread may be a zombie while others still hold the sockets.
    pub(super) fn wait_gone(pid: &str, what: &str) {
        let process = Path::new("/proc").join(pid);
        let is_alone = || fs::read_dir(process.join("task")).map_or(true, |tasks| tasks.count() <= 1);
        let is_gone =
            || fs::read_to_string(process.join("stat")).map_or(true, |stat| stat.contains(") Z ") && is_alone());
        wait_for(&format!("{what} has ended"), KILLED_TIMEOUT, is_gone);
    }
}

/// Processes that are held still until the value goes.
#[derive(Debug)]
pub struct Frozen {
    pids: Vec<Pid>,
}

impl Frozen {
    pub(super) fn new(pids: Vec<Pid>) -> Self {
        let frozen = Self { pids };
        for pid in &frozen.pids {
            kill(*pid, Signal::SIGSTOP).unwrap_or_else(|error| panic!("{pid}: {error}"));
            let is_still = || {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.contains(") T ")
            };
            wait_for(&format!("{pid} is still"), DEADLINE, is_still);
        }
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.pids {
            // One that was killed meanwhile is gone already.
            let _gone = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// Waits until something is so.
///
/// # Panics
/// When it is not so in time.
pub fn wait_for(what: &str, within: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + within;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        thread::sleep(LOOK);
    }
}
