//! One batch: what a plan or an edit is as netlink messages.
//!
//! - All pages go out as one datagram: the kernel takes each datagram as a batch of its own, and one without an end is thrown away.
//! - No message asks for an acknowledgement; refusals come anyway, and a thousand acknowledgements would overrun the socket.
//! - The begin names the generation that was read; the kernel refuses the batch if another one is current.

use std::ffi::{CStr, c_void};
use std::net::{Ipv4Addr, Ipv6Addr};

use nftnl::nftnl_sys as sys;
use nftnl::set::{Set, SetKey};
use nftnl::{Batch, Chain, ChainType, MsgType, NlMsg, Policy, ProtoFamily, Rule, Table};

use super::attr::{Message, Messages, Writer, number};
use super::expr::{Encoded, c_string};
use super::link::Error;
use super::numbers as n;
#[cfg(feature = "test-hooks")]
use crate::plan::Ruleset;
use crate::plan::{self, Boundary, Edits, Frame, Members, Span, TABLE};

/// Elements go into messages of at most this many bytes: the list is one attribute, whose length has 16 bits.
const ELEMENT_LIST_BYTES_MAX: usize = 60_000;

/// The bytes of one batch.
pub(super) struct Bytes {
    bytes: Vec<u8>,
    end_at: usize,
}

impl Bytes {
    /// All of it: the kernel commits.
    pub(super) fn whole(&self) -> &[u8] {
        &self.bytes
    }

    /// All but the end: the kernel checks everything and commits nothing.
    pub(super) fn dry(&self) -> &[u8] {
        self.bytes.get(..self.end_at).unwrap_or(&self.bytes)
    }
}

/// A message that nftnl has no type for.
struct Own(Vec<u8>);

// SAFETY: `write` copies the message, whose length is at most 60,000 bytes and a little, into a buffer of at least `nft_nlmsg_maxsize()`.
unsafe impl NlMsg for Own {
    unsafe fn write(&self, buf: *mut c_void, seq: u32, _: MsgType) {
        let len = self.0.len().min(nftnl::nft_nlmsg_maxsize() as usize);
        // SAFETY: the caller gives `nft_nlmsg_maxsize()` bytes; the two do not overlap; the sequence number lies at bytes 8 to 11 of the header,
        // which every message has.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.as_ptr(), buf.cast::<u8>(), len);
            std::ptr::copy_nonoverlapping(seq.to_ne_bytes().as_ptr(), buf.cast::<u8>().add(8), 4);
        }
    }
}

/// The kernel's `inet_service`.
struct Port(u16);

impl SetKey for Port {
    const TYPE: u32 = 13;
    const LEN: u32 = 2;

    fn data(&self) -> Box<[u8]> {
        self.0.to_be_bytes().into()
    }
}

/// A rule that goes to the end of its chain, or right before the rule at its position.
struct Placed<'a> {
    rule: Rule<'a>,
    is_before: bool,
}

// SAFETY: nftnl writes the message; the flags lie at bytes 6 and 7 of the header, which every message has.
unsafe impl NlMsg for Placed<'_> {
    unsafe fn write(&self, buf: *mut c_void, seq: u32, message: MsgType) {
        // SAFETY: the caller's promise about `buf` is passed on as it is.
        unsafe { self.rule.write(buf, seq, message) };
        if self.is_before {
            // With APPEND the kernel puts a rule behind its position, without it before.
            // SAFETY: as above.
            unsafe {
                let flags = buf.cast::<u8>().add(6).cast::<u16>();
                flags.write_unaligned(flags.read_unaligned() & !n::APPEND);
            }
        }
    }
}

/// Takes an orphaned table over without touching what it holds.
pub(super) fn adopt(flags: u32, generation: u32) -> Result<Bytes, Error> {
    let mut batch = Batch::new();
    add_table(&mut batch, &table(), flags);
    finish(batch, generation)
}

/// Takes the table away.
pub(super) fn remove(generation: u32) -> Result<Bytes, Error> {
    let (mut batch, table) = (Batch::new(), table());
    #[cfg(feature = "test-hooks")]
    refuse(&mut batch, &table);
    batch.add(&table, MsgType::Del);
    finish(batch, generation)
}

