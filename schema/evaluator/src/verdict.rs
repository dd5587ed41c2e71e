//! What is answered.

use std::fmt;

use holdfast_model::intent::ObjectKey;
use holdfast_model::policy::{Direction, Mode};

/// Names one authored rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleRef {
    /// The policy that it is in.
    pub policy: ObjectKey,
    /// In which of its lists.
    pub direction: Direction,
    /// Its place there, from 0.
    pub index: usize,
}

impl fmt::Display for RuleRef {
    /// As in the paths of faults: `Policy/default/web ingress[1]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}[{}]", self.policy, self.direction, self.index)
    }
}

/// What one end's rules say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// There is no agent at that end.
    NotGoverned,
    /// No rule matches and no policy isolates this direction.
    Open,
    /// A rule allows.
    Allowed(RuleRef),
    /// A rule denies.
    Denied(RuleRef),
    /// No rule matches, and these policies isolate this direction; never empty.
    Isolated(Vec<ObjectKey>),
}

impl Decision {
    /// Whether it lets the packet through.
    #[must_use]
    pub const fn allows(&self) -> bool {
        match self {
            Self::NotGoverned | Self::Open | Self::Allowed(_) => true,
            Self::Denied(_) | Self::Isolated(_) => false,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGoverned => f.write_str("not governed: no agent at this end"),
            Self::Open => f.write_str("open: no policy isolates this direction"),
            Self::Allowed(rule) => write!(f, "allowed by {rule}"),
            Self::Denied(rule) => write!(f, "denied by {rule}"),
            Self::Isolated(policies) => {
                f.write_str("denied: no rule allows it, isolated by ")?;
                for (index, policy) in policies.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{policy}")?;
                }
                Ok(())
            }
        }
    }
}

/// What both ends' rules say, and what comes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether the packet gets through, with the modes that the hosts are in.
    pub allowed: bool,
    /// What the source's egress rules say.
    pub egress: Decision,
    /// How far the source enforces; absent if it is no host.
    pub egress_mode: Option<Mode>,
    /// What the destination's ingress rules say.
    pub ingress: Decision,
    /// How far the destination enforces; absent if it is no host.
    pub ingress_mode: Option<Mode>,
}

impl Verdict {
    /// What comes of what both ends' rules say in their modes.
    pub(crate) fn of(
        (egress, egress_mode): (Decision, Option<Mode>),
        (ingress, ingress_mode): (Decision, Option<Mode>),
    ) -> Self {
        let passes = |decision: &Decision, mode: Option<Mode>| decision.allows() || mode != Some(Mode::Enforced);
        let allowed = passes(&egress, egress_mode) && passes(&ingress, ingress_mode);
        Self { allowed, egress, egress_mode, ingress, ingress_mode }
    }

    /// What comes of it where the source has the intent that this was judged by, and the destination another, by which `destination` was.
    #[must_use]
    pub fn with_ingress_of(self, destination: Self) -> Self {
        Self::of((self.egress, self.egress_mode), (destination.ingress, destination.ingress_mode))
    }

    /// Whether the packet would get through if both hosts enforced.
    #[must_use]
    pub const fn allowed_if_enforced(&self) -> bool {
        self.egress.allows() && self.ingress.allows()
    }
}
