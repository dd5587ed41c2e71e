//! Who is in which stage of a rollout.
//!
//! - It is settled when a rollout begins, by the ids and labels of that moment, and never changes.
//! - A host is in the first stage that names it and in no other; hosts that none names make one more stage, the last.
//! - A share is of all hosts, and counts those of earlier stages: `10%` then `50%` opens one in ten, then one in two. It takes one host at least. Which
//!   ones is told by a digest of the revision that hosts are held at and the host: the same for whoever computes it, a plan too, and other hosts in each
//!   rollout.
//! - A stage that would add nobody is refused by its name: it is a mistake that would look like a proof.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::HostId;
use crate::label::{Labels, Selector, SelectorError};
use crate::numbers::Revision;

/// The most stages that one may name.
pub const STAGES_MAX: usize = 20;

/// Whom a stage opens for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StageSpec {
    /// Hosts with these labels.
    Labels(Selector),
    /// This share of all hosts, in percent, those of earlier stages included.
    Percent(u8),
    /// The hosts that no stage names.
    Rest,
}

/// Why stages cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StageError {
    /// A share that is none.
    #[error("`{0}` is no share of hosts: write 1% to 100%")]
    Percent(
        /// What was written, cut to 64 characters.
        String,
    ),
    /// Neither a share nor a selector.
    #[error(
        "`{text}` is no stage: write a selector of labels, as canary=true, a share, as 10%, or rest; all hosts are 100%"
    )]
    Selector {
        /// What was written, cut to 64 characters.
        text: String,
        /// What is wrong with it.
        #[source]
        source: SelectorError,
    },
    /// No stage, or too many.
    #[error("a rollout has 1 to {STAGES_MAX} stages")]
    Count,
    /// There is no host.
    #[error("no host is enrolled: there is nobody for a rollout to go through")]
    NoHost,
    /// A stage adds nobody.
    #[error("the stage `{stage}` adds no host: {why}")]
    Nobody {
        /// Which.
        stage: StageSpec,
        /// Why.
        why: &'static str,
    },
}

impl FromStr for StageSpec {
    type Err = StageError;

    fn from_str(text: &str) -> Result<Self, StageError> {
        let cut = || text.chars().take(64).collect::<String>();
        if text == "rest" {
            return Ok(Self::Rest);
        }
        if let Some(share) = text.strip_suffix('%') {
            return match share.parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                Ok(_) | Err(_) => Err(StageError::Percent(cut())),
            };
        }
        text.parse().map(Self::Labels).map_err(|source| StageError::Selector { text: cut(), source })
    }
}

impl fmt::Display for StageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Labels(selector) => selector.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Rest => f.write_str("rest"),
        }
    }
}

impl TryFrom<String> for StageSpec {
    type Error = StageError;

    fn try_from(text: String) -> Result<Self, StageError> {
        text.parse()
    }
}

impl From<StageSpec> for String {
    fn from(stage: StageSpec) -> Self {
        stage.to_string()
    }
}

/// A stage with its hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Whom it opens for.
    pub spec: StageSpec,
    /// The hosts; never none.
    pub hosts: BTreeSet<HostId>,
}

/// Settles who is in which stage. The stage of those that none names comes last, if there are any.
///
/// # Errors
/// [`StageError::Nobody`] names the first stage that adds no host.
pub fn assign(held: Revision, specs: &[StageSpec], hosts: &BTreeMap<HostId, Labels>) -> Result<Vec<Stage>, StageError> {
    if specs.is_empty() || specs.len() > STAGES_MAX {
        return Err(StageError::Count);
    }
    if hosts.is_empty() {
        return Err(StageError::NoHost);
    }
    let mut left: BTreeSet<(Digest, HostId)> = hosts.keys().map(|host| (place(held, *host), *host)).collect();
    let mut stages: Vec<Stage> = Vec::new();
    for spec in specs {
        let taken = hosts.len() - left.len();
        let members: BTreeSet<(Digest, HostId)> = match spec {
            StageSpec::Labels(selector) => {
                let matches = |host: &HostId| hosts.get(host).is_some_and(|labels| selector.matches(labels));
                left.iter().filter(|(_, host)| matches(host)).copied().collect()
            }
            StageSpec::Percent(percent) => {
                let wanted = (hosts.len() * usize::from(*percent)).div_ceil(100);
                left.iter().take(wanted.saturating_sub(taken)).copied().collect()
            }
            StageSpec::Rest => left.clone(),
        };
        if members.is_empty() {
            return Err(StageError::Nobody { stage: spec.clone(), why: why_nobody(spec, left.is_empty(), hosts) });
        }
        left.retain(|one| !members.contains(one));
        stages.push(Stage { spec: spec.clone(), hosts: members.into_iter().map(|(_, host)| host).collect() });
    }
    if !left.is_empty() {
        stages.push(Stage { spec: StageSpec::Rest, hosts: left.into_iter().map(|(_, host)| host).collect() });
    }
    Ok(stages)
}

