//! What was seen of the plane, judged: pure.
//!
//! - A part that waits for another one that is in trouble is to be watched; the trouble is told once, where it is.
//! - A check that could not be made is not well: nothing is assumed.
//! - A lease says that its holder lived when it was renewed, so that is what is told; one that is overdue is to be watched until it ends.

use std::time::Duration;

use holdfast_api::plane::{CheckState, PlaneCheck};
use holdfast_bus::Link;
use holdfast_store::authority::LifeCounts;
use holdfast_store::plane::{ContestedHost, EVENTS_LOOKED_AT, LeaseFacts, PlaneFacts, WaitingEvents};

use super::{AuditHealth, AuditSeen, Look, event_place};

/// How long an event may wait for its number; the renderer is woken by each commit, and a lost wake costs half a minute at most.
const UNNUMBERED_AGE_MAX: Duration = Duration::from_secs(40);
/// How old an event without a number may be before somebody should look again.
const UNNUMBERED_AGE_WATCHED: Duration = Duration::from_secs(1);
/// How old an event may be that the stream or the audit log lacks.
const LAG_AGE_MAX: Duration = Duration::from_secs(30);
/// How old it may be before somebody should look again: the renderer says each five seconds how far the stream is.
const LAG_AGE_WATCHED: Duration = Duration::from_secs(10);
/// A lease is renewed three times in its span; one that was not for longer than so many fifths of it is overdue.
const RENEWAL_OVERDUE_FIFTHS: u32 = 2;

const LOOK_AGAIN: &str = "look again in some seconds";

/// Every check, in the order in which they depend on each other.
pub(super) fn judge(look: &Look, link: Link) -> Vec<PlaneCheck> {
    const DATABASE: &str = "database";
    let (facts, audit) = match look {
        Look::Unmigrated(fault) => {
            let remedy = "run `holdfast-renderer migrate` of the newest build, then start the services again; nothing else was looked at";
            return vec![unwell(DATABASE, fault, remedy)];
        }
        Look::Seen { facts, audit } => (facts, audit),
    };
    let stream = event_stream(facts, link);
    let log = audit_log(audit, facts, stream.state == CheckState::Ok);
    let mut checks = vec![
        well(DATABASE, "answers, and has every migration step of this build"),
        authority(facts),
        hint_bus(facts, link),
        renderer(facts),
        event_order(facts),
        stream,
        gateways(&facts.gateways, &facts.silent_gateways),
        log,
    ];
    checks.extend(identities(&facts.contested));
    checks
}

/// Whether a lease was not renewed when it should have been.
fn is_overdue(lease: &LeaseFacts) -> bool {
    lease.renewed_ago > lease.lasts * RENEWAL_OVERDUE_FIFTHS / 5
}

/// Hosts whose identity two agents have; nothing is said while there are none.
fn identities(contested: &[ContestedHost]) -> Option<PlaneCheck> {
    if contested.is_empty() {
        return None;
    }
    let told = |host: &ContestedHost| {
        let ContestedHost { namespace, name, holder, other, turned_ago } = host;
        let (at, elsewhere, seconds) = (holder.address, other.address, turned_ago.as_secs());
        let boots = if holder.boot_id == other.boot_id { ", under one boot" } else { "" };
        format!("{namespace}/{name} at {at} and at {elsewhere}{boots}, the last turn {seconds} s ago")
    };
    let hosts: Vec<String> = contested.iter().map(told).collect();
    let detail = format!("two agents with one identity take its session from each other: {}", hosts.join("; "));
    let remedy = "a state folder was copied, with its keys: end the agent that is not the host, remove its state folder and enrol it under a name of \
                  its own; each of the two has the session for a minute at least, so neither is lost";
    Some(unwell("host identities", detail, remedy))
}

fn check(name: &str, state: CheckState, detail: impl Into<String>, remedy: Option<&str>) -> PlaneCheck {
    PlaneCheck {
        name: name.to_owned(),
        state,
        ok: state == CheckState::Ok,
        detail: Some(detail.into()),
        remedy: remedy.map(str::to_owned),
    }
}

fn well(name: &str, detail: impl Into<String>) -> PlaneCheck {
    check(name, CheckState::Ok, detail, None)
}

fn watch(name: &str, detail: impl Into<String>, remedy: &str) -> PlaneCheck {
    check(name, CheckState::Watch, detail, Some(remedy))
}

fn unwell(name: &str, detail: impl Into<String>, remedy: &str) -> PlaneCheck {
    check(name, CheckState::Trouble, detail, Some(remedy))
}

