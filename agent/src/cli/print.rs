//! What the commands print.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use holdfast_model::condition::Holds;
use holdfast_model::name::Name;
use holdfast_runtime::{Chain, log};
use serde::Serialize;

use crate::enrolment::{Enrolled, Grant};
use crate::service::{Forwarded, LastDrift, LastOutcome, LedgerState, Status};
use crate::session::Link;

/// The error with its causes, once.
pub(super) fn error(error: &dyn Error, rule: &str) {
    log::say_last(&format!("holdfast-agent: {} [{rule}]", Chain(error)));
}

pub(super) fn enrolled(Enrolled { host, by }: Enrolled, name: &Name) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match by {
        Grant::Given => {}
        Grant::Earlier => {
            writeln!(
                out,
                "an enrolment that was begun before is finished, by the token of then: the given one is not used"
            )?;
        }
    }
    writeln!(out, "enrolled as {name}, {host}; `holdfast-agent run` opens its session")
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
        let holds = match condition.status {
            Holds::True => "holds",
            Holds::False => "does not hold",
            Holds::Unknown => "is not known",
        };
        writeln!(out, "  {} {holds}: {}{text}", condition.kind, condition.reason)?;
    }
    Ok(())
}

/// A wait as people read it.
pub(super) fn seconds(ms: u64) -> String {
    let tenths = ms.div_ceil(100);
    format!("{}.{} s", tenths / 10, tenths % 10)
}

pub(super) fn local(in_force: bool) -> io::Result<()> {
    let text = if in_force {
        "the policy of this host is in force; what gateways send is kept beside it"
    } else {
        "what was rendered is in force"
    };
    writeln!(io::stdout().lock(), "{text}")
}

pub(super) fn local_later(is_there: bool) -> io::Result<()> {
    let text = if is_there {
        "no agent runs here: the policy of this host is in force once one does"
    } else {
        "no agent runs here: what was rendered is in force once one does"
    };
    writeln!(io::stdout().lock(), "{text}")
}

const fn forwarded(forwarded: Forwarded) -> &'static str {
    match forwarded {
        Forwarded::NotAsked => "not asked: the policy enforces nothing",
        Forwarded::Nothing => "nothing: this host passes nothing on",
        Forwarded::Enforced => "enforced",
        Forwarded::NotEnforced => {
            "NOT ENFORCED: packets may pass that no rule sees; name the host's uplinks (--uplinks)"
        }
    }
}

/// The link of a session, as people read it.
fn link(link: &Link, updates: u64) -> String {
    match link {
        Link::Waiting { ms } => format!("none, next dial in {}", seconds(*ms)),
        Link::Polling { gateway, session_epoch } => format!("polls {gateway}, epoch {session_epoch}"),
        Link::Stopped => "none: an operator asked that this host be enrolled anew".to_owned(),
        Link::Dialling { gateway } => format!("dialling {gateway}"),
        Link::Open { gateway, session_epoch } => {
            format!("open with {gateway}, epoch {session_epoch}, {updates} updates")
        }
    }
}

fn last_drift(last: &LastDrift) -> String {
    let process = match (&last.process, last.pid) {
        (Some(process), Some(pid)) => format!("{process} (pid {pid})"),
        (Some(_) | None, _) => "a process that nobody saw".to_owned(),
    };
    let repaired = if last.repaired { "repaired" } else { "NOT repaired" };
    format!("{} ago by {process}, {repaired}; {}", seconds(last.ms_ago), last.differed)
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
    if let Some(local) = &policy.local {
        let kept = local.kept.map_or("nothing".to_owned(), |stamp| format!("version {}", stamp.version));
        line("override", format!("{} of this host is in force; {kept} is kept", local.digest.short()))?;
    }
    line("kernel", if policy.proven { "read back, as planned".to_owned() } else { "not proven".to_owned() })?;
    if policy.on_trial {
        line("trial", "no gateway was reached since it is in force".to_owned())?;
    }
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
    let contended = if policy.contended { ", contended" } else { "" };
    line("drift", format!("{} found{contended}", policy.drifts))?;
    if let Some(unheard) = &policy.unheard {
        line("notices", format!("not heard: {unheard}; the slow tick finds what others change"))?;
    }
    if let Some(last) = &policy.last_drift {
        line("last drift", last_drift(last))?;
    }
    let table = &status.table;
    line("table", format!("{}{}", table.name, if table.owned { ", owned" } else { "" }))?;
    line("forwarded", forwarded(table.forwarded).to_owned())?;
    line("dropped", format!("{} packets, would drop {}", table.dropped_packets, table.would_drop_packets))?;
    if let Some(last) = &policy.last_outcome {
        line("last", format!("{} version {}", last.outcome, last.wanted.version))?;
    }
    if let Some(session) = &status.session {
        line("host", session.host.to_string())?;
        line("authority", format!("{} epoch {}", session.authority, session.authority_epoch))?;
        line("session", link(&session.link, session.updates))?;
        if let Some(last) = &session.last_end {
            line("last end", last.clone())?;
        }
        if let Some(refused) = &session.last_refused {
            let (component, version, reason) = (refused.component, refused.wanted.version, refused.reason);
            line("refused", format!("{component} version {version} of {}: {reason}", refused.gateway))?;
        }
    }
    for counter in table.counters.iter().flatten() {
        let name = format!("{}/{}", counter.chain, counter.rule);
        writeln!(out, "{:>12} {:>14} {:<6} {name}", counter.packets, counter.bytes, counter.effect)?;
    }
    Ok(())
}
