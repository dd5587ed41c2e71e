//! Two renderers, of which one leads, after `services/renderer/src/leader`.
//!
//! - Real: what is rendered when, and how versions are numbered ([`holdfast_render::fleet::Fleet`]); how long a leader acts
//!   ([`holdfast_render::tenure::Tenure`]). Modelled: the loop around them, and the fences of its writes.

use std::sync::Arc;

use holdfast_events::relay::Relay;
use holdfast_events::{Hint, HostHint};
use holdfast_model::desired::Desired;
use holdfast_model::intent::Intent;
use holdfast_model::numbers::{LeaseTerm, Revision};
use holdfast_render::Edit;
use holdfast_render::fleet::{Fleet, Plan as RenderPlan};
use holdfast_render::tenure::Tenure;
use holdfast_wire::message::SignatureBytes;

use super::World;
use super::ask::{Ask, Told};
use super::parts::{Action, Process, Renderer};
use crate::keys::{RENDERER, sign};
use crate::plan::Repair;
use crate::store::LEASE_TTL_MS;
use crate::violation::Invariant;

/// Behind every hint (`BACKSTOP`).
const BACKSTOP_MS: u64 = 30_000;
/// The wait after a failure that may pass (`RETRY`).
const RETRY_MS: u64 = 1_000;
/// The number of the first hint of a render under a lease (`FIRST_OF_RENDERS`).
const FIRST_OF_RENDERS: u64 = 2;

impl World {
    pub(crate) fn start_renderer(&mut self, renderer: usize) {
        let at = &mut self.renderers[renderer];
        if at.is_up {
            return;
        }
        let (life, turn) = (at.life + 1, at.turn + 1);
        *at = Renderer { life, turn, is_up: true, ..Renderer::down() };
        self.stand(renderer, 0);
    }

    pub(crate) fn kill_renderer(&mut self, renderer: usize) {
        if self.renderers[renderer].is_up {
            self.renderers[renderer].is_up = false;
            self.renderers[renderer].paused_until = 0;
            self.orphan(Process::Renderer(renderer));
            let when = self.soon(50, 8_000);
            self.queue.put(when, Action::Start(Process::Renderer(renderer)));
        }
    }

    pub(crate) fn is_renderer(&self, renderer: usize, life: u32) -> bool {
        self.renderers.get(renderer).is_some_and(|renderer| renderer.is_up && renderer.life == life)
    }

    fn leads(&self, renderer: usize, turn: u64) -> bool {
        let at = &self.renderers[renderer];
        at.is_up && at.turn == turn && at.term.is_some()
    }

    /// A standby looks whether the lease is free.
    pub(crate) fn stand_by(&mut self, renderer: usize, life: u32) {
        let now = self.now;
        if !self.is_renderer(renderer, life) || self.renderers[renderer].stand_at.is_none_or(|planned| planned > now) {
            return;
        }
        self.renderers[renderer].stand_at = None;
        if self.renderers[renderer].term.is_none() {
            self.renderers[renderer].asked = now;
            self.submit(Some(Process::Renderer(renderer)), Ask::Acquire);
        }
    }

    fn stand(&mut self, renderer: usize, wait_ms: u64) {
        let when = self.now + wait_ms;
        let at = &mut self.renderers[renderer];
        if at.stand_at.is_none_or(|known| known > when) {
            at.stand_at = Some(when);
            let life = at.life;
            self.queue.put(when, Action::Stand { renderer, life });
        }
    }

    pub(crate) fn tell_renderer(&mut self, renderer: usize, ask: Ask, told: Told) {
        if ask.turn().is_some_and(|turn| !self.leads(renderer, turn)) {
            return;
        }
        match (ask, told) {
            (Ask::Acquire, Told::Term(Some(term))) => self.begin_term(renderer, term),
            (Ask::Acquire, Told::Term(None)) => {
                let wait = self.between(100, 5_000);
                self.stand(renderer, wait);
            }
            (Ask::Acquire, _) => self.stand(renderer, RETRY_MS),
            (Ask::Renew { asked, .. }, Told::Held(true)) => {
                self.renderers[renderer].tenure.as_mut().into_iter().for_each(|tenure| tenure.handle_renewed(asked));
                self.plan_keeping(renderer);
            }
            // Lost, or refused by the fence, or stored already without an answer: from the database again, never from memory.
            (Ask::Renew { .. }, Told::Held(false))
            | (Ask::Store { .. } | Ask::Number { .. }, Told::Refused)
            | (Ask::Load { .. }, Told::Failed) => self.end_term(renderer),
            (Ask::Renew { .. }, _) => {
                let again = self.now + RETRY_MS;
                self.renderers[renderer].tenure.as_mut().into_iter().for_each(|tenure| tenure.handle_failed(again));
                self.plan_keeping(renderer);
            }
            (Ask::Load { .. }, Told::Loaded(loaded)) => self.handle_loaded(renderer, *loaded),
            (Ask::Changes { .. }, Told::Changes(until, edits)) => self.handle_changes(renderer, until, edits),
            (Ask::Store { .. }, Told::Stored) => self.handle_stored(renderer),
            (Ask::Changes { .. }, _) => self.render_again(renderer, RETRY_MS),
            (Ask::Store { .. }, _) => self.commit_again(renderer, RETRY_MS),
            (Ask::Number { .. }, Told::Numbered { horizon, last, count }) => {
                self.handle_numbered(renderer, horizon, last, count);
            }
            (Ask::Number { .. }, _) => self.relay_again(renderer, RETRY_MS),
            (_, _) => {}
        }
    }

