//! What the commands print.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::service::{LastOutcome, LedgerState, Status};

/// Logs to stderr: `HOLDFAST_LOG` filters, `HOLDFAST_LOG_FORMAT=json` makes lines of JSON.
pub(super) fn start_log() {
    let filter = EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A second subscriber in one process is a test's; the first stays.
    if std::env::var("HOLDFAST_LOG_FORMAT").is_ok_and(|format| format == "json") {
        drop(builder.json().try_init());
    } else {
        drop(builder.with_ansi(colour).try_init());
    }
}

/// The error with its causes, once.
pub(super) fn error(error: &dyn Error) {
    let mut text = format!("holdfast-agent: {error}");
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    drop(writeln!(io::stderr().lock(), "{text}"));
}

pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

pub(super) fn down(removed: bool, state: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let what = if removed { "table inet holdfast is removed" } else { "there was no table inet holdfast" };
    writeln!(out, "{what}; the last good policy stays in {}", state.display())?;
    writeln!(out, "`holdfast-agent run` enforces it again")
}

pub(super) fn outcome(outcome: &LastOutcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{} version {} {}", outcome.outcome, outcome.wanted.version, outcome.wanted.digest.short())?;
    for condition in &outcome.conditions {
        let text = if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        writeln!(out, "  {} {:?} {}{text}", condition.kind, condition.status, condition.reason)?;
    }
    Ok(())
}

pub(super) fn status(status: &Status) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12} {value}");
    let policy = &status.policy;
    let applied =
        policy.applied.map_or("none".to_owned(), |stamp| format!("{} {}", stamp.version, stamp.digest.short()));
    line("agent", format!("{} pid {}", status.version, status.pid))?;
    line("source", status.source.clone())?;
    line("policy", format!("{applied} {}", policy.mode))?;
    line("kernel", if policy.proven { "read back, as planned".to_owned() } else { "not proven".to_owned() })?;
    if let Some(fault) = &policy.fault {
        line("fault", fault.clone())?;
    }
    line(
        "ledger",
        match &policy.ledger {
            LedgerState::Missing => "new".to_owned(),
            LedgerState::Loaded => "loaded".to_owned(),
            LedgerState::Unusable(fault) => format!("unusable: {fault}"),
        },
    )?;
    line("drift", format!("{} repaired", policy.drifts))?;
    let table = &status.table;
    line("table", format!("{}{}", table.name, if table.owned { ", owned" } else { "" }))?;
    line("forwarded", if table.forwarded_enforced { "enforced".to_owned() } else { "not enforced".to_owned() })?;
    line("dropped", format!("{} packets, would drop {}", table.dropped_packets, table.would_drop_packets))?;
    if let Some(last) = &policy.last_outcome {
        line("last", format!("{} version {}", last.outcome, last.wanted.version))?;
    }
    for counter in table.counters.iter().flatten() {
        let name = format!("{}/{}", counter.chain, counter.rule);
        writeln!(out, "{:>12} {:>14} {:<6} {name}", counter.packets, counter.bytes, counter.effect)?;
    }
    Ok(())
}
