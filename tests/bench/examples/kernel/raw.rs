//! The floor: netlink batches over a socket that stays open, and a file made durable; nothing is checked, nothing is read back.
//!
//! It uses nftnl's messages as they come and a plain socket, and no code of the agent.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_bench::typical;
use nftnl::set::Set;
use nftnl::{Batch, Chain, Hook, MsgType, Policy, ProtoFamily, Rule, Table, nft_expr};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket, sockopt,
};

use crate::space::Space;
use crate::{Nft, set_text};

/// As much as the agent asks for: a batch of 100,000 elements is 2 MB and goes out as one datagram.
const BUFFER_BYTES: usize = 64 << 20;
const HEADER_BYTES: usize = 16;
/// `NLM_F_ACK` in the low byte of a message's flags.
const ACK: u8 = 4;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// What last good weighs in the comparison.
const FILE_BYTES: usize = 4_096;

/// A namespace and a socket in it.
pub(crate) struct Raw {
    space: Space,
    socket: OwnedFd,
    /// Whose members the sets have: the other's after each replacement.
    generation: u32,
}

impl Raw {
    /// An empty one.
    ///
    /// # Panics
    /// Without the rights of root.
    pub(crate) fn new() -> Self {
        let space = Space::new();
        let netfilter = SockProtocol::NetlinkNetFilter;
        let socket =
            socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, netfilter).expect("a socket");
        setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES).expect("root may have a large buffer");
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).expect("root may have a large buffer");
        let mut raw = Self { space, socket, generation: 1 };
        let mut batch = Batch::new();
        batch.add(&table(), MsgType::Add);
        raw.commit(batch);
        raw
    }

    /// The table deleted and made again with so many hash sets of so many members, and so many rules over them, built and committed.
    pub(crate) fn replace(&mut self, sets: u16, members: u32, rules: u16) -> Duration {
        self.space.enter();
        self.generation = 1 - self.generation;
        let begun = Instant::now();
        let table = table();
        let mut batch = Batch::new();
        batch.add(&table, MsgType::Del);
        batch.add(&table, MsgType::Add);
        let mut chain = Chain::new(c"in", &table);
        chain.set_hook(Hook::In, 10);
        chain.set_policy(Policy::Accept);
        batch.add(&chain, MsgType::Add);
        let mut all = Vec::new();
        for number in 0..sets {
            let mut set = named(number, &table);
            (0..members).for_each(|n| set.add(&Ipv4Addr::from_bits(typical::peer(self.generation, number, n))));
            batch.add(&set, MsgType::Add);
            batch.add_iter(set.elems_iter(), MsgType::Add);
            all.push(set);
        }
        for number in 0..rules {
            let mut rule = Rule::new(&chain);
            rule.add_expr(&nft_expr!(meta nfproto));
            rule.add_expr(&nft_expr!(cmp == 2_u8));
            rule.add_expr(&nft_expr!(payload ipv4 saddr));
            rule.add_expr(&nft_expr!(lookup & all[usize::from(number % sets)]));
            rule.add_expr(&nft_expr!(meta l4proto));
            rule.add_expr(&nft_expr!(cmp == 6_u8));
            rule.add_expr(&nft_expr!(payload tcp dport));
            rule.add_expr(&nft_expr!(cmp == (1_000 + number).to_be()));
            rule.add_expr(&nft_expr!(counter));
            rule.add_expr(&nft_expr!(verdict accept));
            batch.add(&rule, MsgType::Add);
        }
        self.commit(batch);
        begun.elapsed()
    }

    /// One member of the first set comes or goes.
    pub(crate) fn element(&mut self, address: u32, comes: bool) -> Duration {
        self.space.enter();
        let begun = Instant::now();
        let table = table();
        let mut set = named(0, &table);
        set.add(&Ipv4Addr::from_bits(address));
        let mut batch = Batch::new();
        batch.add_iter(set.elems_iter(), if comes { MsgType::Add } else { MsgType::Del });
        self.commit(batch);
        begun.elapsed()
    }

    /// One whose table `peer` has a set of intervals, which `nft` made.
    pub(crate) fn with_intervals(count: u32) -> Self {
        let Self { space, socket, generation } = Self::new();
        let nft = Nft(space);
        nft.load(&set_text(0, count, "flags interval;"));
        Self { space: nft.0, socket, generation }
    }

    /// One interval of one address of that set comes or goes. nftnl's safe messages have no intervals, so these bytes are written here.
    pub(crate) fn interval(&mut self, address: u32, comes: bool) -> Duration {
        self.space.enter();
        let begun = Instant::now();
        let mut list = Vec::new();
        for (key, end) in [(address, &[][..]), (address + 1, &attribute(3, &1_u32.to_be_bytes())[..])] {
            let key = attribute(NESTED | 1, &attribute(1, &key.to_be_bytes()));
            list.extend(attribute(NESTED | 1, &[&key, end].concat()));
        }
        let payload = [attribute(1, b"peer\0"), attribute(2, b"members\0"), attribute(NESTED | 3, &list)].concat();
        // NFT_MSG_NEWSETELEM and NFT_MSG_DELSETELEM; NFNL_MSG_BATCH_BEGIN and END name the subsystem in their header.
        let (kind, create) = if comes { (12, 0x400) } else { (14, 0) };
        let bytes = [
            message(0x10, 1, 1, [0, 0, 0, 10], &[]),
            message(10 << 8 | kind, 1 | create, 2, [1, 0, 0, 0], &payload),
            message(0x11, 1 | u16::from(ACK), 3, [0, 0, 0, 10], &[]),
        ];
        self.send(&bytes.concat(), 3);
        begun.elapsed()
    }

    /// Sends a batch as one datagram and reads the one answer that it asks for, that of its end.
    fn commit(&mut self, batch: Batch) {
        let batch = batch.finalize();
        let last = batch.sequence_numbers().end - 1;
        let mut bytes: Vec<u8> = batch.iter().flatten().copied().collect();
        let mut at = 0;
        while at + HEADER_BYTES <= bytes.len() {
            let word = |from| [bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]];
            let (len, seq) = (u32::from_ne_bytes(word(at)), u32::from_ne_bytes(word(at + 8)));
            if seq != last {
                bytes[at + 6] &= !ACK;
            }
            at += (len as usize).next_multiple_of(4);
        }
        self.send(&bytes, last);
    }

    fn send(&mut self, bytes: &[u8], last: u32) {
        let kernel = NetlinkAddr::new(0, 0);
        let sent = sendto(self.socket.as_raw_fd(), bytes, &kernel, MsgFlags::empty()).expect("the kernel takes it");
        assert_eq!(sent, bytes.len(), "a datagram goes out whole");
        let mut answer = [0_u8; 4_096];
        let len = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty()).expect("the kernel answers");
        assert!(len >= HEADER_BYTES + 4, "an answer has a code");
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        let seq = u32::from_ne_bytes([answer[8], answer[9], answer[10], answer[11]]);
        let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
        assert_eq!((kind, seq, code), (ERROR, last, 0), "the kernel commits the batch");
    }
}

