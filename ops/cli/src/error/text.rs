//! How an error is told: to people, every finding with its place and rule, and to programs.

use std::fmt::Write as _;

use holdfast_api::problem::Problem;

use super::Error;

impl Error {
    /// For people: what happened, every finding on a line of its own, and the request's id.
    pub(crate) fn to_text(&self) -> String {
        let Self::Refused(problem) = self else {
            let advice = self.advice().map(|advice| format!("\n  -> {advice}")).unwrap_or_default();
            return format!("error: {} [{}]{advice}", chain(self), self.rule());
        };
        let mut text = String::new();
        // Writing into a string does not fail.
        let _written = refusal(&mut text, problem);
        if let Some(advice) = self.advice() {
            text.push_str("\n  -> ");
            text.push_str(&advice);
        }
        text
    }

    /// For programs: the API's problem as it came, or one of the same form.
    pub(crate) fn to_json(&self) -> String {
        if let Self::Refused(problem) = self {
            return serde_json::to_string(problem).unwrap_or_else(|_| self.to_text());
        }
        let problem = serde_json::json!({
            "type": "urn:holdfast:problem:client",
            "title": "The command did not reach its end",
            "detail": chain(self),
            "advice": self.advice(),
            "rule": self.rule(),
        });
        problem.to_string()
    }
}

fn refusal(text: &mut String, problem: &Problem) -> std::fmt::Result {
    write!(text, "error: {}", problem.detail)?;
    for finding in &problem.findings {
        if finding.file.is_empty() && finding.message == problem.detail {
            // It was just said; only the rule is new.
            write!(text, " [{}]", finding.rule)?;
            continue;
        }
        text.push_str("\n  ");
        if !finding.file.is_empty() {
            text.push_str(&finding.file);
            if finding.line > 0 {
                write!(text, ":{}", finding.line)?;
            }
            text.push_str(": ");
        }
        if finding.document > 0 {
            write!(text, "document {}: ", finding.document)?;
        }
        if !finding.path.is_empty() {
            write!(text, "{}: ", finding.path)?;
        }
        write!(text, "{} [{}]", finding.message, finding.rule)?;
    }
    if let Some(id) = &problem.request_id {
        write!(text, "\n  request {id}, {} ({})", problem.kind, problem.status)?;
    }
    Ok(())
}

/// The text of an error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_api::problem::{Finding, ProblemType};

    #[test]
    fn what_was_just_said_is_not_said_again() {
        let mut problem = Problem::new(ProblemType::InvalidRequest, "a service is written as 443/tcp");
        problem.findings.push(Finding {
            file: String::new(),
            document: 0,
            line: 0,
            path: "service".to_owned(),
            rule: "service".to_owned(),
            message: "a service is written as 443/tcp".to_owned(),
        });
        let text = Error::Refused(Box::new(problem)).to_text();
        assert_eq!(text, "error: a service is written as 443/tcp [service]");
    }

    #[test]
    fn every_finding_has_a_line_with_its_place_and_rule() {
        let mut problem = Problem::new(ProblemType::DocumentsRefused, "the input has 1 fault");
        problem.request_id = Some("r1".to_owned());
        problem.findings.push(Finding {
            file: "a.yaml".to_owned(),
            document: 2,
            line: 9,
            path: "spec.ingress[0].from[0].cidr".to_owned(),
            rule: "cidr".to_owned(),
            message: "`x` is no prefix".to_owned(),
        });
        let text = Error::Refused(Box::new(problem)).to_text();
        assert_eq!(
            text,
            "error: the input has 1 fault\n  a.yaml:9: document 2: spec.ingress[0].from[0].cidr: `x` is no prefix \
             [cidr]\n  request r1, urn:holdfast:problem:documents-refused (422)"
        );
    }
}
