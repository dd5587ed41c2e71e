//! Hosts: what is known of each, and what it holds against what it is to hold.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::str::FromStr as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::AppendHeaders;
use holdfast_api::authority::{HeldBackView, WaitsFor};
use holdfast_api::object::Page;
use holdfast_api::policy::{DiffView, HostPolicyView};
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_api::status::{ComponentView, HostView, MissingView, OutcomeView, PortView, SessionView, StampView, Sync};
use holdfast_model::artifact::{assemble, encode};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{DeclaredPort, EnrolledHost};
use holdfast_model::policy::protocol;
use holdfast_model::status::State as HostState;
use holdfast_render::render_host;
use holdfast_store::status::{ComponentStatus, HeldBack, HostStatus, SessionStatus};
use holdfast_wire::limits::BODY_BYTES_MAX;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::auth::{Act, Caller};
use super::changes::{policy_changes, rules_of_body};
use super::cursor;
use super::door::{Door, Shared};
use super::drift::drift_view;
use super::effective::Effective;
use super::etag::{self, Tag};
use super::fleet::{JudgedComponent, JudgedHost, held_view};
use super::intent::Snapshot;
use super::names::{Names, host_name, hosts, suggestion};
use super::refuse::Refusal;
use super::report::{applied_of, conditions_of, initialized_view, may_be_too_large, report_view};
use super::request::Params;

