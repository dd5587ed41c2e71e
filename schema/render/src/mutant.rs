//! Seeded faults of the renderer: each is one plausible mistake, and a check that misses it is no check.
//!
//! - Without the feature `mutants` no fault can be chosen and every hook is a constant `false`.

/// One plausible mistake of a renderer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// `except` of a prefix is forgotten.
    DropExcept,
    /// A rule whose prefixes are of one family lets every address of the other in.
    IgnoreFamily,
    /// The end of a port range is forgotten.
    IgnorePortEnd,
    /// A direction that is isolated is rendered open.
    LeaveOpen,
    /// Rules for UDP are lost.
    LoseUdp,
    /// Every rule has the default order.
    MergeOrders,
    /// Named ports are looked up at the wrong end.
    NamedPortAtWrongEnd,
    /// An absent key does not satisfy `NotIn`.
    NotInNeedsKey,
    /// The last port of a range is one too high.
    PortOffByOne,
    /// Rules land in the other direction.
    SwapDirections,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::DropExcept,
        Self::IgnoreFamily,
        Self::IgnorePortEnd,
        Self::LeaveOpen,
        Self::LoseUdp,
        Self::MergeOrders,
        Self::NamedPortAtWrongEnd,
        Self::NotInNeedsKey,
        Self::PortOffByOne,
        Self::SwapDirections,
    ];
}

/// The fault that an index was seeded with, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(feature = "mutants")]
    seeded: Option<Mutant>,
}

impl Faults {
    /// Seeds one fault.
    #[cfg(feature = "mutants")]
    pub(crate) const fn seeded(mutant: Mutant) -> Self {
        Self { seeded: Some(mutant) }
    }

    /// Whether this fault was seeded.
    #[cfg(feature = "mutants")]
    pub(crate) fn has(self, mutant: Mutant) -> bool {
        self.seeded == Some(mutant)
    }

    /// No fault can be seeded in this build.
    #[cfg(not(feature = "mutants"))]
    pub(crate) const fn has(self, _: Mutant) -> bool {
        false
    }
}
