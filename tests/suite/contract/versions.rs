//! Builds of different protocols: agents that speak the first one or the second by its frozen module and nothing else, at a real gateway.

use std::time::{Duration, Instant};

use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::desired::Component;
use holdfast_wire::code::{DirectiveCode, FaultCode};
use holdfast_wire::message::{Delivery, Liveness, Message};

use crate::control_plane::ControlPlane;
use crate::first_agent::FirstAgent;
use crate::peer::{Peer, host_view};

const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn apply_policy(plane: &ControlPlane, cidr: &str) {
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: kept}}\nspec:\n  hostSelector: {{all: true}}\n  \
         ingress: [{{from: [{cidr}]}}]\n"
    );
    let file = plane.file("kept.yaml", text);
    let applied = plane.holdfast(&["apply", "-f", &file.display().to_string()]);
    assert!(applied.status.success(), "{applied:?}");
}

pub(crate) fn until_synced(plane: &ControlPlane, name: &str, version: u64) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let view = host_view(plane, name);
        let policy = &view["components"][0];
        if view["sync"] == "SYNCED" && view["state"] == "converged" && policy["applied"]["version"] == version {
            return;
        }
        assert!(Instant::now() < deadline, "{view}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g03_an_agent_that_speaks_the_first_protocol_only_works_with_this_gateway() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let peer = Peer::enrol(&plane, "old", "10.0.0.1").await;
    let (mut agent, _) = FirstAgent::open(plane.agents_door(), &peer).await;
    for _ in Component::ALL {
        agent.take().await;
    }
    assert_eq!(agent.forms, ["snapshot"; 4]);
    let first = agent.held[&Component::Policy].version;
    until_synced(&plane, "old", first.raw());

    // An edit comes as changes, and is proven.
    apply_policy(&plane, "{cidr: 192.0.2.0/24}, {cidr: 198.51.100.0/24}");
    agent.take().await;
    assert_eq!(agent.forms.last(), Some(&"delta"));
    let second = agent.held[&Component::Policy].version;
    assert!(second > first);
    until_synced(&plane, "old", second.raw());

    // What the gateway does not know is skipped and reported, in words of the first protocol.
    agent.say(&Message::Unknown(4_000)).await;
    let said = agent.hear().await;
    assert!(
        matches!(&said, Message::Fault(fault) if (fault.code, fault.message_kind) == (FaultCode::UnknownKind, 4_000)),
        "{said:?}"
    );
    agent.say(&Message::Liveness(Liveness { counter: 1, status: None })).await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    agent.take().await;
    until_synced(&plane, "old", agent.held[&Component::Policy].version.raw());
    plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g03_an_agent_that_speaks_the_second_protocol_only_works_with_this_gateway_and_is_asked_for_nothing_that_it_cannot_say()
 {
    install_crypto_provider();
    let mut plane = ControlPlane::start_with(&[("HOLDFAST_AGENTS_LIVENESS_INTERVAL", "200ms".to_owned())]).await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let peer = Peer::enrol(&plane, "old", "10.0.0.1").await;
    let (mut agent, ack) = FirstAgent::open_second(plane.agents_door(), &peer).await;
    assert_eq!(ack.delivery, Delivery::Push, "what the second protocol says beyond the first");
    for _ in Component::ALL {
        agent.take().await;
    }
    assert_eq!(agent.forms, ["snapshot"; 4]);
    // It is proven by its outcomes, without a word of how it is as a whole.
    until_synced(&plane, "old", agent.held[&Component::Policy].version.raw());

    // Its signs of life name no status, and whatever comes next is no wish for one: an update, or what an operator asks for.
    for counter in 1..=20 {
        agent.say(&Message::Liveness(Liveness { counter, status: None })).await;
    }
    apply_policy(&plane, "{cidr: 192.0.2.0/24}, {cidr: 198.51.100.0/24}");
    agent.take().await;
    assert_eq!(agent.forms.last(), Some(&"delta"));
    until_synced(&plane, "old", agent.held[&Component::Policy].version.raw());
    let asked = plane.holdfast(&["host", "reconnect", "old"]);
    assert!(asked.status.success(), "{asked:?}");
    let said = agent.hear().await;
    assert!(
        matches!(&said, Message::Directive(directive) if directive.code == DirectiveCode::Reconnect),
        "the first directive that came: {said:?}"
    );
    agent.say(&Message::Unknown(4_000)).await;
    let said = agent.hear().await;
    assert!(matches!(&said, Message::Fault(fault) if fault.code == FaultCode::UnknownKind), "{said:?}");
    plane.assert_runs();
}
