//! `GET /v1/explain/flow`: why a connection may be opened or may not.
//!
//! The reference evaluator decides, from intent as it was authored; the renderer has no part in it.
//! Each end is judged by what it is to have: one that a rollout holds back, by the revision that it is held at.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use holdfast_api::explain::{DecisionView, EndView, ExplainView, FlowView, PAIRS_LISTED_MAX, PAIRS_MAX};
use holdfast_api::problem::{Problem, ProblemType};
use holdfast_api::status::MissingView;
use holdfast_evaluator::{Decision, End, Flow, FlowError, Packet, Verdict, Who, evaluate};
use holdfast_model::address::Family;
use holdfast_model::desired::Component;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{EndpointSpec, EnrolledHost, ObjectKey, Spec};
use holdfast_model::numbers::Revision;
use holdfast_model::policy::{Mode, protocol};
use holdfast_model::status::Missing;
use serde::Deserialize;
use std::str::FromStr as _;
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::IntoParams;

use super::auth::{Act, Caller};
use super::door::Shared;
use super::effective::{Effective, held_in};
use super::fleet::JudgedFleet;
use super::hosts::{Found, find};
use super::intent::Snapshot;
use super::names::{endpoints, host_name, hosts, suggestion};
use super::refuse::Refusal;
use super::request::Params;

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FlowQuery {
    /// Who opens: a host (`ho_…`, `namespace/name`, a name in `default` or one that a single namespace has), an endpoint likewise, or an address.
    from: String,
    /// Toward whom, likewise. `Host/…` and `Endpoint/…` say which if both have the name.
    to: String,
    /// `443/tcp`, `53/udp`, `7/sctp`, `icmp`, `icmp/TYPE`, `icmp/TYPE/CODE` or `protocol/47` (`proto/47`).
    service: String,
    /// At which revision, or at which time in RFC 3339: as if every host had it. Now if absent, and then by what each end is to have. A revision's time is
    /// when its transaction began, a moment before it was in force.
    at: Option<String>,
}

/// One end with everything that is asked of it.
#[derive(Clone, Debug)]
struct Party {
    view: EndView,
    ends: Vec<End>,
}

/// Whether a connection may be opened, and who says so.
#[utoipa::path(get, path = "/v1/explain/flow", operation_id = "explain_flow", tag = "explain", params(FlowQuery), responses(
    (status = 200, body = ExplainView),
    (status = 404, description = "An end is not known", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "A name means several things", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn flow(
    State(door): State<Shared>,
    caller: Caller,
    Params(query): Params<FlowQuery>,
) -> Result<Json<ExplainView>, Refusal> {
    caller.may(Act::Read)?;
    let service = Service::read(&query.service)?;
    let snapshot = snapshot_at(&door, query.at.as_deref()).await?;
    let mut from = party(&snapshot, &caller, "from", &query.from);
    let mut to = party(&snapshot, &caller, "to", &query.to);
    if query.at.is_some() {
        let now = door.intent.current().await?;
        from = from.map_err(|refusal| not_yet(refusal, [&snapshot, &now], &caller, ("from", &query.from)));
        to = to.map_err(|refusal| not_yet(refusal, [&snapshot, &now], &caller, ("to", &query.to)));
    }
    let (mut from, mut to) = (from?, to?);
    // Of the past it is asked what was wanted; of now, what each end is to have.
    let intent = match query.at {
        Some(_) => Effective::same(snapshot),
        None => {
            let hosts: Vec<HostId> = [&from, &to].into_iter().filter_map(Party::host).collect();
            if hosts.is_empty() {
                Effective::same(snapshot)
            } else {
                let fleet = door.fleet.read(Some(hosts)).await?;
                [&mut from, &mut to].into_iter().for_each(|party| party.as_proven(&fleet));
                door.effective(held_in(&fleet)).await?
            }
        }
    };
    [&mut from, &mut to].into_iter().for_each(|party| party.as_held(&intent));
    let (source, destination, base) = (from.ends.clone(), to.ends.clone(), intent.clone());
    let judged = door.compute(move || judge(&base, &source, &destination, service)).await??;
    let Judged { pairs, pairs_allowed, flows } = judged;
    let verdict = match pairs_allowed {
        0 => "denied",
        allowed if allowed == pairs => "allowed",
        _ => "mixed",
    };
    Ok(Json(ExplainView {
        revision: intent.latest.revision.raw(),
        from: from.view,
        to: to.view,
        service: query.service,
        verdict: verdict.to_owned(),
        pairs,
        pairs_allowed,
        flows,
    }))
}

/// Intent as it was then: at a revision, or at the one that was in force at a time.
async fn snapshot_at(door: &Shared, at: Option<&str>) -> Result<Arc<Snapshot>, Refusal> {
    let current = door.intent.current().await?;
    let Some(text) = at else { return Ok(current) };
    let wrong = |what: String| Refusal::invalid("at", "at", what);
    let revision = if let Ok(number) = text.parse::<u64>() {
        Revision::from_raw(number)
    } else {
        let forms = || wrong("a moment is a revision, or a time as 2026-01-02T03:04:05Z".to_owned());
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| forms())?;
        if time > OffsetDateTime::now_utc() {
            return Err(wrong(format!("{text} is not yet: what is in force then nobody knows")));
        }
        let found = door.store.revision_at(time).await?;
        found.ok_or_else(|| Refusal::not_found(format!("revision at {text}: the first came later")))?
    };
    if revision == Revision::ZERO || revision > current.revision {
        return Err(Refusal::not_found(format!("revision {revision}: the last is {}", current.revision)));
    }
    if revision == current.revision {
        return Ok(current);
    }
    Ok(Arc::new(Snapshot::of_past(door.past(revision).await?)))
}

