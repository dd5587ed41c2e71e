//! Everything ends at once and begins again, with the real renderer: when agents come back, and what they get.

use std::collections::BTreeMap;

use holdfast_identity::tls::install_crypto_provider;

use super::agent::{Identity, Live, Manner, versions};
use crate::control_plane::ControlPlane;
use crate::peer::Peer;
use crate::versions::apply_policy;

const AGENTS: u8 = 20;
/// Every state that was ever rendered.
const RENDERED: &str = "SELECT string_agg(concat_ws('/', host_id, component, version, digest), ' ' ORDER BY host_id, component, version) FROM desired_states";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c20_after_a_restart_of_everything_agents_come_back_each_at_its_own_moment_and_no_version_moves() {
    install_crypto_provider();
    let mut plane = ControlPlane::start().await;
    apply_policy(&plane, "{cidr: 192.0.2.0/24}");
    let mut agents = Vec::new();
    for n in 1..=AGENTS {
        let name = format!("web-{n}");
        let who = Identity::of(Peer::enrol(&plane, &name, &format!("10.0.0.{n}")).await, name);
        agents.push(Live::start(&who, &[plane.agents_door()], Manner::default(), n.into()));
    }
    for agent in &agents {
        agent.until("has its first states", |lived| lived.is_whole).await;
    }
    let (held, rendered) = (versions(&agents), plane.postgres.sql(RENDERED).trim().to_owned());

    tokio::task::block_in_place(|| plane.restart());
    for agent in &agents {
        agent.until("comes back", |lived| lived.is_whole && lived.opened.len() > 1).await;
    }
    came_back_one_by_one(&agents);

    // The renderer leads again, by the next version that it makes: none lies between.
    tokio::task::block_in_place(|| apply_policy(&plane, "{cidr: 192.0.2.0/24}, {cidr: 198.51.100.0/24}"));
    for agent in &agents {
        let before = held[&agent.who.name];
        let newest = |came: &super::agent::Came| came.stamp.version.raw() == before + 1;
        agent.until("has the change", |lived| lived.policies.last().is_some_and(newest)).await;
        let came: Vec<_> = agent.lived().policies.iter().map(|came| (came.form, came.stamp.version.raw())).collect();
        assert_eq!(came, [("snapshot", before), ("snapshot", before), ("delta", before + 1)], "{}", agent.who.name);
    }
    let now = plane.postgres.sql(RENDERED);
    assert_eq!(now.trim().split(' ').filter(|state| !rendered.contains(state)).count(), usize::from(AGENTS), "{now}");
    plane.assert_runs();
}

/// They were cut off in one moment, and did not dial in one: over a second at least, of which no tenth has half of them. Those that dial while the gateway has no lease yet wait at its door, and open together.
fn came_back_one_by_one(agents: &[Live]) {
    let moments: Vec<_> = agents.iter().filter_map(|agent| agent.lived().dialled.get(1).copied()).collect();
    let first = moments.iter().min().expect("they came back");
    let mut parts = BTreeMap::<u128, usize>::new();
    for moment in &moments {
        *parts.entry(moment.duration_since(*first).as_millis() / 100).or_default() += 1;
    }
    assert!(parts.len() >= 4, "they come back together: {parts:?}");
    assert!(parts.values().all(|count| *count <= agents.len() / 2), "they come back together: {parts:?}");
}
