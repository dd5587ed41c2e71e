//! Services of our own Policy: `tcp: 443`, `udp: [53, 5000-5100, dns]`, `sctp: any`, `icmp: echo-request`, `protocol: 47`.

use holdfast_model::intent::{PortSpec, Service};
use holdfast_model::policy::{IcmpKind, PortRange};

use crate::cursor::{At, Nulls};
use crate::fault::{RuleName, Sink, quote};
use crate::limits;
use crate::scalar;
use crate::tree::Value;

/// ICMP by word, with the type in each family; code any (RFC 792, RFC 4443). Two types where a family needs both to do the same work.
const ICMP_WORDS: [(&str, &[u8], &[u8]); 6] = [
    ("echo", &[0, 8], &[128, 129]),
    ("echo-request", &[8], &[128]),
    ("echo-reply", &[0], &[129]),
    ("destination-unreachable", &[3], &[1, 2]),
    ("time-exceeded", &[11], &[3]),
    ("parameter-problem", &[12], &[4]),
];

/// A list of services, sorted and each once.
pub(super) fn services(at: &At<'_>, sink: &mut Sink) -> Vec<Service> {
    let mut all = Vec::new();
    for item in at.items(sink, limits::LIST_MAX).unwrap_or_default() {
        service(&item, sink, &mut all);
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn service(at: &At<'_>, sink: &mut Sink, all: &mut Vec<Service>) {
    let Some(mut fields) = at.fields(sink, Nulls::Fault) else { return };
    let mut found: Vec<(&str, At<'_>)> = Vec::new();
    for word in ["tcp", "udp", "sctp", "icmp", "protocol"] {
        found.extend(fields.take(word).map(|at| (word, at)));
    }
    fields.end(sink);
    let [(word, value_at)] = found.as_slice() else {
        at.fault(sink, RuleName::Service, "a service has exactly one of tcp, udp, sctp, icmp and protocol");
        return;
    };
    match scalar::transport(word) {
        Some(number) => all.extend(one_or_list(value_at, sink, |at, sink| ports(number, at, sink))),
        None if *word == "icmp" => all.extend(icmp(value_at, sink)),
        None => all.extend(protocol_number(value_at, sink).map(Service::Protocol)),
    }
}

/// Reads a value that is one thing or a list of such.
fn one_or_list<T>(at: &At<'_>, sink: &mut Sink, mut read: impl FnMut(&At<'_>, &mut Sink) -> Option<T>) -> Vec<T> {
    match &at.node.value {
        Value::List(_) => {
            let items = at.items(sink, limits::LIST_MAX).unwrap_or_default();
            items.iter().filter_map(|item| read(item, sink)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Fraction | Value::Text(_) | Value::Map(_) => {
            read(at, sink).into_iter().collect()
        }
    }
}

fn ports(number: u8, at: &At<'_>, sink: &mut Sink) -> Option<Service> {
    let Value::Text(text) = &at.node.value else {
        let port = scalar::port(at, sink)?;
        return Some(Service::Ports { protocol: number, ports: PortSpec::Range(PortRange::single(port)) });
    };
    if text == "any" {
        return Some(Service::Protocol(number));
    }
    let range = text.split_once('-').and_then(|(first, last)| Some((decimal(first)?, decimal(last)?)));
    let ports = match (range, decimal(text)) {
        (Some((first, last)), _) => PortSpec::Range(range_of(first, last, at, sink)?),
        (None, Some(port)) => PortSpec::Range(range_of(port, port, at, sink)?),
        (None, None) => PortSpec::Named(scalar::port_name(text, at, sink)?),
    };
    Some(Service::Ports { protocol: number, ports })
}

fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 10 && text.bytes().all(|c| c.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn range_of(first: u64, last: u64, at: &At<'_>, sink: &mut Sink) -> Option<PortRange> {
    match (u16::try_from(first), u16::try_from(last)) {
        (Ok(first), Ok(last)) if first > 0 && last > 0 => scalar::port_range(first, last, at, sink),
        _ => {
            at.fault(sink, RuleName::Port, format!("{first}-{last}: ports go from 1 to 65535"));
            None
        }
    }
}

fn protocol_number(at: &At<'_>, sink: &mut Sink) -> Option<u8> {
    let number = at.integer(sink)?;
    let found = u8::try_from(number).ok();
    if found.is_none() {
        at.fault(sink, RuleName::Protocol, format!("{number} is no IP protocol: they go from 0 to 255"));
    }
    found
}

/// `any`, a word, a list of words, or `{v4: [{type, code}], v6: [{type, code}]}`.
fn icmp(at: &At<'_>, sink: &mut Sink) -> Option<Service> {
    if matches!(&at.node.value, Value::Text(text) if text == "any") {
        return Some(Service::Icmp { v4: Vec::new(), v6: Vec::new() });
    }
    let (mut v4, mut v6) = if matches!(at.node.value, Value::Map(_)) {
        let mut fields = at.fields(sink, Nulls::Fault)?;
        let v4 = fields.take("v4").map(|at| kinds(&at, sink)).unwrap_or_default();
        let v6 = fields.take("v6").map(|at| kinds(&at, sink)).unwrap_or_default();
        fields.end(sink);
        (v4, v6)
    } else {
        let any_code = |types: &[u8]| types.iter().map(|kind| IcmpKind { kind: *kind, code: None }).collect::<Vec<_>>();
        let words = one_or_list(at, sink, icmp_word);
        let (v4, v6): (Vec<_>, Vec<_>) = words.into_iter().map(|(v4, v6)| (any_code(v4), any_code(v6))).unzip();
        (v4.concat(), v6.concat())
    };
    if v4.is_empty() && v6.is_empty() {
        // Two empty lists are all ICMP in the model, which only the word `any` may say.
        at.fault(sink, RuleName::Icmp, "no type of ICMP is named: write `any` if all are meant");
        return None;
    }
    for kinds in [&mut v4, &mut v6] {
        kinds.sort_unstable();
        kinds.dedup();
    }
    Some(Service::Icmp { v4, v6 })
}

fn icmp_word(at: &At<'_>, sink: &mut Sink) -> Option<(&'static [u8], &'static [u8])> {
    let word = at.text(sink)?;
    let found = ICMP_WORDS.iter().find(|(known, ..)| *known == word).map(|(_, v4, v6)| (*v4, *v6));
    if found.is_none() {
        let known: Vec<&str> = ICMP_WORDS.iter().map(|(known, ..)| *known).collect();
        at.fault(sink, RuleName::Icmp, format!("{} is not any, {}", quote(word), known.join(", ")));
    }
    found
}

fn kinds(at: &At<'_>, sink: &mut Sink) -> Vec<IcmpKind> {
    let items = at.items(sink, limits::LIST_MAX).unwrap_or_default();
    items.iter().filter_map(|item| kind(item, sink)).collect()
}

fn kind(at: &At<'_>, sink: &mut Sink) -> Option<IcmpKind> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let kind = fields.need(sink, "type").and_then(|at| byte(&at, sink));
    let code = fields.take("code").map(|at| byte(&at, sink));
    fields.end(sink);
    let code = match code {
        None => None,
        Some(code) => Some(code?),
    };
    Some(IcmpKind { kind: kind?, code })
}

fn byte(at: &At<'_>, sink: &mut Sink) -> Option<u8> {
    let number = at.integer(sink)?;
    let found = u8::try_from(number).ok();
    if found.is_none() {
        at.fault(sink, RuleName::Icmp, format!("{number} is no type or code of ICMP: they go from 0 to 255"));
    }
    found
}
