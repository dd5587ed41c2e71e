//! Sockets in the namespaces of a lab, and what the kernel says of them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use holdfast_lab::netns;
use holdfast_lab::record::Record;
use socket2::{Domain, Protocol, Socket, Type};

use super::RECEIVE_TIMEOUT;

/// Room for seconds of packets: nothing is lost for want of a reader.
const ROOM_BYTES: usize = 8 << 20;

/// Who can send and be sent to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// What it is called.
    pub name: String,
    /// Where its sockets are.
    pub namespace: String,
    /// The address that they are bound to.
    pub address: IpAddr,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.address)
    }
}

/// The places of one lab.
#[derive(Debug)]
pub struct Places {
    record: Record,
}

impl Places {
    pub(crate) const fn new(record: Record) -> Self {
        Self { record }
    }

    /// A host by its first IPv4 address.
    #[must_use]
    pub fn host(&self, name: &str) -> Place {
        self.host_of(name, IpAddr::is_ipv4)
    }

    /// A host by its first IPv6 address.
    #[must_use]
    pub fn host_v6(&self, name: &str) -> Place {
        self.host_of(name, IpAddr::is_ipv6)
    }

    /// An address that belongs to no host.
    #[must_use]
    pub fn outside(&self, address: &str) -> Place {
        let address = address.parse().unwrap_or_else(|_| panic!("{address} is no address"));
        Place { name: "outside".to_owned(), namespace: self.record.outside.clone(), address }
    }

    fn host_of(&self, name: &str, family: impl Fn(&IpAddr) -> bool) -> Place {
        let host = self.record.hosts.iter().find(|host| host.name == name);
        let host = host.unwrap_or_else(|| panic!("there is no host {name}"));
        let address = host.addresses.iter().copied().find(family).expect("hosts have addresses of both families");
        Place { name: name.to_owned(), namespace: host.namespace.clone(), address }
    }
}

impl Place {
    pub(super) fn udp(&self, port: u16) -> UdpSocket {
        self.bound(Type::DGRAM, Protocol::UDP, port).into()
    }

    pub(super) fn listen(&self, port: u16) -> TcpListener {
        let socket = self.bound(Type::STREAM, Protocol::TCP, port);
        socket.listen(64).unwrap_or_else(|error| panic!("cannot listen at {self} port {port}: {error}"));
        socket.into()
    }

    fn bound(&self, kind: Type, protocol: Protocol, port: u16) -> Socket {
        let made = netns::within(&self.namespace, || {
            let socket = Socket::new(Domain::for_address(SocketAddr::new(self.address, port)), kind, Some(protocol))?;
            // Several flows may lead to one port.
            socket.set_reuse_address(true)?;
            socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &ROOM_BYTES)?;
            socket.bind(&SocketAddr::new(self.address, port).into())?;
            Ok::<_, io::Error>(socket)
        });
        let made = made.unwrap_or_else(|error| panic!("{self}: {error}"));
        made.unwrap_or_else(|error| panic!("no socket at {self} port {port}: {error}"))
    }

    /// A connection from this place.
    pub(super) fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<TcpStream> {
        let connected = netns::within(&self.namespace, || {
            let socket = self.socket_here()?;
            socket.connect_timeout(&to.into(), within)?;
            Ok(socket.into())
        });
        connected.map_err(io::Error::other)?
    }

    /// A socket for one connection, bound to a port that it alone has, by a thread that is in this place's namespace.
    pub(super) fn socket_here(&self) -> io::Result<Socket> {
        let address = SocketAddr::new(self.address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&address.into())?;
        Ok(socket)
    }
}

/// The port that a socket is bound to.
pub(super) fn port_of(socket: &Socket) -> u16 {
    let address = socket.local_addr().ok().and_then(|address| address.as_socket());
    address.expect("it is bound").port()
}

/// How many segments of a connection this end sent again which the other end had not got before.
pub(super) fn mended(place: &Place, from: SocketAddr, to: SocketAddr) -> u64 {
    let ends = ["src".to_owned(), from.to_string(), "dst".to_owned(), to.to_string()];
    let output = Command::new("ip")
        .args(["netns", "exec", &place.namespace, "ss", "--tcp", "--info", "--numeric", "--no-header"])
        .args(ends)
        .output()
        .expect("iproute2 is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "ss: {}", String::from_utf8_lossy(&output.stderr));
    mended_in(&text).unwrap_or_else(|| panic!("{place} has no connection from {from} to {to}: {text}"))
}

/// The same from what `ss` says of one connection; none if it says nothing.
fn mended_in(text: &str) -> Option<u64> {
    if !text.contains("segs_out:") {
        return None;
    }
    let number = |word: &str| text.split_whitespace().find_map(|said| said.strip_prefix(word)?.parse::<u64>().ok());
    let again = text.split_whitespace().find_map(|said| said.strip_prefix("retrans:")?.split_once('/')?.1.parse().ok());
    // What the other end says it had got already was only late.
    Some(again.unwrap_or(0_u64).saturating_sub(number("dsack_dups:").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "ESTAB 0 0 10.71.3.11:40000 10.71.4.21:5432\n\t cubic wscale:7,7 rto:204 rtt:0.1/0.05 \
                        bytes_sent:800 segs_out:101 segs_in:102 send 1bps retrans:0/3 dsack_dups:2 rcv_space:14480";

    #[test]
    fn what_was_sent_again_in_vain_is_no_loss() {
        assert_eq!(mended_in(SAID), Some(1));
        assert_eq!(mended_in(&SAID.replace("dsack_dups:2 ", "")), Some(3));
        assert_eq!(mended_in(&SAID.replace("retrans:0/3 dsack_dups:2 ", "")), Some(0));
        assert_eq!(mended_in(""), None);
    }
}
