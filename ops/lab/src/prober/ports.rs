//! The TCP and UDP ports that a helper answers on.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::socket::PacketSocket;

/// Connections of one port that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long a probe may keep its connection; it ends it by itself at once.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The ports that are answered on already.
#[derive(Default)]
pub(super) struct Ports {
    tcp: HashSet<u16>,
    udp: HashSet<u16>,
}

impl Ports {
    /// Answers on a TCP port from now on. A port that somebody else serves is as good.
    pub(super) fn ensure_tcp(&mut self, port: u16, tasks: &mut JoinSet<io::Result<()>>) -> io::Result<()> {
        if self.tcp.insert(port) {
            for v6 in [false, true] {
                match listen(port, v6) {
                    Ok(listener) => {
                        tasks.spawn(accept(listener));
                    }
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Echoes on a UDP port from now on.
    pub(super) fn ensure_udp(&mut self, port: u16, tasks: &mut JoinSet<io::Result<()>>) -> io::Result<()> {
        if self.udp.insert(port) {
            for v6 in [false, true] {
                tasks.spawn(echo(PacketSocket::udp(port, v6)?));
            }
        }
        Ok(())
    }
}

fn listen(port: u16, v6: bool) -> io::Result<TcpListener> {
    let (domain, any) = if v6 {
        (Domain::IPV6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
    } else {
        (Domain::IPV4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
    };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if v6 {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&any.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(hold(stream));
                }
                // The other end was gone before its connection was taken.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Lets the prober end the connection: were this end the first to close, its last packets would come after the connection was forgotten, and
/// a ruleset would rightly drop and count them.
async fn hold(mut stream: TcpStream) {
    let mut byte = [0];
    // However it ends, the connection is over.
    let _ = timeout(CONNECTION_TIMEOUT, stream.read(&mut byte)).await;
}

async fn echo(socket: PacketSocket) -> io::Result<()> {
    loop {
        let packet = socket.receive().await?;
        // An echo that our own rules drop is a probe without an answer, which is what the asker shall see.
        let _ = socket.send(packet.to, packet.from, &packet.bytes).await;
    }
}