impl Party {
    /// The host that it is, if it is one.
    fn host(&self) -> Option<HostId> {
        self.ends.iter().find_map(|end| match &end.who {
            Who::Host(id) => Some(*id),
            Who::Endpoint(_) | Who::Outside => None,
        })
    }

    /// Tells of a host that it is not proven to hold its policy, if it is not.
    fn as_proven(&mut self, fleet: &JudgedFleet) {
        let Some(host) = self.host().and_then(|id| fleet.hosts.iter().find(|host| host.status.host == id)) else {
            return;
        };
        let policy = host.judged().find(|(status, _)| status.component == Component::Policy);
        let Some((_, judged)) = policy else { return };
        let missing = judged.missing.filter(|missing| *missing != Missing::Held);
        self.view.unproven = missing.map(|missing| format!("{}: {}", judged.state, MissingView::of(missing).text));
    }

    /// Tells it as the revision has it that it is held at, if it is.
    fn as_held(&mut self, intent: &Effective) {
        let Some(id) = self.host() else { return };
        self.view.held_revision = intent.held_at(id).map(Revision::raw);
        if let Some(host) = intent.of(id).intent.hosts.get(&id) {
            self.view.mode = Some(intent.of(id).mode_of(host));
        }
    }
}

/// Judges each end by the intent that it is to have.
fn verdict(intent: &Effective, flow: &Flow) -> Result<Verdict, FlowError> {
    let own = |end: &End| match &end.who {
        Who::Host(id) => intent.of(*id),
        Who::Endpoint(_) | Who::Outside => &intent.latest,
    };
    let (source, destination) = (own(&flow.from), own(&flow.to));
    if Arc::ptr_eq(source, destination) {
        return evaluate(&source.intent, flow);
    }
    let to = end_in(source, &flow.to);
    let by_source = evaluate(&source.intent, &Flow { to, ..flow.clone() })?;
    let from = end_in(destination, &flow.from);
    Ok(by_source.with_ingress_of(evaluate(&destination.intent, &Flow { from, ..flow.clone() })?))
}

/// Who a peer is in intent at another revision: the rules that were made of that know it by its address alone.
fn end_in(snapshot: &Snapshot, end: &End) -> End {
    let (address, intent) = (end.address, &snapshot.intent);
    let has_it = |host: &&EnrolledHost| host.addresses.contains(&address);
    let host = match &end.who {
        Who::Host(id) => intent.hosts.get(id).filter(has_it),
        Who::Endpoint(_) | Who::Outside => None,
    };
    if let Some(host) = host.or_else(|| intent.hosts.values().find(has_it)) {
        return End::host(host.id, address);
    }
    let is_at = |key: &&ObjectKey| endpoint_of(snapshot, key).is_some_and(|spec| spec.addresses.contains(&address));
    match intent.objects.keys().find(is_at) {
        Some(key) => End::endpoint(key.clone(), address),
        None => End::outside(address),
    }
}

