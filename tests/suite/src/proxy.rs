//! A way of TCP between a service and its server that can be made bad.
//!
//! - Bytes are carried, not read, but for the length of a record of TLS, which is no secret: the shortest that a client sends are known by it.
//! - What is listened on and dialled is in one network namespace. Every thread and connection ends with the value.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdfast_lab::netns;

/// How often a thread looks whether its way has changed.
const LOOK: Duration = Duration::from_millis(5);
/// How long the server may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What a record of TLS 1.3 adds to what is in it: its head, its kind, its tag.
const RECORD_HEAD_BYTES: usize = 5;
const RECORD_EXTRA_BYTES: usize = 17;
/// A record with data of the application.
const APPLICATION_DATA: u8 = 23;
/// Postgres' simple query `COMMIT`: a letter, a length of four bytes, the text and its zero.
const COMMIT_BYTES: usize = 1 + 4 + 7;

/// How the way is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As if it were not there.
    Open,
    /// Bytes come later by this much, each way.
    Slow(Duration),
    /// Connections stay open, new ones are made, and no byte comes through.
    Silent,
    /// Every connection is reset, also new ones.
    Broken,
    /// A connection is reset when its client sends `COMMIT` to Postgres, before the server gets it.
    CutBeforeCommit,
    /// The same, once the server has it and before its answer.
    CutAfterCommit,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    way: Mutex<Way>,
    over: AtomicBool,
    connections: Mutex<Vec<Connection>>,
    commits_cut: AtomicU64,
}

/// Both ends of a connection, and the threads that carry.
#[derive(Debug)]
struct Connection {
    ends: [TcpStream; 2],
    carriers: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one in a namespace, at a port of loopback that is free.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start(namespace: &str, to: SocketAddr) -> Self {
        let listener = netns::within(namespace, || TcpListener::bind(("127.0.0.1", 0))).expect("the namespace stands");
        let listener = listener.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a setting of a socket");
        let shared = Arc::new(Shared {
            way: Mutex::new(Way::Open),
            over: AtomicBool::new(false),
            connections: Mutex::default(),
            commits_cut: AtomicU64::new(0),
        });
        let accepting = {
            let (shared, namespace) = (Arc::clone(&shared), namespace.to_owned());
            thread::spawn(move || {
                netns::enter(&namespace).expect("the namespace stands");
                while !shared.over.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((client, _)) => shared.take(client, to),
                        Err(_) => thread::sleep(LOOK),
                    }
                }
            })
        };
        Self { shared, accepting: Some(accepting), address }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the way what it is from now on, also for connections that stand.
    pub fn set(&self, way: Way) {
        *lock(&self.shared.way) = way;
        if way == Way::Broken {
            self.shared.reset_all();
        }
    }

    /// How many connections were reset because of a `COMMIT`.
    #[must_use]
    pub fn commits_cut(&self) -> u64 {
        self.shared.commits_cut.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            // One that panicked has said so.
            drop(accepting.join());
        }
        self.shared.reset_all();
    }
}

impl Shared {
    fn way(&self) -> Way {
        *lock(&self.way)
    }

    fn take(self: &Arc<Self>, client: TcpStream, to: SocketAddr) {
        if self.way() == Way::Broken {
            reset(&client);
            return;
        }
        // A server that is away is told as what it is: the connection ends.
        let Ok(server) = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT) else { return reset(&client) };
        let ends = [client, server];
        let prepared = ends.iter().try_for_each(|end| {
            end.set_nonblocking(false)?;
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(LOOK))
        });
        prepared.expect("settings of sockets");
        let [client, server] =
            [0, 1].map(|at| ends.get(at).and_then(|end| end.try_clone().ok()).expect("a descriptor more"));
        let [client_too, server_too] = [&client, &server].map(|end| end.try_clone().expect("a descriptor more"));
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        let carriers = vec![
            thread::spawn(move || there.carry(client, server, true)),
            thread::spawn(move || back.carry(server_too, client_too, false)),
        ];
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.carriers.iter().all(JoinHandle::is_finished));
        connections.push(Connection { ends, carriers });
    }

    /// Carries one direction until it ends.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, by_client: bool) {
        let mut bytes = vec![0; 64 * 1024];
        while !self.over.load(Ordering::Relaxed) {
            let count = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
                Err(_) => break,
            };
            let Some(read) = bytes.get(..count) else { break };
            if !self.let_through(read, &from, &mut to, by_client) {
                break;
            }
        }
        // A half-close of one end is passed on; after a reset this says nothing more.
        drop(to.shutdown(Shutdown::Write));
    }

    /// Does with what was read what the way says; false when the connection is over.
    fn let_through(&self, read: &[u8], from: &TcpStream, to: &mut TcpStream, by_client: bool) -> bool {
        loop {
            match self.way() {
                Way::Silent => {
                    if self.over.load(Ordering::Relaxed) {
                        return false;
                    }
                    thread::sleep(LOOK);
                    continue;
                }
                Way::Broken => return false,
                Way::Slow(by) => thread::sleep(by),
                Way::Open => {}
                Way::CutBeforeCommit if by_client && is_commit(read) => {
                    self.cut(from, to);
                    return false;
                }
                Way::CutAfterCommit if by_client && is_commit(read) => {
                    // The answer is not carried: the way back is closed before the server has the question.
                    reset(from);
                    self.commits_cut.fetch_add(1, Ordering::Relaxed);
                    return to.write_all(read).is_ok();
                }
                Way::CutBeforeCommit | Way::CutAfterCommit => {}
            }
            return to.write_all(read).is_ok();
        }
    }

    fn cut(&self, from: &TcpStream, to: &TcpStream) {
        self.commits_cut.fetch_add(1, Ordering::Relaxed);
        reset(from);
        reset(to);
    }

    fn reset_all(&self) {
        for connection in lock(&self.connections).drain(..) {
            connection.ends.iter().for_each(reset);
            for carrier in connection.carriers {
                // One that panicked has said so.
                drop(carrier.join());
            }
        }
    }
}

/// Whether these bytes are a record of TLS 1.3 with nothing but `COMMIT` to Postgres in it: no other message of the driver is of its length.
fn is_commit(bytes: &[u8]) -> bool {
    let length = COMMIT_BYTES + RECORD_EXTRA_BYTES;
    bytes.len() == RECORD_HEAD_BYTES + length
        && bytes.first() == Some(&APPLICATION_DATA)
        && bytes.get(3..5).is_some_and(|told| told.iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte)) == length)
}

/// Ends a connection at once, both ways.
fn reset(end: &TcpStream) {
    // One that is over already is what is wanted.
    drop(socket2::SockRef::from(end).set_linger(Some(Duration::ZERO)));
    drop(end.shutdown(Shutdown::Both));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_known_by_its_record_and_nothing_else_is() {
        let record = |length: u8| [&[23, 3, 3, 0, length][..], &vec![7; usize::from(length)]].concat();
        assert!(is_commit(&record(29)));
        // `BEGIN` and `ROLLBACK` are one byte shorter and two longer.
        assert!(!is_commit(&record(28)) && !is_commit(&record(31)));
        assert!(!is_commit(&record(29)[..33]) && !is_commit(&[]));
        let mut handshake = record(29);
        handshake[0] = 22;
        assert!(!is_commit(&handshake));
    }
}
