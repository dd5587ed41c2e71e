//! The packets that probes send through raw sockets, and what comes back. Pure.
//!
//! - Every packet carries its mark in its first eight bytes: those are what an ICMP error quotes.

/// An SCTP chunk that opens an association.
const SCTP_INIT: u8 = 1;
/// The answer to it.
const SCTP_INIT_ACK: u8 = 2;
/// The refusal of it.
const SCTP_ABORT: u8 = 6;
/// Bytes of an SCTP common header.
const SCTP_HEADER_BYTES: usize = 12;
/// Bytes of an INIT or INIT ACK chunk without parameters.
const SCTP_INIT_BYTES: u16 = 20;
/// The state cookie that every INIT ACK must carry: its header and eight bytes.
const SCTP_COOKIE: [u8; 12] = [0, 7, 0, 12, b'h', b'o', b'l', b'd', b'f', b'a', b's', b't'];
/// The start of a probe of another protocol: as a GRE header this is a plain one (version 0, no options) that carries the ethertype for
/// local experiments, so connection tracking takes it for well-formed.
const PLAIN_HEADER: [u8; 4] = [0, 0, 0x88, 0xb5];
const PLAIN_REQUEST: u8 = b'Q';
const PLAIN_ANSWER: u8 = b'A';

/// What a raw packet is to a prober.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Somebody's probe; the mark is to be sent back.
    Request {
        /// The asker's port or mark.
        mark: u16,
        /// Our port, 0 where there is none.
        port: u16,
        /// What the answer must repeat.
        tag: u32,
    },
    /// An answer to a probe of ours.
    Answer {
        /// Our port or mark.
        mark: u16,
        /// The other's port, 0 where there is none.
        port: u16,
    },
    /// A refusal of a probe of ours by the other end.
    Refusal {
        /// Our port or mark.
        mark: u16,
        /// The other's port.
        port: u16,
    },
    /// Nothing of ours.
    Other,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// CRC32c (Castagnoli), as SCTP uses it. Bit by bit: a probe has 44 bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL_REFLECTED: u32 = 0x82f6_3b78;
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL_REFLECTED } else { crc >> 1 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

fn sctp(ports: [u16; 2], verification_tag: u32, chunk_type: u8, initiate_tag: u32, parameters: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(SCTP_HEADER_BYTES + usize::from(SCTP_INIT_BYTES) + parameters.len());
    ports.iter().for_each(|port| packet.extend(port.to_be_bytes()));
    packet.extend(verification_tag.to_be_bytes());
    packet.extend([0; 4]);
    packet.extend([chunk_type, 0]);
    let parameter_bytes = u16::try_from(parameters.len()).expect("the parameters are a constant of 12 bytes or none");
    packet.extend((SCTP_INIT_BYTES + parameter_bytes).to_be_bytes());
    packet.extend(initiate_tag.to_be_bytes());
    // Receive window, streams both ways, first sequence number: the least that the standard accepts.
    packet.extend(65_536_u32.to_be_bytes());
    packet.extend([0, 1, 0, 1]);
    packet.extend(initiate_tag.to_be_bytes());
    packet.extend(parameters);
    let checksum = crc32c(&packet).to_le_bytes();
    packet.iter_mut().skip(8).zip(checksum).for_each(|(at, byte)| *at = byte);
    packet
}

/// An INIT from our port to another's.
pub(super) fn sctp_init(mark: u16, port: u16) -> Vec<u8> {
    sctp([mark, port], 0, SCTP_INIT, u32::from(mark) | 1 << 31, &[])
}

/// The INIT ACK to an INIT.
pub(super) fn sctp_init_ack(own_port: u16, mark: u16, tag: u32) -> Vec<u8> {
    sctp([own_port, mark], tag, SCTP_INIT_ACK, u32::from(own_port) | 1 << 30, &SCTP_COOKIE)
}

/// Reads an SCTP packet.
pub(super) fn read_sctp(bytes: &[u8]) -> Seen {
    let read = || {
        let (from, to) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?);
        Some(match *bytes.get(SCTP_HEADER_BYTES)? {
            SCTP_INIT => Seen::Request { mark: from, port: to, tag: u32_at(bytes, SCTP_HEADER_BYTES + 4)? },
            SCTP_INIT_ACK => Seen::Answer { mark: to, port: from },
            SCTP_ABORT => Seen::Refusal { mark: to, port: from },
            _ => Seen::Other,
        })
    };
    read().unwrap_or(Seen::Other)
}

/// A probe of a protocol that has no form of its own.
pub(super) fn plain_request(mark: u16) -> Vec<u8> {
    plain(mark, PLAIN_REQUEST)
}

/// The answer to it.
pub(super) fn plain_answer(mark: u16) -> Vec<u8> {
    plain(mark, PLAIN_ANSWER)
}

fn plain(mark: u16, kind: u8) -> Vec<u8> {
    let [high, low] = mark.to_be_bytes();
    [&PLAIN_HEADER[..], &[high, low, kind, 0], b"holdfast"].concat()
}

/// Reads a packet of such a protocol.
pub(super) fn read_plain(bytes: &[u8]) -> Seen {
    if !bytes.starts_with(&PLAIN_HEADER) || bytes.get(8..16) != Some(b"holdfast") {
        return Seen::Other;
    }
    match (u16_at(bytes, 4), bytes.get(6)) {
        (Some(mark), Some(&PLAIN_REQUEST)) => Seen::Request { mark, port: 0, tag: 0 },
        (Some(mark), Some(&PLAIN_ANSWER)) => Seen::Answer { mark, port: 0 },
        _ => Seen::Other,
    }
}

