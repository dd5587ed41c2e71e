//! How many builds are under way at most, and how the lanes share them.
//!
//! - A part is reserved for [`Lane::Host`], also while nothing waits there: what concerns one host starts at once.
//! - [`Lane::First`] and [`Lane::Bulk`] each have a floor that holds while something waits there, and is everybody's when nothing does.
//! - What is left goes to the most urgent lane.

use super::event::{Lane, PerLane};

/// How many builds, and how they are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    builds_max: usize,
    host_reserve: usize,
    first_floor: usize,
    bulk_floor: usize,
}

/// Too few builds to share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{builds_max} builds at once cannot be shared by three lanes, 4 can")]
pub struct CapacityError {
    /// How many were wanted.
    pub builds_max: usize,
}

impl Capacity {
    /// A quarter reserved for [`Lane::Host`], an eighth as the floor of each other lane, one at least.
    ///
    /// # Errors
    /// [`CapacityError`] below 4.
    pub const fn of(builds_max: usize) -> Result<Self, CapacityError> {
        if builds_max < 4 {
            return Err(CapacityError { builds_max });
        }
        let floor = if builds_max < 8 { 1 } else { builds_max / 8 };
        Ok(Self { builds_max, host_reserve: builds_max / 4, first_floor: floor, bulk_floor: floor })
    }

    /// The most builds at once.
    #[must_use]
    pub const fn builds_max(&self) -> usize {
        self.builds_max
    }

    /// What the other lanes may never use of it.
    #[must_use]
    pub const fn host_reserve(&self) -> usize {
        self.host_reserve
    }

    /// Whether a lane may begin another build, with so many under way and something waiting where `waits` says so.
    pub(super) fn allows(&self, lane: Lane, building: &PerLane<usize>, waits: &PerLane<bool>) -> bool {
        let under_way = building.host + building.first + building.bulk;
        let free = self.builds_max.saturating_sub(under_way);
        let reserved = self.host_reserve.saturating_sub(building.host);
        let first = if waits.first { self.first_floor.saturating_sub(building.first) } else { 0 };
        let bulk = if waits.bulk { self.bulk_floor.saturating_sub(building.bulk) } else { 0 };
        match lane {
            // Within its reserve, or beyond what the others are owed.
            Lane::Host => free > if reserved > 0 { 0 } else { first + bulk },
            Lane::First => free > reserved + if building.first < self.first_floor { 0 } else { bulk },
            Lane::Bulk => free > reserved + if building.bulk < self.bulk_floor { 0 } else { first },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_WAIT: PerLane<bool> = PerLane { host: true, first: true, bulk: true };

    #[test]
    fn the_reserve_is_never_used_by_others_and_every_waiting_lane_gets_its_floor_back() {
        for builds_max in 4..40 {
            let capacity = Capacity::of(builds_max).unwrap();
            for (host, first) in
                (0..=builds_max).flat_map(|host| (0..=builds_max - host).map(move |first| (host, first)))
            {
                for bulk in 0..=builds_max - host - first {
                    let building = PerLane { host, first, bulk };
                    let free = builds_max - host - first - bulk;
                    let allowed = Lane::ALL.map(|lane| capacity.allows(lane, &building, &ALL_WAIT));
                    if free == 0 {
                        assert_eq!(allowed, [false; 3], "{building:?}");
                    }
                    let reserved = capacity.host_reserve.saturating_sub(host);
                    if allowed[1] || allowed[2] {
                        assert!(free > reserved, "{building:?} takes of the reserve");
                    }
                    if host < capacity.host_reserve && free > 0 {
                        assert!(allowed[0], "{building:?} of {builds_max}");
                    }
                    // As soon as one is free beyond the reserve, somebody starts: nothing is kept for nobody.
                    if free > reserved {
                        assert!(allowed.contains(&true), "{building:?} of {builds_max}");
                    }
                    // A lane below its floor only waits for the reserve, not for the other lanes.
                    if free > reserved && bulk < capacity.bulk_floor {
                        assert!(allowed[2], "{building:?} of {builds_max}");
                    }
                }
            }
        }
    }

    #[test]
    fn h07_a_floor_is_everybodys_when_nothing_waits_there() {
        let capacity = Capacity::of(4).unwrap();
        let building = PerLane { host: 3, first: 0, bulk: 0 };
        let waits = |bulk| PerLane { host: true, first: false, bulk };
        assert!(capacity.allows(Lane::Host, &building, &waits(false)));
        assert!(!capacity.allows(Lane::Host, &building, &waits(true)));
        assert!(capacity.allows(Lane::Bulk, &building, &waits(true)));
    }

    #[test]
    fn fewer_builds_than_lanes_can_share_are_refused() {
        assert_eq!(Capacity::of(3), Err(CapacityError { builds_max: 3 }));
    }
}
