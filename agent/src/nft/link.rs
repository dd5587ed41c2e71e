//! The netlink socket: bytes out in one datagram, answers in until there are none.
//!
//! - The kernel works a request off before the send returns, so answers wait already; a batch is drained without blocking and never waited for.
//! - Messages of an older request are recognised by their sequence number and skipped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use mnl::mnl_sys::libc;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use socket2::SockRef;

use super::attr::{Malformed, Message, Messages, number};
use super::numbers as n;

/// 64 MiB: a batch of 10,000 rules is 2.8 MB and one of 100,000 intervals 4 MB; both took this at the first try.
const BUFFER_BYTES: libc::c_int = 64 << 20;
/// Dumps come in pieces of at most 32 KiB.
const RECEIVE_BYTES: usize = 128 << 10;
/// How long a dump may make us wait for its next piece.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Why the kernel did not do or tell something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("netlink socket: cannot {doing}")]
    Socket {
        /// What was tried.
        doing: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel said no.
    #[error("the kernel refuses to {doing}: {}", io::Error::from_raw_os_error(*.errno))]
    Refused {
        /// What was tried.
        doing: &'static str,
        /// Its reason.
        errno: i32,
    },
    /// Somebody else changed the ruleset between our reading and our writing.
    #[error("the ruleset changed between reading and writing")]
    Stale,
    /// The ruleset changed again and again while it was read.
    #[error("the ruleset changes faster than it can be read")]
    Restless,
    /// The answer cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The answer did not come.
    #[error("the kernel did not answer")]
    Silent,
}

impl Error {
    /// Whether only answers found no room, which says nothing of what was asked.
    pub(super) fn is_overrun(&self) -> bool {
        matches!(self, Self::Socket { source, .. } if source.raw_os_error() == Some(libc::ENOBUFS))
    }

    /// Whether the same request may be granted a moment later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Stale | Self::Restless => true,
            Self::Refused { errno, .. } => is_transient(*errno),
            Self::Socket { source, .. } => source.raw_os_error().is_some_and(is_transient),
            Self::Malformed(_) | Self::Silent => false,
        }
    }
}

fn is_transient(errno: i32) -> bool {
    matches!(errno, libc::EBUSY | libc::ENOBUFS | libc::ENOMEM | libc::EINTR | libc::EAGAIN)
}

/// What the kernel answered to a batch. It is a hint at the reason, never the decision.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The first refusal.
    pub(super) error: Option<Error>,
}

/// An open socket to nf_tables.
pub(super) struct Link {
    socket: mnl::Socket,
    seq: u32,
    buffer: Vec<u8>,
}