    fn begin_term(&mut self, renderer: usize, term: LeaseTerm) {
        let at = &mut self.renderers[renderer];
        at.turn += 1;
        let (turn, asked) = (at.turn, at.asked);
        let (life, paused_until) = (at.life, at.paused_until);
        let tenure = Some(Tenure::new(asked, LEASE_TTL_MS));
        let down = Renderer::down();
        *at = Renderer { life, turn, is_up: true, paused_until, term: Some(term), tenure, ..down };
        self.renderers[renderer].relay = self.seeded(Relay::new());
        self.tally.terms += 1;
        // Another leads: whoever led before may have stored what it never told.
        self.publish_hint(HostHint { lease_term: term, n: 1, of: Some(0), states: Vec::new() });
        self.renderers[renderer].hints = FIRST_OF_RENDERS;
        self.plan_keeping(renderer);
        self.submit(Some(Process::Renderer(renderer)), Ask::Load { turn });
        self.plan_relay(renderer, self.now);
    }

    fn plan_keeping(&mut self, renderer: usize) {
        let at = &self.renderers[renderer];
        if let Some(tenure) = at.tenure {
            let (turn, when) = (at.turn, tenure.poll_timeout().0.max(self.now));
            self.plan_keeping_at(renderer, turn, when);
        }
    }

    fn plan_keeping_at(&mut self, renderer: usize, turn: u64, when: u64) {
        let at = &mut self.renderers[renderer];
        if at.keep_at.is_none_or(|known| known > when) {
            at.keep_at = Some(when);
            self.queue.put(when, Action::KeepLease { renderer, turn });
        }
    }

    /// It is time to renew, or to stop.
    pub(crate) fn keep_lease(&mut self, renderer: usize, turn: u64) {
        if !self.leads(renderer, turn) {
            return;
        }
        let now = self.now;
        let at = &mut self.renderers[renderer];
        let (Some(tenure), Some(term)) = (at.tenure, at.term) else { return };
        if at.keep_at.is_none_or(|planned| planned > now) {
            return;
        }
        at.keep_at = None;
        if tenure.is_over(self.now) {
            return self.end_term(renderer);
        }
        if tenure.poll_timeout().0 <= self.now {
            let asked = self.now;
            self.submit(Some(Process::Renderer(renderer)), Ask::Renew { turn, term, asked });
            self.plan_keeping_at(renderer, turn, tenure.good_until());
        }
    }

    /// A term is over: nothing of it is used any more.
    pub(crate) fn end_term(&mut self, renderer: usize) {
        let at = &mut self.renderers[renderer];
        at.turn += 1;
        at.fleet = None;
        at.planned = None;
        at.commit_again_at = None;
        if let Some(term) = at.term.take() {
            self.submit(Some(Process::Renderer(renderer)), Ask::Release { term });
        }
        self.stand(renderer, RETRY_MS);
    }

    fn handle_loaded(&mut self, renderer: usize, loaded: (Intent, Revision, Revision, Vec<Desired>)) {
        let (intent, revision, rendered, latest) = loaded;
        self.renderers[renderer].fleet = Some(Fleet::new(&intent, revision, rendered, latest, self.now));
        self.plan_render(renderer, self.now);
    }

    /// One look is planned, the earliest that anybody wants.
    fn plan_render(&mut self, renderer: usize, when: u64) {
        let at = &mut self.renderers[renderer];
        if at.render_at.is_none_or(|known| known > when) {
            at.render_at = Some(when);
            let turn = at.turn;
            self.queue.put(when, Action::Render { renderer, turn });
        }
    }

    /// Something may be to be rendered.
    pub(crate) fn render_wake(&mut self, renderer: usize, turn: u64) {
        if !self.leads(renderer, turn) {
            return;
        }
        let now = self.now;
        let at = &mut self.renderers[renderer];
        if at.commit_again_at.is_some_and(|planned| planned <= now) {
            at.commit_again_at = None;
            return self.commit_due(renderer);
        }
        if at.render_at.is_none_or(|planned| planned > now) {
            return;
        }
        at.render_at = None;
        let Some(fleet) = &at.fleet else { return };
        if at.is_rendering {
            at.is_woken = true;
            return;
        }
        at.is_rendering = true;
        let since = fleet.revision();
        self.submit(Some(Process::Renderer(renderer)), Ask::Changes { turn, since });
    }

