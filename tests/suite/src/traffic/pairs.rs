//! Two ends that ask and answer one another, where what is asked for need not be where the answer comes from: something between them translates.
//!
//! - Every word has a number, so one that was held up and comes late is not taken for its successor.
//! - A word that is waited for has a deadline; what did not come by then did not come.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::{Place, is_quiet};

/// What the two speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speech {
    /// Datagrams.
    Udp,
    /// One connection.
    Tcp,
}

/// Two ends that have heard one another once.
#[derive(Debug)]
pub struct Pair {
    client: End,
    server: End,
    told: u64,
}

#[derive(Debug)]
enum End {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Pair {
    /// A client that asks for an address and port, by which it is to find this server; none if they do not hear one another in time.
    ///
    /// # Panics
    /// When a socket cannot be made.
    #[must_use]
    pub fn open(
        speech: Speech,
        client: &Place,
        asked: SocketAddr,
        server: (&Place, u16),
        patience: Duration,
    ) -> Option<Self> {
        let (place, port) = server;
        let (client, server) = match speech {
            Speech::Udp => {
                let (client, server) = (client.udp(0), place.udp(port));
                client.connect(asked).expect("a socket of UDP only takes note");
                // What the own table refuses does not come.
                drop(client.send(&0_u64.to_be_bytes()));
                let from = sender_of(&server, patience)?;
                server.connect(from).expect("a socket of UDP only takes note");
                (End::Udp(client), End::Udp(server))
            }
            Speech::Tcp => {
                let listener = place.listen(port);
                let client = client.connect(asked, patience).ok()?;
                (End::Tcp(client), End::Tcp(accepted(&listener, patience)?))
            }
        };
        let mut pair = Self { client, server, told: 0 };
        (pair.passes(patience) == (true, true)).then_some(pair)
    }

    /// Whether a word of the client reaches the server, and one of the server the client.
    pub fn passes(&mut self, patience: Duration) -> (bool, bool) {
        self.told += 1;
        let there = self.client.tell(self.told) && self.server.hears(self.told, patience);
        let back = self.server.tell(self.told) && self.client.hears(self.told, patience);
        (there, back)
    }
}

impl End {
    /// Whether a word could be sent.
    fn tell(&mut self, word: u64) -> bool {
        match self {
            Self::Udp(socket) => socket.send(&word.to_be_bytes()).is_ok(),
            Self::Tcp(stream) => stream.write_all(&word.to_be_bytes()).is_ok(),
        }
    }

    /// Whether a word comes in time.
    fn hears(&mut self, word: u64, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let mut bytes = [0; 8];
            let heard = match self {
                Self::Udp(socket) => socket.recv(&mut bytes).map(drop),
                Self::Tcp(stream) => read_word(stream, &mut bytes, deadline),
            };
            match heard {
                Ok(()) if u64::from_be_bytes(bytes) == word => return true,
                Err(error) if !is_quiet(&error) && matches!(self, Self::Tcp(_)) => return false,
                Ok(()) | Err(_) if Instant::now() >= deadline => return false,
                // An older word, or a refusal that a datagram met.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// A client of something that sends back whatever it gets.
#[derive(Debug)]
pub struct Echo {
    end: End,
    told: u64,
}

impl Echo {
    /// A connection whose words come back; none if the first does not in time.
    #[must_use]
    pub fn open(client: &Place, asked: SocketAddr, patience: Duration) -> Option<Self> {
        let mut echo = Self { end: End::Tcp(client.connect(asked, patience).ok()?), told: 0 };
        echo.comes_back(patience).then_some(echo)
    }

    /// Whether a word comes back.
    pub fn comes_back(&mut self, patience: Duration) -> bool {
        self.told += 1;
        self.end.tell(self.told) && self.end.hears(self.told, patience)
    }
}

/// How an attempt to connect fails in this time; none if it does not.
#[must_use]
pub fn refusal(client: &Place, asked: SocketAddr, patience: Duration) -> Option<io::ErrorKind> {
    client.connect(asked, patience).err().map(|error| error.kind())
}

/// Who sent the first datagram.
fn sender_of(server: &UdpSocket, patience: Duration) -> Option<SocketAddr> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if let Ok((_, from)) = server.recv_from(&mut [0; 8]) {
            return Some(from);
        }
    }
    None
}

/// The first connection.
fn accepted(listener: &TcpListener, patience: Duration) -> Option<TcpStream> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if let Ok((stream, _)) = listener.accept() {
            return Some(stream);
        }
    }
    None
}

/// Reads a whole word, or fails: with `WouldBlock` where it does not come by the deadline.
fn read_word(stream: &mut TcpStream, word: &mut [u8; 8], deadline: Instant) -> io::Result<()> {
    let mut have = 0;
    while have < word.len() {
        stream.set_read_timeout(Some(super::RECEIVE_TIMEOUT))?;
        match stream.read(word.get_mut(have..).unwrap_or_default()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => have += more,
            Err(error) if is_quiet(&error) && Instant::now() < deadline => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
