//! How the sub-commands write: JSON for programs, tables for people, error chains on stderr.

use std::error::Error;
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use holdfast_documents::Faults;
use serde::Serialize;

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_secs(1);

/// The form of a command's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// Writes an error and its causes on stderr, in one line, and every fault of an estate's documents on a line of its own.
pub fn complain(error: &(dyn Error + 'static)) {
    let mut text = format!("error: {error}");
    let mut faults = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        let list = error.downcast_ref::<Faults>().map_or(&[][..], Faults::list);
        faults.extend(list.iter().map(|fault| format!("\n  {fault}")));
        cause = error.source();
    }
    // Nothing is left to say when stderr itself is closed.
    let _told = writeln!(io::stderr(), "{text}{faults}");
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

/// `1 host`, `2 hosts`.
#[must_use]
pub fn counted(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// Says that something is awaited, once it takes longer than anybody expects; nothing where a program reads the answer.
#[derive(Debug)]
pub struct Waiting {
    over: mpsc::SyncSender<()>,
    teller: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Begins to wait; dropping it ends the wait.
    #[must_use]
    pub fn begin(output: Format, words: String) -> Self {
        let (over, ended) = mpsc::sync_channel(1);
        let tell = move || {
            if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Nothing is left to say when stderr itself is closed.
                let _ = say(&words);
            }
        };
        let teller = (output == Format::Table).then(|| thread::spawn(tell));
        Self { over, teller }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // It may have told already and be gone.
        let _ = self.over.send(());
        if let Some(teller) = self.teller.take() {
            let _ = teller.join();
        }
    }
}
