//! Whether what is rendered means what every estate expects, asked of two judges that share no code: the reference evaluator, which reads intent,
//! and the interpreter, which reads the artifact's bytes.
//!
//! - A cell agrees only if both judges give what the estate wants, for every pair of addresses that the two ends can use.
//! - A need that is not understood is reported, never skipped in silence.
//!
//! It needs no root and no host: packets are another check.

mod artifacts;
mod cell;
mod churn;
mod find;
mod list;
mod span;

use holdfast_documents::estate::Estate;
use holdfast_model::intent::Intent;
use holdfast_render::Index;
use serde::Serialize;

pub use churn::verify_churn;
pub use find::{Case, FindError, find, load};

/// Makes the renderer's view of an intent; a test may seed a fault.
pub type MakeIndex<'a> = &'a dyn Fn(&Intent) -> Index;

/// What came of one estate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The estate's name.
    pub id: String,
    /// How many cells were judged.
    pub cells: usize,
    /// How many of them both judges answered as wanted.
    pub agree: usize,
    /// How many of them at least one judge answered otherwise.
    pub wrong: usize,
    /// Features that the estate needs and this build does not know.
    pub unmet: Vec<String>,
    /// The cells that are wrong.
    #[serde(skip)]
    pub details: Vec<Wrong>,
}

impl Report {
    fn new(id: &str) -> Self {
        Self { id: id.to_owned(), cells: 0, agree: 0, wrong: 0, unmet: Vec::new(), details: Vec::new() }
    }

    fn take(&mut self, faults: Vec<Wrong>) {
        self.cells += 1;
        if faults.is_empty() {
            self.agree += 1;
        } else {
            self.wrong += 1;
        }
        self.details.extend(faults);
    }

    /// Whether everything is as the estate wants it.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.wrong == 0 && self.unmet.is_empty()
    }
}

/// One answer that is not the wanted one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Wrong {
    /// The estate's name.
    pub estate: String,
    /// After which step; 0 is the state as written.
    pub step: usize,
    /// Who opens the connection, with the address.
    pub from: String,
    /// Toward whom, with the address.
    pub to: String,
    /// The protocol.
    pub proto: String,
    /// The port; empty where a set of ports is asked.
    pub port: String,
    /// The family.
    pub family: String,
    /// What the estate wants.
    pub wanted: String,
    /// What the evaluator says.
    pub evaluator: String,
    /// What the artifact says.
    pub artifact: String,
}

/// Why an estate cannot be judged at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes that were rendered for a host cannot be read.
    #[error("estate {estate}, step {step}: the artifact of {host} cannot be read")]
    Artifact {
        /// The estate.
        estate: String,
        /// The step.
        step: usize,
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: holdfast_interpreter::Error,
    },
    /// Nothing was rendered for a host.
    #[error("estate {estate}, step {step}: nothing was rendered for {host}")]
    NotRendered {
        /// The estate.
        estate: String,
        /// The step.
        step: usize,
        /// The host.
        host: String,
    },
}

/// Judges every cell of every state of an estate.
///
/// # Errors
/// [`Error`] if an artifact cannot be had; a wrong answer is no error.
pub fn verify_estate(estate: &Estate, index: MakeIndex<'_>) -> Result<Report, Error> {
    let mut report = Report::new(&estate.id);
    report.unmet = estate.unmet();
    for (step, state) in estate.states.iter().enumerate() {
        let judge = cell::Judge::of(estate, step, &state.intent, index)?;
        for cell in &state.cells {
            report.take(judge.cell(cell));
        }
    }
    // What a file says about its address lists is no cell of the estate, but a list that was read wrongly makes every answer worthless.
    for list in &estate.address_lists {
        let Some(facts) = &list.facts else { continue };
        let faults = list::wrong_facts(&estate.id, 0, &list.entries.join("\n"), facts);
        if !faults.is_empty() {
            report.wrong += 1;
            report.cells += 1;
            report.details.extend(faults);
        }
    }
    Ok(report)
}
