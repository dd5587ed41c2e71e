//! Objects back to documents: one canonical document per object, in the dialect that it was authored in.
//!
//! - `read(write(x)) == x` for every object that [`crate::read()`] can give; shown by property.
//! - Defaults are left out where the reader puts them back; `isolate` and `policyTypes` are always said, because their defaults depend on the rest.

mod kubernetes;
mod policy;

use holdfast_model::intent::{DeclaredPort, Object, Spec};
use holdfast_model::label::{Labels, Requirement, Selector};
use holdfast_model::policy::protocol;
use serde_json::{Map, Value, json};

/// The document of one object, as JSON, which is YAML too.
#[must_use]
pub fn write(object: &Object) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(object.name.as_str()));
    let (version, spec) = match &object.spec {
        Spec::AddressGroup(group) => {
            (OURS, json!({ "cidrs": group.cidrs.iter().map(ToString::to_string).collect::<Vec<_>>() }))
        }
        Spec::Endpoint(endpoint) => {
            let mut spec = Map::new();
            spec.insert("addresses".to_owned(), texts(&endpoint.addresses));
            put_labels(&mut spec, &endpoint.labels);
            if !endpoint.ports.is_empty() {
                spec.insert("ports".to_owned(), ports(&endpoint.ports));
            }
            (OURS, Value::Object(spec))
        }
        Spec::Host(host) => {
            let mut spec = Map::new();
            put_labels(&mut spec, &host.labels);
            if let Some(declared) = &host.ports {
                spec.insert("ports".to_owned(), ports(declared));
            }
            if let Some(mode) = host.mode {
                spec.insert("mode".to_owned(), json!(mode.to_string()));
            }
            (OURS, Value::Object(spec))
        }
        Spec::Namespace(namespace) => {
            let mut spec = Map::new();
            put_labels(&mut spec, &namespace.labels);
            (OURS, Value::Object(spec))
        }
        Spec::NetworkPolicy(policy) => (KUBERNETES, kubernetes::policy(policy)),
        Spec::Policy(policy) => (OURS, policy::policy(policy)),
    };
    if !matches!(object.spec, Spec::Namespace(_)) {
        metadata.insert("namespace".to_owned(), json!(object.namespace.as_str()));
    }
    json!({ "apiVersion": version, "kind": object.spec.kind().word(), "metadata": metadata, "spec": spec })
}

const OURS: &str = "holdfast.dev/v1";
const KUBERNETES: &str = "networking.k8s.io/v1";

fn texts<T: ToString>(items: &[T]) -> Value {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().into()
}

fn put_labels(spec: &mut Map<String, Value>, labels: &Labels) {
    if !labels.is_empty() {
        spec.insert("labels".to_owned(), json!(labels));
    }
}

fn ports(declared: &[DeclaredPort]) -> Value {
    let one =
        |port: &DeclaredPort| json!({ "name": port.name, "port": port.port, "protocol": transport(port.protocol) });
    declared.iter().map(one).collect()
}

/// The word of a protocol with ports. Documents can name no other here.
const fn transport(number: u8) -> &'static str {
    match number {
        protocol::UDP => "udp",
        protocol::SCTP => "sctp",
        _ => "tcp",
    }
}

/// Conditions as `matchLabels` where that says the same, else as `matchExpressions`.
fn selector(selector: &Selector) -> Map<String, Value> {
    let requirements = selector.requirements();
    let (mut labels, mut expressions) = (Map::new(), Vec::new());
    for requirement in requirements {
        let (operator, values) = match requirement {
            Requirement::In { key, values } => {
                // A key that two conditions ask for can stand in the map once only.
                if let [value] = values.as_slice()
                    && !labels.contains_key(key)
                {
                    labels.insert(key.clone(), json!(value));
                    continue;
                }
                ("In", Some(values))
            }
            Requirement::NotIn { values, .. } => ("NotIn", Some(values)),
            Requirement::Exists { .. } => ("Exists", None),
            Requirement::DoesNotExist { .. } => ("DoesNotExist", None),
        };
        let mut expression = Map::new();
        expression.insert("key".to_owned(), json!(requirement.key()));
        expression.insert("operator".to_owned(), json!(operator));
        if let Some(values) = values {
            expression.insert("values".to_owned(), json!(values));
        }
        expressions.push(Value::Object(expression));
    }
    let mut written = Map::new();
    if !labels.is_empty() {
        written.insert("matchLabels".to_owned(), Value::Object(labels));
    }
    if !expressions.is_empty() {
        written.insert("matchExpressions".to_owned(), Value::Array(expressions));
    }
    written
}
