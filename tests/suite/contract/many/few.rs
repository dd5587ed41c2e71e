//! A plane of its own processes, and a few scripted hosts: the renderer and both doors are real, and hosts say what a test has them say.

use std::process::Output;
use std::time::{Duration, Instant};

use holdfast_identity::TrustRoots;
use holdfast_identity::tls::install_crypto_provider;
use holdfast_model::desired::Component;
use serde_json::Value;

use super::agent::{DEADLINE, Identity};
use super::scripted::Scripted;
use super::watch::Api;
use crate::control_plane::ControlPlane;
use crate::peer::Peer;
use crate::versions::apply_policy;

/// From where they dial.
pub(super) const HERE: [u8; 4] = [127, 0, 0, 1];

/// Such hosts are `web-1`, `web-2` and so on, and proven to have a first policy.
pub(super) struct Few {
    pub(super) plane: ControlPlane,
    pub(super) api: Api,
    pub(super) who: Vec<Identity>,
    pub(super) hosts: Vec<Scripted>,
}

impl Few {
    pub(super) async fn start(count: usize) -> Self {
        install_crypto_provider();
        let plane = ControlPlane::start().await;
        apply_policy(&plane, "{cidr: 192.0.2.0/24}");
        let roots = TrustRoots::load(&plane.keys("public").join("ca.pem")).expect("init made it");
        let api = Api::new(&roots, plane.api(), plane.admin().to_owned());
        let (mut who, mut hosts) = (Vec::new(), Vec::new());
        for n in 1..=count {
            let name = format!("web-{n}");
            who.push(Identity::of(Peer::enrol(&plane, &name, &format!("10.0.0.{n}")).await, name));
        }
        for who in &who {
            let mut host = Scripted::open_whole(who, plane.agents_door(), HERE).await;
            host.be_well().await;
            hosts.push(host);
        }
        let few = Self { plane, api, who, hosts };
        few.until("/v1/status", |status| status["state"] == "converged").await;
        few
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.api.get(path).await.expect("the API answers")
    }

    pub(super) async fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let seen = self.get(path).await;
            if is_so(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{path}: {seen}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn host(&self, n: usize) -> Value {
        self.get(&format!("/v1/hosts/{}", self.who[n].name)).await
    }

    pub(super) fn wait(&self, operation: &str, timeout: &str) -> Output {
        self.plane.holdfast(&["wait", "operation", operation, "--timeout", timeout, "-o", "json"])
    }

    /// Has every host take its next update, which is one of the policy, and answer nothing.
    pub(super) async fn all_take(&mut self) {
        for host in &mut self.hosts {
            assert_eq!(host.take().await, Component::Policy);
        }
    }

    /// Has every host say that its newest policy is in force and that all is well with it.
    pub(super) async fn all_are_well(&mut self) {
        for host in &mut self.hosts {
            host.policy_is_well().await;
        }
    }
}

pub(super) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
