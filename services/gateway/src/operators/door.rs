//! What every handler shares.

use std::sync::Arc;

use holdfast_bus::Link;
use holdfast_events::{Directive, Hint};
use holdfast_model::brake::BrakeLimits;
use holdfast_model::ids::GatewayId;
use holdfast_model::intent::Intent;
use holdfast_model::numbers::Revision;
use holdfast_runtime::Shutdown;
use holdfast_store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::audit::AuditDoor;
use super::brake::Brake;
use super::effective::HeldIntent;
use super::fleet::Fleet;
use super::intent::IntentView;
use super::plane::PlaneLook;
use super::refuse::Refusal;

/// How many large bodies are in memory at once: 4 of 64 MiB, and their trees.
const LARGE_BODIES_MAX: usize = 4;
/// How many heavy computations run at once: a plan holds two indexes of the fleet.
const COMPUTATIONS_MAX: usize = 2;
/// How much intent of earlier revisions is in memory at once: each is as large as what is in force.
const PASTS_MAX: usize = 2;

/// The door, as handlers have it.
pub(crate) type Shared = Arc<Door>;

/// What every handler shares.
pub(crate) struct Door {
    /// This start of this process.
    pub(crate) gateway: GatewayId,
    pub(crate) store: Store,
    pub(crate) intent: IntentView,
    pub(crate) held: HeldIntent,
    pub(crate) fleet: Fleet,
    /// Where hints go out; what does not fit is there already, for hints of one kind mean the same.
    pub(crate) bell: mpsc::Sender<Hint>,
    /// Where directives go out.
    pub(crate) directives: mpsc::Sender<Directive>,
    /// Moves when the bus says that something happened.
    pub(crate) wakes: watch::Receiver<u64>,
    /// Whether the bus is there.
    pub(crate) bus: watch::Receiver<Link>,
    pub(crate) audit: Option<AuditDoor>,
    pub(crate) brake: Brake,
    /// The last look at the plane.
    pub(crate) plane: PlaneLook,
    pub(crate) shutdown: Shutdown,
    pub(crate) large_bodies: Arc<Semaphore>,
    computations: Arc<Semaphore>,
    pasts: Arc<Semaphore>,
}

/// Intent at an earlier revision, and the room that it takes.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) revision: Revision,
    pub(crate) intent: Intent,
    pub(crate) room: OwnedSemaphorePermit,
}

impl Door {
    #[expect(clippy::too_many_arguments, reason = "each is a part that the process has made")]
    pub(crate) fn new(
        gateway: GatewayId,
        store: Store,
        bell: mpsc::Sender<Hint>,
        directives: mpsc::Sender<Directive>,
        wakes: watch::Receiver<u64>,
        bus: watch::Receiver<Link>,
        audit: Option<AuditDoor>,
        limits: BrakeLimits,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            gateway,
            intent: IntentView::new(store.clone()),
            held: HeldIntent::new(store.clone()),
            fleet: Fleet::new(store.clone()),
            store,
            bell,
            directives,
            wakes,
            bus,
            audit,
            brake: Brake::new(limits),
            plane: PlaneLook::default(),
            shutdown,
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MAX)),
            computations: Arc::new(Semaphore::new(COMPUTATIONS_MAX)),
            pasts: Arc::new(Semaphore::new(PASTS_MAX)),
        }
    }

    /// Says that intent changed and that events wait for their numbers. Losing this costs time, never correctness.
    pub(crate) fn ring(&self, hints: impl IntoIterator<Item = Hint>) {
        for hint in hints {
            if let Err(error) = self.bell.try_send(hint) {
                tracing::debug!(%error, "a hint was not queued");
            }
        }
    }

    /// Runs what takes long beside the threads that serve.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = place_in(&self.computations).await?;
        beside(place, work).await
    }

    /// Intent at an earlier revision; who has it takes a place among few, from before it is loaded. Whoever has one may wait for the turn of changes, and
    /// for a place for computations, but for no other past.
    pub(crate) async fn past(&self, revision: Revision) -> Result<Past, Refusal> {
        let room = place_in(&self.pasts).await?;
        let (revision, intent) = self.store.load_intent(Some(revision)).await?;
        Ok(Past { revision, intent, room })
    }
}

async fn place_in(room: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    Arc::clone(room).acquire_owned().await.map_err(|error| Refusal::defect(&error))
}

/// Runs what takes long beside the threads that serve. What is held while it runs is let go when it is done, not when whoever asked hangs up.
pub(crate) async fn beside<T: Send + 'static>(
    held: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let work = move || {
        let done = work();
        drop(held);
        done
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| Refusal::defect(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_place_is_taken_until_the_work_is_done_also_where_nobody_waits_for_it_any_more() {
        let room = Arc::new(Semaphore::new(1));
        let ((gate, opened), (began, begun)) = (sync_channel::<()>(0), sync_channel::<()>(1));
        let work = move || {
            began.send(()).expect("somebody looks");
            opened.recv().expect("the gate opens");
        };
        let place = place_in(&room).await.expect("there is room");
        let mut asked = Box::pin(beside(place, work));
        // It is asked for once, so that it begins; then whoever asked is gone.
        assert!(futures_util::poll!(asked.as_mut()).is_pending());
        tokio::task::spawn_blocking(move || begun.recv()).await.expect("it runs").expect("it begins");
        drop(asked);
        assert_eq!(room.available_permits(), 0, "the work goes on");
        gate.send(()).expect("the work waits for it");
        let next = tokio::time::timeout(Duration::from_secs(30), place_in(&room)).await;
        drop(next.expect("the work is done").expect("there is room"));
    }
}
