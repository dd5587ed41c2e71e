//! The brake: no change that takes much away is stored unless somebody says that it is meant.
//!
//! - The abort of a rollout alone is not asked: it is the way out.
//! - What is judged is what is stored: a change is judged on one revision and stored on that one or not at all; where another came between, it is judged
//!   again.
//! - An acknowledgement names the digest of the plan, which names base, objects with their content, every host's bodies, and the stages: it is good for
//!   this change on this revision, in these stages or at once.
//! - What was done before under the name of its request is answered, never judged.
//!
//! The judgement is the model's ([`holdfast_model::brake`]).

use std::sync::Arc;

use holdfast_api::brake::{Acknowledgement, BrakeView, HOSTS_NAMED_MAX};
use holdfast_events::{Detail, OperationVerb};
use holdfast_model::brake::{BrakeLimits, Braked};
use holdfast_model::digest::Digest;
use holdfast_model::ids::RolloutId;
use holdfast_model::intent::ObjectKey;
use holdfast_model::numbers::Revision;
use holdfast_model::secret::secret_at;
use holdfast_store::intent::{Applied, IntentChange};
use holdfast_store::once::RequestKey;
use holdfast_store::rollout::RolloutStart;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::auth::Caller;
use super::door::{Shared, beside};
use super::intent::Snapshot;
use super::names::host_name;
use super::plan::{Trial, Wanted, try_on};
use super::refuse::Refusal;
use super::rollouts::InStages;

/// How often a change is judged again because others came between. Those of this process take turns, so each time is a change of another.
pub(crate) const TRIES_MAX: u32 = 20;

/// The brake of one door.
#[derive(Debug)]
pub(crate) struct Brake {
    limits: BrakeLimits,
    turn: Arc<Mutex<()>>,
}

/// The turn of one change; it ends when nobody has it any more, be that whoever asked or a trial that goes on without them.
#[derive(Clone, Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held, never read")] Arc<OwnedMutexGuard<()>>);

impl Brake {
    pub(crate) fn new(limits: BrakeLimits) -> Self {
        Self { limits, turn: Arc::default() }
    }

    /// Waits until no other change of this process is judged and stored.
    pub(crate) async fn turn(&self) -> Turn {
        Turn(Arc::new(Arc::clone(&self.turn).lock_owned().await))
    }

    pub(crate) const fn limits(&self) -> BrakeLimits {
        self.limits
    }
}

/// What a change comes to on a revision, or why it cannot be made on that one.
type Making = Box<dyn Fn(&Snapshot) -> Result<Arc<Wanted>, Refusal> + Send + Sync>;

/// A change that somebody asks for.
pub(crate) struct Asked {
    /// Asked anew of each revision on which the change is tried.
    pub(crate) wanted: Making,
    pub(crate) verb: OperationVerb,
    /// The revision that it is to be made on.
    pub(crate) expected: Option<u64>,
    /// An object that is to be as it is since this revision.
    pub(crate) only_if: Option<(ObjectKey, u64)>,
    pub(crate) key: Option<RequestKey>,
    pub(crate) acknowledge: Option<Acknowledgement>,
    /// How it goes through the fleet, if not at once.
    pub(crate) in_stages: Option<InStages>,
}

/// What came of a change, and which rollout began with it, if one did.
pub(crate) type Stored = (Applied, Option<RolloutId>);

/// What is the same whatever it is asked for on.
pub(crate) fn fixed(wanted: Arc<Wanted>) -> Making {
    Box::new(move |_| Ok(Arc::clone(&wanted)))
}

/// Judges a change and stores it on what it was judged on; what it was judged on, and what came of it.
pub(crate) async fn store(door: &Shared, caller: &Caller, asked: Asked) -> Result<(Arc<Snapshot>, Stored), Refusal> {
    let said = because(asked.acknowledge.as_ref())?;
    let turn = door.brake.turn().await;
    for _ in 0..TRIES_MAX {
        let base = door.intent.current().await?;
        if asked.expected.is_some_and(|expected| expected != base.revision.raw()) {
            let applied = before(door, asked.key.clone()).await?;
            let moved = Applied::Moved { revision: base.revision };
            return Ok((base, (applied.unwrap_or(moved), None)));
        }
        let (wanted, start) = match made_on(&asked, &base) {
            Ok(made) => made,
            // What was done before was possible then.
            Err(refusal) => {
                let applied = before(door, asked.key.clone()).await?;
                return applied.map(|applied| (base, (applied, None))).ok_or(refusal);
            }
        };
        if let Some((key, shown)) = &asked.only_if {
            let there = door.store.object_since(key.clone(), base.revision).await?;
            if there.map(Revision::raw) != Some(*shown) {
                let applied = before(door, asked.key.clone()).await?;
                let refusal = || Refusal::stale_object(key, there, *shown);
                return applied.map(|applied| (base, (applied, None))).ok_or_else(refusal);
            }
        }
        let stages = (&wanted, start.as_ref());
        let because = match judged(door, caller, &turn, &base, stages, asked.acknowledge.as_ref()).await? {
            Judged::Little => None,
            Judged::Meant => said.clone(),
            Judged::Braked(refusal) => {
                let applied = before(door, asked.key.clone()).await?;
                return applied.map(|applied| (base, (applied, None))).ok_or(refusal);
            }
        };
        let change = change(caller, &asked, &wanted, base.revision, because);
        let begins = start.as_ref().map(|start| start.rollout);
        let applied = match start {
            None => door.store.apply_intent(change).await?,
            Some(start) => door.store.apply_in_stages(change, start).await?,
        };
        if asked.expected.is_none() && matches!(applied, Applied::Moved { .. }) {
            continue;
        }
        let begun = begins.filter(|_| matches!(applied, Applied::Changed { .. }));
        return Ok((base, (applied, begun)));
    }
    Err(Refusal::overtaken())
}

