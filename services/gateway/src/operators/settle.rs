//! Bringing operations to their end: a change is applied when every host that it is for was proven to have its version, or a later one that
//! includes it.
//!
//! - What is compared is versions and evidence as stored; what was seen of a host for good is stored, and the end is written once, whichever door
//!   sees it first.
//! - A host that cannot say keeps an operation open: silence is neither success nor failure.
//! - No transaction is open while anybody waits: each look is a few short ones.

use std::convert::Infallible;
use std::time::Duration;

use holdfast_events::{Actor, Detail, Hint, OperationState};
use holdfast_model::numbers::Revision;
use holdfast_model::operation::{HostOutcome, OutcomeCounts};
use holdfast_model::status::State;
use holdfast_runtime::Chain;
use holdfast_store::operation::{Operation, Seen};

use super::door::Shared;
use super::fleet::{JudgedFleet, JudgedHost, failure_of};
use super::gauges;
use super::refuse::Refusal;
use super::targets::{self, HostLook};
use super::wake::{GATHER, news};

/// How often open operations are looked at when nothing is said.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How soon a failure is looked at again.
const FAILURE_LOOK: Duration = Duration::from_secs(5);
/// The most operations that are in memory at once.
const OPERATIONS_MAX: u32 = 200;
/// The most hosts that the detail of an end names.
const NAMED_MAX: usize = 5;

/// What is to become of an operation now.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Settled {
    /// It ends.
    End(OperationState, String),
    /// A host failed, but perhaps not for long.
    LookSoon,
    /// It stays open.
    Open,
}

