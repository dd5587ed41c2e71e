//! Bringing operations to their end: a change is applied when every host that changed at its revision or later holds its latest, proven by that
//! host's signature.
//!
//! - What is compared is versions and evidence as stored; the end is written once, whichever door sees it first.
//! - A host that cannot say keeps an operation open: silence is neither success nor failure.

use std::convert::Infallible;
use std::time::Duration;

use holdfast_events::{Actor, Detail, Hint, OperationState};
use holdfast_model::ids::GatewayId;
use holdfast_model::numbers::Revision;
use holdfast_model::status::State;
use holdfast_runtime::Chain;
use holdfast_store::operation::Operation;
use time::OffsetDateTime;

use super::door::Shared;
use super::fleet::{JudgedFleet, JudgedHost};
use super::refuse::Refusal;

/// How long a host's failure must last: the one recovery snapshot follows it at once.
const FAILURE_LASTS: time::Duration = time::Duration::seconds(10);
/// How often open operations are looked at when nothing is said.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How soon a failure is looked at again.
const FAILURE_LOOK: Duration = Duration::from_secs(5);
/// How long what is said is gathered: a fleet answers in many batches.
const GATHER: Duration = Duration::from_millis(200);
/// The most operations of one look; the oldest go first.
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

fn settle(operation: Revision, fleet: &JudgedFleet, now: OffsetDateTime) -> Settled {
    if fleet.rendered_revision < operation {
        return Settled::Open;
    }
    let is_target = |host: &&JudgedHost| {
        host.status.components.iter().any(|component| component.latest_revision.is_some_and(|at| at >= operation))
    };
    let targets: Vec<&JudgedHost> = fleet.hosts.iter().filter(is_target).collect();
    if targets.is_empty() {
        return Settled::End(OperationState::Inactive, "no host's desired state changed".to_owned());
    }
    let failed: Vec<&&JudgedHost> = targets.iter().filter(|host| host.state == State::Failed).collect();
    if !failed.is_empty() {
        return if failed.iter().any(|host| has_failed_long(host, now)) {
            Settled::End(OperationState::Failed, failure_text(&failed, targets.len()))
        } else {
            Settled::LookSoon
        };
    }
    let holds = |host: &&&JudgedHost| matches!(host.state, State::Converged | State::Degraded);
    if targets.iter().filter(holds).count() == targets.len() {
        return Settled::End(OperationState::Applied, format!("in force on {}", hosts_word(targets.len())));
    }
    Settled::Open
}

fn has_failed_long(host: &JudgedHost, now: OffsetDateTime) -> bool {
    let pairs = host.status.components.iter().zip(&host.components);
    let mut failed = pairs.filter(|(_, judged)| judged.state == State::Failed);
    failed.any(|(status, _)| status.outcome.as_ref().is_some_and(|said| now - said.at >= FAILURE_LASTS))
}

fn hosts_word(count: usize) -> String {
    format!("{count} {}", if count == 1 { "host" } else { "hosts" })
}

fn failure_text(failed: &[&&JudgedHost], targets: usize) -> String {
    let names: Vec<String> = failed
        .iter()
        .take(NAMED_MAX)
        .map(|host| {
            let said = host.status.components.iter().zip(&host.components);
            let mut reasons = said.filter(|(_, judged)| judged.state == State::Failed);
            let reason = reasons.find_map(|(status, _)| status.outcome.as_ref().map(|said| said.reason.word()));
            format!("{}/{} ({})", host.status.namespace, host.status.name, reason.unwrap_or("no reason"))
        })
        .collect();
    let more = if failed.len() > NAMED_MAX { ", …" } else { "" };
    format!("{} of {} did not take it: {}{more}", failed.len(), hosts_word(targets), names.join(", "))
}

/// Looks whenever something happened, and now and then.
pub(crate) async fn run(door: Shared, gateway: GatewayId) -> Result<(), Infallible> {
    let mut wakes = door.wakes.clone();
    let mut wait = GATHER;
    while !door.shutdown.is_asked() {
        tokio::select! {
            () = door.shutdown.asked() => break,
            () = tokio::time::sleep(wait) => {}
            changed = wakes.changed() => match changed {
                Ok(()) => tokio::time::sleep(GATHER).await,
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            },
        }
        wakes.mark_unchanged();
        wait = match look(&door, gateway).await {
            Ok(wait) => wait,
            // The refusal was logged where it arose; the database being away is no reason to hurry.
            Err(_) => LOOK_EVERY,
        };
    }
    Ok(())
}

async fn look(door: &Shared, gateway: GatewayId) -> Result<Duration, Refusal> {
    let open = door.store.unfinished_operations(OPERATIONS_MAX).await?;
    if open.is_empty() {
        return Ok(LOOK_EVERY);
    }
    let fleet = door.fleet.read(None).await?;
    let now = OffsetDateTime::now_utc();
    let (mut wait, mut ended) = (LOOK_EVERY, false);
    for operation in &open {
        match settle(operation.revision, &fleet, now) {
            Settled::End(state, detail) => ended |= finish(door, gateway, operation, state, &detail).await?,
            Settled::LookSoon => wait = FAILURE_LOOK,
            Settled::Open => {}
        }
    }
    if ended {
        door.ring([Hint::Event]);
    }
    Ok(wait)
}

async fn finish(
    door: &Shared,
    gateway: GatewayId,
    operation: &Operation,
    state: OperationState,
    detail: &str,
) -> Result<bool, Refusal> {
    let actor = Actor::Gateway(gateway);
    let ended = door.store.finish_operation(actor, operation.id, state, Detail::new(detail)).await;
    let ended = ended.inspect_err(|error| tracing::debug!(error = %Chain(error), "an operation was not ended"))?;
    if ended {
        tracing::info!(operation = %operation.id, revision = %operation.revision, %state, "an operation ended");
    }
    Ok(ended)
}

#[cfg(test)]
mod tests;
