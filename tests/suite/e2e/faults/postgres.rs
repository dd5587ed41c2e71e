//! Postgres killed, absent, with silent and ended connections, slow, cut off from one gateway, cut in the middle of commits.

use std::net::SocketAddr;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_suite::complaint::Complaint;
use holdfast_suite::plane::{Plane, wait_for};
use holdfast_suite::proxy::{Proxy, Way};

use super::super::fleet::{AGENTS_PORTS, nobody_complained_but, versions};
use super::super::packets::rules_of;
use super::nats::{everything_is_proven, restarted};
use super::watch::{TOUCHED, Watch, converges, diagnosed, everyone_is_served, is_rendered, sessions, settle_at};

/// Longer than any turn by the clock takes.
const BY_THE_CLOCK: Duration = Duration::from_secs(75);
/// How long a pool may take until it has connections that live.
const POOL_RECOVERS: Duration = Duration::from_secs(30);
/// What is usual where nothing is waited for but a second try.
const USUAL: Duration = Duration::from_secs(4);
const AGENTS_ROLE: &str = "holdfast_gateway_agents";
const OPERATORS_ROLE: &str = "holdfast_gateway_operators";
/// Everything that asks Postgres, and what has the copy of its events.
const SERVICES: [&str; 5] = ["renderer", "audit", "gateway-agents-1", "gateway-agents-2", "gateway-operators"];

#[test]
fn hosts_enforce_and_converge_through_everything_that_happens_to_postgres() {
    let plane = Plane::start(&[]);
    let watch = Watch::start(&plane);
    postgres_is_away_and_services_start_without_it(&plane, &watch, Duration::from_secs(30));
    postgres_is_killed_while_edits_are_made(&plane, &watch, 3, 15);
    connections_fall_silent(&plane, &watch);
    connections_are_ended_between_commit_and_read(&plane, &watch, 10);
    commits_are_cut(&plane, 12);
    the_way_of_a_gateway_to_postgres_is_bad(&plane, &watch, Duration::from_secs(10));
    watch.end(&plane);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, is_of_postgres);
    plane.wipe();
}

/// What the faults of Postgres provoke.
pub(crate) fn is_of_postgres(complaint: &Complaint) -> bool {
    complaint.is_of_absent_database() || AGENTS_PORTS.iter().any(|port| complaint.is_of_killed_gateway(*port))
}

