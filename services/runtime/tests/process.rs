//! A whole process, from its start over a real SIGTERM to its end.

use holdfast_runtime::admin::{self, healthcheck};
use holdfast_runtime::log::LogFormat;
use holdfast_runtime::process::{DRAIN_GRACE, Process};
use holdfast_runtime::{Build, exit};
use nix::sys::signal::kill;
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn process_is_ready_once_all_its_parts_are_there_and_says_that_it_drains_until_its_last_task_has_ended() {
    let build = Build { service: "gateway", version: "1.2.3", commit: None };
    let listen = "127.0.0.1:0".parse().unwrap();
    let process = Process::start(build, "info", LogFormat::Json, Some(listen)).await.unwrap();
    let address = process.admin.unwrap();
    let shutdown = process.tasks.shutdown().clone();
    let (release, held) = oneshot::channel::<()>();
    process.tasks.critical("sessions", {
        let shutdown = shutdown.clone();
        async move {
            shutdown.asked().await;
            let _released = held.await;
            Ok::<_, Infallible>(())
        }
    });
    let early = healthcheck(address, LIMIT).await;
    assert!(matches!(early, Err(admin::Error::NotReady { .. })), "its parts are not all there: {early:?}");

    let finish = process.finish(DRAIN_GRACE);
    let ask_while_draining = async {
        healthcheck(address, LIMIT).await.unwrap();
        raise(Signal::SIGTERM).unwrap();
        shutdown.asked().await;
        let draining = healthcheck(address, LIMIT).await;
        release.send(()).unwrap();
        draining
    };
    let (finished, draining) = tokio::join!(finish, ask_while_draining);
    assert!(matches!(draining, Err(admin::Error::NotReady { .. })), "{draining:?}");
    assert!(finished.is_ok());
}

/// Says to a test that it is the process which is looked at.
const CHILD: &str = "HOLDFAST_PROCESS_CHILD";

#[test]
fn a_reader_of_the_log_that_is_there_and_reads_nothing_holds_up_neither_answers_nor_the_end() {
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(log_without_end(), ExitCode::SUCCESS);
        return;
    }
    let name = "a_reader_of_the_log_that_is_there_and_reads_nothing_holds_up_neither_answers_nor_the_end";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "yes");
    let mut child = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    // Held to the end: what the harness cannot say there it says to stderr, and waits.
    let mut said = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let admin = said.find_map(|line| line.strip_prefix("admin=")?.parse().ok()).unwrap();
    until("lines are lost and counted", || {
        let lost =
            metrics(admin).lines().find_map(|line| line.strip_prefix("holdfast_log_lines_lost_total ")?.parse().ok());
        lost.is_some_and(|lost: u64| lost > 0)
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(healthcheck(admin, LIMIT)).unwrap();
    kill(Pid::from_raw(child.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let mut status = None;
    until("it ends", || {
        status = child.0.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "{status:?}");
    drop(said);

    let mut log = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let numbers: Vec<u64> = log.lines().filter_map(number).collect();
    assert!(numbers.len() > 30, "{} lines of 1 kB, and the pipe holds 64", numbers.len());
    assert!((0..).zip(&numbers).all(|(n, logged)| n == *logged), "what was taken is whole and in order: {numbers:?}");
}

/// A process that logs as fast as it can until it is asked to end; it is ready all the time.
fn log_without_end() -> ExitCode {
    let build = Build { service: "gateway", version: "1.2.3", commit: None };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let ended = runtime.block_on(async {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let process = Process::start(build, "info", LogFormat::Json, Some(listen)).await.expect("it starts");
        let shutdown = process.tasks.shutdown().clone();
        process.tasks.critical("talker", async move {
            let text = "x".repeat(1_000);
            let mut n = 0_u64;
            while !shutdown.is_asked() {
                tracing::info!(n, text);
                n += 1;
                tokio::task::yield_now().await;
            }
            Ok::<_, Infallible>(())
        });
        let admin = process.admin.expect("it listens");
        writeln!(std::io::stdout(), "admin={admin}").expect("the test reads");
        process.finish(DRAIN_GRACE).await
    });
    exit::finish(ended)
}

fn number(line: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?.get("n")?.as_u64()
}

fn metrics(admin: SocketAddr) -> String {
    let mut stream = TcpStream::connect(admin).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + 4 * LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that is gone with the value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
