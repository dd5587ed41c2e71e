//! Beside firewalld and ufw, the real ones: they start, change, reload and end, and so do we; neither touches the other.
//!
//! - Each runs in the test's namespace with a configuration of its own in a temporary folder; nothing of the machine's is read into force or changed.
//! - A packet passes only where both sides let it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_agent::engine::{Attempt, Depth, Kernel};
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::{Kept, Ruleset, layout};
use holdfast_model::drift::DriftKind;
use holdfast_model::policy::Mode;
use tempfile::TempDir;

use super::beside::theirs;
use super::drift::{OWNER, REPAIRED, last_drift};
use super::flows::{KEPT_PEER, Tcp, host_port};
use super::hosts::shut_but_for;
use super::session::{applied, isolated, world};
use crate::support::agent::Host;
use crate::support::bodies::tcp;
use crate::support::namespace::Namespace;
use crate::support::{output_of, try_nft};

const PATIENCE: Duration = Duration::from_secs(60);

/// What both let in, what only the other lets in, what only we let in.
const BOTH: u16 = 80;
const THEIRS: u16 = 81;
const OURS: u16 = 82;

fn ours(mode: Mode, more: u16) -> Ruleset {
    let mut body = shut_but_for(&[tcp(&[(BOTH, BOTH), (OURS, OURS), (more, more)])], &[]);
    body.mode = mode;
    layout(&body, &Kept::default())
}

/// Whether the three ports can be connected to, from another host.
fn open(host: &Namespace, peer: &Namespace) -> [bool; 3] {
    [BOTH, THEIRS, OURS].map(|port| Tcp::open(host, peer, KEPT_PEER, host_port(port)).is_some())
}

const WHERE_BOTH_LET_IT: [bool; 3] = [true, false, false];

