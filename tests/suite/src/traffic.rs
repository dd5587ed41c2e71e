//! Packets that flow between the hosts of a plane for as long as a value lives, and what came of them.
//!
//! - Each packet has a number, so what was sent after a moment is told from what was on its way then.
//! - UDP goes at a steady pace and each packet is answered; an established TCP connection carries words both ways at once.
//! - What TCP mends is a loss all the same: whatever it had to send again and the other end had not got before.
//! - Sockets are made in the namespaces of a lab and stay there; nothing here decides what may pass.

pub mod pairs;
mod sockets;

use std::collections::HashMap;
use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use holdfast_lab::netns;

pub use sockets::{Place, Places};

/// Between two packets of a flow of UDP.
const PACKET_PACE: Duration = Duration::from_millis(1);
/// Between two words of one end of a connection.
const WORD_PACE: Duration = Duration::from_millis(4);
/// Between two attempts to connect.
const ATTEMPT_PACE: Duration = Duration::from_millis(10);
/// How long an attempt to connect may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a receiver waits before it looks whether all is over.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the last packets may take.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long anything may take that is waited for.
const DEADLINE: Duration = Duration::from_secs(30);

/// What flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Packets that are answered.
    Udp,
    /// One connection, which is made at the start, with words both ways.
    Tcp,
    /// Connections that are tried one after the other.
    Attempts,
}

/// From where to where something flows.
#[derive(Clone, Debug)]
pub struct Route {
    /// What.
    pub kind: Kind,
    /// Who begins.
    pub from: Place,
    /// Who answers.
    pub to: Place,
    /// The port of who answers.
    pub port: u16,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} -> {} port {}", self.kind, self.from, self.to, self.port)
    }
}

/// What one direction of a flow has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// How many were sent; their numbers are below this one.
    pub sent: u64,
    /// How many came.
    pub arrived: u64,
    /// One above the highest number that came.
    pub end: u64,
}

impl Seen {
    /// Whether all came, and some did.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.sent > 0 && self.arrived == self.sent
    }
}

/// Both directions of a flow; an attempt to connect has no way back of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    /// From who begins.
    pub there: Seen,
    /// From who answers.
    pub back: Seen,
}

/// One direction.
#[derive(Debug, Default)]
struct Lane {
    sent: AtomicU64,
    arrived: AtomicU64,
    end: AtomicU64,
}

impl Lane {
    /// The number of what is sent next.
    fn next(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::Relaxed)
    }

    /// Something of this number was sent, which was not chosen here.
    fn repeat(&self, number: u64) {
        self.sent.fetch_max(number + 1, Ordering::Relaxed);
    }

    fn take(&self, number: u64) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.end.fetch_max(number + 1, Ordering::Relaxed);
    }

    fn seen(&self) -> Seen {
        let [arrived, end, sent] = [&self.arrived, &self.end, &self.sent].map(|count| count.load(Ordering::Relaxed));
        Seen { sent, arrived, end }
    }
}

/// What flows on one route.
#[derive(Debug)]
pub struct Flow {
    route: Route,
    there: Arc<Lane>,
    back: Arc<Lane>,
    /// The two ends of a connection.
    ends: Option<[SocketAddr; 2]>,
}

impl Flow {
    /// Its route.
    #[must_use]
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// What came of it so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally { there: self.there.seen(), back: self.back.seen() }
    }

    /// How many segments either end had to send again which the other had not got before.
    fn mended(&self) -> u64 {
        let Some([from, to]) = self.ends else { return 0 };
        sockets::mended(&self.route.from, from, to) + sockets::mended(&self.route.to, to, from)
    }

    /// Whether nothing was lost both ways, so far as everything that was sent had the time to come.
    fn is_whole(&self) -> bool {
        let Tally { there, back } = self.tally();
        match self.route.kind {
            Kind::Attempts => there.is_whole(),
            Kind::Udp => there.is_whole() && back.is_whole(),
            Kind::Tcp => there.is_whole() && back.is_whole() && self.mended() == 0,
        }
    }
}

/// Everything that flows.
#[derive(Debug)]
pub struct Traffic {
    flows: Vec<Flow>,
    stop: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    senders: Vec<JoinHandle<()>>,
    receivers: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Lets packets flow on all routes.
    ///
    /// # Panics
    /// When a socket cannot be made, or a connection is not let through.
    #[must_use]
    pub fn start(routes: Vec<Route>) -> Self {
        let mut traffic = Self {
            flows: Vec::new(),
            stop: Arc::default(),
            over: Arc::default(),
            senders: Vec::new(),
            receivers: Vec::new(),
        };
        for route in routes {
            let mut flow = Flow { route, there: Arc::default(), back: Arc::default(), ends: None };
            match flow.route.kind {
                Kind::Udp => traffic.start_udp(&flow),
                Kind::Tcp => flow.ends = Some(traffic.start_tcp(&flow)),
                Kind::Attempts => traffic.start_attempts(&flow),
            }
            traffic.flows.push(flow);
        }
        traffic
    }

