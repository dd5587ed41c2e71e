//! The beginning of a rollout: who is in which stage, settled on the intent that the change is made on.

use std::collections::BTreeMap;

use holdfast_api::rollout::RolloutRequest;
use holdfast_model::ids::{HostId, RolloutId};
use holdfast_model::label::Labels;
use holdfast_model::rollout::stage::{StageError, StageSpec, assign};
use holdfast_runtime::Chain;
use holdfast_store::rollout::RolloutStart;
use uuid::Uuid;

use super::super::auth::{Act, Caller};
use super::super::intent::Snapshot;
use super::super::refuse::Refusal;

/// The longest text of one stage: as much as one event can hold of twenty.
const STAGE_BYTES_MAX: usize = 1_024;
/// How long a stage may take if nothing else is said.
const STAGE_TIMEOUT_S: u32 = 1_800;
/// The longest that a stage may take: a week.
const STAGE_TIMEOUT_S_MAX: u32 = 604_800;

/// How a change is to go through the fleet, before it is known on which intent.
pub(crate) struct InStages {
    rollout: RolloutId,
    specs: Vec<StageSpec>,
    max_failed: u32,
    max_unknown: u32,
    stage_timeout_s: u32,
}

impl InStages {
    /// Reads what is asked for, if anything is: hosts of every namespace are held by it.
    pub(crate) fn read(caller: &Caller, act: Act, request: Option<RolloutRequest>) -> Result<Option<Self>, Refusal> {
        let Some(request) = request else { return Ok(None) };
        caller.may_everywhere(act)?;
        Ok(Some(Self {
            rollout: RolloutId::new(Uuid::now_v7()),
            specs: specs_of(&request)?,
            max_failed: request.max_failed,
            max_unknown: request.max_unknown,
            stage_timeout_s: request.stage_timeout_s.unwrap_or(STAGE_TIMEOUT_S),
        }))
    }

    /// Who is in which stage, of the hosts and labels of the intent that the change is made on; it is made on that one or not at all.
    pub(crate) fn start(&self, base: &Snapshot) -> Result<RolloutStart, Refusal> {
        let hosts: BTreeMap<HostId, Labels> =
            base.intent.hosts.values().map(|host| (host.id, base.labels_of(host))).collect();
        Ok(RolloutStart {
            rollout: self.rollout,
            stages: assign(base.revision, &self.specs, &hosts).map_err(|error| refused(&error))?,
            max_failed: self.max_failed,
            max_unknown: self.max_unknown,
            stage_timeout_s: self.stage_timeout_s,
        })
    }
}

fn specs_of(request: &RolloutRequest) -> Result<Vec<StageSpec>, Refusal> {
    let timeout = request.stage_timeout_s.unwrap_or(STAGE_TIMEOUT_S);
    if !(1..=STAGE_TIMEOUT_S_MAX).contains(&timeout) {
        let text = format!("a stage may take 1 s to {STAGE_TIMEOUT_S_MAX} s");
        return Err(Refusal::invalid("rollout.stage_timeout_s", "stage-timeout", text));
    }
    let read = |text: &String| {
        if text.len() > STAGE_BYTES_MAX {
            let text = format!("a stage has {STAGE_BYTES_MAX} bytes at most");
            return Err(Refusal::invalid("rollout.stages", "stage", text));
        }
        text.parse().map_err(|error| refused(&error))
    };
    request.stages.iter().map(read).collect()
}

fn refused(error: &StageError) -> Refusal {
    Refusal::invalid("rollout.stages", "stage", Chain(error).to_string())
}
