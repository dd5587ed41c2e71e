//! The benchmark still measures: each comparison has its sides and its ratios.

use super::*;

const HOSTS: u32 = 200;

#[test]
fn every_comparison_in_memory_has_its_sides_and_ratios() {
    let mut report = Report::begin("render");
    rendering(&mut report, &Floor::new(HOSTS), HOSTS, 2, 1);
    must_have(&report, &[(2, 1), (2, 1), (1, 0), (1, 0), (1, 0)]);
}

fn must_have(report: &Report, wanted: &[(usize, usize)]) {
    let shape: Vec<_> = report.compared.iter().map(|c| (c.sides.len(), c.ratios.len())).collect();
    assert_eq!(shape, wanted);
    for compared in &report.compared {
        assert!(compared.sides.iter().all(|side| side.figure.count >= 2 && side.figure.p50_ms > 0.0), "{compared:?}");
        assert!(compared.ratios.iter().all(|ratio| ratio.ratio.is_finite() && ratio.ratio > 0.0), "{compared:?}");
    }
}

mod postgres {
    use holdfast_bench::paired::Verdict;

    use super::*;

    #[test]
    fn what_is_stored_is_measured_and_nothing_is_written_where_nothing_changed() {
        let mut report = Report::begin("render");
        persisted::measure(&mut report, &Floor::new(HOSTS), HOSTS, 2);
        must_have(&report, &[(2, 1), (2, 1)]);
        assert_eq!(report.strict.len(), 5);
        assert!(report.strict.iter().all(|rows| rows.verdict == Verdict::Met), "{:?}", report.strict);
    }
}
