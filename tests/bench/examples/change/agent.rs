//! An agent without a kernel: the real session machine over real TLS; what it is sent is checked and taken, nothing is enforced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_identity::{Signature, SigningKey, VerifyingKey};
use holdfast_model::condition::{Condition, ConditionType, Holds, Reason};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::ids::HostId;
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::policy::Body;
use holdfast_model::report::HostReport;
use holdfast_model::statement::{Authority, OutcomeKind};
use holdfast_session::agent::{
    Apply, ApplyResult, Config, Content, ContentError, Event, Keys, Session, Settling, body_of_delta, body_of_snapshot,
};
use holdfast_session::time::Instant;
use holdfast_wire::decode;
use holdfast_wire::frame::Deframer;
use holdfast_wire::limits::FRAME_BYTES_MAX;
use holdfast_wire::message::{Hello, Inventory, SignatureBytes};
use holdfast_wire::negotiate::SPOKEN;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

/// The keys of one host.
#[derive(Clone, Debug)]
pub(crate) struct AgentKeys {
    /// Proves desired states.
    pub(crate) renderer: VerifyingKey,
    /// Signs outcomes.
    pub(crate) outcome: Arc<SigningKey>,
}

impl Keys for AgentKeys {
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool {
        self.renderer.verify(statement, &Signature(*signature)).is_ok()
    }

    fn sign(&self, statement: &[u8]) -> SignatureBytes {
        self.outcome.sign(statement).0
    }
}

/// Runs one session until it ends; says of each update when the outcome of it has been written.
///
/// # Panics
/// If a peer of ours sends what cannot be decoded: a benchmark of broken parts measures nothing.
pub(crate) async fn run(
    mut stream: TlsStream<TcpStream>,
    host: HostId,
    pinned: Authority,
    keys: AgentKeys,
    answered: impl Fn(Component, Stamp),
) {
    let hello = Hello {
        protocols: SPOKEN,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: Uuid::nil(),
        applied: vec![],
        capabilities: vec![],
        inventory: Inventory::default(),
    };
    let started = tokio::time::Instant::now();
    let now = || Instant::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut machine = Session::new(Config { host, hello, pinned }, keys, 1, Instant::default());
    let mut deframer = Deframer::new(FRAME_BYTES_MAX);
    let mut policy = Body::default();
    let mut held = BTreeMap::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut out = Vec::new();
    let mut taken = Vec::new();
    loop {
        while let Some(event) = machine.poll_event() {
            match event {
                Event::Apply(apply) => {
                    let result = take(&mut policy, &apply);
                    held.insert(apply.component, apply.stamp);
                    machine.handle_status(report(&held), Settling::Stands, now());
                    tracing::debug!("update taken");
                    machine.handle_result(apply.update_seq, result);
                    taken.push((apply.component, apply.stamp));
                }
                Event::Closed(_) => return,
                Event::Opened(_)
                | Event::Drain(_)
                | Event::Directive(_)
                | Event::Fault { .. }
                | Event::Refused { .. } => {}
            }
        }
        out.clear();
        while machine.poll_transmit(&mut out).expect("what the machine says has a frame").is_some() {}
        if !out.is_empty() && (stream.write_all(&out).await.is_err() || stream.flush().await.is_err()) {
            return;
        }
        taken.drain(..).for_each(|(component, stamp)| answered(component, stamp));
        tokio::select! {
            read = stream.read(&mut buffer) => match read {
                Ok(0) | Err(_) => machine.handle_lost(),
                Ok(count) => {
                    deframer.push(buffer.get(..count).unwrap_or_default());
                    while let Some(frame) = deframer.poll_frame().expect("our gateway frames well") {
                        machine.handle_message(decode(&frame).expect("our gateway speaks well"), now());
                    }
                }
            },
            () = tokio::time::sleep(Duration::from_secs(1)) => machine.handle_timeout(now()),
        }
    }
}

/// All is well with what it holds.
fn report(held: &BTreeMap<Component, Stamp>) -> HostReport {
    let held: Vec<(Component, Stamp)> = held.iter().map(|(component, stamp)| (*component, *stamp)).collect();
    HostReport::of_health(&held, UpdateSeq::ZERO, 0)
}

/// Checks an update as an agent does, and holds it.
fn take(policy: &mut Body, apply: &Apply) -> ApplyResult {
    let body = match (&apply.content, apply.component) {
        (Content::Snapshot(bytes), Component::Policy) => body_of_snapshot(bytes, apply.stamp),
        (Content::Delta { base, changes }, _) => body_of_delta(policy, *base, changes, apply.stamp),
        (Content::Snapshot(_) | Content::VersionOnly, _) => Ok(policy.clone()),
    };
    match body {
        Ok(body) => {
            *policy = body;
            let conditions =
                ConditionType::OF_ATTEMPT.map(|kind| mk_condition(kind, Holds::True, Reason::Done, apply.stamp));
            ApplyResult { kind: OutcomeKind::Applied, in_force: Some(apply.stamp), conditions: conditions.into() }
        }
        Err(error) => {
            let reason = ContentError::reason(&error);
            let condition = mk_condition(ConditionType::SnapshotAccepted, Holds::False, reason, apply.stamp);
            ApplyResult { kind: OutcomeKind::Failed, in_force: None, conditions: vec![condition] }
        }
    }
}

fn mk_condition(kind: ConditionType, status: Holds, reason: Reason, stamp: Stamp) -> Condition {
    Condition { kind, status, reason, message: String::new(), observed_version: Some(stamp.version) }
}
