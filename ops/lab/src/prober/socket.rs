//! A datagram or raw socket that knows to which of our addresses a packet came, and can send from any of them.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo, RcvBufForce};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, cmsg_space, recvmsg, sendmsg, setsockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The most bytes of a packet that are looked at; probes have fewer than 100.
const PACKET_BYTES_MAX: usize = 2048;
/// Room for what arrives while the helper is busy: a raw socket gets every packet of its protocol. Forced, since the kernel cuts what is only asked
/// for to what the system lets anybody have, by default some hundred packets, without a word.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// One family's end of a protocol.
pub(super) struct PacketSocket {
    /// Datagram or raw: tokio only waits on it, what is read and written is this module's business.
    descriptor: UdpSocket,
    raw_v4: bool,
}

/// A packet that came.
pub(super) struct Packet {
    /// Who sent it; the port is 0 for raw protocols.
    pub(super) from: SocketAddr,
    /// Our address that it was sent to.
    pub(super) to: IpAddr,
    /// What is above IP, or above UDP.
    pub(super) bytes: Vec<u8>,
}

fn domain_of(v6: bool) -> Domain {
    if v6 { Domain::IPV6 } else { Domain::IPV4 }
}

impl PacketSocket {
    /// Every packet of an IP protocol.
    pub(super) fn raw(protocol: u8, v6: bool) -> io::Result<Self> {
        let socket = Socket::new(domain_of(v6), Type::RAW, Some(Protocol::from(i32::from(protocol))))?;
        Self::ready(socket, v6, !v6)
    }

    /// Every datagram to a UDP port.
    pub(super) fn udp(port: u16, v6: bool) -> io::Result<Self> {
        let socket = Socket::new(domain_of(v6), Type::DGRAM, Some(Protocol::UDP))?;
        let any = if v6 {
            socket.set_only_v6(true)?;
            IpAddr::from(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        };
        socket.bind(&SocketAddr::new(any, port).into())?;
        Self::ready(socket, v6, false)
    }

    fn ready(socket: Socket, v6: bool, raw_v4: bool) -> io::Result<Self> {
        if v6 {
            setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
        } else {
            setsockopt(&socket, Ipv4PacketInfo, &true)?;
        }
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        Ok(Self { descriptor: UdpSocket::from_std(socket.into())?, raw_v4 })
    }

    /// Waits for a packet.
    pub(super) async fn receive(&self) -> io::Result<Packet> {
        let receive = || self.descriptor.async_io(Interest::READABLE, || receive_now(self.descriptor.as_raw_fd()));
        loop {
            if let Some(packet) = receive().await? {
                return Ok(if self.raw_v4 { without_header(packet) } else { packet });
            }
        }
    }

    /// Sends a packet from one of our addresses. [`io::ErrorKind::PermissionDenied`] says that our own output hook dropped it.
    pub(super) async fn send(&self, from: IpAddr, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let send = || send_now(self.descriptor.as_raw_fd(), from, to, bytes);
        self.descriptor.async_io(Interest::WRITABLE, send).await
    }
}

/// Takes one packet; `None` for one without addresses, which is no packet of ours.
fn receive_now(socket: RawFd) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut control = vec![0; cmsg_space::<libc::in6_pktinfo>()];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<SockaddrStorage>(socket, &mut slices, Some(&mut control), MsgFlags::empty())?;
    let mut to = None;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::Ipv4PacketInfo(info) = part {
            to = Some(IpAddr::from(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())));
        } else if let ControlMessageOwned::Ipv6PacketInfo(info) = part {
            to = Some(IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
        }
    }
    let from = message.address.as_ref().and_then(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port())))
    });
    let length = message.bytes;
    bytes.truncate(length);
    Ok(from.zip(to).map(|(from, to)| Packet { from, to, bytes }))
}

/// A raw IPv4 socket hands out the IP header too.
fn without_header(mut packet: Packet) -> Packet {
    let header_bytes = packet.bytes.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    packet.bytes.drain(..header_bytes.min(packet.bytes.len()));
    packet
}

fn send_now(socket: RawFd, from: IpAddr, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
    let slices = [IoSlice::new(bytes)];
    let address = SockaddrStorage::from(to);
    let send = |source| sendmsg(socket, &slices, &[source], MsgFlags::empty(), Some(&address));
    match from {
        IpAddr::V4(v4) => {
            let unset = libc::in_addr { s_addr: 0 };
            let source = libc::in_addr { s_addr: u32::from_ne_bytes(v4.octets()) };
            let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: unset };
            send(ControlMessage::Ipv4PacketInfo(&info))
        }
        IpAddr::V6(v6) => {
            let source = libc::in6_addr { s6_addr: v6.octets() };
            let info = libc::in6_pktinfo { ipi6_addr: source, ipi6_ifindex: 0 };
            send(ControlMessage::Ipv6PacketInfo(&info))
        }
    }?;
    Ok(())
}