/// A time as answers have it.
pub(crate) fn rfc3339(time: OffsetDateTime) -> String {
    // Years beyond 9999 have no such form; no clock here gives one.
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

/// A declared port as answers have it.
pub(crate) fn port_view(port: &DeclaredPort) -> PortView {
    let protocol = match port.protocol {
        protocol::UDP => "udp",
        protocol::SCTP => "sctp",
        _ => "tcp",
    };
    PortView { name: port.name.clone(), protocol: protocol.to_owned(), port: port.port }
}

/// A version with its digest, as answers have it.
pub(crate) fn stamp_view(stamp: Stamp) -> StampView {
    StampView { version: stamp.version.raw(), digest: stamp.digest.to_string() }
}

/// The convergence read: trouble is told before silence, silence before progress.
fn sync_of(host: &JudgedHost) -> Sync {
    let is_open = host.status.session.as_ref().is_some_and(|session| session.heard_ms_ago.is_some());
    match host.state {
        HostState::Failed => Sync::Degraded,
        _ if !is_open => Sync::Offline,
        HostState::Converged | HostState::Degraded => Sync::Synced,
        HostState::Progressing | HostState::Unknown => Sync::Pending,
    }
}

fn component_view(host: &JudgedHost, status: &ComponentStatus, judged: JudgedComponent) -> ComponentView {
    let said = status.outcome.as_ref();
    ComponentView {
        component: status.component,
        state: judged.state,
        missing: judged.missing.map(MissingView::of),
        latest: status.latest.map(stamp_view),
        latest_revision: status.latest_revision.map(holdfast_model::numbers::Revision::raw),
        applied: applied_of(host, status, judged).and_then(|(applied, _)| applied).map(stamp_view),
        outcome: said.map(|said| OutcomeView {
            kind: said.outcome.kind.word().to_owned(),
            wanted: stamp_view(said.outcome.wanted),
            reason: said.reason.word().to_owned(),
            detail: said.detail.clone(),
            at: rfc3339(said.at),
            signature_valid: judged.signature_valid,
        }),
        conditions: conditions_of(host, status, judged),
        last_snapshot_sent_at: status.last_snapshot_sent_at.map(rfc3339),
        last_acked_at: status.last_acked_at.map(rfc3339),
        last_apply_failed_at: status.last_apply_failed_at.map(rfc3339),
        held_back: status.held_back.map(held_back_view),
    }
}

fn held_back_view(held_back: HeldBack) -> HeldBackView {
    let (waits_for, held) = match held_back {
        HeldBack::Ahead(held) => (WaitsFor::Bump, Some(held)),
        HeldBack::Confirmation(held) => (WaitsFor::Confirm, Some(held)),
        HeldBack::Unheard => (WaitsFor::Session, None),
    };
    HeldBackView { waits_for, held: held.map(stamp_view) }
}

fn session_view(session: &SessionStatus) -> SessionView {
    SessionView {
        session_epoch: session.session_epoch.raw(),
        gateway: session.gateway.to_string(),
        agent_version: session.agent_version.clone(),
        opened_at: rfc3339(session.opened_at),
        open: session.heard_ms_ago.is_some(),
        heard_ms_ago: session.heard_ms_ago,
    }
}

/// When a whole state of any component was last sent to a host.
pub(crate) fn last_snapshot_sent_at(status: &HostStatus) -> Option<OffsetDateTime> {
    newest(status, |component| component.last_snapshot_sent_at)
}

/// The newest instant of this kind of any component.
fn newest(status: &HostStatus, of: impl Fn(&ComponentStatus) -> Option<OffsetDateTime>) -> Option<OffsetDateTime> {
    status.components.iter().filter_map(of).max()
}

/// A host, with what it is to have by the intent that is its own.
fn host_view(host: &JudgedHost, snapshot: &Snapshot, is_too_large: bool) -> HostView {
    let status = &host.status;
    let enrolled = snapshot.intent.hosts.get(&status.host);
    // What is stored of its name may be unreadable: who it is says its id.
    let (namespace, name) = enrolled.map_or((&status.namespace, &status.name), |host| (&host.namespace, &host.name));
    let spec = snapshot.host_spec(namespace, name);
    let mut labels = status.labels.clone();
    labels.extend(spec.map(|spec| spec.labels.clone()).unwrap_or_default());
    let own = enrolled.map(|host| host.ports.as_slice()).unwrap_or_default();
    let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or(own);
    HostView {
        id: status.host.to_string(),
        namespace: status.namespace.to_string(),
        name: status.name.to_string(),
        labels,
        addresses: status.addresses.iter().map(ToString::to_string).collect(),
        ports: ports.iter().map(port_view).collect(),
        mode: spec.and_then(|spec| spec.mode).unwrap_or_default(),
        state: host.state,
        sync: sync_of(host),
        enrolled_at: rfc3339(status.enrolled_at),
        last_seen_at: status.last_seen_at.map(rfc3339),
        presence: status.presence,
        last_snapshot_sent_at: last_snapshot_sent_at(status).map(rfc3339),
        last_acked_at: newest(status, |component| component.last_acked_at).map(rfc3339),
        last_apply_failed_at: newest(status, |component| component.last_apply_failed_at).map(rfc3339),
        session: status.session.as_ref().map(session_view),
        components: host.judged().map(|(status, judged)| component_view(host, status, *judged)).collect(),
        drift: drift_view(&status.drifts, OffsetDateTime::now_utc()),
        held: status.held.as_ref().map(held_view),
        report: report_view(host, OffsetDateTime::now_utc()),
        unreadable: status.unreadable.map(str::to_owned),
        initialized: Some(initialized_view(host, is_too_large)),
    }
}

/// What a text may mean among the hosts that a caller may see.
pub(crate) enum Found<'a> {
    /// This one.
    One(&'a EnrolledHost),
    /// Several namespaces have a host of this name, and `default` has none.
    Several(Vec<String>),
    /// None of them.
    Nobody,
}

/// Finds a host by `ho_…`, `namespace/name`, a name in `default`, or a name that one namespace alone has; one that may not be seen is not there.
pub(crate) fn find<'a>(snapshot: &'a Snapshot, caller: &'a Caller, text: &str) -> Found<'a> {
    if let Ok(id) = HostId::from_str(text) {
        let found = snapshot.intent.hosts.get(&id).filter(|host| caller.sees(&host.namespace));
        return found.map_or(Found::Nobody, Found::One);
    }
    let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
    let named: Vec<&EnrolledHost> = hosts(snapshot, caller).filter(|host| host.name.as_str() == name).collect();
    let in_namespace = |wanted: &str| named.iter().find(|host| host.namespace.as_str() == wanted).copied();
    match (in_namespace(namespace.unwrap_or("default")), namespace, named.as_slice()) {
        (Some(host), ..) => Found::One(host),
        (None, None, [host]) => Found::One(host),
        (None, Some(_), _) | (None, None, []) => Found::Nobody,
        (None, None, several) => Found::Several(several.iter().map(|host| host_name(host)).collect()),
    }
}

/// The host that a text means, or a refusal that says what it may have meant.
pub(crate) fn find_one<'a>(
    snapshot: &'a Snapshot,
    caller: &'a Caller,
    text: &str,
) -> Result<&'a EnrolledHost, Refusal> {
    match find(snapshot, caller, text) {
        Found::One(host) => Ok(host),
        Found::Several(names) => {
            let text = format!("several hosts are called `{text}`: say {}", names.join(" or "));
            Err(Refusal::new(ProblemType::Ambiguous, text))
        }
        Found::Nobody => {
            let known: Vec<String> = hosts(snapshot, caller).map(host_name).collect();
            let near = suggestion(text, known.iter().map(String::as_str));
            Err(Refusal::not_found(format!("host `{}`{near}", text.chars().take(300).collect::<String>())))
        }
    }
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HostsQuery {
    /// Only this namespace.
    namespace: Option<String>,
    /// The most items, 1 to 500.
    limit: Option<u32>,
    /// From the page before.
    cursor: Option<String>,
}

