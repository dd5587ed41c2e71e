//! The benchmark still measures: each comparison has its sides and its ratios.

mod kernel {
    use crate::{Size, measure};

    #[test]
    fn every_comparison_of_kernel_and_disk_has_its_sides_and_ratios() {
        let report = measure(Size { rounds: 2, replacements: 1, deltas: 2, small: 100, large: 2_000 });
        let shape: Vec<_> = report.compared.iter().map(|c| (c.sides.len(), c.ratios.len())).collect();
        assert_eq!(shape, [(3, 2), (2, 1), (8, 7), (2, 1), (4, 3)]);
        for compared in &report.compared {
            assert!(
                compared.sides.iter().all(|side| side.figure.count >= 2 && side.figure.p50_ms > 0.0),
                "{compared:?}"
            );
            assert!(compared.ratios.iter().all(|ratio| ratio.ratio.is_finite() && ratio.ratio > 0.0), "{compared:?}");
        }
        assert!(report.strict.iter().all(|strict| strict.value >= 60.0), "{:?}", report.strict);
    }
}
