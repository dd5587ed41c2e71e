//! `GET /v1/plane`: whether everything that a change needs on its way is there, and what to do where it is not.
//!
//! - What is asked is what this door itself can see: its database, its bus, the leases, the audit service.
//! - A check that could not be made is not well: nothing is assumed.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use holdfast_api::audit::Place;
use holdfast_api::plane::{PlaneCheck, PlaneView};
use holdfast_api::problem::Problem;
use holdfast_identity::https;
use holdfast_runtime::Chain;
use holdfast_store::plane::PlaneFacts;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use time::OffsetDateTime;

use super::audit::AuditDoor;
use super::auth::{Act, Caller};
use super::door::{Door, Shared};
use super::hosts::rfc3339;
use super::refuse::Refusal;
use super::tokens::api;

/// How long an event may wait for its number; the renderer is woken by each commit and looks each second besides.
const UNNUMBERED_AGE_MAX: Duration = Duration::from_secs(10);
/// How far the audit log may be behind: what it takes in some seconds.
const AUDIT_LAG_MAX: u64 = 10_000;
/// How long the audit service may take to say how it is.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The control plane as this door knows it, and the token that was shown.
#[utoipa::path(get, path = "/v1/plane", operation_id = "get_plane", tag = "status", responses(
    (status = 200, body = PlaneView),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn plane(State(door): State<Shared>, caller: Caller) -> Result<Json<PlaneView>, Refusal> {
    caller.may(Act::Read)?;
    let token = api::shown(&door, &caller).await?;
    let facts = door.store.plane_facts().await?;
    let checks = vec![
        schema(&door).await,
        bus(&door),
        renderer(&facts),
        event_order(&facts),
        gateways(&facts),
        audit(door.audit.as_ref(), &facts).await,
    ];
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(PlaneView { version, now: rfc3339(OffsetDateTime::now_utc()), token, checks }))
}

fn well(name: &str, detail: String) -> PlaneCheck {
    PlaneCheck { name: name.to_owned(), ok: true, detail, remedy: None }
}

fn unwell(name: &str, detail: impl Into<String>, remedy: &str) -> PlaneCheck {
    PlaneCheck { name: name.to_owned(), ok: false, detail: detail.into(), remedy: Some(remedy.to_owned()) }
}

async fn schema(door: &Door) -> PlaneCheck {
    match door.store.check_migrated().await {
        Ok(()) => well("database", "answers, and has every migration step of this build".to_owned()),
        Err(error) => {
            let remedy = "run `holdfast-renderer migrate` of the newest build, then start the services again";
            unwell("database", Chain(&error).to_string(), remedy)
        }
    }
}

fn bus(door: &Door) -> PlaneCheck {
    let link = *door.bus.borrow();
    if link.up {
        return well("hint bus", "NATS is connected".to_owned());
    }
    let detail = match link.connections {
        0 => "NATS was never reached; changes wait for the next compare (30 s)",
        _ => "the connection to NATS is lost; changes wait for the next compare (30 s)",
    };
    unwell("hint bus", detail, "look at nats-server, its address (`nats-url`) and the gateway's log")
}

fn renderer(facts: &PlaneFacts) -> PlaneCheck {
    match &facts.renderer {
        Some((holder, remaining)) => {
            well("renderer", format!("{holder} has the lease, renewed at least {} s ahead", remaining.as_secs()))
        }
        None => unwell(
            "renderer",
            "nobody holds the lease: what is authored is not rendered, and no host enrols",
            "start holdfast-renderer; `holdfast-renderer healthcheck` and its log say what it lacks",
        ),
    }
}

fn event_order(facts: &PlaneFacts) -> PlaneCheck {
    let (count, age) = (facts.unnumbered, facts.unnumbered_age);
    let (epoch, last) = facts.last_event;
    if count == 0 || age <= UNNUMBERED_AGE_MAX {
        return well("event order", format!("event {epoch}/{last} is the last, {count} waiting for a number"));
    }
    let waiting = format!("{count} of the newest events wait for a number, the oldest for {} s", age.as_secs());
    unwell("event order", waiting, "the renderer numbers and relays them: look at its log, and at NATS")
}

fn gateways(facts: &PlaneFacts) -> PlaneCheck {
    match facts.gateways {
        0 => unwell(
            "agents' doors",
            "no gateway for agents holds a lease: no host has a session",
            "start holdfast-gateway with `doors = agents`; its log says what it lacks",
        ),
        1 => well("agents' doors", "1 gateway for agents holds its lease".to_owned()),
        n => well("agents' doors", format!("{n} gateways for agents hold their leases")),
    }
}

