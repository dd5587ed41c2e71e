//! Putting the parts of the door together.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use holdfast_bus::Wake;
use holdfast_events::{Directive, Hint};
use holdfast_identity::tls::ServerTls;
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_runtime::{Chain, Shutdown, Tasks};
use holdfast_session::gateway::{Config, Want};
use holdfast_store::session::Opening;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::absence::Absence;
use super::admission::AdmissionRoom;
use super::answers::Answers;
use super::batch::Asker;
use super::clock::Clock;
use super::connections::Connections;
use super::context::Context;
use super::door::Door;
use super::enrol::{self, Enrolment};
use super::hooks::Hooks;
use super::lease::{self, Lease};
use super::limits::{LEASE_WAIT, NARROW_READS_AT_ONCE_MAX, OPENINGS_AT_ONCE_MAX, WIDE_READS_AT_ONCE_MAX};
use super::openings::Openings;
use super::pace::Pace;
use super::reader::{Read, Reader};
use super::recorder::{Recorder, ring};
use super::registry::Registry;
use super::store::{Admitted, AgentsStore, OfAValue as _};
use super::sync;
use super::{compare, gauges};

/// What a door is made of.
#[derive(Debug)]
pub struct DoorConfig {
    /// For which authority it speaks.
    pub authority: AuthorityId,
    /// The CA's certificate of the key that signs desired states, PEM, told to hosts that enrol.
    pub renderer_certificate: String,
    /// What every session is given.
    pub session: Config,
    /// Certificate and trust.
    pub tls: Arc<ServerTls>,
    /// How fast it goes.
    pub pace: Pace,
    /// Chooses the jitter.
    pub seed: u64,
    /// What tests make it do wrong.
    pub hooks: Hooks,
}

/// A door that is open.
#[derive(Clone, Debug)]
pub struct AgentsDoor {
    registry: Registry,
}

impl AgentsDoor {
    /// How many sessions are held.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.registry.len()
    }

    /// How many hosts poll.
    #[must_use]
    pub fn polls(&self) -> usize {
        self.registry.polls().len()
    }

    /// How many builds are under way and how many slots wait.
    #[cfg(test)]
    pub(super) fn builds(&self) -> (usize, usize) {
        self.registry.builds()
    }

    /// The memory that sessions hold for agents to read.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.registry.held_bytes().all()
    }

    /// Where facts wait.
    #[cfg(test)]
    pub(super) fn recorder(&self) -> &Recorder {
        self.registry.polls().recorder()
    }

    /// For how long the facts that are being written wait for that; nothing if none are.
    #[must_use]
    pub fn facts_wait(&self) -> Option<std::time::Duration> {
        self.registry.polls().recorder().waits()
    }

    /// Asks something of a host's session; false if it has none here.
    #[must_use]
    pub fn direct(&self, directive: Directive) -> bool {
        let is_held = self.registry.direct(directive);
        if is_held {
            tracing::info!(host = %directive.host, directive = %directive.kind, "a directive is obeyed");
        }
        is_held
    }
}

/// Opens the door: hints come in by `wakes`, hints go out by `bell`.
pub fn start<S: AgentsStore>(
    config: DoorConfig,
    store: S,
    listener: TcpListener,
    wakes: mpsc::Receiver<Wake>,
    bell: mpsc::Sender<Hint>,
    tasks: &Tasks,
) -> AgentsDoor {
    gauges::begin();
    let (clock, recorder) = (Clock::start(), Recorder::default());
    let registry = Registry::new(clock, config.seed, recorder.clone());
    let answers = Answers::default();
    let reader = Arc::new(Reader::new(store.clone(), config.hooks));
    let narrow = serve_reads("agents narrow reader", NARROW_READS_AT_ONCE_MAX, Arc::clone(&reader), tasks);
    let wide = serve_reads("agents wide reader", WIDE_READS_AT_ONCE_MAX, reader, tasks);
    let (holding, lease) = lease::new(config.pace.lease, clock);
    let opens = serve_opens(store.clone(), lease.clone(), bell.clone(), tasks);
    // The lease outlives the drain: the last goodbyes are written under it.
    let recorded = Shutdown::new();
    let leasing = lease::run(store.clone(), holding, recorded.clone());
    tasks.critical("agents lease", async move {
        leasing.await;
        Ok::<_, Infallible>(())
    });
    let recording =
        recorder.clone().run(store.clone(), registry.clone(), bell.clone(), lease, tasks.shutdown().clone());
    tasks.critical("agents recorder", async move {
        recording.await;
        recorded.ask();
        Ok::<_, Infallible>(())
    });
    let comparing = compare::run(
        store.clone(),
        registry.clone(),
        answers.clone(),
        wakes,
        config.pace.compare_interval,
        config.seed,
    );
    background(tasks, "agents compare", comparing);
    background(tasks, "agents scheduler", registry.clone().run_clock());
    background(tasks, "agents polls", registry.polls().clone().run_sweep());
    background(tasks, "agents answers", answers.clone().run(store.clone()));
    let gateways = config.session.gateways.clone();
    let enrolment = Enrolment::new(store, answers, bell, config.renderer_certificate, gateways);
    let context = Arc::new(Context {
        session: config.session,
        registry: registry.clone(),
        recorder,
        opens,
        admission: AdmissionRoom::new(config.pace.openings_waiting_max, config.seed),
        openings: Openings::default(),
        drain_spread: config.pace.drain_spread,
        narrow,
        wide,
        shutdown: tasks.shutdown().clone(),
        clock,
        seeds: AtomicU64::new(config.seed),
    });
    let http = enrol::router(Arc::new(enrolment)).merge(sync::router(Arc::clone(&context)));
    let door = Arc::new(Door {
        context,
        authority: config.authority,
        tls: config.tls,
        http,
        connections: Connections::default(),
        tasks: tasks.clone(),
    });
    tasks.critical("agents door", async move {
        door.run(listener).await;
        Ok::<_, Infallible>(())
    });
    AgentsDoor { registry }
}

