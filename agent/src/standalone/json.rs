//! The JSON form of a concrete policy.

use std::collections::BTreeMap;

use holdfast_model::address::{Either, Family, interval_of};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::policy::{
    Action, Body, Chain, Direction, IcmpKind, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};
use serde::Deserialize;

const RULE_CONTEXT: &str = "holdfast.dev 2026-11 standalone rule v1";
const SET_CONTEXT: &str = "holdfast.dev 2026-11 standalone set v1";

/// Why a text is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not the JSON that it should be.
    #[error("not a policy in JSON")]
    Json(#[from] serde_json::Error),
    /// A word of a rule means nothing.
    #[error("{direction} rule {number}: {fault}")]
    Rule {
        /// Of which direction.
        direction: Direction,
        /// Which, counted from 1.
        number: usize,
        /// What is wrong.
        fault: RuleFault,
    },
}

/// What is wrong with a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleFault {
    /// No such protocol.
    #[error("`{0}` is no protocol: tcp, udp, sctp, icmp, icmpv6 or a number below 256")]
    Protocol(String),
    /// No port and no range.
    #[error("`{0}` is no port and no range of ports")]
    Ports(String),
    /// No address and no prefix.
    #[error("`{0}` is no address and no prefix")]
    Address(String),
    /// Ports of a protocol that has none.
    #[error("ports belong to tcp, udp or sctp")]
    PortsWithout,
    /// ICMP kinds of a protocol that is not ICMP.
    #[error("icmp kinds belong to icmp or icmpv6")]
    KindsWithout,
    /// An empty list, which would match nothing.
    #[error("an empty list of {0} matches nothing; leave it out to match all")]
    Empty(&'static str),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    mode: Mode,
    ingress: Option<ChainText>,
    egress: Option<ChainText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainText {
    isolated: bool,
    #[serde(default)]
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    action: Action,
    #[serde(default = "default_order")]
    order: i32,
    protocol: Option<ProtocolText>,
    ports: Option<Vec<PortsText>>,
    icmp: Option<Vec<IcmpKind>>,
    peers: Option<Vec<String>>,
    local: Option<Vec<String>>,
    #[serde(default)]
    log: bool,
}

/// The order of Kubernetes documents.
const fn default_order() -> i32 {
    1000
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ProtocolText {
    Number(u8),
    Name(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PortsText {
    Port(u16),
    Range(String),
}

pub(super) fn parse(text: &[u8]) -> Result<Body, PolicyError> {
    let policy: PolicyText = serde_json::from_slice(text)?;
    let mut body = Body { mode: policy.mode, ..Body::default() };
    for (direction, chain) in [(Direction::Ingress, policy.ingress), (Direction::Egress, policy.egress)] {
        let Some(chain) = chain else { continue };
        let mut equals: BTreeMap<RuleKey, u32> = BTreeMap::new();
        let mut rules = Vec::with_capacity(chain.rules.len());
        for (index, text) in chain.rules.into_iter().enumerate() {
            let built = build(direction, text, &mut equals);
            let (rule, sets) = built.map_err(|fault| PolicyError::Rule { direction, number: index + 1, fault })?;
            rules.push(rule);
            body.sets.extend(sets);
        }
        *body.chain_mut(direction) = Chain { isolated: chain.isolated, rules };
    }
    Ok(body.canonical())
}

fn build(
    direction: Direction,
    text: RuleText,
    equals: &mut BTreeMap<RuleKey, u32>,
) -> Result<(Rule, Vec<Set>), RuleFault> {
    let statement = statement(text.protocol, text.ports, text.icmp)?;
    let said = format!("{direction} {} {:?} {statement:?}", text.order, text.action);
    let first = RuleKey::from_bytes(short(RULE_CONTEXT, &[said.as_bytes()]));
    let nth = equals.entry(first).and_modify(|count| *count += 1).or_insert(0);
    let key = match *nth {
        0 => first,
        nth => RuleKey::from_bytes(short(RULE_CONTEXT, &[said.as_bytes(), &nth.to_be_bytes()])),
    };
    let mut sets = Vec::new();
    let mut named = |members: Option<Vec<String>>, role: &'static str| match members {
        None => Ok(None),
        Some(members) if members.is_empty() => Err(RuleFault::Empty(role)),
        Some(members) => {
            let set_key =
                SetKey::from_bytes(short(SET_CONTEXT, &[direction_byte(direction), key.as_bytes(), role.as_bytes()]));
            sets.push(set(set_key, &members)?);
            Ok(Some(set_key))
        }
    };
    let peers = named(text.peers, "peers")?.map_or(Peers::Any, Peers::Set);
    let local = named(text.local, "local")?;
    let rule = Rule { key, order: text.order, action: text.action, statement, peers, local, log: text.log };
    Ok((rule, sets))
}

const fn direction_byte(direction: Direction) -> &'static [u8] {
    match direction {
        Direction::Ingress => b"i",
        Direction::Egress => b"e",
    }
}

fn short(context: &str, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in parts {
        hasher.update(part);
    }
    let mut key = [0; 16];
    key.iter_mut().zip(hasher.finalize().as_bytes()).for_each(|(to, from)| *to = *from);
    key
}

fn statement(
    protocol: Option<ProtocolText>,
    ports: Option<Vec<PortsText>>,
    icmp: Option<Vec<IcmpKind>>,
) -> Result<Statement, RuleFault> {
    let number = match protocol {
        None => None,
        Some(ProtocolText::Number(number)) => Some(number),
        Some(ProtocolText::Name(name)) => Some(match name.as_str() {
            "tcp" => protocol::TCP,
            "udp" => protocol::UDP,
            "sctp" => protocol::SCTP,
            "icmp" => protocol::ICMP,
            "icmpv6" => protocol::ICMPV6,
            _ => return Err(RuleFault::Protocol(name)),
        }),
    };
    match (number, ports, icmp) {
        (None, None, None) => Ok(Statement::Any),
        (Some(number), None, None) => Ok(Statement::Protocol(number)),
        (Some(number @ (protocol::TCP | protocol::UDP | protocol::SCTP)), Some(ports), None) => {
            if ports.is_empty() {
                return Err(RuleFault::Empty("ports"));
            }
            let ranges = ports.into_iter().map(range).collect::<Result<_, _>>()?;
            Ok(Statement::ports(number, ranges))
        }
        (Some(number @ (protocol::ICMP | protocol::ICMPV6)), None, Some(mut kinds)) => {
            if kinds.is_empty() {
                return Err(RuleFault::Empty("icmp"));
            }
            kinds.sort_unstable();
            kinds.dedup();
            let family = if number == protocol::ICMP { Family::V4 } else { Family::V6 };
            Ok(Statement::Icmp { family, kinds })
        }
        (_, Some(_), _) => Err(RuleFault::PortsWithout),
        (_, None, Some(_)) => Err(RuleFault::KindsWithout),
    }
}

fn range(text: PortsText) -> Result<PortRange, RuleFault> {
    match text {
        PortsText::Port(port) => Ok(PortRange::single(port)),
        PortsText::Range(text) => parse_range(&text).ok_or(RuleFault::Ports(text)),
    }
}

/// `80` or `8000-8099`.
pub(crate) fn parse_range(text: &str) -> Option<PortRange> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = PortRange { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? };
    (range.first <= range.last).then_some(range)
}

fn set(key: SetKey, members: &[String]) -> Result<Set, RuleFault> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for member in members {
        let net = member.parse().or_else(|_| member.parse::<std::net::IpAddr>().map(ipnet::IpNet::from));
        match interval_of(net.map_err(|_| RuleFault::Address(member.clone()))?) {
            Either::V4(interval) => v4.push(interval),
            Either::V6(interval) => v6.push(interval),
        }
    }
    Ok(Set { key, v4: IntervalSet::covering(v4), v6: IntervalSet::covering(v6) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"mode": "enforced", "ingress": {"isolated": true, "rules": [
        {"action": "allow", "protocol": "tcp", "ports": [80, "8000-8099"], "peers": ["10.0.0.0/24", "2001:db8::1"]},
        {"action": "allow", "protocol": "tcp", "ports": [80, "8000-8099"], "peers": ["10.0.1.0/24"]},
        {"action": "deny", "protocol": "icmp", "icmp": [{"kind": 8, "code": null}]}]}}"#;

    #[test]
    fn a_policy_becomes_a_canonical_body_and_peers_do_not_name_their_rule() {
        let body = parse(TEXT.as_bytes()).expect("a policy");
        assert_eq!(body.check(), Ok(()));
        assert_eq!((body.ingress.rules.len(), body.sets.len(), body.egress.isolated), (3, 2, false));
        let edited = parse(TEXT.replace("10.0.1.0/24", "10.0.9.0/24").as_bytes()).expect("a policy");
        assert_eq!(body.ingress, edited.ingress);
        assert_ne!(body.sets, edited.sets);
    }

    #[test]
    fn a_fault_is_told_with_its_rule() {
        for (good, bad, word) in [
            ("\"8000-8099\"", "\"8099-8000\"", "no port"),
            ("10.0.1.0/24", "10.0.1.0/33", "no address"),
            ("\"icmp\",", "\"tcp\",", "KindsWithout"),
            ("\"tcp\"", "\"tpc\"", "no protocol"),
        ] {
            let error = parse(TEXT.replacen(good, bad, 1).as_bytes()).expect_err("faulty");
            assert!(format!("{error} {error:?}").contains(word), "{error}");
        }
        assert!(matches!(parse(br#"{"mode": "enforced", "ingres": null}"#), Err(PolicyError::Json(_))));
    }
}
