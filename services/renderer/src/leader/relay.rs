//! Numbers events and carries them to the stream, in their order, each once.
//!
//! - The stream itself says where it ends. What Postgres has numbered beyond that is published; a stream that was lost is written again from the
//!   first event on, also while nothing happens.
//! - Before it goes on, the end of the stream is compared with the database, byte by byte: a message of another hand stops everything, loudly, until a
//!   person removes it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_bus::{BusError, EventLog, OutgoingEvent};
use holdfast_events::NumberedRecord;
use holdfast_model::numbers::{AuthorityEpoch, EventSeq, LeaseTerm};
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

/// The last event that the stream is known to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    epoch: AuthorityEpoch,
    seq: EventSeq,
}

pub(super) async fn run(means: &Means, term: LeaseTerm, authority: Authority) -> TermEnd {
    let mut log = EventLog::new(means.events.clone());
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
        let caught = catch_up(means, &mut log, &mut cursor, numbered).await;
        if let Some(at) = cursor {
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
                cursor = None;
                tokio::time::sleep(FOREIGN_RETRY).await;
            }
            Err(Trouble::Bus(error)) => {
                tracing::debug!(error = %holdfast_runtime::Chain(&error), "events wait for the bus");
                cursor = None;
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
                cursor = None;
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
    cursor: &mut Option<Cursor>,
    numbered: Numbered,
) -> Result<Progress, Trouble> {
    let at = match *cursor {
        Some(at) => at,
        None => *cursor.insert(find_end(means, log).await?),
    };
    if (at.epoch, at.seq) == (numbered.authority_epoch, numbered.last) {
        // Who has nothing to publish would not be told that the stream was lost meanwhile.
        if numbered.count > 0 || log.is_where_it_was().await.map_err(Trouble::Bus)? {
            // Nothing waits for the server, whoever carried it there.
            report::refused(&means.wakes, None);
            return Ok(Progress::Done);
        }
        *cursor = None;
        return Ok(Progress::Again);
    }
    let next = at.seq.next().unwrap_or(at.seq);
    let records = means.store.events_from(at.epoch, next, BATCH).await.map_err(Trouble::Store)?;
    if records.is_empty() && at.epoch >= numbered.authority_epoch {
        // Beyond all that this database has numbered: it was restored from a backup, and the stream says so.
        *cursor = None;
        return Ok(Progress::Later);
    }
    if records.is_empty() {
        // The end of an epoch: the next one begins at 1.
        *cursor = at.epoch.next().map(|epoch| Cursor { epoch, seq: EventSeq::ZERO });
        return Ok(Progress::Again);
    }
    fail_point("events", "after they were read");
    let events = records.iter().map(outgoing).collect::<Result<Vec<_>, _>>().map_err(Trouble::Event)?;
    let published = log.publish(&events).await.map_err(Trouble::Bus)?;
    fail_point("events", "after they were published");
    metrics::counter!("holdfast_events_published_total").increment(published.count as u64);
    *cursor = if published.complete {
        records.last().map(|last| Cursor { epoch: last.authority_epoch, seq: last.seq })
    } else {
        // What was stored and what not is the stream's to say.
        None
    };
    if published.count == 0 {
        return Ok(Progress::Later);
    }
    report::refused(&means.wakes, None);
    // What was committed since the numbering has a wake of its own, which is kept while nobody waits for it.
    let all = cursor.is_some_and(|at| (at.epoch, at.seq) == (numbered.authority_epoch, numbered.last));
    Ok(if all { Progress::Done } else { Progress::Again })
}

/// Where the stream ends, if its end is what this database wrote.
async fn find_end(means: &Means, log: &mut EventLog) -> Result<Cursor, Trouble> {
    fail_point("events", "before the stream is compared");
    let tail = log.load_tail().await.map_err(Trouble::Bus)?;
    let mut end = None;
    let mut known: VecDeque<OutgoingEvent> = VecDeque::new();
    for payload in tail {
        let event = NumberedRecord::decode(&payload).map_err(|_| Trouble::Foreign)?;
        let at = Cursor { epoch: event.authority_epoch, seq: event.seq };
        if end.is_some_and(|end| !follows(end, at)) {
            return Err(Trouble::Foreign);
        }
        if known.is_empty() {
            let records = means.store.events_from(at.epoch, at.seq, COMPARED).await.map_err(Trouble::Store)?;
            known = records.iter().map(outgoing).collect::<Result<_, _>>().map_err(Trouble::Event)?;
        }
        if known.pop_front().is_none_or(|written| written.payload != payload) {
            return Err(Trouble::Foreign);
        }
        end = Some(at);
    }
    means.wakes.foreign.store(false, Ordering::Relaxed);
    fail_point("events", "after the stream was compared");
    Ok(end.unwrap_or(Cursor { epoch: AuthorityEpoch::from_raw(1), seq: EventSeq::ZERO }))
}

/// Whether an event may stand right behind another in the stream. A new life may be numbered above ones that this database forgot.
fn follows(before: Cursor, after: Cursor) -> bool {
    let later_epoch = before.epoch < after.epoch && Some(after.seq) == EventSeq::ZERO.next();
    later_epoch || (before.epoch == after.epoch && before.seq.next() == Some(after.seq))
}

fn outgoing(record: &NumberedRecord) -> Result<OutgoingEvent, holdfast_events::CloudEventError> {
    Ok(OutgoingEvent {
        subject: holdfast_events::event_subject(&record.record.event),
        id: record.record.id.to_string(),
        payload: record.encode()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stand_in_their_order_without_a_hole_and_an_epoch_begins_with_the_first() {
        let at = |epoch, seq| Cursor { epoch: AuthorityEpoch::from_raw(epoch), seq: EventSeq::from_raw(seq) };
        assert!(follows(at(2, 4), at(2, 5)) && follows(at(2, 4), at(3, 1)) && follows(at(2, 4), at(9, 1)));
        for after in [at(2, 4), at(2, 6), at(2, 3), at(3, 2), at(1, 1), at(3, 5)] {
            assert!(!follows(at(2, 4), after), "{after:?}");
        }
    }
}