/// The 30 s, F21, P20: every service but one gateway starts while it is away; agents keep what they have, and nothing is sent to them after it.
pub(crate) fn postgres_is_away_and_services_start_without_it(plane: &Plane, watch: &Watch, span: Duration) {
    settle_at(plane, AGENTS_PORTS[1], &TOUCHED[2..]);
    converges(plane, USUAL);
    let (held, before) = (rules_of(plane), versions(plane));
    let stays: Vec<_> =
        sessions(plane).into_iter().filter(|(_, (_, gateway))| *gateway == gateway_id(plane, 2)).collect();
    assert!(!stays.is_empty(), "each gateway has hosts");
    // What was answered as done is there after the crash that follows at once.
    let answered = applied(plane, "answered");
    assert!(answered.status.success(), "{}", said(&answered));
    let database = plane.database();
    database.kill();
    let away = Instant::now();
    for service in SERVICES.iter().filter(|service| **service != "gateway-agents-2") {
        plane.kill_and_start(service);
    }
    wait_for("the operators' door is open", BY_THE_CLOCK, || {
        !said(&plane.holdfast(&["status"])).contains("the API cannot be reached")
    });
    let refused = applied(plane, "refused");
    assert!(!refused.status.success());
    assert!(said(&refused).contains("the database does not answer; nothing was changed"), "{}", said(&refused));
    for service in ["renderer", "gateway-agents-1", "gateway-agents-2", "gateway-operators"] {
        plane.wait_ready(service, false);
    }
    diagnosed(plane, &["database"]);
    thread::sleep(span.saturating_sub(away.elapsed()));
    assert_eq!(rules_of(plane), held, "hosts hold what they had");
    database.start();
    for service in SERVICES {
        plane.wait_ready(service, true);
    }
    assert_eq!(named(plane, &["answered", "refused"]), ["answered"]);
    converges(plane, BY_THE_CLOCK);
    assert_eq!((rules_of(plane), versions(plane)), (held, before), "coming back changes nothing");
    let after = sessions(plane);
    for (host, session) in stays {
        assert_eq!(after.get(&host), Some(&session), "{host}: the session lived on");
    }
    watch.edit(plane);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// F17, I8: each change is asked for until its end is known, and happened once.
pub(crate) fn postgres_is_killed_while_edits_are_made(plane: &Plane, watch: &Watch, kills: usize, edits: usize) {
    let (database, over) = (plane.database(), AtomicBool::new(false));
    let done = thread::scope(|scope| {
        // Somebody asks all the time, so that each kill meets a change.
        let editing = scope.spawn(|| {
            let mut done = 0;
            while done < edits || !over.load(Ordering::Relaxed) {
                apply_until_known(plane, &format!("killed-{done}"));
                done += 1;
            }
            done
        });
        for _ in 0..kills {
            thread::sleep(Duration::from_millis(700));
            database.kill();
            database.start();
        }
        over.store(true, Ordering::Relaxed);
        editing.join().expect("every change came to its end")
    });
    happened_once(plane, "killed-", done);
    watch.edit(plane);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// F18: the connections of both kinds of gateways are silent, one kind after the other.
pub(crate) fn connections_fall_silent(plane: &Plane, watch: &Watch) {
    for role in [OPERATORS_ROLE, AGENTS_ROLE] {
        let frozen = plane.database().freeze_backends_of(role);
        let begun = Instant::now();
        watch.edit(plane);
        converges(plane, POOL_RECOVERS + USUAL);
        assert!(begun.elapsed() < POOL_RECOVERS + USUAL, "{role}: {:?}", begun.elapsed());
        drop(frozen);
    }
    plane.histories_agree();
}

/// F20, P71 and trap 9: every connection of every service ends right after each commit.
pub(crate) fn connections_are_ended_between_commit_and_read(plane: &Plane, watch: &Watch, times: usize) {
    let database = plane.database();
    let mut spans: Vec<Duration> = (0..times)
        .map(|_| {
            watch.edit(plane);
            let begun = Instant::now();
            assert!(database.end_connections() > 0, "services have connections");
            converges(plane, BY_THE_CLOCK);
            begun.elapsed()
        })
        .collect();
    spans.sort_unstable();
    let usual = spans[spans.len() / 2];
    assert!(usual < USUAL, "half of the changes took longer than {usual:?}: {spans:?}");
    plane.histories_agree();
}

/// F22: the connection is cut when the commit is sent, before the server has it or after.
pub(crate) fn commits_are_cut(plane: &Plane, times: usize) {
    let proxy = Proxy::start(&plane.control(), SocketAddr::from(([127, 0, 0, 1], 5432)));
    let direct = plane.recipe("gateway-operators");
    restarted(plane, &direct, &through(plane, "gateway-operators", "HOLDFAST_OPERATORS_DATABASE_URL", &proxy));
    for nth in 0..times {
        let name = format!("cut-{nth}");
        let (way, happened) = if nth % 2 == 0 { (Way::CutBeforeCommit, false) } else { (Way::CutAfterCommit, true) };
        let asked = applied_until_cut(plane, &proxy, way, &name);
        assert!(said(&asked).contains("[outcome-unknown]"), "{}", said(&asked));
        // The server learns of the cut a moment later than who asked.
        wait_for("what happened is known by the name", USUAL, || named(plane, &[&name]).is_empty() != happened);
        let again = applied(plane, &name);
        assert!(again.status.success(), "{}", said(&again));
        assert_eq!(said(&again).contains("nothing to change"), happened, "{name}: {}", said(&again));
    }
    happened_once(plane, "cut-", times);
    restarted(plane, &plane.recipe("gateway-operators"), &direct);
    plane.histories_agree();
}

/// F19, P19: nothing comes through for a while, then errors, silence and slowness in turn while edits are made.
pub(crate) fn the_way_of_a_gateway_to_postgres_is_bad(plane: &Plane, watch: &Watch, span: Duration) {
    let proxy = Proxy::start(&plane.control(), SocketAddr::from(([127, 0, 0, 1], 5432)));
    let direct = plane.recipe("gateway-agents-1");
    restarted(plane, &direct, &through(plane, "gateway-agents-1", "HOLDFAST_AGENTS_DATABASE_URL", &proxy));
    settle_at(plane, AGENTS_PORTS[0], &TOUCHED[..2]);
    settle_at(plane, AGENTS_PORTS[1], &TOUCHED[2..]);
    everyone_is_served(plane);
    converges(plane, BY_THE_CLOCK);
    let before = sessions(plane);
    let cut_off = gateway_id(plane, 1);
    let (behind, elsewhere) = TOUCHED.split_at(2);
    assert!(behind.iter().all(|host| before[*host].1 == cut_off), "{before:?}");
    proxy.set(Way::Silent);
    watch.edit(plane);
    let is_current = |host: &str| applied_is_latest(plane, host);
    wait_for("who is elsewhere has the edit", BY_THE_CLOCK, || {
        is_rendered(plane) && elsewhere.iter().all(|host| is_current(host))
    });
    thread::sleep(span);
    assert!(behind.iter().all(|host| !is_current(host)), "nobody can know of the edit behind {cut_off}");
    proxy.set(Way::Open);
    converges(plane, BY_THE_CLOCK);
    assert_eq!(sessions(plane), before, "every session lived on");

    let ways = [Way::Broken, Way::Slow(Duration::from_millis(300)), Way::Silent, Way::Open];
    let until = Instant::now() + span;
    for way in ways.iter().cycle() {
        if Instant::now() > until {
            break;
        }
        proxy.set(*way);
        watch.edit(plane);
        thread::sleep(Duration::from_millis(700));
    }
    proxy.set(Way::Open);
    converges(plane, BY_THE_CLOCK);
    assert_eq!(sessions(plane), before, "every session lived on");
    restarted(plane, &plane.recipe("gateway-agents-1"), &direct);
    drop(proxy);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// How a service is run with its database behind a proxy.
fn through(plane: &Plane, service: &str, setting: &str, proxy: &Proxy) -> holdfast_suite::plane::Recipe {
    let recipe = plane.recipe(service);
    let url = recipe.setting(setting).replace("127.0.0.1:5432", &proxy.address().to_string());
    recipe.with(setting, &url)
}

/// Applies a policy of its own, which selects no host.
fn applied(plane: &Plane, name: &str) -> Output {
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: {name}, namespace: booking}}\nspec:\n  \
         hostSelector: {{matchLabels: {{role: nobody}}}}\n  ingress: [{{services: [{{tcp: 1}}]}}]\n"
    );
    let file = plane.folder().join(format!("{name}.yaml"));
    std::fs::write(&file, text).expect("the folder is ours");
    let output = plane.holdfast(&["apply", "-f", file.to_str().expect("a plain path")]);
    std::fs::remove_file(&file).expect("it is there");
    output
}