/// A netlink attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len() + 4).expect("a short one");
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A netfilter message: its header, family and resource, and attributes.
fn message(kind: u16, flags: u16, seq: u32, family: [u8; 4], attributes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_BYTES + family.len() + attributes.len()).expect("a short one");
    let head =
        [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &seq.to_ne_bytes(), &[0; 4]].concat();
    [&head, &family[..], attributes].concat()
}

fn table() -> Table {
    Table::new(c"floor", ProtoFamily::Inet)
}

fn named(number: u16, table: &Table) -> Set<'_, Ipv4Addr> {
    let name = CString::new(format!("s{number}")).expect("no zero in it");
    Set::new_named(&name, u32::from(number) + 1, table, ProtoFamily::Inet)
}

/// Makes 4 kB durable: written beside, synced, renamed, the folder synced.
pub(crate) fn save(folder: &Path) -> Duration {
    let bytes = [7_u8; FILE_BYTES];
    let (new, path) = (folder.join("last-good.new"), folder.join("last-good"));
    let begun = Instant::now();
    let mut file = File::create(&new).expect("the folder is ours");
    file.write_all(&bytes).and_then(|()| file.sync_all()).expect("the disk takes it");
    fs::rename(&new, &path).expect("the folder is ours");
    File::open(folder).and_then(|folder| folder.sync_all()).expect("the disk takes it");
    begun.elapsed()
}
