//! How the scripts in `ops/lib` start, find and end processes.

use std::os::unix::fs::PermissionsExt as _;
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

#[test]
fn a_postgres_that_was_killed_and_not_reaped_does_not_run_and_is_waited_for_before_the_next_start() {
    let folder = tempfile::Builder::new().prefix("hf-").tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("it is ours");
    // What `pg_ctl` looks at; the process is one whose parent never takes note of its end.
    let script = r#"source "$library/install.sh"; source "$library/postgres.sh"
        as_postgres mkdir -m 700 "$folder/data"; as_postgres sh -c 'echo 15 >"$0/data/PG_VERSION"' "$folder"
        as_postgres sh -c 'sleep 600 & echo $! >"$0/data/postmaster.pid"; exec sleep 600' "$folder" &
        wait_until 10 as_postgres test -s "$folder/data/postmaster.pid"
        pid="$(postgres_pid "$folder")"; holder="$(ps -o ppid= -p "$pid" | tr -d ' ')"
        trap 'kill -KILL "$pid" "$holder" 2>/dev/null || true' EXIT
        wait_until 10 grep -q sleep "/proc/$holder/comm"
        postgres_runs "$folder" && echo runs
        kill -KILL "$pid"; wait_until 10 process_gone "$pid"
        process_reaped "$pid" || echo a zombie
        as_postgres "$(postgres_bin)/pg_ctl" --pgdata "$folder/data" status >/dev/null && echo pg_ctl takes it for running
        postgres_runs "$folder" || echo does not run
        (sleep 1; kill "$holder") &
        (postgres_start "$folder") 2>&1 | grep -o "PostgreSQL does not start" || true
        process_reaped "$pid" && echo reaped
        wait || true"#;
    let output = run(&format!("folder={}; {script}", folder.path().display()));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wanted =
        ["runs", "a zombie", "pg_ctl takes it for running", "does not run", "PostgreSQL does not start", "reaped"];
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted, "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs lines of bash with the functions of `ops/lib`.
fn run(lines: &str) -> Output {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/lib");
    let library = library.display();
    let script = format!(
        "set -euo pipefail; library={library}; source {library}/common.sh; source {library}/process.sh; {lines}"
    );
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
