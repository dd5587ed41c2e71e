//! `cargo xtask`: the checks of the house that no compiler makes.
//!
//! - `arch` proves the arrows between the crates (invariants A1, A2, A3, A11, A12, A13 of `ARCHITECTURE.md`).
//! - `tidy` proves the house rules of files (T1 to T10 of `CONTRIBUTING.md`).
//! - A check is a pure function from a [`tree::Tree`] or a [`workspace::Workspace`] to findings, so that each is tested on an input that breaks it.
//!
//! It repairs nothing, except that `tidy --record-migrations` writes down the hashes of new migrations.

mod arch;
mod finding;
mod rust_text;
mod tidy;
mod tree;
mod workspace;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks of the architecture and of the house rules")]
struct Arguments {
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand)]
enum Check {
    /// The arrows between crates, from the dependency tree and from the text.
    Arch,
    /// The rules of files: headers, sizes, orphans, links, error pages, migrations, manifests.
    Tidy {
        /// First writes the hashes of migrations that are not in the list yet.
        #[arg(long)]
        record_migrations: bool,
    },
    /// Everything that CI runs: the same as `./ops/test`, whose options it takes.
    Ci {
        /// Options of `./ops/test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
}

/// What keeps a check from being made at all.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the tree could not be read")]
    Tree(#[from] tree::Error),
    #[error("the workspace could not be read")]
    Workspace(#[from] workspace::Error),
    #[error("the hashes of the migrations could not be written to {}", path.display())]
    Record { path: PathBuf, source: std::io::Error },
    #[error("ops/test could not be started")]
    Ci(#[source] std::io::Error),
    #[error("findings could not be printed")]
    Print(#[source] std::io::Error),
}

fn main() -> ExitCode {
    match run(&Arguments::parse().check) {
        Ok(code) => code,
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(inner) = cause {
                text.push_str(&format!(": {inner}"));
                cause = inner.source();
            }
            // Nothing is left to tell when stderr itself is gone.
            drop(writeln!(std::io::stderr(), "{text}"));
            ExitCode::FAILURE
        }
    }
}

fn run(check: &Check) -> Result<ExitCode, Error> {
    match check {
        Check::Arch => {
            let tree = Tree::load()?;
            report("arch", &arch::check(&Workspace::load(tree.root())?, &tree))
        }
        Check::Tidy { record_migrations } => {
            let mut tree = Tree::load()?;
            if *record_migrations {
                let path = tree.root().join(tidy::MIGRATION_SUMS);
                let text = tidy::record_migrations(&tree);
                std::fs::write(&path, text).map_err(|source| Error::Record { path, source })?;
                tree = Tree::load()?;
            }
            report("tidy", &tidy::check(&Workspace::load(tree.root())?, &tree))
        }
        Check::Ci { options } => {
            let root = tree::find_root()?;
            let status = Command::new(root.join("ops/test")).args(options).status().map_err(Error::Ci)?;
            Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn report(name: &str, findings: &[Finding]) -> Result<ExitCode, Error> {
    let mut out = std::io::stdout().lock();
    for finding in findings {
        writeln!(out, "{finding}").map_err(Error::Print)?;
    }
    if findings.is_empty() {
        writeln!(out, "{name}: nothing found").map_err(Error::Print)?;
        Ok(ExitCode::SUCCESS)
    } else {
        writeln!(out, "{name}: {} found", findings.len()).map_err(Error::Print)?;
        Ok(ExitCode::FAILURE)
    }
}
