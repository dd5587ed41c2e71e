//! All agents at once, of either kind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_runtime::{Shutdown, Tasks};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::agent;
use crate::fleet::Fleet;
use crate::serve::{Kind, ROW_BYTES};

const DEADLINE: Duration = Duration::from_secs(120);
/// So many agents share an address: as many as may shake hands at once from one.
const PER_SOURCE: u32 = 64;

/// So many agents, whose single changes are measured, share threads with the renderer's half. All others have threads of their own, as hosts have
/// machines of their own: what a change of all makes them do does not stand before a single one on this side.
const APART: usize = 8;
/// How nice the threads of all others are where they give way.
const OTHERS_NICE: i32 = 19;

/// An agent's answer, written at a moment; the stamp is absent for the floor's.
type Answer = (Instant, Option<(Component, Stamp)>);

/// How the threads of all agents but those apart share the processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// As every other thread: what all do is part of what is measured.
    Alike,
    /// They give way: on machines of their own they would take no processor from the gateway, nor from those apart.
    GiveWay,
}

/// Agents that have dialled.
pub(crate) struct Crowd {
    dialled: Instant,
    agents: usize,
    /// How many answers make an agent whole.
    components: usize,
    answers: mpsc::Receiver<Answer>,
    tasks: Tasks,
    others: Runtime,
    /// Whether the last agent is held still: it reads nothing, and its connection stays open.
    still: watch::Sender<bool>,
}

impl Crowd {
    /// Lets all agents dial.
    pub(crate) fn dial(fleet: &Fleet, kind: Kind, to: SocketAddr, threads: Threads) -> Self {
        let tasks = Tasks::new(Shutdown::new());
        let components = match kind {
            Kind::Product => Component::ALL.len(),
            Kind::Floor => 1,
        };
        let (told, answers) = mpsc::channel(fleet.hosts.len() * (components + 1));
        let begin = move || match threads {
            Threads::Alike => {}
            Threads::GiveWay => rustix::process::setpriority_process(None, OTHERS_NICE).expect("a thread may give way"),
        };
        let others = Builder::new_multi_thread().enable_all().on_thread_start(begin).build().expect("a runtime");
        let (still, is_still) = watch::channel(false);
        let last = u32::try_from(fleet.hosts.len() - 1).expect("a fleet");
        let dialled = Instant::now();
        for (nth, (host, config)) in (0_u32..).zip(&fleet.hosts) {
            let _elsewhere = (usize::try_from(nth).expect("a fleet") >= APART).then(|| others.enter());
            let told = told.clone();
            let stopped = tasks.shutdown().token();
            match kind {
                Kind::Product => {
                    let (host, config) = (*host, Arc::clone(config));
                    let (authority, keys) = (fleet.authority, fleet.keys.clone());
                    let is_still = (nth == last).then(|| is_still.clone());
                    tasks.spawn("agent", async move {
                        let session = async {
                            let stream = connect(nth, to, config).await;
                            let answered = |component, stamp| {
                                told.try_send((Instant::now(), Some((component, stamp))))
                                    .expect("room for every answer");
                            };
                            agent::run(stream, host, authority, keys, answered).await;
                        };
                        stopped.run_until_cancelled(Box::pin(held(session, is_still))).await;
                        Ok::<_, std::convert::Infallible>(())
                    });
                }
                Kind::Floor => {
                    let config = Arc::clone(&fleet.bare);
                    tasks.spawn("bare agent", async move {
                        stopped.run_until_cancelled(bare(nth, to, config, told)).await;
                        Ok::<_, std::convert::Infallible>(())
                    });
                }
            }
        }
        Self { dialled, agents: fleet.hosts.len(), components, answers, tasks, others, still }
    }

    /// Holds the last agent still, or lets it go on.
    pub(crate) fn hold_last(&self, still: bool) {
        self.still.send_replace(still);
    }

    /// Until the last agent has answered what its policy was changed to.
    pub(crate) async fn last_answers(&mut self, fleet: &Fleet) {
        let newest = fleet.newest();
        let counts = |about: Option<(Component, Stamp)>| about.is_some_and(|(_, stamp)| stamp.digest == newest);
        self.last_of(1, counts).await;
    }

    /// From the dialling until the last answer that makes the last agent whole.
    pub(crate) async fn all_answered(&mut self) -> Duration {
        let last = self.last_of(self.agents * self.components, |_| true).await;
        last - self.dialled
    }