/// Lives through a day with another firewall: it is up, allows `BOTH` and `THEIRS`, and goes through the given steps.
fn live_beside(host: &Namespace, peer: &Namespace, owner: TableOwner, steps: &[(&'static str, Vec<Words>)]) {
    let held = ours(Mode::Enforced, 83);
    let begins = held.clone();
    let before = host.run(move || {
        let before = theirs();
        let mut kernel = Netfilter::open(owner).unwrap();
        holds(kernel.apply(None, &begins, Depth::Whole));
        assert_eq!(theirs(), before, "after our first state");
        KERNEL.set(Some(kernel));
        before
    });
    assert!(before.contains("dport 81"), "{before}");
    assert_eq!(open(host, peer), WHERE_BOTH_LET_IT);
    for (what, commands) in steps {
        let (held, what, commands) = (held.clone(), *what, commands.clone());
        host.run(move || {
            commands.iter().for_each(Words::run);
            with_kernel(|kernel| assert_eq!(kernel.check(&held).unwrap(), None, "{what}"));
        });
        assert_eq!(open(host, peer), WHERE_BOTH_LET_IT, "{what}");
    }
    host.run(move || {
        let before = theirs_without_counters();
        with_kernel(|kernel| {
            let mut base = held;
            for (target, depth) in [
                (ours(Mode::Enforced, 84), Depth::Changed),
                (ours(Mode::Simulation, 84), Depth::Changed),
                (ours(Mode::Enforced, 85), Depth::Whole),
            ] {
                holds(kernel.apply(Some(&base), &target, depth));
                assert_eq!(theirs_without_counters(), before);
                base = target;
            }
            assert!(kernel.remove().unwrap());
        });
        assert_eq!(theirs_without_counters(), before, "after the end of our table");
        KERNEL.set(None);
    });
    assert_eq!(open(host, peer), [true, true, false], "what they alone let in");
}

thread_local! {
    static KERNEL: std::cell::RefCell<Option<Netfilter>> = const { std::cell::RefCell::new(None) };
}

fn with_kernel(work: impl FnOnce(&mut Netfilter)) {
    KERNEL.with_borrow_mut(|kernel| work(kernel.as_mut().unwrap()));
}

fn holds(attempt: Attempt) {
    assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
}

/// Packets of the test count in their rules, so numbers are left out.
fn theirs_without_counters() -> String {
    let words = theirs();
    let mut is_count = false;
    let kept = words.split_inclusive(' ').filter(|word| {
        let was_count = std::mem::replace(&mut is_count, matches!(word.trim(), "packets" | "bytes"));
        !was_count
    });
    kept.collect()
}

/// A command with its environment.
#[derive(Clone)]
struct Words {
    words: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Words {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self) {
        let output = self.command().output().unwrap_or_else(|error| panic!("{:?}: {error}", self.words));
        assert!(output.status.success(), "{:?}: {}", self.words, String::from_utf8_lossy(&output.stderr));
    }
}

/// A process that ends with the value.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// firewalld on a message bus of its own.
struct Firewalld {
    folder: TempDir,
    _daemon: Daemon,
    _bus: Daemon,
}

/// A bus on which everybody may do everything: who reaches its socket is root.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=SOCKET</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
</busconfig>
"#;

/// It keeps a folder in /run, which is not the machine's but one that goes with it.
const ALONE: &str = r#"mount -t tmpfs none /run &&
    exec firewalld --nofork --nopid --log-target=console --system-config "$1""#;

impl Firewalld {
    fn start(host: &Namespace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        output_of("cp", &["-a", "/etc/firewalld", &text(&at("etc"))]);
        let socket = at("bus");
        std::fs::write(at("bus.conf"), BUS.replace("SOCKET", &text(&socket))).unwrap();
        let configuration = format!("--config-file={}", text(&at("bus.conf")));
        let bus = host.run(move || Daemon::start(Command::new("dbus-daemon").args([&configuration, "--nofork"])));
        wait_until("the bus", || socket.exists());
        let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ALONE, "sh"];
        let mut command = Self::words(folder.path(), &words).command();
        command.arg(at("etc")).stderr(Stdio::null());
        let daemon = host.run(move || Daemon::start(&mut command));
        let firewalld = Self { folder, _daemon: daemon, _bus: bus };
        wait_until("firewalld", || {
            let mut command = firewalld.command(&["--state"]).command();
            host.run(move || command.output().unwrap().status.success())
        });
        firewalld
    }

    fn words(folder: &Path, words: &[&str]) -> Words {
        let address = format!("unix:path={}", text(&folder.join("bus")));
        Words {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            environment: vec![("DBUS_SYSTEM_BUS_ADDRESS", address)],
        }
    }

    fn command(&self, words: &[&str]) -> Words {
        let all: Vec<&str> = ["firewall-cmd"].into_iter().chain(words.iter().copied()).collect();
        Self::words(self.folder.path(), &all)
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn firewalld_starts_changes_and_reloads_beside_our_table_and_neither_touches_the_other() {
    for owner in [TableOwner::Off, TableOwner::On] {
        let (host, peer) = Namespace::pair();
        let firewalld = Firewalld::start(&host);
        for words in
            [["--permanent", "--add-port=80/tcp"], ["--permanent", "--add-port=81/tcp"], ["--quiet", "--reload"]]
        {
            let words = firewalld.command(&words);
            host.run(move || words.run());
        }
        let steps = [
            ("a change", vec![firewalld.command(&["--add-port=90/tcp"])]),
            ("a reload", vec![firewalld.command(&["--reload"])]),
            ("a complete reload", vec![firewalld.command(&["--complete-reload"])]),
        ];
        live_beside(&host, &peer, owner, &steps);
    }
}

/// Our table, owned or not: its sets and chains, sorted, for the order of chains means nothing.
fn our_table(host: &Host) -> Vec<String> {
    let list = || output_of("nft", &["--stateless", "--numeric", "list", "table", "inet", "holdfast"]);
    let listed = host.namespace.run(list);
    let (_, held) = listed.split_once('\n').unwrap();
    let mut blocks: Vec<String> = held.split("\n\n").map(|one| one.trim_end_matches(['}', '\n']).to_owned()).collect();
    blocks.sort_unstable();
    blocks
}

/// What firewalld has in the kernel.
fn tables_of_firewalld(host: &Host) -> String {
    let theirs = host.namespace.run(theirs_without_counters);
    assert!(theirs.contains("table inet firewalld"), "{theirs}");
    theirs
}

/// The agent runs and holds a session while firewalld starts, changes, reloads, ends and comes back: our table is the same to the byte each time, proven
/// within five seconds, and firewalld's are its own to change. Who touches ours beside it is told by name, and what is mended is ours alone.
#[test]
fn firewalld_reloads_beside_a_running_agent_whose_table_stays_and_who_touches_it_is_told_by_name() {
    for owner in ["off", "on"] {
        let (mut host, mut gateway, _far) = world();
        host.set_variable(OWNER, Some(owner));
        host.run_session();
        let (mut session, _) = gateway.open();
        applied(&session.policy(1, &isolated(&["10.0.0.1", "10.0.0.3"])));
        let before = our_table(&host);
        let mut firewalld = Firewalld::start(&host.namespace);
        let stands = |what: &str, drifts: u64| {
            let began = Instant::now();
            host.wait_until("ours is proven", || host.status()["policy"]["proven"] == true);
            assert!(began.elapsed() < REPAIRED, "{what}: after {:?}", began.elapsed());
            assert_eq!(our_table(&host), before, "{what}");
            assert_eq!(last_drift(&host).0, drifts, "{what}: {:?}", last_drift(&host));
        };
        stands("it started", 0);
        let steps: [(&str, &[&str]); 4] = [
            ("a change", &["--add-port=90/tcp"]),
            ("a permanent change", &["--permanent", "--add-port=91/tcp"]),
            ("a reload", &["--reload"]),
            ("a complete reload", &["--complete-reload"]),
        ];
        for (what, words) in steps {
            let words = firewalld.command(words);
            host.namespace.run(move || words.run());
            stands(what, 0);
            tables_of_firewalld(&host);
        }
        assert!(tables_of_firewalld(&host).contains("dport 91"), "its reload is in force");

        // Another process deletes ours in the middle of its day.
        let theirs = tables_of_firewalld(&host);
        let deleted = host.namespace.run(|| try_nft("delete table inet holdfast"));
        assert_eq!(deleted, owner == "off", "an owned table is nobody's to delete");
        let drifts = u64::from(deleted);
        if deleted {
            host.wait_until("it is noticed", || last_drift(&host).0 == drifts);
            assert_eq!(last_drift(&host).1.as_deref(), Some("nft"), "and it was not firewalld");
            assert_eq!(session.drift_until(DriftKind::Found, 1).writer.expect("a process").name.as_str(), "nft");
        }
        stands("it was deleted", drifts);
        assert_eq!(tables_of_firewalld(&host), theirs, "what is repaired is ours");
        let reload = firewalld.command(&["--reload"]);
        host.namespace.run(move || reload.run());
        stands("a reload after that", drifts);

        // It ends and takes what is its own along, and comes back.
        drop(firewalld);
        stands("its end", drifts);
        firewalld = Firewalld::start(&host.namespace);
        stands("its return", drifts);
        tables_of_firewalld(&host);
        // The session went through all of it.
        applied(&session.policy(2, &isolated(&["10.0.0.1", "10.0.0.4"])));
        drop(firewalld);
    }
}

/// ufw with folders of its own.
fn ufw(folder: &Path) -> impl Fn(&[&str]) -> Words {
    for (from, to) in
        [("/etc/ufw", "etc"), ("/lib/ufw", "lib"), ("/usr/share/ufw", "usr/share"), ("/etc/default/ufw", "etc/default")]
    {
        let to = folder.join(to);
        std::fs::create_dir_all(&to).unwrap();
        output_of("cp", &["-a", from, &text(&to)]);
    }
    let roots = [format!("--rootdir={}", text(folder)), format!("--datadir={}", text(folder))];
    move |words| Words {
        words: ["ufw".to_owned()]
            .into_iter()
            .chain(roots.clone())
            .chain(words.iter().map(|word| (*word).to_owned()))
            .collect(),
        environment: Vec::new(),
    }
}

#[test]
fn ufw_starts_changes_and_reloads_beside_our_table_and_neither_touches_the_other() {
    for owner in [TableOwner::Off, TableOwner::On] {
        let (host, peer) = Namespace::pair();
        let folder = tempfile::tempdir().unwrap();
        let ufw = ufw(folder.path());
        for words in [&["allow", "80/tcp"][..], &["allow", "81/tcp"], &["--force", "enable"]] {
            let words = ufw(words);
            host.run(move || words.run());
        }
        let steps = [
            ("a change", vec![ufw(&["allow", "90/tcp"])]),
            ("a reload", vec![ufw(&["reload"])]),
            ("an end and a start", vec![ufw(&["--force", "disable"]), ufw(&["--force", "enable"])]),
        ];
        live_beside(&host, &peer, owner, &steps);
    }
}