/// What all pairs of addresses amount to.
struct Judged {
    pairs: u64,
    pairs_allowed: u64,
    /// Those that are listed, in their order; of more than fit those that are denied.
    flows: Vec<FlowView>,
}

fn judge(intent: &Effective, from: &[End], to: &[End], service: Service) -> Result<Judged, Refusal> {
    let toward = |source: &End| to.iter().filter(|end| end.family() == source.family()).count();
    let pairs: usize = from.iter().map(toward).sum();
    if pairs == 0 {
        return Err(Refusal::invalid("to", "family", "the two ends have no addresses of one family"));
    }
    if pairs > PAIRS_MAX {
        let text = format!(
            "the two ends have {pairs} pairs of addresses, and at most {PAIRS_MAX} are judged at once: name an address"
        );
        return Err(Refusal::invalid("to", "pairs", text));
    }
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    let mut pairs_allowed = 0;
    for (n, (source, destination)) in from.iter().flat_map(|source| to.iter().map(move |end| (source, end))).enumerate()
    {
        if destination.family() != source.family() {
            continue;
        }
        let flow = Flow { from: source.clone(), to: destination.clone(), packet: service.packet(source.family()) };
        // Both ends come from the last revision, and who is held was there before.
        let verdict = verdict(intent, &flow).map_err(|error| Refusal::defect(&error))?;
        pairs_allowed += u64::from(verdict.allowed);
        let listed = if verdict.allowed { &mut allowed } else { &mut denied };
        if listed.len() < PAIRS_LISTED_MAX {
            listed.push((n, flow_view(&flow, &verdict)));
        }
    }
    // Whoever reads a list that is cut must find in it what denies.
    let mut listed: Vec<(usize, FlowView)> = denied.into_iter().chain(allowed).take(PAIRS_LISTED_MAX).collect();
    listed.sort_by_key(|(n, _)| *n);
    Ok(Judged { pairs: pairs as u64, pairs_allowed, flows: listed.into_iter().map(|(_, flow)| flow).collect() })
}

fn flow_view(flow: &Flow, verdict: &Verdict) -> FlowView {
    FlowView {
        from: flow.from.address.to_string(),
        to: flow.to.address.to_string(),
        allowed: verdict.allowed,
        allowed_if_enforced: verdict.allowed_if_enforced(),
        egress: decision_view(&verdict.egress, verdict.egress_mode),
        ingress: decision_view(&verdict.ingress, verdict.ingress_mode),
    }
}

fn decision_view(decision: &Decision, mode: Option<Mode>) -> DecisionView {
    let (word, rule, isolated_by) = match decision {
        Decision::NotGoverned => ("not-governed", None, Vec::new()),
        Decision::Open => ("open", None, Vec::new()),
        Decision::Allowed(rule) => ("allowed", Some(rule), Vec::new()),
        Decision::Denied(rule) => ("denied", Some(rule), Vec::new()),
        Decision::Isolated(policies) => ("isolated", None, policies.iter().map(ToString::to_string).collect()),
    };
    DecisionView {
        decision: word.to_owned(),
        allows: decision.allows(),
        policy: rule.map(|rule| rule.policy.to_string()),
        rule: rule.map(|rule| format!("{}[{}]", rule.direction, rule.index)),
        isolated_by,
        mode,
        text: decision.to_string(),
    }
}

