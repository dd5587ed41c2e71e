//! The nodes of the artifact tree and their bytes.
//!
//! The first byte of a node is its tag, so that no two kinds of node can have one digest.

use super::codec::{CodecError, Reader, family_byte, put_intervals, put_len, put_order};
use crate::address::{Address, Either, Family, Interval, Intervals};
use crate::digest::Digest;
use crate::interval_set::{LEAF_MAX, Node};
use crate::policy::{Action, IcmpKind, Mode, Peers, PortRange, Rule, RuleKey, SetKey, Statement};

/// The root: mode, chains as lists of rule digests, sets as pairs of chunk digests.
pub(super) const TAG_BODY: u8 = 1;
/// One rule.
pub(super) const TAG_RULE: u8 = 2;
/// A prefix chunk that holds intervals.
pub(super) const TAG_LEAF: u8 = 3;
/// A prefix chunk that holds smaller prefixes.
pub(super) const TAG_BRANCH: u8 = 4;

pub(super) const fn mode_byte(mode: Mode) -> u8 {
    match mode {
        Mode::Visibility => 0,
        Mode::Simulation => 1,
        Mode::Enforced => 2,
    }
}

pub(super) fn read_mode(reader: &mut Reader<'_>) -> Result<Mode, CodecError> {
    match reader.byte()? {
        0 => Ok(Mode::Visibility),
        1 => Ok(Mode::Simulation),
        2 => Ok(Mode::Enforced),
        other => Err(CodecError::Tag(other)),
    }
}

pub(crate) fn encode_leaf<A: Address>(intervals: &[Interval<A>]) -> Vec<u8> {
    let mut out = vec![TAG_LEAF, family_byte(A::FAMILY)];
    put_intervals(&mut out, intervals.len(), |put| intervals.iter().copied().for_each(put));
    out
}

pub(crate) fn encode_branch<A: Address>(children: &[Option<Digest>; 16]) -> Vec<u8> {
    let present = children.iter().enumerate().filter(|(_, child)| child.is_some());
    let bitmap = present.fold(0_u16, |bits, (index, _)| bits | 1 << index);
    let mut out = vec![TAG_BRANCH, family_byte(A::FAMILY)];
    out.extend_from_slice(&bitmap.to_be_bytes());
    children.iter().flatten().for_each(|child| out.extend_from_slice(child.as_bytes()));
    out
}

/// A chunk as its bytes say.
pub(super) enum Chunk {
    Leaf(Intervals),
    Branch(Family, Vec<Digest>),
}

pub(super) fn decode_chunk(bytes: &[u8]) -> Result<Chunk, CodecError> {
    let mut reader = Reader::new(bytes);
    let chunk = match reader.byte()? {
        TAG_LEAF => {
            let intervals = reader.intervals()?;
            let len = match &intervals {
                Either::V4(intervals) => intervals.len(),
                Either::V6(intervals) => intervals.len(),
            };
            if len > LEAF_MAX {
                return Err(CodecError::Canonical);
            }
            Chunk::Leaf(intervals)
        }
        TAG_BRANCH => {
            let family = reader.family()?;
            let count = u16::from_be_bytes(reader.bytes()?).count_ones();
            Chunk::Branch(family, (0..count).map(|_| reader.digest()).collect::<Result<_, _>>()?)
        }
        other => return Err(CodecError::Tag(other)),
    };
    reader.end()?;
    Ok(chunk)
}

/// A rule without its tag; the flat form uses it as it is.
pub(super) fn put_rule(out: &mut Vec<u8>, rule: &Rule) {
    out.extend_from_slice(rule.key.as_bytes());
    put_order(out, rule.order);
    out.push(match rule.action {
        Action::Deny => 0,
        Action::Allow => 1,
    });
    out.push(u8::from(rule.log));
    put_statement(out, &rule.statement);
    match rule.peers {
        Peers::Any => out.push(0),
        Peers::Set(key) => {
            out.push(1);
            out.extend_from_slice(key.as_bytes());
        }
    }
    match rule.local {
        None => out.push(0),
        Some(key) => {
            out.push(1);
            out.extend_from_slice(key.as_bytes());
        }
    }
}

pub(super) fn read_rule(reader: &mut Reader<'_>) -> Result<Rule, CodecError> {
    Ok(Rule {
        key: RuleKey::from_bytes(reader.bytes()?),
        order: reader.order()?,
        action: if reader.flag()? { Action::Allow } else { Action::Deny },
        log: reader.flag()?,
        statement: read_statement(reader)?,
        peers: if reader.flag()? { Peers::Set(SetKey::from_bytes(reader.bytes()?)) } else { Peers::Any },
        local: if reader.flag()? { Some(SetKey::from_bytes(reader.bytes()?)) } else { None },
    })
}

