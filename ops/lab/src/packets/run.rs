//! One run: everything in visibility, then everything enforced, then the comparison.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_model::address::Family;
use holdfast_model::policy::Mode;

use super::evidence::{Unanswered, accounted};
use super::{Cell, Difference, Expected, Finding, Fleet, FleetError, Progress, Report};
use crate::lab::Lab;
use crate::party::PartyError;
use crate::prober::{self, Answer, Mesh, Outcome, Patience, Shot};

/// Denied probes between two readings of the counters. Larger waves read less often, smaller ones tell more exactly whose rise it was.
const WAVE_PROBES_MAX: usize = 4096;

/// Why a run ends without a report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A helper fails.
    #[error(transparent)]
    Prober(#[from] prober::Error),
    /// A cell names somebody who is not in the lab.
    #[error(transparent)]
    Party(#[from] PartyError),
    /// The hosts do not follow.
    #[error("cannot bring the hosts into the mode {mode}")]
    Mode {
        /// The mode.
        mode: Mode,
        /// Why.
        #[source]
        source: FleetError,
    },
    /// The counters cannot be read.
    #[error("cannot read the drop counters of the hosts")]
    Drops(#[source] FleetError),
}

/// What a run needs.
pub struct Run<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The `holdfast-lab` binary, which is the helpers' too.
    pub program: PathBuf,
    /// The hosts.
    pub fleet: &'a mut dyn Fleet,
    /// Who hears how far it is.
    pub progress: &'a dyn Progress,
}

/// A probe of a run, and what cells want of it.
struct Planned<'a> {
    shot: Shot,
    cell: &'a Cell,
}

/// How a probe ended once the hosts enforced.
struct Ended {
    outcome: Outcome,
    /// Whether our own counters account for its drop.
    counted: bool,
}

impl Run<'_> {
    /// Probes all cells in both modes and compares.
    ///
    /// # Errors
    /// See [`Error`]. A difference is no error.
    pub fn verify(mut self, cells: &[Cell]) -> Result<Report, Error> {
        let planned = self.plan(cells)?;
        let shots: Vec<Shot> = planned.iter().map(|planned| planned.shot).collect();
        let mut mesh = Mesh::new(self.lab, self.program.clone());

        self.ensure_mode(Mode::Visibility)?;
        let visible = self.fire(&mut mesh, "visibility", &shots, &Patience::for_allowed())?;

        self.ensure_mode(Mode::Enforced)?;
        let (denied, allowed): (Vec<usize>, Vec<usize>) =
            (0..planned.len()).partition(|index| planned[*index].cell.expected == Expected::Denied);
        let pick = |indices: &[usize]| indices.iter().map(|index| shots[*index]).collect::<Vec<Shot>>();
        // Denied ones first: allowed connections leave packets behind that would move the counters.
        let mut ended: BTreeMap<usize, Ended> = BTreeMap::new();
        for wave in denied.chunks(WAVE_PROBES_MAX) {
            let answers = self.fire_denied(&mut mesh, "denied", &pick(wave))?;
            let missed: Vec<usize> =
                wave.iter().zip(&answers).filter(|(_, end)| !end.is_proved()).map(|(index, _)| *index).collect();
            ended.extend(wave.iter().copied().zip(answers));
            // A busy machine may lose a packet on the way: what is not proved has a second chance, and among fewer.
            if !missed.is_empty() {
                let again = self.fire_denied(&mut mesh, "denied, again", &pick(&missed))?;
                ended.extend(missed.into_iter().zip(again));
            }
        }
        let answers = self.fire(&mut mesh, "allowed", &pick(&allowed), &Patience::for_allowed())?;
        ended.extend(allowed.into_iter().zip(answers).map(|(index, answer)| (index, Ended::of(answer.outcome, false))));
        Ok(compare(cells.len(), &planned, &visible, &ended))
    }

    fn plan<'c>(&self, cells: &'c [Cell]) -> Result<Vec<Planned<'c>>, Error> {
        let mut planned = Vec::new();
        for cell in cells {
            for (source, destination) in cell.from.pairs(&cell.to, self.lab.record())? {
                if Family::of(source) == cell.family {
                    planned.push(Planned { shot: Shot { source, destination, flow: cell.flow }, cell });
                }
            }
        }
        Ok(planned)
    }

    fn ensure_mode(&mut self, mode: Mode) -> Result<(), Error> {
        self.fleet.ensure_mode(mode).map_err(|source| Error::Mode { mode, source })
    }

    fn fire(&self, mesh: &mut Mesh<'_>, part: &str, shots: &[Shot], patience: &Patience) -> Result<Vec<Answer>, Error> {
        self.progress.begin(part, shots.len());
        Ok(mesh.fire(shots, patience, &|probes| self.progress.advance(probes))?)
    }

    /// Fires probes that should be dropped, and holds the rise of the counters against those that nobody answered.
    fn fire_denied(&mut self, mesh: &mut Mesh<'_>, part: &str, shots: &[Shot]) -> Result<Vec<Ended>, Error> {
        let before = self.fleet.observe_drops().map_err(Error::Drops)?;
        let answers = self.fire(mesh, part, shots, &Patience::for_denied())?;
        let after = self.fleet.observe_drops().map_err(Error::Drops)?;
        let rises: BTreeMap<String, u64> = after
            .into_iter()
            .map(|(host, drops)| {
                let rise = drops.saturating_sub(before.get(&host).copied().unwrap_or_default());
                (host, rise)
            })
            .collect();
        let unanswered: Vec<Unanswered<'_>> = shots
            .iter()
            .zip(&answers)
            .map(|(shot, answer)| Unanswered {
                source: self.lab.host_at(shot.source).map(|host| host.name.as_str()),
                destination: self.lab.host_at(shot.destination).map(|host| host.name.as_str()),
                packets: u64::from(answer.unanswered),
            })
            .collect();
        let counted = accounted(&unanswered, &rises);
        Ok(answers.into_iter().zip(counted).map(|(answer, counted)| Ended::of(answer.outcome, counted)).collect())
    }
}