/// Whether every host is in this life of the authority.
fn authority(facts: &PlaneFacts) -> PlaneCheck {
    const NAME: &str = "authority";
    let (epoch, LifeCounts { ahead, going_back, unheard, following }) = (facts.last_event.0, facts.life);
    if ahead > 0 {
        let detail = format!(
            "epoch {epoch}: {} what this database never rendered; it was restored or promoted, and nobody said so: they keep what they hold \
             and refuse what is older",
            hosts(ahead, "holds", "hold")
        );
        let remedy = "`holdfast authority show` names them; if the database was restored or promoted: `holdfast authority bump` (docs/restore.md)";
        return unwell(NAME, detail, remedy);
    }
    if going_back > 0 {
        let detail = format!(
            "epoch {epoch}: {} back to what this database has, and nobody confirmed that: they keep what they hold",
            hosts(going_back, "would go", "would go")
        );
        let remedy = "`holdfast authority show` names them; `holdfast authority confirm --expect N` lets them go back (docs/restore.md)";
        return unwell(NAME, detail, remedy);
    }
    if unheard + following > 0 {
        let unheard = hosts(unheard, "was not heard in it", "were not heard in it");
        let following = hosts(following, "is about to follow", "are about to follow");
        let remedy = "they follow as they come back, or say what they hold: look again; those that stay away are OFFLINE in `holdfast get hosts`";
        return watch(NAME, format!("epoch {epoch}: {unheard}, {following}"), remedy);
    }
    well(NAME, format!("epoch {epoch}, and no host is in another"))
}

fn hosts(count: u64, one: &str, several: &str) -> String {
    if count == 1 { format!("1 host {one}") } else { format!("{count} hosts {several}") }
}

fn hint_bus(facts: &PlaneFacts, link: Link) -> PlaneCheck {
    const NAME: &str = "hint bus";
    if !link.up {
        let detail = match link.connections {
            0 => "NATS was never reached; changes wait for the next compare (30 s)",
            _ => "the connection to NATS is lost; changes wait for the next compare (30 s)",
        };
        return unwell(NAME, detail, "look at nats-server, its address (`nats-url`) and the gateway's log");
    }
    match &facts.bus.hint_fault {
        Some(fault) => {
            let remedy = "look at nats-server (JetStream, the stream HOLDFAST_HINTS) and the renderer's log; a stream with other \
                          settings is deleted by a person and made anew by itself; changes wait for the next compare (30 s)";
            unwell(NAME, format!("the renderer says: {fault}"), remedy)
        }
        None => well(NAME, "NATS is connected"),
    }
}

fn renderer(facts: &PlaneFacts) -> PlaneCheck {
    const NAME: &str = "renderer";
    const START: &str = "start holdfast-renderer; `holdfast-renderer healthcheck` and its log say what it lacks";
    let Some(lease) = &facts.renderer else {
        return unwell(NAME, "nobody holds the lease: what is authored is not rendered, and no host enrols", START);
    };
    let seconds = lease.renewed_ago.as_secs();
    let detail = format!("{} holds the lease, renewed {seconds} s ago", lease.holder);
    if !is_overdue(lease) {
        return well(NAME, detail);
    }
    watch(NAME, format!("{detail}, which is overdue"), "look again in half a minute; is holdfast-renderer still there?")
}

fn event_order(facts: &PlaneFacts) -> PlaneCheck {
    const NAME: &str = "event order";
    let (epoch, last) = facts.last_event;
    let WaitingEvents { count, age } = facts.unnumbered;
    if count == 0 || age <= UNNUMBERED_AGE_WATCHED {
        return well(NAME, format!("event {epoch}/{last} is the last, {count} waiting for a number"));
    }
    let waiting = waits("for a number", facts.unnumbered);
    if facts.renderer.is_none() {
        return watch(NAME, waiting, "they wait for the renderer, which is told above");
    }
    if age <= UNNUMBERED_AGE_MAX {
        return watch(NAME, waiting, LOOK_AGAIN);
    }
    unwell(NAME, waiting, "the renderer numbers them: look at its log")
}

/// `3 events wait for …, the oldest for 5 s`.
fn waits(what: &str, WaitingEvents { count, age }: WaitingEvents) -> String {
    let more = if count >= u64::from(EVENTS_LOOKED_AT) { " and more" } else { "" };
    let seconds = age.as_secs();
    match count {
        1 => format!("1 event waits {what}, for {seconds} s"),
        _ => format!("{count}{more} events wait {what}, the oldest for {seconds} s"),
    }
}

fn event_stream(facts: &PlaneFacts, link: Link) -> PlaneCheck {
    const NAME: &str = "event stream";
    const AWAY: &str = "look at nats-server (JetStream, the stream HOLDFAST_EVENTS) and the renderer's log; a stream that another hand \
                        wrote into or changed is deleted by a person, and then the renderer writes all of it again";
    if facts.renderer.is_none() {
        return watch(NAME, "nobody carries events to it", "it waits for the renderer, which is told above");
    }
    if let Some(fault) = &facts.bus.event_fault {
        let detail = format!("the renderer says: {fault}");
        return if link.up {
            unwell(NAME, detail, AWAY)
        } else {
            watch(NAME, detail, "it waits for NATS, which is told above")
        };
    }
    let Some(waiting) = facts.unrelayed else {
        return watch(NAME, "the renderer has not said yet how far it is", LOOK_AGAIN);
    };
    if waiting.count == 0 || waiting.age <= LAG_AGE_WATCHED {
        return well(NAME, "the renderer carries events to it");
    }
    let detail = waits("for the stream", waiting);
    if !link.up {
        return watch(NAME, detail, "they wait for NATS, which is told above");
    }
    if waiting.age <= LAG_AGE_MAX { watch(NAME, detail, LOOK_AGAIN) } else { unwell(NAME, detail, AWAY) }
}