/// A host's place in the list: trouble first, then who was heard last, of those that have everything those of which something is not as it should be.
/// Hosts that move meanwhile may be listed twice or not.
type Place = (Sync, Reverse<i64>, bool, String, String);

fn place(host: &JudgedHost) -> Place {
    let heard = host.status.last_seen_at.map_or(0, OffsetDateTime::unix_timestamp);
    // Those that are in order keep one place, so that a list of a healthy fleet does not move under the reader.
    let sync = sync_of(host);
    let heard = if sync == Sync::Offline { heard } else { 0 };
    let is_whole = host.state == HostState::Converged;
    (sync, Reverse(heard), is_whole, host.status.namespace.to_string(), host.status.name.to_string())
}

/// Hosts, those in trouble first.
#[utoipa::path(get, path = "/v1/hosts", operation_id = "list_hosts", tag = "hosts", params(HostsQuery), responses(
    (status = 200, body = Page<HostView>),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<HostsQuery>,
) -> Result<Json<Page<HostView>>, Refusal> {
    caller.may(Act::Read)?;
    let limit = cursor::limit_of(query.limit)?;
    let list = format!("hosts {:?}", query.namespace);
    let after: Option<Place> = cursor::decode(&list, query.cursor.as_deref())?;
    let fleet = door.fleet.read(None).await?;
    let intent = door.effective_in(&fleet).await?;
    let wanted = |host: &&JudgedHost| {
        caller.sees(&host.status.namespace)
            && query.namespace.as_ref().is_none_or(|namespace| namespace == host.status.namespace.as_str())
    };
    let mut hosts: Vec<(Place, &JudgedHost)> =
        fleet.hosts.iter().filter(wanted).map(|host| (place(host), host)).collect();
    hosts.sort_by(|(a, _), (b, _)| a.cmp(b));
    let from = after.map_or(0, |after| hosts.partition_point(|(place, _)| *place <= after));
    let rest = hosts.get(from..).unwrap_or_default();
    let page = rest.get(..limit).unwrap_or(rest);
    let next_cursor = match page.last() {
        Some((last, _)) if page.len() < rest.len() => Some(cursor::encode(&list, last)?),
        Some(_) | None => None,
    };
    let waiting = page.iter().filter(|(_, host)| may_be_too_large(host)).map(|(_, host)| host.status.host).collect();
    let too_large = too_large(&door, &intent, waiting, None).await?;
    let view = |host: &JudgedHost| {
        let id = host.status.host;
        host_view(host, intent.of(id), too_large.contains(&id))
    };
    let items = page.iter().map(|(_, host)| view(host)).collect();
    Ok(Json(Page { items, next_cursor, revision: fleet.revision.raw() }))
}

