//! A render that the database does not store: nobody hears of it before it is stored, and everybody once it is.

use futures_util::{FutureExt as _, StreamExt as _};
use holdfast_bus::Wake;
use holdfast_events::{EVENT_PREFIX, Hint, HostHint};
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::numbers::{LeaseTerm, Version};
use holdfast_suite::nats::NatsVersion;
use tokio::time::timeout;

use super::{DEADLINE, Plane, look_again, mk_policy, version};

/// Refuses what a render stores; how often is counted by what no rollback takes back.
const REFUSAL: &str = "CREATE SEQUENCE tries; \
    CREATE FUNCTION refuse_render() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ \
    BEGIN PERFORM nextval('public.tries'); RAISE EXCEPTION 'the test refuses it'; END $$";

/// At the statement, and at the commit when every statement went through.
const TIMES: [&str; 2] = [
    "CREATE TRIGGER refused BEFORE INSERT ON desired_states FOR EACH ROW EXECUTE FUNCTION refuse_render()",
    "CREATE CONSTRAINT TRIGGER refused AFTER INSERT ON desired_states DEFERRABLE INITIALLY DEFERRED \
     FOR EACH ROW EXECUTE FUNCTION refuse_render()",
];
/// What the database has of renders.
const STORED: &str = "SELECT (SELECT count(*) FROM desired_states), \
                      (SELECT count(*) FROM events WHERE kind = 'render.desired'), \
                      (SELECT count(*) FROM events WHERE kind = 'render.committed')";

#[tokio::test]
async fn c08_a_render_that_is_not_stored_is_told_by_no_hint_version_or_event_and_by_one_of_each_once_it_is() {
    let mut plane = Plane::start(NatsVersion::Current).await;
    let db = plane.enrol("db-1", "10.1.0.1", "db").await;
    plane.rendered_all().await;
    plane.audited().await;
    plane.listened().await;
    named(&mut plane, db).await;
    let client = async_nats::connect(plane.nats.url()).await.expect("it listens");
    let mut events = client.subscribe(format!("{EVENT_PREFIX}>")).await.expect("it may");
    client.flush().await.expect("the server knows of it");
    plane.postgres.sql(REFUSAL);
    for (nth, (refused_at, role)) in (2..).zip(TIMES.into_iter().zip(["db", "web"])) {
        let before = counts(&plane);
        plane.postgres.sql(refused_at);
        plane.apply(vec![mk_policy("isolate", role)]).await;
        let tried = async {
            while plane.postgres.sql("SELECT last_value FROM tries").trim().parse::<u64>().expect("a number") < 2 {
                look_again().await
            }
        };
        timeout(DEADLINE, tried).await.expect("it is tried again and again");
        assert_eq!(named(&mut plane, db).await, Vec::<u64>::new(), "{refused_at}");
        assert_eq!(counts(&plane), before, "{refused_at}");
        let latest = plane.agents.latest_of(vec![db]).await.expect("reads");
        assert_eq!(version(&latest, db), nth - 1, "{refused_at}");
        // Others may be: a term that ended begins anew.
        let mut kinds = Vec::new();
        while let Some(Some(message)) = events.next().now_or_never() {
            kinds.push(message.subject.to_string());
        }
        assert!(!kinds.iter().any(|kind| kind.contains(".render.")), "{refused_at}: {kinds:?}");

        plane.postgres.sql("DROP TRIGGER refused ON desired_states; ALTER SEQUENCE tries RESTART");
        plane.hinted(db, nth).await;
        plane.rendered_all().await;
        assert_eq!(named(&mut plane, db).await, Vec::<u64>::new(), "it is told once: {refused_at}");
        assert_eq!(counts(&plane), before.map(|count| count + 1), "{refused_at}");
        plane.audited().await;
        let heard = async {
            let mut heard = Vec::new();
            while heard.len() < 2 {
                let message = events.next().await.expect("the server is there");
                heard.extend(Some(message.subject.to_string()).filter(|kind| kind.contains(".render.")));
            }
            heard
        };
        timeout(DEADLINE, heard).await.expect("both events of the render are heard");
    }
    let proven = plane.stop().await;
    assert_eq!(proven.faults, []);
}

fn counts(plane: &Plane) -> [u64; 3] {
    let row = plane.postgres.sql(STORED);
    let counts: Vec<u64> = row.trim().split('|').map(|count| count.parse().expect("a count")).collect();
    counts.try_into().expect("three of them")
}

/// The versions of a host's policy that hints named since the last look: all that were published by now, by the connection that the renderer has.
async fn named(plane: &mut Plane, host: HostId) -> Vec<u64> {
    let last = HostHint { lease_term: LeaseTerm::from_raw(u64::MAX), n: 1, of: Some(0), states: Vec::new() };
    plane.means.bus.publish_hint(&Hint::Host(last.clone())).await.expect("the bus takes it");
    let mut versions = Vec::new();
    let heard = async {
        loop {
            match plane.wakes.recv().await.expect("the listener lives") {
                Wake::Hint(Hint::Host(hint)) if hint == last => return,
                Wake::Hint(Hint::Host(hint)) => {
                    let is_its = |(named, component, _): &&(HostId, Component, Version)| {
                        (*named, *component) == (host, Component::Policy)
                    };
                    versions.extend(hint.states.iter().filter(is_its).map(|(_, _, version)| version.raw()));
                }
                Wake::Hint(_) | Wake::Lapsed => {}
            }
        }
    };
    timeout(DEADLINE, heard).await.expect("the last one comes");
    versions
}
