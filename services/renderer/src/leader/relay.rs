//! Numbers events and carries them to the stream, in their order, each once.
//!
//! - The stream itself says where it ends. What Postgres has numbered beyond that is published; a stream that was lost is written again from the
//!   first event on, also while nothing happens.
//! - Before it goes on, the end of the stream is compared with the database, byte by byte: a message of another hand stops everything, loudly, until a
//!   person removes it.
//!
//! What is done next, and what an answer means, is decided by the machine ([`holdfast_events::relay`]), which the simulation drives too.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_bus::{BusError, EventLog, OutgoingEvent};
use holdfast_events::NumberedRecord;
use holdfast_events::relay::{EventPlace, Next, Relay, Tail};
use holdfast_model::numbers::LeaseTerm;
use holdfast_model::statement::Authority;
use holdfast_runtime::fail_point;
use holdfast_store::order::{Horizon, Numbered};

use super::streams::ensure;
use super::{Means, TermEnd, passes, report, wait};

/// How many events are read and published at once.
const BATCH: u32 = 1_000;
/// How many events of the database are read at once to compare the stream with.
const COMPARED: u32 = 128;
/// The wait after the bus refused, so that an absent one is not asked without end.
const BUS_RETRY: Duration = Duration::from_secs(1);

/// The wait before a stream that only a person can mend is looked at again.
const FOREIGN_RETRY: Duration = Duration::from_secs(5);

pub(super) async fn run(means: &Means, term: LeaseTerm, authority: Authority) -> TermEnd {
    let mut log = EventLog::new(means.events.clone());
    let mut relay = Relay::new();
    let mut horizon = Horizon::default();
    loop {
        let numbered = match means.store.number_events(term, horizon).await {
            Ok(numbered) => numbered,
            Err(error) => match passes("numbering events", error).await {
                Ok(()) => continue,
                Err(end) => return end,
            },
        };
        horizon = numbered.horizon;
        metrics::counter!("holdfast_events_numbered_total").increment(numbered.count);
        let caught = catch_up(means, &mut log, &mut relay, numbered).await;
        if let Some(at) = relay.cursor() {
            report::relayed(&means.wakes, (at.epoch, at.seq));
        }
        match caught {
            Ok(Progress::Done) => wait(&means.wakes.event, None).await,
            Ok(Progress::Again) => {}
            Ok(Progress::Later) => tokio::time::sleep(BUS_RETRY).await,
            Err(Trouble::Bus(error @ BusError::StreamRefuses { .. })) => {
                let error = holdfast_runtime::Chain(&error).to_string();
                tracing::error!(
                    error,
                    "events wait: the server has no room, or the stream is broken and must be deleted"
                );
                report::refused(&means.wakes, Some(error));
                relay.handle_trouble();
                tokio::time::sleep(FOREIGN_RETRY).await;
            }
            Err(Trouble::Bus(error)) => {
                tracing::debug!(error = %holdfast_runtime::Chain(&error), "events wait for the bus");
                relay.handle_trouble();
                ensure(means).await;
                let for_a_person = matches!(error, BusError::StreamCut { .. });
                tokio::time::sleep(if for_a_person { FOREIGN_RETRY } else { BUS_RETRY }).await;
            }
            Err(Trouble::Foreign) => {
                tracing::error!(
                    authority = super::words(authority),
                    "the event stream holds what this database never wrote; nothing is published until somebody deletes the stream, and then all of it is written again"
                );
                means.wakes.foreign.store(true, Ordering::Relaxed);
                means.wakes.report.notify_one();
                relay.handle_trouble();
                tokio::time::sleep(FOREIGN_RETRY).await;
            }
            Err(Trouble::Store(error)) => {
                if let Err(end) = passes("reading events", error).await {
                    return end;
                }
            }
            Err(Trouble::Event(error)) => return TermEnd::Event(error),
        }
    }
}

