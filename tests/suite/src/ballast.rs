//! Filling a small disk to its last byte.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

const BALLAST: &str = "ballast";

/// Fills the disk that is mounted there.
///
/// # Panics
/// When something else than the end of the room ends it.
pub(crate) fn fill(root: &Path) {
    let mut ballast = File::create(root.join(BALLAST)).expect("it is mounted");
    for size in [1 << 16, 1 << 12, 1] {
        let block = vec![0x5a; size];
        let error = loop {
            if let Err(error) = ballast.write_all(&block) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
}

/// Gives the room back.
///
/// # Panics
/// When it was not filled.
pub(crate) fn free(root: &Path) {
    fs::remove_file(root.join(BALLAST)).expect("it was filled");
}