impl Link {
    /// Opens a socket that listens to `groups` (0 for none).
    pub(super) fn open(groups: u32) -> Result<Self, Error> {
        let failed = |doing| move |source| Error::Socket { doing, source };
        let socket = mnl::Socket::open(mnl::Bus::Netfilter).map_err(failed("open it"))?;
        socket.bind(groups, 0).map_err(failed("bind it"))?;
        let link = Self { socket, seq: 0, buffer: vec![0; RECEIVE_BYTES] };
        fcntl(link.fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
            .map_err(|errno| Error::Socket { doing: "keep it from children", source: errno.into() })?;
        SockRef::from(&link.fd()).set_read_timeout(Some(PIECE_TIMEOUT)).map_err(failed("set its timeout"))?;
        link.widen(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
        link.widen(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
        #[cfg(feature = "test-hooks")]
        if let Some(bytes) = super::hook::receive_bytes() {
            link.option(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes).map_err(failed("narrow it"))?;
        }
        link.option(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1).map_err(failed("shorten its answers"))?;
        Ok(link)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to `self.socket`, which the borrow keeps open.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }

    /// In a user namespace the forced size is refused; small batches work with what is granted, and a read-back decides anyway.
    fn widen(&self, forced: libc::c_int, plain: libc::c_int) {
        if self.option(libc::SOL_SOCKET, forced, BUFFER_BYTES).is_err()
            && let Err(error) = self.option(libc::SOL_SOCKET, plain, BUFFER_BYTES)
        {
            tracing::warn!(%error, "netlink buffer keeps its default size");
        }
    }

    fn option(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
        // SAFETY: the descriptor is open, `value` lives through the call and `len` is its size.
        let done = unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// A sequence number for the next request.
    pub(super) fn next_seq(&mut self) -> u32 {
        // Batches number their messages from 1; requests of one message stay far above.
        self.seq = self.seq.wrapping_add(1) | 0x8000_0000;
        self.seq
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        let failed = |source| Error::Socket { doing: "send", source };
        let sent = self.socket.send(bytes).map_err(failed)?;
        if sent == bytes.len() { Ok(()) } else { Err(failed(io::ErrorKind::WriteZero.into())) }
    }

    /// One datagram; `Ok(None)` if none waits.
    fn receive(&mut self, flags: libc::c_int) -> Result<Option<usize>, Error> {
        loop {
            let (buffer, len) = (self.buffer.as_mut_ptr(), self.buffer.len());
            // SAFETY: the descriptor is open; `buffer` is valid for `len` bytes and borrowed by nobody else.
            let got = unsafe { libc::recv(self.socket.as_raw_fd(), buffer.cast(), len, flags) };
            if let Ok(got) = usize::try_from(got) {
                return Ok(Some(got));
            }
            match io::Error::last_os_error() {
                // A process that was held still and goes on; the kernel does not begin a wait with a limit anew by itself.
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                source => return Err(Error::Socket { doing: "receive", source }),
            }
        }
    }

    /// Forgets what still waits from an earlier request.
    fn clear(&mut self) {
        // An overrun is told once and ends with this; anything else shows at the next request.
        while !matches!(self.receive(libc::MSG_DONTWAIT), Ok(None)) {}
    }

    /// Sends a batch and reads what the kernel says to it at once; a refusal comes before answers that found no room.
    pub(super) fn batch(&mut self, bytes: &[u8], doing: &'static str) -> Answer {
        self.clear();
        if let Err(error) = self.send(bytes) {
            return Answer { error: Some(error) };
        }
        let (mut first, mut overrun) = (None, None);
        loop {
            match self.receive(libc::MSG_DONTWAIT) {
                Ok(None) => return Answer { error: first.or(overrun) },
                Ok(Some(len)) => {
                    for message in Messages(self.buffer.get(..len).unwrap_or_default()) {
                        let refusal = message.map_err(Error::from).and_then(|message| refused(&message, doing));
                        if let Err(error) = refusal {
                            first.get_or_insert(error);
                        }
                    }
                }
                // Told once, before the answers that did find room.
                Err(error) if error.is_overrun() && overrun.is_none() => overrun = Some(error),
                Err(error) => return Answer { error: Some(first.unwrap_or(error)) },
            }
        }
    }

    /// Sends one request and hands every message of the answer to `visit`.
    pub(super) fn ask(
        &mut self,
        request: &[u8],
        doing: &'static str,
        mut visit: impl FnMut(&Message<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        self.clear();
        let flags = number(request, 6).map_or(0, u16::from_ne_bytes);
        let (is_dump, seq) = (flags & n::DUMP == n::DUMP, number(request, 8).map_or(0, u32::from_ne_bytes));
        self.send(request)?;
        loop {
            let wait = if is_dump { 0 } else { libc::MSG_DONTWAIT };
            let len = self.receive(wait)?.ok_or(Error::Silent)?;
            for message in Messages(self.buffer.get(..len).unwrap_or_default()) {
                let message = message?;
                if message.seq != seq {
                    continue;
                }
                if message.flags & n::DUMP_INTERRUPTED != 0 {
                    return Err(Error::Stale);
                }
                match message.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return refused(&message, doing),
                    _ => visit(&message)?,
                }
                if !is_dump {
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the next datagram that nobody asked for; `Ok(None)` after the timeout, or if the kernel dropped some.
    pub(super) fn listen(&mut self, mut visit: impl FnMut(&Message<'_>)) -> Result<Heard, Error> {
        match self.receive(0) {
            Ok(None) => Ok(Heard::Nothing),
            Ok(Some(len)) => {
                Messages(self.buffer.get(..len).unwrap_or_default()).flatten().for_each(|message| visit(&message));
                Ok(Heard::Something)
            }
            Err(error) if error.is_overrun() => Ok(Heard::Lost),
            Err(error) => Err(error),
        }
    }
}

/// How a wait for notices ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// The time was up.
    Nothing,
    /// A datagram came.
    Something,
    /// The kernel could not keep all of them for us.
    Lost,
}

/// Whether a message is a refusal; an acknowledgement is none.
fn refused(message: &Message<'_>, doing: &'static str) -> Result<(), Error> {
    if message.kind != NLMSG_ERROR {
        return Ok(());
    }
    let errno = number(message.payload, 0).map(i32::from_ne_bytes).ok_or(Malformed)?;
    match -errno {
        0 => Ok(()),
        // The kernel's own ERESTART (85): the generation that the batch names is not the current one.
        libc::ERESTART => Err(Error::Stale),
        errno => Err(Error::Refused { doing, errno }),
    }
}
