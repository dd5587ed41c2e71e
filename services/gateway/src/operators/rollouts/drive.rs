//! Driving the open rollout: every door looks, the gate decides, and a step is written on the row as it was seen, so that one of them takes it.
//!
//! - The row is read before the hosts: what the renderer said of the opened stages is then older than the evidence that is taken for it.
//! - No transaction is open while anybody waits.

use std::convert::Infallible;
use std::time::Duration;

use holdfast_events::{Actor, Detail, HaltReason, Hint};
use holdfast_model::ids::{HostId, RolloutId};
use holdfast_model::numbers::Revision;
use holdfast_model::rollout::RolloutState;
use holdfast_model::rollout::gate::{Gate, Halt, Look, Millis, Rules, Step};
use holdfast_model::status::State;
use holdfast_store::rollout::{Rollout, RolloutStep};
use tokio::time::Instant;

use super::super::door::Shared;
use super::super::fleet::{JudgedFleet, JudgedHost};
use super::super::gauges;
use super::super::refuse::Refusal;
use super::super::wake::{GATHER, news};
use super::place::placed;
use super::{RENDERER_HOLDS_NOBODY, is_proven, why};

/// How often a rollout that progresses is looked at: what lasts is seen to last by looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether one is open, when nothing is said.
const IDLE: Duration = Duration::from_secs(30);
/// How soon it is looked again after a read that failed.
const RETRY: Duration = Duration::from_secs(5);
/// The most hosts that the words of a halt name.
const NAMED_MAX: usize = 5;

/// What one process knows of the rollout that is open.
struct Driver {
    gate: Gate,
    began: Instant,
    /// Who is in which stage of which rollout, by their ids: it never changes.
    members: Option<(RolloutId, Vec<(HostId, u32)>)>,
}

/// Looks whenever something happened, and now and then.
pub(crate) async fn run(door: Shared) -> Result<(), Infallible> {
    let mut wakes = door.wakes.clone();
    let mut driver = Driver { gate: Gate::default(), began: Instant::now(), members: None };
    let mut wait = GATHER;
    while news(&door.shutdown, &mut wakes, wait).await {
        wait = match look(&door, &mut driver).await {
            Ok(wait) => wait,
            // It was logged where it arose. What was seen before is not so any more, for all that is known.
            Err(_) => {
                gauges::forget_rollout();
                RETRY
            }
        };
    }
    Ok(())
}

async fn look(door: &Shared, driver: &mut Driver) -> Result<Duration, Refusal> {
    let open = door.store.open_rollout().await?;
    gauges::record_rollout(open.as_ref());
    let Some(rollout) = open.filter(|open| open.state == RolloutState::Progressing) else { return Ok(IDLE) };
    let members = match &driver.members {
        Some((id, members)) if *id == rollout.id => members,
        Some(_) | None => {
            let members = door.store.rollout_hosts(rollout.id).await?;
            &driver.members.insert((rollout.id, members)).1
        }
    };
    let opened = members.iter().filter(|(_, stage)| *stage <= rollout.stage).map(|(host, _)| *host);
    let late = door.store.hosts_outside_rollout(rollout.id).await?;
    let fleet = door.fleet.read(Some(opened.chain(late).collect())).await?;
    let sides = Sides::of(members, &fleet, rollout.stage);
    let states = |hosts: &[&JudgedHost]| hosts.iter().map(|host| (host.status.host, host.state)).collect::<Vec<_>>();
    let (hosts, late) = (states(&sides.of_stages), states(&sides.late));
    let seen = Look {
        rollout: rollout.id,
        attempt: rollout.version,
        rules: Rules {
            max_failed: rollout.max_failed,
            max_unknown: rollout.max_unknown,
            stage_timeout_ms: Millis::from(rollout.stage_timeout_s) * 1_000,
        },
        is_last: rollout.stage as usize >= rollout.stages.len(),
        stage_age_ms: rollout.stage_age_ms,
        is_rendered: rollout.is_rendered(),
        in_last_stage: sides.in_last_stage,
        is_excused: rollout.is_excused(),
        is_known_to_renderer: rollout.is_known_to_renderer,
        hosts: &hosts,
        late: &late,
    };
    let now = Millis::try_from(driver.began.elapsed().as_millis()).unwrap_or(Millis::MAX);
    let step = match driver.gate.handle_look(&seen, now) {
        Step::Wait => return Ok(LOOK_EVERY),
        Step::Open => RolloutStep::Open,
        Step::Finish => finished(door, &rollout, &sides).await?,
        Step::Halt(halt) => halted(&rollout, &halt, &fleet),
    };
    take(door, &rollout, step).await
}

/// The hosts of a look.
struct Sides<'a> {
    /// Those of the opened stages.
    of_stages: Vec<&'a JudgedHost>,
    /// Those that enrolled after the rollout began.
    late: Vec<&'a JudgedHost>,
    /// How many are of the stage that was opened last.
    in_last_stage: usize,
}

impl<'a> Sides<'a> {
    fn of(members: &'a [(HostId, u32)], fleet: &'a JudgedFleet, opened: u32) -> Self {
        let mut sides = Self { of_stages: Vec::new(), late: Vec::new(), in_last_stage: 0 };
        for (host, stage) in placed(members, &fleet.hosts) {
            match stage {
                None => sides.late.push(host),
                Some(stage) => {
                    sides.in_last_stage += usize::from(stage == opened);
                    sides.of_stages.push(host);
                }
            }
        }
        sides
    }
}

