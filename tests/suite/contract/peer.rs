//! A host without an agent: an identity that was enrolled at a real door, and the keys that prove and sign.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::tls::client::{AgentProtocol, agent};
use holdfast_identity::{Credential, LeafKey, Signature, SigningKey, TrustRoots, VerifyingKey};
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, UpdateSeq};
use holdfast_model::statement::{Authority, Outcome, OutcomeKind, desired_bytes, outcome_bytes};
use holdfast_wire::message::{OutcomeReport, SignatureBytes};
use rustls::ClientConfig;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::bad_input::world::{ask_agents_door, enrol_token};
use crate::control_plane::ControlPlane;

/// Who it is, and how it proves it.
pub(crate) struct Peer {
    pub(crate) host: HostId,
    pub(crate) authority: Authority,
    pub(crate) credential: Credential,
    pub(crate) roots: TrustRoots,
    pub(crate) renderer: VerifyingKey,
    pub(crate) outcomes: SigningKey,
}

impl Peer {
    /// Enrols a host of this name and address.
    pub(crate) async fn enrol(plane: &ControlPlane, name: &str, address: &str) -> Self {
        let roots = TrustRoots::load(&plane.keys("public").join("ca.pem")).expect("init made it");
        let token = enrol_token(plane, &["--uses", "1"]);
        let (key, outcomes) = (LeafKey::generate().expect("a key"), SigningKey::generate().expect("a key"));
        let request = json!({
            "token": token, "name": name, "hostname": name, "kernel": "6.1", "addresses": [address],
            "csr": STANDARD.encode(key.request().expect("a request")),
            "outcome_key": outcomes.verifying_key().to_string(),
        });
        let response = ask_agents_door(plane, &roots, "/agent/v1/enrol", request.to_string().as_bytes()).await;
        let answer: Value = serde_json::from_slice(&response.body).expect("JSON");
        let text = |field: &str| answer[field].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        let ca = roots.certificates().first().expect("one CA");
        let renderer = VerifyingKey::certified(&text("renderer_certificate"), ca, OffsetDateTime::now_utc());
        let epoch = answer["authority_epoch"].as_u64().unwrap_or_else(|| panic!("{answer}"));
        let id: AuthorityId = text("authority_id").parse().expect("an id");
        Self {
            host: text("host_id").parse().expect("an id"),
            authority: Authority { id, epoch: AuthorityEpoch::from_raw(epoch) },
            credential: key.credential(text("certificate_chain").as_bytes()).expect("it is this key's"),
            renderer: renderer.expect("the CA vouches for it"),
            roots,
            outcomes,
        }
    }

    /// How its agent begins TLS.
    pub(crate) fn tls(&self, protocol: AgentProtocol) -> ClientConfig {
        agent(&self.credential, &self.roots, protocol).expect("a configuration")
    }

    /// Fails unless the renderer signed this state for this host.
    pub(crate) fn assert_genuine(&self, component: Component, stamp: Stamp, signature: &SignatureBytes) {
        let statement = desired_bytes(self.authority, &Desired { host: self.host, component, stamp });
        self.renderer.verify(&statement, &Signature(*signature)).expect("the renderer signed it");
    }

    /// What it says when an update is in force and was read back.
    pub(crate) fn applied(
        &self,
        session_epoch: SessionEpoch,
        update_seq: UpdateSeq,
        component: Component,
        stamp: Stamp,
    ) -> OutcomeReport {
        let condition = |kind| Condition {
            kind,
            status: Holds::True,
            reason: Reason::Done,
            message: String::new(),
            observed_version: Some(stamp.version),
        };
        let conditions: Vec<Condition> = ConditionType::OF_ATTEMPT.into_iter().map(condition).collect();
        let (kind, applied) = (OutcomeKind::Applied, Some(stamp));
        let outcome = Outcome { host: self.host, session_epoch, update_seq, component, kind, wanted: stamp, applied };
        let signature = self.outcomes.sign(&outcome_bytes(self.authority, &outcome, &conditions)).0;
        OutcomeReport { update_seq, component, kind, wanted: stamp, applied, conditions, signature }
    }
}

/// What the API says of a host.
pub(crate) fn host_view(plane: &ControlPlane, name: &str) -> Value {
    let shown = plane.holdfast(&["get", "hosts", name, "-o", "json"]);
    serde_json::from_slice(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {shown:?}"))
}
