//! The open TCP connections of this network namespace, as its sockets tell them, each with the end that opened it.
//!
//! - A local port that is listened to was connected to; one of the range for outgoing connections connected. Any other end says nothing, and its
//!   connection is left out.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

/// `TCP_LISTEN`.
const LISTENS: u8 = 0x0a;
/// `TCP_ESTABLISHED`, `TCP_FIN_WAIT2` and `TCP_CLOSE_WAIT`: both ends agreed to talk, and one of them at least still does.
const TALKS: [u8; 3] = [0x01, 0x05, 0x08];

/// A TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Connection {
    /// The end that opened it.
    pub(super) client: SocketAddr,
    /// The end that was asked.
    pub(super) server: SocketAddr,
}

/// One line of the kernel's list.
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
}

/// The connections of this thread's network namespace that do not stay within it.
pub(super) fn connections() -> io::Result<Vec<Connection>> {
    let outgoing = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let outgoing = ports(&outgoing).ok_or(io::ErrorKind::InvalidData)?;
    let mut sockets = Sockets::default();
    sockets.read(BufReader::new(File::open("/proc/thread-self/net/tcp")?))?;
    match File::open("/proc/thread-self/net/tcp6") {
        Ok(list) => sockets.read(BufReader::new(list))?,
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(sockets.connections(&outgoing))
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

/// What matters of the kernel's lists; a busy host has many times more lines of connections that have ended.
#[derive(Default)]
struct Sockets {
    listened: BTreeSet<u16>,
    talking: Vec<Socket>,
}

impl Sockets {
    /// Reads a list; a line that is no socket, as the headings are, is passed over.
    fn read(&mut self, list: impl BufRead) -> io::Result<()> {
        for line in list.lines() {
            let Some(socket) = socket(&line?) else { continue };
            if socket.state == LISTENS {
                self.listened.insert(socket.local.port());
            } else if TALKS.contains(&socket.state) && !socket.local.ip().is_loopback() {
                self.talking.push(socket);
            }
        }
        Ok(())
    }

    fn connections(self, outgoing: &RangeInclusive<u16>) -> Vec<Connection> {
        let Self { listened, talking } = self;
        let opened = talking.into_iter().filter_map(|Socket { local, remote, .. }| match local.port() {
            port if listened.contains(&port) => Some(Connection { client: remote, server: local }),
            port if outgoing.contains(&port) => Some(Connection { client: local, server: remote }),
            _ => None,
        });
        opened.collect()
    }
}

fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    Some(Socket { local: end(local)?, remote: end(remote)?, state: u8::from_str_radix(state, 16).ok()? })
}

/// An address and a port in hexadecimal; the address in words of four bytes, each as this machine would read it from memory.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (chunk, at) in bytes.chunks_exact_mut(4).zip([0, 8, 16, 24]) {
                chunk.copy_from_slice(&word(at)?);
            }
            // A socket of both families tells IPv4 in IPv6's words.
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";

    fn word(bytes: [u8; 4]) -> String {
        format!("{:08X}", u32::from_ne_bytes(bytes))
    }

    fn line(local: [u8; 4], port: u16, remote: [u8; 4], remote_port: u16, state: u8) -> String {
        let (local, remote) = (word(local), word(remote));
        format!("   0: {local}:{port:04X} {remote}:{remote_port:04X} {state:02X} 00000000:00000000 00:00000000\n")
    }

    #[test]
    fn a_port_that_is_listened_to_was_asked_and_one_of_the_range_for_outgoing_ones_asked() {
        let (own, peer) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let list = [
            HEADING.to_owned(),
            line([0; 4], 80, [0; 4], 0, LISTENS),
            line(own, 80, peer, 40_000, 0x01),
            line(own, 50_000, peer, 443, 0x08),
            line(own, 179, peer, 179, 0x01),
            line(own, 50_001, peer, 443, 0x06),
            line([127, 0, 0, 1], 80, [127, 0, 0, 1], 50_002, 0x01),
        ]
        .concat();
        let at = |ip: [u8; 4], port| SocketAddr::from((ip, port));
        let mut sockets = Sockets::default();
        sockets.read(list.as_bytes()).expect("memory can be read");
        assert_eq!(
            sockets.connections(&(32_768..=60_999)),
            [
                Connection { client: at(peer, 40_000), server: at(own, 80) },
                Connection { client: at(own, 50_000), server: at(peer, 443) },
            ]
        );
    }

    #[test]
    fn both_families_are_read_and_ipv4_in_ipv6_is_ipv4() {
        let six = |ip: &str| {
            let bytes = ip.parse::<Ipv6Addr>().expect("an address").octets();
            bytes.chunks_exact(4).map(|chunk| word(chunk.try_into().expect("four"))).collect::<String>()
        };
        let read = |ip: &str| end(&format!("{}:0050", six(ip)));
        assert_eq!(read("fd77::2"), "[fd77::2]:80".parse().ok());
        assert_eq!(read("::ffff:10.0.0.2"), "10.0.0.2:80".parse().ok());
        assert_eq!(end("0100:0050"), None);
    }
}
