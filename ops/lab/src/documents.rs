//! What a control plane is told of an estate: documents to apply, and what each host's enrolment token says. Pure.
//!
//! - Documents are JSON, one a line, with YAML's line between them: any reader of either takes them.
//! - The documents of a mode say of every host what the estate says, and that mode: applied, they move modes and nothing else.
//! - The list of hosts is text in columns for scripts; what stands in it (names, labels, ports, addresses) has no tab, comma or blank.

use std::fmt::Write as _;
use std::path::PathBuf;

use holdfast_documents::estate::{Estate, State};
use holdfast_documents::write;
use holdfast_model::intent::{EnrolledHost, HostSpec, Intent, Kind, Object, ObjectKey, Spec};
use holdfast_model::policy::{Mode, protocol};
use ipnet::IpNet;

/// Every mode, in the order in which a fleet is moved through them.
pub const MODES: [Mode; 3] = [Mode::Visibility, Mode::Simulation, Mode::Enforced];

/// Every object of a state.
#[must_use]
pub fn objects(state: &State) -> String {
    let object = |(key, spec): (&ObjectKey, &Spec)| Object {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        spec: spec.clone(),
    };
    // Namespaces first: people read from the top.
    let (namespaces, others): (Vec<_>, Vec<_>) =
        state.intent.objects.iter().map(object).partition(|object| object.spec.kind() == Kind::Namespace);
    text(namespaces.iter().chain(&others))
}

/// The `Host` of every host of a state, in one mode.
#[must_use]
pub fn modes(state: &State, mode: Mode) -> String {
    let object = |host: &EnrolledHost| Object {
        namespace: host.namespace.clone(),
        name: host.name.clone(),
        spec: Spec::Host(HostSpec { mode: Some(mode), ..spec_of(&state.intent, host) }),
    };
    text(state.intent.hosts.values().map(object).collect::<Vec<_>>().iter())
}

/// What the estate says about a host beside its enrolment.
fn spec_of(intent: &Intent, host: &EnrolledHost) -> HostSpec {
    let key = ObjectKey { kind: Kind::Host, namespace: host.namespace.clone(), name: host.name.clone() };
    match intent.objects.get(&key) {
        Some(Spec::Host(spec)) => spec.clone(),
        Some(
            Spec::AddressGroup(_) | Spec::Endpoint(_) | Spec::Namespace(_) | Spec::NetworkPolicy(_) | Spec::Policy(_),
        )
        | None => HostSpec::default(),
    }
}

fn text<'a>(objects: impl Iterator<Item = &'a Object>) -> String {
    let mut text = String::new();
    for object in objects {
        // Writing to a text does not fail.
        let _ = writeln!(text, "---\n{}", write(object));
    }
    text
}

/// One line a host: its name in the lab, its agent's folder, namespace, name, labels, ports, prefixes of its addresses; columns between tabs, lists with commas, `-`
/// for an empty list.
#[must_use]
pub fn hosts(estate: &Estate, state: &State, folder_of: impl Fn(&str) -> Option<PathBuf>) -> String {
    let mut lines: Vec<String> = state
        .intent
        .hosts
        .iter()
        .map(|(id, host)| {
            let lab_name = estate.host_names.get(id).cloned().unwrap_or_else(|| id.to_string());
            let labels = host.labels.iter().map(|(key, value)| format!("{key}={value}"));
            let ports = host.ports.iter().map(|port| format!("{}={}/{}", port.name, port.port, word(port.protocol)));
            let addresses = host.addresses.iter().map(|address| IpNet::from(*address).to_string());
            let lists = [list(labels), list(ports), list(addresses)].join("\t");
            let folder = folder_of(&lab_name).map_or_else(|| "-".to_owned(), |folder| folder.display().to_string());
            format!("{lab_name}\t{folder}\t{}\t{}\t{lists}\n", host.namespace, host.name)
        })
        .collect();
    lines.sort_unstable();
    lines.concat()
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "-".to_owned() } else { items.join(",") }
}

/// The word of a protocol that has ports; a declared port has no other.
const fn word(number: u8) -> &'static str {
    match number {
        protocol::UDP => "udp",
        protocol::SCTP => "sctp",
        _ => "tcp",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use holdfast_documents::{Source, read};

    use super::*;
    use crate::verify::{Case, load};

    #[test]
    fn what_is_written_reads_as_what_it_was() {
        let estate = mk_harbour();
        let state = estate.states.first().expect("an estate has a state");
        let read_back = read(&[Source { name: "objects".to_owned(), text: objects(state) }]).expect("no faults");
        let mut intent = Intent { hosts: state.intent.hosts.clone(), ..Intent::default() };
        read_back.into_iter().for_each(|object| intent.put(object));
        assert_eq!(intent, state.intent);
    }

    #[test]
    fn a_mode_keeps_what_else_is_said_of_a_host() {
        let estate = mk_harbour();
        let state = estate.states.first().expect("an estate has a state");
        let text = modes(state, Mode::Visibility);
        assert_eq!(text.matches("\"mode\":\"visibility\"").count(), state.intent.hosts.len());
        assert!(text.contains("\"tier\":\"replica\""), "the label that db-2 has from its document: {text}");
    }

    #[test]
    fn every_host_has_its_line_with_what_its_token_says() {
        let estate = mk_harbour();
        let text = hosts(&estate, estate.states.first().expect("an estate has a state"), |host| {
            Some(Path::new("/of").join(host))
        });
        assert_eq!(text.lines().count(), 12);
        let web = "web-2\t/of/web-2\tbooking\tweb-2\tapp=booking,role=web\thttp=8081/tcp\t10.71.2.12/32,fd71:6ab0:40:2::12/128";
        assert!(text.lines().any(|line| line == web), "{text}");
        assert!(text.lines().any(|line| line.starts_with("jobs-1\t") && line.contains("\t-\t")), "{text}");
    }

    fn mk_harbour() -> Estate {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("estates/harbour/estate.yaml");
        match load(&file).expect("it is ours") {
            Case::Estate(estate) => *estate,
            Case::Churn(_) => panic!("it has hosts"),
        }
    }
}