impl Ended {
    fn of(outcome: Outcome, counted: bool) -> Self {
        Self { outcome, counted }
    }

    fn is_proved(&self) -> bool {
        self.outcome == Outcome::Dropped && self.counted
    }
}

fn compare(cells: usize, planned: &[Planned<'_>], visible: &[Answer], ended: &BTreeMap<usize, Ended>) -> Report {
    let mut differences = Vec::new();
    for (index, (Planned { shot, cell }, seen)) in planned.iter().zip(visible).enumerate() {
        let Some(end) = ended.get(&index) else { continue };
        if let Some(finding) = finding_of(cell.expected, &seen.outcome, end) {
            let (source, destination) = (shot.source, shot.destination);
            differences.push(Difference { cell: (*cell).clone(), source, destination, finding });
        }
    }
    let mut wrong: Vec<&Cell> = differences.iter().map(|difference| &difference.cell).collect();
    wrong.sort_unstable();
    wrong.dedup();
    Report { cells, agree: cells - wrong.len(), probes: planned.len(), differences }
}

fn finding_of(expected: Expected, visible: &Outcome, end: &Ended) -> Option<Finding> {
    if *visible != Outcome::Passed {
        return Some(Finding::NotInVisibility { outcome: visible.clone() });
    }
    match (expected, &end.outcome) {
        (Expected::Allowed, Outcome::Passed) => None,
        (Expected::Allowed, Outcome::Dropped | Outcome::Refused { .. } | Outcome::Failed { .. }) => {
            Some(Finding::Blocked { outcome: end.outcome.clone() })
        }
        (Expected::Denied, Outcome::Passed) => Some(Finding::Leaked),
        (Expected::Denied, Outcome::Dropped) => (!end.counted).then_some(Finding::NotCounted),
        (Expected::Denied, Outcome::Refused { .. } | Outcome::Failed { .. }) => {
            Some(Finding::NotDropped { outcome: end.outcome.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_probe_agrees_only_if_it_was_seen_before_and_counted() {
        let finding = |visible: Outcome, outcome: Outcome, counted| {
            finding_of(Expected::Denied, &visible, &Ended { outcome, counted })
        };
        assert_eq!(finding(Outcome::Passed, Outcome::Dropped, true), None);
        assert_eq!(finding(Outcome::Passed, Outcome::Dropped, false), Some(Finding::NotCounted));
        assert_eq!(finding(Outcome::Passed, Outcome::Passed, true), Some(Finding::Leaked));
        let unseen = Finding::NotInVisibility { outcome: Outcome::Dropped };
        assert_eq!(finding(Outcome::Dropped, Outcome::Dropped, true), Some(unseen));
        let refused = Outcome::Refused { by: [192, 0, 2, 1].into() };
        assert_eq!(finding(Outcome::Passed, refused.clone(), true), Some(Finding::NotDropped { outcome: refused }));
    }

    #[test]
    fn an_allowed_probe_must_be_answered() {
        let finding = |outcome| finding_of(Expected::Allowed, &Outcome::Passed, &Ended { outcome, counted: false });
        assert_eq!(finding(Outcome::Passed), None);
        assert_eq!(finding(Outcome::Dropped), Some(Finding::Blocked { outcome: Outcome::Dropped }));
    }
}
