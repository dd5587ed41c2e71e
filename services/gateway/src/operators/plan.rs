//! What a change would do: rendered on one consistent snapshot, compared host by host, written nowhere.
//!
//! - The renderer's own index and code: what a plan shows is what would be sent.
//! - The digest names base revision, objects with what they are to say, every host's two policies, and who is in which stage, so that an apply can demand exactly this.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_api::object::{ApplyRequest, Change, ObjectChange};
use holdfast_api::policy::{PlanView, PlannedHost, PlannedStage, STAGE_HOSTS_LISTED_MAX};
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_documents::Source;
use holdfast_model::brake::{BrakeLimits, Braked, Leaves, Loss, Toll};
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{EnrolledHost, Intent, Kind, Object, ObjectKey, Spec};
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;
use holdfast_model::policy::Body;
use holdfast_model::rollout::stage::Stage;
use holdfast_render::{Affected, Edit, Index, render_hosts};
use holdfast_store::intent::Prune;
use holdfast_store::rollout::RolloutStart;

use super::auth::{Act, Caller};
use super::brake;
use super::changes::policy_changes;
use super::door::Shared;
use super::intent::Snapshot;
use super::names::{Names, host_name};
use super::objects::held;
use super::refuse::Refusal;
use super::request::LargeBody;
use super::rollouts::InStages;

/// What a change asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) puts: Vec<Object>,
    /// What goes by name.
    pub(crate) deletes: BTreeSet<ObjectKey>,
    /// The hosts that are taken out.
    pub(crate) hosts_out: BTreeSet<HostId>,
    /// The namespaces of which everything else goes.
    pub(crate) pruned: BTreeSet<Name>,
    /// Whether the Namespace objects go with it.
    pub(crate) prunes_namespaces: bool,
}

impl Wanted {
    /// Reads documents and makes sure that the caller reaches every namespace that they touch.
    pub(crate) fn read(request: ApplyRequest, caller: &Caller, act: Act) -> Result<Self, Refusal> {
        let source = |source: holdfast_api::object::Source| Source { name: source.name, text: source.text };
        let sources: Vec<Source> = request.sources.into_iter().map(source).collect();
        let puts = holdfast_documents::read(&sources).map_err(|faults| Refusal::documents(&faults))?;
        let namespaces: BTreeSet<Name> = puts.iter().map(|object| object.namespace.clone()).collect();
        // A plan writes nothing; what it may be asked is what its change would need.
        puts.iter().try_for_each(|object| caller.may_change(act, &object.key()))?;
        let pruned = if request.prune { namespaces } else { BTreeSet::new() };
        Ok(Self { puts, pruned, prunes_namespaces: caller.reaches_all(), ..Self::default() })
    }

    /// What goes without being named.
    pub(crate) fn prune(&self) -> Prune {
        match (self.pruned.is_empty(), self.prunes_namespaces) {
            (true, _) => Prune::Nothing,
            (false, true) => Prune::Namespaces(self.pruned.clone()),
            (false, false) => Prune::InsideNamespaces(self.pruned.clone()),
        }
    }

    /// Whether it says in which mode a host is to be.
    fn says_mode_of(&self, host: &EnrolledHost) -> bool {
        self.puts.iter().any(|object| match &object.spec {
            Spec::Host(spec) => spec.mode.is_some() && object.namespace == host.namespace && object.name == host.name,
            Spec::AddressGroup(_)
            | Spec::Endpoint(_)
            | Spec::Namespace(_)
            | Spec::NetworkPolicy(_)
            | Spec::Policy(_) => false,
        })
    }

