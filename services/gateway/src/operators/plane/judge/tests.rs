//! Each thing that can be away or late, alone: which check tells it, and that the others do not tell it again.

use holdfast_api::audit::Place;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};
use holdfast_store::lease::BusReport;

use super::*;

const UP: Link = Link { connections: 1, up: true };

fn mk_lease(seconds: u64) -> LeaseFacts {
    LeaseFacts {
        holder: "renderer 127.0.0.1:7090 42".to_owned(),
        renewed_ago: Duration::from_secs(seconds),
        lasts: Duration::from_secs(30),
    }
}

/// A plane in which all is well.
struct Plane {
    facts: PlaneFacts,
    audit: AuditSeen,
}

fn mk_plane() -> Plane {
    let last_event = (AuthorityEpoch::from_raw(1), EventSeq::from_raw(50));
    let facts = PlaneFacts {
        renderer: Some(mk_lease(3)),
        bus: BusReport { hint_fault: None, event_fault: None, relayed: Some(last_event) },
        gateways: vec![mk_lease(3), mk_lease(12)],
        silent_gateways: vec![],
        contested: vec![],
        last_event,
        unnumbered: WaitingEvents::default(),
        unrelayed: Some(WaitingEvents::default()),
        unaudited: WaitingEvents::default(),
        life: LifeCounts::default(),
    };
    let place = Some(Place { authority_epoch: 1, seq: 50 });
    let audit = AuditSeen::Says(AuditHealth { place, missing: None, reading: true });
    Plane { facts, audit }
}

fn old(seconds: u64) -> WaitingEvents {
    WaitingEvents { count: 3, age: Duration::from_secs(seconds) }
}

/// What is in trouble, and what is to be watched; each with what to do.
fn seen(look: &Look, link: Link) -> (Vec<String>, Vec<String>) {
    let checks = judge(look, link);
    for check in &checks {
        assert_eq!((check.ok, check.remedy.is_none()), (check.state == CheckState::Ok, check.ok), "{check:?}");
    }
    let names = |state| checks.iter().filter(|check| check.state == state).map(|check| check.name.clone()).collect();
    (names(CheckState::Trouble), names(CheckState::Watch))
}

/// One change of a plane in which all is well: what of it is in trouble, what is to be watched.
#[track_caller]
fn shows(change: impl FnOnce(&mut Plane, &mut Link), trouble: &[&str], watched: &[&str]) {
    let (mut plane, mut link) = (mk_plane(), UP);
    change(&mut plane, &mut link);
    let look = Look::Seen { facts: Box::new(plane.facts), audit: plane.audit };
    let wanted = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(seen(&look, link), (wanted(trouble), wanted(watched)));
}

#[test]
fn each_part_that_is_away_is_in_trouble_alone_and_what_waits_for_it_is_to_be_watched() {
    shows(|_, _| {}, &[], &[]);
    assert_eq!(seen(&Look::Unmigrated("old".to_owned()), UP), (vec!["database".to_owned()], vec![]));
    shows(|look, _| look.facts.gateways.clear(), &["agents' doors"], &[]);
    shows(|look, _| look.audit = AuditSeen::NotTold, &["audit log"], &[]);
    shows(|look, _| look.audit = AuditSeen::Away("refused".to_owned()), &["audit log"], &[]);
    shows(|look, _| look.facts.bus.hint_fault = Some("subjects".to_owned()), &["hint bus"], &[]);
    let renderer_ends = |look: &mut Plane, _: &mut Link| {
        look.facts.renderer = None;
        look.facts.bus = BusReport::default();
        look.facts.unrelayed = None;
        look.facts.unnumbered = old(600);
    };
    shows(renderer_ends, &["renderer"], &["event order", "event stream"]);
    let relay_stops = |look: &mut Plane, _: &mut Link| {
        look.facts.bus.event_fault = Some("another hand's".to_owned());
        look.facts.unrelayed = Some(old(600));
    };
    shows(relay_stops, &["event stream"], &[]);
    let bus_ends = |look: &mut Plane, link: &mut Link| {
        link.up = false;
        look.facts.bus.hint_fault = Some("no answer".to_owned());
        look.facts.bus.event_fault = Some("no answer".to_owned());
        look.audit = AuditSeen::Says(AuditHealth { place: None, missing: None, reading: false });
    };
    shows(bus_ends, &["hint bus"], &["event stream", "audit log"]);
}

#[test]
fn what_waits_is_judged_by_its_age_whatever_its_number() {
    shows(|look, _| look.facts.unnumbered = old(1), &[], &[]);
    shows(|look, _| look.facts.unnumbered = old(2), &[], &["event order"]);
    shows(|look, _| look.facts.unnumbered = old(41), &["event order"], &[]);
    shows(|look, _| look.facts.unrelayed = Some(old(10)), &[], &[]);
    shows(|look, _| look.facts.unrelayed = Some(old(30)), &[], &["event stream"]);
    shows(|look, _| look.facts.unrelayed = Some(old(31)), &["event stream"], &[]);
    shows(|look, _| look.facts.unrelayed = None, &[], &["event stream"]);
    shows(|look, _| look.facts.unaudited = old(10), &[], &[]);
    shows(|look, _| look.facts.unaudited = old(30), &[], &["audit log"]);
    shows(|look, _| look.facts.unaudited = old(31), &["audit log"], &[]);
    let crowd = WaitingEvents { count: u64::from(EVENTS_LOOKED_AT), age: Duration::from_secs(9) };
    shows(|look, _| look.facts.unaudited = crowd, &[], &[]);
}

