//! The Postgres of a plane, as its superuser and its machine see it.
//!
//! - A server that was killed is started again as `ops/up` starts it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_lab::netns;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::service::{Frozen, wait_for};
use super::{Plane, root};

/// How long the processes of a killed server may take to find that out.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may be at work without a rest.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The server.
#[derive(Debug)]
pub struct Database {
    folder: PathBuf,
    namespace: String,
}

impl Plane {
    /// Its Postgres.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn database(&self) -> Database {
        let text = fs::read_to_string(self.folder().join("plane.env")).expect("the plane was started");
        let folder = text.lines().find_map(|line| line.strip_prefix("POSTGRES_FOLDER="));
        Database { folder: folder.expect("it has a Postgres").into(), namespace: self.control() }
    }
}

impl Database {
    /// What a statement prints, unaligned and without headers, as the superuser.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn sql(&self, sql: &str) -> String {
        self.asked(sql).unwrap_or_else(|said| panic!("{sql}: {said}"))
    }

    /// The same, or what the server or its client said.
    ///
    /// # Errors
    /// When the server is away or refuses.
    pub fn asked(&self, sql: &str) -> Result<String, String> {
        let script = r#"as_postgres "$(postgres_bin)/psql" -qAtX -v ON_ERROR_STOP=1 -h "$1/socket" -U postgres -d holdfast -c "$2""#;
        self.ops(script, &[sql])
    }

    /// Kills the server as a power cut would, and waits until nothing of it runs.
    ///
    /// # Panics
    /// When it does not run, or a part of it lives on.
    pub fn kill(&self) {
        let postmaster = self.postmaster();
        let children = children_of(postmaster);
        kill(postmaster, Signal::SIGKILL).unwrap_or_else(|error| panic!("Postgres {postmaster}: {error}"));
        let all = || children.iter().chain([&postmaster]);
        // Whoever starts it again takes a pid that waits for its parent for a server that runs.
        let is_gone = || all().all(|pid| kill(*pid, None) == Err(Errno::ESRCH));
        wait_for("Postgres is gone", GONE_TIMEOUT, is_gone);
    }

    /// Starts the server after [`Database::kill`] and waits until it answers.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&self) {
        let started = netns::within(&self.namespace, || self.ops(r#"postgres_start "$1""#, &[]));
        let started = started.expect("the control namespace stands");
        assert!(started.is_ok(), "Postgres does not start: {started:?}");
    }

    /// The server's processes for a role.
    ///
    /// # Panics
    /// When the server does not say.
    #[must_use]
    pub fn backends_of(&self, role: &str) -> Vec<Pid> {
        let pids = self.sql(&format!("SELECT pid FROM pg_stat_activity WHERE usename = '{role}'"));
        pids.lines().map(|pid| Pid::from_raw(pid.parse().expect("a pid is a number"))).collect()
    }

    /// Holds the server's processes for a role still while they do nothing: their connections stay open, hold no lock, and nobody answers on them.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn freeze_backends_of(&self, role: &str) -> Vec<Frozen> {
        let frozen: Vec<Frozen> = self.backends_of(role).into_iter().filter_map(|pid| self.freeze_idle(pid)).collect();
        assert!(!frozen.is_empty(), "{role} has no connection that rests");
        frozen
    }

    /// One that is at work is let go on; what the server shows of a process that is still is what it was then.
    fn freeze_idle(&self, pid: Pid) -> Option<Frozen> {
        let deadline = Instant::now() + IDLE_TIMEOUT;
        while Instant::now() < deadline {
            let frozen = Frozen::new(vec![pid]);
            if self.sql(&format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}")).trim() == "idle" {
                return Some(frozen);
            }
        }
        None
    }

    /// Ends every connection of a service; how many there were.
    ///
    /// # Panics
    /// When the server does not say.
    #[must_use]
    pub fn end_connections(&self) -> usize {
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename LIKE 'holdfast%'";
        self.sql(ended).trim().parse().expect("a number")
    }

    fn postmaster(&self) -> Pid {
        let file = self.folder.join("data/postmaster.pid");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Pid::from_raw(text.lines().next().and_then(|pid| pid.parse().ok()).expect("a pid"))
    }

    /// Runs a line with what `ops/lib` knows of servers; its first argument is the server's folder.
    fn ops(&self, line: &str, arguments: &[&str]) -> Result<String, String> {
        let script = format!(
            r#"lib="$0"; for part in common install process postgres; do source "$lib/$part.sh"; done; {line}"#
        );
        let mut command = Command::new("bash");
        command.args(["-euc", &script]).arg(root().join("ops/lib")).arg(&self.folder).args(arguments);
        let output = command.output().map_err(|error| format!("bash: {error}"))?;
        if output.status.success() {
            return String::from_utf8(output.stdout).map_err(|error| error.to_string());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("there is a proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).to_owned();
        fields.split(' ').nth(1).and_then(|field| field.parse::<i32>().ok()) == Some(parent.as_raw())
    };
    pids.filter(is_child).map(Pid::from_raw).collect()
}
