//! What one session has of the scheduler: for each component a question that waits for its turn, or a turn that waits for its question.
//!
//! - A turn is an offer: it is used by the question that comes of it at once, or given back when the session has none.

use holdfast_model::desired::Component;

use super::event::{Asker, Ticket};
use crate::gateway::Want;

/// All components of one session.
#[derive(Debug, Default)]
pub struct Turns {
    turns: [Turn; Component::ALL.len()],
}

#[derive(Debug, Default)]
struct Turn {
    /// Asked, and waits.
    want: Option<Want>,
    /// Given, and not used yet.
    ticket: Option<Ticket>,
    /// An operator wants it; the next question is for that.
    is_wished: bool,
}

/// What is to be done with a question.
#[derive(Debug)]
pub enum Asked {
    /// It has its turn.
    Read(Ticket),
    /// It waits; the scheduler is to know.
    Waits(Asker),
}

impl Turns {
    fn of(&mut self, component: Component) -> Option<&mut Turn> {
        let place = Component::ALL.iter().position(|one| *one == component);
        place.and_then(|at| self.turns.get_mut(at))
    }

    /// An operator wants a component.
    pub fn wish(&mut self, component: Component) {
        if let Some(turn) = self.of(component) {
            turn.is_wished = true;
        }
    }

    /// A turn comes: the question that waits for it, if there is one. Without one it is kept for the question that may come.
    pub fn give(&mut self, ticket: Ticket) -> Option<Want> {
        let turn = self.of(ticket.component)?;
        if turn.want.is_none() {
            turn.ticket = Some(ticket);
        }
        turn.want.take()
    }

    /// The session asks.
    pub fn ask(&mut self, want: Want) -> Asked {
        let Some(turn) = self.of(want.component) else { return Asked::Waits(Asker::Session) };
        let asker = if std::mem::take(&mut turn.is_wished) { Asker::Operator } else { Asker::Session };
        match turn.ticket.take() {
            Some(ticket) => Asked::Read(ticket),
            None => {
                turn.want = Some(want);
                Asked::Waits(asker)
            }
        }
    }

    /// The turns that were not used.
    pub fn take_unused(&mut self) -> impl Iterator<Item = Ticket> + '_ {
        self.turns.iter_mut().filter_map(|turn| turn.ticket.take())
    }
}
