//! Our kinds that are no policy: AddressGroup, Endpoint, Host, Namespace.

use std::net::IpAddr;

use holdfast_model::intent::{AddressGroupSpec, EndpointSpec, HostSpec, NamespaceSpec};
use holdfast_model::policy::Mode;
use ipnet::IpNet;

use crate::address_list::{AddressListError, parse_entry, read_address_list};
use crate::cursor::{At, Nulls};
use crate::fault::{RuleName, Sink, quote};
use crate::limits;
use crate::scalar;
use crate::tree::Value;

/// `cidrs` as a list, or as a text with one a line.
pub(super) fn address_group(at: &At<'_>, sink: &mut Sink) -> Option<AddressGroupSpec> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let cidrs = fields.need(sink, "cidrs").and_then(|at| match &at.node.value {
        Value::Text(text) => text_list(text, &at, sink),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Fraction | Value::List(_) | Value::Map(_) => {
            let items = at.items(sink, limits::GROUP_ENTRIES_MAX)?;
            Some(items.iter().filter_map(|item| entry(item, sink)).collect())
        }
    });
    fields.end(sink);
    Some(AddressGroupSpec { cidrs: cidrs? })
}

fn entry(at: &At<'_>, sink: &mut Sink) -> Option<IpNet> {
    let text = at.text(sink)?;
    let net = parse_entry(text);
    if net.is_none() {
        at.fault(sink, RuleName::Cidr, format!("{} is neither a prefix nor an address", quote(text)));
    }
    net
}

fn text_list(text: &str, at: &At<'_>, sink: &mut Sink) -> Option<Vec<IpNet>> {
    match read_address_list(text) {
        Ok(nets) => Some(nets),
        Err(AddressListError::Lines { lines }) => {
            for (line, entry) in lines {
                let message = format!("line {line} of the list is neither a prefix nor an address: {entry}");
                at.fault(sink, RuleName::ListLine, message);
            }
            None
        }
        Err(error @ AddressListError::TooLong) => {
            at.fault(sink, RuleName::ListLimit, error.to_string());
            None
        }
    }
}

/// An address with labels and no agent.
pub(super) fn endpoint(at: &At<'_>, sink: &mut Sink) -> Option<EndpointSpec> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let labels = fields.take("labels").and_then(|at| scalar::labels(&at, sink, Nulls::Fault)).unwrap_or_default();
    let ports = fields.take("ports").and_then(|at| scalar::declared_ports(&at, sink)).unwrap_or_default();
    let addresses = fields.need(sink, "addresses").and_then(|at| addresses(&at, sink));
    fields.end(sink);
    Some(EndpointSpec { labels, addresses: addresses?, ports })
}

fn addresses(at: &At<'_>, sink: &mut Sink) -> Option<Vec<IpAddr>> {
    let items = at.items(sink, limits::ENDPOINT_ADDRESSES_MAX)?;
    if items.is_empty() {
        at.fault(sink, RuleName::AddressMissing, "an endpoint has at least one address");
        return None;
    }
    let mut found: Vec<IpAddr> = Vec::with_capacity(items.len());
    for item in items {
        match scalar::address(&item, sink) {
            Some(address) if found.contains(&address) => {
                item.fault(sink, RuleName::AddressRepeated, format!("{address} is there twice"));
            }
            Some(address) => found.push(address),
            None => {}
        }
    }
    found.sort_unstable();
    Some(found)
}

/// What an operator says about an enrolled machine.
pub(super) fn host(at: &At<'_>, sink: &mut Sink) -> HostSpec {
    let Some(mut fields) = at.fields(sink, Nulls::Fault) else { return HostSpec::default() };
    let labels = fields.take("labels").and_then(|at| scalar::labels(&at, sink, Nulls::Fault)).unwrap_or_default();
    let ports = fields.take("ports").and_then(|at| scalar::declared_ports(&at, sink));
    let mode = fields.take("mode").and_then(|at| mode(&at, sink));
    fields.end(sink);
    HostSpec { labels, ports, mode }
}

fn mode(at: &At<'_>, sink: &mut Sink) -> Option<Mode> {
    let word = at.text(sink)?;
    match word {
        "visibility" => Some(Mode::Visibility),
        "simulation" => Some(Mode::Simulation),
        "enforced" => Some(Mode::Enforced),
        _ => {
            at.fault(sink, RuleName::Mode, format!("{} is not visibility, simulation or enforced", quote(word)));
            None
        }
    }
}

/// The tenancy of other objects.
pub(super) fn namespace(at: &At<'_>, sink: &mut Sink) -> NamespaceSpec {
    let Some(mut fields) = at.fields(sink, Nulls::Fault) else { return NamespaceSpec::default() };
    let labels = fields.take("labels").and_then(|at| scalar::labels(&at, sink, Nulls::Fault)).unwrap_or_default();
    fields.end(sink);
    NamespaceSpec { labels }
}
