//! Hosts that a rollout holds back: whatever happens meanwhile, they have what was rendered of the revision that they are held at, the others that of
//! the last one; and what is claimed to be rendered is.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::desired::{Component, Desired, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::ids::{HostId, RolloutId};
use holdfast_model::intent::Intent;
use holdfast_model::numbers::Revision;
use holdfast_render::fleet::{Fleet, Holds, LetGo, MAX_WAIT_MS, Plan};
use holdfast_render::{Edit, Index, render_all};
use proptest::prelude::*;
use support::{apply_to_intent, worlds};
use uuid::Uuid;

#[derive(Clone, Debug)]
enum Step {
    /// A change; the renderer hears of it later.
    Edit(Edit),
    /// A change with a rollout that holds back the hosts whose bits are set.
    Begin(Edit, u16),
    /// Some of those that are held back are let go.
    Open(u16),
    /// All of them are let go, and the change stays.
    Finish,
    /// All of them are let go, and intent is as it was before.
    Abort,
    /// The renderer reads what happened, and commits what is due.
    Render,
    /// Another renderer takes over.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => worlds::edit().prop_map(Step::Edit),
        2 => (worlds::edit(), any::<u16>()).prop_map(|(edit, held)| Step::Begin(edit, held)),
        2 => any::<u16>().prop_map(Step::Open),
        1 => Just(Step::Finish),
        1 => Just(Step::Abort),
        4 => Just(Step::Render),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn held_hosts_have_what_is_rendered_of_their_revision_and_others_that_of_the_last(
        intent in worlds::intent(),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let mut plane = Plane::new(intent);
        plane.render();
        for step in steps {
            plane.handle(step);
        }
        plane.render();
        plane.handle(Step::Finish);
        plane.render();
    }
}

/// What is stored, and a renderer that follows it.
struct Plane {
    /// Intent at each revision, from zero.
    intents: Vec<Intent>,
    /// Hosts that are no more.
    gone: BTreeSet<HostId>,
    holds: Option<Holds>,
    rollouts: u128,
    stored: BTreeMap<(HostId, Component), Stamp>,
    rendered: Revision,
    let_go: Option<LetGo>,
    fleet: Fleet,
    /// What the fleet did not hear of yet.
    unheard: Vec<Edit>,
    now: u64,
}

impl Plane {
    fn new(intent: Intent) -> Self {
        let fleet = Fleet::new(&intent, Revision::ZERO, Revision::ZERO, [], 0);
        let mut plane = Self {
            intents: vec![intent],
            gone: BTreeSet::new(),
            holds: None,
            rollouts: 0,
            stored: BTreeMap::new(),
            rendered: Revision::ZERO,
            let_go: None,
            fleet,
            unheard: Vec::new(),
            now: 0,
        };
        plane.fleet.handle_holds(None);
        plane
    }

    fn head(&self) -> Revision {
        Revision::from_raw(self.intents.len() as u64 - 1)
    }

    fn at(&self, revision: Revision) -> &Intent {
        let at = usize::try_from(revision.raw()).expect("few revisions");
        &self.intents[at]
    }

    fn change(&mut self, mut edits: Vec<Edit>) {
        // An id is given once: a host that is gone does not come back under it.
        edits.retain(|edit| !matches!(edit, Edit::PutHost(host) if self.gone.contains(&host.id)));
        self.gone
            .extend(edits.iter().filter_map(|edit| if let Edit::RemoveHost(host) = edit { Some(*host) } else { None }));
        let mut intent = self.at(self.head()).clone();
        edits.iter().for_each(|edit| apply_to_intent(&mut intent, edit));
        self.intents.push(intent);
        self.unheard.extend(edits);
    }

    fn handle(&mut self, step: Step) {
        match step {
            Step::Edit(edit) => self.change(vec![edit]),
            Step::Begin(edit, bits) if self.holds.is_none() => {
                let (pin, hosts) = (self.head(), chosen(self.at(self.head()).hosts.keys(), bits));
                self.rollouts += 1;
                let rollout = RolloutId::new(Uuid::from_u128(self.rollouts));
                self.holds = Some(Holds { rollout, stage: 1, pin, hosts });
                self.change(vec![edit]);
            }
            Step::Begin(..) => {}
            Step::Open(bits) => {
                if let Some(holds) = &mut self.holds {
                    holds.stage += 1;
                    holds.hosts = chosen(holds.hosts.iter(), bits);
                }
            }
            Step::Finish => self.holds = None,
            Step::Abort => {
                if let Some(Holds { pin, hosts, .. }) = self.holds.take() {
                    self.abort(pin, &hosts);
                }
            }
            Step::Render => self.render(),
            Step::Restart => self.restart(),
        }
    }

