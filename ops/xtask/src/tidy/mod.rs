//! The house rules of files, as a command that fails. `CONTRIBUTING.md` has them as a table, by number.

mod documents;
mod manifests;
mod metrics;
mod migrations;
mod modules;
mod sources;

pub(crate) use migrations::{SUMS as MIGRATION_SUMS, record as record_migrations};

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Everything that breaks a house rule.
pub(crate) fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = sources::check(tree);
    findings.extend(modules::orphans(workspace, tree));
    findings.extend(documents::check(tree));
    findings.extend(metrics::check(tree));
    findings.extend(migrations::check(tree));
    findings.extend(manifests::check(workspace, tree));
    findings
}
