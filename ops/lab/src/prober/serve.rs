//! The helper process inside a namespace: reads requests from stdin, a line each, and answers each with a line on stdout.
//!
//! - It ends when its input ends, so it never outlives its parent.
//! - A socket that fails ends it with an error; it never goes on half deaf.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::pending::{Key, Pending, Verdict, Waiting};
use super::ports::Ports;
use super::raw::{self, RawSockets};
use super::{Answer, Listen, Outcome, Patience, Probe, Reply, Request};
use crate::flow::Flow;

/// How long a refusal waits to learn from the ICMP error who sent it: it came in the same packet.
const REFUSER_TIMEOUT: Duration = Duration::from_millis(50);
/// What a UDP probe says before its mark.
const UDP_PAYLOAD: &[u8] = b"holdfast";

/// Why a helper ends before its input does.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its runtime does not start.
    #[error("cannot start the prober")]
    Start(#[source] io::Error),
    /// The limit of open files cannot be raised to what root allows.
    #[error("cannot raise the limit of open files")]
    OpenFiles(#[source] nix::Error),
    /// A socket failed.
    #[error("a socket of the prober failed")]
    Socket(#[source] io::Error),
    /// Its parent cannot be heard or told.
    #[error("cannot talk to the parent of the prober")]
    Parent(#[source] io::Error),
    /// A request is none.
    #[error("the parent of the prober asked for something unknown")]
    Request(#[source] serde_json::Error),
}

/// Serves requests until the input ends.
///
/// # Errors
/// See [`ServeError`].
pub fn serve() -> Result<(), ServeError> {
    // Every port that is listened to is two open files.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(ServeError::OpenFiles)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(ServeError::OpenFiles)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Start)?;
    let served = runtime.block_on(run());
    // The thread that reads stdin may be blocked in it.
    runtime.shutdown_background();
    served
}

async fn run() -> Result<(), ServeError> {
    let mut tasks = JoinSet::new();
    let pending = Pending::default();
    let raw = RawSockets::open(pending.clone(), &mut tasks).map_err(ServeError::Socket)?;
    let mut helper = Helper { raw, ports: Ports::default(), pending, next_mark: AtomicU16::new(first_mark()) };
    let mut requests = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    loop {
        let line = tokio::select! {
            line = requests.next_line() => line.map_err(ServeError::Parent)?,
            Some(ended) = tasks.join_next() => {
                let ended = ended.map_err(|panic| ServeError::Socket(io::Error::other(panic)))?;
                return ended.map_err(ServeError::Socket);
            }
        };
        let Some(line) = line else { return Ok(()) };
        let reply = match serde_json::from_str(&line).map_err(ServeError::Request)? {
            Request::Listen(listen) => match helper.listen(&listen, &mut tasks) {
                Ok(()) => Reply::Listening,
                Err(error) => Reply::CannotListen { why: error.to_string() },
            },
            Request::Probe { patience, probes } => {
                helper.open_for(&probes, &mut tasks).map_err(ServeError::Socket)?;
                Reply::Answers(helper.probe_all(&patience, &probes).await)
            }
        };
        let mut text = serde_json::to_vec(&reply).map_err(ServeError::Request)?;
        text.push(b'\n');
        out.write_all(&text).await.map_err(ServeError::Parent)?;
        out.flush().await.map_err(ServeError::Parent)?;
    }
}

/// A start for marks that differs between the helpers that follow each other in a namespace, so that connection tracking
/// does not take the first probes of one for the last of another.
fn first_mark() -> u16 {
    let [.., high, low] = std::process::id().wrapping_mul(2_654_435_761).to_be_bytes();
    u16::from_be_bytes([high, low])
}

struct Helper {
    raw: RawSockets,
    ports: Ports,
    pending: Pending,
    next_mark: AtomicU16,
}

/// The end of one attempt.
enum Attempt {
    Passed,
    Unanswered,
    Refused(IpAddr),
}

impl Helper {
    fn listen(&mut self, listen: &Listen, tasks: &mut JoinSet<io::Result<()>>) -> io::Result<()> {
        for port in &listen.tcp {
            self.ports.ensure_tcp(*port, tasks)?;
        }
        for port in &listen.udp {
            self.ports.ensure_udp(*port, tasks)?;
        }
        let sctp = listen.sctp.then(|| Flow::Sctp(0).protocol(false));
        for protocol in listen.protocols.iter().copied().chain(sctp) {
            self.raw.ensure_protocol(protocol, tasks)?;
        }
        Ok(())
    }

    /// Opens the raw sockets that probes are sent by.
    fn open_for(&mut self, probes: &[Probe], tasks: &mut JoinSet<io::Result<()>>) -> io::Result<()> {
        let protocols = probes.iter().filter_map(|probe| match probe.flow {
            Flow::Sctp(_) | Flow::Protocol(_) => Some(probe.flow.protocol(false)),
            Flow::Tcp(_) | Flow::Udp(_) | Flow::Icmp => None,
        });
        for protocol in protocols {
            self.raw.ensure_protocol(protocol, tasks)?;
        }
        Ok(())
    }

    async fn probe_all(&self, patience: &Patience, probes: &[Probe]) -> Vec<Answer> {
        stream::iter(probes)
            .map(|probe| self.probe(probe, &patience.attempts_ms))
            .buffer_unordered(patience.in_flight.max(1))
            .collect()
            .await
    }

    async fn probe(&self, probe: &Probe, attempts_ms: &[u64]) -> Answer {
        let mut unanswered = 0;
        for deadline in attempts_ms.iter().copied().map(Duration::from_millis) {
            let attempt = match probe.flow {
                Flow::Tcp(port) => self.try_tcp(probe, port, deadline).await,
                Flow::Udp(port) => self.try_udp(probe, port, deadline).await,
                Flow::Sctp(_) | Flow::Icmp | Flow::Protocol(_) => self.try_raw(probe, deadline).await,
            };
            let outcome = match attempt {
                Ok(Attempt::Unanswered) => {
                    unanswered += 1;
                    continue;
                }
                Ok(Attempt::Passed) => Outcome::Passed,
                Ok(Attempt::Refused(by)) => Outcome::Refused { by },
                Err(error) => Outcome::Failed { why: error.to_string() },
            };
            return Answer { id: probe.id, outcome, unanswered };
        }
        Answer { id: probe.id, outcome: Outcome::Dropped, unanswered }
    }

    fn key(probe: &Probe, mark: u16) -> Key {
        let protocol = probe.flow.protocol(probe.destination.is_ipv6());
        Key { protocol, local: probe.source, remote: probe.destination, mark, port: probe.flow.port() }
    }

    async fn try_tcp(&self, probe: &Probe, port: u16, deadline: Duration) -> io::Result<Attempt> {
        let domain = if probe.source.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        // The connection ends with a reset, at once: no state lingers here, and ports are free for the next thousand probes.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.bind(&SocketAddr::new(probe.source, 0).into())?;
        let socket = TcpSocket::from_std_stream(socket.into());
        let mut waiting = self.pending.wait_for(Self::key(probe, socket.local_addr()?.port()));
        let connect = async { socket.connect(SocketAddr::new(probe.destination, port)).await.map(drop) };
        settle(deadline, connect, &mut waiting, probe.destination).await
    }

    async fn try_udp(&self, probe: &Probe, port: u16, deadline: Duration) -> io::Result<Attempt> {
        let socket = UdpSocket::bind(SocketAddr::new(probe.source, 0)).await?;
        let mark = socket.local_addr()?.port();
        socket.connect(SocketAddr::new(probe.destination, port)).await?;
        let mut waiting = self.pending.wait_for(Self::key(probe, mark));
        let payload = [UDP_PAYLOAD, &mark.to_be_bytes()].concat();
        let exchange = async {
            socket.send(&payload).await?;
            let mut answer = [0; 64];
            loop {
                let length = socket.recv(&mut answer).await?;
                if answer.get(..length) == Some(&payload) {
                    return Ok(());
                }
            }
        };
        settle(deadline, exchange, &mut waiting, probe.destination).await
    }

    async fn try_raw(&self, probe: &Probe, deadline: Duration) -> io::Result<Attempt> {
        let v6 = probe.destination.is_ipv6();
        let mark = self.next_mark.fetch_add(1, Ordering::Relaxed);
        let socket = self.raw.socket_for(probe.flow, v6);
        let (Some(socket), Some(packet)) = (socket, raw::request(probe.flow, v6, mark)) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut waiting = self.pending.wait_for(Self::key(probe, mark));
        match socket.send(probe.source, SocketAddr::new(probe.destination, 0), &packet).await {
            Ok(()) => {}
            Err(error) => return refused(error, &mut waiting, probe.destination).await,
        }
        Ok(match timeout(deadline, waiting.verdict()).await {
            Ok(Some(Verdict::Answered)) => Attempt::Passed,
            Ok(Some(Verdict::Refused(by))) => Attempt::Refused(by),
            Ok(None) | Err(_) => Attempt::Unanswered,
        })
    }
}

/// Waits for what a socket of TCP or UDP makes of a probe. Some refusals never reach the socket, which goes on trying: those are heard by ICMP.
async fn settle(
    deadline: Duration,
    exchange: impl Future<Output = io::Result<()>>,
    waiting: &mut Waiting,
    remote: IpAddr,
) -> io::Result<Attempt> {
    let first = async {
        tokio::select! {
            biased;
            done = exchange => done.map(|()| Attempt::Passed),
            Some(Verdict::Refused(by)) = waiting.verdict() => Ok(Attempt::Refused(by)),
        }
    };
    match timeout(deadline, first).await {
        Ok(Ok(attempt)) => Ok(attempt),
        Ok(Err(error)) => refused(error, waiting, remote).await,
        Err(_elapsed) => Ok(Attempt::Unanswered),
    }
}

/// What an error of the kernel says of a probe: a drop in our own output hook, a refusal from outside, or that it could not be sent.
async fn refused(error: io::Error, waiting: &mut Waiting, remote: IpAddr) -> io::Result<Attempt> {
    if error.raw_os_error() == Some(libc::EPERM) {
        return Ok(Attempt::Unanswered);
    }
    if let Ok(Some(Verdict::Refused(by))) = timeout(REFUSER_TIMEOUT, waiting.verdict()).await {
        return Ok(Attempt::Refused(by));
    }
    if error.kind() == io::ErrorKind::ConnectionRefused { Ok(Attempt::Refused(remote)) } else { Err(error) }
}
