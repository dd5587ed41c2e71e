//! What a session is to look at, put there by others: marks that coalesce, never a queue.

use std::sync::{Mutex, PoisonError};

use holdfast_model::desired::Component;
use holdfast_model::statement::Authority;
use holdfast_session::scheduler::Start;
use holdfast_wire::code::RefusalCode;
use holdfast_wire::message::Drain;
use tokio::sync::Notify;

/// One session's mail.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    arrived: Notify,
}

/// What arrived since it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Builds that may begin, per component: the scheduler has one under way of each at most.
    pub(super) starts: [Option<Start>; Component::ALL.len()],
    /// Components to be sent whole once more.
    pub(super) resend: [bool; Component::ALL.len()],
    /// The agent is to drop the session and dial once.
    pub(super) reconnect: bool,
    /// The agent is to stop and wait for a new token.
    pub(super) reenrol: bool,
    /// In which life the authority is, and when to leave if the session began in another.
    pub(super) life: Option<(Authority, Drain)>,
    /// The gateway goes away.
    pub(super) drain: Option<Drain>,
    /// The session is to end.
    pub(super) close: Option<RefusalCode>,
}

impl Mailbox {
    /// Puts something in and wakes the session.
    pub(super) fn put(&self, change: impl FnOnce(&mut Mail)) {
        // Nothing that can panic runs under this lock.
        change(&mut self.mail.lock().unwrap_or_else(PoisonError::into_inner));
        self.arrived.notify_one();
    }

    /// A build that may begin. One that was there before was given up meanwhile.
    pub(super) fn put_start(&self, start: Start) {
        self.put(|mail| {
            if let Some(place) = place_of(start.ticket.component).and_then(|at| mail.starts.get_mut(at)) {
                *place = Some(start);
            }
        });
    }

    /// Waits until something is there.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Takes all that is there.
    pub(super) fn take(&self) -> Mail {
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where a component stands in the arrays.
fn place_of(component: Component) -> Option<usize> {
    Component::ALL.iter().position(|one| *one == component)
}
