//! Whether a host had its bootstrap: every component whole and in force, in its newest session, within a bound.
//!
//! - One outcome with a name; of several components the first that is not in force gives it.
//! - A host that was initialized in its session stays so in it, whatever later versions come to.

use serde::{Deserialize, Serialize};

use crate::condition::Reason;
use crate::desired::{Component, Stamp};
use crate::statement::OutcomeKind;

/// How long a bootstrap may take before it is late: a body of the largest size over a link of 10 Mbit/s takes half of it.
pub const BOOTSTRAP_MS: u64 = 60_000;

/// What the bootstrap of a host came to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bootstrap {
    /// Every component is, or was in this session, in force.
    Complete,
    /// It is under way, and not late.
    Pending,
    /// There is nothing to bring: not rendered, or the host never had a session.
    Missing,
    /// The host did not take it.
    Failed,
    /// It is larger than the host, or a session, takes.
    Oversized,
    /// Nothing came of it within [`BOOTSTRAP_MS`].
    TimedOut,
    /// What came is not what was rendered: another signature, another digest, another base.
    Mismatched,
}

impl Bootstrap {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Complete, Self::Pending, Self::Missing, Self::Failed, Self::Oversized, Self::TimedOut, Self::Mismatched];

    /// The word in JSON and commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Pending => "pending",
            Self::Missing => "missing",
            Self::Failed => "failed",
            Self::Oversized => "oversized",
            Self::TimedOut => "timed_out",
            Self::Mismatched => "mismatched",
        }
    }
}

/// What is known of the bootstrap of one component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which.
    pub component: Component,
    /// What is desired; absent before the first render.
    pub latest: Option<Stamp>,
    /// Whether the host said in this session, with its own signature, that an update of it is in force.
    pub is_acked: bool,
    /// What the host last said in this session, with its own signature: how an update ended, what is in force, and why.
    pub said: Option<(OutcomeKind, Option<Stamp>, Reason)>,
    /// Whether what is desired is larger than what travels.
    pub is_too_large: bool,
}

/// What the bootstrap of a host came to, and of which component that is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initialized {
    /// What it came to.
    pub bootstrap: Bootstrap,
    /// The first component that is not in force; absent if, and only if, it is complete.
    pub component: Option<Component>,
}

/// What the bootstrap of a host came to. `opened_ms_ago` is how long ago its newest session began; absent if it never had one.
#[must_use]
pub fn initialized(opened_ms_ago: Option<u64>, parts: &[Part]) -> Initialized {
    let one = |component: Component| {
        let part = parts.iter().find(|part| part.component == component);
        (part.map_or(Bootstrap::Missing, |part| of_part(opened_ms_ago, part)), component)
    };
    let first = Component::ALL.into_iter().map(one).find(|(bootstrap, _)| *bootstrap != Bootstrap::Complete);
    first.map_or(Initialized { bootstrap: Bootstrap::Complete, component: None }, |(bootstrap, component)| {
        Initialized { bootstrap, component: Some(component) }
    })
}

fn of_part(opened_ms_ago: Option<u64>, part: &Part) -> Bootstrap {
    let (Some(latest), Some(opened_ms_ago)) = (part.latest, opened_ms_ago) else { return Bootstrap::Missing };
    let in_force = part.said.and_then(|(_, applied, _)| applied);
    if in_force.is_some_and(|applied| applied.version == latest.version && applied.digest != latest.digest) {
        return Bootstrap::Mismatched;
    }
    if part.is_acked {
        return Bootstrap::Complete;
    }
    match part.said {
        Some((OutcomeKind::Applied, ..)) => Bootstrap::Complete,
        Some((OutcomeKind::Failed | OutcomeKind::RetainedLocalOverride, _, reason)) => of_reason(reason),
        None if part.is_too_large => Bootstrap::Oversized,
        None if opened_ms_ago >= BOOTSTRAP_MS => Bootstrap::TimedOut,
        None => Bootstrap::Pending,
    }
}

