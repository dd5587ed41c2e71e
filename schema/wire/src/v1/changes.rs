//! The changes of a policy delta, as bytes that every host making the same step shares.
//!
//! - An interval is its first address, fixed width, and how far its last lies above: one address costs 5 bytes of IPv4 and 17 of IPv6.
//! - What is read here is well-formed, not right: whether changes fit a base and lead to a digest is for `holdfast_model::policy::delta`.

use holdfast_model::address::{Address, Family, Interval};
use holdfast_model::interval_set::{Edit, IntervalSet};
use holdfast_model::policy::delta::Change;
use holdfast_model::policy::{
    Action, Direction, IcmpKind, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement,
};
use serde::{Deserialize, Serialize};

use super::codec::{fits, put_payload, take, within};
use crate::error::{DecodeError, EncodeError};
use crate::limits::DELTA_BYTES_MAX;
use crate::message::Kind;

const KIND: Kind = Kind::Update;

#[derive(Serialize, Deserialize)]
enum WireChange {
    SetMode(u8),
    SetIsolation { direction: u8, isolated: bool },
    DropRule { direction: u8, key: [u8; 16] },
    PutSet { key: [u8; 16], v4: Vec<Span4>, v6: Vec<Span6> },
    EditSet { key: [u8; 16], remove4: Vec<Span4>, add4: Vec<Span4>, remove6: Vec<Span6>, add6: Vec<Span6> },
    PutRule { direction: u8, rule: WireRule },
    DropSet([u8; 16]),
}

#[derive(Serialize, Deserialize)]
struct Span4 {
    first: [u8; 4],
    extent: u32,
}

#[derive(Serialize, Deserialize)]
struct Span6 {
    first: [u8; 16],
    extent: u128,
}

#[derive(Serialize, Deserialize)]
struct WireRule {
    key: [u8; 16],
    order: i32,
    action: u8,
    log: bool,
    statement: WireStatement,
    peers: Option<[u8; 16]>,
    local: Option<[u8; 16]>,
}

#[derive(Serialize, Deserialize)]
enum WireStatement {
    Any,
    Protocol(u8),
    Ports { protocol: u8, ranges: Vec<WirePorts> },
    Icmp { family: u8, kinds: Vec<WireIcmp> },
}

#[derive(Serialize, Deserialize)]
struct WirePorts {
    first: u16,
    last: u16,
}

#[derive(Serialize, Deserialize)]
struct WireIcmp {
    kind: u8,
    code: Option<u8>,
}

/// The bytes of changes.
///
/// # Errors
/// [`EncodeError`] if they are more than a delta carries: the state then travels as a snapshot.
pub fn encode_changes(changes: &[Change]) -> Result<Vec<u8>, EncodeError> {
    let wire: Vec<WireChange> = changes.iter().map(change_out).collect();
    let mut out = Vec::new();
    put_payload(&mut out, KIND, &wire)?;
    fits(KIND, "delta", out.len(), DELTA_BYTES_MAX)?;
    Ok(out)
}

/// Reads changes.
///
/// # Errors
/// [`DecodeError`] for bytes that are no changes, or changes with lists out of their canonical order.
pub fn decode_changes(bytes: &[u8]) -> Result<Vec<Change>, DecodeError> {
    within(KIND, "delta", bytes.len(), DELTA_BYTES_MAX)?;
    let wire: Vec<WireChange> = take(KIND, bytes)?;
    wire.into_iter().map(change_in).collect()
}

fn change_out(change: &Change) -> WireChange {
    match change {
        Change::SetMode(mode) => WireChange::SetMode(mode_number(*mode)),
        Change::SetIsolation { direction, isolated } => {
            WireChange::SetIsolation { direction: direction_number(*direction), isolated: *isolated }
        }
        Change::DropRule { direction, key } => {
            WireChange::DropRule { direction: direction_number(*direction), key: *key.as_bytes() }
        }
        Change::PutSet(set) => WireChange::PutSet {
            key: *set.key.as_bytes(),
            v4: set.v4.to_vec().into_iter().map(span4).collect(),
            v6: set.v6.to_vec().into_iter().map(span6).collect(),
        },
        Change::EditSet { key, v4, v6 } => WireChange::EditSet {
            key: *key.as_bytes(),
            remove4: v4.remove.iter().copied().map(span4).collect(),
            add4: v4.add.iter().copied().map(span4).collect(),
            remove6: v6.remove.iter().copied().map(span6).collect(),
            add6: v6.add.iter().copied().map(span6).collect(),
        },
        Change::PutRule { direction, rule } => {
            WireChange::PutRule { direction: direction_number(*direction), rule: rule_out(rule) }
        }
        Change::DropSet(key) => WireChange::DropSet(*key.as_bytes()),
    }
}