/// The same until it is there for certain.
fn apply_until_known(plane: &Plane, name: &str) {
    let deadline = Instant::now() + BY_THE_CLOCK;
    loop {
        let output = applied(plane, name);
        if output.status.success() {
            return;
        }
        let text = said(&output);
        let is_known = ["database-unavailable", "outcome-unknown"].iter().any(|kind| text.contains(kind));
        assert!(is_known && Instant::now() < deadline, "{name}: {text}");
    }
}

/// Applies with commits cut; what never came to its commit is asked for again.
fn applied_until_cut(plane: &Plane, proxy: &Proxy, way: Way, name: &str) -> Output {
    let (cut, deadline) = (proxy.commits_cut(), Instant::now() + BY_THE_CLOCK);
    proxy.set(way);
    loop {
        let asked = applied(plane, name);
        assert!(!asked.status.success(), "a commit that is cut has no known end: {}", said(&asked));
        if !said(&asked).contains("database-unavailable") {
            assert!(proxy.commits_cut() > cut, "no commit was cut: {}", said(&asked));
            proxy.set(Way::Open);
            return asked;
        }
        assert!(Instant::now() < deadline, "{name}: {}", said(&asked));
    }
}

/// Each of these changes is one object, one revision, one operation with its end.
fn happened_once(plane: &Plane, prefix: &str, count: usize) {
    let of = |what: &str| {
        plane.database().sql(&format!(
            "SELECT count(*), count(DISTINCT name), count(DISTINCT o.operation_id) FROM objects \
             JOIN operations o ON o.revision = from_revision WHERE name LIKE '{prefix}%' {what}"
        ))
    };
    assert_eq!(of("").trim(), format!("{count}|{count}|{count}"), "{prefix}");
    let ended = format!("{count}|{count}|{count}");
    wait_for("each has its end", BY_THE_CLOCK, || of("AND o.state = 'inactive'").trim() == ended);
}

/// Which of these policies are there.
fn named(plane: &Plane, names: &[&str]) -> Vec<String> {
    let list = names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let rows = plane
        .database()
        .sql(&format!("SELECT name FROM objects WHERE to_revision IS NULL AND name IN ({list}) ORDER BY 1"));
    rows.lines().map(str::to_owned).collect()
}

/// Whether a host has said that it holds its newest policy.
fn applied_is_latest(plane: &Plane, host: &str) -> bool {
    let row = plane.database().sql(&format!(
        "SELECT d.version = o.applied_version FROM hosts h JOIN desired_latest d USING (host_id) \
         JOIN observed o USING (host_id, component) WHERE h.name = '{host}' ORDER BY d.component LIMIT 1"
    ));
    row.trim() == "t"
}

/// The id of a gateway for agents in this start, as it said it.
pub(crate) fn gateway_id(plane: &Plane, nth: usize) -> String {
    let log = plane.folder().join(format!("run/gateway-agents-{nth}.log"));
    let text = std::fs::read_to_string(&log).expect("it is ours");
    let told = text.lines().rev().find_map(|line| line.split_once("the agents' door is open gateway=gw_"));
    let id = told.and_then(|(_, rest)| rest.split(' ').next());
    id.unwrap_or_else(|| panic!("{}: no gateway", log.display())).to_owned()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
