//! A small seeded generator, for jitter only: nothing secret may come from it.

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and three mixes, every seed is good.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `last`, both inside. The bias is below 2^-32 for the spans used here.
    pub const fn up_to(&mut self, last: u64) -> u64 {
        match last.checked_add(1) {
            Some(count) => self.next_u64() % count,
            None => self.next_u64(),
        }
    }
}