fn settle(is_rendered: bool, hosts: &[HostLook<'_>], overwritten_at: Option<Revision>) -> Settled {
    if !is_rendered {
        return Settled::Open;
    }
    let counts: OutcomeCounts = hosts.iter().map(|host| host.outcome).collect();
    let Some(end) = counts.end() else {
        return if hosts.iter().any(HostLook::is_failing) { Settled::LookSoon } else { Settled::Open };
    };
    let state = match end {
        HostOutcome::Applied => OperationState::Applied,
        HostOutcome::Inactive => OperationState::Inactive,
        HostOutcome::Cancelled => OperationState::Cancelled,
        HostOutcome::Superseded => OperationState::Superseded,
        HostOutcome::Failed => OperationState::Failed,
        // The counts end nothing with it.
        HostOutcome::Pending => return Settled::Open,
    };
    Settled::End(state, end_text(end, &counts, hosts, overwritten_at))
}

fn end_text(
    end: HostOutcome,
    counts: &OutcomeCounts,
    hosts: &[HostLook<'_>],
    overwritten_at: Option<Revision>,
) -> String {
    let all = hosts_word(counts.total);
    match end {
        HostOutcome::Inactive if counts.total == 0 => "no host's desired state changed".to_owned(),
        HostOutcome::Applied if counts.applied == counts.total => format!("in force on {all}"),
        HostOutcome::Applied => format!("in force on {} of {all}; the others are stopped or no more", counts.applied),
        HostOutcome::Superseded => {
            let by = overwritten_at
                .map_or_else(String::new, |at| format!("revision {at} has something else in its place: "));
            format!("{by}superseded on {} of {all}, in force on {}", counts.superseded, counts.applied)
        }
        HostOutcome::Failed => failure_text(hosts, counts),
        HostOutcome::Inactive => format!("stopped on {} of {all}", counts.inactive),
        HostOutcome::Cancelled => format!("its {all} are no more"),
        HostOutcome::Pending => String::new(),
    }
}

fn hosts_word(count: u64) -> String {
    format!("{count} {}", if count == 1 { "host" } else { "hosts" })
}

fn failure_text(hosts: &[HostLook<'_>], counts: &OutcomeCounts) -> String {
    let failed = hosts.iter().filter(|host| host.outcome == HostOutcome::Failed);
    let names: Vec<String> = failed.filter_map(|host| host.judged).take(NAMED_MAX).map(failed_host).collect();
    let more = if counts.failed > NAMED_MAX as u64 { ", …" } else { "" };
    format!("{} of {} did not take it: {}{more}", counts.failed, hosts_word(counts.total), names.join(", "))
}

/// A host with the reason that it gave.
fn failed_host(host: &JudgedHost) -> String {
    let mut failed = host.judged().filter(|(_, judged)| judged.state == State::Failed);
    let reason = failed.find_map(|(status, judged)| failure_of(&host.status, status, judged));
    format!("{}/{} ({})", host.status.namespace, host.status.name, reason.as_deref().unwrap_or("no reason"))
}

/// Looks whenever something happened, and now and then.
pub(crate) async fn run(door: Shared) -> Result<(), Infallible> {
    let mut wakes = door.wakes.clone();
    let mut wait = GATHER;
    while news(&door.shutdown, &mut wakes, wait).await {
        wait = match look(&door).await {
            Ok(wait) => wait,
            // The refusal was logged where it arose; the database being away is no reason to hurry.
            Err(_) => {
                gauges::record_open(None);
                LOOK_EVERY
            }
        };
    }
    Ok(())
}

/// Looks at every open operation, the oldest first, some at a time.
async fn look(door: &Shared) -> Result<Duration, Refusal> {
    let (mut wait, mut ended, mut after, mut fleet) = (LOOK_EVERY, false, Revision::ZERO, None);
    let mut still_open = 0;
    loop {
        let open = door.store.unfinished_operations(after, OPERATIONS_MAX).await?;
        let Some(last) = open.last() else { break };
        after = last.revision;
        let fleet = match &fleet {
            Some(fleet) => fleet,
            None => fleet.insert(door.fleet.read(None).await?),
        };
        let revisions = open.iter().filter(|one| one.is_rendered).map(|one| one.revision).collect();
        let overwritten = door.store.overwritten_at(revisions).await?;
        for operation in &open {
            let by = overwritten.get(&operation.revision).copied();
            let looked = match look_at(door, operation, by, fleet).await {
                // What cannot be read of one keeps no other open; it was logged where it arose.
                Err(refusal) if refusal.is_defect() => Looked::Open,
                looked => looked?,
            };
            match looked {
                Looked::Ended => ended = true,
                Looked::Soon => {
                    still_open += 1;
                    wait = FAILURE_LOOK;
                }
                Looked::Open => still_open += 1,
            }
        }
    }
    gauges::record_open(Some(still_open));
    if ended {
        door.ring([Hint::Event]);
    }
    Ok(wait)
}

/// What a look at one operation came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Looked {
    /// It ended by it.
    Ended,
    /// It is to be looked at soon.
    Soon,
    /// It stays open.
    Open,
}

/// Looks at one operation: what was seen for good is stored, and its end if it has come.
pub(crate) async fn look_at(
    door: &Shared,
    operation: &Operation,
    overwritten_at: Option<Revision>,
    fleet: &JudgedFleet,
) -> Result<Looked, Refusal> {
    let hosts = targets::look(door, operation, overwritten_at, fleet).await?;
    let settled = settle(operation.is_rendered, &hosts, overwritten_at);
    let is_end = matches!(settled, Settled::End(..));
    let seen: Vec<Seen> = hosts.iter().flat_map(|host| host.unstored(is_end)).collect();
    Ok(match settled {
        Settled::End(state, detail) => {
            if finish(door, operation, state, &detail, seen).await? {
                Looked::Ended
            } else {
                Looked::Open
            }
        }
        Settled::LookSoon | Settled::Open => {
            if !seen.is_empty() {
                door.store.record_seen(operation.id, seen).await?;
            }
            if settled == Settled::LookSoon { Looked::Soon } else { Looked::Open }
        }
    })
}

async fn finish(
    door: &Shared,
    operation: &Operation,
    state: OperationState,
    detail: &str,
    seen: Vec<Seen>,
) -> Result<bool, Refusal> {
    let actor = Actor::Gateway(door.gateway);
    let ended = door.store.settle_operation(actor, operation.id, state, Detail::new(detail), seen).await;
    let ended = ended.inspect_err(|error| tracing::debug!(error = %Chain(error), "an operation was not ended"))?;
    if ended {
        gauges::record_end(state, operation.created_at);
        tracing::info!(operation = %operation.id, revision = %operation.revision, %state, "an operation ended");
    }
    Ok(ended)
}

#[cfg(test)]
mod tests;