fn why_nobody(spec: &StageSpec, is_all_taken: bool, hosts: &BTreeMap<HostId, Labels>) -> &'static str {
    match spec {
        StageSpec::Labels(selector) if !hosts.values().any(|labels| selector.matches(labels)) => {
            "none has these labels"
        }
        StageSpec::Percent(_) if !is_all_taken => "that many hosts are in earlier stages",
        StageSpec::Labels(_) | StageSpec::Percent(_) | StageSpec::Rest => "all that it names are in earlier stages",
    }
}

/// Where a host stands in the order of a rollout: one revision is held by one rollout at most, for the change makes the next.
fn place(held: Revision, host: HostId) -> Digest {
    let mut named = [0; 24];
    named[..8].copy_from_slice(&held.raw().to_be_bytes());
    named[8..].copy_from_slice(host.uuid().as_bytes());
    Digest::of(&named)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn host(n: u128) -> HostId {
        HostId::new(Uuid::from_u128(n))
    }

    fn held(n: u64) -> Revision {
        Revision::from_raw(n)
    }

    /// The first `canaries` of `count` hosts are canaries.
    fn mk_hosts(count: u128, canaries: u128) -> BTreeMap<HostId, Labels> {
        let labels = |n| if n < canaries { Labels::from([("canary".into(), "true".into())]) } else { Labels::new() };
        (0..count).map(|n| (host(n), labels(n))).collect()
    }

    fn specs(texts: &[&str]) -> Vec<StageSpec> {
        texts.iter().map(|text| text.parse().expect("a stage")).collect()
    }

    fn counts(texts: &[&str], hosts: &BTreeMap<HostId, Labels>) -> Result<Vec<usize>, StageError> {
        let stages = assign(held(1), &specs(texts), hosts)?;
        Ok(stages.iter().map(|stage| stage.hosts.len()).collect())
    }

    #[test]
    fn shares_count_the_hosts_of_earlier_stages_and_the_unnamed_come_last() {
        let hosts = mk_hosts(100, 2);
        assert_eq!(counts(&["canary=true", "10%", "100%"], &hosts), Ok(vec![2, 8, 90]));
        assert_eq!(counts(&["canary"], &hosts), Ok(vec![2, 98]));
        let stages = assign(held(1), &specs(&["canary"]), &hosts).expect("stages");
        assert_eq!(stages.last().map(|stage| stage.spec.clone()), Some(StageSpec::Rest));
    }

    #[test]
    fn a_share_takes_one_host_at_least() {
        assert_eq!(counts(&["1%", "100%"], &mk_hosts(3, 0)), Ok(vec![1, 2]));
    }

    #[test]
    fn a_stage_that_adds_nobody_is_refused_by_its_name() {
        let named = |texts: &[&str], hosts| match counts(texts, hosts) {
            Err(StageError::Nobody { stage, .. }) => stage.to_string(),
            other => panic!("{texts:?}: {other:?}"),
        };
        let hosts = mk_hosts(10, 5);
        assert_eq!(named(&["role=ghost"], &hosts), "role=ghost");
        assert_eq!(named(&["canary", "20%"], &hosts), "20%");
        assert_eq!(named(&["canary", "canary=true"], &hosts), "canary=true");
        assert_eq!(named(&["100%", "canary"], &hosts), "canary");
        assert_eq!(counts(&[], &hosts), Err(StageError::Count));
        assert_eq!(counts(&["10%"], &mk_hosts(0, 0)), Err(StageError::NoHost));
    }

    #[test]
    fn what_is_no_stage_is_refused() {
        for text in ["0%", "101%", "%", "-1%", "1.5%", "", "a b"] {
            assert!(text.parse::<StageSpec>().is_err(), "{text}");
        }
        for text in ["1%", "100%", "rest", "canary=true", "zone in (a,b),!old"] {
            assert_eq!(text.parse::<StageSpec>().expect(text).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn every_host_is_in_exactly_one_stage_and_the_same_for_whoever_computes_it(
            count in 1_u128..60, canaries in 0_u128..10, percents in prop::collection::vec(1_u8..=100, 1..4), seed: u64,
        ) {
            let hosts = mk_hosts(count, canaries);
            let mut wanted: Vec<StageSpec> = percents.into_iter().map(StageSpec::Percent).collect();
            if canaries > 0 {
                wanted.insert(0, "canary".parse().expect("a stage"));
            }
            let stages = assign(held(seed), &wanted, &hosts);
            prop_assert_eq!(&stages, &assign(held(seed), &wanted, &hosts));
            if let Ok(stages) = stages {
                prop_assert!(stages.iter().all(|stage| !stage.hosts.is_empty()));
                let all: Vec<HostId> = stages.iter().flat_map(|stage| stage.hosts.iter().copied()).collect();
                prop_assert_eq!(all.len(), hosts.len());
                prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), hosts.keys().copied().collect::<BTreeSet<_>>());
            }
        }
    }
}