    /// From a moment until the last agent has answered; of the product's agents only answers about the newest policy count.
    pub(crate) async fn all_answered_since(&mut self, begun: Instant, newest: Digest) -> Duration {
        let counts = |about: Option<(Component, Stamp)>| about.is_none_or(|(_, stamp)| stamp.digest == newest);
        self.last_of(self.agents, counts).await.saturating_duration_since(begun)
    }

    /// Changes of single hosts, one after the other: from the commit of each to its answer.
    pub(crate) async fn singles(&mut self, fleet: &mut Fleet, count: usize) -> Vec<Duration> {
        let mut times = Vec::new();
        for nth in 0..count {
            let begun = fleet.change_one(nth % APART).await;
            let newest = fleet.newest();
            let counts = |about: Option<(Component, Stamp)>| about.is_some_and(|(_, stamp)| stamp.digest == newest);
            times.push(self.last_of(1, counts).await.saturating_duration_since(begun));
        }
        times
    }

    /// The same for as long as a change of all is under way.
    pub(crate) async fn singles_beside(&mut self, fleet: &mut Fleet) -> Vec<Duration> {
        let begun = fleet.change_all().await;
        let (wide, mut times, mut answered) = (fleet.newest(), Vec::new(), 0);
        // Those apart may have no answer about the wider one: their own change may be in it.
        while answered + APART < self.agents {
            let begun = fleet.change_one(times.len() % APART).await;
            let newest = fleet.newest();
            let one = async {
                loop {
                    let (at, about) = self.answers.recv().await.expect("agents stay");
                    match about.map(|(_, stamp)| stamp.digest) {
                        Some(digest) if digest == newest => break at,
                        Some(digest) if digest == wide => answered += 1,
                        Some(_) | None => {}
                    }
                }
            };
            let at = tokio::time::timeout(DEADLINE, one).await.expect("the agent answers in time");
            times.push(at.saturating_duration_since(begun));
        }
        tracing::debug!(took = ?begun.elapsed(), singles = times.len(), "a change of all");
        times
    }

    async fn last_of(&mut self, wanted: usize, counts: impl Fn(Option<(Component, Stamp)>) -> bool) -> Instant {
        let mut last = self.dialled;
        let all = async {
            let mut count = 0;
            while count < wanted {
                let (at, about) = self.answers.recv().await.expect("agents stay");
                if counts(about) {
                    count += 1;
                    last = last.max(at);
                }
            }
        };
        tokio::time::timeout(DEADLINE, all).await.expect("every agent answers in time");
        last
    }

    /// Ends all agents.
    pub(crate) async fn leave(self) {
        self.tasks.shutdown().ask();
        if let Err(error) = self.tasks.finish(Duration::from_secs(10)).await {
            tracing::warn!(%error, "agents did not end in order");
        }
        self.others.shutdown_background();
    }
}

/// Runs something, but for while it is held still.
async fn held(work: impl Future<Output = ()>, is_still: Option<watch::Receiver<bool>>) {
    let Some(mut is_still) = is_still else { return work.await };
    let mut work = std::pin::pin!(work);
    // Its sender is the crowd's, which is gone with it.
    while is_still.wait_for(|still| !still).await.is_ok() {
        tokio::select! {
            () = &mut work => return,
            _ = is_still.wait_for(|still| *still) => {}
        }
    }
}

async fn connect(nth: u32, to: SocketAddr, config: Arc<ClientConfig>) -> TlsStream<TcpStream> {
    let source = std::net::Ipv4Addr::from_bits(0x7f01_0001 + nth / PER_SOURCE);
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((source, 0).into()).expect("loopback is large");
    let stream = socket.connect(to).await.expect("connects");
    stream.set_nodelay(true).expect("sets");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(config).connect(name, stream).await.expect("agrees")
}

async fn bare(nth: u32, to: SocketAddr, config: Arc<ClientConfig>, told: mpsc::Sender<Answer>) {
    let mut stream = connect(nth, to, config).await;
    let mut row = vec![0; ROW_BYTES];
    while stream.read_exact(&mut row).await.is_ok() {
        if stream.write_all(&[1]).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        told.try_send((Instant::now(), None)).expect("room for every answer");
    }
}