    /// What becomes of every object that is named or pruned, against one snapshot.
    fn changes(&self, base: &Snapshot) -> BTreeMap<ObjectKey, Change> {
        let of = |object: &Object| match base.intent.objects.get(&object.key()) {
            None => Change::Created,
            Some(spec) if *spec == object.spec => Change::Unchanged,
            Some(_) => Change::Updated,
        };
        let mut changes: BTreeMap<ObjectKey, Change> =
            self.puts.iter().map(|object| (object.key(), of(object))).collect();
        let pruned = base.intent.objects.keys().filter(|key| {
            self.pruned.contains(&key.namespace) && (self.prunes_namespaces || key.kind != Kind::Namespace)
        });
        for key in pruned {
            changes.entry(key.clone()).or_insert(Change::Deleted);
        }
        for key in self.deletes.iter().filter(|key| base.intent.objects.contains_key(*key)) {
            changes.insert(key.clone(), Change::Deleted);
        }
        changes
    }
}

/// A change as it was tried on a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) digest: Digest,
    objects: BTreeMap<ObjectKey, Change>,
    /// The hosts whose body would be another, with both.
    hosts: Vec<(HostId, Arc<Body>, Arc<Body>)>,
    /// What it takes away, if that is much.
    pub(crate) braked: Option<Braked>,
}

/// Intent on which changes are tried as each is before it is stored, for those who measure what that costs.
#[derive(Debug)]
pub struct Trials(Snapshot);

impl Trials {
    /// Everything in force at one revision.
    #[must_use]
    pub fn new(revision: Revision, intent: Intent) -> Self {
        Self(Snapshot::new(revision, intent))
    }

    /// Whether a change would be braked, by the limits that a door has if nobody says otherwise.
    #[must_use]
    pub fn is_braked(&self, puts: Vec<Object>) -> bool {
        let wanted = Wanted { puts, ..Wanted::default() };
        try_on(&self.0, &wanted, None, BrakeLimits::default()).braked.is_some()
    }
}

/// Tries a change on a snapshot, and judges what it takes away.
pub(crate) fn try_on(base: &Snapshot, wanted: &Wanted, start: Option<&RolloutStart>, limits: BrakeLimits) -> Trial {
    let objects = wanted.changes(base);
    let before = base.index();
    let mut after = Index::clone(&before);
    let mut affected = Affected::default();
    for object in &wanted.puts {
        if objects.get(&object.key()) != Some(&Change::Unchanged) {
            affected.extend(after.apply(Edit::PutObject(object.clone())));
        }
    }
    for (key, change) in &objects {
        if *change == Change::Deleted {
            affected.extend(after.apply(Edit::DeleteObject(key.clone())));
        }
    }
    let mut named = Named::new(base.revision, &objects, &wanted.puts);
    start.into_iter().for_each(|start| named.in_stages(start));
    for host in &wanted.hosts_out {
        affected.extend(after.apply(Edit::RemoveHost(*host)));
        named.gone(*host);
    }
    let old = render_hosts(&before, affected.hosts.iter().copied());
    // Hosts of one role share a body, which is walked once.
    let mut digests: HashMap<*const Body, Digest> = HashMap::new();
    let mut digest_of = |body: &Arc<Body>| *digests.entry(Arc::as_ptr(body)).or_insert_with(|| body.digest());
    let mut hosts = Vec::new();
    for (host, body) in render_hosts(&after, affected.hosts.iter().copied()) {
        let Some(base_body) = old.get(&host) else { continue };
        let (from, to) = (digest_of(base_body), digest_of(&body));
        if from != to {
            named.host(host, from, to);
            hosts.push((host, Arc::clone(base_body), body));
        }
    }
    let braked = judge(base, wanted, &hosts, limits);
    Trial { digest: named.digest(), objects, hosts, braked }
}

