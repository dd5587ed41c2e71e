//! Real services with agents that remember what they hold, as with a disk, and refuse to go back.

use std::process::Output;
use std::time::{Duration, Instant};

use holdfast_identity::TrustRoots;
use holdfast_model::desired::Stamp;
use serde_json::{Value, json};

use super::agent::{DEADLINE, Identity, Live, Lived, Manner};
use super::watch::{Api, Watch};
use crate::control_plane::ControlPlane;
use crate::peer::Peer;

const HOSTS: [(&str, &str); 3] = [("web-1", "10.0.0.1"), ("web-2", "10.0.0.2"), ("web-3", "10.0.0.3")];
/// Who is let in at first, and to the end.
pub(super) const FIRST: &str = "192.0.2.0/24";
/// How far apart looks are.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Real services and agents with a memory.
pub(super) struct World {
    pub(super) plane: ControlPlane,
    pub(super) api: Api,
    pub(super) watch: Watch,
    pub(super) agents: Vec<Live>,
}

impl World {
    /// Lets agents live in a plane.
    pub(super) async fn start_in(plane: ControlPlane) -> Self {
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

    /// Asks for a change until it is answered; a change that is there already is answered as such.
    pub(super) async fn apply_until_answered(&self, cidrs: &[&str]) {
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
    pub(super) async fn until_held(&self, version: u64) -> Vec<Stamp> {
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
    pub(super) async fn until_told(&self, latest: u64, applied: u64, state: &str) {
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

    /// Waits until every revision is rendered.
    pub(super) async fn until_rendered(&self) {
        let deadline = Instant::now() + DEADLINE;
        let rendered = "SELECT revision = (SELECT max(revision) FROM revisions) FROM render_progress";
        while self.plane.postgres.sql(rendered).trim() != "t" {
            assert!(Instant::now() < deadline, "something is not rendered");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many hosts are told to hold what the database never had.
    pub(super) async fn until_ahead(&self, hosts: usize) {
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
pub(super) fn apply(plane: &ControlPlane, cidrs: &[&str]) -> Output {
    let peers: Vec<String> = cidrs.iter().map(|cidr| format!("{{cidr: {cidr}}}")).collect();
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: kept}}\nspec:\n  hostSelector: {{all: true}}\n  \
         ingress: [{{from: [{}]}}]\n",
        peers.join(", ")
    );
    let file = plane.file("kept.yaml", text);
    plane.holdfast(&["apply", "-f", &file.display().to_string()])
}
