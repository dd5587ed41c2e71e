//! Labs as wholes: side by side, after a crash, gone without a trace; what runs in them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::agents;
use holdfast_lab::lab::{Ensured, Error, HostState, Lab};
use holdfast_lab::netns;
use holdfast_lab::record::Record;
use serde_json::Value;

use super::stand::{Stand, mk_plans, program};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

#[test]
fn a_lab_leaves_nothing_in_the_namespace_of_its_caller() {
    let before = traces();
    let stand = Stand::new();
    let namespaces: Vec<String> = stand.lab().record().namespaces().map(str::to_owned).collect();
    assert!(namespaces.iter().all(|name| netns::is_named(name)));
    assert_eq!(traces(), before, "a standing lab shows outside");
    stand.nft("x/a", "table inet holdfast { chain in { type filter hook input priority 0; }\n}");
    drop(stand);
    assert_eq!(traces(), before);
    assert!(!namespaces.iter().any(|name| netns::is_named(name)));
}

#[test]
fn a_standing_lab_is_left_as_it_is_and_other_hosts_are_refused() {
    let stand = Stand::new();
    let (_, ensured) = Lab::ensure(stand.folder(), &mk_plans()).unwrap();
    assert_eq!(ensured, Ensured::Stood);
    let fewer = &mk_plans()[..3];
    assert!(matches!(Lab::ensure(stand.folder(), fewer), Err(Error::Differs { .. })));
    assert!(stand.lab().record().namespaces().all(netns::is_named));
}

#[test]
fn what_a_crash_left_is_made_anew_or_taken_away() {
    let stand = Stand::new();
    let record = stand.lab().record().clone();
    // The maker ended half way: a namespace is missing, the record says so, and something runs that does not want to end.
    let mut stubborn = spawn_in(&record.hosts[0].namespace, "trap '' TERM; echo up; exec sleep 600");
    save_unready(&stand, &record);
    let missing = format!("netns delete {}", record.hosts[3].namespace);
    netns::run_batch(None, &[missing]).unwrap();
    let (_, ensured) = Lab::ensure(stand.folder(), &mk_plans()).unwrap();
    assert_eq!(ensured, Ensured::Made);
    assert_eq!(stubborn.wait().unwrap().signal(), Some(SIGKILL));

    let mut again = spawn_in(&record.hosts[1].namespace, "echo up; exec sleep 600");
    save_unready(&stand, &record);
    Lab::remove(stand.folder(), HostState::Wipe).unwrap();
    assert_eq!(again.wait().unwrap().signal(), Some(SIGTERM));
    assert!(!record.namespaces().any(netns::is_named));
    Lab::remove(stand.folder(), HostState::Wipe).unwrap();
}

#[test]
fn agents_run_in_their_namespace_with_their_state_and_are_listed() {
    let mut stand = Stand::new();
    let script = "echo \"$0 in $1\"; exec sleep 600".to_owned();
    let arguments = ["-c".to_owned(), script, "{host}".to_owned(), "{state}".to_owned()];
    let agent = agents::start(stand.lab_mut(), "x/b", "sh", &arguments).unwrap();
    assert_eq!(agents::start(stand.lab_mut(), "x/b", "sh", &arguments).unwrap(), agent);
    assert_eq!(netns::processes_in([stand.namespace("x/b")]).unwrap(), [agent.pid]);

    let listed: Value = serde_json::from_slice(&stand.run(&["hosts", "-o", "json"]).stdout).unwrap();
    assert_eq!(listed[1]["name"], "x/b");
    assert_eq!(listed[1]["namespace"], stand.namespace("x/b"));
    assert_eq!(listed[1]["addresses"], serde_json::json!(["10.0.0.0", "2001:db8::1"]));
    assert_eq!(listed[1]["agent_pid"], agent.pid);
    assert_eq!(listed[0]["agent_pid"], Value::Null);
    let state = listed[1]["state"].as_str().unwrap().to_owned();
    let log = std::path::Path::new(&state).join("agent.log");
    await_true(|| std::fs::read_to_string(&log).unwrap() == format!("x/b in {state}\n"));

    agents::stop(stand.lab_mut(), "x/b").unwrap();
    assert!(netns::find_process(agent.pid).is_none());
    assert_eq!(agents::find(stand.lab().host("x/b").unwrap()), None);
}

#[test]
fn exec_runs_in_the_host_and_gives_its_exit_code() {
    let stand = Stand::new();
    let shown = stand.run(&["exec", "y/d", "--", "ip", "-o", "-4", "address"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("172.17.0.1/32"));
    assert_eq!(stand.run(&["exec", "y/d", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let unknown = stand.run(&["exec", "nobody", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no host `nobody`"));
}

#[test]
fn a_port_of_the_control_plane_is_reached_from_here_and_from_every_host() {
    let stand = Stand::new();
    let control = stand.lab().record().control.clone();
    let listener = netns::within(&control, || TcpListener::bind("0.0.0.0:7080").unwrap()).unwrap();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"holdfast").unwrap();
        }
    });
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = format!("{free}=127.0.0.1:7080");
    let mut publisher =
        Command::new(program()).arg("--lab").arg(stand.folder()).args(["publish", &port]).spawn().unwrap();
    await_true(|| TcpStream::connect(free).is_ok_and(|stream| read_all(stream) == "holdfast"));

    let address = stand.lab().record().blocks.control().v4;
    let dial = || read_all(TcpStream::connect((address, 7080)).unwrap());
    assert_eq!(netns::within(stand.namespace("x/a"), dial).unwrap(), "holdfast");
    server.join().unwrap();

    drop(stand);
    assert!(publisher.wait().unwrap().code().is_none(), "the publisher outlives its lab");
}

/// The record as a crash before the lab's end of making leaves it.
fn save_unready(stand: &Stand, record: &Record) {
    let mut record = record.clone();
    record.ready = false;
    record.save(stand.folder()).unwrap();
}

/// What a lab might leave in the caller's namespace.
fn traces() -> (String, String) {
    let show = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} fails");
        String::from_utf8(output.stdout).unwrap()
    };
    (show("ip", &["-brief", "link"]), show("nft", &["list", "tables"]))
}

/// Starts something that says a line first; it is the lab's to end.
fn spawn_in(namespace: &str, script: &str) -> Child {
    let spawn = || Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = netns::within(namespace, spawn).unwrap();
    let mut line = [0; 3];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    child
}

fn read_all(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn await_true(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "not within ten seconds");
        thread::yield_now();
    }
}