enum Progress {
    /// The stream holds everything that is numbered.
    Done,
    /// There is more.
    Again,
    /// The stream took nothing: asking again at once would only spin.
    Later,
}

enum Trouble {
    Bus(BusError),
    Store(holdfast_store::Error),
    Event(holdfast_events::CloudEventError),
    /// The stream holds something that is not of this database.
    Foreign,
}

/// Publishes one batch after what the stream holds.
async fn catch_up(
    means: &Means,
    log: &mut EventLog,
    relay: &mut Relay,
    numbered: Numbered,
) -> Result<Progress, Trouble> {
    let last = EventPlace { epoch: numbered.authority_epoch, seq: numbered.last };
    let mut records = Vec::new();
    let mut next = relay.poll_next(last, numbered.count);
    loop {
        next = match next {
            Next::FindEnd => {
                relay.handle_end(find_end(means, log).await?);
                relay.poll_next(last, numbered.count)
            }
            Next::Look => relay.handle_looked(log.is_where_it_was().await.map_err(Trouble::Bus)?),
            Next::Read(from) => {
                records = means.store.events_from(from.epoch, from.seq, BATCH).await.map_err(Trouble::Store)?;
                relay.handle_read(!records.is_empty(), last)
            }
            Next::Publish => publish(means, log, relay, (&records, last)).await?,
            Next::Rest => {
                // Nothing waits for the server, whoever carried it there.
                report::refused(&means.wakes, None);
                return Ok(Progress::Done);
            }
            Next::Again => return Ok(Progress::Again),
            Next::Later => return Ok(Progress::Later),
        };
    }
}

/// Publishes what was read.
async fn publish(
    means: &Means,
    log: &mut EventLog,
    relay: &mut Relay,
    (records, last): (&[NumberedRecord], EventPlace),
) -> Result<Next, Trouble> {
    let Some(end) = records.last().map(place_of) else { return Ok(Next::Again) };
    fail_point("events", "after they were read");
    let events = records.iter().map(outgoing).collect::<Result<Vec<_>, _>>().map_err(Trouble::Event)?;
    let published = log.publish(&events).await.map_err(Trouble::Bus)?;
    fail_point("events", "after they were published");
    metrics::counter!("holdfast_events_published_total").increment(published.count as u64);
    if published.count > 0 {
        report::refused(&means.wakes, None);
    }
    Ok(relay.handle_published(end, published.count, published.complete, last))
}

/// Where the stream ends, if its end is what this database wrote.
async fn find_end(means: &Means, log: &mut EventLog) -> Result<EventPlace, Trouble> {
    fail_point("events", "before the stream is compared");
    let mut tail = Tail::default();
    let mut known: VecDeque<OutgoingEvent> = VecDeque::new();
    for payload in log.load_tail().await.map_err(Trouble::Bus)? {
        let event = NumberedRecord::decode(&payload).map_err(|_| Trouble::Foreign)?;
        let at = place_of(&event);
        if known.is_empty() {
            let records = means.store.events_from(at.epoch, at.seq, COMPARED).await.map_err(Trouble::Store)?;
            known = records.iter().map(outgoing).collect::<Result<_, _>>().map_err(Trouble::Event)?;
        }
        let is_written = known.pop_front().is_some_and(|written| written.payload == payload);
        tail.handle_message(at, is_written).map_err(|_| Trouble::Foreign)?;
    }
    means.wakes.foreign.store(false, Ordering::Relaxed);
    fail_point("events", "after the stream was compared");
    Ok(tail.end())
}

const fn place_of(record: &NumberedRecord) -> EventPlace {
    EventPlace { epoch: record.authority_epoch, seq: record.seq }
}

fn outgoing(record: &NumberedRecord) -> Result<OutgoingEvent, holdfast_events::CloudEventError> {
    Ok(OutgoingEvent {
        subject: holdfast_events::event_subject(&record.record.event),
        id: record.record.id.to_string(),
        payload: record.encode()?.into(),
    })
}
