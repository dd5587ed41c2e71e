//! Whom a rollout holds back: they are rendered at the revision that they are held at before anything else is, and then left as they are.

use holdfast_model::numbers::Revision;
use holdfast_render::fleet::{Fleet, Holds};
use holdfast_store::intent::OpenRollout;

use super::follow::Following;
use super::render::{announce, signed};
use super::{Means, TermEnd, passes};

/// Takes whom the open rollout holds back, as it was read beside the revision that the fleet is at.
pub(super) async fn follow(
    means: &Means,
    following: &Following,
    mut fleet: Fleet,
    rollout: Option<OpenRollout>,
    hints: &mut u64,
) -> Result<Fleet, TermEnd> {
    if !fleet.follows(rollout.map(|open| (open.rollout, open.stage))) {
        let holds = match rollout {
            None => None,
            Some(open) => Some(holds_of(means, open).await?),
        };
        let (held, pin) = holds.as_ref().map_or((0, None), |holds| (holds.hosts.len(), Some(holds.pin)));
        tracing::info!(held, pin = ?pin.map(Revision::raw), "whom a rollout holds back is another");
        fleet.handle_holds(holds);
    }
    while let Some(pin) = fleet.poll_pin() {
        fleet = render_at(means, following, fleet, pin, hints).await?;
    }
    Ok(fleet)
}

async fn holds_of(means: &Means, open: OpenRollout) -> Result<Holds, TermEnd> {
    let OpenRollout { rollout, stage, held_revision: pin } = open;
    loop {
        match means.store.hosts_after_stage(rollout, stage).await {
            Ok(hosts) => return Ok(Holds { rollout, stage, pin, hosts }),
            Err(error) => passes("reading whom a rollout holds back", error).await?,
        }
    }
}

/// Renders those that are held back from intent as it was, and commits it.
async fn render_at(
    means: &Means,
    following: &Following,
    fleet: Fleet,
    pin: Revision,
    hints: &mut u64,
) -> Result<Fleet, TermEnd> {
    let intent = match means.store.load_intent(Some(pin)).await {
        Ok((_, intent)) => intent,
        // A read error is never an empty intent.
        Err(error) => {
            passes("reading intent as it was", error).await?;
            return Ok(fleet);
        }
    };
    let (mut fleet, planned) = tokio::task::spawn_blocking(move || {
        let planned = fleet.plan_pinned(&intent);
        (fleet, planned)
    })
    .await?;
    match means.store.commit_render(signed(means, following, &planned)).await {
        Ok(_) => {
            fleet.handle_committed(&planned);
            announce(means, following.term, &planned, hints).await;
        }
        Err(error) => passes("committing a render of held hosts", error).await?,
    }
    Ok(fleet)
}