fn change_in(wire: WireChange) -> Result<Change, DecodeError> {
    let v4 = |spans: Vec<Span4>| ascending(spans.into_iter().map(interval4));
    let v6 = |spans: Vec<Span6>| ascending(spans.into_iter().map(interval6));
    Ok(match wire {
        WireChange::SetMode(number) => Change::SetMode(mode(number)?),
        WireChange::SetIsolation { direction: number, isolated } => {
            Change::SetIsolation { direction: direction(number)?, isolated }
        }
        WireChange::DropRule { direction: number, key } => {
            Change::DropRule { direction: direction(number)?, key: RuleKey::from_bytes(key) }
        }
        WireChange::PutSet { key, v4: low, v6: high } => Change::PutSet(Set {
            key: SetKey::from_bytes(key),
            v4: IntervalSet::from_canonical(&v4(low)?).ok_or_else(|| value("members of a set"))?,
            v6: IntervalSet::from_canonical(&v6(high)?).ok_or_else(|| value("members of a set"))?,
        }),
        WireChange::EditSet { key, remove4, add4, remove6, add6 } => Change::EditSet {
            key: SetKey::from_bytes(key),
            v4: Edit { remove: v4(remove4)?, add: v4(add4)? },
            v6: Edit { remove: v6(remove6)?, add: v6(add6)? },
        },
        WireChange::PutRule { direction: number, rule } => {
            Change::PutRule { direction: direction(number)?, rule: rule_in(rule)? }
        }
        WireChange::DropSet(key) => Change::DropSet(SetKey::from_bytes(key)),
    })
}

fn rule_out(rule: &Rule) -> WireRule {
    WireRule {
        key: *rule.key.as_bytes(),
        order: rule.order,
        action: match rule.action {
            Action::Deny => 0,
            Action::Allow => 1,
        },
        log: rule.log,
        statement: match &rule.statement {
            Statement::Any => WireStatement::Any,
            Statement::Protocol(number) => WireStatement::Protocol(*number),
            Statement::Ports { protocol, ranges } => WireStatement::Ports {
                protocol: *protocol,
                ranges: ranges.iter().map(|range| WirePorts { first: range.first, last: range.last }).collect(),
            },
            Statement::Icmp { family, kinds } => WireStatement::Icmp {
                family: match family {
                    Family::V4 => 4,
                    Family::V6 => 6,
                },
                kinds: kinds.iter().map(|icmp| WireIcmp { kind: icmp.kind, code: icmp.code }).collect(),
            },
        },
        peers: match rule.peers {
            Peers::Any => None,
            Peers::Set(key) => Some(*key.as_bytes()),
        },
        local: rule.local.map(|key| *key.as_bytes()),
    }
}

fn rule_in(wire: WireRule) -> Result<Rule, DecodeError> {
    let statement = match wire.statement {
        WireStatement::Any => Statement::Any,
        WireStatement::Protocol(number) => Statement::Protocol(number),
        WireStatement::Ports { protocol, ranges } => Statement::Ports {
            protocol,
            ranges: ranges.into_iter().map(|range| PortRange { first: range.first, last: range.last }).collect(),
        },
        WireStatement::Icmp { family, kinds } => Statement::Icmp {
            family: match family {
                4 => Family::V4,
                6 => Family::V6,
                _ => return Err(value("family")),
            },
            kinds: kinds.into_iter().map(|icmp| IcmpKind { kind: icmp.kind, code: icmp.code }).collect(),
        },
    };
    if !statement.is_canonical() {
        return Err(value("statement of a rule"));
    }
    Ok(Rule {
        key: RuleKey::from_bytes(wire.key),
        order: wire.order,
        action: match wire.action {
            0 => Action::Deny,
            1 => Action::Allow,
            _ => return Err(value("action")),
        },
        log: wire.log,
        statement,
        peers: wire.peers.map_or(Peers::Any, |key| Peers::Set(SetKey::from_bytes(key))),
        local: wire.local.map(SetKey::from_bytes),
    })
}

fn span4(interval: Interval<u32>) -> Span4 {
    Span4 { first: interval.first().to_be_bytes(), extent: interval.last() - interval.first() }
}

fn span6(interval: Interval<u128>) -> Span6 {
    Span6 { first: interval.first().to_be_bytes(), extent: interval.extent() }
}

fn interval4(span: Span4) -> Option<Interval<u32>> {
    let first = u32::from_be_bytes(span.first);
    Interval::new(first, first.checked_add(span.extent)?)
}

fn interval6(span: Span6) -> Option<Interval<u128>> {
    let first = u128::from_be_bytes(span.first);
    Interval::new(first, first.checked_add(span.extent)?)
}

/// Intervals that must ascend without meeting.
fn ascending<A: Address>(
    intervals: impl Iterator<Item = Option<Interval<A>>>,
) -> Result<Vec<Interval<A>>, DecodeError> {
    let all: Vec<_> = intervals.collect::<Option<_>>().ok_or_else(|| value("interval"))?;
    if all.is_sorted_by(|a: &Interval<A>, b| a.last() < b.first()) { Ok(all) } else { Err(value("order of intervals")) }
}

const fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Visibility => 0,
        Mode::Simulation => 1,
        Mode::Enforced => 2,
    }
}

fn mode(number: u8) -> Result<Mode, DecodeError> {
    match number {
        0 => Ok(Mode::Visibility),
        1 => Ok(Mode::Simulation),
        2 => Ok(Mode::Enforced),
        _ => Err(value("mode")),
    }
}

const fn direction_number(direction: Direction) -> u8 {
    match direction {
        Direction::Ingress => 0,
        Direction::Egress => 1,
    }
}

fn direction(number: u8) -> Result<Direction, DecodeError> {
    match number {
        0 => Ok(Direction::Ingress),
        1 => Ok(Direction::Egress),
        _ => Err(value("direction")),
    }
}

fn value(field: &'static str) -> DecodeError {
    DecodeError::Value { kind: KIND, field }
}