fn party(snapshot: &Snapshot, caller: &Caller, path: &str, text: &str) -> Result<Party, Refusal> {
    // The lab and estates say `ip:` before an address.
    if let Ok(address) = text.strip_prefix("ip:").unwrap_or(text).parse::<IpAddr>() {
        return at_address(snapshot, caller, path, address.to_canonical());
    }
    let (host, endpoint) = match text.split_once(['/', ':']) {
        Some(("Host" | "host", rest)) => (find(snapshot, caller, rest), FoundEndpoint::Nobody),
        Some(("Endpoint" | "endpoint", rest)) => (Found::Nobody, find_endpoint(snapshot, caller, rest)),
        Some(_) | None => (find(snapshot, caller, text), find_endpoint(snapshot, caller, text)),
    };
    let several =
        |what: &str, names: &[String]| ambiguous(path, &format!("several {what}: say {}", names.join(" or ")));
    match (host, endpoint) {
        (Found::One(host), FoundEndpoint::Nobody) => Ok(host_party(snapshot, host.id, &host.addresses)),
        (Found::Nobody, FoundEndpoint::One(key, spec)) => Ok(endpoint_party(&key, &spec.addresses)),
        (Found::Several(names), _) => Err(several("hosts", &names)),
        (Found::Nobody, FoundEndpoint::Several(names)) => Err(several("endpoints", &names)),
        (Found::One(_), FoundEndpoint::One(..) | FoundEndpoint::Several(_)) => {
            Err(ambiguous(path, "a host and an endpoint: say Host/… or Endpoint/…"))
        }
        (Found::Nobody, FoundEndpoint::Nobody) => Err(unknown_party(snapshot, caller, text)),
    }
}

fn unknown_party(snapshot: &Snapshot, caller: &Caller, text: &str) -> Refusal {
    let endpoints = endpoints(snapshot, caller).map(|(key, _)| format!("{}/{}", key.namespace, key.name));
    let known: Vec<String> = hosts(snapshot, caller).map(host_name).chain(endpoints).collect();
    let near = suggestion(text, known.iter().map(String::as_str));
    let text: String = text.chars().take(300).collect();
    Refusal::not_found(format!("host, endpoint or address `{text}`{near}"))
}

/// What was not there at a moment of the past is told from what never was, where it is there now.
fn not_yet(refusal: Refusal, [then, now]: [&Snapshot; 2], caller: &Caller, (path, text): (&str, &str)) -> Refusal {
    if !refusal.is(ProblemType::NotFound) || party(now, caller, path, text).is_err() {
        return refusal;
    }
    let text: String = text.chars().take(300).collect();
    Refusal::not_found(format!(
        "`{text}` at revision {}: it is there now, and was not or had another name then",
        then.revision
    ))
}

fn ambiguous(path: &str, what: &str) -> Refusal {
    Refusal::new(ProblemType::Ambiguous, format!("`{path}` means {what}"))
}

fn host_party(snapshot: &Snapshot, id: HostId, addresses: &[IpAddr]) -> Party {
    let host = snapshot.intent.hosts.get(&id);
    Party {
        view: EndView {
            kind: "host".to_owned(),
            name: host.map(|host| format!("{}/{}", host.namespace, host.name)).unwrap_or_default(),
            host: Some(id.to_string()),
            mode: Some(host.map(|host| snapshot.mode_of(host)).unwrap_or_default()),
            held_revision: None,
            unproven: None,
        },
        ends: addresses.iter().map(|address| End::host(id, *address)).collect(),
    }
}

fn endpoint_party(key: &ObjectKey, addresses: &[IpAddr]) -> Party {
    Party {
        view: EndView {
            kind: "endpoint".to_owned(),
            name: format!("{}/{}", key.namespace, key.name),
            host: None,
            mode: None,
            held_revision: None,
            unproven: None,
        },
        ends: addresses.iter().map(|address| End::endpoint(key.clone(), *address)).collect(),
    }
}

/// What a text may mean among the endpoints that a caller may see.
enum FoundEndpoint<'a> {
    One(ObjectKey, &'a EndpointSpec),
    Several(Vec<String>),
    Nobody,
}

/// An endpoint by `namespace/name`, a name in `default`, or a name that one namespace alone has.
fn find_endpoint<'a>(snapshot: &'a Snapshot, caller: &'a Caller, text: &str) -> FoundEndpoint<'a> {
    let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
    let named: Vec<_> = endpoints(snapshot, caller).filter(|(key, _)| key.name.as_str() == name).collect();
    let wanted = namespace.unwrap_or("default");
    let there = named.iter().find(|(key, _)| key.namespace.as_str() == wanted);
    match (there, namespace, named.as_slice()) {
        (Some((key, spec)), ..) | (None, None, [(key, spec)]) => FoundEndpoint::One((*key).clone(), spec),
        (None, Some(_), _) | (None, None, []) => FoundEndpoint::Nobody,
        (None, None, several) => {
            let name = |(key, _): &(&ObjectKey, _)| format!("{}/{}", key.namespace, key.name);
            FoundEndpoint::Several(several.iter().map(name).collect())
        }
    }
}

