//! Sides that run in turn, and what their times say of each other.
//!
//! - A round runs every side once; a ratio is the median over the rounds of the ratios of the two sides' medians in one round, so that what slows the
//!   machine for a while slows both.
//! - Where the medians of the side that is divided by spread by more than 40 % between rounds, the ratio is inconclusive: neither met nor missed.
//!
//! It judges times only. Sizes and counts do not depend on the machine: they are [`crate::Strict`].

use std::time::Duration;

use serde::Serialize;

use crate::figures::{Figure, Times};

/// So much may the round medians of a floor differ, highest over lowest, before a ratio to it says nothing.
const SPREAD_MAX: f64 = 1.4;

/// The fewest rounds that a run compares; a test of the benchmark itself takes fewer.
pub const ROUNDS_MIN: u32 = 5;

/// What a side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Our code.
    Product,
    /// Raw calls that the work cannot do without.
    Floor,
    /// Somebody else's program for the same work.
    Peer,
}

/// A bound of a ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// No bound was set: the ratio is for people.
    None,
    /// Of times: at most this.
    AtMost(f64),
    /// Of rates, which are inverse times: at least this.
    AtLeast(f64),
}

/// What became of a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// There was none.
    Unbounded,
    /// It holds.
    Met,
    /// It does not.
    Missed,
    /// The floor moved too much to tell.
    Inconclusive,
}

/// One ratio that is asked for.
#[derive(Clone, Debug)]
struct Ask {
    bar: &'static str,
    of: usize,
    over: usize,
    bound: Bound,
}

/// One side with its times by round.
#[derive(Clone, Debug)]
struct Side {
    name: String,
    role: Role,
    rounds: Vec<Times>,
}

/// Sides that are compared.
#[derive(Clone, Debug)]
pub struct Paired {
    what: String,
    rounds: usize,
    sides: Vec<Side>,
    asks: Vec<Ask>,
}

/// One side, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Which.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// All its repetitions.
    #[serde(flatten)]
    pub figure: Figure,
    /// Its highest round median over its lowest.
    pub spread: f64,
}

/// One ratio, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The bar that it is for; empty for none.
    pub bar: &'static str,
    /// The side that is divided.
    pub of: String,
    /// The side that divides.
    pub over: String,
    /// Median of the ratios by round: of times, or of rates if the bound is `at_least`.
    pub ratio: f64,
    /// The 99th percentiles of the whole run, the same way up.
    pub p99_ratio: f64,
    /// The ratio must be no higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The ratio must be no lower.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The spread of `over`.
    pub floor_spread: f64,
    /// Whether that is small enough to tell.
    pub conclusive: bool,
    /// What became of the bound.
    pub verdict: Verdict,
}

/// What a comparison found.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What the sides did.
    pub what: String,
    /// How often they ran in turn.
    pub rounds: usize,
    /// Each side.
    pub sides: Vec<Measured>,
    /// The ratios that were asked for.
    pub ratios: Vec<Ratio>,
}

impl Paired {
    /// A comparison of so many rounds.
    #[must_use]
    pub fn new(what: impl Into<String>, rounds: usize) -> Self {
        Self { what: what.into(), rounds, sides: Vec::new(), asks: Vec::new() }
    }

    /// Adds a side.
    #[must_use]
    pub fn side(mut self, name: impl Into<String>, role: Role) -> Self {
        self.sides.push(Side { name: name.into(), role, rounds: vec![Times::default(); self.rounds] });
        self
    }

    /// Asks for the ratio of one side to another, both added before.
    ///
    /// # Panics
    /// If there is no such side.
    #[must_use]
    pub fn ratio(mut self, bar: &'static str, of: &str, over: &str, bound: Bound) -> Self {
        let (of, over) = (self.index(of), self.index(over));
        self.asks.push(Ask { bar, of, over, bound });
        self
    }

    fn index(&self, name: &str) -> usize {
        let found = self.sides.iter().position(|side| side.name == name);
        found.unwrap_or_else(|| panic!("{} has a side {name}", self.what))
    }

    /// How many rounds there are.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Adds one repetition of a side.
    ///
    /// # Panics
    /// If there is no such side or round.
    pub fn push(&mut self, round: usize, side: &str, time: Duration) {
        let index = self.index(side);
        self.sides[index].rounds[round].push(time);
    }

    /// Runs all sides in turn, in the order in which they were added, each so often a round.
    ///
    /// # Panics
    /// If there are not as many works as sides.
    #[must_use]
    pub fn run(mut self, repetitions: usize, works: &mut [&mut dyn FnMut() -> Duration]) -> Compared {
        assert_eq!(works.len(), self.sides.len(), "{}: each side has its work", self.what);
        for round in 0..self.rounds {
            for (side, work) in self.sides.iter_mut().zip(&mut *works) {
                (0..repetitions).for_each(|_| side.rounds[round].push(work()));
            }
        }
        self.compared()
    }

