//! For tests only (feature `test-hooks`): alters one element, or one rule, between commit and read-back.
//!
//! - Does nothing unless the file that `HOLDFAST_AGENT_TEST_ALTER_FILE` names is there; takes the file away, so one file alters one apply.
//! - A build without the feature has none of this.

use std::fs;

use super::batch;
use super::link::Link;
use crate::plan::Ruleset;

/// The variable that names the file.
pub(super) const VARIABLE: &str = "HOLDFAST_AGENT_TEST_ALTER_FILE";

/// Alters what was just committed, if asked to.
pub(super) fn alter(link: &mut Link, target: &Ruleset) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    if fs::remove_file(path).is_err() {
        return;
    }
    match batch::alteration(target) {
        Ok(bytes) => {
            let answer = link.batch(bytes.whole(), "alter the table for a test");
            tracing::info!(refused = answer.error.is_some(), "test hook altered the table");
        }
        Err(error) => tracing::info!(%error, "test hook cannot alter the table"),
    }
}