/// Those of these hosts whose policy does not travel: what is rendered for one host is soon laid out. Of what is not laid out by a moment nothing is
/// told, so that whoever asks no more keeps nobody from the place.
pub(super) async fn too_large(
    door: &Door,
    intent: &Effective,
    hosts: BTreeSet<HostId>,
    until: Option<Instant>,
) -> Result<BTreeSet<HostId>, Refusal> {
    if hosts.is_empty() {
        return Ok(hosts);
    }
    let intent = intent.clone();
    door.compute(move || {
        let (held, others): (Vec<HostId>, Vec<HostId>) =
            hosts.into_iter().partition(|host| intent.held_at(*host).is_some());
        let of_one_revision = |hosts: Vec<HostId>| {
            let index = hosts.first().map(|host| intent.of(*host).index());
            let bytes =
                move |host| index.as_ref().and_then(|index| render_host(index, host)).map(|body| encode(&body).len());
            let hosts = hosts.into_iter().take_while(move |_| until.is_none_or(|until| Instant::now() < until));
            hosts.filter(move |host| bytes(*host).is_some_and(|bytes| bytes > BODY_BYTES_MAX))
        };
        of_one_revision(held).chain(of_one_revision(others)).collect()
    })
    .await
}

async fn judged(door: &Shared, caller: &Caller, text: &str) -> Result<(JudgedHost, HostView), Refusal> {
    let snapshot = door.intent.current().await?;
    let id = find_one(&snapshot, caller, text)?.id;
    let mut fleet = door.fleet.read(Some(vec![id])).await?;
    let host = fleet.hosts.pop().ok_or_else(|| Refusal::not_found(format!("host {id}")))?;
    let intent = door.effective(host.status.held.map(|held| (id, held)).into_iter().collect()).await?;
    let waiting = may_be_too_large(&host).then_some(id).into_iter().collect();
    let is_too_large = too_large(door, &intent, waiting, None).await?.contains(&id);
    let view = host_view(&host, intent.of(id), is_too_large);
    Ok((host, view))
}