fn serve_opens<S: AgentsStore>(
    store: S,
    lease: Lease,
    bell: mpsc::Sender<Hint>,
    tasks: &Tasks,
) -> Asker<Opening, Option<Admitted>> {
    let absence = Arc::new(Absence::default());
    let (asker, serving) = Asker::new(OPENINGS_AT_ONCE_MAX, move |openings: Vec<Opening>| {
        let (store, mut lease, bell, absence) = (store.clone(), lease.clone(), bell.clone(), Arc::clone(&absence));
        async move {
            let count = openings.len();
            // A session of a gateway without a lease is none that counts: it would take the host from one that has.
            if !matches!(tokio::time::timeout(LEASE_WAIT, lease.held()).await, Ok(true)) {
                // Why there is none is told where it is claimed.
                tracing::info!(count, "sessions are not opened without the lease; agents come back");
                return vec![None; count];
            }
            let opened = open_all(&store, openings, &absence).await;
            let is_between_lives =
                |opened: &Option<Admitted>| matches!(opened, Some(Admitted::Session { is_between_lives: true, .. }));
            if opened.iter().any(is_between_lives) {
                ring(&bell, Hint::Request);
            }
            opened
        }
    });
    background(tasks, "agents openings", serving);
    asker
}

/// Opens sessions by one statement. If that is refused for a value of one of them, all the others are opened in smaller ones: nobody keeps those out
/// who come with him.
pub(super) async fn open_all<S: AgentsStore>(
    store: &S,
    openings: Vec<Opening>,
    absence: &Absence,
) -> Vec<Option<Admitted>> {
    let (mut answers, mut parts) = (Vec::with_capacity(openings.len()), vec![openings]);
    while let Some(mut part) = parts.pop() {
        let error = match store.open_sessions(part.clone()).await {
            Ok(opened) => {
                if let Some(failures) = absence.ended() {
                    tracing::info!(failures, "sessions are opened again");
                }
                answers.extend(opened.into_iter().map(Some));
                continue;
            }
            Err(error) => error,
        };
        match part.as_slice() {
            [opening] if error.is_of_a_value() => {
                tracing::error!(host = %opening.host, error = %Chain(&error), "a session can never be opened with what its host says");
                answers.push(None);
            }
            [_, _, ..] if error.is_of_a_value() => {
                let later = part.split_off(part.len() / 2);
                parts.extend([later, part]);
            }
            [..] => {
                let (error, count) = (Chain(&error), part.len());
                if absence.is_news(&error) {
                    tracing::warn!(%error, count, "sessions cannot be opened; agents come back");
                } else {
                    tracing::debug!(%error, count, "sessions cannot be opened yet");
                }
                answers.extend(vec![None; part.len()]);
            }
        }
    }
    answers
}

fn serve_reads<S: AgentsStore>(
    name: &'static str,
    at_once_max: usize,
    reader: Arc<Reader<S>>,
    tasks: &Tasks,
) -> Asker<(HostId, Want), Read> {
    let (asker, serving) = Asker::new(at_once_max, move |questions| Arc::clone(&reader).answer(questions));
    background(tasks, name, serving);
    asker
}

/// A task that serves the others and ends with them.
fn background(tasks: &Tasks, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    tasks.background(name, async move {
        work.await;
        Ok::<_, Infallible>(())
    });
}
