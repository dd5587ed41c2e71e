//! What every handler shares.

use std::sync::Arc;

use holdfast_bus::Link;
use holdfast_events::{Directive, Hint};
use holdfast_model::brake::BrakeLimits;
use holdfast_model::ids::GatewayId;
use holdfast_runtime::Shutdown;
use holdfast_store::Store;
use tokio::sync::{Semaphore, mpsc, watch};

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
    computations: Semaphore,
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
            computations: Semaphore::new(COMPUTATIONS_MAX),
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
        let _permit = self.computations.acquire().await.map_err(|error| Refusal::defect(&error))?;
        tokio::task::spawn_blocking(work).await.map_err(|error| Refusal::defect(&error))
    }
}
