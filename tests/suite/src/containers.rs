//! A Docker engine of a test's own, and images that stand in for those that cannot be pulled.
//!
//! - It runs in namespaces of its own, or in the network of a host of a lab, with its data in a folder of its own (`ops/lib/container-engine`); all of it
//!   ends with the value, also when the test panics or is killed. What it made in a lab's host stays there, as on any host whose engine ends.
//! - Whoever talks to it does so by its socket, from where the test is.
//! - Needs root and Debian's docker.io, which `./ops/test --long compose` and `--long docker` install.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::netns;

use crate::plane::root;

/// How long an engine may take to answer, and to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How an engine is to run, where not as it does by itself.
#[derive(Clone, Default, Debug)]
pub struct Setup {
    /// The network namespace that it works in; one of its own if there is none.
    pub network: Option<String>,
    /// Further arguments of `dockerd`.
    pub arguments: Vec<String>,
    /// Whether it writes its rules by the old tools, those that do not translate to nftables.
    pub by_old_iptables: bool,
}

/// A running engine.
#[derive(Debug)]
pub struct Engine {
    folder: tempfile::TempDir,
    name: String,
    process: Child,
}

impl Engine {
    /// Starts one, without any image.
    ///
    /// # Panics
    /// When it does not answer in time.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(&Setup::default())
    }

    /// Starts one in a certain way, without any image.
    ///
    /// # Panics
    /// When it does not answer in time.
    #[must_use]
    pub fn start_as(setup: &Setup) -> Self {
        // Short, for the sockets in it.
        let folder = tempfile::Builder::new().prefix("hf-").tempdir().expect("a folder for the engine");
        if setup.by_old_iptables {
            put_old_iptables_first(&folder.path().join("bin"));
        }
        let name = format!("holdfast-test-{}", std::process::id());
        // In a session of its own: whoever ends the test's whole group leaves it the time to clean up after itself.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "setsid", "bash"])
            .arg(root().join("ops/lib/container-engine"))
            .arg(folder.path())
            .arg(&name)
            .args(&setup.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(network) = &setup.network {
            command.env("HOLDFAST_ENGINE_NETWORK", netns::path_of(network));
        }
        let process = command.spawn().expect("setpriv and setsid can be run");
        let mut engine = Self { folder, name, process };
        let answers = wait_until(|| {
            let ended = engine.process.try_wait().expect("it is ours").is_some();
            ended || engine.docker(&["version"]).status.success()
        });
        let lives = engine.process.try_wait().expect("it is ours").is_none();
        assert!(answers && lives, "the engine does not start: {}", engine.log());
        engine
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("engine.log")).unwrap_or_else(|error| error.to_string())
    }

    /// Makes the images that the repository's files can be tried with, `holdfast-test/debian`, `rust`, `postgres` and `nats`, from this machine's
    /// files and the release binaries.
    ///
    /// # Panics
    /// When one cannot be made.
    pub fn make_stand_ins(&self) {
        let roots = self.folder().join("roots");
        fs::create_dir(&roots).expect("it is ours");
        let output = self.command(&root().join("ops/lib/stand-in-images")).arg(&roots).output();
        let output = output.expect("the script can be run");
        assert!(output.status.success(), "no stand-in images: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes the image `holdfast-test/small`: busybox and nothing else.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn make_small(&self) {
        let root = self.folder().join("small");
        fs::create_dir_all(root.join("bin")).expect("it is ours");
        fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
        let archive = self.folder().join("small.tar");
        let packed = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status();
        assert!(packed.expect("tar can be run").success(), "the image's files cannot be packed");
        drop(self.ask(&["import", archive.to_str().expect("a plain path"), "holdfast-test/small"]));
    }

    /// Ends the daemon as a service manager does, and waits until its successor answers.
    ///
    /// # Panics
    /// When none does in time.
    pub fn restart_daemon(&self) {
        let before = self.daemon().expect("a running engine has a daemon");
        fs::write(self.folder().join("again"), "").expect("the folder is ours");
        let status = Command::new("kill").args(["-TERM", &before.to_string()]).status().expect("kill can be run");
        assert!(status.success(), "{before} is ours and runs");
        let answers = wait_until(|| {
            let is_another = self.daemon().is_some_and(|daemon| daemon != before);
            is_another && self.docker(&["version"]).status.success()
        });
        assert!(answers, "the engine does not start again: {}", self.log());
    }

    /// The network namespace of a running container, as a whole path.
    #[must_use]
    pub fn network_of(&self, container: &str) -> String {
        let pid = self.ask(&["inspect", "--format", "{{.State.Pid}}", container]);
        assert_ne!(pid, "0", "{container} does not run");
        // The engine counts processes in its own namespace.
        format!("/proc/{}/root/proc/{pid}/ns/net", self.first().expect("a running engine has processes"))
    }

    /// The daemon's process.
    fn daemon(&self) -> Option<u32> {
        let children = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        };
        let is_daemon =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "dockerd");
        children(self.first()?).into_iter().find(is_daemon)
    }

    /// A program that talks to this engine and builds with its own builder: no other is there.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("DOCKER_HOST", format!("unix://{}", self.folder().join("docker.sock").display()))
            .env("DOCKER_CONFIG", self.folder().join("client"))
            .env("DOCKER_BUILDKIT", "0")
            .env("COMPOSE_DOCKER_CLI_BUILD", "0");
        command
    }

    /// Runs `docker`.
    #[must_use]
    pub fn docker(&self, arguments: &[&str]) -> Output {
        self.command(Path::new("docker")).args(arguments).output().expect("docker can be run")
    }

    /// What `docker` prints; it must succeed.
    #[must_use]
    pub fn ask(&self, arguments: &[&str]) -> String {
        let output = self.docker(arguments);
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Where it keeps a volume.
    #[must_use]
    pub fn volume(&self, name: &str) -> PathBuf {
        self.folder().join("data/volumes").join(name).join("_data")
    }

    /// Ends it; what is left of it: processes of its namespace, control groups, mounts.
    #[must_use]
    pub fn end(mut self) -> Vec<String> {
        let namespace = self.namespace().expect("a running engine has processes");
        self.stop();
        let mut left: Vec<String> =
            control_groups(&self.name).iter().map(|path| format!("control group {}", path.display())).collect();
        let in_namespace = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|its| its == namespace);
        left.extend(processes().into_iter().filter(in_namespace).map(|pid| format!("process {pid}")));
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("there is a proc");
        let folder = self.folder().display().to_string();
        left.extend(mounts.lines().filter(|line| line.contains(&folder)).map(|line| format!("mount {line}")));
        left
    }

    /// The namespace of its processes.
    fn namespace(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/ns/pid", self.first()?)).ok()
    }

    /// The first process of that namespace.
    fn first(&self) -> Option<u32> {
        let child = |pid: u32| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        // The script's child is in ours still, and waits for the first one of the new.
        child(child(self.process.id())?)
    }

    /// Asks it to end, and waits until it has.
    fn stop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status());
        }
        drop(self.process.wait());
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A folder in which the usual names are those of the old tools.
fn put_old_iptables_first(folder: &Path) {
    fs::create_dir(folder).expect("the engine's folder is ours");
    for name in ["iptables", "ip6tables"] {
        let old = format!("/usr/sbin/{name}-legacy");
        std::os::unix::fs::symlink(old, folder.join(name)).expect("the folder is ours");
    }
}

/// Every control group at or below the top ones of a name, of either version, the deepest first.
fn control_groups(name: &str) -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = folders(top).unwrap_or_default();
    let mut open: Vec<PathBuf> = hierarchies.iter().map(|path| path.join(name)).chain([top.join(name)]).collect();
    open.retain(|path| path.is_dir());
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        // One that went meanwhile has nothing in it.
        open.extend(folders(&path).unwrap_or_default());
        found.push(path);
    }
    found.reverse();
    found
}

fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(entries.map(|entry| entry.path()).collect())
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("there is a proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).collect()
}

fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
}