fn gateways(leases: &[LeaseFacts], silent: &[LeaseFacts]) -> PlaneCheck {
    const NAME: &str = "agents' doors";
    let oldest = leases.iter().map(|lease| lease.renewed_ago).max();
    let Some(oldest) = oldest else {
        return unwell(
            NAME,
            "no gateway for agents holds a lease: no host has a session",
            "start holdfast-gateway with `doors = agents`; its log says what it lacks",
        );
    };
    let seconds = oldest.as_secs();
    let mut detail = match leases.len() {
        1 => format!("1 gateway for agents holds its lease, renewed {seconds} s ago"),
        n => format!("{n} gateways for agents hold their leases, the oldest renewed {seconds} s ago"),
    };
    let overdue = leases.iter().filter(|lease| is_overdue(lease)).count();
    if overdue > 0 {
        detail = format!("{detail}; {overdue} overdue");
    }
    if let Some(heard) = silent.iter().map(|lease| lease.renewed_ago).min() {
        let minutes = heard.as_secs() / 60;
        let ended = match silent.len() {
            1 => format!("1 gateway for agents ended without a word {minutes} min ago"),
            n => format!("{n} gateways for agents ended without a word, the last {minutes} min ago"),
        };
        let remedy = "start holdfast-gateway with `doors = agents` there again, its log says what it lacks; one that is gone on purpose but was \
                      killed is told for an hour";
        return watch(NAME, format!("{detail}; {ended}"), remedy);
    }
    if overdue == 0 {
        return well(NAME, detail);
    }
    watch(NAME, detail, "look again in half a minute; is each holdfast-gateway with `doors = agents` still there?")
}

fn audit_log(seen: &AuditSeen, facts: &PlaneFacts, stream_is_well: bool) -> PlaneCheck {
    const NAME: &str = "audit log";
    let health = match seen {
        AuditSeen::NotTold => {
            let remedy = "set `operators-audit-url` of the gateway";
            return unwell(NAME, "this gateway was not told where the audit service is", remedy);
        }
        AuditSeen::Away(detail) => {
            return unwell(NAME, detail, "look at holdfast-audit and its log; events wait and are not lost");
        }
        AuditSeen::Says(health) => health,
    };
    // Whatever else is wrong, this does not pass with it.
    if let Some(elsewhere) = of_another_history(health, facts) {
        return elsewhere;
    }
    let found = kept(health, facts);
    if found.state == CheckState::Trouble && !stream_is_well {
        return watch(NAME, found.detail.unwrap_or_default(), "it waits for the event stream, which is told above");
    }
    found
}

/// A log that ends beyond what this database has numbered: it was asked before the database was, so it holds what is not of this database.
fn of_another_history(health: &AuditHealth, facts: &PlaneFacts) -> Option<PlaneCheck> {
    let (end, (epoch, last)) = (health.place?, facts.last_event);
    if event_place(end) <= facts.last_event {
        return None;
    }
    let detail = format!(
        "the audit log is of another history: it ends with event {end}, this database with {epoch}/{last}; what is numbered up to {end} does not get into it"
    );
    let remedy = "a database that was restored from a backup, or another plane's log: stop holdfast-audit, keep its `data` folder aside (what is in it \
                  happened) and start it with an empty one: it reads the event stream from the first event on, once that is this database's";
    Some(unwell("audit log", detail, remedy))
}

/// The log by what the service says and the stream holds.
fn kept(health: &AuditHealth, facts: &PlaneFacts) -> PlaneCheck {
    const NAME: &str = "audit log";
    if let Some(missing) = health.missing {
        let remedy = "the event stream lost it, and the audit log ends before it: delete the stream HOLDFAST_EVENTS, and the renderer writes \
                      all of it again; its log may say why";
        return unwell(NAME, format!("event {missing} is missing from the stream"), remedy);
    }
    if !health.reading {
        let remedy = "look at NATS (JetStream, the stream of events) and at the log of holdfast-audit";
        return unwell(NAME, "the event stream is not being read", remedy);
    }
    let waiting = facts.unaudited;
    if waiting.count == 0 || waiting.age <= LAG_AGE_WATCHED {
        return well(NAME, format!("the event stream is being read, {} events behind", waiting.count));
    }
    let detail = waits("for the log", waiting);
    if waiting.age <= LAG_AGE_MAX {
        return watch(NAME, detail, LOOK_AGAIN);
    }
    unwell(NAME, detail, "wait while it becomes less; if it does not, look at the log of holdfast-audit")
}

#[cfg(test)]
mod tests;