/// Changes only what an edit names; a table that comes has these flags.
pub(super) fn edit(edits: &Edits, flags: u32, generation: u32) -> Result<Bytes, Error> {
    let table = table();
    let mut batch = Batch::new();
    if edits.table_drop {
        batch.add(&table, MsgType::Del);
    }
    if edits.table_put {
        add_table(&mut batch, &table, flags);
    }
    for chain in &edits.chains {
        let of = Chain::new(c_string(chain.name), &table);
        for handle in &chain.drop {
            let mut rule = Rule::new(&of);
            rule.set_handle(*handle);
            batch.add(&rule, MsgType::Del);
        }
    }
    let gone: Vec<Chain<'_>> = edits.chains_drop.iter().map(|name| Chain::new(c_string(name), &table)).collect();
    // All their rules first: one of them may jump to another.
    gone.iter().for_each(|chain| batch.add(&Rule::new(chain), MsgType::Del));
    gone.iter().for_each(|chain| batch.add(chain, MsgType::Del));
    for name in &edits.sets_drop {
        batch.add(&Set::<Port>::new_named(&c_string(name), 0, &table, ProtoFamily::Inet), MsgType::Del);
    }
    for set in &edits.sets {
        put_elements(&mut batch, &set.name, &set.remove, n::DELETE_ELEMENTS);
        put_elements(&mut batch, &set.name, &set.add, n::NEW_ELEMENTS);
    }
    for (name, members) in &edits.sets_put {
        put_set(&mut batch, &table, name, members);
    }
    for frame in edits.chains_put.iter().chain(&edits.policies) {
        batch.add(&chain_of(&table, *frame), MsgType::Add);
    }
    for chain in &edits.chains {
        let of = Chain::new(c_string(chain.name), &table);
        for put in &chain.put {
            let mut rule = rule_of(&of, &put.rule);
            if let Some(handle) = put.before {
                rule.set_position(handle);
            }
            batch.add(&Placed { rule, is_before: put.before.is_some() }, MsgType::Add);
        }
    }
    #[cfg(feature = "test-hooks")]
    refuse(&mut batch, &table);
    finish(batch, generation)
}

/// Asks for what is not there too, if a test wants it so.
#[cfg(feature = "test-hooks")]
fn refuse(batch: &mut Batch, table: &Table) {
    if super::hook::refuses() {
        batch.add(&Set::<Port>::new_named(c"not_there", 0, table, ProtoFamily::Inet), MsgType::Del);
    }
}

/// Takes one interval out of the first set that has any, or all rules out of the first chain: what a test wants to see found.
#[cfg(feature = "test-hooks")]
pub(super) fn alteration(target: &Ruleset) -> Result<Bytes, Error> {
    let table = table();
    let mut batch = Batch::new();
    match target.sets.iter().find_map(|(name, members)| Some((name, *members.spans().first()?))) {
        Some((name, span)) => put_elements(&mut batch, name, &[span], n::DELETE_ELEMENTS),
        None => {
            let name = target.chains.first().map_or("in", |chain| chain.name);
            batch.add(&Rule::new(&Chain::new(c_string(name), &table)), MsgType::Del);
        }
    }
    // Generation 0 is no generation: the kernel compares nothing.
    finish(batch, 0)
}

fn table() -> Table {
    Table::new(c_string(TABLE), ProtoFamily::Inet)
}

fn add_table(batch: &mut Batch, table: &Table, flags: u32) {
    if flags == 0 {
        batch.add(table, MsgType::Add);
        return;
    }
    let mut writer = own(n::NEW_TABLE, n::REQUEST | n::CREATE);
    writer.text(n::TABLE_NAME, TABLE);
    writer.u32(n::TABLE_FLAGS, flags);
    batch.add(&Own(writer.finish()), MsgType::Add);
}

fn own(message: u16, flags: u16) -> Writer {
    Writer::new(n::SUBSYSTEM << 8 | message, flags, 0, n::INET, 0)
}

fn chain_of(table: &Table, planned: Frame) -> Chain<'_> {
    let mut chain = Chain::new(c_string(planned.name), table);
    if let Some(hook) = planned.hook {
        let hook = match hook {
            plan::Hook::Input => nftnl::Hook::In,
            plan::Hook::Forward => nftnl::Hook::Forward,
            plan::Hook::Output => nftnl::Hook::Out,
        };
        chain.set_hook(hook, plan::Hook::PRIORITY);
        chain.set_type(ChainType::Filter);
        chain.set_policy(if planned.drops { Policy::Drop } else { Policy::Accept });
    }
    chain
}