/// The fewest bytes of a rule: key, order, action, log, statement tag, two absent sets.
pub(super) const RULE_BYTES_MIN: usize = 16 + 6;

fn put_statement(out: &mut Vec<u8>, statement: &Statement) {
    match statement {
        Statement::Any => out.push(0),
        Statement::Protocol(protocol) => out.extend_from_slice(&[1, *protocol]),
        Statement::Ports { protocol, ranges } => {
            out.extend_from_slice(&[2, *protocol]);
            put_len(out, ranges.len());
            for range in ranges {
                out.extend_from_slice(&range.first.to_be_bytes());
                out.extend_from_slice(&range.last.to_be_bytes());
            }
        }
        Statement::Icmp { family, kinds } => {
            out.extend_from_slice(&[3, family_byte(*family)]);
            put_len(out, kinds.len());
            for kind in kinds {
                out.extend_from_slice(&[kind.kind, u8::from(kind.code.is_some()), kind.code.unwrap_or(0)]);
            }
        }
    }
}

fn read_statement(reader: &mut Reader<'_>) -> Result<Statement, CodecError> {
    Ok(match reader.byte()? {
        0 => Statement::Any,
        1 => Statement::Protocol(reader.byte()?),
        2 => {
            let protocol = reader.byte()?;
            let count = reader.count(4)?;
            let mut port = || reader.bytes().map(u16::from_be_bytes);
            let ranges =
                (0..count).map(|_| Ok(PortRange { first: port()?, last: port()? })).collect::<Result<_, _>>()?;
            Statement::Ports { protocol, ranges }
        }
        3 => {
            let family = reader.family()?;
            let count = reader.count(3)?;
            let kinds = (0..count).map(|_| read_icmp_kind(reader)).collect::<Result<_, _>>()?;
            Statement::Icmp { family, kinds }
        }
        other => return Err(CodecError::Tag(other)),
    })
}

fn read_icmp_kind(reader: &mut Reader<'_>) -> Result<IcmpKind, CodecError> {
    let (kind, has_code, code) = (reader.byte()?, reader.flag()?, reader.byte()?);
    match (has_code, code) {
        (true, code) => Ok(IcmpKind { kind, code: Some(code) }),
        (false, 0) => Ok(IcmpKind { kind, code: None }),
        (false, _) => Err(CodecError::Canonical),
    }
}

/// The root node as its bytes say.
pub(super) struct Root {
    pub(super) mode: Mode,
    pub(super) chains: [(bool, Vec<Digest>); 2],
    pub(super) sets: Vec<(SetKey, Digest, Digest)>,
}

pub(super) fn encode_root(root: &Root) -> Vec<u8> {
    let mut out = vec![TAG_BODY, mode_byte(root.mode)];
    for (isolated, rules) in &root.chains {
        out.push(u8::from(*isolated));
        put_len(&mut out, rules.len());
        rules.iter().for_each(|rule| out.extend_from_slice(rule.as_bytes()));
    }
    put_len(&mut out, root.sets.len());
    for (key, v4, v6) in &root.sets {
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(v4.as_bytes());
        out.extend_from_slice(v6.as_bytes());
    }
    out
}

pub(super) fn decode_root(bytes: &[u8]) -> Result<Root, CodecError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        TAG_BODY => {}
        other => return Err(CodecError::Tag(other)),
    }
    let mode = read_mode(&mut reader)?;
    let mut chain = || {
        let isolated = reader.flag()?;
        let count = reader.count(32)?;
        Ok((isolated, (0..count).map(|_| reader.digest()).collect::<Result<_, _>>()?))
    };
    let chains = [chain()?, chain()?];
    let count = reader.count(80)?;
    let mut set = || Ok((SetKey::from_bytes(reader.bytes()?), reader.digest()?, reader.digest()?));
    let sets = (0..count).map(|_| set()).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(Root { mode, chains, sets })
}

pub(super) fn encode_rule(rule: &Rule) -> Vec<u8> {
    let mut out = vec![TAG_RULE];
    put_rule(&mut out, rule);
    out
}

pub(super) fn decode_rule(bytes: &[u8]) -> Result<Rule, CodecError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        TAG_RULE => {}
        other => return Err(CodecError::Tag(other)),
    }
    let rule = read_rule(&mut reader)?;
    reader.end()?;
    Ok(rule)
}

/// Visits a chunk and all below it.
pub(super) fn visit_chunks<A: Address>(node: &Node<A>, visit: &mut impl FnMut(Digest, Vec<u8>) -> Descend) {
    if matches!(visit(node.digest(), node.encode()), Descend::Yes) {
        node.children().for_each(|child| visit_chunks(child, visit));
    }
}

/// Whether a walk goes on below a node.
pub(super) enum Descend {
    Yes,
    No,
}
