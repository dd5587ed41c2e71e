//! The same policy as JSON and as protobuf.
//!
//! Both keep all that a body holds; each in the form that somebody who had to choose it would choose: JSON with words, addresses as text and keys in
//! hexadecimal, protobuf with packed numbers and keys as bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use holdfast_model::address::Family;
use holdfast_model::policy::{Action, Body, Chain, Direction, IcmpKind, Mode, Peers, PortRange, Rule, Set, Statement};
use serde::{Deserialize, Serialize};

/// A policy as JSON has it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Json {
    mode: Mode,
    ingress: JsonChain,
    egress: JsonChain,
    sets: Vec<JsonSet>,
}

#[derive(Serialize, Deserialize)]
struct JsonChain {
    isolated: bool,
    rules: Vec<JsonRule>,
}

#[derive(Serialize, Deserialize)]
struct JsonRule {
    key: String,
    order: i32,
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<u8>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    ports: Vec<PortRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp: Option<(Family, Vec<IcmpKind>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    log: bool,
}

#[derive(Serialize, Deserialize)]
struct JsonSet {
    key: String,
    /// One address, or the first and the last of an interval with a hyphen between.
    members: Vec<String>,
}

impl Json {
    pub(crate) fn of(body: &Body) -> Self {
        let chain = |chain: &Chain| JsonChain {
            isolated: chain.isolated,
            rules: chain.rules.iter().map(JsonRule::of).collect(),
        };
        let sets = body.sets.iter().map(JsonSet::of).collect();
        Self { mode: body.mode, ingress: chain(&body.ingress), egress: chain(&body.egress), sets }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("every field has a text form")
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).expect("its own bytes")
    }
}

impl JsonRule {
    fn of(rule: &Rule) -> Self {
        let (protocol, ports, icmp) = match &rule.statement {
            Statement::Any => (None, vec![], None),
            Statement::Protocol(protocol) => (Some(*protocol), vec![], None),
            Statement::Ports { protocol, ranges } => (Some(*protocol), ranges.clone(), None),
            Statement::Icmp { family, kinds } => (None, vec![], Some((*family, kinds.clone()))),
        };
        let peers = match rule.peers {
            Peers::Any => None,
            Peers::Set(key) => Some(key.to_string()),
        };
        let local = rule.local.map(|key| key.to_string());
        let (key, order, action, log) = (rule.key.to_string(), rule.order, rule.action, rule.log);
        Self { key, order, action, protocol, ports, icmp, peers, local, log }
    }
}

impl JsonSet {
    fn of(set: &Set) -> Self {
        let text = |first: String, last: String| if first == last { first } else { format!("{first}-{last}") };
        let mut members = Vec::new();
        let v4 = |bits| Ipv4Addr::from_bits(bits).to_string();
        let v6 = |bits| Ipv6Addr::from_bits(bits).to_string();
        set.v4.for_each(|interval| members.push(text(v4(interval.first()), v4(interval.last()))));
        set.v6.for_each(|interval| members.push(text(v6(interval.first()), v6(interval.last()))));
        Self { key: set.key.to_string(), members }
    }
}

/// A policy as protobuf has it: `mode` 1, a chain per direction 2 and 3, sets 4; a field that has its default is not there.
pub(crate) fn protobuf(body: &Body) -> Vec<u8> {
    let mut out = Message::default();
    out.varint(
        1,
        match body.mode {
            Mode::Visibility => 0,
            Mode::Simulation => 1,
            Mode::Enforced => 2,
        },
    );
    for (field, direction) in [(2, Direction::Ingress), (3, Direction::Egress)] {
        let chain = body.chain(direction);
        let mut inner = Message::default();
        inner.varint(1, u64::from(chain.isolated));
        chain.rules.iter().for_each(|rule| inner.message(2, &protobuf_rule(rule)));
        out.message(field, &inner);
    }
    for set in &body.sets {
        let mut inner = Message::default();
        inner.bytes(1, set.key.as_bytes());
        // Packed: fixed32 addresses beside varint extents, and 16 bytes each for IPv6.
        let (mut firsts, mut extents) = (Vec::new(), Message::default());
        set.v4.for_each(|interval| {
            firsts.extend_from_slice(&interval.first().to_le_bytes());
            extents.number(u64::from(interval.last() - interval.first()));
        });
        inner.bytes(2, &firsts);
        inner.bytes(3, &extents.0);
        set.v6.for_each(|interval| {
            inner.bytes(4, &interval.first().to_be_bytes());
            inner.bytes(5, &interval.last().to_be_bytes());
        });
        out.message(4, &inner);
    }
    out.0
}

fn protobuf_rule(rule: &Rule) -> Message {
    let mut out = Message::default();
    out.bytes(1, rule.key.as_bytes());
    // sint32: zigzag.
    out.varint(2, u64::from(((rule.order << 1) ^ (rule.order >> 31)).cast_unsigned()));
    out.varint(
        3,
        match rule.action {
            Action::Deny => 0,
            Action::Allow => 1,
        },
    );
    out.varint(4, u64::from(rule.log));
    match &rule.statement {
        Statement::Any => {}
        Statement::Protocol(protocol) => out.varint(5, u64::from(*protocol)),
        Statement::Ports { protocol, ranges } => {
            out.varint(5, u64::from(*protocol));
            for range in ranges {
                let mut inner = Message::default();
                inner.varint(1, u64::from(range.first));
                // The extent: absent for a single port.
                inner.varint(2, u64::from(range.last - range.first));
                out.message(6, &inner);
            }
        }
        Statement::Icmp { family, kinds } => {
            out.varint(7, if *family == Family::V4 { 1 } else { 2 });
            for kind in kinds {
                let mut inner = Message::default();
                inner.varint(1, u64::from(kind.kind));
                inner.varint(2, kind.code.map_or(0, |code| u64::from(code) + 1));
                out.message(8, &inner);
            }
        }
    }
    if let Peers::Set(key) = rule.peers {
        out.bytes(9, key.as_bytes());
    }
    if let Some(key) = rule.local {
        out.bytes(10, key.as_bytes());
    }
    out
}

/// Fields in protobuf's encoding.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn varint(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.number(field << 3);
            self.number(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.number(field << 3 | 2);
            self.number(bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    fn message(&mut self, field: u64, inner: &Self) {
        self.bytes(field, &inner.0);
    }
}
