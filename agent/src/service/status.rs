//! What the agent says of itself.

use std::path::PathBuf;

use holdfast_model::condition::Condition;
use holdfast_model::desired::Stamp;
use holdfast_model::digest::Digest;
use holdfast_model::drift::DriftCounts;
use holdfast_model::policy::Mode;
use holdfast_model::statement::OutcomeKind;
use serde::{Deserialize, Serialize};

use super::forwarding::Forwarded;
use crate::engine::{Engine, Kernel, Outcome, Store};
use crate::plan::{Effect, ObservedRule, Rule, Ruleset};
use crate::session::SessionStatus;

/// Everything at once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// This build.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Where its state lies.
    pub state_folder: PathBuf,
    /// From where policies come: a file, or a gateway.
    pub source: String,
    /// The policy.
    pub policy: PolicyStatus,
    /// The table.
    pub table: TableStatus,
    /// The session with a gateway, where there is one.
    pub session: Option<SessionStatus>,
}

/// What is in force and how that is known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Which version; none before the first one, and none while a local policy is in force.
    pub applied: Option<Stamp>,
    /// A policy of this host's own that is in force in place of what was rendered.
    #[serde(default)]
    pub local: Option<LocalPolicy>,
    /// How far it is enforced.
    pub mode: Mode,
    /// Whether the kernel was read back and holds exactly it.
    pub proven: bool,
    /// Whether it has still to prove that it leads to a gateway.
    #[serde(default)]
    pub on_trial: bool,
    /// How the last update ended.
    pub last_outcome: Option<LastOutcome>,
    /// How often the whole table was read though nobody had an update for it.
    #[serde(default)]
    pub reads: u64,
    /// How often the kernel was found to hold something else.
    pub drifts: u64,
    /// The last time that it was.
    #[serde(default)]
    pub last_drift: Option<LastDrift>,
    /// Whether another tool undoes our repairs; only the slow tick repairs then.
    pub contended: bool,
    /// Why the kernel's notices of changes cannot be heard, while they cannot: the slow tick alone finds changes then.
    #[serde(default)]
    pub unheard: Option<String>,
    /// What was wrong with the kernel at last, if anything.
    pub fault: Option<String>,
    /// The disk.
    pub ledger: LedgerState,
}

/// A kernel that was found to hold something else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastDrift {
    /// How long ago.
    pub ms_ago: u64,
    /// The process that had written, where the kernel told.
    pub process: Option<String>,
    /// Its number.
    pub pid: Option<u32>,
    /// What differed.
    pub differed: DriftCounts,
    /// Whether it was put right.
    pub repaired: bool,
}

/// A policy of this host's own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalPolicy {
    /// Its content.
    pub digest: Digest,
    /// What was rendered and is kept, to be in force once the local one is gone.
    pub kept: Option<Stamp>,
}

/// What the disk gave at the start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "fault")]
pub enum LedgerState {
    /// There was none.
    Missing,
    /// It was whole.
    Loaded,
    /// It was there and could not be used.
    Unusable(
        /// Why.
        String,
    ),
}

/// How an update ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastOutcome {
    /// `applied`, `failed` or `retained-local-override`.
    pub outcome: String,
    /// What the update named.
    pub wanted: Stamp,
    /// What was in force afterwards.
    pub applied: Option<Stamp>,
    /// What was seen on the way.
    pub conditions: Vec<Condition>,
}

impl LastOutcome {
    /// Whether the update is in force.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.outcome == OutcomeKind::Applied.word()
    }
}

impl From<&Outcome> for LastOutcome {
    fn from(outcome: &Outcome) -> Self {
        Self {
            outcome: outcome.kind.word().to_owned(),
            wanted: outcome.wanted,
            applied: outcome.applied,
            conditions: outcome.conditions.clone(),
        }
    }
}

/// Our table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableStatus {
    /// `inet holdfast`.
    pub name: String,
    /// Whether other writers are refused.
    pub owned: bool,
    /// Whether what passes through the host is held to the policy: an uplink is known.
    pub forwarded_enforced: bool,
    /// The same, with what is not asked and what is not there told apart.
    #[serde(default)]
    pub forwarded: Forwarded,
    /// Packets that our rules dropped, by what the kernel counts now.
    pub dropped_packets: u64,
    /// Packets that our rules would have dropped if the host were enforced.
    pub would_drop_packets: u64,
    /// Every rule, where it was asked for.
    pub counters: Option<Vec<Counter>>,
}

/// What one rule counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Its chain.
    pub chain: String,
    /// Its id.
    pub rule: String,
    /// What it does.
    pub effect: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What the engine can say by itself.
pub(super) struct Seen {
    pub(super) applied: Option<Stamp>,
    pub(super) local: Option<LocalPolicy>,
    pub(super) mode: Mode,
    pub(super) proven: bool,
    pub(super) drifts: u64,
    pub(super) forwarded: Forwarded,
    pub(super) counters: Vec<Counter>,
    pub(super) dropped_packets: u64,
    pub(super) would_drop_packets: u64,
    pub(super) fault: Option<String>,
}

/// Asks the engine, and through it the kernel.
pub(super) fn observe<K: Kernel, S: Store>(engine: &mut Engine<K, S>) -> Seen {
    let (rules, fault) = match engine.rules() {
        Ok(rules) => (rules, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let in_force = engine.in_force();
    let mode = in_force.map_or(Mode::Visibility, |(body, _)| body.mode);
    let ruleset = in_force.map(|(_, ruleset)| ruleset);
    let enforcing = mode != Mode::Visibility;
    let denied =
        |rule: &&ObservedRule| ruleset.and_then(|ruleset| planned(ruleset, rule)).is_some_and(|planned| planned.denies);
    let kept = engine.held().map(|held| held.entry.stamp);
    let local = engine.local().map(|local| LocalPolicy { digest: local.body.digest(), kept });
    let count = rules.iter().filter(denied).map(|rule| rule.counted.0).sum();
    Seen {
        applied: kept.filter(|_| local.is_none()),
        local,
        mode,
        proven: engine.is_proven(),
        drifts: engine.drifts(),
        forwarded: Forwarded::observe(enforcing, &engine.kept().uplinks),
        dropped_packets: if mode == Mode::Enforced { count } else { 0 },
        would_drop_packets: if mode == Mode::Simulation { count } else { 0 },
        counters: rules.iter().map(|rule| counter(ruleset, rule)).collect(),
        fault,
    }
}

fn planned<'a>(ruleset: &'a Ruleset, rule: &ObservedRule) -> Option<&'a Rule> {
    ruleset.chain(&rule.chain)?.rules.iter().find(|planned| planned.id == rule.id)
}

fn counter(ruleset: Option<&Ruleset>, rule: &ObservedRule) -> Counter {
    let effect = match ruleset.and_then(|ruleset| planned(ruleset, rule)).map(|planned| &planned.effect) {
        None => "unknown".to_owned(),
        Some(Effect::Count) => "count".to_owned(),
        Some(Effect::Log(_)) => "log".to_owned(),
        Some(Effect::Decide(verdict)) => verdict.to_string(),
    };
    let (packets, bytes) = rule.counted;
    Counter { chain: rule.chain.clone(), rule: rule.id.to_string(), effect, packets, bytes }
}
