//! The bytes taken apart, every rule of the format checked.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::Bytes;
use crate::spans::Spans;

/// The 16 bytes that name a rule or a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub [u8; 16]);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why bytes are no artifact. Offsets count from the first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The first byte names a format that is not read here.
    #[error("format {0} is not known, format 1 is")]
    Format(u8),
    /// More bytes are needed.
    #[error("the bytes end at {offset} in the middle of something")]
    EndsEarly {
        /// Where.
        offset: usize,
    },
    /// Bytes follow the end.
    #[error("the artifact ends at {offset}, and bytes follow")]
    Trailing {
        /// Where it ends.
        offset: usize,
    },
    /// A number too large for its place, or with a needless byte.
    #[error("the number at {offset} is too large or not in its shortest form")]
    Number {
        /// Where it starts.
        offset: usize,
    },
    /// A count of more things than bytes can hold.
    #[error("the count at {offset} is larger than what follows")]
    Count {
        /// Where it starts.
        offset: usize,
    },
    /// A byte with a value that means nothing in its place.
    #[error("the byte at {offset} means nothing there: {value}")]
    Value {
        /// Where.
        offset: usize,
        /// The byte.
        value: u8,
    },
    /// Things that must ascend, be apart or be there once are not.
    #[error("what ends at {offset} is not in canonical form")]
    Canonical {
        /// Where it ends.
        offset: usize,
    },
    /// A rule names a set that is not there.
    #[error("a rule names set {0}, which is not there")]
    NoSet(Key),
    /// No rule names a set.
    #[error("no rule names set {0}")]
    IdleSet(Key),
}

/// How far a host enforces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Everything passes.
    Visibility,
    /// Everything passes, denials are counted.
    Simulation,
    /// Denials are dropped.
    Enforced,
}

/// What a rule that matches says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Action {
    /// No.
    Deny,
    /// Yes.
    Allow,
}

/// What a rule wants of a packet beside its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Match {
    Everything,
    Protocol(u8),
    Ports {
        protocol: u8,
        ports: Spans,
    },
    /// Type and code as one number, the type above: `type * 256 + code`.
    Icmp {
        v6: bool,
        kinds: Spans,
    },
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) order: i32,
    pub(crate) action: Action,
    pub(crate) wants: Match,
    /// Index of the set of peers; any peer if absent.
    pub(crate) peers: Option<usize>,
    /// Index of the set of own addresses; any if absent.
    pub(crate) local: Option<usize>,
}

/// The rules of a direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lines {
    pub(crate) isolated: bool,
    pub(crate) lines: Vec<Line>,
}

/// Members of a set: first and last address of each interval, ascending, apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Addresses {
    v4: Vec<(Ipv4Addr, Ipv4Addr)>,
    v6: Vec<(Ipv6Addr, Ipv6Addr)>,
}

impl Addresses {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        fn within<A: Ord>(intervals: &[(A, A)], address: &A) -> bool {
            let after = intervals.partition_point(|(first, _)| first <= address);
            after > 0 && intervals.get(after - 1).is_some_and(|(_, last)| address <= last)
        }
        match address.to_canonical() {
            IpAddr::V4(address) => within(&self.v4, &address),
            IpAddr::V6(address) => within(&self.v6, &address),
        }
    }
}

/// A policy body as its bytes say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Artifact {
    mode: Mode,
    pub(crate) ingress: Lines,
    pub(crate) egress: Lines,
    pub(crate) sets: Vec<Addresses>,
}

impl Artifact {
    /// Reads the flat bytes of a body.
    ///
    /// # Errors
    /// [`Error`] for every byte string that is not the one encoding of a body.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut bytes = Bytes::new(bytes);
        match bytes.octet()? {
            1 => {}
            other => return Err(Error::Format(other)),
        }
        let mode = read_mode(&mut bytes)?;
        let chains = [read_chain(&mut bytes)?, read_chain(&mut bytes)?];
        let (keys, sets) = read_sets(&mut bytes)?;
        if !bytes.is_at_end() {
            return Err(Error::Trailing { offset: bytes.offset() });
        }
        let mut idle: BTreeSet<Key> = keys.iter().copied().collect();
        let mut find = |key: Option<Key>| -> Result<Option<usize>, Error> {
            let Some(key) = key else { return Ok(None) };
            idle.remove(&key);
            keys.binary_search(&key).map(Some).map_err(|_| Error::NoSet(key))
        };
        let mut link = |chain: RawChain| -> Result<Lines, Error> {
            let mut lines = Vec::with_capacity(chain.lines.len());
            for (line, peers, local) in chain.lines {
                lines.push(Line { peers: find(peers)?, local: find(local)?, ..line });
            }
            Ok(Lines { isolated: chain.isolated, lines })
        };
        let [ingress, egress] = chains;
        let (ingress, egress) = (link(ingress)?, link(egress)?);
        match idle.first() {
            Some(key) => Err(Error::IdleSet(*key)),
            None => Ok(Self { mode, ingress, egress, sets }),
        }
    }

    /// How far the host enforces.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// Rules with the keys of their sets, before the sets are known.
struct RawChain {
    isolated: bool,
    lines: Vec<(Line, Option<Key>, Option<Key>)>,
}

fn read_mode(bytes: &mut Bytes<'_>) -> Result<Mode, Error> {
    let offset = bytes.offset();
    match bytes.octet()? {
        0 => Ok(Mode::Visibility),
        1 => Ok(Mode::Simulation),
        2 => Ok(Mode::Enforced),
        value => Err(Error::Value { offset, value }),
    }
}

