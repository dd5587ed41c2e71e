//! What makes a rule the same rule across versions.
//!
//! - A **rule group** is every authored rule of one policy that differs from the others in its peers only. Its identity is the hash of the policy's
//!   key, direction, order, action, log, canonical services and local addresses.
//! - A set belongs to a group (or to one part of it), a rule to a group and its statement: so a change of peers keeps every key.
//! - Every hashed text has its length before it, and every purpose its own context: no two inputs are one byte string.

use holdfast_model::policy::{Direction, RuleKey, SetKey, Statement};

const GROUP_CONTEXT: &str = "holdfast.dev 2026-11 rule group v1";
const RULE_CONTEXT: &str = "holdfast.dev 2026-11 rule key v1";
const SET_CONTEXT: &str = "holdfast.dev 2026-11 set key v1";

/// Hashes fields so that they cannot run into each other.
pub(crate) struct Fields(blake3::Hasher);

impl Fields {
    fn new(context: &str) -> Self {
        Self(blake3::Hasher::new_derive_key(context))
    }

    pub(crate) fn group() -> Self {
        Self::new(GROUP_CONTEXT)
    }

    pub(crate) fn fixed<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.update(&bytes);
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.fixed((count as u64).to_be_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }

    pub(crate) fn into_group_id(self) -> GroupId {
        GroupId(*self.0.finalize().as_bytes())
    }

    fn into_key(self) -> [u8; 16] {
        let mut key = [0; 16];
        self.0.finalize_xof().fill(&mut key);
        key
    }
}

/// The byte that stands for a direction in hashed content.
pub(crate) const fn direction_byte(direction: Direction) -> u8 {
    match direction {
        Direction::Ingress => 0,
        Direction::Egress => 1,
    }
}

/// The identity of a rule group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct GroupId([u8; 32]);

/// Which of a group's sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// All peers.
    Peers,
    /// The peers at which a named port is this port of this protocol.
    Named { protocol: u8, port: u16 },
    /// The host's own addresses.
    Local,
}

impl GroupId {
    pub(crate) fn set_key(self, part: Part) -> SetKey {
        let mut fields = Fields::new(SET_CONTEXT);
        fields.fixed(self.0);
        match part {
            Part::Peers => fields.fixed([0]),
            Part::Named { protocol, port } => {
                fields.fixed([1, protocol]);
                fields.fixed(port.to_be_bytes());
            }
            Part::Local => fields.fixed([2]),
        }
        SetKey::from_bytes(fields.into_key())
    }

    pub(crate) fn rule_key(self, statement: &Statement) -> RuleKey {
        let mut fields = Fields::new(RULE_CONTEXT);
        fields.fixed(self.0);
        match statement {
            Statement::Any => fields.fixed([0]),
            Statement::Protocol(protocol) => fields.fixed([1, *protocol]),
            Statement::Ports { protocol, ranges } => {
                fields.fixed([2, *protocol]);
                fields.count(ranges.len());
                for range in ranges {
                    fields.fixed(range.first.to_be_bytes());
                    fields.fixed(range.last.to_be_bytes());
                }
            }
            Statement::Icmp { family, kinds } => {
                fields.fixed([3, u8::from(*family == holdfast_model::address::Family::V6)]);
                fields.count(kinds.len());
                for kind in kinds {
                    fields.fixed([kind.kind, u8::from(kind.code.is_some()), kind.code.unwrap_or(0)]);
                }
            }
        }
        RuleKey::from_bytes(fields.into_key())
    }
}