fn endpoint_of<'a>(snapshot: &'a Snapshot, key: &ObjectKey) -> Option<&'a EndpointSpec> {
    match snapshot.intent.objects.get(key)? {
        Spec::Endpoint(spec) => Some(spec),
        Spec::AddressGroup(_) | Spec::Host(_) | Spec::Namespace(_) | Spec::NetworkPolicy(_) | Spec::Policy(_) => None,
    }
}

/// Whoever has an address; somebody outside if nobody has.
fn at_address(snapshot: &Snapshot, caller: &Caller, path: &str, address: IpAddr) -> Result<Party, Refusal> {
    let hosts = snapshot.intent.hosts.values().filter(|host| host.addresses.contains(&address));
    let hosts = hosts.map(|host| (host.namespace.clone(), host_party(snapshot, host.id, &[address])));
    let endpoints = snapshot
        .intent
        .objects
        .keys()
        .filter(|key| endpoint_of(snapshot, key).is_some_and(|spec| spec.addresses.contains(&address)));
    let endpoints = endpoints.map(|key| (key.namespace.clone(), endpoint_party(key, &[address])));
    let mut found: Vec<_> = hosts.chain(endpoints).collect();
    match (found.pop(), found.is_empty()) {
        (None, _) => Ok(Party {
            view: EndView {
                kind: "outside".to_owned(),
                name: address.to_string(),
                host: None,
                mode: None,
                held_revision: None,
                unproven: None,
            },
            ends: vec![End::outside(address)],
        }),
        (Some((namespace, party)), true) => {
            // Judging it as somebody outside would be a wrong answer; whose it is is told to who sees them.
            if !caller.sees(&namespace) {
                let text = format!("{address} is in a namespace that the token does not reach");
                return Err(Refusal::new(ProblemType::NotAllowed, text));
            }
            Ok(party)
        }
        (Some(_), false) => Err(ambiguous(path, "several hosts or endpoints with this address: name one")),
    }
}

/// What is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Service {
    Port {
        protocol: u8,
        port: u16,
    },
    /// Type and code, or an echo request of the flow's family.
    Icmp(Option<(u8, u8)>),
    Other(u8),
}

impl Service {
    fn read(text: &str) -> Result<Self, Refusal> {
        let wrong = || {
            let forms = "443/tcp, 53/udp, 7/sctp, icmp, icmp/TYPE, icmp/TYPE/CODE or protocol/47";
            Refusal::invalid("service", "flow", format!("a service is written as {forms}"))
        };
        Self::parse(text).ok_or_else(wrong)
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let number = |text: &str| u8::from_str(text).ok();
        let transport = |word: &str| match word {
            "tcp" => Some(protocol::TCP),
            "udp" => Some(protocol::UDP),
            "sctp" => Some(protocol::SCTP),
            _ => None,
        };
        match parts.as_slice() {
            ["icmp"] => Some(Self::Icmp(None)),
            ["icmp", kind] => Some(Self::Icmp(Some((number(kind)?, 0)))),
            ["icmp", kind, code] => Some(Self::Icmp(Some((number(kind)?, number(code)?)))),
            // Those with ports or types are asked with them: without, a rule cannot be told apart.
            ["protocol" | "proto", text] => match number(text)? {
                protocol::TCP | protocol::UDP | protocol::SCTP | protocol::ICMP | protocol::ICMPV6 => None,
                number => Some(Self::Other(number)),
            },
            [port, word] => {
                let port = u16::from_str(port).ok().filter(|port| *port > 0)?;
                Some(Self::Port { protocol: transport(word)?, port })
            }
            _ => None,
        }
    }

