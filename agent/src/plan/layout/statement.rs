//! Statements as matches of one view.

use holdfast_model::address::Family;
use holdfast_model::policy::{IcmpKind, Statement};

use super::sets::Sets;
use super::{Place, View};
use crate::plan::matching::{End, Match};

/// The family that a statement binds its rule to.
pub(super) fn family(statement: &Statement) -> Option<Family> {
    match statement {
        Statement::Icmp { family, .. } => Some(*family),
        Statement::Any | Statement::Protocol(_) | Statement::Ports { .. } => None,
    }
}

/// One way to match a statement; each becomes a kernel rule of its own.
pub(super) struct Way {
    /// What tells it from the others of its rule, in the rule's id.
    pub(super) name: String,
    pub(super) matches: Vec<Match>,
}

/// The ways to match a statement in a view; none if no packet of that view can match it.
pub(super) fn ways(statement: &Statement, view: View, sets: &mut Sets) -> Vec<Way> {
    let one = |matches| vec![Way { name: String::new(), matches }];
    match statement {
        Statement::Any => one(Vec::new()),
        Statement::Protocol(protocol) => one(vec![Match::Protocol(*protocol)]),
        Statement::Ports { protocol, ranges } => {
            let (protocol, ports) = (*protocol, sets.ports(ranges));
            one(vec![match view.port() {
                Place::Header(end) => Match::Port { protocol, end, ports },
                Place::Original(End::Source | End::Destination) => Match::OriginalPort { protocol, ports },
            }])
        }
        Statement::Icmp { family, kinds } if view.mirrored => {
            let mut answers: Vec<u8> = kinds.iter().filter_map(|kind| answer(*family, kind.kind)).collect();
            answers.dedup();
            answers.into_iter().map(|kind| icmp_way(*family, IcmpKind { kind, code: None })).collect()
        }
        Statement::Icmp { family, kinds } => kinds.iter().map(|kind| icmp_way(*family, *kind)).collect(),
    }
}

/// One kind. Not a set of kinds: what `nft` lists for such a lookup loads again without the test for ICMP.
fn icmp_way(family: Family, kind: IcmpKind) -> Way {
    let mut matches = vec![Match::IcmpType { family, first: kind.kind, last: kind.kind }];
    matches.extend(kind.code.map(Match::IcmpCode));
    let code = kind.code.map_or(String::new(), |code| format!(".{code}"));
    Way { name: format!("/icmp-{}{code}", kind.kind), matches }
}

/// The answer to those kinds that connection tracking ties to an answer; the others have none.
const fn answer(family: Family, kind: u8) -> Option<u8> {
    match (family, kind) {
        // Echo.
        (Family::V4, 8) => Some(0),
        // Timestamp, information, address mask of IPv4; echo and node information of IPv6.
        (Family::V4, 13 | 15 | 17) | (Family::V6, 128 | 139) => Some(kind + 1),
        (Family::V4 | Family::V6, _) => None,
    }
}
