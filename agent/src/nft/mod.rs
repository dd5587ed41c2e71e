//! The kernel's nf_tables: the only place that names nftnl and mnl, and the only one with `unsafe`.
//!
//! - One socket, kept open, on one thread; one datagram per batch, whatever its size.
//! - An errno or an acknowledgement never decides what was committed: a read-back does, bracketed by the generation id.
//! - Nothing of any other table is named in any message.
//! - Connection tracking is told of TCP connections that are older than the table (`tracking.rs`); nothing else of it is touched.
//!
//! It decides nothing about policies: what to hold comes from [`crate::plan`], what to do about a difference from [`crate::engine`].
#![expect(unsafe_code, reason = "libnftnl's setters and netlink's socket options are C; every block says why it holds")]

mod attr;
mod batch;
mod expr;
#[cfg(feature = "test-hooks")]
mod hook;
mod jitter;
mod kernel;
mod link;
mod owner;
mod read;
mod sockets;
mod tracking;
mod watch;

pub use kernel::Netfilter;
pub use link::Error;
pub use owner::TableOwner;
pub use watch::{Notice, Watch};

/// Numbers of `linux/netfilter/nfnetlink.h` and `nf_tables.h` that the parts of this module share.
mod numbers {
    /// `NFPROTO_INET`.
    pub(super) const INET: u8 = 1;
    /// `NFNL_SUBSYS_NFTABLES`.
    pub(super) const SUBSYSTEM: u16 = 10;
    pub(super) const BATCH_BEGIN: u16 = 0x10;
    /// `NFNL_BATCH_GENID`.
    pub(super) const BATCH_GENERATION: u16 = 1;

    pub(super) const REQUEST: u16 = 0x1;
    pub(super) const ACK: u16 = 0x4;
    pub(super) const DUMP_INTERRUPTED: u16 = 0x10;
    pub(super) const DUMP: u16 = 0x300;
    pub(super) const EXCLUSIVE: u16 = 0x200;
    pub(super) const CREATE: u16 = 0x400;
    pub(super) const APPEND: u16 = 0x800;

    pub(super) const NEW_TABLE: u16 = 0;
    pub(super) const GET_TABLE: u16 = 1;
    pub(super) const GET_CHAIN: u16 = 4;
    pub(super) const GET_RULE: u16 = 7;
    pub(super) const GET_SET: u16 = 10;
    pub(super) const NEW_ELEMENTS: u16 = 12;
    pub(super) const GET_ELEMENTS: u16 = 13;
    pub(super) const DELETE_ELEMENTS: u16 = 14;
    pub(super) const NEW_GENERATION: u16 = 15;
    pub(super) const GET_GENERATION: u16 = 16;

    pub(super) const TABLE_NAME: u16 = 1;
    pub(super) const TABLE_FLAGS: u16 = 2;
    pub(super) const CHAIN_TABLE: u16 = 1;
    pub(super) const CHAIN_NAME: u16 = 3;
    pub(super) const CHAIN_HOOK: u16 = 4;
    pub(super) const CHAIN_POLICY: u16 = 5;
    pub(super) const CHAIN_TYPE: u16 = 7;
    pub(super) const HOOK_NUMBER: u16 = 1;
    pub(super) const HOOK_PRIORITY: u16 = 2;
    pub(super) const RULE_TABLE: u16 = 1;
    pub(super) const RULE_CHAIN: u16 = 2;
    pub(super) const RULE_HANDLE: u16 = 3;
    pub(super) const RULE_EXPRESSIONS: u16 = 4;
    pub(super) const RULE_USERDATA: u16 = 7;
    pub(super) const EXPR_NAME: u16 = 1;
    pub(super) const EXPR_DATA: u16 = 2;
    pub(super) const SET_TABLE: u16 = 1;
    pub(super) const SET_NAME: u16 = 2;
    pub(super) const SET_FLAGS: u16 = 3;
    pub(super) const SET_KEY_TYPE: u16 = 4;
    pub(super) const SET_KEY_LEN: u16 = 5;
    pub(super) const ELEMENTS_TABLE: u16 = 1;
    pub(super) const ELEMENTS_SET: u16 = 2;
    pub(super) const ELEMENTS: u16 = 3;
    pub(super) const ELEMENT_KEY: u16 = 1;
    pub(super) const ELEMENT_FLAGS: u16 = 3;
    pub(super) const LIST_ELEMENT: u16 = 1;
    pub(super) const DATA_VALUE: u16 = 1;
    pub(super) const GENERATION_ID: u16 = 1;
    /// `NFT_SET_ELEM_INTERVAL_END`.
    pub(super) const INTERVAL_END: u32 = 1;
    /// `NFT_SET_INTERVAL`.
    pub(super) const SET_INTERVAL: u32 = 4;
    /// `NFTNL_UDATA_RULE_COMMENT`.
    pub(super) const COMMENT: u8 = 0;
}
