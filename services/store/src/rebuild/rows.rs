//! Rows as the fold keeps them: JSON objects that the server turns into its own types.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::tables::{TABLES, Table};
use crate::error::Error;

/// Rows of one insert.
const ROWS_MAX: usize = 2000;

/// One row.
pub(super) type Row = Map<String, Value>;

/// Rows that may still change, by table and key, and rows that will not.
#[derive(Default)]
pub(super) struct Rows {
    open: BTreeMap<&'static str, BTreeMap<String, Row>>,
    done: BTreeMap<&'static str, Vec<Row>>,
}

impl Rows {
    /// Puts a row in place of the one with its key.
    pub(super) fn put(&mut self, table: &'static str, key: impl ToString, row: Row) {
        self.open.entry(table).or_default().insert(key.to_string(), row);
    }

    /// The row with a key.
    pub(super) fn find(&mut self, table: &'static str, key: impl ToString) -> Option<&mut Row> {
        self.open.get_mut(table).and_then(|rows| rows.get_mut(&key.to_string()))
    }

    /// Adds a row that will not change.
    pub(super) fn add(&mut self, table: &'static str, row: Row) {
        self.done.entry(table).or_default().push(row);
    }

    /// The row with a key will not change any more.
    pub(super) fn finish(&mut self, table: &'static str, key: impl ToString) {
        if let Some(row) = self.open.get_mut(table).and_then(|rows| rows.remove(&key.to_string())) {
            self.add(table, row);
        }
    }

    /// Takes the row with a key away.
    pub(super) fn remove(&mut self, table: &'static str, key: impl ToString) {
        if let Some(rows) = self.open.get_mut(table) {
            rows.remove(&key.to_string());
        }
    }

    /// Writes what will not change, once it is worth a statement; at the end, everything.
    pub(super) async fn flush(&mut self, tx: &mut PgConnection, is_end: bool) -> Result<(), Error> {
        for table in TABLES {
            if is_end {
                let rest = self.open.remove(table.name).unwrap_or_default().into_values();
                self.done.entry(table.name).or_default().extend(rest);
            }
            let Some(rows) = self.done.get_mut(table.name) else { continue };
            if is_end || rows.len() >= ROWS_MAX {
                fill(tx, table, std::mem::take(rows)).await?;
            }
        }
        Ok(())
    }
}

async fn fill(tx: &mut PgConnection, table: &Table, rows: Vec<Row>) -> Result<(), Error> {
    let mut rows = rows.into_iter();
    loop {
        let chunk: Vec<Value> = rows.by_ref().take(ROWS_MAX).map(Value::Object).collect();
        if chunk.is_empty() {
            return Ok(());
        }
        sqlx::query(table.fill).bind(Value::Array(chunk)).execute(&mut *tx).await?;
    }
}

/// A row from its columns.
pub(super) fn row<const N: usize>(columns: [(&str, Value); N]) -> Row {
    columns.into_iter().map(|(column, value)| (column.to_owned(), value)).collect()
}

/// Sets columns of a row.
pub(super) fn set<const N: usize>(row: &mut Row, columns: [(&str, Value); N]) {
    row.extend(columns.into_iter().map(|(column, value)| (column.to_owned(), value)));
}

/// A time as the server reads it.
pub(super) fn at(time: OffsetDateTime) -> Result<Value, Error> {
    time.format(&Rfc3339).map(Value::String).map_err(|error| Error::value("timestamptz", error))
}

/// Bytes as the server reads them, from their hexadecimal form.
pub(super) fn bytes(hexadecimal: impl std::fmt::Display) -> Value {
    Value::String(format!("\\x{hexadecimal}"))
}

/// A text.
pub(super) fn words(text: impl std::fmt::Display) -> Value {
    Value::String(text.to_string())
}

/// A text, or nothing.
pub(super) fn maybe(text: Option<impl std::fmt::Display>) -> Value {
    text.map_or(Value::Null, words)
}

/// A list of addresses or prefixes.
pub(super) fn list<T: std::fmt::Display>(items: &[T]) -> Value {
    items.iter().map(words).collect()
}
