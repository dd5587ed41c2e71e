//! `rebuild --check`: the events, folded in their order, must give every column of every projection.
//!
//! - All in one consistent state of the database; the fold goes to temporary tables, and the server compares, so that both sides have its types.
//! - The fold shares no statement with the writers: what a writer forgets to say in an event, or a hand changes in a table, differs.
//! - Artifacts are no projection. Each must have the digest that names it, and whatever names one must find it.
//! - Every table is either compared or listed as [`OUTSIDE`], every column compared or in its table's list: a test reads the catalogue.
//!
//! It repairs nothing: a difference is a bug, or a foreign hand.

mod artifacts;
mod drift;
mod fold;
mod rollout;
mod rows;
mod tables;

use std::fmt;

use fold::Fold;
use holdfast_events::Record;
use sqlx::postgres::PgConnection;
use tables::TABLES;
pub use tables::{OUTSIDE, OutsideColumns, compared_tables};

use crate::error::Error;
use crate::order::EventRow;
use crate::pool::{Mode, Store};
use crate::value::number;

/// The most differences that are listed; all are counted as long as their table is not broken off.
pub const DIFFERENCES_MAX: usize = 1000;

/// One column of one row that is not what the events say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The table.
    pub table: &'static str,
    /// The row: its key columns and their values.
    pub key: String,
    /// The column; `*` if the whole row is there on one side only.
    pub column: String,
    /// What the events say, as JSON.
    pub expected: String,
    /// What is stored, as JSON.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, column, expected, found } = self;
        write!(f, "{table} [{key}] {column}: the events say {expected}, the table has {found}")
    }
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RebuildReport {
    /// How many events were folded.
    pub events: u64,
    /// How many of them have no number yet.
    pub unnumbered: u64,
    /// How many rows were compared.
    pub rows: u64,
    /// How many artifacts were read.
    pub artifacts: u64,
    /// What differs, at most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
}

/// Events of one page: large enough to forget the round trip, and 64 MB if every payload were the largest.
const PAGE: &str = "FETCH 1000 FROM all_events";

impl Store {
    /// Folds all events and compares. Needs a role that reads everything and may make temporary tables.
    ///
    /// # Errors
    /// [`Error::Event`] if a stored event cannot be read at all.
    pub async fn rebuild_check(&self) -> Result<RebuildReport, Error> {
        self.transact("check all projections", Mode::LongSnapshot, |tx| Box::pin(check(tx))).await
    }
}

async fn check(tx: &mut PgConnection) -> Result<RebuildReport, Error> {
    let mut report = RebuildReport { events: 0, unnumbered: 0, rows: 0, artifacts: 0, differences: Vec::new() };
    for table in TABLES {
        sqlx::raw_sql(table.create).execute(&mut *tx).await?;
    }
    // Events without a number come last, in the order in which they will be numbered.
    sqlx::query(
        "DECLARE all_events CURSOR FOR SELECT coalesce(o.seq, 0) AS seq, e.event_id, e.lid, e.at, e.actor, e.kind, \
             e.payload, e.causation, e.correlation, e.subjects, o.authority_epoch \
         FROM (SELECT *, max(lid) OVER (PARTITION BY xid) AS last_lid FROM events) e \
         LEFT JOIN event_order o USING (event_id) \
         ORDER BY o.authority_epoch NULLS LAST, o.seq, e.last_lid, e.lid",
    )
    .execute(&mut *tx)
    .await?;
    let mut fold = Fold::default();
    let mut last = (0, 0);
    loop {
        let page: Vec<FoldedRow> = sqlx::query_as(PAGE).fetch_all(&mut *tx).await?;
        if page.is_empty() {
            break;
        }
        for row in page {
            fold_event(row, &mut fold, &mut last, &mut report)?;
        }
        fold.flush(tx, false).await?;
    }
    fold.flush(tx, true).await?;
    check_places(tx, &mut report).await?;
    for table in TABLES {
        compare(tx, table, &mut report).await?;
    }
    artifacts::check(tx, &mut report).await?;
    report.differences.truncate(DIFFERENCES_MAX);
    Ok(report)
}

