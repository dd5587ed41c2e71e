//! Connection tracking is told of the TCP connections that it did not see begin.
//!
//! - Tracking takes the first packet that it sees for the one that opened its connection. Of a connection that is older than the table this may as
//!   well be an answer; then everything of it would be judged by the rules of the other direction, whose answer may be the contrary.
//! - The sockets know better. An entry is made where there is none; one is made anew only where tracking says that it took it up in the middle, in the
//!   wrong direction, and translates none of its addresses.
//! - Nothing is said about other protocols, nor about connections that only pass through.

use std::net::{IpAddr, SocketAddr};

use holdfast_model::policy::protocol;
use nix::libc;

use super::attr::{Attributes, Malformed, Writer};
use super::link::{Error, Link};
use super::numbers as n;
use super::sockets::{self, Connection};

/// `NFNL_SUBSYS_CTNETLINK` and its messages.
const SUBSYSTEM: u16 = 1;
const NEW: u16 = 0;
const GET: u16 = 1;
const DELETE: u16 = 2;

const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const TIMEOUT: u16 = 7;
const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PORTS: u16 = 2;
const SOURCE4: u16 = 1;
const DESTINATION4: u16 = 2;
const SOURCE6: u16 = 3;
const DESTINATION6: u16 = 4;
const PORTS_PROTOCOL: u16 = 1;
const PORTS_SOURCE: u16 = 2;
const PORTS_DESTINATION: u16 = 3;
const STATE_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const TCP_FLAGS: [u16; 2] = [4, 5];

/// `IPS_SEEN_REPLY`, `IPS_ASSURED` and `IPS_CONFIRMED`: a connection in full life.
const STATUS_ALIVE: u32 = 0b1110;
/// `IPS_SRC_NAT` and `IPS_DST_NAT`.
const STATUS_TRANSLATED: u32 = 0b11_0000;
/// `TCP_CONNTRACK_ESTABLISHED`.
const ESTABLISHED: u8 = 3;
/// `IP_CT_TCP_FLAG_SACK_PERM` and `IP_CT_TCP_FLAG_BE_LIBERAL`: how tracking marks what it took up in the middle, for it does not know the windows.
const FLAGS_MIDDLE: u8 = 0b1010;
const FLAG_LIBERAL: u8 = 0b1000;
/// As long as the kernel keeps an idle connection by default (five days); the next packet sets what the host is set to.
const TIMEOUT_S: u32 = 432_000;

/// What tracking learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    /// Connections that it did not know.
    pub(super) new: usize,
    /// Connections that it took for opened from the other end.
    pub(super) turned: usize,
}