    const fn packet(self, family: Family) -> Packet {
        match (self, family) {
            (Self::Port { protocol, port }, _) => Packet::Port { protocol, port },
            (Self::Icmp(Some((kind, code))), _) => Packet::Icmp { kind, code },
            (Self::Icmp(None), Family::V4) => Packet::Icmp { kind: 8, code: 0 },
            (Self::Icmp(None), Family::V6) => Packet::Icmp { kind: 128, code: 0 },
            (Self::Other(number), _) => Packet::Other(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [(u128, &str); 3] = [(1, "web"), (2, "db"), (3, "new")];

    fn id(n: u128) -> HostId {
        HostId::new(uuid::Uuid::from_u128(n))
    }

    fn end(n: u128) -> End {
        End::host(id(n), [10, 0, 0, u8::try_from(n).expect("small")].into())
    }

    /// Some of three hosts, all enforced, and a policy by which the database lets these apps in at a port.
    fn mk_snapshot(revision: u64, hosts: &[u128], apps: &str, port: u16) -> Snapshot {
        let enforced = |(_, name): &(u128, &str)| {
            format!(
                "---\napiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {{name: {name}}}\nspec: {{mode: enforced}}\n"
            )
        };
        let text = HOSTS.iter().map(enforced).collect::<String>()
            + &format!(
                "---\napiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: p}}\nspec:\n  hostSelector: {{matchLabels: {{app: db}}}}\n  \
                 ingress: [{{from: [{{hostSelector: {{matchExpressions: [{{key: app, operator: In, values: [{apps}]}}]}}}}], services: [{{tcp: {port}}}]}}]\n"
            );
        let source = holdfast_documents::Source { name: "test".to_owned(), text };
        let mut intent = holdfast_model::intent::Intent::default();
        holdfast_documents::read(&[source]).expect("no faults").into_iter().for_each(|object| intent.put(object));
        for (n, name) in HOSTS.iter().filter(|(n, _)| hosts.contains(n)) {
            let host = EnrolledHost {
                id: id(*n),
                namespace: holdfast_model::name::Name::default_namespace(),
                name: name.parse().expect("a name"),
                labels: [("app".to_owned(), (*name).to_owned())].into(),
                ports: Vec::new(),
                addresses: vec![end(*n).address],
            };
            intent.hosts.insert(host.id, host);
        }
        Snapshot::new(Revision::from_raw(revision), intent)
    }

    #[test]
    fn a_flow_between_ends_of_two_revisions_is_judged_by_each_ends_own_and_a_stranger_there_is_nobody() {
        let mk = |held: &[HostId]| {
            let earlier = mk_snapshot(4, &[1, 2], "web, new", 5432);
            Effective::mk(mk_snapshot(5, &[1, 2, 3], "web, new", 6543), earlier, held)
        };
        let allowed = |intent: &Effective, from: u128, port: u16| {
            let packet = Packet::Port { protocol: protocol::TCP, port };
            verdict(intent, &Flow { from: end(from), to: end(2), packet }).expect("both are known").allowed
        };
        let (nobody, database, other) = (mk(&[]), mk(&[id(2)]), mk(&[id(1)]));
        let ports = |intent, from| [5432, 6543].map(|port| allowed(intent, from, port));
        assert_eq!([ports(&nobody, 1), ports(&nobody, 3)], [[false, true]; 2]);
        assert_eq!(ports(&database, 1), [true, false], "the database is to let in what it was to before");
        assert_eq!(ports(&other, 1), [false, true], "who is held opens, and the database is not held");
        assert_eq!(ports(&database, 3), [false, false], "at that revision it was enrolled by nobody");
        assert_eq!((database.held_at(id(2)).map(Revision::raw), database.held_at(id(1))), (Some(4), None));
    }

    #[test]
    fn services_are_read_in_their_own_forms_only() {
        assert_eq!(Service::parse("443/tcp"), Some(Service::Port { protocol: 6, port: 443 }));
        assert_eq!(Service::parse("icmp"), Some(Service::Icmp(None)));
        assert_eq!(Service::parse("icmp/3/4"), Some(Service::Icmp(Some((3, 4)))));
        assert_eq!(Service::parse("protocol/47"), Some(Service::Other(47)));
        assert_eq!(Service::parse("proto/47"), Some(Service::Other(47)));
        for wrong in ["", "tcp", "tcp/443", "0/tcp", "65536/udp", "443/gre", "protocol/6", "icmp/256", "a/b/c/d"] {
            assert_eq!(Service::parse(wrong), None, "{wrong}");
        }
        let echo = |family| Service::Icmp(None).packet(family);
        assert_eq!(echo(Family::V6), Packet::Icmp { kind: 128, code: 0 });
        assert_eq!(echo(Family::V4), Packet::Icmp { kind: 8, code: 0 });
    }
}