#[derive(sqlx::FromRow)]
struct FoldedRow {
    #[sqlx(flatten)]
    event: EventRow,
    subjects: Vec<String>,
    authority_epoch: Option<i64>,
}

fn fold_event(row: FoldedRow, fold: &mut Fold, last: &mut (i64, i64), report: &mut RebuildReport) -> Result<(), Error> {
    let FoldedRow { event, subjects, authority_epoch } = row;
    let (seq, stored) = (event.seq, event.payload.clone());
    let record: Record = event.record()?;
    report.events += 1;
    let key = format!("event_id={}", record.id.uuid());
    match authority_epoch {
        None => report.unnumbered += 1,
        Some(epoch) => {
            let wanted = if epoch == last.0 { last.1 + 1 } else { 1 };
            if seq != wanted {
                report.differences.push(difference("event_order", &key, "seq", wanted, seq));
            }
            *last = (epoch, seq);
        }
    }
    if record.event.subjects() != subjects {
        let wanted = format!("{:?}", record.event.subjects());
        report.differences.push(difference("events", &key, "subjects", wanted, format!("{subjects:?}")));
    }
    // What reads back as the same event but is written otherwise was not written by a build of this project.
    let written = record.event.data()?;
    if written != stored {
        report.differences.push(difference("events", &key, "payload", &written, &stored));
    }
    let refused = fold.event(&record)?;
    if let Some(why) = refused {
        report.differences.push(difference("events", &key, "kind", why, record.event.kind()));
    }
    Ok(())
}

/// Places of events that are not there.
async fn check_places(tx: &mut PgConnection, report: &mut RebuildReport) -> Result<(), Error> {
    let rows: Vec<(i64, i64, uuid::Uuid)> = sqlx::query_as(
        "SELECT o.authority_epoch, o.seq, o.event_id FROM event_order o \
         WHERE NOT EXISTS (SELECT FROM events e WHERE e.event_id = o.event_id) LIMIT 1000",
    )
    .fetch_all(tx)
    .await?;
    for (epoch, seq, event) in rows {
        let key = format!("authority_epoch={epoch} seq={seq}");
        report.differences.push(difference("event_order", &key, "event_id", "an event", event));
    }
    Ok(())
}

fn difference(
    table: &'static str,
    key: &str,
    column: &str,
    expected: impl fmt::Display,
    found: impl fmt::Display,
) -> Difference {
    Difference {
        table,
        key: key.to_owned(),
        column: column.to_owned(),
        expected: bounded(expected),
        found: bounded(found),
    }
}

/// Values may be large; a difference names them by their beginning.
fn bounded(value: impl fmt::Display) -> String {
    value.to_string().chars().take(500).collect()
}

type Pair = (Option<serde_json::Value>, Option<serde_json::Value>);

async fn compare(tx: &mut PgConnection, table: &tables::Table, report: &mut RebuildReport) -> Result<(), Error> {
    let rows: i64 = sqlx::query_scalar(table.count).fetch_one(&mut *tx).await?;
    report.rows += number("count", rows)?;
    let pairs: Vec<Pair> = sqlx::query_as(table.compare).bind(table.outside).fetch_all(tx).await?;
    for (expected, found) in pairs {
        let row = expected.as_ref().or(found.as_ref()).and_then(serde_json::Value::as_object);
        let row = row.ok_or_else(|| Error::value("to_jsonb", table.name))?;
        let value = |column: &&str| row.get(*column).map_or_else(String::new, ToString::to_string);
        let key: Vec<String> =
            table.key.iter().map(|column| format!("{column}={}", value(column).trim_matches('"'))).collect();
        let key = key.join(" ");
        let (Some(expected), Some(found)) = (&expected, &found) else {
            let side = |value: &Option<serde_json::Value>| value.as_ref().map_or("no row", |_| "a row");
            report.differences.push(difference(table.name, &key, "*", side(&expected), side(&found)));
            continue;
        };
        for (column, wanted) in expected.as_object().into_iter().flatten() {
            let is_outside = table.outside.contains(&column.as_str());
            let stored = found.get(column).unwrap_or(&serde_json::Value::Null);
            if !is_outside && wanted != stored {
                report.differences.push(difference(table.name, &key, column, wanted, stored));
            }
        }
    }
    Ok(())
}