const fn of_reason(reason: Reason) -> Bootstrap {
    match reason {
        Reason::TooLarge => Bootstrap::Oversized,
        Reason::BadSignature
        | Reason::WrongHost
        | Reason::SameVersionOtherContent
        | Reason::WrongBase
        | Reason::WrongDigest
        | Reason::Malformed => Bootstrap::Mismatched,
        Reason::Done
        | Reason::NotReached
        | Reason::Backward
        | Reason::NotDurable
        | Reason::KernelRefused
        | Reason::ReadBackDiffers
        | Reason::ReadBackFailed
        | Reason::LocalOverride
        | Reason::Contended
        | Reason::ForwardedNotEnforced
        | Reason::SelfIsolation
        | Reason::OnTrial
        | Reason::LedgerUnusable
        | Reason::UnknownCode => Bootstrap::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::numbers::Version;

    fn mk_stamp(version: u64) -> Stamp {
        Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(&version.to_be_bytes()) }
    }

    /// Each component in force, but for the one that a case is about.
    fn with(opened_ms_ago: Option<u64>, change: impl FnOnce(&mut Part)) -> Initialized {
        let mut parts = Component::ALL.map(|component| Part {
            component,
            latest: Some(mk_stamp(2)),
            is_acked: true,
            said: Some((OutcomeKind::Applied, Some(mk_stamp(2)), Reason::Done)),
            is_too_large: false,
        });
        change(parts.get_mut(1).expect("four"));
        initialized(opened_ms_ago, &parts)
    }

    fn silent(part: &mut Part) {
        (part.is_acked, part.said) = (false, None);
    }

    fn refused(reason: Reason) -> impl Fn(&mut Part) {
        move |part| (part.is_acked, part.said) = (false, Some((OutcomeKind::Failed, Some(mk_stamp(1)), reason)))
    }

    #[test]
    fn a_bootstrap_is_complete_only_with_every_component_and_each_lack_has_its_name() {
        let complete = Initialized { bootstrap: Bootstrap::Complete, component: None };
        assert_eq!(with(Some(0), |_| {}), complete);
        let other = Stamp { digest: Digest::of(b"other"), ..mk_stamp(2) };
        let cases = [
            (with(None, |_| {}), Bootstrap::Missing),
            (with(Some(0), |part| part.latest = None), Bootstrap::Missing),
            (with(Some(BOOTSTRAP_MS - 1), silent), Bootstrap::Pending),
            (with(Some(BOOTSTRAP_MS), silent), Bootstrap::TimedOut),
            (with(Some(0), refused(Reason::KernelRefused)), Bootstrap::Failed),
            (with(Some(0), refused(Reason::TooLarge)), Bootstrap::Oversized),
            (with(Some(0), refused(Reason::BadSignature)), Bootstrap::Mismatched),
            (with(Some(0), refused(Reason::WrongDigest)), Bootstrap::Mismatched),
            (
                with(Some(0), |part| part.said = Some((OutcomeKind::Applied, Some(other), Reason::Done))),
                Bootstrap::Mismatched,
            ),
            (
                with(Some(0), |part| {
                    silent(part);
                    part.is_too_large = true;
                }),
                Bootstrap::Oversized,
            ),
        ];
        let named: Vec<Bootstrap> = cases.iter().map(|(_, wanted)| *wanted).collect();
        assert!(Bootstrap::ALL.iter().all(|one| *one == Bootstrap::Complete || named.contains(one)), "each is reached");
        for (found, wanted) in cases {
            let first = if found == with(None, |_| {}) { Component::Policy } else { Component::Settings };
            assert_eq!(found, Initialized { bootstrap: wanted, component: Some(first) });
        }
        assert_eq!(initialized(Some(0), &[]).bootstrap, Bootstrap::Missing, "nothing is not everything");
    }

    #[test]
    fn what_fails_after_the_bootstrap_does_not_undo_it() {
        let failed = with(Some(BOOTSTRAP_MS * 9), |part| {
            part.said = Some((OutcomeKind::Failed, Some(mk_stamp(1)), Reason::KernelRefused));
        });
        assert_eq!(failed.bootstrap, Bootstrap::Complete);
    }
}
