//! For tests only (feature `test-hooks`): a table that is altered between commit and read-back or cannot be read, a kernel that does not answer or tell of changes, batches that the kernel refuses, a short queue.
//!
//! - One element or rule is altered if the file that `HOLDFAST_AGENT_TEST_ALTER_FILE` names is there; it is taken away, so one file alters one apply.
//! - Every batch asks for what is not there while the file that `HOLDFAST_AGENT_TEST_REFUSE_FILE` names is there.
//! - No read of the whole table has an answer while the file that `HOLDFAST_AGENT_TEST_DARK_FILE` names is there.
//! - A read of the whole table does not end while the file that `HOLDFAST_AGENT_TEST_HANG_FILE` names is there.
//! - No notice of the kernel is heard from the next one on while the file that `HOLDFAST_AGENT_TEST_DEAF_FILE` names is there.
//! - If `HOLDFAST_AGENT_TEST_RECEIVE_BYTES` says a number, every message of a batch is answered, and answers find room for as many bytes.
//! - A build without the feature has none of this.

use std::fs;
use std::path::Path;

use nftnl::nftnl_sys::libc;

use super::batch;
use super::link::Link;
use crate::plan::Ruleset;

/// Whether a batch is to be refused.
pub(super) fn refuses() -> bool {
    std::env::var_os("HOLDFAST_AGENT_TEST_REFUSE_FILE").is_some_and(|file| Path::new(&file).exists())
}

/// Whether the table is not to be read.
pub(super) fn is_dark() -> bool {
    std::env::var_os("HOLDFAST_AGENT_TEST_DARK_FILE").is_some_and(|file| Path::new(&file).exists())
}

/// Whether no notice is to be heard.
pub(super) fn is_deaf() -> bool {
    std::env::var_os("HOLDFAST_AGENT_TEST_DEAF_FILE").is_some_and(|file| Path::new(&file).exists())
}

/// A kernel that does not answer: returns once the file is gone.
pub(super) fn hang() {
    let Some(file) = std::env::var_os("HOLDFAST_AGENT_TEST_HANG_FILE") else { return };
    while Path::new(&file).exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// How many bytes of answers may wait, if a test says so.
pub(super) fn receive_bytes() -> Option<libc::c_int> {
    std::env::var("HOLDFAST_AGENT_TEST_RECEIVE_BYTES").ok()?.parse().ok()
}

/// Alters what was just committed, if asked to.
pub(super) fn alter(link: &mut Link, target: &Ruleset) {
    let Some(path) = std::env::var_os("HOLDFAST_AGENT_TEST_ALTER_FILE") else { return };
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