fn rule_of<'a>(chain: &'a Chain<'_>, planned: &plan::Rule) -> Rule<'a> {
    let mut rule = Rule::new(chain);
    for expr in planned.lower() {
        rule.add_expr(&Encoded(&expr));
    }
    // Ids are at most 60 bytes and a comment takes 128; one that does not fit stays off and shows as a difference.
    if rule.set_comment(c_string(planned.id.as_str())).is_err() {
        tracing::error!(rule = %planned.id, "rule id does not fit a comment");
    }
    rule
}

fn put_set(batch: &mut Batch, table: &Table, name: &str, members: &Members) {
    let c_name = c_string(name);
    match members {
        Members::V4(_) => add_set::<Ipv4Addr>(batch, table, &c_name),
        Members::V6(_) => add_set::<Ipv6Addr>(batch, table, &c_name),
        Members::Ports(_) => add_set::<Port>(batch, table, &c_name),
    }
    put_elements(batch, name, &members.spans(), n::NEW_ELEMENTS);
}

fn add_set<K: SetKey>(batch: &mut Batch, table: &Table, name: &CStr) {
    let set = Set::<K>::new_named(name, 0, table, ProtoFamily::Inet);
    // SAFETY: the set is alive, and its flags are a 32-bit attribute.
    unsafe { sys::nftnl_set_set_u32(set.as_ptr().as_ptr(), attribute(sys::NFTNL_SET_FLAGS), n::SET_INTERVAL) };
    batch.add(&set, MsgType::Add);
}

fn attribute(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn put_elements(batch: &mut Batch, set: &str, spans: &[Span], message: u16) {
    // EXCL: what is there already, or meets it, refuses the batch; an edit made for another base does not slip through.
    let flags = if message == n::NEW_ELEMENTS { n::REQUEST | n::CREATE | n::EXCLUSIVE } else { n::REQUEST };
    let mut boundaries = spans.iter().flat_map(|span| span.boundaries()).peekable();
    while boundaries.peek().is_some() {
        let mut writer = own(message, flags);
        writer.text(n::ELEMENTS_TABLE, TABLE);
        writer.text(n::ELEMENTS_SET, set);
        writer.nest(n::ELEMENTS, |list| {
            while list.len() < ELEMENT_LIST_BYTES_MAX
                && let Some(boundary) = boundaries.next()
            {
                put_boundary(list, boundary);
            }
        });
        batch.add(&Own(writer.finish()), MsgType::Add);
    }
}

/// One element of a list.
pub(super) fn put_boundary(list: &mut Writer, boundary: Boundary) {
    list.nest(n::LIST_ELEMENT, |element| {
        element.nest(n::ELEMENT_KEY, |key| key.bytes(n::DATA_VALUE, boundary.key.as_bytes()));
        if boundary.is_end {
            element.u32(n::ELEMENT_FLAGS, n::INTERVAL_END);
        }
    });
}

/// The flags of a message without the request for an answer that says no more than that it was read.
fn unacknowledged(flags: u16) -> u16 {
    #[cfg(feature = "test-hooks")]
    if super::hook::receive_bytes().is_some() {
        return flags;
    }
    flags & !n::ACK
}

/// Joins the pages, names the generation in the begin and takes the requests for acknowledgements away.
fn finish(batch: Batch, generation: u32) -> Result<Bytes, Error> {
    let pages = batch.finalize();
    let pages: Vec<u8> = pages.iter().flatten().copied().collect();
    let mut begin = Writer::new(n::BATCH_BEGIN, n::REQUEST, 0, 0, n::SUBSYSTEM);
    begin.u32(n::BATCH_GENERATION, generation);
    let mut bytes = begin.finish();
    let mut end_at = bytes.len();
    for message in Messages(&pages).skip(1) {
        let message: Message<'_> = message?;
        end_at = bytes.len();
        let len = message.payload.len() + super::attr::MESSAGE_HEADER_BYTES;
        bytes.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
        bytes.extend_from_slice(&message.kind.to_ne_bytes());
        bytes.extend_from_slice(&unacknowledged(message.flags).to_ne_bytes());
        bytes.extend_from_slice(&message.seq.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(message.payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    debug_assert!(number::<4>(&bytes, 0).is_some());
    Ok(Bytes { bytes, end_at })
}
