//! What is watched as it comes: a line of `status --watch` for each change, the bar of a wait on a terminal.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use holdfast_model::statement::OutcomeKind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use crate::intent::POLICIES;
use crate::plane::Plane;

const DEADLINE: Duration = Duration::from_secs(20);

/// A running `status --watch`.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watched {
    fn start(plane: &Plane, arguments: &[&str]) -> Self {
        let mut command = plane.command(plane.admin(), &[&["status", "--watch"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Self { child, lines }
    }

    async fn next(&mut self) -> String {
        let line = timeout(DEADLINE, self.lines.next_line()).await.expect("in time").expect("it is text");
        line.expect("it goes on")
    }

    /// Sends it what Ctrl-C sends, and waits for its end; what it said on stderr.
    async fn interrupt(mut self) -> String {
        let pid = Pid::from_raw(self.child.id().and_then(|id| id.try_into().ok()).expect("it runs"));
        kill(pid, Signal::SIGINT).expect("it is there");
        let status = timeout(DEADLINE, self.child.wait()).await.expect("it ends in time").expect("it is ours");
        let shell_says = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        assert_eq!(shell_says, Some(130), "{status:?}");
        assert_eq!(timeout(DEADLINE, self.lines.next_line()).await.expect("in time").expect("text"), None);
        let mut said = String::new();
        self.child.stderr.take().expect("it is a pipe").read_to_string(&mut said).await.expect("it is text");
        said
    }
}

async fn mk_plane() -> Plane {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("web-1", "10.0.0.2").await;
    plane.file("policies.yaml", POLICIES);
    plane.file("more.yaml", "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: other}\n");
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    plane
}

#[tokio::test]
async fn a_watched_status_tells_each_change_once_as_it_comes_and_ends_at_ctrl_c() {
    let mut plane = mk_plane().await;
    let mut watched = Watched::start(&plane, &[]);
    let first = watched.next().await;
    let revision = first.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).expect("a revision");
    assert_eq!(first, format!("revision {revision} is converged: 2 of 2 hosts converged"));
    plane.says("db-1", OutcomeKind::Failed).await;
    assert_eq!(watched.next().await, format!("revision {revision} is failed: 1 of 2 hosts converged, 1 failed"));
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(watched.next().await, first);
    // Nothing of the fleet changed by this, and no line says that it did: the next line is the next change.
    plane.says("db-1", OutcomeKind::Applied).await;
    plane.run(&["apply", "-f", "more.yaml"]).await.ended(0);
    let next = watched.next().await;
    assert!(
        next.starts_with(&format!("revision {} is not rendered yet; with {revision}: 2 of 2", revision + 1)),
        "{next}"
    );
    plane.render().await;
    assert_eq!(watched.next().await, format!("revision {} is converged: 2 of 2 hosts converged", revision + 1));
    assert_eq!(watched.interrupt().await, "");
}

/// For programs: one whole object a line, and the word alone.
#[tokio::test]
async fn a_watched_status_is_an_object_or_a_word_a_line_for_programs() {
    let mut plane = mk_plane().await;
    let (mut objects, mut words) = (Watched::start(&plane, &["-o", "json"]), Watched::start(&plane, &["-o", "name"]));
    let state = |line: String| {
        let status: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        (status["state"].as_str().map(str::to_owned), status["hosts"]["failed"].as_u64())
    };
    assert_eq!(state(objects.next().await), (Some("converged".to_owned()), Some(0)));
    assert_eq!(words.next().await, "converged");
    plane.says("web-1", OutcomeKind::Failed).await;
    assert_eq!(state(objects.next().await), (Some("failed".to_owned()), Some(1)));
    assert_eq!(words.next().await, "failed");
    assert_eq!((objects.interrupt().await, words.interrupt().await), (String::new(), String::new()));
}

/// On a terminal, which `script` makes of a pipe.
#[tokio::test]
async fn a_wait_on_a_terminal_is_a_bar_that_moves_with_the_hosts_and_is_gone_at_the_end() {
    let mut plane = mk_plane().await;
    plane.file("changed.yaml", &POLICIES.replace("tcp: 5432", "tcp: 5433").replace("port: 443", "port: 444"));
    let wait = plane.command(plane.admin(), &["apply", "-f", "changed.yaml", "--wait=60s"]);
    let (wait, line) = (wait.as_std(), |word: &std::ffi::OsStr| word.to_str().expect("text").to_owned());
    let words: Vec<String> = std::iter::once(wait.get_program()).chain(wait.get_args()).map(line).collect();
    let mut command = tokio::process::Command::new("script");
    command.args(["--quiet", "--return", "--command", &words.join(" "), "/dev/null"]).env_clear();
    command.envs(wait.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm");
    command.current_dir(plane.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("script is installed");
    let mut screen = child.stdout.take().expect("it is a pipe");
    let mut shown = String::new();
    let until = async |shown: &mut String, screen: &mut ChildStdout, what: &str| {
        let mut buffer = [0; 4096];
        while !shown.contains(what) {
            let count = timeout(DEADLINE, screen.read(&mut buffer)).await.expect("in time").expect("it is open");
            assert!(count > 0, "it ended before {what}: {shown}");
            shown.push_str(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()));
        }
    };
    until(&mut shown, &mut screen, "operation op_").await;
    plane.render().await;
    until(&mut shown, &mut screen, "0/2").await;
    plane.says("db-1", OutcomeKind::Applied).await;
    until(&mut shown, &mut screen, "1/2").await;
    plane.says("web-1", OutcomeKind::Applied).await;
    screen.read_to_string(&mut shown).await.expect("text");
    assert!(child.wait().await.expect("it ends").success(), "{shown}");
    let last = shown.rsplit("\u{1b}[2K").next().expect("a part");
    assert!(!last.contains("/2") && last.contains("is applied: applied on 2 of 2 hosts"), "{shown:?}");
}