/// Tells tracking of every connection that this network namespace has a socket of.
///
/// # Errors
/// The first [`Error`]: if none could be told at all, or if some could not.
pub(super) fn tell(link: &mut Link) -> Result<Told, Error> {
    let open = sockets::connections().map_err(|source| Error::Socket { doing: "list the connections", source })?;
    let (mut told, mut failed) = (Told::default(), None);
    for (before, connection) in open.into_iter().enumerate() {
        match tell_of(link, connection, &mut told) {
            Ok(()) => {}
            // A kernel that cannot be told is not asked thousands of times.
            Err(error) if before == 0 => return Err(error),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(told), Err)
}

fn tell_of(link: &mut Link, connection: Connection, told: &mut Told) -> Result<(), Error> {
    if put(link, connection)? {
        told.new += 1;
    } else if is_turned(link, connection)? && drop_entry(link, connection)? && put(link, connection)? {
        told.turned += 1;
    }
    Ok(())
}

fn request(link: &mut Link, message: u16, flags: u16, connection: Connection) -> Writer {
    let family = match connection.client.ip() {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    let family = u8::try_from(family).unwrap_or_default();
    let mut writer = Writer::new(SUBSYSTEM << 8 | message, n::REQUEST | flags, link.next_seq(), family, 0);
    put_tuple(&mut writer, TUPLE_ORIGINAL, connection.client, connection.server);
    writer
}

fn put_tuple(writer: &mut Writer, kind: u16, from: SocketAddr, to: SocketAddr) {
    writer.nest(kind, |tuple| {
        tuple.nest(TUPLE_ADDRESSES, |addresses| {
            for (end, [v4, v6]) in [(from, [SOURCE4, SOURCE6]), (to, [DESTINATION4, DESTINATION6])] {
                match end.ip() {
                    IpAddr::V4(ip) => addresses.bytes(v4, &ip.octets()),
                    IpAddr::V6(ip) => addresses.bytes(v6, &ip.octets()),
                }
            }
        });
        tuple.nest(TUPLE_PORTS, |ports| {
            ports.bytes(PORTS_PROTOCOL, &[protocol::TCP]);
            ports.bytes(PORTS_SOURCE, &from.port().to_be_bytes());
            ports.bytes(PORTS_DESTINATION, &to.port().to_be_bytes());
        });
    });
}

/// Makes an entry; false if there is one for these addresses and ports, of either direction.
fn put(link: &mut Link, connection: Connection) -> Result<bool, Error> {
    let mut writer = request(link, NEW, n::ACK | n::CREATE | n::EXCLUSIVE, connection);
    put_tuple(&mut writer, TUPLE_REPLY, connection.server, connection.client);
    writer.u32(STATUS, STATUS_ALIVE);
    writer.u32(TIMEOUT, TIMEOUT_S);
    writer.nest(PROTOCOL_STATE, |state| {
        state.nest(STATE_TCP, |tcp| {
            tcp.bytes(TCP_STATE, &[ESTABLISHED]);
            for flags in TCP_FLAGS {
                // The flags, and which of them are meant.
                tcp.bytes(flags, &[FLAGS_MIDDLE, FLAGS_MIDDLE]);
            }
        });
    });
    match link.ask(&writer.finish(), "track a connection", |_| Ok(())) {
        Ok(()) => Ok(true),
        Err(Error::Refused { errno: libc::EEXIST, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether tracking has a connection the wrong way round for want of having seen it begin.
fn is_turned(link: &mut Link, connection: Connection) -> Result<bool, Error> {
    let request = request(link, GET, 0, connection).finish();
    let mut is_turned = false;
    let asked = link.ask(&request, "tell a connection", |message| {
        is_turned = is_turned_entry(message.attributes(), connection)?;
        Ok(())
    });
    match asked {
        Err(Error::Refused { errno: libc::ENOENT, .. }) => Ok(false),
        other => other.map(|()| is_turned),
    }
}

fn is_turned_entry(entry: Attributes<'_>, connection: Connection) -> Result<bool, Malformed> {
    let ports = entry.need(TUPLE_ORIGINAL)?.nested().need(TUPLE_PORTS)?.nested();
    let addresses = entry.need(TUPLE_ORIGINAL)?.nested().need(TUPLE_ADDRESSES)?.nested();
    let source = match connection.server.ip() {
        IpAddr::V4(ip) => addresses.find(SOURCE4)?.is_some_and(|source| source.value == ip.octets()),
        IpAddr::V6(ip) => addresses.find(SOURCE6)?.is_some_and(|source| source.value == ip.octets()),
    };
    let opened_by_server = source && ports.need(PORTS_SOURCE)?.value == connection.server.port().to_be_bytes();
    if !opened_by_server || entry.need(STATUS)?.u32()? & STATUS_TRANSLATED != 0 {
        return Ok(false);
    }
    let Some(state) = entry.find(PROTOCOL_STATE)? else { return Ok(false) };
    let Some(tcp) = state.nested().find(STATE_TCP)? else { return Ok(false) };
    for kind in TCP_FLAGS {
        if tcp.nested().find(kind)?.and_then(|flags| flags.value.first()).is_none_or(|flags| flags & FLAG_LIBERAL == 0)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes an entry away; false if it went by itself.
fn drop_entry(link: &mut Link, connection: Connection) -> Result<bool, Error> {
    let request = request(link, DELETE, n::ACK, connection).finish();
    match link.ask(&request, "forget a connection", |_| Ok(())) {
        Ok(()) => Ok(true),
        Err(Error::Refused { errno: libc::ENOENT, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