    /// Authored intent is as before the rollout, hosts are as they are.
    fn abort(&mut self, pin: Revision, held: &BTreeSet<HostId>) {
        let (before, now) = (self.at(pin).clone(), self.at(self.head()).clone());
        let object = |(key, spec): (&holdfast_model::intent::ObjectKey, &holdfast_model::intent::Spec)| {
            let (namespace, name) = (key.namespace.clone(), key.name.clone());
            Edit::PutObject(holdfast_model::intent::Object { namespace, name, spec: spec.clone() })
        };
        let gone = now.objects.keys().filter(|key| !before.objects.contains_key(key));
        let edits = gone.cloned().map(Edit::DeleteObject).chain(before.objects.iter().map(object)).collect();
        let versions = |plane: &Self| {
            let one = |(key, stamp): (&(HostId, Component), &Stamp)| held.contains(&key.0).then_some((*key, *stamp));
            plane.stored.iter().filter_map(one).collect::<Vec<_>>()
        };
        let stays = now.hosts == before.hosts && self.unheard.is_empty();
        let had = versions(self);
        self.change(edits);
        self.render();
        if stays {
            assert_eq!(versions(self), had, "a host that was held back has a new version by an abort");
        }
    }

    fn restart(&mut self) {
        let latest = self.stored.iter().map(|((host, component), stamp)| Desired {
            host: *host,
            component: *component,
            stamp: *stamp,
        });
        let head = self.head();
        self.fleet = Fleet::new(self.at(head), head, self.rendered, latest.collect::<Vec<_>>(), self.now);
        self.fleet.handle_holds(self.holds.clone());
        self.unheard.clear();
        self.render();
    }

    /// As the renderer does it: what changed, who is held back, those at their own revision, then the others until nothing is due.
    fn render(&mut self) {
        self.fleet.handle_edits(std::mem::take(&mut self.unheard), self.head(), self.now);
        let enrolled = self.at(self.head()).hosts.clone();
        self.stored.retain(|(host, _), _| enrolled.contains_key(host));
        if !self.fleet.follows(self.holds.as_ref().map(|holds| (holds.rollout, holds.stage))) {
            self.fleet.handle_holds(self.holds.clone());
        }
        if let Some(pin) = self.fleet.poll_pin() {
            let planned = self.fleet.plan_pinned(self.at(pin));
            assert_eq!(planned.plan.revision, self.rendered, "those that are held back move no progress");
            self.store(&planned.plan);
            self.fleet.handle_committed(&planned);
            assert_eq!(self.fleet.poll_pin(), None);
        }
        for _ in 0..3 {
            self.now += 2 * MAX_WAIT_MS;
            while let Some(planned) = self.fleet.poll_plan(self.now) {
                self.store(&planned.plan);
                self.fleet.handle_committed(&planned);
            }
        }
        assert_eq!(self.fleet.poll_timeout(), None, "whoever waits is not woken for those that are held back");
        self.check();
    }

    fn store(&mut self, plan: &Plan) {
        assert!(plan.revision >= self.rendered);
        self.rendered = plan.revision;
        self.let_go = plan.let_go.or(self.let_go);
        for Desired { host, component, stamp } in &plan.states {
            let before = self.stored.insert((*host, *component), *stamp);
            let next = before.map_or(Some(holdfast_model::numbers::Version::FIRST), |before| before.version.next());
            assert_eq!(next, Some(stamp.version));
        }
    }

    fn check(&self) {
        let digests = |revision: Revision| -> BTreeMap<HostId, Digest> {
            let bodies = render_all(&Index::new(self.at(revision)));
            bodies.into_iter().map(|(host, body)| (host, body.digest())).collect()
        };
        let head = digests(self.head());
        let stored = |host: &HostId| self.stored.get(&(*host, Component::Policy)).map(|stamp| stamp.digest);
        let Some(Holds { rollout, stage, pin, hosts }) = &self.holds else {
            assert!(head.iter().all(|(host, digest)| stored(host) == Some(*digest)));
            assert_eq!(self.rendered, self.head());
            return;
        };
        let (at_pin, at_rendered) = (digests(*pin), digests(self.rendered.max(*pin)));
        for (host, digest) in &head {
            if hosts.contains(host) {
                assert_eq!(stored(host), at_pin.get(host).copied(), "held back");
                assert_eq!(at_rendered.get(host), at_pin.get(host), "claimed to be rendered, and held back");
            } else {
                assert_eq!(stored(host), Some(*digest), "let go");
            }
        }
        let let_go = LetGo { rollout: *rollout, stage: *stage, revision: self.head() };
        assert_eq!(self.let_go, Some(let_go));
    }
}

/// Those whose bits are set.
fn chosen<'a>(hosts: impl Iterator<Item = &'a HostId>, bits: u16) -> BTreeSet<HostId> {
    hosts.enumerate().filter(|(at, _)| bits >> (at % 16) & 1 == 1).map(|(_, host)| *host).collect()
}
