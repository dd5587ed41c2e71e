//! The other end of a rule in our own kinds, and exceptions of prefixes, which both dialects have.

use holdfast_model::intent::{NamespaceMatch, Peer, PeerSpec};
use holdfast_model::label::Selector;
use ipnet::IpNet;

use crate::cursor::{At, Nulls};
use crate::fault::{RuleName, Sink};
use crate::limits;
use crate::scalar;
use crate::selector::{Empty, selector};

/// Peers: anybody if the field is absent, nobody if the list is empty.
pub(super) fn peers(at: Option<At<'_>>, sink: &mut Sink) -> PeerSpec {
    let Some(at) = at else { return PeerSpec::Any };
    let items = at.items(sink, limits::LIST_MAX).unwrap_or_default();
    let mut peers: Vec<Peer> = items.iter().filter_map(|item| peer(item, sink)).collect();
    peers.sort_unstable();
    peers.dedup();
    PeerSpec::Of(peers)
}

fn peer(at: &At<'_>, sink: &mut Sink) -> Option<Peer> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let hosts = fields.take("hostSelector").map(|at| selector(&at, sink, Empty::Fault));
    let namespaces = fields.take("namespaceSelector").map(|at| selector(&at, sink, Empty::Fault));
    let cidr_at = fields.take("cidr");
    let except_at = fields.take("except");
    let group_at = fields.take("addressGroup");
    fields.end(sink);
    let labels = hosts.is_some() || namespaces.is_some();
    if usize::from(labels) + usize::from(cidr_at.is_some()) + usize::from(group_at.is_some()) > 1 {
        at.fault(sink, RuleName::PeerMixed, "selectors, cidr and addressGroup exclude each other: make peers of them");
        return None;
    }
    if let (Some(except_at), None) = (&except_at, &cidr_at) {
        except_at.fault(sink, RuleName::Except, "exceptions are of a cidr, and there is none");
        return None;
    }
    if let Some(cidr_at) = cidr_at {
        let cidr = scalar::cidr(&cidr_at, sink);
        let except = except(except_at, cidr, sink);
        return Some(Peer::Cidr { cidr: cidr?, except });
    }
    if let Some(group_at) = group_at {
        return Some(Peer::Group(scalar::name(&group_at, sink)?));
    }
    if !labels {
        at.fault(sink, RuleName::PeerEmpty, "a peer has hostSelector, namespaceSelector, cidr or addressGroup");
        return None;
    }
    let labels = hosts.unwrap_or_else(|| Some(Selector::everything()))?;
    let namespaces = namespaces.map_or(Some(NamespaceMatch::Own), |found| found.map(NamespaceMatch::Select))?;
    Some(Peer::Select { namespaces, labels })
}

/// Exceptions, each strictly within its prefix.
pub(super) fn except(at: Option<At<'_>>, cidr: Option<IpNet>, sink: &mut Sink) -> Vec<IpNet> {
    let Some(at) = at else { return Vec::new() };
    let mut nets = Vec::new();
    for item in at.items(sink, limits::LIST_MAX).unwrap_or_default() {
        let (Some(net), Some(cidr)) = (scalar::cidr(&item, sink), cidr) else { continue };
        if cidr.contains(&net) && cidr != net {
            nets.push(net);
        } else {
            item.fault(sink, RuleName::Except, format!("{net} is not strictly within {cidr}"));
        }
    }
    nets.sort_unstable();
    nets.dedup();
    nets
}