/// One host.
#[utoipa::path(get, path = "/v1/hosts/{host}", operation_id = "get_host", tag = "hosts", params(
    ("host" = String, Path, description = "`ho_…`, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
), responses(
    (status = 200, body = HostView),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn one(
    State(door): State<Shared>,
    caller: Caller,
    Path(host): Path<String>,
) -> Result<(AppendHeaders<Tag>, Json<HostView>), Refusal> {
    caller.may(Act::Read)?;
    let (host, view) = judged(&door, &caller, &host).await?;
    let latest = door.store.latest_revision().await?;
    let since = door.store.host_since(host.status.host, latest).await?;
    let since = since.ok_or_else(|| Refusal::not_found(format!("host {}", host.status.host)))?;
    Ok((AppendHeaders(etag::etag(since)), Json(view)))
}

/// The policy that a host is to hold: which policies govern it, and the rules that come of them; of one that a rollout holds at an earlier revision,
/// those of that revision.
#[utoipa::path(get, path = "/v1/hosts/{host}/policy", operation_id = "get_host_policy", tag = "hosts", params(
    ("host" = String, Path, description = "`ho_…`, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
), responses(
    (status = 200, body = HostPolicyView),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn policy(
    State(door): State<Shared>,
    caller: Caller,
    Path(host): Path<String>,
) -> Result<Json<HostPolicyView>, Refusal> {
    caller.may(Act::Read)?;
    let snapshot = door.intent.current().await?;
    let host = find_one(&snapshot, &caller, &host)?.clone();
    let intent = door.effective_of(vec![host.id]).await?;
    let snapshot = intent.of(host.id);
    let base = Arc::clone(snapshot);
    // The renderer's own code, on this intent: what the host is to hold, rendered or not yet.
    let rendered = door.compute(move || {
        let body = render_host(&base.index(), host.id).unwrap_or_default();
        (encode(&body).len(), body)
    });
    let (bytes, body) = rendered.await?;
    let names = Names::of(snapshot, &caller);
    let mut rules = rules_of_body(&body);
    rules.iter_mut().for_each(|rule| names.name_rule(rule));
    Ok(Json(HostPolicyView {
        host: host.id.to_string(),
        name: host_name(&host),
        revision: snapshot.revision.raw(),
        policies: snapshot.policies_of(&host).into_iter().map(ToString::to_string).collect(),
        mode: body.mode,
        ingress_isolated: body.ingress.isolated,
        egress_isolated: body.egress.isolated,
        rules,
        body_bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        body_bytes_max: u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX),
    }))
}

/// What a host says it holds against what it is to hold.
#[utoipa::path(get, path = "/v1/hosts/{host}/diff", operation_id = "diff_host", tag = "hosts", params(
    ("host" = String, Path, description = "`ho_…`, `namespace%2Fname`, a name in `default`, or a name that only one namespace has"),
), responses(
    (status = 200, body = DiffView),
    (status = 404, description = "There is no such host", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Nothing was rendered yet, or the host holds what never was", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn diff(
    State(door): State<Shared>,
    caller: Caller,
    Path(host): Path<String>,
) -> Result<Json<DiffView>, Refusal> {
    caller.may(Act::Read)?;
    let (host, view) = judged(&door, &caller, &host).await?;
    let mut pairs = host.status.components.iter().zip(&host.components);
    let policy = pairs.find(|(status, _)| status.component == Component::Policy);
    let not_rendered = || Refusal::new(ProblemType::NotRendered, "nothing was rendered for this host yet");
    let (status, judged) = policy.ok_or_else(not_rendered)?;
    let latest = status.latest.ok_or_else(not_rendered)?;
    let said = applied_of(&host, status, *judged);
    let applied = said.and_then(|(applied, _)| applied);
    if let Some(held) = applied
        && !door.store.was_rendered(host.status.host, Component::Policy, held).await?
    {
        // What a host says of itself is its own word: another life of the database rendered it, or nobody did.
        let text = format!(
            "the host says that it holds version {}, which this database never rendered for it: was an earlier state of the database restored? \
             `holdfast describe host {}` tells what the host says",
            held.version, view.name
        );
        return Err(Refusal::new(ProblemType::NotRendered, text));
    }
    let (from, to) = (applied.map(|stamp| stamp.digest), latest.digest);
    let roots: Vec<Digest> = from.into_iter().chain([to]).collect();
    let nodes = door.store.fetch_trees(roots, |_| false).await?;
    let changes = door
        .compute(move || {
            let body = |root: Digest| assemble(root, |digest| nodes.get(&digest).cloned());
            let base = from.map(body).transpose()?.unwrap_or_default();
            Ok(policy_changes(&base, &body(to)?))
        })
        .await?
        .map_err(|error: holdfast_model::artifact::AssembleError| Refusal::defect(&error))?;
    let mut changes = changes;
    Names::of(door.intent.current().await?.as_ref(), &caller).name_changes(&mut changes);
    Ok(Json(DiffView {
        as_of: said.map(|(_, at)| rfc3339(at)),
        online: view.session.as_ref().is_some_and(|session| session.open),
        host: view.id,
        name: format!("{}/{}", view.namespace, view.name),
        applied_version: applied.map(|stamp| stamp.version.raw()),
        latest_version: latest.version.raw(),
        changes,
    }))
}
