//! A lab for one test: made in a folder of its own, gone when dropped.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use holdfast_lab::lab::{HostState, Lab};
use holdfast_lab::netns;
use holdfast_lab::plan::HostPlan;
use tempfile::TempDir;

/// The binary under test, which is also the helpers'.
pub(super) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_holdfast-lab"))
}

/// The agent's binary: where `HOLDFAST_BIN` says, or beside the one under test.
pub(super) fn agent() -> PathBuf {
    let folder = std::env::var_os("HOLDFAST_BIN").map(PathBuf::from);
    let agent =
        folder.map_or_else(|| program().with_file_name("holdfast-agent"), |folder| folder.join("holdfast-agent"));
    assert!(agent.is_file(), "{} is missing: build holdfast-agent first", agent.display());
    agent
}

/// Four hosts in ranges that lie in each other, among them some that machines and containers use themselves.
pub(super) fn mk_plans() -> Vec<HostPlan> {
    [
        ("x/a", &["192.0.2.2", "fd00::1"][..]),
        ("x/b", &["10.0.0.0", "2001:db8::1"]),
        ("y/c[Deployment]", &["10.0.0.255", "198.19.250.7", "fd00::2", "2001:db8:ffff::"]),
        ("y/d", &["172.17.0.1", "fd4c:6162:6c61::1"]),
    ]
    .map(|(name, addresses)| HostPlan {
        estate_namespace: None,
        name: name.to_owned(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    })
    .to_vec()
}

/// A lab and its folder.
pub(super) struct Stand {
    folder: TempDir,
    lab: Lab,
}

impl Stand {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (lab, _) = Lab::ensure(folder.path(), &mk_plans()).unwrap();
        Self { folder, lab }
    }

    pub(super) fn lab(&self) -> &Lab {
        &self.lab
    }

    pub(super) fn lab_mut(&mut self) -> &mut Lab {
        &mut self.lab
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn namespace(&self, host: &str) -> &str {
        &self.lab.host(host).unwrap().namespace
    }

    /// Loads rules into a host's namespace.
    pub(super) fn nft(&self, host: &str, rules: &str) {
        let mut child = netns::within(self.namespace(host), || {
            Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap()
        })
        .unwrap();
        child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "nft refused: {rules}");
    }

    /// Runs the binary on this lab.
    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        Command::new(program()).arg("--lab").arg(self.folder()).args(arguments).output().unwrap()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        Lab::remove(self.folder.path(), HostState::Wipe).unwrap();
    }
}
