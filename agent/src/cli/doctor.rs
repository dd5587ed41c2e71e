//! `holdfast-agent doctor`: whether this host can do what the agent needs, and what to do where it cannot.
//!
//! - Nothing of the host is changed: the kernel is tried in a network namespace of its own, which ends with the trial.
//! - What a running agent knows it is asked; what it keeps on disk is read.

mod host;
mod reach;
mod running;

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Everything that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Findings {
    checks: Vec<Check>,
}

impl Findings {
    fn well(&mut self, name: &'static str, detail: impl Into<String>) {
        self.checks.push(Check { name, ok: true, detail: detail.into(), remedy: None });
    }

    fn unwell(&mut self, name: &'static str, detail: impl Into<String>, remedy: &str) {
        self.checks.push(Check { name, ok: false, detail: detail.into(), remedy: Some(remedy.to_owned()) });
    }

    /// Whether nothing is in trouble.
    pub(super) fn is_well(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// One screen for people.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        for check in &self.checks {
            let word = if check.ok { "ok     " } else { "TROUBLE" };
            writeln!(out, "{word}  {:<14}  {}", check.name, check.detail)?;
            if let Some(remedy) = &check.remedy {
                writeln!(out, "         {:<14}  -> {remedy}", "")?;
            }
        }
        Ok(())
    }
}

/// Looks at everything, in the order in which it depends on each other.
pub(super) async fn look(state: &Path) -> Findings {
    let mut findings = Findings::default();
    host::look(state, &mut findings);
    let status = running::look(state, &mut findings);
    reach::look(state, status.as_ref(), &mut findings).await;
    findings
}

/// What one look found, which is one check; who is told of trouble is told what to do.
#[cfg(test)]
fn seen(look: impl FnOnce(&mut Findings)) -> Check {
    let mut findings = Findings::default();
    look(&mut findings);
    let [check] = findings.checks.as_slice() else { panic!("{findings:?}") };
    assert_eq!(check.ok, check.remedy.is_none(), "{check:?}");
    check.clone()
}
