//! Probes and answers of SCTP, ICMP and other IP protocols, through one raw socket per protocol and family.
//!
//! - The same socket carries our probes and answers those of others.
//! - The ICMP sockets also hear who refused any probe of this helper, TCP and UDP included.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::task::JoinSet;

use super::packet::{self, ICMP_V4, ICMP_V6, Icmp, Seen};
use super::pending::{Key, Pending, Verdict};
use super::socket::{Packet, PacketSocket};
use crate::flow::Flow;

const SCTP: u8 = 132;

/// The raw sockets of this helper.
pub(super) struct RawSockets {
    sockets: HashMap<(u8, bool), Arc<PacketSocket>>,
    pending: Pending,
}

impl RawSockets {
    /// Opens the ICMP sockets, which every helper needs.
    pub(super) fn open(pending: Pending, tasks: &mut JoinSet<io::Result<()>>) -> io::Result<Self> {
        let mut sockets = Self { sockets: HashMap::new(), pending };
        sockets.ensure(ICMP_V4.protocol, false, tasks)?;
        sockets.ensure(ICMP_V6.protocol, true, tasks)?;
        Ok(sockets)
    }

    /// Opens what a protocol needs in both families, and answers on it from then on.
    pub(super) fn ensure_protocol(&mut self, protocol: u8, tasks: &mut JoinSet<io::Result<()>>) -> io::Result<()> {
        self.ensure(protocol, false, tasks)?;
        self.ensure(protocol, true, tasks)
    }

    fn ensure(&mut self, protocol: u8, v6: bool, tasks: &mut JoinSet<io::Result<()>>) -> io::Result<()> {
        if let Entry::Vacant(place) = self.sockets.entry((protocol, v6)) {
            let socket = Arc::new(PacketSocket::raw(protocol, v6)?);
            place.insert(Arc::clone(&socket));
            tasks.spawn(answer(socket, protocol, v6, self.pending.clone()));
        }
        Ok(())
    }

    /// The socket for a flow, if it was opened.
    pub(super) fn socket_for(&self, flow: Flow, v6: bool) -> Option<Arc<PacketSocket>> {
        self.sockets.get(&(flow.protocol(v6), v6)).map(Arc::clone)
    }
}

/// The packet that probes a flow by a raw socket; `None` for what has sockets of its own.
pub(super) fn request(flow: Flow, v6: bool, mark: u16) -> Option<Vec<u8>> {
    match flow {
        Flow::Sctp(port) => Some(packet::sctp_init(mark, port)),
        Flow::Icmp if v6 => Some(ICMP_V6.echo(mark)),
        Flow::Icmp => Some(ICMP_V4.echo(mark)),
        Flow::Protocol(_) => Some(packet::plain_request(mark)),
        Flow::Tcp(_) | Flow::Udp(_) => None,
    }
}

async fn answer(socket: Arc<PacketSocket>, protocol: u8, v6: bool, pending: Pending) -> io::Result<()> {
    let icmp = [ICMP_V4, ICMP_V6].into_iter().find(|icmp| icmp.protocol == protocol);
    loop {
        let packet = socket.receive().await?;
        if let Some(icmp) = icmp {
            tell_refused(icmp, &packet, &pending);
        }
        let seen = match icmp {
            Some(icmp) => icmp.read_echo(&packet.bytes),
            None if protocol == SCTP => packet::read_sctp(&packet.bytes),
            None => packet::read_plain(&packet.bytes),
        };
        let remote = packet.from.ip();
        let key = |mark, port| Key { protocol, local: packet.to, remote, mark, port };
        match seen {
            Seen::Request { mark, port, tag } => {
                let bytes =
                    if protocol == SCTP { packet::sctp_init_ack(port, mark, tag) } else { packet::plain_answer(mark) };
                // An answer that our own rules drop is a probe without an answer, which is what the asker shall see.
                let _ = socket.send(packet.to, SocketAddr::new(remote, 0), &bytes).await;
            }
            Seen::Answer { mark, port } => pending.tell(&key(mark, port), Verdict::Answered),
            Seen::Refusal { mark, port } => pending.tell(&key(mark, port), Verdict::Refused(remote)),
            Seen::Other => {}
        }
        debug_assert_eq!(v6, remote.is_ipv6(), "a socket hears its own family only");
    }
}

/// Tells the probe that an ICMP error quotes who refused it.
fn tell_refused(icmp: Icmp, packet: &Packet, pending: &Pending) {
    let Some(quoted) = icmp.read_unreachable(&packet.bytes) else { return };
    let (Some(local), Some(remote)) = (address_of(quoted.source), address_of(quoted.destination)) else { return };
    if let Some((mark, port)) = quoted.mark_and_port() {
        let key = Key { protocol: quoted.protocol, local, remote, mark, port };
        pending.tell(&key, Verdict::Refused(packet.from.ip()));
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}
