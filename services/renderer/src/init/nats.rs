//! The configuration of the NATS server: TLS by certificate alone, and what each user may do.
//!
//! - A user is the DNS name in its client certificate (`verify_and_map`). Nobody but people may delete or purge a stream; agents have no user.
//! - Hints and events are two accounts. A user who may ask JetStream for anything may name any subject of its account for the answer, and the server
//!   publishes there without looking at the user's permissions: in one account every gateway could write events that way.

use super::{AUDIT, GATEWAY_AGENTS, GATEWAY_OPERATORS, NATS_ADMIN, NATS_HINTS_ADMIN, RENDERER, RENDERER_EVENTS};

/// What a listener to a stream may ask of JetStream: itself and nothing else of it.
fn reader(stream: &str) -> Vec<String> {
    ["STREAM.INFO.{}", "CONSUMER.CREATE.{}.>", "CONSUMER.INFO.{}.>", "CONSUMER.DELETE.{}.>", "CONSUMER.MSG.NEXT.{}.>"]
        .map(|call| format!("$JS.API.{}", call.replace("{}", stream)))
        .into()
}

fn subjects(list: &[&str]) -> Vec<String> {
    list.iter().map(|subject| (*subject).to_owned()).collect()
}

/// One user: what it may publish, and what it may listen to beside its own inboxes.
struct User {
    name: &'static str,
    publishes: Vec<String>,
    listens: &'static [&'static str],
}

/// The users of hints and directives.
fn hints() -> Vec<User> {
    let listening = |publishes: &[&str]| [subjects(publishes), reader("HOLDFAST_HINTS")].concat();
    let user = |name, publishes: &[&str], listens| User { name, publishes: listening(publishes), listens };
    let of_operators = ["holdfast.hint.intent", "holdfast.hint.request", "holdfast.hint.event", "holdfast.directive.*"];
    vec![
        user(RENDERER, &["holdfast.hint.>", "$JS.API.STREAM.CREATE.HOLDFAST_HINTS"], &[]),
        user(GATEWAY_AGENTS, &["holdfast.hint.request", "holdfast.hint.event"], &["holdfast.directive.*"]),
        user(GATEWAY_OPERATORS, &of_operators, &[]),
    ]
}

/// The users of events.
fn events() -> Vec<User> {
    let writes = [
        "holdfast.event.>",
        "$JS.API.STREAM.CREATE.HOLDFAST_EVENTS",
        "$JS.API.STREAM.MSG.GET.HOLDFAST_EVENTS",
        "$JS.API.STREAM.INFO.HOLDFAST_EVENTS",
    ];
    let user = |name, publishes| User { name, publishes, listens: &[] };
    vec![user(RENDERER_EVENTS, subjects(&writes)), user(AUDIT, reader("HOLDFAST_EVENTS"))]
}

/// One account: what its users may publish and listen to, and a person who may do everything.
fn account(name: &str, users: &[User], admin: &str) -> String {
    let line = |User { name: user, publishes, listens }: &User| {
        let quoted = |subject: &dyn std::fmt::Display| format!("\"{subject}\"");
        let publish = publishes.iter().map(|subject| quoted(subject)).collect::<Vec<_>>().join(", ");
        // The prefix of a user's inboxes: nobody can listen to another's answers.
        let inboxes = format!("_INBOX_{user}.>");
        let subscribe = std::iter::once(quoted(&inboxes)).chain(listens.iter().map(|subject| quoted(subject)));
        let subscribe = subscribe.collect::<Vec<_>>().join(", ");
        format!(
            "      {{ user: \"{user}\", permissions: {{ publish: {{ allow: [{publish}] }}, \
             subscribe: {{ allow: [{subscribe}] }} }} }}\n"
        )
    };
    let lines: String = users.iter().map(line).collect();
    format!("  {name} {{\n    jetstream: enabled\n    users: [\n{lines}      {{ user: \"{admin}\" }}\n    ]\n  }}\n")
}

pub(super) fn configuration() -> String {
    format!(
        "# Made by `holdfast-renderer init`. Include it from the server's own file, which says where to listen and where\n\
         # JetStream keeps its store; paths here are relative to the folder that the server is started in: start it in this one.\n\
         tls {{\n  cert_file: \"nats.pem\"\n  key_file: \"nats.key.pem\"\n  ca_file: \"ca.pem\"\n  \
         verify_and_map: true\n  timeout: 5\n}}\n\
         accounts {{\n{}{}}}\n\
         max_payload: 1MB\n",
        account("HOLDFAST_HINTS", &hints(), NATS_HINTS_ADMIN),
        account("HOLDFAST_EVENTS", &events(), NATS_ADMIN)
    )
}