fn read_chain(bytes: &mut Bytes<'_>) -> Result<RawChain, Error> {
    let isolated = bytes.yes()?;
    // Key 16, order 1, action 1, log 1, statement 1, peers 1, local 1.
    let count = bytes.count(22)?;
    let mut lines: Vec<(Line, Option<Key>, Option<Key>)> = Vec::with_capacity(count);
    let mut keys = BTreeSet::new();
    for _ in 0..count {
        let next = read_line(bytes)?;
        let place = |line: &Line| (line.order, line.action, line.key);
        let ascends = lines.last().is_none_or(|(last, ..)| place(last) < place(&next.0));
        if !ascends || !keys.insert(next.0.key) {
            return Err(Error::Canonical { offset: bytes.offset() });
        }
        lines.push(next);
    }
    Ok(RawChain { isolated, lines })
}

fn read_line(bytes: &mut Bytes<'_>) -> Result<(Line, Option<Key>, Option<Key>), Error> {
    let key = Key(bytes.take()?);
    let order = bytes.signed()?;
    let action = if bytes.yes()? { Action::Allow } else { Action::Deny };
    // Whether a match is logged: it decides nothing.
    bytes.yes()?;
    let wants = read_match(bytes)?;
    let mut set = || if bytes.yes()? { bytes.take().map(|key| Some(Key(key))) } else { Ok(None) };
    let (peers, local) = (set()?, set()?);
    Ok((Line { key, order, action, wants, peers: None, local: None }, peers, local))
}

fn read_match(bytes: &mut Bytes<'_>) -> Result<Match, Error> {
    let offset = bytes.offset();
    match bytes.octet()? {
        0 => Ok(Match::Everything),
        1 => bytes.octet().map(Match::Protocol),
        2 => read_ports(bytes),
        3 => read_icmp(bytes),
        value => Err(Error::Value { offset, value }),
    }
}

fn read_ports(bytes: &mut Bytes<'_>) -> Result<Match, Error> {
    let protocol = bytes.octet()?;
    let mut ranges = Vec::new();
    for _ in 0..bytes.count(4)? {
        ranges.push((u16::from_be_bytes(bytes.take()?), u16::from_be_bytes(bytes.take()?)));
    }
    let ports = Spans::of(ranges.iter().copied());
    let canonical = [6, 17, 132].contains(&protocol)
        && !ranges.is_empty()
        && ports.as_slice() == ranges.as_slice()
        && ports != Spans::all();
    if canonical { Ok(Match::Ports { protocol, ports }) } else { Err(Error::Canonical { offset: bytes.offset() }) }
}

fn read_icmp(bytes: &mut Bytes<'_>) -> Result<Match, Error> {
    let offset = bytes.offset();
    let v6 = match bytes.octet()? {
        4 => false,
        6 => true,
        value => return Err(Error::Value { offset, value }),
    };
    let count = bytes.count(3)?;
    let mut kinds: Vec<(u8, Option<u8>)> = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, coded, code) = (bytes.octet()?, bytes.yes()?, bytes.octet()?);
        let next = (kind, coded.then_some(code));
        if (!coded && code != 0) || kinds.last().is_some_and(|last| *last >= next) {
            return Err(Error::Canonical { offset: bytes.offset() });
        }
        kinds.push(next);
    }
    if kinds.is_empty() {
        return Err(Error::Canonical { offset: bytes.offset() });
    }
    let span = |(kind, code): (u8, Option<u8>)| {
        let number = |code| u16::from_be_bytes([kind, code]);
        (number(code.unwrap_or(0)), number(code.unwrap_or(u8::MAX)))
    };
    Ok(Match::Icmp { v6, kinds: Spans::of(kinds.into_iter().map(span)) })
}

fn read_sets(bytes: &mut Bytes<'_>) -> Result<(Vec<Key>, Vec<Addresses>), Error> {
    // Key 16, two counts.
    let count = bytes.count(18)?;
    let (mut keys, mut sets) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let key = Key(bytes.take()?);
        if keys.last().is_some_and(|last| *last >= key) {
            return Err(Error::Canonical { offset: bytes.offset() });
        }
        keys.push(key);
        sets.push(Addresses { v4: read_v4(bytes)?, v6: read_v6(bytes)? });
    }
    Ok((keys, sets))
}

fn read_v4(bytes: &mut Bytes<'_>) -> Result<Vec<(Ipv4Addr, Ipv4Addr)>, Error> {
    let mut intervals: Vec<(Ipv4Addr, Ipv4Addr)> = Vec::new();
    for _ in 0..bytes.count(5)? {
        let first = u32::from_be_bytes(bytes.take()?);
        let offset = bytes.offset();
        let extent = u32::try_from(bytes.number()?).map_err(|_| Error::Number { offset })?;
        let last = first.checked_add(extent).ok_or(Error::Number { offset })?;
        let apart = |end: u32| end.checked_add(1).is_some_and(|next| next < first);
        if intervals.last().is_some_and(|(_, end)| !apart(end.to_bits())) {
            return Err(Error::Canonical { offset: bytes.offset() });
        }
        intervals.push((Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last)));
    }
    Ok(intervals)
}

fn read_v6(bytes: &mut Bytes<'_>) -> Result<Vec<(Ipv6Addr, Ipv6Addr)>, Error> {
    let mut intervals: Vec<(Ipv6Addr, Ipv6Addr)> = Vec::new();
    for _ in 0..bytes.count(17)? {
        let first = u128::from_be_bytes(bytes.take()?);
        let offset = bytes.offset();
        let last = first.checked_add(bytes.number()?).ok_or(Error::Number { offset })?;
        let apart = |end: u128| end.checked_add(1).is_some_and(|next| next < first);
        if intervals.last().is_some_and(|(_, end)| !apart(end.to_bits())) {
            return Err(Error::Canonical { offset: bytes.offset() });
        }
        intervals.push((Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last)));
    }
    Ok(intervals)
}
