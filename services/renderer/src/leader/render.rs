//! Renders what changed and commits it, one transaction a render.

use holdfast_events::{Hint, RenderedLetGo};
use holdfast_model::desired::Desired;
use holdfast_model::numbers::LeaseTerm;
use holdfast_model::statement::Authority;
use holdfast_render::Edit;
use holdfast_render::fleet::{Fleet, LetGo, Planned};
use holdfast_runtime::fail_point;
use holdfast_store::intent::{Changes, HostChange, ObjectChange};
use holdfast_store::render::RenderCommit;
use tokio::time::Instant;

use super::follow::Following;
use super::{Clock, Means, TermEnd, hint, hold, passes, wait, words};

/// The number of the first hint of a render; the one before it says that the term begins.
const FIRST_OF_RENDERS: u64 = 2;

pub(super) async fn run(means: &Means, term: LeaseTerm, authority: Authority) -> TermEnd {
    let clock = Clock(Instant::now());
    let (mut fleet, mut following) = match start(means, term, authority, clock).await {
        Ok(started) => started,
        Err(end) => return end,
    };
    let mut hints = FIRST_OF_RENDERS;
    loop {
        let changes = match means.store.changes_since(fleet.revision()).await {
            Ok(changes) => changes,
            // A read error is never an empty intent: every host keeps what it has.
            Err(error) => match passes("reading intent", error).await {
                Ok(()) => continue,
                Err(end) => return end,
            },
        };
        let (until, found, rollout) = (changes.until, changes.authority_epoch, changes.rollout);
        if found != authority.epoch {
            return TermEnd::OtherLife { known: authority.epoch, found };
        }
        if until < fleet.revision() {
            return TermEnd::Rewound { known: fleet.revision(), found: until };
        }
        if until > fleet.revision() {
            tracing::debug!(revision = %until, "intent read");
            fleet.handle_edits(edits_of(changes), until, clock.now());
        }
        fleet = match hold::follow(means, &following, fleet, rollout, &mut hints).await {
            Ok(back) => back,
            Err(end) => return end,
        };
        if let Err(end) = following.let_in(means, &mut hints).await {
            return end;
        }
        match commit_due(means, &following, fleet, &mut hints, clock).await {
            Ok(back) => fleet = back,
            Err(end) => return end,
        }
        let due = fleet.poll_timeout().map(|(due, _)| clock.at(due));
        wait(&means.wakes.intent, due).await;
    }
}

async fn start(
    means: &Means,
    term: LeaseTerm,
    authority: Authority,
    clock: Clock,
) -> Result<(Fleet, Following), TermEnd> {
    let started = Instant::now();
    let (revision, intent) = means.store.load_intent(None).await?;
    let rendered = means.store.rendered_revision().await?;
    let latest = means.store.all_latest().await?;
    let following = Following::new(means, term, authority, &latest);
    let fleet = tokio::task::spawn_blocking(move || {
        let latest = latest.into_iter().map(|state| state.state.desired);
        Fleet::new(&intent, revision, rendered, latest, clock.now())
    })
    .await?;
    tracing::info!(authority = words(authority), %revision, took = ?started.elapsed(), "the fleet is loaded");
    Ok((fleet, following))
}

/// Renders and commits until nothing is due.
async fn commit_due(
    means: &Means,
    following: &Following,
    mut fleet: Fleet,
    hints: &mut u64,
    clock: Clock,
) -> Result<Fleet, TermEnd> {
    loop {
        let started = Instant::now();
        let now = clock.now();
        // Off the reactor: a render of the whole fleet takes as long as it takes, and the lease is renewed meanwhile.
        let (back, planned) = tokio::task::spawn_blocking(move || {
            let planned = fleet.poll_plan(now);
            (fleet, planned)
        })
        .await?;
        fleet = back;
        let Some(planned) = planned else { return Ok(fleet) };
        metrics::histogram!("holdfast_render_seconds").record(started.elapsed().as_secs_f64());
        metrics::counter!("holdfast_render_hosts_total").increment(u64::from(planned.plan.hosts_rendered));
        let commit = signed(means, following, &planned);
        tracing::debug!(revision = %commit.revision, states = commit.states.len(), "planned");
        fail_point("a render", "planned, before it is stored");
        match means.store.commit_render(commit).await {
            Ok(_) => {
                fleet.handle_committed(&planned);
                fail_point("a render", "stored, before it is announced");
                announce(means, following.term, &planned, hints).await;
            }
            Err(error) => passes("committing a render", error).await?,
        }
    }
}

pub(super) fn signed(means: &Means, following: &Following, planned: &Planned) -> RenderCommit {
    let plan = &planned.plan;
    RenderCommit {
        lease_term: following.term,
        authority_epoch: following.authority.epoch,
        earlier: following.earlier_of(plan.states.iter().map(|state| state.host)),
        revision: plan.revision,
        intent: plan.intent,
        is_of_held: plan.is_of_held,
        let_go: plan.let_go.map(|LetGo { rollout, stage, revision }| RenderedLetGo { rollout, stage, revision }),
        hosts_rendered: plan.hosts_rendered,
        states: plan.states.iter().map(|state| following.sign(means, *state)).collect(),
        artifacts: plan.artifacts.clone(),
    }
}

/// After the commit, never before; hosts first, since the copy of the events waits for nobody.
pub(super) async fn announce(means: &Means, term: LeaseTerm, planned: &Planned, hints: &mut u64) {
    let plan = &planned.plan;
    tracing::info!(
        revision = %plan.revision,
        hosts_rendered = plan.hosts_rendered,
        states = plan.states.len(),
        nodes = plan.artifacts.len(),
        "rendered"
    );
    tell_hosts(means, term, &plan.states, hints).await;
}

/// Says of which states there is news.
pub(super) async fn tell_hosts(means: &Means, term: LeaseTerm, states: &[Desired], hints: &mut u64) {
    let states: Vec<_> = states.iter().map(|state| (state.host, state.component, state.stamp.version)).collect();
    for host_hint in Hint::of_render(term, *hints, &states) {
        *hints += 1;
        hint(&means.bus, Hint::Host(host_hint)).await;
    }
    means.wakes.event.notify_one();
}

fn edits_of(changes: Changes) -> Vec<Edit> {
    let hosts = changes.hosts.into_iter().map(|HostChange { host, now }| match now {
        Some(enrolled) => Edit::PutHost(enrolled),
        None => Edit::RemoveHost(host),
    });
    let objects = changes.objects.into_iter().map(|ObjectChange { key, now }| match now {
        Some(spec) => {
            Edit::PutObject(holdfast_model::intent::Object { namespace: key.namespace, name: key.name, spec })
        }
        None => Edit::DeleteObject(key),
    });
    hosts.chain(objects).collect()
}
