//! Single values that both dialects share: names, labels, prefixes, addresses, ports, protocols.

use std::net::IpAddr;

use holdfast_model::intent::DeclaredPort;
use holdfast_model::label::{Labels, check_key, check_value};
use holdfast_model::name::Name;
use holdfast_model::policy::{PortRange, protocol};
use ipnet::IpNet;

use crate::cursor::{At, Nulls};
use crate::fault::{RuleName, Sink, quote};
use crate::limits;

/// A name of an object, namespace or group.
pub(crate) fn name(at: &At<'_>, sink: &mut Sink) -> Option<Name> {
    let text = at.text(sink)?;
    match text.parse::<Name>() {
        Ok(name) => Some(name),
        Err(error) => {
            at.fault(sink, RuleName::Name, format!("{} is no name: {error}", quote(text)));
            None
        }
    }
}

/// A label key.
pub(crate) fn label_key(text: &str, at: &At<'_>, sink: &mut Sink) -> Option<String> {
    match check_key(text) {
        Ok(()) => Some(text.to_owned()),
        Err(error) => {
            at.fault(sink, RuleName::LabelKey, format!("{} is no label key: {error}", quote(text)));
            None
        }
    }
}

/// A label value.
pub(crate) fn label_value(at: &At<'_>, sink: &mut Sink) -> Option<String> {
    let text = at.text(sink)?;
    match check_value(text) {
        Ok(()) => Some(text.to_owned()),
        Err(error) => {
            at.fault(sink, RuleName::LabelValue, format!("{} is no label value: {error}", quote(text)));
            None
        }
    }
}

/// A map of labels.
pub(crate) fn labels(at: &At<'_>, sink: &mut Sink, nulls: Nulls) -> Option<Labels> {
    let fields = at.fields(sink, nulls)?;
    let mut labels = Labels::new();
    for (key, value_at) in fields.rest() {
        if let (Some(key), Some(value)) = (label_key(key, &value_at, sink), label_value(&value_at, sink)) {
            labels.insert(key, value);
        }
    }
    Some(labels)
}

/// A prefix, its host bits cleared. An IPv4-mapped one is the IPv4 prefix that it means.
pub(crate) fn cidr(at: &At<'_>, sink: &mut Sink) -> Option<IpNet> {
    let text = at.text(sink)?;
    match parse_cidr(text) {
        Some(net) => Some(net),
        None => {
            at.fault(sink, RuleName::Cidr, format!("{} is no prefix, as 192.0.2.0/24 or 2001:db8::/32", quote(text)));
            None
        }
    }
}

/// Reads a prefix. A number has no leading zero: some read `010` as eight.
pub(crate) fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let is_plain = length == "0" || (!length.starts_with('0') && length.bytes().all(|byte| byte.is_ascii_digit()));
    let length = length.parse().ok().filter(|_| is_plain)?;
    let net = IpNet::new(address.parse().ok()?, length).ok()?.trunc();
    match net {
        IpNet::V4(_) => Some(net),
        IpNet::V6(v6) => match v6.network().to_ipv4_mapped() {
            Some(v4) if v6.prefix_len() >= 96 => IpNet::new(IpAddr::V4(v4), v6.prefix_len() - 96).ok(),
            _ => Some(net),
        },
    }
}

/// A list of prefixes, sorted and each once.
pub(crate) fn cidrs(at: &At<'_>, sink: &mut Sink) -> Option<Vec<IpNet>> {
    let items = at.items(sink, limits::LIST_MAX)?;
    let mut nets: Vec<IpNet> = items.iter().filter_map(|item| cidr(item, sink)).collect();
    nets.sort_unstable();
    nets.dedup();
    Some(nets)
}

/// An address.
pub(crate) fn address(at: &At<'_>, sink: &mut Sink) -> Option<IpAddr> {
    let text = at.text(sink)?;
    match text.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical()),
        Err(_) => {
            at.fault(sink, RuleName::Address, format!("{} is no address, as 192.0.2.7 or 2001:db8::7", quote(text)));
            None
        }
    }
}

/// A port.
pub(crate) fn port(at: &At<'_>, sink: &mut Sink) -> Option<u16> {
    let number = at.integer(sink)?;
    match u16::try_from(number) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            at.fault(sink, RuleName::Port, format!("{number} is no port: ports go from 1 to 65535"));
            None
        }
    }
}

/// The name of a port: Kubernetes' grammar, RFC 6335.
pub(crate) fn port_name(text: &str, at: &At<'_>, sink: &mut Sink) -> Option<String> {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let good = (1..=limits::PORT_NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && text.bytes().any(|c| c.is_ascii_lowercase())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--");
    if good {
        return Some(text.to_owned());
    }
    let max = limits::PORT_NAME_BYTES_MAX;
    let grammar = format!("1 to {max} of a-z, 0-9 and single `-` inside, at least one letter");
    at.fault(sink, RuleName::PortName, format!("{} is no name of a port: {grammar}", quote(text)));
    None
}

/// Two ends of a range.
pub(crate) fn port_range(first: u16, last: u16, at: &At<'_>, sink: &mut Sink) -> Option<PortRange> {
    if first <= last {
        return Some(PortRange { first, last });
    }
    at.fault(sink, RuleName::PortRange, format!("the range {first}-{last} does not ascend"));
    None
}

/// The protocol with ports that a word names; words as in Kubernetes, in either case in our own kinds.
pub(crate) fn transport(word: &str) -> Option<u8> {
    match word {
        "TCP" | "tcp" => Some(protocol::TCP),
        "UDP" | "udp" => Some(protocol::UDP),
        "SCTP" | "sctp" => Some(protocol::SCTP),
        _ => None,
    }
}

/// A list of declared ports.
pub(crate) fn declared_ports(at: &At<'_>, sink: &mut Sink) -> Option<Vec<DeclaredPort>> {
    let mut ports: Vec<DeclaredPort> = Vec::new();
    for item in at.items(sink, limits::DECLARED_PORTS_MAX)? {
        let Some(declared) = declared_port(&item, sink) else { continue };
        if ports.iter().any(|there| there.name == declared.name && there.protocol == declared.protocol) {
            let message = format!("the port {} is declared twice for one protocol", quote(&declared.name));
            item.fault(sink, RuleName::PortRepeated, message);
        } else {
            ports.push(declared);
        }
    }
    ports.sort_unstable();
    Some(ports)
}

fn declared_port(at: &At<'_>, sink: &mut Sink) -> Option<DeclaredPort> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let name = fields.need(sink, "name").and_then(|at| port_name(at.text(sink)?, &at, sink));
    let port = fields.need(sink, "port").and_then(|at| self::port(&at, sink));
    let protocol = match fields.take("protocol") {
        None => Some(protocol::TCP),
        Some(at) => at.text(sink).and_then(|word| {
            let found = transport(word);
            if found.is_none() {
                at.fault(sink, RuleName::Protocol, format!("{} is not tcp, udp or sctp", quote(word)));
            }
            found
        }),
    };
    fields.end(sink);
    Some(DeclaredPort { name: name?, protocol: protocol?, port: port? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_read_in_one_spelling_only() {
        let read = |text| parse_cidr(text).map(|net| net.to_string());
        assert_eq!(read("10.1.2.3/8").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(read("::ffff:10.0.0.0/104").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(read("::/0").as_deref(), Some("::/0"));
        for text in [
            "010.0.0.0/8",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/ 8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0",
            "10.0.0/8",
            "fe80::1%1/64",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
