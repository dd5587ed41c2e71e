//! How the sub-commands write: JSON for programs, tables for people, error chains on stderr.

use std::error::Error;
use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// The form of a command's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// Writes an error and its causes on stderr, in one line.
pub fn complain(error: &dyn Error) {
    let mut line = format!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    // Nothing is left to say when stderr itself is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes one JSON document on stdout.
///
/// # Errors
/// The value cannot be written as JSON, or stdout is closed.
pub fn write_json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Writes columns on stdout.
///
/// # Errors
/// Stdout is closed.
pub fn write_table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table.add_rows(rows);
    writeln!(io::stdout(), "{}", table.trim_fmt())
}

/// Says something to people, on stderr.
///
/// # Errors
/// Stderr is closed.
pub fn say(words: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{words}")
}
