//! Each mistake that can be seeded into the machines is found, and by the invariant that it breaks.

use holdfast_model::mutant::Mutant;
use holdfast_sim::{Invariant, Run};

#[test]
fn every_seeded_mistake_is_caught_within_twenty_thousand_schedules() {
    for mutant in Mutant::ALL {
        let run = Run { schedules: 20_000, seed: 1, mutant: Some(mutant), threads: 2, stops_at_first: true };
        let report = run.run(&|_| {});
        let [failure, ..] = report.failures.as_slice() else { panic!("{} was not caught", mutant.word()) };
        let (broken, wanted) = (failure.violation.invariant, broken_by(mutant));
        assert_eq!(broken, wanted, "{}: {}", mutant.word(), failure.violation);
    }
}

const fn broken_by(mutant: Mutant) -> Invariant {
    match mutant {
        Mutant::LateCleanupUnfenced
        | Mutant::OlderEndTakesNewer
        | Mutant::StaleEpochAdmitted
        | Mutant::TipNotAdvanced
        | Mutant::UnsentAckAccepted
        | Mutant::WrongBaseAccepted => Invariant::NothingCrossesSessions,
        Mutant::DoubtForgotten | Mutant::MarkDropped => Invariant::DeliveredOrSuperseded,
        Mutant::RecoveryLoops | Mutant::WindowIgnored => Invariant::MemoryIsBounded,
        Mutant::GoodbyeFirst | Mutant::HalfForgotten | Mutant::PresenceKept => Invariant::FactsAreKept,
        Mutant::LeaseFromAnswer => Invariant::OneWriter,
        Mutant::CursorAdvanced => Invariant::EventsAreOrdered,
    }
}
