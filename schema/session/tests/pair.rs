//! A gateway half and an agent half over a link that cuts, delays and closes, driven by a seeded schedule, with real frames.
//!
//! After every step: what an agent applied was supplied for that very host; a delta was applied to the base that it names; the gateway's tip
//! never ran backward in a session. After quiet, with the link up, both ends hold the latest of every component.

#![expect(clippy::wildcard_enum_match_arm, reason = "what a test does not expect fails it, whatever it is")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::address::Interval;
use holdfast_model::artifact;
use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::numbers::{AuthorityEpoch, SessionEpoch, Version};
use holdfast_model::policy::delta::diff;
use holdfast_model::policy::{
    Action, Body, Chain, Mode, Peers, PortRange, Rule, RuleKey, Set, SetKey, Statement, protocol,
};
use holdfast_model::statement::{Authority, OutcomeKind, desired_bytes};
use holdfast_session::agent::{self, ApplyResult, Content, Keys, body_of_delta, body_of_snapshot, check_snapshot};
use holdfast_session::gateway::{self, Admission, Answer, DeltaOffer, Form, Supply, Want};
use holdfast_session::random::Random;
use holdfast_session::time::Instant;
use holdfast_wire::frame::Deframer;
use holdfast_wire::message::{Hello, Inventory, SignatureBytes};
use holdfast_wire::negotiate::{Protocol, ProtocolRange, SPOKEN};
use holdfast_wire::{decode_as, encode_changes};
use proptest::prelude::*;
use uuid::Uuid;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn an_applied_digest_was_supplied_for_its_host_and_quiet_converges(seed in any::<u64>()) {
        let mut world = World::new(seed);
        for _ in 0..1_500 {
            world.step();
        }
        world.quiet();
        prop_assert!(world.deltas_applied + world.snapshots_applied > 0);
    }
}

#[test]
fn the_schedule_reaches_deltas_snapshots_version_only_failures_and_lost_links() {
    let mut seen = (0, 0, 0, 0, 0);
    for seed in 0..20 {
        let mut world = World::new(seed);
        for _ in 0..1_500 {
            world.step();
        }
        world.quiet();
        seen.0 += world.deltas_applied;
        seen.1 += world.snapshots_applied;
        seen.2 += world.versions_only;
        seen.3 += world.failures;
        seen.4 += world.links_lost;
    }
    assert!(seen.0 > 50 && seen.1 > 200 && seen.2 > 10 && seen.3 > 20 && seen.4 > 20, "{seen:?}");
}

/// One host, its two halves, the link between them, and what the authority holds.
struct World {
    random: Random,
    now: Instant,
    desired: BTreeMap<Component, (Stamp, Body)>,
    supplied: BTreeSet<(Component, Stamp)>,
    bodies: BTreeMap<Digest, Body>,
    next_epoch: u64,
    link: Option<Link>,
    /// What survives a session on the host.
    in_force: BTreeMap<Component, Stamp>,
    policy: Body,
    members: BTreeSet<u32>,
    deltas_applied: usize,
    snapshots_applied: usize,
    versions_only: usize,
    failures: usize,
    links_lost: usize,
    quiet: bool,
}

struct Link {
    gateway: gateway::Session,
    agent: agent::Session<FakeKeys>,
    to_agent: Pipe,
    to_gateway: Pipe,
    asked: VecDeque<Want>,
    working: Option<agent::Apply>,
    tips: BTreeMap<Component, Version>,
}

