//! From a policy body to the ruleset that enforces it.
//!
//! - Packets that go as the one that opened their connection are matched by the rules of their direction, every one of them; packets that go against
//!   it are matched by the **mirror** of the same rules. So a rule that goes, or a deny that comes, stops its connections both ways at once.
//! - An open direction ends in accept, for its replies too; an isolated one lets through what a rule, or its mirror, names.
//! - What the agent keeps open stands before everything that was rendered.
//! - Simulation is enforcement with every drop turned into accept; visibility counts and asks nothing.
//! - Every chain begins with a rule that depends on neither body nor configuration: edits have something to stand behind.

use holdfast_model::address::Family;
use holdfast_model::policy::{Action, Body, Direction, Mode, Peers, Rule as PolicyRule, protocol};

use super::expr::Verdict;
use super::kept::Kept;
use super::matching::{End, Match, Ports};
use super::ruleset::{Chain, Effect, Hook, Rule, RuleId, Ruleset};
use super::set::Members;

mod sets;
mod statement;

use sets::{Sets, set_name};

/// The names of all chains that a ruleset may have.
pub const CHAIN_NAMES: [&str; 10] =
    ["base", "in_reply", "in", "out_reply", "out", "fwd_in_reply", "fwd_in", "fwd_out_reply", "fwd_out", "forward"];

const GATEWAYS: (&str, &str, &str) = ("gw4", "gw6", "gw_ports");
/// The rules that count what an isolated direction drops though it is a gateway's.
const GATEWAY_CUT: (&str, &str) = ("gateway-cut-v4", "gateway-cut-v6");
const RESOLVERS: (&str, &str) = ("dns4", "dns6");
const FAILSAFE: &str = "failsafe";
const DNS_PORT: u16 = 53;

/// Where a rule stands, and so which fields of a packet it reads.
#[derive(Clone, Copy)]
struct View {
    direction: Direction,
    /// Whether it is the mirror, for packets that go against the opening one.
    mirrored: bool,
    /// Whether packets pass through the host, so that their addresses may have been translated.
    forwarded: bool,
}

/// From where a port or an own address is read.
#[derive(Clone, Copy)]
enum Place {
    Header(End),
    /// From the opening packet, as it was before translation.
    Original(End),
}

/// Whether a rule counts what the policy drops though it is a gateway's.
pub(crate) fn is_gateway_cut(id: &str) -> bool {
    // That of a rule that denies stands before it, and has its name before this one.
    let name = id.rsplit('/').next().unwrap_or(id);
    [GATEWAY_CUT.0, GATEWAY_CUT.1].contains(&name)
}

impl View {
    const fn peer(self) -> End {
        match (self.direction, self.mirrored) {
            (Direction::Ingress, false) | (Direction::Egress, true) => End::Source,
            (Direction::Ingress, true) | (Direction::Egress, false) => End::Destination,
        }
    }

    const fn own(self) -> Place {
        match (self.direction, self.forwarded, self.peer()) {
            // Behind the host stands a container: the address that the peer asked for is the host's.
            (Direction::Ingress, true, _) => Place::Original(End::Destination),
            (Direction::Ingress | Direction::Egress, _, End::Source) => Place::Header(End::Destination),
            (Direction::Ingress | Direction::Egress, _, End::Destination) => Place::Header(End::Source),
        }
    }

    const fn port(self) -> Place {
        match (self.direction, self.forwarded, self.mirrored) {
            (Direction::Ingress, true, _) => Place::Original(End::Destination),
            (Direction::Ingress | Direction::Egress, _, false) => Place::Header(End::Destination),
            (Direction::Ingress | Direction::Egress, _, true) => Place::Header(End::Source),
        }
    }
}

/// The ruleset that enforces `body` and keeps `kept` open.
#[must_use]
pub fn layout(body: &Body, kept: &Kept) -> Ruleset {
    let mut sets = Sets::default();
    let chains = match body.mode {
        Mode::Visibility => visibility(),
        Mode::Simulation | Mode::Enforced => enforcement(body, kept, &mut sets),
    };
    Ruleset { chains, sets: sets.into_map() }
}

