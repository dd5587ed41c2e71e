//! The reference evaluator asked the interpreter's question: one end's rules, one direction.

use std::net::IpAddr;

use holdfast_evaluator::{Decision, End, Flow, Packet as Asked, evaluate};
use holdfast_interpreter::{Direction, Packet, Verdict};
use holdfast_model::ids::HostId;
use holdfast_model::intent::{Intent, Spec};

/// What the evaluator says of a packet at a host; `None` where the two cannot mean the same: an address that several have is one peer to bytes and
/// several to intent, and ICMP of the other family is nobody's ICMP to the evaluator.
pub(crate) fn verdict(intent: &Intent, host: HostId, direction: Direction, packet: &Packet) -> Option<Verdict> {
    let is_v4 = packet.peer.is_ipv4();
    let asked = match (packet.protocol, packet.port, packet.icmp) {
        (protocol, Some(port), _) => Asked::Port { protocol, port },
        (1, _, Some((kind, code))) if is_v4 => Asked::Icmp { kind, code },
        (58, _, Some((kind, code))) if !is_v4 => Asked::Icmp { kind, code },
        (1 | 58, ..) => return None,
        (other, ..) => Asked::Other(other),
    };
    let (subject, peer) = (End::host(host, packet.local), owner(intent, packet.peer)?);
    let decision = match direction {
        Direction::Ingress => judge(intent, peer, subject, asked).1,
        Direction::Egress => judge(intent, subject, peer, asked).0,
    };
    Some(if decision.allows() { Verdict::Allowed } else { Verdict::Denied })
}

fn judge(intent: &Intent, from: End, to: End, packet: Asked) -> (Decision, Decision) {
    let verdict = evaluate(intent, &Flow { from, to, packet }).expect("both ends are of the intent and of one family");
    (verdict.egress, verdict.ingress)
}

/// Who has an address, if it is not several.
fn owner(intent: &Intent, address: IpAddr) -> Option<End> {
    let hosts = intent.hosts.values().filter(|host| host.addresses.contains(&address));
    let mut ends: Vec<End> = hosts.map(|host| End::host(host.id, address)).collect();
    for (key, spec) in &intent.objects {
        if let Spec::Endpoint(endpoint) = spec
            && endpoint.addresses.contains(&address)
        {
            ends.push(End::endpoint(key.clone(), address));
        }
    }
    match ends.len() {
        0 => Some(End::outside(address)),
        1 => ends.pop(),
        _ => None,
    }
}
