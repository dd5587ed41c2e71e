//! The bus against real NATS servers, the current one and the oldest promised.

use std::time::Duration;

use async_nats::jetstream;
use holdfast_bus::{
    Bus, BusConfig, BusError, EVENTS_STREAM, EventLog, EventReader, HINTS_STREAM, HintListener, OutgoingEvent,
    Published, ReadFrom, Wake,
};
use holdfast_events::Hint;
use holdfast_model::ids::EventId;
use holdfast_suite::nats::{NatsServer, NatsVersion};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn streams_are_made_once_and_a_foreign_one_is_refused_by_name() {
    for version in NatsVersion::ALL {
        let server = NatsServer::start(version);
        let bus = mk_bus(&server).await;
        ensure(&bus).await.expect("both are made");
        ensure(&bus).await.expect("both are there");
        bus.check_hints().await.expect("it answers");
        bus.check_events().await.expect("it answers");

        let raw = mk_raw(&server).await;
        raw.delete_stream(HINTS_STREAM).await.expect("it is there");
        assert!(matches!(bus.check_hints().await, Err(BusError::NoStream { stream: HINTS_STREAM })), "{version:?}");
        let foreign = jetstream::stream::Config {
            name: HINTS_STREAM.to_owned(),
            subjects: vec!["holdfast.hint.>".to_owned()],
            max_messages: 3,
            ..jetstream::stream::Config::default()
        };
        raw.create_stream(foreign).await.expect("nobody forbids it");
        let refused = ensure(&bus).await;
        assert!(
            matches!(refused, Err(BusError::StreamDiffers { stream: HINTS_STREAM, field: "storage", .. })),
            "{refused:?}"
        );
        let checked = bus.check_hints().await;
        assert!(matches!(checked, Err(BusError::StreamDiffers { stream: HINTS_STREAM, .. })), "not ready: {checked:?}");
    }
}

#[tokio::test]
async fn events_are_in_the_stream_once_each_and_in_order_whatever_was_answered() {
    for version in NatsVersion::ALL {
        let server = NatsServer::start(version);
        let bus = mk_bus(&server).await;
        ensure(&bus).await.expect("both are made");
        let events: Vec<OutgoingEvent> = (1..=600).map(mk_event).collect();

        let mut log = EventLog::new(bus.clone());
        assert_eq!(log.publish(&events[..1]).await.expect("nothing fails"), Published { count: 0, complete: false });
        assert!(log.load_tail().await.expect("the stream is there").is_empty());
        assert_eq!(log.publish(&events[..300]).await.expect("published"), Published { count: 300, complete: true });

        // A second writer that does not know the end is told so and goes on where the stream really ends.
        let mut other = EventLog::new(bus.clone());
        let tail = other.load_tail().await.expect("the stream is there");
        assert!(tail.iter().eq(events[..300].iter().map(|event| &event.payload)), "{} messages", tail.len());
        assert_eq!(other.publish(&events[300..400]).await.expect("published").count, 100);
        let foreign: Vec<OutgoingEvent> = (9001..=9050).map(mk_event).collect();
        let stale = log.publish(&foreign).await.expect("refused, not failed");
        assert_eq!(stale, Published { count: 0, complete: false }, "{version:?}");
        let tail = log.load_tail().await.expect("the stream is there");
        assert_eq!(tail.len(), 400, "what was refused is not there");
        assert!(log.publish(&events[400..]).await.expect("published").complete);

        let mut reader = EventReader::start(&bus, "reader", ReadFrom::Start).await.expect("starts");
        for (sequence, event) in (1..).zip(&events) {
            let incoming = timeout(DEADLINE, reader.next()).await.expect("in time").expect("goes on");
            assert_eq!((incoming.stream_sequence, incoming.payload), (sequence, event.payload.clone()), "{version:?}");
        }

        // A message of another hand takes the place of the next: those of the window fit behind it by their places, and do not follow it.
        let raw = mk_raw(&server).await;
        let taken = raw.publish("holdfast.event.test", "another hand".into()).await.expect("is sent");
        assert_eq!(taken.await.expect("is stored").sequence, 601);
        let refused = log.publish(&(601..=900).map(mk_event).collect::<Vec<_>>()).await.expect("refused, not failed");
        assert_eq!(refused, Published { count: 0, complete: false }, "{version:?}");
        let tail = log.load_tail().await.expect("the stream is there");
        assert_eq!(tail.last().map(|last| &last[..]), Some(&b"another hand"[..]), "{version:?}");
    }
}