fn visibility() -> Vec<Chain> {
    let chain = |name, hook| Chain {
        name,
        hook: Some(hook),
        drops: false,
        // The question for the state is what switches connection tracking on in this network namespace.
        rules: vec![rule("new", vec![Match::StateNew], Effect::Count), rule("terminal", vec![], accept())],
    };
    vec![chain("in", Hook::Input), chain("out", Hook::Output), chain("forward", Hook::Forward)]
}

fn enforcement(body: &Body, kept: &Kept, sets: &mut Sets) -> Vec<Chain> {
    sets.put_pair(GATEWAYS.0, GATEWAYS.1, kept.gateway_sets());
    sets.put(GATEWAYS.2, kept.gateway_ports());
    sets.put_pair(RESOLVERS.0, RESOLVERS.1, kept.resolver_sets());
    sets.put(FAILSAFE, kept.failsafe_set());
    for set in &body.sets {
        sets.put(&set_name(set.key, Family::V4), Members::V4(set.v4.clone()));
        sets.put(&set_name(set.key, Family::V6), Members::V6(set.v6.clone()));
    }
    let view = |direction, mirrored, forwarded| View { direction, mirrored, forwarded };
    let mut chains = vec![
        base_chain(),
        side_chain("in_reply", view(Direction::Egress, true, false), body, kept, sets),
        side_chain("in", view(Direction::Ingress, false, false), body, kept, sets),
        side_chain("out_reply", view(Direction::Ingress, true, false), body, kept, sets),
        side_chain("out", view(Direction::Egress, false, false), body, kept, sets),
    ];
    if !kept.uplinks.is_empty() {
        chains.extend([
            side_chain("fwd_in_reply", view(Direction::Ingress, true, true), body, kept, sets),
            side_chain("fwd_in", view(Direction::Ingress, false, true), body, kept, sets),
            side_chain("fwd_out_reply", view(Direction::Egress, true, true), body, kept, sets),
            side_chain("fwd_out", view(Direction::Egress, false, true), body, kept, sets),
        ]);
    }
    chains.push(forward_chain(kept));
    chains
}

/// What passes in every hook: errors about connections that exist (path-MTU discovery lives on them), and how IPv6 finds its neighbours.
fn base_chain() -> Chain {
    let icmp6 = |first, last| vec![Match::IcmpType { family: Family::V6, first, last }];
    Chain {
        name: "base",
        hook: None,
        drops: false,
        rules: vec![
            rule("related-v4", vec![Match::StateRelated, Match::Protocol(protocol::ICMP)], accept()),
            rule("related-v6", vec![Match::StateRelated, Match::Protocol(protocol::ICMPV6)], accept()),
            // MLD query, report, done (130-132); router and neighbour solicitation and advertisement (133-136); MLDv2 report (143).
            rule("neighbours", icmp6(130, 136), accept()),
            rule("listeners", icmp6(143, 143), accept()),
        ],
    }
}

/// The chain of one view: what is kept open there, the rules, the end.
fn side_chain(name: &'static str, view: View, body: &Body, kept: &Kept, sets: &mut Sets) -> Chain {
    let chain = body.chain(view.direction);
    let mut rules = if view.forwarded { vec![rule("entered", vec![], Effect::Count)] } else { kept_rules(view, kept) };
    for policy_rule in &chain.rules {
        let own = kernel_rules(policy_rule, view, body.mode, sets);
        let is_judged = kept.is_unguarded && view.direction == Direction::Egress && !view.forwarded;
        rules.extend(if is_judged { with_gateway_cuts(own, view) } else { own });
    }
    if !view.mirrored {
        let matches = vec![Match::StateNew, Match::NoBareSyn];
        rules.push(denying("tcp-new-no-syn", matches, body.mode));
    }
    if chain.isolated && body.mode == Mode::Enforced && view.direction == Direction::Egress && !view.forwarded {
        // What is dropped next though it is a gateway's: the policy cuts this host off.
        let cut = |id, family| rule(id, gateway(view, family), Effect::Count);
        rules.extend([cut(GATEWAY_CUT.0, Family::V4), cut(GATEWAY_CUT.1, Family::V6)]);
    }
    rules.push(if chain.isolated {
        denying("terminal", vec![], body.mode)
    } else {
        rule("terminal", vec![], accept())
    });
    let hook = match (view.direction, view.mirrored || view.forwarded) {
        (_, true) => None,
        (Direction::Ingress, false) => Some(Hook::Input),
        (Direction::Egress, false) => Some(Hook::Output),
    };
    Chain { name, hook, drops: hook.is_some() && body.mode == Mode::Enforced, rules }
}