    /// Tries again after a failure.
    fn render_again(&mut self, renderer: usize, wait_ms: u64) {
        let at = &mut self.renderers[renderer];
        at.is_rendering = false;
        at.planned = None;
        self.plan_render(renderer, self.now + wait_ms);
    }

    /// Plans the same once more and commits it: whether it was committed is not known, and the fence tells. Nothing newer is read before, or what may be
    /// stored already would be forgotten.
    fn commit_again(&mut self, renderer: usize, wait_ms: u64) {
        let when = self.now + wait_ms;
        let at = &mut self.renderers[renderer];
        at.planned = None;
        at.commit_again_at = Some(when);
        let turn = at.turn;
        self.queue.put(when, Action::Render { renderer, turn });
    }

    fn handle_changes(&mut self, renderer: usize, until: Revision, edits: Vec<Edit>) {
        let now = self.now;
        let Some(fleet) = &mut self.renderers[renderer].fleet else { return };
        if until > fleet.revision() {
            fleet.handle_edits(edits, until, now);
        }
        self.commit_due(renderer);
    }

    /// Renders and commits until nothing is due.
    fn commit_due(&mut self, renderer: usize) {
        let now = self.now;
        let at = &mut self.renderers[renderer];
        let (turn, Some(term), Some(fleet)) = (at.turn, at.term, &at.fleet) else { return };
        if let Some(planned) = fleet.poll_plan(now) {
            let plan = Arc::new(planned.plan.clone());
            let signatures = plan.states.iter().map(|state| sign(RENDERER, &super::signed(state))).collect();
            at.planned = Some(planned);
            let signatures = Arc::new(signatures);
            return self.submit(Some(Process::Renderer(renderer)), Ask::Store { turn, term, plan, signatures });
        }
        at.is_rendering = false;
        let due = fleet.poll_timeout().map_or(now + BACKSTOP_MS, |(due, _)| due.min(now + BACKSTOP_MS));
        let when = if std::mem::take(&mut at.is_woken) { now } else { due };
        self.plan_render(renderer, when);
    }

    fn handle_stored(&mut self, renderer: usize) {
        let at = &mut self.renderers[renderer];
        let (Some(planned), Some(fleet), Some(term)) = (at.planned.take(), &mut at.fleet, at.term) else { return };
        fleet.handle_committed(&planned);
        let states: Vec<_> =
            planned.plan.states.iter().map(|state| (state.host, state.component, state.stamp.version)).collect();
        let hints: Vec<HostHint> = Hint::of_render(term, at.hints, &states);
        at.hints += hints.len() as u64;
        for hint in hints {
            self.publish_hint(hint);
        }
        self.ring_relay();
        self.commit_due(renderer);
    }

    /// A hint goes out, to every gateway that listens, as well as the bus can.
    fn publish_hint(&mut self, hint: HostHint) {
        let hint = Arc::new(hint);
        for gateway in 0..self.gateways.len() {
            if !self.gateways[gateway].is_up || self.plan.repair == Repair::CompareOnly {
                continue;
            }
            let faulty = self.bus.faulty_until > self.now;
            let (lost, doubled, late) = (self.bus.lost_percent, self.bus.doubled_percent, self.bus.late_ms);
            if faulty && self.chance(lost) {
                continue;
            }
            let copies = if faulty && self.chance(doubled) { 2 } else { 1 };
            for _ in 0..copies {
                let life = self.gateways[gateway].life;
                let when = self.soon(1, if faulty { late.max(10) } else { 10 });
                self.queue.put(when, Action::Hint { gateway, life, hint: Arc::clone(&hint) });
            }
        }
    }

    /// Intent changed.
    pub(crate) fn ring_renderers(&mut self) {
        for renderer in 0..self.renderers.len() {
            let lost = self.bus.lost_percent;
            let is_lost = self.bus.faulty_until > self.now && self.chance(lost);
            if !is_lost {
                let when = self.soon(1, 10);
                self.plan_render(renderer, when);
            }
        }
        self.ring_relay();
    }

    /// A render that the authority is to store.
    pub(crate) fn store_render(&mut self, term: LeaseTerm, plan: &RenderPlan, signatures: &[SignatureBytes]) -> Told {
        if term != self.reference.term {
            self.violate(Invariant::OneWriter, || format!("a render of term {term} is stored, which is over"));
        }
        if !self.store.follows(plan) {
            return Told::Refused;
        }
        if !self.store.store_render(plan, signatures) {
            self.violate(Invariant::OneWriter, || "a stored render has a body that cannot be read".to_owned());
        }
        for state in &plan.states {
            self.tally.versions += 1;
            if !self.reference.note_rendered(state.host, state.component, state.stamp) {
                let (host, version) = (state.host, state.stamp.version);
                self.violate(Invariant::OneWriter, || {
                    format!("version {version} of {host} does not follow, or is known")
                });
            }
        }
        self.insert_events(2);
        let hosts: std::collections::BTreeSet<_> = plan.states.iter().map(|state| state.host).collect();
        for host in hosts {
            self.check_synced(host);
        }
        Told::Stored
    }
}
