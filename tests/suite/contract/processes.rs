//! How the scripts in `ops/lib` start, find and end processes.

use std::path::Path;
use std::process::{Command, Output};

#[test]
fn a_service_is_started_once_and_ended_with_those_after_it() {
    let folder = tempfile::tempdir().expect("a folder for pid files");
    let path = folder.path().display();
    let start = format!("ensure_service {path} one 10 true sleep 600; ensure_service {path} two 10 true sleep 600");
    run(&start).expect_success();
    let first = pids(folder.path());
    run(&start).expect_success();
    assert_eq!(pids(folder.path()), first, "a second start changes nothing");
    assert!(first.iter().all(|pid| runs(pid)));

    run(&format!("stop_services {path} 10")).expect_success();
    assert!(first.iter().all(|pid| !runs(pid)), "{first:?}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is ours").count(), 2, "the logs stay");
    run(&format!("stop_services {path} 10")).expect_success();
}

#[test]
fn a_service_that_ends_at_once_is_told_with_its_last_words() {
    let folder = tempfile::tempdir().expect("a folder for pid files");
    let command = format!("ensure_service {} one 10 false sh -c 'echo no such port; exit 3'", folder.path().display());
    let output = run(&command);
    assert!(!output.status.success());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("one ended: no such port"), "{words}");
}

#[test]
fn a_pid_that_was_given_to_another_process_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder for pid files");
    let mut other = Command::new("sleep").arg("600").spawn().expect("sleep can be run");
    let pid_file = folder.path().join("one.pid");
    std::fs::write(&pid_file, format!("{} 1\n", other.id())).expect("the folder is ours");

    let output = run(&format!("running_pid {0} || echo nobody; stop_process {0} 10", pid_file.display()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nobody\n");
    assert!(output.status.success() && !pid_file.exists());
    assert!(other.try_wait().expect("it is our child").is_none(), "it was signalled");
    other.kill().expect("it is our child");
    other.wait().expect("it is our child");
}

/// Runs lines of bash with the functions of `ops/lib`.
fn run(lines: &str) -> Output {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/lib");
    let library = library.display();
    let script = format!("set -euo pipefail; source {library}/common.sh; source {library}/process.sh; {lines}");
    Command::new("bash").args(["-c", &script]).output().expect("bash can be run")
}

trait ExpectSuccess {
    fn expect_success(self);
}

impl ExpectSuccess for Output {
    fn expect_success(self) {
        assert!(self.status.success(), "{}", String::from_utf8_lossy(&self.stderr));
    }
}

fn pids(folder: &Path) -> Vec<String> {
    ["one", "two"]
        .map(|name| {
            let text = std::fs::read_to_string(folder.join(format!("{name}.pid"))).expect("it was started");
            text.split(' ').next().unwrap_or_default().to_owned()
        })
        .to_vec()
}

fn runs(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| !status.contains("State:\tZ"))
}
