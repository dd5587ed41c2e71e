//! The kernel's numbers for expressions (`linux/netfilter/nf_tables.h`).

use crate::plan::{CtKey, MetaKey};

/// The one register in use (`NFT_REG_1`).
pub(super) const REGISTER: u32 = 1;
pub(super) const LOG_LEVEL_INFO: u32 = 6;

pub(super) const DATA_VALUE: u16 = 1;
pub(super) const DATA_VERDICT: u16 = 2;
pub(super) const VERDICT_CODE: u16 = 1;
pub(super) const VERDICT_CHAIN: u16 = 2;
pub(super) const DROP: i32 = 0;
pub(super) const ACCEPT: i32 = 1;
pub(super) const JUMP: i32 = -3;
pub(super) const GOTO: i32 = -4;

pub(super) const META_DREG: u16 = 1;
pub(super) const META_KEY: u16 = 2;
pub(super) const CT_DREG: u16 = 1;
pub(super) const CT_KEY: u16 = 2;
pub(super) const CT_DIRECTION: u16 = 3;
pub(super) const PAYLOAD_DREG: u16 = 1;
pub(super) const PAYLOAD_BASE: u16 = 2;
pub(super) const PAYLOAD_OFFSET: u16 = 3;
pub(super) const PAYLOAD_LEN: u16 = 4;
pub(super) const BITWISE_MASK: u16 = 4;
pub(super) const BITWISE_XOR: u16 = 5;
pub(super) const BITWISE_OP: u16 = 6;
pub(super) const CMP_OP: u16 = 2;
pub(super) const CMP_DATA: u16 = 3;
pub(super) const RANGE_OP: u16 = 2;
pub(super) const RANGE_FROM: u16 = 3;
pub(super) const RANGE_TO: u16 = 4;
pub(super) const LOOKUP_SET: u16 = 1;
pub(super) const LOOKUP_DREG: u16 = 3;
pub(super) const LOOKUP_FLAGS: u16 = 5;
pub(super) const COUNTER_BYTES: u16 = 1;
pub(super) const COUNTER_PACKETS: u16 = 2;
pub(super) const LIMIT_RATE: u16 = 1;
pub(super) const LIMIT_UNIT: u16 = 2;
pub(super) const LIMIT_BURST: u16 = 3;
pub(super) const LIMIT_TYPE: u16 = 4;
pub(super) const LIMIT_FLAGS: u16 = 5;
pub(super) const LOG_GROUP: u16 = 1;
pub(super) const LOG_PREFIX: u16 = 2;
pub(super) const LOG_LEVEL: u16 = 5;
pub(super) const LOG_FLAGS: u16 = 6;
pub(super) const IMMEDIATE_DATA: u16 = 2;

/// The number of a key of connection tracking.
pub(super) const fn ct_number(key: CtKey) -> u32 {
    match key {
        CtKey::State => 0,
        CtKey::Direction => 1,
        CtKey::OriginalPort => 12,
        CtKey::OriginalSource4 => 19,
        CtKey::OriginalDestination4 => 20,
        CtKey::OriginalSource6 => 21,
        CtKey::OriginalDestination6 => 22,
    }
}

/// Whether the key asks about the opening packet.
pub(super) const fn ct_is_original(key: CtKey) -> bool {
    match key {
        CtKey::State | CtKey::Direction => false,
        CtKey::OriginalPort
        | CtKey::OriginalSource4
        | CtKey::OriginalDestination4
        | CtKey::OriginalSource6
        | CtKey::OriginalDestination6 => true,
    }
}

/// The key of connection tracking with a number, if a plan uses it.
pub(super) fn ct_key(number: u32) -> Option<CtKey> {
    [
        CtKey::State,
        CtKey::Direction,
        CtKey::OriginalPort,
        CtKey::OriginalSource4,
        CtKey::OriginalDestination4,
        CtKey::OriginalSource6,
        CtKey::OriginalDestination6,
    ]
    .into_iter()
    .find(|key| ct_number(*key) == number)
}

/// The meta key with a number, if a plan uses it.
pub(super) const fn meta_key(number: u32) -> Option<MetaKey> {
    Some(match number {
        4 => MetaKey::InIndex,
        5 => MetaKey::OutIndex,
        6 => MetaKey::InName,
        7 => MetaKey::OutName,
        15 => MetaKey::Family,
        16 => MetaKey::Protocol,
        _ => return None,
    })
}
