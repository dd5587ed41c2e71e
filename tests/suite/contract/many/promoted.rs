//! A standby takes over from the primary under running services, real ones all of them: at the same address, with every commit that was answered, and without
//! some of them.
//!
//! Agents remember what they hold, as with a disk, and refuse to go back.

use std::process::Output;
use std::time::{Duration, Instant};

use holdfast_identity::TrustRoots;
use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::desired::Stamp;
use holdfast_store::testing::TestPostgres;
use serde_json::{Value, json};

use super::agent::{Came, DEADLINE, Identity, Live, Lived, Manner};
use super::watch::{Api, Watch};
use crate::control_plane::ControlPlane;
use crate::peer::Peer;

const HOSTS: [(&str, &str); 3] = [("web-1", "10.0.0.1"), ("web-2", "10.0.0.2"), ("web-3", "10.0.0.3")];
/// Who is let in at first, and to the end.
const FIRST: &str = "192.0.2.0/24";
/// How far apart looks are.
const LOOK: Duration = Duration::from_millis(20);

/// Real services and agents with a memory.
struct World {
    plane: ControlPlane,
    api: Api,
    watch: Watch,
    agents: Vec<Live>,
}

impl World {
    async fn start() -> Self {
        install_crypto_provider();
        // Nothing is found by the clock.
        let plane = ControlPlane::start_with(&[("HOLDFAST_AGENTS_COMPARE_INTERVAL", "1h".to_owned())]).await;
        assert!(apply(&plane, &[FIRST]).status.success());
        let roots = TrustRoots::load(&plane.keys("public").join("ca.pem")).expect("init made it");
        let api = Api::new(&roots, plane.api(), plane.admin().to_owned());
        let manner = Manner { remembers: true, ..Manner::default() };
        let mut agents = Vec::new();
        for (seed, (name, address)) in (0_u64..).zip(HOSTS) {
            let who = Identity::of(Peer::enrol(&plane, name, address).await, name.to_owned());
            agents.push(Live::start(&who, &[plane.agents_door()], manner, seed));
        }
        let watch = Watch::start(&api);
        let names: Vec<String> = HOSTS.iter().map(|(name, _)| (*name).to_owned()).collect();
        watch.until_all(&names, "converged").await;
        Self { plane, api, watch, agents }
    }

    /// Ends the primary, and has the standby lead in its place.
    fn take_over(&mut self, mut next: TestPostgres) {
        self.plane.postgres().stop();
        next.promote();
        next.take_address_of(self.plane.postgres());
        *self.plane.postgres() = next;
    }

    /// Asks for a change until it is answered; a change that is there already is answered as such.
    async fn apply_until_answered(&self, cidrs: &[&str]) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let said = apply(&self.plane, cidrs);
            if said.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "{said:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until each agent holds this version, and returns it.
    async fn until_held(&self, version: u64) -> Vec<Stamp> {
        let mut held = Vec::new();
        for agent in &self.agents {
            let newest = |lived: &Lived| lived.policies.iter().rev().find(|came| came.taken).copied();
            agent
                .until("holds it", |lived| newest(lived).is_some_and(|came| came.stamp.version.raw() == version))
                .await;
            held.extend(newest(&agent.lived()).map(|came| came.stamp));
        }
        held
    }

