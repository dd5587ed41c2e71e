//! Numbers events and carries them to the stream, in their order, each once.
//!
//! The stream itself says where it ends. What Postgres has numbered beyond that is published; a stream that was lost is written again from the first
//! event on.

use std::time::Duration;

use holdfast_bus::{BusError, EventLog, OutgoingEvent};
use holdfast_events::NumberedRecord;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm};
use holdfast_model::statement::Authority;
use holdfast_store::order::{Horizon, Numbered};

use super::streams::ensure;
use super::{Means, RETRY, TermEnd, passes, wait};

/// How many events are read and published at once.
const BATCH: u32 = 1_000;
/// The wait after the bus refused, so that an absent one is not asked without end.
const BUS_RETRY: Duration = Duration::from_secs(1);

/// The last event that the stream is known to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    epoch: AuthorityEpoch,
    seq: EventSeq,
}

pub(super) async fn run(means: &Means, term: LeaseTerm, authority: Authority) -> TermEnd {
    let mut log = EventLog::new(means.bus.clone());
    let mut cursor = None;
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
        match catch_up(means, &mut log, &mut cursor, numbered).await {
            Ok(Progress::Done) => wait(&means.wakes.event, None).await,
            Ok(Progress::Again) => {}
            Err(Trouble::Bus(error)) => {
                tracing::debug!(error = %holdfast_runtime::Chain(&error), "events wait for the bus");
                cursor = None;
                ensure(means).await;
                tokio::time::sleep(BUS_RETRY).await;
            }
            Err(Trouble::Foreign) => {
                tracing::error!(
                    authority = super::words(authority),
                    "the event stream ends with what this database never wrote; nothing is published until somebody removes it"
                );
                cursor = None;
                tokio::time::sleep(RETRY * 30).await;
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
}

enum Trouble {
    Bus(BusError),
    Store(holdfast_store::Error),
    Event(holdfast_events::CloudEventError),
    /// The stream's last event is not of this database.
    Foreign,
}

/// Publishes one batch after what the stream holds.
async fn catch_up(
    means: &Means,
    log: &mut EventLog,
    cursor: &mut Option<Cursor>,
    numbered: Numbered,
) -> Result<Progress, Trouble> {
    let at = match *cursor {
        Some(at) => at,
        None => *cursor.insert(find_end(means, log).await?),
    };
    if (at.epoch, at.seq) == (numbered.authority_epoch, numbered.last) {
        return Ok(Progress::Done);
    }
    let next = at.seq.next().unwrap_or(at.seq);
    let records = means.store.events_from(at.epoch, next, BATCH).await.map_err(Trouble::Store)?;
    if records.is_empty() {
        // The end of an epoch: the next one begins at 1.
        *cursor = at.epoch.next().map(|epoch| Cursor { epoch, seq: EventSeq::ZERO });
        return Ok(Progress::Again);
    }
    let events = records.iter().map(outgoing).collect::<Result<Vec<_>, _>>().map_err(Trouble::Event)?;
    let published = log.publish(&events).await.map_err(Trouble::Bus)?;
    metrics::counter!("holdfast_events_published_total").increment(published.count as u64);
    *cursor = if published.complete {
        records.last().map(|last| Cursor { epoch: last.authority_epoch, seq: last.seq })
    } else {
        // What was stored and what not is the stream's to say.
        None
    };
    Ok(Progress::Again)
}

async fn find_end(means: &Means, log: &mut EventLog) -> Result<Cursor, Trouble> {
    let Some(last) = log.load_last().await.map_err(Trouble::Bus)? else {
        return Ok(Cursor { epoch: AuthorityEpoch::from_raw(1), seq: EventSeq::ZERO });
    };
    let last = NumberedRecord::decode(&last.payload).map_err(|_| Trouble::Foreign)?;
    match means.store.place_of(last.record.id).await.map_err(Trouble::Store)? {
        Some((epoch, seq)) if (epoch, seq) == (last.authority_epoch, last.seq) => Ok(Cursor { epoch, seq }),
        Some(_) | None => Err(Trouble::Foreign),
    }
}

fn outgoing(record: &NumberedRecord) -> Result<OutgoingEvent, holdfast_events::CloudEventError> {
    Ok(OutgoingEvent {
        subject: holdfast_events::event_subject(&record.record.event),
        id: record.record.id.to_string(),
        payload: record.encode()?.into(),
    })
}