#[tokio::test]
async fn a_killed_server_and_a_recreated_stream_both_end_in_a_lapse_and_then_hints_flow() {
    for version in NatsVersion::ALL {
        let mut server = NatsServer::start(version);
        let bus = mk_bus(&server).await;
        ensure(&bus).await.expect("both are made");
        let (told, mut wakes) = mpsc::channel(16);
        let listener = HintListener::new(bus.clone(), "listener".to_owned(), "holdfast.hint.answer", told);
        let mut tasks = JoinSet::new();
        tasks.spawn(listener.run());
        assert_eq!(next(&mut wakes).await, Wake::Lapsed);
        hint_arrives(&bus, &mut wakes, 1).await;

        server.kill();
        server.resume();
        timeout(DEADLINE, async { while ensure(&bus).await.is_err() {} }).await.expect("in time");
        assert_eq!(next(&mut wakes).await, Wake::Lapsed, "{version:?}");
        hint_arrives(&bus, &mut wakes, 2).await;

        mk_raw(&server).await.delete_stream(HINTS_STREAM).await.expect("it is there");
        ensure(&bus).await.expect("it is made again");
        assert_eq!(next(&mut wakes).await, Wake::Lapsed, "{version:?}");
        hint_arrives(&bus, &mut wakes, 3).await;

        drop(wakes);
        let ended = timeout(DEADLINE, tasks.join_next()).await.expect("it ends with its receiver");
        ended.expect("it was spawned").expect("no panic");
    }
}

#[tokio::test]
async fn a_listener_that_is_too_slow_is_told_that_it_missed_something_and_holds_no_more_than_it_has_room_for() {
    let server = NatsServer::start(NatsVersion::Current);
    let bus = mk_bus(&server).await;
    ensure(&bus).await.expect("both are made");
    let (told, mut wakes) = mpsc::channel(4);
    let listener = HintListener::new(bus.clone(), "listener".to_owned(), "holdfast.hint.answer", told);
    let mut tasks = JoinSet::new();
    tasks.spawn(listener.run());
    assert_eq!(next(&mut wakes).await, Wake::Lapsed);
    hint_arrives(&bus, &mut wakes, 1).await;
    // Nobody takes any while a hundred come: four fit.
    for n in 1_000..1_100 {
        bus.publish_hint(&Hint::Answer { request: EventId::new(Uuid::from_u128(n)) })
            .await
            .expect("the stream takes it");
    }
    let mut hints = 0;
    let lapsed = async {
        while wakes.recv().await.expect("the listener lives") != Wake::Lapsed {
            hints += 1;
        }
    };
    timeout(DEADLINE, lapsed).await.expect("it is told");
    assert!((1..100).contains(&hints), "{hints} hints before it is told that some are missing");
    // What it still had, and then it listens as before.
    while timeout(Duration::from_millis(300), wakes.recv()).await.is_ok() {}
    hint_arrives(&bus, &mut wakes, 2).await;
}

#[tokio::test]
async fn a_deleted_event_stream_is_named_and_begins_anew() {
    for version in NatsVersion::ALL {
        let server = NatsServer::start(version);
        let bus = mk_bus(&server).await;
        ensure(&bus).await.expect("both are made");
        let mut log = EventLog::new(bus.clone());
        log.load_tail().await.expect("the stream is there");
        log.publish(&[mk_event(1), mk_event(2)]).await.expect("published");
        mk_raw(&server).await.delete_stream(EVENTS_STREAM).await.expect("it is there");
        let gone = log.publish(&[mk_event(3)]).await;
        assert!(matches!(gone, Err(BusError::NoStream { stream: EVENTS_STREAM })), "{version:?}: {gone:?}");
        ensure(&bus).await.expect("it is made again");
        assert!(log.load_tail().await.expect("the stream is there").is_empty());
        assert!(log.publish(&[mk_event(1), mk_event(2), mk_event(3)]).await.expect("published").complete);
    }
}