/// Rules of a policy, each that drops behind two that count what of it is a gateway's. Where gateways are kept open, no rule of a policy sees them.
fn with_gateway_cuts(rules: Vec<Rule>, view: View) -> Vec<Rule> {
    let cut = |denying: &Rule, name: &str, family| {
        let matches = denying.matches.iter().cloned().chain(gateway(view, family)).collect();
        rule(&format!("{}/{name}", denying.id), matches, Effect::Count)
    };
    let with_cuts = |one: Rule| {
        let drops = one.effect == Effect::Decide(Verdict::Drop);
        let cuts = drops.then(|| [cut(&one, GATEWAY_CUT.0, Family::V4), cut(&one, GATEWAY_CUT.1, Family::V6)]);
        cuts.into_iter().flatten().chain([one]).collect::<Vec<_>>()
    };
    rules.into_iter().flat_map(with_cuts).collect()
}

/// What a chain of the host's own traffic keeps open, whatever was rendered.
fn kept_rules(view: View, kept: &Kept) -> Vec<Rule> {
    let (direction, inbound) = (view.direction, view.peer() == End::Source);
    let mut rules = Vec::new();
    if view.mirrored {
        rules.push(rule("entered", vec![], Effect::Count));
    } else {
        let loopback = if inbound { Match::InLoopback } else { Match::OutLoopback };
        rules.push(rule("loopback", vec![loopback], accept()));
        rules.push(rule("base", vec![], Effect::Decide(Verdict::Jump("base"))));
        rules.push(dhcp("dhcp-v4", Family::V4, 67, 68, inbound));
        rules.push(dhcp("dhcp-v6", Family::V6, 547, 546, inbound));
        let goto = if inbound { Verdict::Goto("in_reply") } else { Verdict::Goto("out_reply") };
        rules.push(rule("reply", vec![Match::Reply], Effect::Decide(goto)));
    }
    let far_port = if view.mirrored { End::Source } else { End::Destination };
    match direction {
        Direction::Ingress => {
            let ports = Match::Port { protocol: protocol::TCP, end: far_port, ports: Ports::Set(FAILSAFE.into()) };
            rules.push(rule("failsafe", vec![ports], accept()));
        }
        Direction::Egress => {
            let to = |family, set: &str| Match::Address { family, end: view.peer(), set: set.into() };
            let port = |protocol, ports| Match::Port { protocol, end: far_port, ports };
            let dns = |protocol| port(protocol, Ports::Range(holdfast_model::policy::PortRange::single(DNS_PORT)));
            if !kept.is_unguarded {
                rules.extend([
                    rule("gateway-v4", gateway(view, Family::V4), accept()),
                    rule("gateway-v6", gateway(view, Family::V6), accept()),
                ]);
            }
            rules.extend([
                rule("dns-udp-v4", vec![to(Family::V4, RESOLVERS.0), dns(protocol::UDP)], accept()),
                rule("dns-udp-v6", vec![to(Family::V6, RESOLVERS.1), dns(protocol::UDP)], accept()),
                rule("dns-tcp-v4", vec![to(Family::V4, RESOLVERS.0), dns(protocol::TCP)], accept()),
                rule("dns-tcp-v6", vec![to(Family::V6, RESOLVERS.1), dns(protocol::TCP)], accept()),
            ]);
        }
    }
    rules
}

/// TCP with a gateway, in a view of what the host sends.
fn gateway(view: View, family: Family) -> Vec<Match> {
    let set = match family {
        Family::V4 => GATEWAYS.0,
        Family::V6 => GATEWAYS.1,
    };
    let far_port = if view.mirrored { End::Source } else { End::Destination };
    let ports = Match::Port { protocol: protocol::TCP, end: far_port, ports: Ports::Set(GATEWAYS.2.into()) };
    vec![Match::Address { family, end: view.peer(), set: set.into() }, ports]
}

