//! When to dial, and whom.
//!
//! - Full jitter between attempts; it starts again only after a healthy session, one that was open for a while.
//! - A list that a gateway told is dialled first, and is not the last word: where it leads to no session, those that the host was enrolled with are dialled
//!   in turn with it.
//! - Nobody is dialled after a gateway asked that the host be enrolled anew: that is a person's act.
//! - A gateway may ask for a pause, never for more than [`RETRY_AFTER_MAX`]; a directed or drained reconnect is one dial without a wait.

use std::time::Duration;

use holdfast_wire::message::Drain;

use super::event::CloseCause;
use crate::backoff::Backoff;
use crate::limits::{HEALTHY_AFTER, RETRY_AFTER_MAX};
use crate::random::Random;
use crate::time::Instant;

/// After so many dials in a row that opened no session for each gateway of the list, those of the enrolment have their turn too.
const TRIES_OF_EACH: usize = 2;
/// And after so many, however long the list: waits grow to minutes, and a certificate is good for a day.
const TRIES_MAX: usize = 8;

/// What the dialler is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DialState {
    /// It waits for a moment.
    Waiting {
        /// Which.
        until: Instant,
    },
    /// A connection is being made.
    Dialling,
    /// A session is there.
    Connected,
    /// An operator asked that the host be enrolled anew: nobody is dialled any more.
    Stopped,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It never came to a session: refused, silent, no handshake.
    NoSession,
    /// A session was there.
    Session(
        /// Why it is over.
        CloseCause,
    ),
}

/// Decides on dials for as long as the agent lives.
#[derive(Debug)]
pub struct Dialer {
    gateways: Vec<String>,
    /// Those that the host was enrolled with.
    enrolled: Vec<String>,
    next: usize,
    /// Dials in a row that opened no session.
    unopened: usize,
    backoff: Backoff,
    random: Random,
    state: DialState,
    opened_at: Option<Instant>,
    leave_at: Option<Instant>,
}

impl Dialer {
    /// A dialler that dials at once; the seed chooses with whom it begins, so that a fleet spreads.
    #[must_use]
    pub fn new(gateways: Vec<String>, seed: u64, now: Instant) -> Self {
        let mut random = Random::new(seed);
        let mut dialer = Self {
            gateways: Vec::new(),
            enrolled: Vec::new(),
            next: 0,
            unopened: 0,
            backoff: Backoff::new(random.next_u64()),
            random,
            state: DialState::Waiting { until: now },
            opened_at: None,
            leave_at: None,
        };
        dialer.handle_gateways(gateways);
        dialer
    }

    /// The same, with the gateways that the host was enrolled with.
    #[must_use]
    pub fn with_enrolled(mut self, enrolled: Vec<String>) -> Self {
        self.enrolled = enrolled;
        self
    }

    /// What it is at.
    #[must_use]
    pub const fn state(&self) -> DialState {
        self.state
    }

    /// Another list of gateways, from a HelloAck or a Drain; an empty one changes nothing.
    pub fn handle_gateways(&mut self, gateways: Vec<String>) {
        if !gateways.is_empty() && gateways != self.gateways {
            let last = u64::try_from(gateways.len() - 1).unwrap_or(0);
            self.next = usize::try_from(self.random.up_to(last)).unwrap_or(0);
            self.gateways = gateways;
        }
    }

    /// The next in turn.
    fn pick(&mut self) -> Option<String> {
        let told = self.gateways.len();
        let begins_anew = (told * TRIES_OF_EACH).min(TRIES_MAX);
        let fallback = self.enrolled.iter().filter(|name| !self.gateways.contains(name));
        let all: Vec<&String> = match self.unopened >= begins_anew {
            true => self.gateways.iter().chain(fallback).collect(),
            false => self.gateways.iter().collect(),
        };
        if self.unopened == begins_anew {
            // Their turn, if there are any.
            self.next = told;
        }
        let picked = all.get(self.next % all.len().max(1)).map(|name| (*name).clone());
        self.next = self.next.wrapping_add(1);
        picked
    }

    /// Whom to dial now, if it is time. The caller reports how it went.
    pub fn poll_dial(&mut self, now: Instant) -> Option<String> {
        match self.state {
            DialState::Waiting { until } if until <= now => {}
            DialState::Waiting { .. } | DialState::Dialling | DialState::Connected | DialState::Stopped => return None,
        }
        let gateway = self.pick()?;
        self.unopened = self.unopened.saturating_add(1);
        self.state = DialState::Dialling;
        Some(gateway)
    }

    /// The gateway answered Hello.
    pub const fn handle_opened(&mut self, now: Instant) {
        self.state = DialState::Connected;
        self.unopened = 0;
        self.opened_at = Some(now);
        self.leave_at = None;
    }

    /// The gateway will go away.
    pub fn handle_drain(&mut self, drain: &Drain, now: Instant) {
        self.leave_at = Some(now.plus(Duration::from_millis(u64::from(drain.reconnect_after_ms)).min(RETRY_AFTER_MAX)));
        self.handle_gateways(drain.gateways.clone());
    }

    /// The connection is over, or never was.
    pub fn handle_ended(&mut self, ended: Ended, now: Instant) {
        let healthy = self.opened_at.take().is_some_and(|opened| now.since(opened) >= HEALTHY_AFTER);
        if healthy {
            self.backoff.reset();
        }
        let leave_at = self.leave_at.take();
        let until = match ended {
            Ended::Session(CloseCause::Reenrol) => {
                self.state = DialState::Stopped;
                return;
            }
            Ended::Session(CloseCause::Drained | CloseCause::Directed | CloseCause::Polls) => now,
            Ended::Session(CloseCause::Theirs { retry_after_ms, .. }) if retry_after_ms > 0 => {
                let pause = Duration::from_millis(u64::from(retry_after_ms)).min(RETRY_AFTER_MAX);
                now.plus(pause).plus(self.backoff.next_wait())
            }
            // A draining gateway went before it was this host's turn: the turn still spreads the fleet.
            Ended::Session(CloseCause::Lost | CloseCause::Theirs { .. }) if leave_at.is_some_and(|at| at > now) => {
                leave_at.unwrap_or(now)
            }
            Ended::Session(CloseCause::Ours(_) | CloseCause::Theirs { .. } | CloseCause::Lost) | Ended::NoSession => {
                now.plus(self.backoff.next_wait())
            }
        };
        self.state = DialState::Waiting { until };
    }

    /// When to ask again, and why.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        match self.state {
            DialState::Waiting { until } => Some((until, "dial")),
            DialState::Dialling | DialState::Connected | DialState::Stopped => None,
        }
    }
}
