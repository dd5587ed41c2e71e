//! The difference of two policy bodies: computed by the gateway, applied by the agent, one code for both.
//!
//! - `apply(a, diff(a, b)) == b`, byte for byte; shown by property.
//! - A delta names the digest of its base and of its target. One made for another base is refused as a unit and the body is untouched.
//! - It is deterministic: mode, isolation, dropped rules, sets, put rules, dropped sets, each in canonical order.

use super::{Body, Direction, Mode, Rule, RuleKey, Set, SetKey};
use crate::digest::Digest;
use crate::interval_set::{Edit, EditError};

/// One change of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The mode becomes this.
    SetMode(Mode),
    /// A direction becomes isolated or open.
    SetIsolation {
        /// Which direction.
        direction: Direction,
        /// Whether it is isolated now.
        isolated: bool,
    },
    /// A rule goes.
    DropRule {
        /// Of which direction.
        direction: Direction,
        /// Which rule.
        key: RuleKey,
    },
    /// A set comes that was not there.
    PutSet(Set),
    /// Members of a set change; rules that name it stay as they are.
    EditSet {
        /// Which set.
        key: SetKey,
        /// The IPv4 members that change.
        v4: Edit<u32>,
        /// The IPv6 members that change.
        v6: Edit<u128>,
    },
    /// A rule comes, or replaces the one with its key.
    PutRule {
        /// Of which direction.
        direction: Direction,
        /// The rule.
        rule: Rule,
    },
    /// A set goes that no rule names any more.
    DropSet(SetKey),
}

/// What turns one body into another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta {
    /// The digest of the body that it applies to.
    pub base: Digest,
    /// The digest of the body that comes out.
    pub target: Digest,
    /// In the order in which they apply.
    pub changes: Vec<Change>,
}

/// Why a delta does not apply.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeltaError {
    /// It was made for another body than the one held.
    #[error("the delta starts from {delta}, the policy held is {held}")]
    WrongBase {
        /// The base that the delta names.
        delta: Digest,
        /// The digest of the body held.
        held: Digest,
    },
    /// What came out is not what the delta names.
    #[error("the delta leads to {reached} and names {named}")]
    WrongTarget {
        /// What came out.
        reached: Digest,
        /// The target that the delta names.
        named: Digest,
    },
    /// A rule to drop is not there.
    #[error("no {direction} rule {key} to drop")]
    NoRule {
        /// Of which direction.
        direction: Direction,
        /// Which rule.
        key: RuleKey,
    },
    /// A set to edit or to drop is not there, or one to put is.
    #[error("set {key} is not as the delta expects it")]
    NoSet {
        /// Which set.
        key: SetKey,
    },
    /// Members do not fit.
    #[error("set {key} cannot be edited")]
    Edit {
        /// Which set.
        key: SetKey,
        /// Why.
        #[source]
        source: EditError,
    },
    /// What came out is not canonical.
    #[error("the delta leads to a body that is not canonical")]
    Body(#[source] super::BodyError),
}

/// The changes that lead from `base` to `target`; none if they are equal.
#[must_use]
pub fn diff(base: &Body, target: &Body) -> Delta {
    let mut changes = Vec::new();
    if base.mode != target.mode {
        changes.push(Change::SetMode(target.mode));
    }
    for direction in Direction::ALL {
        let isolated = target.chain(direction).isolated;
        if base.chain(direction).isolated != isolated {
            changes.push(Change::SetIsolation { direction, isolated });
        }
    }
    for direction in Direction::ALL {
        let kept = keyed(target, direction);
        let gone =
            base.chain(direction).rules.iter().filter(|rule| kept.binary_search_by_key(&rule.key, |r| r.key).is_err());
        changes.extend(gone.map(|rule| Change::DropRule { direction, key: rule.key }));
    }
    for set in &target.sets {
        match base.set(set.key) {
            None => changes.push(Change::PutSet(set.clone())),
            Some(old) if old == set => {}
            Some(old) => {
                changes.push(Change::EditSet {
                    key: set.key,
                    v4: old.v4.edit_to(&set.v4),
                    v6: old.v6.edit_to(&set.v6),
                });
            }
        }
    }
    for direction in Direction::ALL {
        let old = keyed(base, direction);
        let same =
            |rule: &&Rule| old.binary_search_by_key(&rule.key, |r| r.key).is_ok_and(|at| old.get(at) == Some(rule));
        let put = target.chain(direction).rules.iter().filter(|rule| !same(rule));
        changes.extend(put.map(|rule| Change::PutRule { direction, rule: rule.clone() }));
    }
    changes.extend(base.sets.iter().filter(|set| target.set(set.key).is_none()).map(|set| Change::DropSet(set.key)));
    Delta { base: base.digest(), target: target.digest(), changes }
}

/// The body that `delta` makes of `held`.
///
/// # Errors
/// [`DeltaError`] if the delta was made for another body or does not lead to the digest that it names.
pub fn apply(held: &Body, delta: &Delta) -> Result<Body, DeltaError> {
    let digest = held.digest();
    if digest != delta.base {
        return Err(DeltaError::WrongBase { delta: delta.base, held: digest });
    }
    let mut body = held.clone();
    for change in &delta.changes {
        apply_change(&mut body, change)?;
    }
    body.check().map_err(DeltaError::Body)?;
    let reached = body.digest();
    if reached == delta.target { Ok(body) } else { Err(DeltaError::WrongTarget { reached, named: delta.target }) }
}

fn apply_change(body: &mut Body, change: &Change) -> Result<(), DeltaError> {
    match change {
        Change::SetMode(mode) => body.mode = *mode,
        Change::SetIsolation { direction, isolated } => body.chain_mut(*direction).isolated = *isolated,
        Change::DropRule { direction, key } => {
            let rules = &mut body.chain_mut(*direction).rules;
            let at = rules.iter().position(|rule| rule.key == *key);
            rules.remove(at.ok_or(DeltaError::NoRule { direction: *direction, key: *key })?);
        }
        Change::PutRule { direction, rule } => {
            let rules = &mut body.chain_mut(*direction).rules;
            rules.retain(|old| old.key != rule.key);
            let at = rules.partition_point(|old| old.cmp_place(rule).is_lt());
            rules.insert(at, rule.clone());
        }
        Change::PutSet(set) => match body.sets.binary_search_by_key(&set.key, |old| old.key) {
            Ok(_) => return Err(DeltaError::NoSet { key: set.key }),
            Err(at) => body.sets.insert(at, set.clone()),
        },
        Change::EditSet { key, v4, v6 } => {
            let key = *key;
            let at = body.sets.binary_search_by_key(&key, |set| set.key).ok();
            let set = at.and_then(|at| body.sets.get_mut(at)).ok_or(DeltaError::NoSet { key })?;
            set.v4 = set.v4.edited(v4).map_err(|source| DeltaError::Edit { key, source })?;
            set.v6 = set.v6.edited(v6).map_err(|source| DeltaError::Edit { key, source })?;
        }
        Change::DropSet(key) => {
            let at = body.sets.binary_search_by_key(key, |set| set.key);
            body.sets.remove(at.map_err(|_| DeltaError::NoSet { key: *key })?);
        }
    }
    Ok(())
}

/// The rules of a direction by ascending key.
fn keyed(body: &Body, direction: Direction) -> Vec<&Rule> {
    let mut rules: Vec<&Rule> = body.chain(direction).rules.iter().collect();
    rules.sort_by_key(|rule| rule.key);
    rules
}

#[cfg(test)]
mod tests;