    /// What the times say.
    #[must_use]
    pub fn compared(&self) -> Compared {
        let sides = self.sides.iter().map(Side::measured).collect();
        let ratios = self.asks.iter().map(|ask| self.measure(ask)).collect();
        Compared { what: self.what.clone(), rounds: self.rounds, sides, ratios }
    }

    fn measure(&self, ask: &Ask) -> Ratio {
        let (of, over) = (&self.sides[ask.of], &self.sides[ask.over]);
        let upright = |of: f64, over: f64| match ask.bound {
            Bound::None | Bound::AtMost(_) => of / over,
            Bound::AtLeast(_) => over / of,
        };
        let pairs = of.medians().into_iter().zip(over.medians());
        let ratio = median(pairs.map(|(of, over)| upright(of, over)).collect());
        let p99_ratio = upright(of.all().figure().p99_ms, over.all().figure().p99_ms);
        let floor_spread = over.spread();
        let conclusive = floor_spread <= SPREAD_MAX;
        let (at_most, at_least, holds) = match ask.bound {
            Bound::None => (None, None, None),
            Bound::AtMost(most) => (Some(most), None, Some(ratio <= most)),
            Bound::AtLeast(least) => (None, Some(least), Some(ratio >= least)),
        };
        let verdict = match holds {
            None => Verdict::Unbounded,
            Some(_) if !conclusive => Verdict::Inconclusive,
            Some(true) => Verdict::Met,
            Some(false) => Verdict::Missed,
        };
        Ratio {
            bar: ask.bar,
            of: of.name.clone(),
            over: over.name.clone(),
            ratio,
            p99_ratio,
            at_most,
            at_least,
            floor_spread,
            conclusive,
            verdict,
        }
    }
}

impl Side {
    fn medians(&self) -> Vec<f64> {
        self.rounds.iter().map(|times| times.figure().p50_ms).collect()
    }

    fn all(&self) -> Times {
        let mut all = Times::default();
        self.rounds.iter().for_each(|times| all.extend(times));
        all
    }

    /// Highest round median over lowest; infinite if a round has no time, so that nothing is concluded from it.
    fn spread(&self) -> f64 {
        let medians = self.medians();
        let (low, high) = medians.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), m| (low.min(*m), high.max(*m)));
        if low > 0.0 { high / low } else { f64::INFINITY }
    }

    fn measured(&self) -> Measured {
        Measured { name: self.name.clone(), role: self.role, figure: self.all().figure(), spread: self.spread() }
    }
}

/// The middle one; not a number for none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(times: &[u64]) -> Vec<Duration> {
        times.iter().copied().map(Duration::from_millis).collect()
    }

    /// One repetition a round.
    fn compare(product: &[u64], floor: &[u64], bound: Bound) -> Ratio {
        let paired = Paired::new("work", product.len()).side("ours", Role::Product).side("raw", Role::Floor);
        let paired = paired.ratio("P0", "ours", "raw", bound);
        let (mut ours, mut raw) = (ms(product).into_iter(), ms(floor).into_iter());
        let compared = paired.run(1, &mut [&mut || ours.next().unwrap(), &mut || raw.next().unwrap()]);
        compared.ratios.into_iter().next().unwrap()
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_and_not_of_all_times() {
        // The machine slows in the last two rounds: medians over all would say 60 / 10.
        let ratio = compare(&[20, 20, 60, 80, 80], &[10, 10, 10, 12, 13], Bound::AtMost(6.0));
        assert_eq!((ratio.ratio, ratio.conclusive, ratio.verdict), (6.0, true, Verdict::Met));
        assert_eq!(compare(&[30, 30, 30], &[10, 10, 10], Bound::AtMost(2.9)).verdict, Verdict::Missed);
    }

    #[test]
    fn a_floor_that_moves_by_more_than_forty_percent_concludes_nothing() {
        let ratio = compare(&[20, 20, 20], &[10, 10, 14], Bound::AtMost(1.0));
        assert_eq!((ratio.floor_spread, ratio.verdict), (1.4, Verdict::Missed));
        let ratio = compare(&[20, 20, 20], &[10, 10, 15], Bound::AtMost(1.0));
        assert_eq!((ratio.conclusive, ratio.verdict), (false, Verdict::Inconclusive));
        // A floor that took no time was not measured.
        assert_eq!(compare(&[20], &[0], Bound::AtMost(1.0)).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn rates_are_compared_the_other_way_up() {
        let ratio = compare(&[20, 20, 20], &[10, 10, 10], Bound::AtLeast(0.5));
        assert_eq!((ratio.ratio, ratio.at_least, ratio.verdict), (0.5, Some(0.5), Verdict::Met));
        assert_eq!(compare(&[20], &[10], Bound::AtLeast(0.6)).verdict, Verdict::Missed);
        assert_eq!(compare(&[20], &[10], Bound::None).verdict, Verdict::Unbounded);
    }
}
