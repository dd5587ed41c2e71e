//! `holdfast.dev/v1` Policy: Kubernetes' meaning, and order, deny, ICMP, other protocols, address groups and log besides.
//!
//! - Nothing is empty by accident: a selector says its labels or `all: true`; an absent peer list is anybody, an empty one nobody.
//! - `isolate` is what it says; absent, the directions that have an allow rule are isolated.

use holdfast_model::intent::{DEFAULT_ORDER, Policy, PolicyRule, ServiceSpec};
use holdfast_model::policy::{Action, Direction};

use super::{peer, service};
use crate::cursor::{At, Nulls};
use crate::fault::{RuleName, Sink, quote};
use crate::limits;
use crate::scalar;
use crate::selector::{Empty, selector};

/// Reads a `spec`.
pub(super) fn policy(at: &At<'_>, sink: &mut Sink) -> Option<Policy> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let subject = fields.need(sink, "hostSelector").and_then(|at| selector(&at, sink, Empty::Fault));
    let order = fields.take("order").and_then(|at| order(&at, sink)).unwrap_or(DEFAULT_ORDER);
    let ingress = rules(fields.take("ingress"), "from", order, sink);
    let egress = rules(fields.take("egress"), "to", order, sink);
    let isolate = fields.take("isolate").map(|at| directions(&at, sink));
    fields.end(sink);
    let allows = |rules: &[PolicyRule]| rules.iter().any(|rule| rule.action == Action::Allow);
    let (isolate_ingress, isolate_egress) = match isolate {
        Some(list) => (list.contains(&Direction::Ingress), list.contains(&Direction::Egress)),
        None => (allows(&ingress), allows(&egress)),
    };
    Some(Policy { subject: subject?, isolate_ingress, isolate_egress, ingress, egress })
}

fn order(at: &At<'_>, sink: &mut Sink) -> Option<i32> {
    let number = at.integer(sink)?;
    let order = i32::try_from(number).ok();
    if order.is_none() {
        at.fault(sink, RuleName::Order, format!("{number} does not fit: orders go from {} to {}", i32::MIN, i32::MAX));
    }
    order
}

fn directions(at: &At<'_>, sink: &mut Sink) -> Vec<Direction> {
    let mut found = Vec::new();
    for item in at.items(sink, limits::LIST_MAX).unwrap_or_default() {
        let Some(word) = item.text(sink) else { continue };
        match Direction::ALL.into_iter().find(|direction| direction.to_string() == word) {
            Some(direction) if found.contains(&direction) => {
                item.fault(sink, RuleName::Direction, format!("{direction} is there twice"));
            }
            Some(direction) => found.push(direction),
            None => item.fault(sink, RuleName::Direction, format!("{} is not ingress or egress", quote(word))),
        }
    }
    found
}

fn rules(at: Option<At<'_>>, peers_field: &str, order: i32, sink: &mut Sink) -> Vec<PolicyRule> {
    let Some(at) = at else { return Vec::new() };
    let items = at.items(sink, limits::RULES_MAX).unwrap_or_default();
    items.iter().filter_map(|item| rule(item, peers_field, order, sink)).collect()
}

fn rule(at: &At<'_>, peers_field: &str, order: i32, sink: &mut Sink) -> Option<PolicyRule> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let action = match fields.take("action") {
        None => Some(Action::Allow),
        Some(at) => at.text(sink).and_then(|word| match word {
            "allow" => Some(Action::Allow),
            "deny" => Some(Action::Deny),
            _ => {
                at.fault(sink, RuleName::Action, format!("{} is not allow or deny", quote(word)));
                None
            }
        }),
    };
    let order = fields.take("order").map_or(Some(order), |at| self::order(&at, sink));
    let peers = peer::peers(fields.take(peers_field), sink);
    let services = match fields.take("services") {
        None => ServiceSpec::Any,
        Some(at) => ServiceSpec::Of(service::services(&at, sink)),
    };
    let local = fields.take("local").map(|at| scalar::cidrs(&at, sink));
    let log = fields.take("log").map_or(Some(false), |at| at.boolean(sink));
    fields.end(sink);
    let local = match local {
        None => None,
        Some(cidrs) => Some(cidrs?),
    };
    Some(PolicyRule { order: order?, action: action?, peers, services, local, log: log? })
}