    /// Waits until the API says of every host that this is the newest version of its policy, that it holds that, and that it is so.
    async fn until_told(&self, latest: u64, applied: u64, state: &str) {
        let wanted = json!([latest, applied, state]);
        let deadline = Instant::now() + DEADLINE;
        loop {
            let page = self.api.get("/v1/hosts?limit=500").await.unwrap_or_default();
            let of = |host: &Value| {
                let policy = &host["components"][0];
                json!([policy["latest"]["version"], policy["applied"]["version"], host["state"]])
            };
            let told: Vec<Value> = page["items"].as_array().into_iter().flatten().map(of).collect();
            if told.len() == HOSTS.len() && told.iter().all(|told| *told == wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{told:?} is not {wanted}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many hosts are told to hold what the database never had.
    async fn until_ahead(&self, hosts: usize) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let view = self.api.get("/v1/authority").await.unwrap_or_default();
            if view["hosts"]["ahead"] == hosts {
                return;
            }
            assert!(Instant::now() < deadline, "{view}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Has the one policy let these in.
fn apply(plane: &ControlPlane, cidrs: &[&str]) -> Output {
    let peers: Vec<String> = cidrs.iter().map(|cidr| format!("{{cidr: {cidr}}}")).collect();
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: kept}}\nspec:\n  hostSelector: {{all: true}}\n  \
         ingress: [{{from: [{}]}}]\n",
        peers.join(", ")
    );
    let file = plane.file("kept.yaml", text);
    plane.holdfast(&["apply", "-f", &file.display().to_string()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_services_and_sessions_go_on_by_a_synchronous_standby_that_takes_over_and_nothing_is_lost() {
    let mut world = World::start().await;
    let standby = world.plane.postgres.standby(5433);
    world.plane.postgres.wait_for_standbys();
    assert!(apply(&world.plane, &[FIRST, "198.51.100.0/24"]).status.success());
    world.until_held(2).await;
    world.until_told(2, 2, "converged").await;
    world.watch.forget();

    world.take_over(standby);
    world.apply_until_answered(&[FIRST, "198.51.100.0/24", "203.0.113.0/24"]).await;
    world.until_held(3).await;
    world.until_told(3, 3, "converged").await;
    for agent in &world.agents {
        let lived = agent.lived();
        let versions: Vec<u64> = lived.policies.iter().map(|came| came.stamp.version.raw()).collect();
        assert_eq!((lived.opened.len(), versions), (1, vec![1, 2, 3]), "{}: one session, each once", agent.who.name);
        let states = world.watch.states(&agent.who.name);
        assert!(!states.iter().any(|state| matches!(state.as_str(), "unknown" | "failed")), "{states:?}");
    }
    let proven = world.plane.holdfast(&["rebuild", "--check", "-o", "json"]);
    assert!(proven.status.success(), "every table is what its events say: {proven:?}");
    world.plane.assert_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f25_sessions_that_know_more_than_the_standby_that_took_over_begin_anew_at_once_and_nobody_goes_back() {
    let mut world = World::start().await;
    let mut standby = world.plane.postgres.standby(5433);
    standby.stop_following();
    // Answered and proven, and the standby has nothing of it.
    assert!(apply(&world.plane, &[FIRST, "198.51.100.0/24"]).status.success());
    let lost = world.until_held(2).await;
    world.until_told(2, 2, "converged").await;
    world.take_over(standby);

    // Nobody has to wait for a clock: sessions say what they hold, and it is told as what the database never had.
    world.until_told(1, 2, "failed").await;
    world.until_ahead(3).await;
    for agent in &world.agents {
        agent.until("begins anew", |lived| lived.opened.len() == 2).await;
    }
    // As many revisions as were lost, with other words in them: this is rendered too, under a version that hosts know.
    world.apply_until_answered(&[FIRST, "203.0.113.0/24"]).await;
    for agent in &world.agents {
        let is_other = |came: &Came| came.form == "refused" && came.stamp.version.raw() == 2;
        agent.until("refuses it", |lived| lived.policies.iter().any(is_other)).await;
    }
    world.until_told(2, 2, "failed").await;
    assert_eq!(world.until_held(2).await, lost, "and they hold what they held");
    // Past what they hold they follow.
    world.apply_until_answered(&[FIRST]).await;
    world.until_held(3).await;
    world.until_told(3, 3, "converged").await;
    world.until_ahead(0).await;
    for agent in &world.agents {
        let lived = agent.lived();
        let taken = lived.policies.iter().filter(|came| came.taken).map(|came| came.stamp.version.raw());
        assert_eq!(taken.collect::<Vec<_>>(), [1, 2, 3], "{}", agent.who.name);
    }
    world.plane.assert_runs();
}