    /// What flows, in the order of the routes.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Waits until something is so.
    ///
    /// # Panics
    /// When it is not so in time.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&[Flow]) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so(&self.flows) {
            assert!(Instant::now() < deadline, "{what}: {}", self.told());
            thread::sleep(PACKET_PACE);
        }
    }

    /// Waits until every flow of UDP has sent so many more, and every other a few.
    ///
    /// # Panics
    /// When they do not in time.
    pub fn wait_for_more(&self, packets: u64) {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.tally().there.sent).collect();
        let few = |flow: &Flow| if flow.route.kind == Kind::Udp { packets } else { 2 };
        self.wait_until("more packets are sent", |flows| {
            flows.iter().zip(&before).all(|(flow, before)| flow.tally().there.sent >= before + few(flow))
        });
    }

    /// Sends nothing more, and gives the last packets the time to come. True for each flow of which nothing was lost.
    ///
    /// # Panics
    /// When a thread of it panicked.
    #[must_use]
    pub fn end(mut self) -> Vec<(Flow, Fate)> {
        self.stop.store(true, Ordering::Relaxed);
        for sender in self.senders.drain(..) {
            sender.join().expect("a sender does not panic");
        }
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let is_settled = |flow: &Flow| flow.tally().there.arrived == 0 || flow.is_whole();
        while Instant::now() < deadline && !self.flows.iter().all(is_settled) {
            thread::sleep(RECEIVE_TIMEOUT);
        }
        let fates: Vec<Fate> =
            self.flows.iter().map(|flow| Fate { is_whole: flow.is_whole(), mended: flow.mended() }).collect();
        self.over.store(true, Ordering::Relaxed);
        for receiver in self.receivers.drain(..) {
            receiver.join().expect("a receiver does not panic");
        }
        std::mem::take(&mut self.flows).into_iter().zip(fates).collect()
    }

    fn told(&self) -> String {
        let told = |flow: &Flow| format!("\n  {}: {:?}", flow.route, flow.tally());
        self.flows.iter().map(told).collect()
    }

    fn start_udp(&mut self, flow: &Flow) {
        let Route { from, to, port, .. } = &flow.route;
        let (client, server) = (from.udp(0), to.udp(*port));
        server.connect(client.local_addr().expect("it is bound")).expect("a socket of UDP only takes note");
        client.connect((to.address, *port)).expect("a socket of UDP only takes note");
        let answers = client.try_clone().expect("a descriptor more");
        let tag = u32::try_from(self.flows.len()).expect("few flows");
        let (there, stop) = (Arc::clone(&flow.there), Arc::clone(&self.stop));
        self.receive(server, tag, {
            let (there, back) = (Arc::clone(&flow.there), Arc::clone(&flow.back));
            move |server, packet, number| {
                there.take(number);
                back.repeat(number);
                // What the own table refuses is an answer that lacks at the other end.
                drop(server.send(packet));
            }
        });
        let back = Arc::clone(&flow.back);
        self.receive(answers, tag, move |_, _, number| back.take(number));
        self.senders.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let number = there.next();
                drop(client.send(&packet_of(tag, number)));
                thread::sleep(PACKET_PACE);
            }
        }));
    }

    /// Takes every packet of one flow until all is over and nothing more waits.
    fn receive(&mut self, socket: UdpSocket, tag: u32, mut take: impl FnMut(&UdpSocket, &[u8], u64) + Send + 'static) {
        let over = Arc::clone(&self.over);
        self.receivers.push(thread::spawn(move || {
            let mut packet = [0; PACKET_BYTES];
            loop {
                match socket.recv(&mut packet) {
                    Ok(PACKET_BYTES) => {
                        if let Some(number) = number_of(tag, &packet) {
                            take(&socket, &packet, number);
                        }
                    }
                    Err(error) if is_quiet(&error) && over.load(Ordering::Relaxed) => return,
                    // Another length is no packet of ours; a refusal from elsewhere shows as a packet that lacks.
                    Ok(_) | Err(_) => {}
                }
            }
        }));
    }

    fn start_tcp(&mut self, flow: &Flow) -> [SocketAddr; 2] {
        let Route { from, to, port, .. } = &flow.route;
        let listener = to.listen(*port);
        let client = from.connect(SocketAddr::new(to.address, *port), DEADLINE);
        let client = client.unwrap_or_else(|error| panic!("{}: {error}", flow.route));
        let ends = [client.local_addr(), client.peer_addr()].map(|end| end.expect("it is connected"));
        let server = accept(&listener, ends[0]);
        for (lane_out, lane_in, stream) in [(&flow.there, &flow.back, client), (&flow.back, &flow.there, server)] {
            stream.set_nodelay(true).expect("a setting of TCP");
            stream.set_read_timeout(Some(RECEIVE_TIMEOUT)).expect("a setting of a socket");
            let reader = stream.try_clone().expect("a descriptor more");
            let (lane_in, over) = (Arc::clone(lane_in), Arc::clone(&self.over));
            self.receivers.push(thread::spawn(move || read_words(reader, &lane_in, &over)));
            let (lane_out, stop) = (Arc::clone(lane_out), Arc::clone(&self.stop));
            self.senders.push(thread::spawn(move || write_words(stream, &lane_out, &stop)));
        }
        ends
    }

    fn start_attempts(&mut self, flow: &Flow) {
        let Route { from, to, port, .. } = flow.route.clone();
        let listener = to.listen(port);
        // Which attempt comes from which port: a connection that came through is told by it, whether or not anything could follow.
        let begun: Arc<Mutex<HashMap<u16, u64>>> = Arc::default();
        let (there, over, known) = (Arc::clone(&flow.there), Arc::clone(&self.over), Arc::clone(&begun));
        self.receivers.push(thread::spawn(move || {
            loop {
                match listener.accept() {
                    Ok((_, peer)) => {
                        let number = known.lock().expect("no holder panics").remove(&peer.port());
                        there.take(number.expect("nobody else connects here"));
                    }
                    Err(error) if is_quiet(&error) && over.load(Ordering::Relaxed) => return,
                    Err(_) => {}
                }
            }
        }));
        let (there, stop) = (Arc::clone(&flow.there), Arc::clone(&self.stop));
        self.senders.push(thread::spawn(move || {
            netns::enter(&from.namespace).expect("the namespace stands");
            while !stop.load(Ordering::Relaxed) {
                let number = there.next();
                let socket = from.socket_here().unwrap_or_else(|error| panic!("no socket at {from}: {error}"));
                begun.lock().expect("no holder panics").insert(sockets::port_of(&socket), number);
                // One that is denied ends here.
                let _refused = socket.connect_timeout(&SocketAddr::new(to.address, port).into(), ATTEMPT_TIMEOUT);
                thread::sleep(ATTEMPT_PACE);
            }
        }));
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        for thread in self.senders.drain(..).chain(self.receivers.drain(..)) {
            // One that panicked has said so.
            drop(thread.join());
        }
    }
}

