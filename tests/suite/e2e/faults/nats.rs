//! NATS killed, absent, frozen, robbed of its streams, filled with rubbish, without JetStream, cut off from one gateway.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_suite::complaint::Complaint;
use holdfast_suite::plane::{Plane, Recipe, wait_for};
use holdfast_suite::proxy::{Proxy, Way};
use nix::sys::signal::Signal;

use super::super::fleet::{AGENTS_PORTS, nobody_complained_but, proven, versions};
use super::broker::{Account, delete_stream, hints, limit_stream, publish, purge_stream, stream_size};
use super::watch::{TOUCHED, Watch, converges, diagnosed, everyone_is_served, sessions, settle_at, unfinished};

/// Longer than any turn by the clock takes: the renderer's 30 s, then a gateway's 30 s and a fifth.
const BY_THE_CLOCK: Duration = Duration::from_secs(75);
/// Longer than a hint takes on a busy machine, shorter than a turn by the clock.
const BY_A_HINT: Duration = Duration::from_secs(10);
/// How soon everything is told after NATS came back.
const AFTER_RETURN: Duration = Duration::from_secs(15);
/// How long NATS is away at least.
const OUTAGE: Duration = Duration::from_secs(30);

#[test]
fn hosts_enforce_and_converge_through_everything_that_happens_to_nats() {
    let plane = Plane::start(&[]);
    let watch = Watch::start(&plane);
    nats_is_away_for_30_s_and_services_start_without_it(&plane, &watch);
    nats_is_frozen(&plane, &watch, Duration::from_secs(7));
    streams_are_deleted_while_edits_are_made(&plane, &watch, 5);
    a_stream_with_another_limit_is_refused_by_name_and_made_anew_has_every_event(&plane, &watch);
    what_another_hand_did_to_a_stream_is_told_by_doctor_alone(&plane, &watch);
    rubbish_repeats_and_crowds_of_hints_change_nothing(&plane, &watch, 400, 20_000);
    nats_without_jetstream_is_not_ready(&plane, &watch);
    hints_are_lost_at_one_gateway_and_the_other_is_cut_off(&plane, &watch);
    watch.end(&plane);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, is_of_nats);
    plane.wipe();
}

/// What the faults of NATS provoke.
pub(crate) fn is_of_nats(complaint: &Complaint) -> bool {
    complaint.is_of_lost_nats()
        || complaint.is_of_foreign_stream()
        || complaint.is_of_foreign_event()
        || complaint.is_of_no_hint()
        || complaint.is_of_denied_publish("holdfast.hint.host")
        || AGENTS_PORTS.iter().any(|port| complaint.is_of_killed_gateway(*port))
}

/// Every history has every event once, every operation has its end.
pub(crate) fn everything_is_proven(plane: &Plane) {
    wait_for("every operation has its end", BY_THE_CLOCK, || unfinished(plane) == 0);
    plane.histories_agree();
    proven(plane);
}

/// F01, F03 and the traps 6 and 8: 20 edits while it is away, and a gateway and the renderer that never saw it.
fn nats_is_away_for_30_s_and_services_start_without_it(plane: &Plane, watch: &Watch) {
    let nats = plane.recipe("nats");
    plane.kill("nats");
    let away = Instant::now();
    let gateway = plane.recipe("gateway-agents-2");
    plane.kill("gateway-agents-2");
    plane.start_service(&gateway);
    let renderer = plane.recipe("renderer");
    plane.end("renderer");
    plane.start_service(&renderer);
    plane.wait_ready("gateway-agents-2", true);
    wait_for("the renderer says that it lacks NATS and nothing else", BY_A_HINT, || {
        let said = plane.readiness("renderer");
        !said.ready
            && said.fault_of("bus").is_some_and(|fault| fault.contains("NATS"))
            && said.fault_of("database").is_none()
    });
    for _ in 0..20 {
        watch.edit(plane);
    }
    converges(plane, BY_THE_CLOCK);
    diagnosed(plane, &["hint bus"]);
    thread::sleep(OUTAGE.saturating_sub(away.elapsed()));
    let before = versions(plane);
    watch.edit(plane);
    plane.start_service(&nats);
    converges(plane, AFTER_RETURN);
    plane.wait_ready("renderer", true);
    assert_ne!(versions(plane), before);
    // Whoever listens has a consumer again: a change is there long before a turn by the clock.
    watch.edit(plane);
    converges(plane, BY_A_HINT);
    plane.histories_agree();
}

/// F01: edits are committed while it is away, and told once it is back.
pub(crate) fn nats_is_away(plane: &Plane, watch: &Watch, span: Duration, edits: usize) {
    let nats = plane.recipe("nats");
    plane.kill("nats");
    let away = Instant::now();
    for _ in 0..edits {
        watch.edit(plane);
    }
    thread::sleep(span.saturating_sub(away.elapsed()));
    plane.start_service(&nats);
    converges(plane, AFTER_RETURN);
    plane.histories_agree();
}