#[test]
fn a_lease_that_is_overdue_is_to_be_watched_and_its_age_is_told() {
    shows(|look, _| look.facts.renderer = Some(mk_lease(13)), &[], &["renderer"]);
    shows(|look, _| look.facts.gateways[1] = mk_lease(13), &[], &["agents' doors"]);
    let check = renderer(&mk_plane().facts);
    let detail = check.detail.as_deref();
    assert_eq!(detail, Some("renderer 127.0.0.1:7090 42 holds the lease, renewed 3 s ago"));
    assert!(
        gateways(&[mk_lease(2), mk_lease(5)], &[])
            .detail
            .is_some_and(|detail| detail.contains("the oldest renewed 5 s"))
    );
}

#[test]
fn an_audit_log_that_misses_or_does_not_read_is_in_trouble_unless_the_stream_is() {
    let health = |missing, reading| AuditSeen::Says(AuditHealth { place: None, missing, reading });
    let missing = Some(Place { authority_epoch: 1, seq: 7 });
    shows(|look, _| look.audit = health(missing, true), &["audit log"], &[]);
    shows(|look, _| look.audit = health(None, false), &["audit log"], &[]);
    let both = |look: &mut Plane, _: &mut Link| {
        look.audit = health(missing, true);
        look.facts.bus.event_fault = Some("another hand's".to_owned());
    };
    shows(both, &["event stream"], &["audit log"]);
}

#[test]
fn an_audit_log_that_ends_beyond_the_database_is_of_another_history_whatever_else_is_wrong() {
    let ends_at = |authority_epoch, seq| {
        let place = Some(Place { authority_epoch, seq });
        AuditSeen::Says(AuditHealth { place, missing: None, reading: true })
    };
    shows(|look, _| look.audit = ends_at(1, 50), &[], &[]);
    shows(|look, _| look.audit = ends_at(1, 51), &["audit log"], &[]);
    shows(|look, _| look.audit = ends_at(2, 1), &["audit log"], &[]);
    let both = |look: &mut Plane, _: &mut Link| {
        look.audit = ends_at(1, 51);
        look.facts.bus.event_fault = Some("another hand's".to_owned());
    };
    shows(both, &["event stream", "audit log"], &[]);
    let check = audit_log(&ends_at(1, 61), &mk_plane().facts, true);
    let detail = check.detail.unwrap_or_default();
    assert!(detail.contains("of another history: it ends with event 1/61, this database with 1/50"), "{detail}");
}

#[test]
fn a_gateway_that_ended_without_a_word_is_to_be_watched_while_others_hold_their_leases() {
    shows(|look, _| look.facts.silent_gateways = vec![mk_lease(31)], &[], &["agents' doors"]);
    let all_ended = |look: &mut Plane, _: &mut Link| {
        look.facts.gateways.clear();
        look.facts.silent_gateways = vec![mk_lease(31)];
    };
    shows(all_ended, &["agents' doors"], &[]);
    let told = |silent: &[LeaseFacts]| gateways(&[mk_lease(5)], silent).detail.unwrap_or_default();
    let one = told(&[mk_lease(301)]);
    assert!(one.contains("1 gateway for agents holds") && one.ends_with("ended without a word 5 min ago"), "{one}");
    let two = told(&[mk_lease(301), mk_lease(61)]);
    assert!(two.ends_with("2 gateways for agents ended without a word, the last 1 min ago"), "{two}");
}

#[test]
fn a_host_with_two_agents_is_told_with_both_addresses_and_nothing_is_said_without_one() {
    use holdfast_store::session::Instance;
    use uuid::Uuid;
    let mk_instance = |n: u8| Instance { boot_id: Uuid::from_u128(n.into()), address: [10, 0, 0, n].into() };
    let host = ContestedHost {
        namespace: "booking".parse().unwrap(),
        name: "db-1".parse().unwrap(),
        holder: mk_instance(7),
        other: mk_instance(8),
        turned_ago: Duration::from_secs(5),
    };
    shows(|plane, _| plane.facts.contested = vec![host.clone()], &["host identities"], &[]);
    let told = identities(&[host]).unwrap().detail.unwrap();
    assert!(told.contains("booking/db-1 at 10.0.0.7 and at 10.0.0.8, the last turn 5 s ago"), "{told}");
    assert_eq!(identities(&[]), None);
}

#[test]
fn a_lease_of_another_span_is_overdue_by_its_own() {
    let lease = |renewed, lasts| LeaseFacts { lasts: Duration::from_secs(lasts), ..mk_lease(renewed) };
    assert!(!is_overdue(&lease(12, 30)) && is_overdue(&lease(13, 30)));
    assert!(!is_overdue(&lease(23, 60)) && is_overdue(&lease(2, 3)));
}

#[test]
fn a_database_that_went_back_is_told_by_whom_it_is_behind_and_a_new_life_by_who_waits_in_the_old_one() {
    let life = |life: LifeCounts, trouble: &[&str], watched: &[&str]| {
        shows(|plane, _| plane.facts.life = life, trouble, watched);
    };
    let none = LifeCounts::default();
    life(LifeCounts { ahead: 1, ..none }, &["authority"], &[]);
    life(LifeCounts { going_back: 2, unheard: 9, ..none }, &["authority"], &[]);
    life(LifeCounts { unheard: 1, ..none }, &[], &["authority"]);
    life(LifeCounts { following: 1, ..none }, &[], &["authority"]);
    life(none, &[], &[]);
    let mut plane = mk_plane();
    plane.facts.life = LifeCounts { going_back: 2, ..none };
    let told = authority(&plane.facts).detail.unwrap_or_default();
    assert!(told.contains("2 hosts would go back"), "{told}");
}
