//! PostgreSQL and nats-server as `ops/dev-services` starts them: both by TLS, PostgreSQL as an unprivileged user.
//!
//! - Each value has servers of its own, in a folder of its own; they are stopped and wiped when it goes.
//!
//! Tests of the bus alone use [`crate::nats`], which can kill its server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Running servers.
#[derive(Debug)]
pub struct Services {
    folder: tempfile::TempDir,
    values: BTreeMap<String, String>,
}

impl Services {
    /// Starts both.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the servers");
        let mut services = Self { folder, values: BTreeMap::new() };
        services.resume();
        services
    }

    /// Starts what does not run; the same ports, passwords and data.
    pub fn resume(&mut self) {
        let output = run(&["start", self.path()]);
        let text = String::from_utf8(output.stdout).expect("services.env is text");
        self.values = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
    }

    /// Stops both and keeps the data.
    pub fn stop(&self) {
        run(&["stop", self.path()]);
    }

    /// Stops both and removes the data.
    pub fn wipe(&self) {
        run(&["stop", self.path(), "--wipe"]);
    }

    /// One value of `services.env`.
    #[must_use]
    pub fn value(&self, name: &str) -> &str {
        self.values.get(name).unwrap_or_else(|| panic!("ops/dev-services tells no {name}"))
    }

    /// All values of `services.env`.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// The owner of the cluster, by TLS.
    #[must_use]
    pub fn database_url(&self) -> &str {
        self.value("HOLDFAST_DATABASE_URL")
    }

    /// Where NATS listens, by TLS.
    #[must_use]
    pub fn nats_url(&self) -> &str {
        self.value("HOLDFAST_NATS_URL")
    }

    /// A user of NATS who may do everything, and the password.
    #[must_use]
    pub fn nats_login(&self) -> (&str, &str) {
        (self.value("HOLDFAST_NATS_USER"), self.value("HOLDFAST_SERVICES_PASSWORD"))
    }

    /// The authority of both servers' certificates.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.value("HOLDFAST_SERVICES_CA").into()
    }

    /// The folder that everything was made in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().expect("a temporary folder has a plain name")
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.wipe();
    }
}

fn run(arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/dev-services");
    let output = Command::new(script).args(arguments).output().expect("ops/dev-services can be run");
    assert!(output.status.success(), "dev-services {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