/// What a change on a revision was judged to be.
pub(crate) enum Judged {
    /// It takes little away.
    Little,
    /// It takes much away, and somebody said that it is meant.
    Meant,
    /// It takes much away, and nobody said so of this one.
    Braked(Refusal),
}

/// Judges a change on a revision, in its turn and with the stages in which it is to go.
pub(crate) async fn judged(
    door: &Shared,
    caller: &Caller,
    turn: &Turn,
    base: &Arc<Snapshot>,
    (wanted, start): (&Arc<Wanted>, Option<&RolloutStart>),
    acknowledge: Option<&Acknowledgement>,
) -> Result<Judged, Refusal> {
    let trial = tried(door, turn, base, (wanted, start)).await?;
    let Some(braked) = &trial.braked else { return Ok(Judged::Little) };
    if is_meant(&trial, acknowledge) {
        return Ok(Judged::Meant);
    }
    let view = view(braked, trial.digest, door.brake.limits, base, caller);
    Ok(Judged::Braked(Refusal::braked(view, acknowledge.is_some())))
}

/// What a change comes to on a revision, and who is in which stage of it.
fn made_on(asked: &Asked, base: &Snapshot) -> Result<(Arc<Wanted>, Option<RolloutStart>), Refusal> {
    let start = asked.in_stages.as_ref().map(|in_stages| in_stages.start(base)).transpose()?;
    Ok(((asked.wanted)(base)?, start))
}

/// Tries a change beside the threads that serve; whoever holds the turn waits for no plan, and the next waits for the trial, whoever asked for it.
async fn tried(
    door: &Shared,
    turn: &Turn,
    base: &Arc<Snapshot>,
    (wanted, start): (&Arc<Wanted>, Option<&RolloutStart>),
) -> Result<Trial, Refusal> {
    let (base, wanted, start, limits) = (Arc::clone(base), Arc::clone(wanted), start.cloned(), door.brake.limits);
    beside(turn.clone(), move || try_on(&base, &wanted, start.as_ref(), limits)).await
}

fn change(caller: &Caller, asked: &Asked, wanted: &Wanted, on: Revision, because: Option<Detail>) -> IntentChange {
    IntentChange {
        actor: caller.actor(),
        verb: asked.verb,
        puts: wanted.puts.clone(),
        deletes: wanted.deletes.iter().cloned().collect(),
        prune: wanted.prune(),
        expected: Some(on),
        key: asked.key.clone(),
        because,
    }
}

/// What came of it, if it was done before.
async fn before(door: &Shared, key: Option<RequestKey>) -> Result<Option<Applied>, Refusal> {
    match key {
        None => Ok(None),
        Some(key) => Ok(door.store.recall_intent(key).await?),
    }
}

fn is_meant(trial: &Trial, acknowledge: Option<&Acknowledgement>) -> bool {
    acknowledge.is_some_and(|said| said.digest == trial.digest.to_string())
}

/// Why it is meant, in the words of who said so.
pub(crate) fn because(acknowledge: Option<&Acknowledgement>) -> Result<Option<Detail>, Refusal> {
    let Some(said) = acknowledge else { return Ok(None) };
    if secret_at(&said.because).is_some() {
        return Err(Refusal::invalid("acknowledge.because", "secret", "this is a token, and would be shown in events"));
    }
    let detail = Detail::try_from(said.because.clone());
    detail.map(Some).map_err(|error| Refusal::invalid("acknowledge.because", "text", error.to_string()))
}

/// What a change takes away, as a caller may see it.
pub(crate) fn view(
    braked: &Braked,
    digest: Digest,
    limits: BrakeLimits,
    base: &Snapshot,
    caller: &Caller,
) -> BrakeView {
    let hosts = braked.hosts();
    let enrolled = hosts.iter().filter_map(|host| base.intent.hosts.get(host));
    let mut names: Vec<String> = enrolled.filter(|host| caller.sees(&host.namespace)).map(host_name).collect();
    names.sort();
    names.truncate(HOSTS_NAMED_MAX);
    BrakeView {
        acknowledge: digest.to_string(),
        hosts_losing: braked.losing.len() as u64,
        hosts_emptied: braked.emptied.len() as u64,
        hosts_leaving_enforced: braked.leaving.len() as u64,
        hosts_without_mode: if braked.leaving.is_empty() { 0 } else { braked.silent as u64 },
        share_percent: limits.share_percent.into(),
        hosts_max: limits.hosts_max.into(),
        text: words(braked, limits, &names, hosts.len()),
        hosts: names,
    }
}

fn words(braked: &Braked, limits: BrakeLimits, names: &[String], total: usize) -> String {
    let count = |n: usize| if n == 1 { "1 host".to_owned() } else { format!("{n} hosts") };
    let mut said = Vec::new();
    if !braked.emptied.is_empty() {
        said.push(format!("leaves none of the {} that have rules any", count(braked.emptied.len())));
    }
    if !braked.losing.is_empty() {
        let share = limits.share_percent;
        said.push(format!("takes more than {share} % of the rules of {}", count(braked.losing.len())));
    }
    if !braked.leaving.is_empty() {
        let silent = match braked.silent {
            0 => String::new(),
            n if n == braked.leaving.len() => ", and says no other mode".to_owned(),
            n => format!(", of {n} of which it says no other mode"),
        };
        said.push(format!("takes {} out of enforced mode{silent}", count(braked.leaving.len())));
    }
    let more = if total > names.len() && !names.is_empty() { ", …" } else { "" };
    let named = if names.is_empty() { String::new() } else { format!(" ({}{more})", names.join(", ")) };
    format!("it {}{named}", said.join(", and "))
}
