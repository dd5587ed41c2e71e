//! The whole of Holdfast on this machine, as `ops/up` starts it: real servers, services and agents, in a folder of its own.
//!
//! - Each value has a plane of its own; it is taken down and wiped when it goes, also when the test panics.
//! - Needs root and the release binaries, which `./ops/test` builds before.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

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

    /// Ends all of it; nothing stays.
    pub fn wipe(&self) {
        let output = self.script("down").arg("--wipe").output().expect("ops/down can be run");
        assert!(output.status.success(), "ops/down --wipe: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The folder of the plane.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
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

impl Drop for Plane {
    fn drop(&mut self) {
        if self.folder().join("plane.env").exists() {
            self.wipe();
        }
    }
}

/// The root of the project.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
