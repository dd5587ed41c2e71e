//! A Docker engine of a test's own, and images that stand in for those that cannot be pulled.
//!
//! - It runs in namespaces of its own, with its data in a folder of its own (`ops/lib/container-engine`); all of it ends with the value, also when the test
//!   panics or is killed.
//! - Whoever talks to it does so by its socket, from where the test is.
//! - Needs root and Debian's docker.io, which `./ops/test --long compose` installs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::plane::root;

/// How long an engine may take to answer, and to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

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
        // Short, for the sockets in it.
        let folder = tempfile::Builder::new().prefix("hf-").tempdir().expect("a folder for the engine");
        let name = format!("holdfast-test-{}", std::process::id());
        // In a session of its own: whoever ends the test's whole group leaves it the time to clean up after itself.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "setsid", "bash"])
            .arg(root().join("ops/lib/container-engine"))
            .arg(folder.path())
            .arg(&name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv and setsid can be run");
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
        let child = |pid: u32| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        // The script's child is in ours still, and waits for the first one of the new.
        let first = child(child(self.process.id())?)?;
        fs::read_link(format!("/proc/{first}/ns/pid")).ok()
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