/// Bytes on their way; at most one frame more than `room` waits in a socket.
struct Pipe {
    bytes: VecDeque<u8>,
    deframer: Deframer,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            now: Instant::default(),
            desired: BTreeMap::new(),
            supplied: BTreeSet::new(),
            bodies: BTreeMap::new(),
            next_epoch: 1,
            link: None,
            in_force: BTreeMap::new(),
            policy: Body::default(),
            members: (0..100).map(|n| n * 5).collect(),
            deltas_applied: 0,
            snapshots_applied: 0,
            versions_only: 0,
            failures: 0,
            links_lost: 0,
            quiet: false,
        };
        for component in Component::ALL {
            world.publish(component, Body::default());
        }
        world
    }

    fn step(&mut self) {
        match self.random.up_to(19) {
            0 => self.edit(),
            1 => self.same_content_again(),
            2 if self.random.up_to(19) == 0 => self.lose_link(),
            2 => self.compare(),
            3 => self.wait(),
            4..=7 => self.move_bytes(true),
            8..=11 => self.move_bytes(false),
            12..=14 => self.pump(),
            15 | 16 => self.answer(),
            17 | 18 => self.work(),
            _ => self.connect(),
        }
        self.check();
    }

    /// No more faults: everything moves until nothing does.
    fn quiet(&mut self) {
        self.quiet = true;
        // A version whose recovery failed too is not tried again in its session: only a new one does.
        self.lose_link();
        for _ in 0..2_000 {
            self.connect();
            self.compare();
            self.pump();
            self.answer();
            self.move_bytes(true);
            self.move_bytes(false);
            self.work();
            self.check();
            if self.link.is_some()
                && self.in_force.iter().all(|(of, stamp)| self.desired[of].0 == *stamp)
                && self.in_force.len() == 4
            {
                assert_eq!(self.policy, self.desired[&Component::Policy].1);
                return;
            }
        }
        let latest: Vec<_> = self.desired.iter().map(|(of, (stamp, _))| (of, stamp)).collect();
        panic!("did not converge: {:?} of {latest:?}", self.in_force);
    }

    fn check(&mut self) {
        for (component, stamp) in &self.in_force {
            assert!(
                self.supplied.contains(&(*component, *stamp)),
                "{component} holds {stamp:?}, which was never supplied"
            );
        }
        if let Some(stamp) = self.in_force.get(&Component::Policy) {
            assert_eq!(self.policy.digest(), stamp.digest, "what is in force is what it is called");
        }
        if let Some(link) = &mut self.link {
            for component in Component::ALL {
                if let Some(tip) = link.gateway.tip_version(component) {
                    let before = link.tips.insert(component, tip);
                    assert!(before.is_none_or(|before| before <= tip), "the tip of {component} went back");
                }
            }
        }
    }

    fn publish(&mut self, component: Component, body: Body) {
        let digest = if component == Component::Policy { body.digest() } else { component.empty_digest() };
        let version = match self.desired.get(&component) {
            Some((stamp, _)) => stamp.version.next().expect("few versions"),
            None => Version::FIRST,
        };
        self.bodies.insert(body.digest(), body.clone());
        self.desired.insert(component, (Stamp { version, digest }, body));
        // A hint, or a lost one: the compare finds it later.
        if self.random.up_to(3) > 0
            && let Some(link) = &mut self.link
        {
            link.gateway.handle_hint(component);
        }
    }

    fn edit(&mut self) {
        // Mostly a member or two, now and then everything: both sides of the rule for deltas.
        let changes = if self.random.up_to(7) == 0 { 120 } else { 1 + self.random.up_to(1) };
        for _ in 0..changes {
            let member = u32::try_from(self.random.up_to(500)).expect("small");
            if !self.members.remove(&member) {
                self.members.insert(member);
            }
        }
        let members: Vec<u32> = self.members.iter().copied().collect();
        let body = mk_body(&members);
        if body.digest() != self.desired[&Component::Policy].0.digest {
            self.publish(Component::Policy, body);
        }
    }

    /// A version that rises over an equal digest: two renders between two looks that cancel each other out.
    fn same_content_again(&mut self) {
        let component = Component::ALL[usize::try_from(self.random.up_to(3)).expect("small")];
        let body = self.desired[&component].1.clone();
        self.publish(component, body);
    }

    fn connect(&mut self) {
        if self.link.is_some() {
            return;
        }
        // An older agent is served as well as one of this build.
        let protocols = if self.random.up_to(2) == 0 { ProtocolRange::only(Protocol::V1) } else { SPOKEN };
        let hello = Hello {
            protocols,
            agent_version: "0.1.0".to_owned(),
            boot_id: Uuid::nil(),
            applied: self.in_force.iter().map(|(of, stamp)| (*of, *stamp)).collect(),
            capabilities: vec![],
            inventory: Inventory::default(),
        };
        let config = agent::Config { host: mk_host(), hello, pinned: mk_authority() };
        self.link = Some(Link {
            gateway: gateway::Session::new(gateway::Config::standard(vec![]), self.random.next_u64(), self.now),
            agent: agent::Session::new(config, FakeKeys, self.random.next_u64(), self.now),
            to_agent: Pipe::new(),
            to_gateway: Pipe::new(),
            asked: VecDeque::new(),
            working: None,
            tips: BTreeMap::new(),
        });
    }

    fn lose_link(&mut self) {
        self.links_lost += usize::from(self.link.is_some());
        if let Some(mut link) = self.link.take() {
            link.gateway.handle_lost();
            link.agent.handle_lost();
        }
    }

    fn compare(&mut self) {
        if let Some(link) = &mut self.link {
            for (component, (stamp, _)) in &self.desired {
                link.gateway.handle_compare(*component, stamp.version);
            }
        }
    }

    fn wait(&mut self) {
        self.now = self.now.plus(Duration::from_millis(self.random.up_to(20_000)));
        if let Some(link) = &mut self.link {
            link.gateway.handle_timeout(self.now);
            link.agent.handle_timeout(self.now);
        }
        self.events();
    }

    /// Writes what fits, and takes in what was asked.
    fn pump(&mut self) {
        let Some(link) = &mut self.link else { return };
        let mut frame = Vec::new();
        while link.to_agent.has_room() && link.gateway.poll_transmit(self.now, &mut frame).expect("legal").is_some() {
            link.to_agent.bytes.extend(frame.drain(..));
        }
        while link.to_gateway.has_room() && link.agent.poll_transmit(&mut frame).expect("legal").is_some() {
            link.to_gateway.bytes.extend(frame.drain(..));
        }
        self.events();
    }

    fn move_bytes(&mut self, toward_agent: bool) {
        let count = if self.quiet { usize::MAX } else { usize::try_from(self.random.up_to(700)).expect("small") };
        let Some(link) = &mut self.link else { return };
        let pipe = if toward_agent { &mut link.to_agent } else { &mut link.to_gateway };
        let count = count.min(pipe.bytes.len());
        let bytes: Vec<u8> = pipe.bytes.drain(..count).collect();
        pipe.deframer.push(&bytes);
        while let Some(frame) = pipe.deframer.poll_frame().expect("frames") {
            let spoken = if toward_agent { link.agent.spoken() } else { link.gateway.spoken() };
            let message = decode_as(spoken, &frame).expect("messages");
            if toward_agent {
                link.agent.handle_message(message, self.now);
            } else {
                link.gateway.handle_message(message, self.now);
            }
        }
        self.events();
    }

    fn events(&mut self) {
        let Some(link) = &mut self.link else { return };
        let mut over = false;
        while let Some(event) = link.gateway.poll_event() {
            match event {
                gateway::Event::Hello(_) => {
                    let session_epoch = SessionEpoch::from_raw(self.next_epoch);
                    self.next_epoch += 1;
                    link.gateway.handle_admitted(Admission { session_epoch, authority: mk_authority() }, self.now);
                }
                gateway::Event::Want(want) => link.asked.push_back(want),
                gateway::Event::Sent { form, .. } => self.versions_only += usize::from(form == Form::VersionOnly),
                gateway::Event::Outcome(_) => {}
                gateway::Event::Closed(_) => over = true,
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = link.agent.poll_event() {
            match event {
                agent::Event::Opened(_) | agent::Event::Refused { .. } => {}
                agent::Event::Apply(apply) => assert!(link.working.replace(*apply).is_none(), "one at a time"),
                agent::Event::Closed(_) => over = true,
                other => panic!("{other:?}"),
            }
        }
        if over {
            self.lose_link();
        }
    }

    /// The gateway's shell reads one row.
    fn answer(&mut self) {
        let fails = !self.quiet && self.random.up_to(9) == 0;
        let Some(link) = &mut self.link else { return };
        let Some(want) = link.asked.pop_front() else { return };
        let (stamp, body) = &self.desired[&want.component];
        let desired = Desired { host: mk_host(), component: want.component, stamp: *stamp };
        let signature = mk_signature(&desired_bytes(mk_authority(), &desired));
        let supply = |same: bool| {
            if same {
                return Supply::SameDigest;
            }
            if want.component != Component::Policy {
                return Supply::Whole { body: want.component.empty_bytes().into(), delta: None };
            }
            let delta = want.tip.map(|tip| {
                let changes = encode_changes(&diff(&self.bodies[&tip.digest], body).changes).expect("small");
                DeltaOffer { base: tip.digest, changes: changes.into() }
            });
            Supply::Whole { body: Arc::from(artifact::encode(body)), delta }
        };
        let answer = match want.tip {
            _ if fails => Answer::Unavailable,
            Some(tip) if tip == *stamp && !want.snapshot => Answer::Unchanged,
            tip => {
                self.supplied.insert((want.component, *stamp));
                let same = !want.snapshot && tip.is_some_and(|tip| tip.digest == stamp.digest);
                Answer::Current { stamp: *stamp, signature, supply: supply(same) }
            }
        };
        link.gateway.handle_answer(want.component, answer, self.now).expect("an answer that fits");
        if self.quiet {
            self.now = self.now.plus(Duration::from_millis(10));
        }
    }

    /// The agent's shell applies, or its kernel refuses now and then.
    fn work(&mut self) {
        let fails = !self.quiet && self.random.up_to(5) == 0;
        let Some(link) = &mut self.link else { return };
        let Some(apply) = link.working.take() else { return };
        let before = self.in_force.get(&apply.component).copied();
        let is_policy = apply.component == Component::Policy;
        let policy = match &apply.content {
            Content::Snapshot(bytes) if is_policy => body_of_snapshot(bytes, apply.stamp).expect("a genuine body"),
            Content::Snapshot(bytes) => {
                check_snapshot(apply.component, bytes, apply.stamp).expect("genuine bytes");
                Body::default()
            }
            Content::Delta { base, changes } => {
                assert_eq!(base.digest, self.policy.digest(), "the base that it names is the one in force");
                body_of_delta(&self.policy, *base, changes, apply.stamp).expect("a genuine delta")
            }
            Content::VersionOnly => self.policy.clone(),
        };
        let result = if fails {
            self.failures += 1;
            ApplyResult { kind: OutcomeKind::Failed, in_force: before, conditions: vec![] }
        } else {
            match apply.content {
                Content::Snapshot(_) => self.snapshots_applied += 1,
                Content::Delta { .. } => self.deltas_applied += 1,
                Content::VersionOnly => {}
            }
            if is_policy {
                self.policy = policy;
            }
            self.in_force.insert(apply.component, apply.stamp);
            ApplyResult { kind: OutcomeKind::Applied, in_force: Some(apply.stamp), conditions: vec![] }
        };
        link.agent.handle_result(apply.update_seq, result);
        self.events();
    }
}

impl Pipe {
    fn new() -> Self {
        Self { bytes: VecDeque::new(), deframer: Deframer::new(holdfast_wire::limits::FRAME_BYTES_MAX) }
    }

    fn has_room(&self) -> bool {
        self.bytes.len() < 600
    }
}

#[derive(Debug)]
struct FakeKeys;

impl Keys for FakeKeys {
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool {
        mk_signature(statement) == *signature
    }

    fn sign(&self, statement: &[u8]) -> SignatureBytes {
        mk_signature(statement)
    }
}

fn mk_signature(statement: &[u8]) -> SignatureBytes {
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(Digest::of(statement).as_bytes());
    signature
}

fn mk_host() -> HostId {
    HostId::new(Uuid::from_u128(42))
}

fn mk_authority() -> Authority {
    Authority { id: AuthorityId::new(Uuid::from_u128(1)), epoch: AuthorityEpoch::from_raw(3) }
}

fn mk_body(members: &[u32]) -> Body {
    let key = SetKey::from_bytes([1; 16]);
    let rule = Rule {
        key: RuleKey::from_bytes([1; 16]),
        order: 0,
        action: Action::Allow,
        statement: Statement::ports(protocol::TCP, vec![PortRange::single(443)]),
        peers: Peers::Set(key),
        local: None,
        log: false,
    };
    let set = Set {
        key,
        v4: IntervalSet::covering(members.iter().copied().map(Interval::single).collect()),
        v6: IntervalSet::empty(),
    };
    let ingress = Chain { isolated: true, rules: vec![rule] };
    Body { mode: Mode::Enforced, ingress, sets: vec![set], ..Body::default() }.canonical()
}
