//! What happened, as one number that two runs of a seed must share, and as lines for a person who replays one.

/// The trace of one schedule.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    digest: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that keeps lines too.
    pub(crate) fn told() -> Self {
        Self { digest: 0, lines: Some(Vec::new()) }
    }

    /// Takes a number in.
    pub(crate) const fn add(&mut self, number: u64) {
        // The multiplier of SplitMix64's increment: odd, with bits all over.
        self.digest = (self.digest.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Takes a line in, where lines are kept.
    pub(crate) fn tell(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now:>7}  {}", line()));
        }
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
