//! One module per group of kinds, and the part that all documents share: `apiVersion`, `kind`, `metadata`.

mod kubernetes;
mod objects;
mod peer;
mod policy;
mod service;

use holdfast_model::intent::{Kind, Object, Spec};
use holdfast_model::name::Name;

use crate::cursor::{At, Fields, Nulls};
use crate::fault::{RuleName, Sink, quote};
use crate::near::did_you_mean;
use crate::scalar;
use crate::tree::Value;

const OURS: &str = "holdfast.dev/v1";
const KUBERNETES: &str = "networking.k8s.io/v1";

/// The kinds of ours that a later version will read.
const LATER: [&str; 3] = ["Workload", "Setting", "Credential"];

/// What a document is, by its head.
pub(crate) enum Head {
    /// A list of documents.
    List,
    /// One object.
    Object(Authored),
}

/// In which dialect an object is authored, and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Authored {
    /// A `NetworkPolicy` of Kubernetes.
    Kubernetes,
    /// One of our own kinds.
    Ours(Kind),
}

/// Opens a document; its dialect decides what a field without a value means.
pub(crate) fn open<'a>(at: &At<'a>, sink: &mut Sink) -> Option<Fields<'a>> {
    let Value::Map(fields) = &at.node.value else {
        at.fault(
            sink,
            RuleName::DocumentShape,
            format!("a document is a map of fields, this is {}", at.node.value.noun()),
        );
        return None;
    };
    let ours = |(name, node): &(String, crate::tree::Node)| {
        name == "apiVersion" && matches!(&node.value, Value::Text(text) if text.starts_with("holdfast.dev/"))
    };
    at.fields(sink, if fields.iter().any(ours) { Nulls::Fault } else { Nulls::Absent })
}

/// Reads `apiVersion` and `kind`.
pub(crate) fn head(fields: &mut Fields<'_>, sink: &mut Sink) -> Option<Head> {
    let version_at = fields.need(sink, "apiVersion");
    let kind_at = fields.need(sink, "kind");
    let (version_at, kind_at) = (version_at?, kind_at?);
    let (version, kind) = (version_at.text(sink), kind_at.text(sink));
    let (version, kind) = (version?, kind?);
    match (version, kind) {
        ("v1", "List") | (KUBERNETES, "NetworkPolicyList") => Some(Head::List),
        (KUBERNETES, "NetworkPolicy") => Some(Head::Object(Authored::Kubernetes)),
        (OURS, _) => our_kind(kind, &kind_at, sink).map(|kind| Head::Object(Authored::Ours(kind))),
        _ if known_version(version) => {
            let message = format!("{} of {} is not read: only its NetworkPolicy is", quote(kind), quote(version));
            kind_at.fault(sink, RuleName::KindUnknown, message);
            None
        }
        _ => {
            let message = format!("{} is not read: only {OURS} and {KUBERNETES} are", quote(version));
            version_at.fault(sink, RuleName::ApiVersion, message);
            None
        }
    }
}

/// Whether a version is one of Kubernetes' own that people mix into one file.
fn known_version(version: &str) -> bool {
    matches!(version, KUBERNETES | "v1" | "apps/v1" | "batch/v1")
}

fn our_kind(word: &str, at: &At<'_>, sink: &mut Sink) -> Option<Kind> {
    let found = Kind::ALL.into_iter().find(|kind| *kind != Kind::NetworkPolicy && kind.word() == word);
    if found.is_none() {
        if LATER.contains(&word) {
            let message = format!(
                "a {word} cannot be authored yet: this version renders policy only, workloads and the like come later"
            );
            at.fault(sink, RuleName::KindUnsupported, message);
        } else {
            let near = did_you_mean(word, Kind::ALL.iter().map(|kind| kind.word()));
            at.fault(sink, RuleName::KindUnknown, format!("{} is no kind of {OURS}{near}", quote(word)));
        }
    }
    found
}

/// Reads the rest of an object.
pub(crate) fn object(authored: Authored, mut fields: Fields<'_>, sink: &mut Sink) -> Option<Object> {
    let metadata = fields.need(sink, "metadata").and_then(|at| match authored {
        Authored::Kubernetes => kubernetes::metadata(&at, sink),
        Authored::Ours(kind) => metadata(&at, sink, kind),
    });
    let spec_at = match authored {
        Authored::Kubernetes => {
            fields.skip(&["status"]);
            fields.take("spec")
        }
        Authored::Ours(Kind::Namespace | Kind::Host) => fields.take("spec"),
        Authored::Ours(_) => fields.need(sink, "spec"),
    };
    let spec = match (authored, &spec_at) {
        (Authored::Kubernetes, _) => Some(Spec::NetworkPolicy(kubernetes::policy(spec_at.as_ref(), sink))),
        (Authored::Ours(kind), _) => our_spec(kind, spec_at.as_ref(), sink),
    };
    fields.end(sink);
    let (namespace, name) = metadata?;
    Some(Object { namespace, name, spec: spec? })
}

fn our_spec(kind: Kind, at: Option<&At<'_>>, sink: &mut Sink) -> Option<Spec> {
    match kind {
        Kind::AddressGroup => Some(Spec::AddressGroup(objects::address_group(at?, sink)?)),
        Kind::Endpoint => Some(Spec::Endpoint(objects::endpoint(at?, sink)?)),
        Kind::Host => Some(Spec::Host(at.map(|at| objects::host(at, sink)).unwrap_or_default())),
        Kind::Namespace => Some(Spec::Namespace(at.map(|at| objects::namespace(at, sink)).unwrap_or_default())),
        Kind::Policy => Some(Spec::Policy(policy::policy(at?, sink)?)),
        Kind::NetworkPolicy => None,
    }
}

fn metadata(at: &At<'_>, sink: &mut Sink, kind: Kind) -> Option<(Name, Name)> {
    let mut fields = at.fields(sink, Nulls::Fault)?;
    let name = fields.need(sink, "name").and_then(|at| scalar::name(&at, sink));
    let namespace = match (kind, fields.take("namespace")) {
        (Kind::Namespace, Some(at)) => {
            at.fault(sink, RuleName::NamespaceNested, "a Namespace is in no namespace: leave this field out");
            None
        }
        (Kind::Namespace, None) => name.clone(),
        (_, Some(at)) => scalar::name(&at, sink),
        (_, None) => Some(Name::default_namespace()),
    };
    if let Some(at) = fields.take("labels") {
        at.fault(sink, RuleName::MetadataLabels, "nothing reads labels here: selectors read `spec.labels`");
    }
    fields.end(sink);
    Some((namespace?, name?))
}