/// The ICMP of one family.
#[derive(Clone, Copy)]
pub(super) struct Icmp {
    echo_request: u8,
    echo_reply: u8,
    unreachable: u8,
    /// Its own number as a protocol.
    pub(super) protocol: u8,
}

/// ICMP of IPv4.
pub(super) const ICMP_V4: Icmp = Icmp { echo_request: 8, echo_reply: 0, unreachable: 3, protocol: 1 };
/// ICMP of IPv6.
pub(super) const ICMP_V6: Icmp = Icmp { echo_request: 128, echo_reply: 129, unreachable: 1, protocol: 58 };
/// "Too big, may not be split": an unreachable of IPv4 that refuses nothing.
const CODE_FRAGMENTATION_NEEDED: u8 = 4;

/// What an ICMP error quotes of the packet that it refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Quoted<'a> {
    /// The packet's protocol.
    pub(super) protocol: u8,
    /// Its source address, as bytes.
    pub(super) source: &'a [u8],
    /// Its destination address, as bytes.
    pub(super) destination: &'a [u8],
    /// Its first bytes above IP.
    pub(super) start: &'a [u8],
}

impl Icmp {
    /// An echo request. Over IPv6 the kernel fills in the checksum.
    pub(super) fn echo(self, mark: u16) -> Vec<u8> {
        let [high, low] = mark.to_be_bytes();
        let mut packet = [&[self.echo_request, 0, 0, 0, high, low, 0, 1], &b"holdfast"[..]].concat();
        let words = packet.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let [.., high, low] = (!((folded & 0xffff) + (folded >> 16))).to_be_bytes();
        packet[2..4].copy_from_slice(&[high, low]);
        packet
    }

    /// Reads an echo reply. The kernel answers the requests.
    pub(super) fn read_echo(self, bytes: &[u8]) -> Seen {
        match (bytes.first(), u16_at(bytes, 4)) {
            (Some(kind), Some(mark)) if *kind == self.echo_reply => Seen::Answer { mark, port: 0 },
            _ => Seen::Other,
        }
    }

    /// Reads what an unreachable quotes.
    pub(super) fn read_unreachable(self, bytes: &[u8]) -> Option<Quoted<'_>> {
        let (kind, code) = (*bytes.first()?, *bytes.get(1)?);
        let quoted = bytes.get(8..)?;
        if kind != self.unreachable {
            return None;
        }
        if self.protocol == ICMP_V6.protocol {
            return Some(Quoted {
                protocol: *quoted.get(6)?,
                source: quoted.get(8..24)?,
                destination: quoted.get(24..40)?,
                start: quoted.get(40..)?,
            });
        }
        let header_bytes = usize::from(quoted.first()? & 0x0f) * 4;
        (code != CODE_FRAGMENTATION_NEEDED).then_some(Quoted {
            protocol: *quoted.get(9)?,
            source: quoted.get(12..16)?,
            destination: quoted.get(16..20)?,
            start: quoted.get(header_bytes..)?,
        })
    }
}

impl Quoted<'_> {
    /// The mark and the other's port that the quoted probe had.
    pub(super) fn mark_and_port(&self) -> Option<(u16, u16)> {
        match self.protocol {
            6 | 17 | 132 => Some((u16_at(self.start, 0)?, u16_at(self.start, 2)?)),
            _ => Some((u16_at(self.start, 4)?, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_is_the_one_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_init_is_answered_with_its_own_tag_to_its_own_port() {
        let init = sctp_init(40_000, 2905);
        let Seen::Request { mark: 40_000, port: 2905, tag } = read_sctp(&init) else { panic!("no INIT") };
        let ack = sctp_init_ack(2905, 40_000, tag);
        assert_eq!(ack[4..8], tag.to_be_bytes());
        assert_eq!(read_sctp(&ack), Seen::Answer { mark: 40_000, port: 2905 });
        assert_eq!((ack.len(), &ack[14..16]), (44, &[0, 32][..]));
    }

    #[test]
    fn plain_packets_keep_their_mark_and_others_are_not_ours() {
        assert_eq!(read_plain(&plain_request(7)), Seen::Request { mark: 7, port: 0, tag: 0 });
        assert_eq!(read_plain(&plain_answer(7)), Seen::Answer { mark: 7, port: 0 });
        assert_eq!(read_plain(b"something else entirely"), Seen::Other);
    }

    #[test]
    fn a_refusal_names_the_probe_that_it_quotes() {
        let mut quoted = vec![0; 20];
        quoted[0] = 0x45;
        quoted[9] = 47;
        quoted.extend(plain_request(300));
        let error = [&[3, 2, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        assert_eq!(ICMP_V4.read_unreachable(&error).and_then(|quoted| quoted.mark_and_port()), Some((300, 0)));
        assert_eq!(ICMP_V4.read_unreachable(&ICMP_V4.echo(300)), None);
        assert_eq!(ICMP_V4.read_unreachable(&error[..12]), None);
    }

    #[test]
    fn an_echo_sums_to_all_ones() {
        let echo = ICMP_V4.echo(0xbeef);
        let sum: u32 = echo.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
