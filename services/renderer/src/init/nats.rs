//! The configuration of the NATS server: TLS by certificate alone, and what each user may do.
//!
//! A user is the DNS name in its client certificate (`verify_and_map`). Nobody but people may delete or purge a stream; agents have no user.

use super::{AUDIT, GATEWAY_AGENTS, GATEWAY_OPERATORS, NATS_ADMIN, RENDERER};

/// What a listener to a stream may ask of JetStream: itself and nothing else of it.
fn reader(stream: &str) -> Vec<String> {
    ["STREAM.INFO.{}", "CONSUMER.CREATE.{}.>", "CONSUMER.INFO.{}.>", "CONSUMER.DELETE.{}.>", "CONSUMER.MSG.NEXT.{}.>"]
        .map(|call| format!("$JS.API.{}", call.replace("{}", stream)))
        .into()
}

fn publishes(user: &str) -> Vec<String> {
    let subjects = |list: &[&str]| list.iter().map(|subject| (*subject).to_owned()).collect::<Vec<_>>();
    match user {
        RENDERER => {
            let mut all = subjects(&[
                "holdfast.hint.>",
                "holdfast.event.>",
                "$JS.API.STREAM.CREATE.HOLDFAST_HINTS",
                "$JS.API.STREAM.CREATE.HOLDFAST_EVENTS",
                "$JS.API.STREAM.MSG.GET.HOLDFAST_EVENTS",
                "$JS.API.STREAM.INFO.HOLDFAST_EVENTS",
            ]);
            all.extend(reader("HOLDFAST_HINTS"));
            all
        }
        GATEWAY_AGENTS => {
            let mut all = subjects(&["holdfast.hint.request", "holdfast.hint.event"]);
            all.extend(reader("HOLDFAST_HINTS"));
            all
        }
        GATEWAY_OPERATORS => {
            let mut all = subjects(&["holdfast.hint.intent", "holdfast.hint.request", "holdfast.hint.event"]);
            all.extend(reader("HOLDFAST_HINTS"));
            all
        }
        AUDIT => reader("HOLDFAST_EVENTS"),
        _ => subjects(&[">"]),
    }
}

/// The prefix of a user's inboxes: nobody can listen to another's answers.
fn inbox(user: &str) -> String {
    format!("_INBOX_{user}.>")
}

pub(super) fn configuration() -> String {
    let quoted = |subjects: &[String]| subjects.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
    let users = [RENDERER, GATEWAY_AGENTS, GATEWAY_OPERATORS, AUDIT].map(|user| {
        let (publish, subscribe) = (quoted(&publishes(user)), quoted(&[inbox(user)]));
        format!(
            "    {{ user: \"{user}\", permissions: {{ publish: {{ allow: [{publish}] }}, \
             subscribe: {{ allow: [{subscribe}] }} }} }}"
        )
    });
    format!(
        "# Made by `holdfast-renderer init`. Include it from the server's own file, which says where to listen and where\n\
         # JetStream keeps its store; paths here are relative to the folder that the server is started in: start it in this one.\n\
         tls {{\n  cert_file: \"nats.pem\"\n  key_file: \"nats.key.pem\"\n  ca_file: \"ca.pem\"\n  \
         verify_and_map: true\n  timeout: 5\n}}\n\
         authorization {{\n  users: [\n{}\n    {{ user: \"{NATS_ADMIN}\" }}\n  ]\n}}\n\
         max_payload: 1MB\n",
        users.join("\n")
    )
}