async fn take(door: &Shared, rollout: &Rollout, step: RolloutStep) -> Result<Duration, Refusal> {
    if door.store.step_rollout(Actor::Gateway(door.gateway), rollout, step.clone()).await? {
        match step {
            RolloutStep::Open => {
                tracing::info!(rollout = %rollout.id, stage = rollout.stage + 1, "a stage of a rollout opened");
            }
            RolloutStep::Finish { hosts, detail } => {
                let detail = detail.as_ref().map_or("", Detail::as_str);
                tracing::info!(rollout = %rollout.id, hosts, detail, "a rollout finished");
            }
            RolloutStep::Halt { detail, .. } => {
                tracing::warn!(rollout = %rollout.id, stage = rollout.stage, reason = detail.as_str(), "a rollout halted");
            }
        }
        door.ring([Hint::Intent, Hint::Event]);
    }
    // Whoever took it, the row is another by now.
    Ok(GATHER)
}

/// The end, with what is to be said of it. What overwrote the change is looked up after the hosts were read, so that a proof of that is not told as
/// one of the change.
async fn finished(door: &Shared, rollout: &Rollout, sides: &Sides<'_>) -> Result<RolloutStep, Refusal> {
    let by = door.store.rollout_overwritten_at(rollout).await?;
    let proven = sides.of_stages.iter().filter(|host| is_proven(host)).count();
    let hosts = u32::try_from(proven).unwrap_or(u32::MAX);
    let said = last_words(rollout, by, sides, hosts);
    let detail = (!said.is_empty()).then(|| Detail::new(&said.join("; ")));
    Ok(RolloutStep::Finish { hosts, detail })
}

/// What is not as the word `finished` has it.
fn last_words(rollout: &Rollout, by: Option<Revision>, sides: &Sides<'_>, proven: u32) -> Vec<String> {
    let all: u64 = rollout.stages.iter().map(|stage| u64::from(stage.hosts)).sum();
    let mut said = Vec::new();
    if let Some(by) = by {
        said.push(format!("revision {by} has something else in the place of what it changed, or of a part of it"));
    }
    if u64::from(proven) < all {
        let what = if by.is_some() { "what there is now" } else { "it" };
        said.push(format!("{proven} of {all} hosts have {what}"));
    }
    for (state, word) in [(State::Failed, "failed"), (State::Unknown, "unknown")] {
        // The silence of one that enrolled meanwhile is nobody's matter here.
        let late = sides.late.iter().filter(|_| state == State::Failed);
        let hosts: Vec<&JudgedHost> =
            sides.of_stages.iter().chain(late).filter(|host| host.state == state).copied().collect();
        if !hosts.is_empty() {
            let names: Vec<String> = hosts.iter().take(NAMED_MAX).map(|host| why(host)).collect();
            let more = if hosts.len() > names.len() { ", …" } else { "" };
            said.push(format!("{} {word}, as may be: {}{more}", hosts.len(), names.join(", ")));
        }
    }
    let gone = all.saturating_sub(sides.of_stages.len() as u64);
    if gone > 0 {
        said.push(format!("{gone} taken out of the fleet"));
    }
    said
}

fn halted(rollout: &Rollout, halt: &Halt, fleet: &JudgedFleet) -> RolloutStep {
    let reason = match halt {
        Halt::Failed(_) => HaltReason::Failed,
        Halt::Unknown(_) => HaltReason::Unknown,
        Halt::Late(_) => HaltReason::Late,
        Halt::Nobody => HaltReason::Nobody,
        Halt::Renderer => HaltReason::Renderer,
    };
    let detail = Detail::new(&words(rollout, halt, fleet));
    RolloutStep::Halt { reason, hosts: halt.hosts().to_vec(), detail }
}

fn words(rollout: &Rollout, halt: &Halt, fleet: &JudgedFleet) -> String {
    let hosts = halt.hosts();
    // In the order of ids, as everything that the gate says.
    let named = fleet.hosts.iter().filter(|host| hosts.binary_search(&host.status.host).is_ok());
    let names: Vec<String> = named.take(NAMED_MAX).map(why).collect();
    let more = if hosts.len() > names.len() { ", …" } else { "" };
    let names = format!("{}{more}", names.join(", "));
    let (count, stage) = (hosts.len(), rollout.stage);
    match halt {
        Halt::Failed(_) => format!("in stage {stage}, {count} failed and {} may: {names}", rollout.max_failed),
        Halt::Unknown(_) => {
            format!("in stage {stage}, {count} are unknown and {} may be: {names}", rollout.max_unknown)
        }
        Halt::Late(_) if hosts.is_empty() => {
            format!("stage {stage} took its {} s: not every host of it was rendered", rollout.stage_timeout_s)
        }
        Halt::Late(_) => format!("stage {stage} took its {} s and waits for {count}: {names}", rollout.stage_timeout_s),
        Halt::Nobody => {
            format!(
                "no host of stage {stage} is left: nobody can prove the change; resumed, it goes on without that proof"
            )
        }
        Halt::Renderer => RENDERER_HOLDS_NOBODY.to_owned(),
    }
}