/// What the audit service says of itself.
#[derive(Deserialize)]
struct AuditHealth {
    place: Option<Place>,
    missing: Option<Place>,
    reading: bool,
}

async fn audit(audit: Option<&AuditDoor>, facts: &PlaneFacts) -> PlaneCheck {
    const NAME: &str = "audit log";
    let Some(audit) = audit else {
        let remedy = "set `operators-audit-url` of the gateway";
        return unwell(NAME, "this gateway was not told where the audit service is", remedy);
    };
    match ask(audit).await {
        Ok(health) => judge(&health, facts),
        Err(detail) => unwell(NAME, detail, "look at holdfast-audit and its log; events wait and are not lost"),
    }
}

async fn ask(audit: &AuditDoor) -> Result<AuditHealth, String> {
    let request = https::Request::new(Method::GET, audit.url("status")).timeout(AUDIT_TIMEOUT);
    let response = audit.client().request(request).await.map_err(|error| Chain(&error).to_string())?;
    if response.status != StatusCode::OK {
        return Err(format!("the audit service answers {}", response.status));
    }
    serde_json::from_slice(&response.body).map_err(|_| "the audit service answers what is not understood".to_owned())
}

fn judge(health: &AuditHealth, facts: &PlaneFacts) -> PlaneCheck {
    const NAME: &str = "audit log";
    if let Some(missing) = health.missing {
        let remedy = "the event stream lost it: the audit log ends before it until the relay publishes it again; look at the renderer's log";
        return unwell(NAME, format!("event {missing} is missing from the stream"), remedy);
    }
    if !health.reading {
        let remedy = "look at NATS (JetStream, the stream of events) and at the log of holdfast-audit";
        return unwell(NAME, "the event stream is not being read", remedy);
    }
    let (epoch, last) = facts.last_event;
    let kept = health.place.filter(|place| place.authority_epoch == epoch.raw()).map_or(0, |place| place.seq);
    let lag = last.raw().saturating_sub(kept);
    if lag > AUDIT_LAG_MAX {
        return unwell(
            NAME,
            format!("{lag} events behind"),
            "wait, and look at the log of holdfast-audit if it does not fall",
        );
    }
    let behind = if lag == 1 { "1 event behind".to_owned() } else { format!("{lag} events behind") };
    well(NAME, format!("the event stream is being read, {behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::numbers::{AuthorityEpoch, EventSeq};

    fn mk_facts() -> PlaneFacts {
        PlaneFacts {
            renderer: Some(("r".to_owned(), Duration::from_secs(20))),
            gateways: 2,
            last_event: (AuthorityEpoch::from_raw(1), EventSeq::from_raw(50)),
            unnumbered: 0,
            unnumbered_age: Duration::ZERO,
        }
    }

    #[test]
    fn each_thing_that_is_away_is_told_with_what_to_do() {
        let facts = mk_facts();
        assert!(renderer(&facts).ok && event_order(&facts).ok && gateways(&facts).ok);
        let away =
            PlaneFacts { renderer: None, gateways: 0, unnumbered: 3, unnumbered_age: Duration::from_secs(11), ..facts };
        for check in [renderer(&away), event_order(&away), gateways(&away)] {
            assert!(!check.ok && check.remedy.is_some(), "{check:?}");
        }
        let fresh = PlaneFacts { unnumbered: 3, unnumbered_age: Duration::from_secs(10), ..mk_facts() };
        assert!(event_order(&fresh).ok, "an event that was just written has no number yet");
    }

    #[test]
    fn the_audit_log_is_well_while_it_reads_and_misses_nothing() {
        let place = |seq| Some(Place { authority_epoch: 1, seq });
        let health = |reading, missing, kept| AuditHealth { place: place(kept), missing, reading };
        let facts = mk_facts();
        assert_eq!(judge(&health(true, None, 49), &facts).detail, "the event stream is being read, 1 event behind");
        assert!(!judge(&health(false, None, 50), &facts).ok);
        assert!(judge(&health(true, place(7), 50), &facts).detail.contains("1/7"));
        let far = PlaneFacts { last_event: (AuthorityEpoch::from_raw(1), EventSeq::from_raw(99_999)), ..facts };
        assert!(!judge(&health(true, None, 50), &far).ok);
        let other_life =
            AuditHealth { place: Some(Place { authority_epoch: 9, seq: 99_999 }), missing: None, reading: true };
        assert!(!judge(&other_life, &far).ok, "a place of another life of the database is none");
    }
}
