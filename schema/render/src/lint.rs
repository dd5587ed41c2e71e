//! Checks over finished renders, beyond what one body can show about itself.
//!
//! - A key names one thing: two hosts of one render never have different rules or sets under one key. Agents, caches and deltas rely on it, and a
//!   set that depended on the host that it was rendered for would show here.
//! - Every body is canonical and comes back from its bytes as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_model::artifact;
use holdfast_model::ids::HostId;
use holdfast_model::policy::{Body, BodyError, Direction, Peers, Rule, RuleKey, Set, SetKey};

/// A fault of a render; each is a bug of the renderer, never of what was authored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Finding {
    /// A body is not canonical.
    #[error("the body of {host} is not canonical")]
    Body {
        /// Whose body.
        host: HostId,
        /// What is wrong with it.
        #[source]
        source: BodyError,
    },
    /// A body's bytes do not read back as the body.
    #[error("the body of {host} does not survive its own encoding")]
    Encoding {
        /// Whose body.
        host: HostId,
    },
    /// Two bodies have different rules under one key.
    #[error("rule {key} of {host} is another rule elsewhere")]
    RuleKey {
        /// Whose body shows it.
        host: HostId,
        /// The key.
        key: RuleKey,
    },
    /// Two bodies have different sets under one key.
    #[error("set {key} of {host} is another set elsewhere")]
    SetKey {
        /// Whose body shows it.
        host: HostId,
        /// The key.
        key: SetKey,
    },
    /// A rule's peers and its own addresses are one set.
    #[error("rule {key} of {host} takes its peers for its own addresses")]
    OneSetTwice {
        /// Whose body.
        host: HostId,
        /// The key.
        key: RuleKey,
    },
}

/// Every fault of a render of one index; none is what there must be.
#[must_use]
pub fn lint(render: &BTreeMap<HostId, Arc<Body>>) -> Vec<Finding> {
    let mut seen = Seen::default();
    let mut findings = Vec::new();
    for (host, body) in render {
        if seen.bodies.insert(Arc::as_ptr(body)) {
            seen.check(*host, body, &mut findings);
        }
    }
    findings
}

#[derive(Default)]
struct Seen<'a> {
    bodies: BTreeSet<*const Body>,
    rules: BTreeMap<(Direction, RuleKey), &'a Rule>,
    sets: BTreeMap<SetKey, &'a Set>,
}

impl<'a> Seen<'a> {
    fn check(&mut self, host: HostId, body: &'a Body, findings: &mut Vec<Finding>) {
        if let Err(source) = body.check() {
            findings.push(Finding::Body { host, source });
        }
        if artifact::decode(&artifact::encode(body)).as_ref() != Ok(body) {
            findings.push(Finding::Encoding { host });
        }
        for direction in Direction::ALL {
            for rule in &body.chain(direction).rules {
                if self.rules.entry((direction, rule.key)).or_insert(rule) != &rule {
                    findings.push(Finding::RuleKey { host, key: rule.key });
                }
                if rule.local.is_some_and(|local| rule.peers == Peers::Set(local)) {
                    findings.push(Finding::OneSetTwice { host, key: rule.key });
                }
            }
        }
        for set in &body.sets {
            if self.sets.entry(set.key).or_insert(set) != &set {
                findings.push(Finding::SetKey { host, key: set.key });
            }
        }
    }
}