fn judge(
    base: &Snapshot,
    wanted: &Wanted,
    hosts: &[(HostId, Arc<Body>, Arc<Body>)],
    limits: BrakeLimits,
) -> Option<Braked> {
    let mut toll = Toll::new(limits);
    let mut losses: HashMap<(*const Body, *const Body), Loss> = HashMap::new();
    for (host, before, after) in hosts {
        let pair = (Arc::as_ptr(before), Arc::as_ptr(after));
        let loss = *losses.entry(pair).or_insert_with(|| Loss::between(before, after));
        let is_said = || base.intent.hosts.get(host).is_some_and(|host| wanted.says_mode_of(host));
        let leaves = match Leaves::between(before.mode, after.mode, false) {
            Leaves::Silently if is_said() => Leaves::Said,
            leaves @ (Leaves::Not | Leaves::Said | Leaves::Silently) => leaves,
        };
        toll.add(*host, loss, leaves);
    }
    let others_do_something = toll.asks_for_others() && {
        let touched: BTreeSet<HostId> = hosts.iter().map(|(host, ..)| *host).collect();
        let is_other = |host: &&HostId| !touched.contains(host) && !wanted.hosts_out.contains(host);
        let others = base.intent.hosts.keys().filter(is_other);
        render_hosts(&base.index(), others.copied()).values().any(|body| Loss::does_something(body))
    };
    toll.judged(others_do_something)
}

/// A plan before it is narrowed to what a caller may see.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) base_revision: Revision,
    pub(crate) digest: Digest,
    objects: BTreeMap<ObjectKey, Change>,
    hosts: Vec<(Name, PlannedHost)>,
    braked: Option<Braked>,
    stages: Vec<Stage>,
    pub(crate) warnings: Vec<String>,
}

/// Tries a change on a snapshot and puts it in words. Takes long on a large fleet.
pub(crate) fn plan(base: &Snapshot, wanted: &Wanted, start: Option<RolloutStart>, limits: BrakeLimits) -> Plan {
    let Trial { digest, objects, hosts, braked } = try_on(base, wanted, start.as_ref(), limits);
    let planned = hosts.iter().filter_map(|(host, before, after)| {
        let enrolled = base.intent.hosts.get(host)?;
        let changes = policy_changes(before, after);
        let (namespace, name) = (enrolled.namespace.to_string(), enrolled.name.to_string());
        Some((enrolled.namespace.clone(), PlannedHost { host: host.to_string(), namespace, name, changes }))
    });
    let hosts: Vec<_> = planned.collect();
    let warnings = warnings(base, wanted, &objects);
    let stages = start.map_or_else(Vec::new, |start| start.stages);
    Plan { base_revision: base.revision, digest, objects, hosts, braked, stages, warnings }
}

/// What would be odd about the objects, once they and what comes with them are in force.
fn warnings(base: &Snapshot, wanted: &Wanted, objects: &BTreeMap<ObjectKey, Change>) -> Vec<String> {
    let mut intent = base.intent.clone();
    wanted.puts.iter().cloned().for_each(|object| intent.put(object));
    for (key, change) in objects {
        if *change == Change::Deleted {
            intent.objects.remove(key);
        }
    }
    Snapshot::new(base.revision, intent).warnings(objects.keys())
}

/// The name of what an object is to say, whether a host is touched by that today or not.
fn content_of(spec: &Spec) -> Digest {
    // What cannot be written as JSON cannot be stored either; it has a name of its own all the same.
    let bytes = serde_json::to_vec(spec).unwrap_or_else(|_| format!("{spec:?}").into_bytes());
    Digest::of(&bytes)
}

/// The bytes that a plan's digest names.
struct Named(Vec<u8>);

impl Named {
    fn new(base: Revision, objects: &BTreeMap<ObjectKey, Change>, puts: &[Object]) -> Self {
        let mut bytes = b"holdfast.dev plan v2\n".to_vec();
        bytes.extend_from_slice(&base.raw().to_be_bytes());
        let said: BTreeMap<ObjectKey, &Spec> = puts.iter().map(|object| (object.key(), &object.spec)).collect();
        for (key, change) in objects {
            bytes.extend_from_slice(format!("{key} {}\n", change.word()).as_bytes());
            // What is unchanged, or goes, is as the base has it.
            if let (Change::Created | Change::Updated, Some(spec)) = (change, said.get(key)) {
                bytes.extend_from_slice(content_of(spec).as_bytes());
            }
        }
        Self(bytes)
    }