/// What became of a flow in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// Nothing of it was lost.
    pub is_whole: bool,
    /// Segments of TCP that were lost and sent again.
    pub mended: u64,
}

const PACKET_BYTES: usize = 12;

fn packet_of(tag: u32, number: u64) -> [u8; PACKET_BYTES] {
    let mut packet = [0; PACKET_BYTES];
    let (head, tail) = packet.split_at_mut(4);
    head.copy_from_slice(&tag.to_be_bytes());
    tail.copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number in a packet of this flow.
fn number_of(tag: u32, packet: &[u8; PACKET_BYTES]) -> Option<u64> {
    let (head, tail) = packet.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*head) == tag).then(|| tail.try_into().map(u64::from_be_bytes).ok())?
}

/// Whether a receiver's time was up and nothing more.
fn is_quiet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The connection from this end, and no other.
fn accept(listener: &TcpListener, from: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match listener.accept() {
            Ok((stream, peer)) if peer == from => return stream,
            Ok(_) => {}
            Err(error) => assert!(is_quiet(&error) && Instant::now() < deadline, "no connection of {from}: {error}"),
        }
    }
}

fn write_words(mut stream: TcpStream, lane: &Lane, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let number = lane.next();
        if stream.write_all(&number.to_be_bytes()).is_err() {
            // A word that was sent and never comes.
            return;
        }
        thread::sleep(WORD_PACE);
    }
}

fn read_words(mut stream: TcpStream, lane: &Lane, over: &AtomicBool) {
    let (mut word, mut have) = ([0; 8], 0);
    loop {
        match stream.read(word.get_mut(have..).unwrap_or_default()) {
            Ok(0) => return,
            Ok(more) => have += more,
            Err(error) if is_quiet(&error) && over.load(Ordering::Relaxed) => return,
            Err(error) if is_quiet(&error) => {}
            Err(_) => return,
        }
        if have == word.len() {
            lane.take(u64::from_be_bytes(word));
            have = 0;
        }
    }
}
