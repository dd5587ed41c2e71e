//! Ports of the control plane on the loopback of the caller's namespace, so that an operator reaches the API of a lab that has no way out.
//!
//! - The listeners are opened where the caller is, then the process moves into the control plane's namespace for good: what it dials is there, what
//!   it accepts is here, and taking the lab down ends it like everything that lives there.
//! - Only loopback addresses are listened on: nobody but this machine is let in.
//! - Bytes are carried, not read: TLS goes through untouched.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::str::FromStr;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::netns;

/// The most connections of one port; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 512;

/// One port: where it is listened on, and where it leads in the control plane's namespace. Written `127.0.0.1:7080=127.0.0.1:7080`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// In the caller's namespace; loopback.
    listen: SocketAddr,
    /// In the control plane's namespace.
    to: SocketAddr,
}

/// The text names no port.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortError {
    /// It has another form.
    #[error("`{text}` is no port; write ADDRESS:PORT=ADDRESS:PORT")]
    Form {
        /// The text.
        text: String,
    },
    /// It would let others in.
    #[error("{listen} is no loopback address")]
    NotLoopback {
        /// Where it would listen.
        listen: SocketAddr,
    },
}

impl FromStr for Port {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let form = || PortError::Form { text: text.to_owned() };
        let (listen, to) = text.split_once('=').ok_or_else(form)?;
        let listen: SocketAddr = listen.parse().map_err(|_| form())?;
        let to = to.parse().map_err(|_| form())?;
        if listen.ip().is_loopback() { Ok(Self { listen, to }) } else { Err(PortError::NotLoopback { listen }) }
    }
}

/// Why nothing is published any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port cannot be listened on.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The namespace fails.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The runtime does not start.
    #[error("cannot start the publisher")]
    Start(#[source] io::Error),
    /// A port cannot be accepted on.
    #[error("cannot accept a connection")]
    Accept(#[source] io::Error),
}

/// Publishes ports until the process is ended. It must be called on the process's first thread before any other is started.
///
/// # Errors
/// See [`Error`]; it returns for nothing else.
pub fn publish(control_namespace: &str, ports: &[Port]) -> Result<(), Error> {
    let mut listeners = Vec::new();
    for port in ports {
        let listener = StdListener::bind(port.listen).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listen = port.listen;
        listeners.push((listener.map_err(|source| Error::Listen { listen, source })?, port.to));
    }
    netns::enter(control_namespace)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    runtime.block_on(async {
        let mut doors = JoinSet::new();
        for (listener, to) in listeners {
            doors.spawn(accept(TcpListener::from_std(listener).map_err(Error::Start)?, to));
        }
        match doors.join_next().await {
            Some(Ok(ended)) => ended.map_err(Error::Accept),
            Some(Err(panic)) => Err(Error::Accept(io::Error::other(panic))),
            None => Ok(()),
        }
    })
}

async fn accept(listener: TcpListener, to: SocketAddr) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        let accepted = loop {
            tokio::select! {
                accepted = listener.accept() => break accepted,
                Some(_) = connections.join_next() => {}
            }
        };
        match accepted {
            Ok((near, _)) => {
                connections.spawn(async move {
                    carry(near, to).await;
                    drop(place);
                });
            }
            // The other end was gone before its connection was taken.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn carry(mut near: TcpStream, to: SocketAddr) {
    if let Ok(mut far) = TcpStream::connect(to).await {
        // A connection that breaks ends here as it does there; both ends see it themselves.
        let _ = copy_bidirectional(&mut near, &mut far).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_published() {
        assert!("127.0.0.1:7080=127.0.0.1:7080".parse::<Port>().is_ok());
        assert!("[::1]:7080=198.19.240.2:7080".parse::<Port>().is_ok());
        let listen = "0.0.0.0:7080".parse().unwrap();
        assert_eq!("0.0.0.0:7080=127.0.0.1:7080".parse::<Port>(), Err(PortError::NotLoopback { listen }));
        assert_eq!("7080".parse::<Port>(), Err(PortError::Form { text: "7080".to_owned() }));
    }
}