/// F02 and trap 7: publishes that time out are in the stream once.
pub(crate) fn nats_is_frozen(plane: &Plane, watch: &Watch, span: Duration) {
    let frozen = plane.freeze("nats");
    let until = Instant::now() + span;
    while Instant::now() < until {
        watch.edit(plane);
        thread::sleep(Duration::from_millis(500));
    }
    drop(frozen);
    converges(plane, AFTER_RETURN);
    plane.histories_agree();
}

/// F04: each time they are made anew, and that of events is written from the first one on.
pub(crate) fn streams_are_deleted_while_edits_are_made(plane: &Plane, watch: &Watch, times: usize) {
    for nth in 0..times {
        let before = stream_size(plane, Account::Events);
        watch.edit(plane);
        delete_stream(plane, Account::Events);
        if nth % 2 == 0 {
            delete_stream(plane, Account::Hints);
        }
        watch.edit(plane);
        wait_for("the stream is made anew and has all again", AFTER_RETURN, || {
            plane.readiness("renderer").fault_of("bus").is_none() && stream_size(plane, Account::Events) > before
        });
    }
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// F06: the first messages go by a limit that another hand set; the audit log has them, the renderer names what differs, and a person's delete mends it.
fn a_stream_with_another_limit_is_refused_by_name_and_made_anew_has_every_event(plane: &Plane, watch: &Watch) {
    assert!(!purge_stream(plane, Account::Events), "the server refuses to empty the stream");
    limit_stream(plane, Account::Events, 10);
    watch.edit(plane);
    wait_for("the renderer is not ready and names what differs", AFTER_RETURN, || {
        let fault = plane.readiness("renderer").fault_of("bus");
        fault.is_some_and(|fault| fault.contains("HOLDFAST_EVENTS has discard = Old"))
    });
    converges(plane, AFTER_RETURN);
    assert_eq!(stream_size(plane, Account::Events), 10, "the others are gone from the stream");
    diagnosed(plane, &["event stream"]);
    proven(plane);
    delete_stream(plane, Account::Events);
    plane.wait_ready("renderer", true);
    plane.histories_agree();
}

/// A message of another hand among the events, and another hand's limit on hints: doctor names the one, then the other, and a person's delete mends each.
fn what_another_hand_did_to_a_stream_is_told_by_doctor_alone(plane: &Plane, watch: &Watch) {
    publish(plane, Account::Events, vec![("holdfast.event.kind.forged".to_owned(), Bytes::from("{}"))]);
    watch.edit(plane);
    diagnosed(plane, &["event stream"]);
    delete_stream(plane, Account::Events);
    limit_stream(plane, Account::Hints, 1_000);
    diagnosed(plane, &["hint bus"]);
    delete_stream(plane, Account::Hints);
    diagnosed(plane, &[]);
    watch.edit(plane);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// F10, F11, F12: messages that are no hints, every hint again and again in another order, hints of strangers in crowds, while a gateway is held still.
pub(crate) fn rubbish_repeats_and_crowds_of_hints_change_nothing(
    plane: &Plane,
    watch: &Watch,
    rubbish: usize,
    crowd: usize,
) {
    const SERVICES: [&str; 3] = ["renderer", "gateway-agents-1", "gateway-agents-2"];
    converges(plane, BY_A_HINT);
    let (before, told) = (versions(plane), updates(plane));
    let genuine = hints(plane);
    assert!(!genuine.is_empty(), "edits were hinted");
    let scattered = |nth: usize| genuine[(nth * 7919) % genuine.len()].clone();
    let repeats: Vec<_> = (0..genuine.len() * 3).map(scattered).collect();
    publish(plane, Account::Hints, repeats);
    let subjects = ["host", "answer", "intent", "request", "event", "nothing.of.ours"];
    let bodies = ["", "{", "null", "{\"request\":7}", "{\"states\":[[1]]}", "\u{0}\u{1}", "[]"];
    let piece = |nth: usize| {
        let body = if nth.is_multiple_of(50) { "x".repeat(100_000) } else { bodies[nth % bodies.len()].to_owned() };
        (format!("holdfast.hint.{}", subjects[nth % subjects.len()]), Bytes::from(body))
    };
    publish(plane, Account::Hints, (0..rubbish).map(piece).collect());
    let memory = SERVICES.map(|service| plane.memory_max_kib(service));
    let still = plane.freeze("gateway-agents-1");
    let stranger = |nth: usize| {
        let host = format!("ho_01a228e1-336d-724a-b957-{nth:012x}");
        let body = format!("{{\"lease_term\":1,\"n\":{nth},\"states\":[[\"{host}\",\"policy\",{}]]}}", nth + 1);
        ("holdfast.hint.host".to_owned(), Bytes::from(body))
    };
    publish(plane, Account::Hints, (0..crowd).map(stranger).collect());
    drop(still);
    watch.edit(plane);
    converges(plane, BY_THE_CLOCK);
    for (service, before) in SERVICES.iter().zip(memory) {
        // The kernel's highest figure is of counters that it sums up roughly: it may fall by some pages.
        let grown = plane.memory_max_kib(service).saturating_sub(before);
        assert!(grown < 64 * 1024, "{service} took {grown} KiB more");
    }
    // The edit is one update of each host that it touches, by one version: nothing that was published made another.
    let moved = super::super::fleet::moved(&before, &versions(plane));
    assert!(!moved.is_empty() && moved.values().all(|by| *by == 1), "{moved:?}");
    assert_eq!(updates(plane) - told, moved.len() as f64, "one frame for each host that the edit touched");
    plane.histories_agree();
}

fn updates(plane: &Plane) -> f64 {
    let of = |service| plane.metric(service, "holdfast_gateway_updates_total");
    of("gateway-agents-1") + of("gateway-agents-2")
}

/// Trap 14: the server answers and its health page is green, and who needs streams is not ready.
fn nats_without_jetstream_is_not_ready(plane: &Plane, watch: &Watch) {
    let nats = plane.recipe("nats");
    let config = plane.folder().join("keys/nats");
    let text = fs::read_to_string(config.join("server.conf")).expect("ops/up wrote it");
    let without: String =
        text.lines().filter(|line| !line.starts_with("jetstream")).map(|line| format!("{line}\n")).collect();
    assert_ne!(without, text);
    let users = fs::read_to_string(config.join("holdfast.conf")).expect("init made it");
    let without = without.replace("holdfast.conf", "bare.conf");
    fs::write(config.join("bare.conf"), users.replace("jetstream: enabled", "jetstream: disabled"))
        .expect("it is ours");
    fs::write(config.join("bare-server.conf"), without).expect("it is ours");
    plane.kill("nats");
    plane.start_service(&nats.clone().with_last_argument("bare-server.conf"));
    for service in ["renderer", "audit"] {
        plane.wait_ready(service, false);
    }
    watch.edit(plane);
    plane.kill("nats");
    plane.start_service(&nats);
    for service in ["renderer", "audit"] {
        plane.wait_ready(service, true);
    }
    converges(plane, AFTER_RETURN);
    plane.histories_agree();
}

/// F13, F14: one gateway gets no hint because nobody may publish any, the other because nothing comes through to it; both compare by the clock.
fn hints_are_lost_at_one_gateway_and_the_other_is_cut_off(plane: &Plane, watch: &Watch) {
    let proxy = Proxy::start(&plane.control(), SocketAddr::from(([127, 0, 0, 1], 4222)));
    let direct = plane.recipe("gateway-agents-1");
    restarted(plane, &direct, &direct.clone().with("HOLDFAST_NATS_URL", &format!("tls://{}", proxy.address())));
    settle_at(plane, AGENTS_PORTS[0], &TOUCHED[..2]);
    settle_at(plane, AGENTS_PORTS[1], &TOUCHED[2..]);
    everyone_is_served(plane);
    converges(plane, BY_THE_CLOCK);
    watch.edit(plane);
    converges(plane, BY_A_HINT);

    let before = sessions(plane);
    proxy.set(Way::Silent);
    let rights = deny_hints_of_hosts(plane);
    watch.edit(plane);
    let took = converges(plane, BY_THE_CLOCK);
    assert!(took > Duration::from_secs(2), "no hint came: {took:?}");
    assert_eq!(sessions(plane), before, "every session lived on");
    drop(rights);
    proxy.set(Way::Open);
    wait_for("hints flow again", BY_THE_CLOCK, || {
        watch.edit(plane);
        let begun = Instant::now();
        converges(plane, BY_THE_CLOCK);
        begun.elapsed() < Duration::from_secs(2)
    });
    let through = plane.recipe("gateway-agents-1");
    restarted(plane, &through, &direct);
    drop(proxy);
    converges(plane, BY_THE_CLOCK);
    plane.histories_agree();
}

/// Ends a service and starts it in another way.
pub(crate) fn restarted(plane: &Plane, now: &Recipe, then: &Recipe) {
    plane.kill(now.service());
    plane.start_service(then);
    plane.wait_ready(now.service(), true);
}

/// The renderer may not publish hints of hosts until the value goes.
fn deny_hints_of_hosts(plane: &Plane) -> Rights<'_> {
    let file = plane.folder().join("keys/nats/holdfast.conf");
    let text = fs::read_to_string(&file).expect("init made it");
    let denied = text.replace("\"holdfast.hint.>\"", "\"holdfast.hint.intent\"");
    assert_ne!(denied, text, "the renderer's right is there");
    fs::write(&file, denied).expect("it is ours");
    plane.signal("nats", Signal::SIGHUP);
    Rights { plane, text }
}

struct Rights<'p> {
    plane: &'p Plane,
    text: String,
}

impl Drop for Rights<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        fs::write(self.plane.folder().join("keys/nats/holdfast.conf"), &self.text).expect("it is ours");
        self.plane.signal("nats", Signal::SIGHUP);
    }
}