/// DHCP between this client and a server; broadcast and link-local, so connection tracking does not tie answer to question.
fn dhcp(id: &'static str, family: Family, server: u16, client: u16, inbound: bool) -> Rule {
    let (source, destination) = if inbound { (server, client) } else { (client, server) };
    let port = |end, port| Match::Port {
        protocol: protocol::UDP,
        end,
        ports: Ports::Range(holdfast_model::policy::PortRange::single(port)),
    };
    rule(id, vec![Match::Family(family), port(End::Source, source), port(End::Destination, destination)], accept())
}

/// Packets that pass through: from an uplink inward they obey ingress, outward egress; between two insides nothing is asked.
fn forward_chain(kept: &Kept) -> Chain {
    let mut rules = vec![rule("base", vec![], Effect::Decide(Verdict::Jump("base")))];
    let goto = |chain| Effect::Decide(Verdict::Goto(chain));
    for uplink in &kept.uplinks {
        let into = || Match::InInterface(uplink.clone());
        let out = || Match::OutInterface(uplink.clone());
        rules.extend([
            rule(&format!("reply-out-{uplink}"), vec![Match::Reply, out()], goto("fwd_in_reply")),
            rule(&format!("reply-in-{uplink}"), vec![Match::Reply, into()], goto("fwd_out_reply")),
            rule(&format!("in-{uplink}"), vec![into()], goto("fwd_in")),
            rule(&format!("out-{uplink}"), vec![out()], goto("fwd_out")),
        ]);
    }
    rules.push(rule("terminal", vec![], accept()));
    Chain { name: "forward", hook: Some(Hook::Forward), drops: false, rules }
}

/// The kernel rules of one policy rule in one view: one per family that it speaks of and way to match, before each the one that logs if it logs.
fn kernel_rules(policy_rule: &PolicyRule, view: View, mode: Mode, sets: &mut Sets) -> Vec<Rule> {
    let named = policy_rule.local.is_some() || policy_rule.peers != Peers::Any;
    let families: &[Option<Family>] = match (statement::family(&policy_rule.statement), named) {
        (Some(Family::V4), _) => &[Some(Family::V4)],
        (Some(Family::V6), _) => &[Some(Family::V6)],
        (None, true) => &[Some(Family::V4), Some(Family::V6)],
        (None, false) => &[None],
    };
    let mut rules = Vec::with_capacity(families.len());
    for family in families {
        let mut peers = Vec::new();
        if let Some(family) = *family {
            if let Peers::Set(key) = policy_rule.peers {
                peers.push(Match::Address { family, end: view.peer(), set: set_name(key, family) });
            }
            if let Some(key) = policy_rule.local {
                let set = set_name(key, family);
                peers.push(match view.own() {
                    Place::Header(end) => Match::Address { family, end, set },
                    Place::Original(end) => Match::OriginalAddress { family, end, set },
                });
            }
        }
        let family_word = family.map_or("any".to_owned(), |family| family.to_string());
        for way in statement::ways(&policy_rule.statement, view, sets) {
            let matches: Vec<Match> = peers.iter().cloned().chain(way.matches).collect();
            let id = format!("{}/{family_word}{}", policy_rule.key, way.name);
            if policy_rule.log && !view.mirrored {
                let logged = matches.iter().cloned().chain([Match::StateNew]).collect();
                rules.push(rule(&format!("{id}/log"), logged, Effect::Log(log_prefix(policy_rule, view))));
            }
            rules.push(match policy_rule.action {
                Action::Allow => rule(&id, matches, accept()),
                Action::Deny => denying(&id, matches, mode),
            });
        }
    }
    rules
}

/// What a logged packet's line begins with: direction and the first 12 characters of the rule's key.
fn log_prefix(policy_rule: &PolicyRule, view: View) -> String {
    let key: String = policy_rule.key.to_string().chars().take(12).collect();
    format!("holdfast {} {key} ", view.direction)
}

fn rule(id: &str, matches: Vec<Match>, effect: Effect) -> Rule {
    Rule { id: RuleId::new(id), matches, effect, denies: false }
}

/// A rule for what the policy does not let through.
fn denying(id: &str, matches: Vec<Match>, mode: Mode) -> Rule {
    let verdict = match mode {
        Mode::Enforced => Verdict::Drop,
        Mode::Simulation | Mode::Visibility => Verdict::Accept,
    };
    Rule { id: RuleId::new(id), matches, effect: Effect::Decide(verdict), denies: true }
}

const fn accept() -> Effect {
    Effect::Decide(Verdict::Accept)
}