#[tokio::test]
async fn an_event_stream_that_lost_messages_is_named_and_one_that_lost_all_has_no_end_to_go_on_from() {
    for version in NatsVersion::ALL {
        let server = NatsServer::start(version);
        let bus = mk_bus(&server).await;
        ensure(&bus).await.expect("both are made");
        let mut log = EventLog::new(bus.clone());
        log.load_tail().await.expect("the stream is there");
        log.publish(&[mk_event(1), mk_event(2), mk_event(3)]).await.expect("published");
        let raw = mk_raw(&server).await;
        let ours = raw.get_stream(EVENTS_STREAM).await.expect("it is there").cached_info().config.clone();
        let discard = jetstream::stream::DiscardPolicy::Old;

        let few = jetstream::stream::Config { max_messages: 1, discard, ..ours.clone() };
        raw.update_stream(few).await.expect("nobody forbids it");
        raw.update_stream(ours.clone()).await.expect("nobody forbids it");
        for named in [bus.check_events().await, bus.ensure_events().await] {
            let is_named = matches!(named, Err(BusError::StreamCut { stream: EVENTS_STREAM, messages: 1, last: 3 }));
            assert!(is_named, "{version:?}: {named:?}");
        }
        assert_eq!(log.load_tail().await.expect("the last is there"), [mk_event(3).payload], "{version:?}");

        // One of each subject while some are written: a hole between what is left.
        let one_each = jetstream::stream::Config { max_messages_per_subject: 1, discard, ..ours.clone() };
        raw.update_stream(one_each).await.expect("nobody forbids it");
        let other = OutgoingEvent { subject: "holdfast.event.other".to_owned(), ..mk_event(4) };
        let published = log.publish(&[other, mk_event(5), mk_event(6)]).await.expect("published");
        assert!(published.complete, "readers get what is new");
        raw.update_stream(ours.clone()).await.expect("nobody forbids it");
        let cut = bus.check_events().await;
        assert!(matches!(cut, Err(BusError::StreamCut { messages: 2, last: 6, .. })), "{version:?}: {cut:?}");
        assert_eq!(log.load_tail().await.expect("the last is there"), [mk_event(6).payload], "{version:?}");
        assert!(log.publish(&[mk_event(7)]).await.expect("published").complete, "readers get what is new");

        let max_age = Duration::from_millis(100);
        let brief = jetstream::stream::Config { max_age, duplicate_window: max_age, ..ours };
        raw.update_stream(brief).await.expect("nobody forbids it");
        let emptied = async {
            while !matches!(log.load_tail().await, Err(BusError::StreamCut { messages: 0, last: 7, .. })) {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, emptied).await.expect("in time");
    }
}

/// Publishes until the listener has it: after a lapse some first hints may be from before its consumer.
async fn ensure(bus: &Bus) -> Result<(), BusError> {
    bus.ensure_hints().await?;
    bus.ensure_events().await
}

async fn hint_arrives(bus: &Bus, wakes: &mut mpsc::Receiver<Wake>, n: u128) {
    let wanted = Hint::Answer { request: EventId::new(Uuid::from_u128(n)) };
    let arrives = async {
        loop {
            bus.publish_hint(&Hint::Intent).await.expect("the stream takes what the listener does not ask for");
            bus.publish_hint(&wanted).await.expect("the stream takes it");
            match timeout(Duration::from_secs(1), wakes.recv()).await {
                Ok(Some(Wake::Hint(hint))) if hint == wanted => return,
                Ok(Some(Wake::Hint(hint))) => assert_ne!(hint, Hint::Intent, "a hint of another subject came"),
                Ok(Some(Wake::Lapsed)) | Err(_) => {}
                Ok(None) => panic!("the listener ended"),
            }
        }
    };
    timeout(DEADLINE, arrives).await.expect("in time");
}

/// The next wake that is not a hint of an earlier part of the test.
async fn next(wakes: &mut mpsc::Receiver<Wake>) -> Wake {
    loop {
        match timeout(DEADLINE, wakes.recv()).await.expect("in time").expect("the listener lives") {
            Wake::Lapsed => return Wake::Lapsed,
            Wake::Hint(_) => {}
        }
    }
}

fn mk_event(seq: u64) -> OutgoingEvent {
    let payload = format!(r#"{{"id":"e{seq}","authorityepoch":"1","sequence":"{seq}"}}"#);
    OutgoingEvent { subject: "holdfast.event.test".to_owned(), id: format!("e{seq}"), payload: payload.into() }
}

async fn mk_bus(server: &NatsServer) -> Bus {
    let config = BusConfig { url: server.url(), name: "test".to_owned(), user: "test".to_owned(), tls: None };
    let bus = Bus::connect(config).await.expect("the address is good");
    let mut link = bus.link();
    timeout(DEADLINE, link.wait_for(|link| link.up)).await.expect("in time").expect("the bus lives");
    bus
}

async fn mk_raw(server: &NatsServer) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.expect("it listens"))
}