    fn host(&mut self, host: HostId, from: Digest, to: Digest) {
        self.0.extend_from_slice(host.uuid().as_bytes());
        self.0.extend_from_slice(from.as_bytes());
        self.0.extend_from_slice(to.as_bytes());
    }

    /// How it goes through the fleet: at once is another change than in stages, and in these another than in others.
    fn in_stages(&mut self, start: &RolloutStart) {
        let RolloutStart { rollout: _, stages, max_failed, max_unknown, stage_timeout_s } = start;
        self.0.extend_from_slice(format!("in stages {max_failed} {max_unknown} {stage_timeout_s}\n").as_bytes());
        for Stage { spec, hosts } in stages {
            self.0.extend_from_slice(format!("stage {} {spec}\n", hosts.len()).as_bytes());
            hosts.iter().for_each(|host| self.0.extend_from_slice(host.uuid().as_bytes()));
        }
    }

    fn gone(&mut self, host: HostId) {
        self.0.extend_from_slice(b"gone ");
        self.0.extend_from_slice(host.uuid().as_bytes());
    }

    fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

/// Who is in a stage, as a caller may see it.
fn stage_view(stage: &Stage, base: &Snapshot, caller: &Caller) -> PlannedStage {
    let hosts = stage.hosts.iter().filter_map(|host| base.intent.hosts.get(host));
    let mut names: Vec<String> = hosts.filter(|host| caller.sees(&host.namespace)).map(host_name).collect();
    names.sort();
    names.truncate(STAGE_HOSTS_LISTED_MAX);
    PlannedStage { stage: stage.spec.to_string(), hosts: stage.hosts.len() as u64, names }
}

impl Plan {
    pub(crate) fn view(self, caller: &Caller, base: &Snapshot, limits: BrakeLimits) -> PlanView {
        let names = Names::of(base, caller);
        let brake = self.braked.as_ref().map(|braked| brake::view(braked, self.digest, limits, base, caller));
        let (mut seen, hidden): (Vec<_>, Vec<_>) =
            self.hosts.into_iter().partition(|(namespace, _)| caller.sees(namespace));
        seen.iter_mut().for_each(|(_, host)| names.name_changes(&mut host.changes));
        let in_sight = base.intent.hosts.values().filter(|host| caller.sees(&host.namespace)).count();
        let hosts_unchanged = in_sight.saturating_sub(seen.len()) as u64;
        PlanView {
            stages: self.stages.iter().map(|stage| stage_view(stage, base, caller)).collect(),
            base_revision: self.base_revision.raw(),
            digest: self.digest.to_string(),
            unchanged: self.objects.values().all(|change| *change == Change::Unchanged),
            objects: views(self.objects),
            hosts: seen.into_iter().map(|(_, host)| host).collect(),
            hosts_hidden: hidden.len() as u64,
            hosts_unchanged,
            brake,
            warnings: self.warnings,
        }
    }
}

/// Objects and what becomes of them, in the order of their keys.
pub(crate) fn views(changes: BTreeMap<ObjectKey, Change>) -> Vec<ObjectChange> {
    changes.into_iter().map(|(key, change)| ObjectChange { object: key.to_string(), change }).collect()
}

/// The plan of a change on the last revision.
pub(crate) async fn plan_now(
    door: &Shared,
    wanted: Arc<Wanted>,
    in_stages: Option<&InStages>,
) -> Result<(Arc<Snapshot>, Plan), Refusal> {
    let base = door.intent.current().await?;
    let plan = plan_of(door, Arc::clone(&base), wanted, in_stages).await?;
    Ok((base, plan))
}

/// The plan of a change on a revision.
pub(crate) async fn plan_of(
    door: &Shared,
    base: Arc<Snapshot>,
    wanted: Arc<Wanted>,
    in_stages: Option<&InStages>,
) -> Result<Plan, Refusal> {
    let start = in_stages.map(|in_stages| in_stages.start(&base)).transpose()?;
    let limits = door.brake.limits();
    door.compute(move || plan(&base, &wanted, start, limits)).await
}

/// The answer of a plan that somebody asks for: refused where its change would be for the stages that it is to go in, and with what a rollout holds
/// back of it.
pub(crate) async fn answer(
    door: &Shared,
    caller: &Caller,
    base: &Snapshot,
    mut plan: Plan,
) -> Result<Json<PlanView>, Refusal> {
    let changes_something = plan.objects.values().any(|change| *change != Change::Unchanged);
    if changes_something
        && !plan.stages.is_empty()
        && let Some(obstacle) = door.store.rollout_obstacle().await?
    {
        return Err(Refusal::no_rollout(obstacle));
    }
    if changes_something {
        plan.warnings.extend(held(door, None, "they would get this when their stage opens").await);
    }
    Ok(Json(plan.view(caller, base, door.brake.limits())))
}

/// What these documents would change, host by host; writes nothing.
#[utoipa::path(post, path = "/v1/plan", operation_id = "plan", tag = "objects", request_body = ApplyRequest, responses(
    (status = 200, body = PlanView),
    (status = 422, description = "The documents have faults", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn plan_change(
    State(door): State<Shared>,
    caller: Caller,
    body: LargeBody<ApplyRequest>,
) -> Result<Json<PlanView>, Refusal> {
    caller.may(Act::Read)?;
    // A plan writes nothing: it needs no name.
    let LargeBody { mut value, permit, key: _ } = body;
    let in_stages = InStages::read(&caller, Act::Read, value.rollout.take())?;
    let expected = (value.expected_revision, value.expected_plan.clone());
    let wanted = Arc::new(Wanted::read(value, &caller, Act::Read)?);
    let (base, plan) = plan_now(&door, wanted, in_stages.as_ref()).await?;
    drop(permit);
    if let Some(revision) = expected.0.filter(|revision| *revision != plan.base_revision.raw()) {
        return Err(Refusal::stale(plan.base_revision, revision));
    }
    check_digest(&plan, expected.1.as_deref())?;
    answer(&door, &caller, &base, plan).await
}

/// Refuses a plan that is not the one that was demanded.
pub(crate) fn check_digest(plan: &Plan, demanded: Option<&str>) -> Result<(), Refusal> {
    match demanded {
        Some(demanded) if demanded != plan.digest.to_string() => {
            let text = "this would do something else than the plan says: plan again; nothing was changed";
            Err(Refusal::new(ProblemType::StalePlan, text))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::policy::{Direction, Mode};
    use holdfast_model::rollout::stage::StageSpec;
    use uuid::Uuid;

    fn mk_objects(text: &str) -> Vec<Object> {
        holdfast_documents::read(&[Source { name: "t".to_owned(), text: text.to_owned() }]).expect("reads")
    }

    fn mk_wanted(puts: Vec<Object>, pruned: &[&str]) -> Wanted {
        let pruned = pruned.iter().map(|name| name.parse().expect("a name")).collect();
        Wanted { puts, pruned, prunes_namespaces: true, ..Wanted::default() }
    }

    fn mk_snapshot(documents: &str) -> Snapshot {
        let mut intent = Intent::default();
        mk_objects(documents).into_iter().for_each(|object| intent.put(object));
        for (n, name) in [(1, "web"), (2, "db")] {
            let host = EnrolledHost {
                id: HostId::new(Uuid::from_u128(n)),
                namespace: Name::default_namespace(),
                name: name.parse().expect("a name"),
                labels: [("app".to_owned(), name.to_owned())].into(),
                ports: Vec::new(),
                addresses: vec![std::net::Ipv4Addr::new(10, 0, 0, u8::try_from(n).expect("small")).into()],
            };
            intent.hosts.insert(host.id, host);
        }
        Snapshot::new(Revision::from_raw(7), intent)
    }

    fn planned(base: &Snapshot, wanted: &Wanted) -> Plan {
        plan(base, wanted, None, BrakeLimits::default())
    }

    const WEB: &str = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  hostSelector: \
                       {matchLabels: {app: db}}\n  ingress: [{from: [{hostSelector: {matchLabels: {app: web}}}], \
                       services: [{tcp: 5432}]}]\n---\napiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: db}\n\
                       spec: {mode: enforced}\n";

    #[test]
    fn only_hosts_whose_policy_would_change_are_in_a_plan_with_what_changes() {
        let wanted = mk_wanted(mk_objects(WEB), &[]);
        let plan = planned(&mk_snapshot(""), &wanted);
        let [(_, host)] = plan.hosts.as_slice() else { panic!("{:?}", plan.hosts) };
        assert_eq!(host.name, "db");
        assert_eq!(host.changes.mode.map(|mode| mode.to), Some(Mode::Enforced));
        assert_eq!(host.changes.rules_added[0].service, "tcp 5432");
        assert_eq!(host.changes.isolation[0].direction, Direction::Ingress);
    }

    #[test]
    fn what_is_as_asked_for_is_unchanged_and_pruning_takes_the_rest_of_its_namespaces() {
        let base = mk_snapshot(WEB);
        let same = planned(&base, &mk_wanted(mk_objects(WEB), &[]));
        assert!(same.hosts.is_empty() && same.objects.values().all(|change| *change == Change::Unchanged));
        let host = mk_objects(WEB).pop().expect("two objects");
        let pruned = planned(&base, &mk_wanted(vec![host], &["default"]));
        let deleted: Vec<String> = pruned
            .objects
            .iter()
            .filter(|(_, change)| **change == Change::Deleted)
            .map(|(key, _)| key.to_string())
            .collect();
        assert_eq!(deleted, ["Policy/default/p"]);
        assert_ne!(same.digest, pruned.digest);
    }

    #[test]
    fn a_token_of_one_namespace_prunes_inside_it_and_leaves_its_labels() {
        let namespace =
            "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: default}\nspec: {labels: {a: b}}\n---\n";
        let base = mk_snapshot(&format!("{namespace}{WEB}"));
        let host = mk_objects(WEB).pop().expect("two objects");
        let inside = Wanted { prunes_namespaces: false, ..mk_wanted(vec![host], &["default"]) };
        let gone = |wanted: &Wanted| {
            let changes = wanted.changes(&base);
            let deleted = changes.iter().filter(|(_, change)| **change == Change::Deleted);
            deleted.map(|(key, _)| key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(gone(&inside), ["Policy/default/p"]);
        assert_eq!(gone(&Wanted { prunes_namespaces: true, ..inside }).len(), 2);
    }

    #[test]
    fn a_host_whose_document_goes_leaves_enforcement_unsaid_and_one_whose_document_says_so_does_not() {
        let base = mk_snapshot(WEB);
        let host = mk_objects(WEB).pop().expect("two objects");
        let braked =
            |wanted: &Wanted| planned(&base, wanted).braked.map(|braked| (braked.leaving.len(), braked.silent));
        let deleted = Wanted { deletes: [host.key()].into(), ..Wanted::default() };
        assert_eq!(braked(&deleted), Some((1, 1)));
        let policy = mk_objects(WEB).swap_remove(0);
        assert_eq!(braked(&mk_wanted(vec![policy], &["default"])), Some((1, 1)), "pruned");
        let with = |spec| Object { spec: Spec::Host(spec), ..host.clone() };
        let silent = with(holdfast_model::intent::HostSpec::default());
        assert_eq!(braked(&mk_wanted(vec![silent], &[])), Some((1, 1)), "a document without a mode says nothing");
        let mode = Some(Mode::Visibility);
        let said = with(holdfast_model::intent::HostSpec { mode, ..Default::default() });
        assert_eq!(braked(&mk_wanted(vec![said], &[])), None);
    }

    #[test]
    fn what_is_left_of_hosts_that_a_change_does_not_touch_is_not_nothing() {
        let policy = WEB.split("---\n").next().expect("the first is a policy");
        let other = policy.replace("name: p", "name: q").replacen("app: db", "app: web", 1);
        let base = mk_snapshot(&format!("{policy}---\n{other}"));
        let key = |name: &str| ObjectKey {
            kind: Kind::Policy,
            namespace: Name::default_namespace(),
            name: name.parse().expect("a name"),
        };
        let emptied = |keys: &[&str]| {
            let wanted = Wanted { deletes: keys.iter().map(|name| key(name)).collect(), ..Wanted::default() };
            planned(&base, &wanted).braked.map(|braked| braked.emptied.len())
        };
        assert_eq!((emptied(&["p"]), emptied(&["q"]), emptied(&["p", "q"])), (None, None, Some(2)));
    }

    #[test]
    fn the_digest_names_what_objects_say_also_where_no_host_is_touched_by_it() {
        let group = |cidr: &str| {
            let text = "apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {name: g}\nspec: {cidrs: [CIDR]}\n";
            mk_wanted(mk_objects(&text.replace("CIDR", cidr)), &[])
        };
        let (narrow, wide) = (group("10.0.0.0/24"), group("0.0.0.0/0"));
        let base = mk_snapshot("");
        let (one, other) = (planned(&base, &narrow), planned(&base, &wide));
        assert!(one.hosts.is_empty() && other.hosts.is_empty() && one.objects == other.objects);
        assert_ne!(one.digest, other.digest, "created");
        assert_eq!(one.digest, planned(&base, &group("10.0.0.0/24")).digest);
        let governed =
            |port: &str| mk_wanted(mk_objects(&WEB.replace("app: db", "app: cache").replace("5432", port)), &[]);
        let base = mk_snapshot(&WEB.replace("app: db", "app: cache"));
        let (one, other) = (planned(&base, &governed("1")), planned(&base, &governed("2")));
        assert!(one.hosts.is_empty() && other.hosts.is_empty() && one.objects == other.objects);
        assert_ne!(one.digest, other.digest, "updated");
        let mut turned = mk_wanted(mk_objects(WEB), &[]);
        turned.puts.reverse();
        let base = mk_snapshot("");
        assert_eq!(planned(&base, &turned).digest, planned(&base, &mk_wanted(mk_objects(WEB), &[])).digest);
    }

    #[test]
    fn the_digest_names_whether_the_change_goes_in_stages_and_in_which() {
        let (base, wanted) = (mk_snapshot(""), mk_wanted(mk_objects(WEB), &[]));
        let hosts: Vec<HostId> = base.intent.hosts.keys().copied().collect();
        let start = |hosts: &[HostId], max_failed| RolloutStart {
            rollout: holdfast_model::ids::RolloutId::new(uuid::Uuid::now_v7()),
            stages: hosts.iter().map(|host| Stage { spec: StageSpec::Rest, hosts: [*host].into() }).collect(),
            max_failed,
            max_unknown: 0,
            stage_timeout_s: 60,
        };
        let digest = |start| plan(&base, &wanted, start, BrakeLimits::default()).digest;
        let turned: Vec<HostId> = hosts.iter().rev().copied().collect();
        let all = [
            digest(None),
            digest(Some(start(&hosts, 0))),
            digest(Some(start(&turned, 0))),
            digest(Some(start(&hosts, 1))),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert_eq!(all[1], digest(Some(start(&hosts, 0))), "what the rollout is called is no part of it");
    }

    #[test]
    fn the_digest_names_the_base_too() {
        let wanted = mk_wanted(mk_objects(WEB), &[]);
        let (one, mut later) = (mk_snapshot(""), mk_snapshot(""));
        later.revision = Revision::from_raw(8);
        assert_ne!(planned(&one, &wanted).digest, planned(&later, &wanted).digest);
        assert_eq!(planned(&one, &wanted).digest, planned(&one, &wanted).digest);
    }
}
