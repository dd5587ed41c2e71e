//! What the reference looks at in sessions: what is written, what counts, and what waits.

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::numbers::UpdateSeq;
use holdfast_model::statement::OutcomeKind;
use holdfast_session::gateway::{Cause, Form};
use holdfast_wire::message::OutcomeReport;

use super::World;
use super::conn::Sent;
use super::parts::place;
use crate::violation::Invariant;

/// How long after a doubt about hints, or after a compare for it that failed, the next compare begins: the longest one that is under way (2 s and the
/// way back), and the wait after it (5 s).
const DOUBT_MS_MAX: u64 = 9_000;

impl World {
    /// The reference looks at what is written.
    pub(super) fn note_sent(
        &mut self,
        conn: usize,
        update_seq: UpdateSeq,
        component: Component,
        stamp: Stamp,
        how: (Form, Cause),
    ) {
        let (form, cause) = how;
        self.tally.count_sent(form);
        self.trace.add(update_seq.raw() << 8 | u64::from(component.number()));
        let base = self.gateway_side(conn).and_then(|side| side.tips[place(component)]);
        let whole = || self.store.body(stamp.digest).map_or(0, |body| body.flat.len());
        let bytes = match (form, base) {
            (Form::Snapshot, _) if component == Component::Policy => whole(),
            (Form::Snapshot, _) => component.empty_bytes().len(),
            (Form::Delta, Some(base)) => self.store.delta(base.digest, stamp.digest).map_or(0, |changes| changes.len()),
            (Form::Delta, None) => {
                return self.violate(Invariant::NothingCrossesSessions, || {
                    format!("a delta of {component} in a session that wrote nothing before")
                });
            }
            (Form::VersionOnly, _) => 0,
        };
        let Some(side) = self.gateway_side(conn) else { return };
        side.tips[place(component)] = Some(stamp);
        side.sent.insert(update_seq, Sent { component, stamp, bytes });
        self.conns[conn].updates += 1;
        if cause == Cause::Recovery {
            let Some(side) = self.gateway_side(conn) else { return };
            let tries = side.recoveries.entry((component, stamp.version)).or_default();
            *tries += 1;
            let (tries, allowed) = (*tries, 1 + side.resends);
            if tries > allowed {
                self.violate(Invariant::MemoryIsBounded, || {
                    format!("version {} of {component} is recovered {tries} times in one session", stamp.version)
                });
            }
        }
    }

    /// The reference looks at an outcome that the gateway half lets count.
    pub(super) fn note_counted(&mut self, conn: usize, report: &OutcomeReport) {
        self.tally.count_outcome(report.kind);
        let Some(side) = self.gateway_side(conn) else { return };
        let sent = side.sent.remove(&report.update_seq);
        let fits = sent.is_some_and(|sent| (sent.component, sent.stamp) == (report.component, report.wanted));
        let honest = report.kind != OutcomeKind::Applied || report.applied == Some(report.wanted);
        if !fits || !honest {
            let (seq, version) = (report.update_seq, report.wanted.version);
            self.violate(Invariant::NothingCrossesSessions, || {
                format!("an outcome counts for update {seq}, version {version}, which was not on its way")
            });
        }
    }

    /// The reference looks at what waits.
    pub(crate) fn check_memory(&mut self) {
        for gateway in 0..self.gateways.len() {
            if let Some((invariant, message)) = self.waits_too_much(gateway) {
                return self.violate(invariant, || message);
            }
        }
    }

    /// What is wrong with what waits on a gateway, if anything is.
    fn waits_too_much(&self, gateway: usize) -> Option<(Invariant, String)> {
        let at = &self.gateways[gateway];
        let machines = at.machines.as_ref()?;
        let ((waiting, heard), writing) = (machines.facts.waiting(), machines.facts.writing());
        // Beyond their room a goodbye is taken, with the last status before it, until it is written; and the newest status, one of each host.
        let (unwritten, goodbyes) = self.reference.unwritten(gateway);
        let allowed = unwritten.min(self.plan.facts.waiting_max + 2 * goodbyes + self.plan.hosts);
        if waiting > allowed || heard > self.plan.hosts || writing > self.plan.facts.batch_max {
            let message = format!("{waiting} facts, {heard} signs of life and {writing} that are being written");
            let unwritten = format!("{unwritten} are to be written, {goodbyes} of them ends of sessions");
            return Some((Invariant::MemoryIsBounded, format!("gateway {gateway} has {message}; {unwritten}")));
        }
        if let Some(message) = machines.sessions.iter().find_map(|conn| self.window_broken(*conn)) {
            return Some((Invariant::MemoryIsBounded, message));
        }
        let since = self.reference.doubted_since(gateway, at.paused_until)?;
        let is_forgotten = self.now > since + DOUBT_MS_MAX;
        let message = || format!("gateway {gateway} doubts hints since {since} ms, and compares nothing");
        is_forgotten.then(|| (Invariant::DeliveredOrSuperseded, message()))
    }

    /// What is wrong with the window of a session, if anything is.
    fn window_broken(&self, conn: usize) -> Option<String> {
        let conn = self.conns.get(conn)?;
        let (updates_max, bytes_max) = (self.plan.limits.updates_in_flight_max, self.plan.limits.bytes_in_flight_max);
        if let Some(side) = &conn.gateway_side {
            let (count, bytes) = (side.sent.len(), side.sent.values().map(|sent| sent.bytes).sum::<usize>());
            let fits = u32::try_from(bytes).is_ok_and(|bytes| bytes <= bytes_max) || count <= 1;
            if count > usize::from(updates_max) || !fits {
                return Some(format!("{count} updates of {bytes} bytes are on their way in one session"));
            }
        }
        let waiting = conn.agent_side.as_ref().map_or(0, |side| side.unanswered);
        (waiting > usize::from(updates_max)).then(|| format!("an agent holds {waiting} updates"))
    }
}
