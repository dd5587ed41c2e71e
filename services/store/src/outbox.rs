//! The events of one transaction.
//!
//! They are inserted where they happen, in the order in which they were pushed; that nobody has numbered them yet makes them the outbox.

use holdfast_events::{Actor, Event};
use holdfast_model::ids::{EventId, OperationId};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// Rows of one statement: enough to forget the round trip, few enough to keep its memory small (64 MB if every payload were the largest).
const ROWS_MAX: usize = 1000;

/// Gathers events and inserts them.
pub(crate) struct Outbox {
    actor: Actor,
    correlation: Option<OperationId>,
    columns: Columns,
}

#[derive(Default)]
struct Columns {
    ids: Vec<Uuid>,
    actors: Vec<String>,
    kinds: Vec<&'static str>,
    subjects: Vec<String>,
    payloads: Vec<serde_json::Value>,
    causations: Vec<Option<Uuid>>,
    correlations: Vec<Option<Uuid>>,
}

impl Outbox {
    /// Events that one actor causes.
    pub(crate) fn new(actor: Actor) -> Self {
        Self { actor, correlation: None, columns: Columns::default() }
    }

    /// Events that are part of one operation.
    pub(crate) fn of_operation(actor: Actor, operation: OperationId) -> Self {
        Self { correlation: Some(operation), ..Self::new(actor) }
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, event: impl Into<Event>) -> Result<EventId, Error> {
        self.push_as(self.actor, None, &event.into())
    }

    /// Adds an event that another actor causes, or that another event led to.
    pub(crate) fn push_as(
        &mut self,
        actor: Actor,
        causation: Option<EventId>,
        event: &Event,
    ) -> Result<EventId, Error> {
        let id = Uuid::now_v7();
        let columns = &mut self.columns;
        columns.payloads.push(event.data()?);
        columns.ids.push(id);
        columns.actors.push(actor.to_string());
        columns.kinds.push(event.kind().word());
        // Ids have no commas. An array of arrays cannot have rows of different lengths.
        columns.subjects.push(event.subjects().join(","));
        columns.causations.push(causation.map(EventId::uuid));
        columns.correlations.push(self.correlation.map(OperationId::uuid));
        Ok(EventId::new(id))
    }

    /// Inserts what was gathered. To be called after every lock is held, so that the rows' numbers follow those of whoever was waited for.
    pub(crate) async fn write(self, tx: &mut PgConnection) -> Result<(), Error> {
        let all = self.columns;
        let len = all.ids.len();
        for from in (0..len).step_by(ROWS_MAX) {
            let rows = from..len.min(from + ROWS_MAX);
            sqlx::query(
                "INSERT INTO events (event_id, actor, kind, subjects, payload, causation, correlation) \
                 SELECT event_id, actor, kind, string_to_array(subjects, ','), payload, causation, correlation \
                 FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::uuid[], $7::uuid[]) \
                 WITH ORDINALITY AS r (event_id, actor, kind, subjects, payload, causation, correlation, n) ORDER BY n",
            )
            .bind(&all.ids[rows.clone()])
            .bind(&all.actors[rows.clone()])
            .bind(&all.kinds[rows.clone()])
            .bind(&all.subjects[rows.clone()])
            .bind(&all.payloads[rows.clone()])
            .bind(&all.causations[rows.clone()])
            .bind(&all.correlations[rows])
            .execute(&mut *tx)
            .await?;
        }
        Ok(())
    }
}
