//! The first fact that a proof of convergence lacks, in words: what it is, and what would satisfy it.
//!
//! - The facts are the model's; here each gets its words once, so that the API, `holdfast explain host` and whoever else tells it say the same.

use holdfast_model::condition::Holds;
use holdfast_model::desired::Component;
use holdfast_model::status::{BOOTSTRAP_MS, Bootstrap, Initialized, Missing};

use crate::status::{InitializedView, MissingView};

impl MissingView {
    /// The words of a fact.
    #[must_use]
    pub fn of(missing: Missing) -> Self {
        let condition = missing.condition().map(|kind| kind.word().to_owned());
        Self {
            fact: missing.word().to_owned(),
            condition,
            text: text(missing),
            satisfied_by: satisfied_by(missing).to_owned(),
        }
    }
}

impl InitializedView {
    /// The words of what a bootstrap came to.
    #[must_use]
    pub fn of(initialized: Initialized) -> Self {
        let Initialized { bootstrap, component } = initialized;
        let part = component.map_or("every component", Component::word);
        let text = match bootstrap {
            Bootstrap::Complete => "every component is, or was in this session, in force".to_owned(),
            Bootstrap::Pending => format!("{part} is on its way, and not late"),
            Bootstrap::Missing => format!("there is nothing to bring of {part}: not rendered, or no session yet"),
            Bootstrap::Failed => format!("the host did not take {part}"),
            Bootstrap::Oversized => format!("{part} is larger than what travels"),
            Bootstrap::TimedOut => format!("nothing came of {part} within {} s", BOOTSTRAP_MS / 1_000),
            Bootstrap::Mismatched => format!("what came of {part} is not what was rendered"),
        };
        Self { outcome: bootstrap.word().to_owned(), component: component.map(|one| one.word().to_owned()), text }
    }
}

fn text(missing: Missing) -> String {
    let fixed = match missing {
        Missing::Readable => "something that is stored of it cannot be read, so nothing of it is believed",
        Missing::Rendered => "nothing was rendered for it yet",
        Missing::Session => "its agent never opened a session",
        Missing::OpenSession => "its agent has no open session",
        Missing::FreshSession => "its agent was not heard for 45 s, though its session is open",
        Missing::Answer => "its agent has not answered for this component yet",
        Missing::AnswerInSession => "what its agent last said is of an earlier session",
        Missing::Signature => "the signature on what was said in its name is not its own",
        Missing::Success => "it did not take the latest version; its last good one is in force",
        Missing::OwnPolicyGone => "a policy of the host's own is in force instead",
        Missing::ReportInTime => {
            "its agent has said nothing of the host as a whole for 15 min, though its session is open"
        }
        Missing::Latest => "its agent has not said that the latest version is in force",
        Missing::SameContent => "it holds the latest version with other content",
        Missing::Held => "a rollout holds it at an earlier revision, of which it has what it is to have",
        Missing::Report => "its agent has said nothing of the host as a whole in this session",
        Missing::NewerReport => "what its agent said of the host as a whole is older than its last outcome",
        Missing::Trial => "its policy is on trial: it has still to prove that it leads to a gateway",
        Missing::Condition(kind, Holds::False) => return format!("{kind} is false at the latest version"),
        Missing::Condition(kind, Holds::Unknown | Holds::True) => {
            return format!("{kind} was not seen at the latest version");
        }
        Missing::Degrading(kind) => return format!("{kind} is false; it holds the latest version all the same"),
    };
    fixed.to_owned()
}

const fn satisfied_by(missing: Missing) -> &'static str {
    match missing {
        Missing::Readable => {
            "what was written wrong is put right in the database: `holdfast describe host` names its column"
        }
        Missing::Rendered => "a render: `holdfast doctor` says whether a renderer leads",
        Missing::Session | Missing::OpenSession => {
            "its agent dials a gateway: on the host, `holdfast-agent doctor` says what keeps it"
        }
        Missing::FreshSession => {
            "a sign of life, which its agent sends every 15 s: on the host, `holdfast-agent status`"
        }
        Missing::Answer | Missing::AnswerInSession | Missing::Latest => {
            "a signed outcome of the latest version, in this session; one that stays away is asked for by `holdfast host resend-snapshot`"
        }
        Missing::Signature => {
            "an outcome that is signed with the key of its enrolment; a host that lost it must be enrolled anew"
        }
        Missing::Success => {
            "a version that it takes; or, once its cause is mended, the same: `holdfast host resend-snapshot`"
        }
        Missing::Report | Missing::NewerReport | Missing::ReportInTime => {
            "a signed status, which its agent sends after each outcome and every five minutes: refused ones are in `holdfast audit tail --kind protocol.fault`"
        }
        Missing::Trial => {
            "an echo of a gateway over a new connection, which its agent tries twice a second: on the host, `holdfast-agent doctor`"
        }
        Missing::OwnPolicyGone => "on the host: `holdfast-agent override --clear`",
        Missing::SameContent => {
            "a snapshot that puts it right: `holdfast host resend-snapshot`; if it stays so, its database and yours differ: `holdfast authority show`"
        }
        Missing::Condition(_, Holds::False) => {
            "the condition turns true: its reason is in `holdfast describe host`, and `holdfast host resend-snapshot` has it tried again"
        }
        Missing::Condition(_, Holds::Unknown | Holds::True) => {
            "an outcome that has seen it: `holdfast host resend-snapshot` has it looked at again"
        }
        Missing::Held => "its stage opens: `holdfast rollout list` says how far the rollout is",
        Missing::Degrading(_) => "the condition turns true: its reason is in `holdfast describe host`",
    }
}

#[cfg(test)]
mod tests {
    use holdfast_model::condition::ConditionType;
    use holdfast_model::report::REPORT_LATE_MS;
    use holdfast_model::status::FRESH_MS;

    use super::*;

    #[test]
    fn every_fact_has_words_of_its_own_and_those_of_freshness_have_its_number() {
        let kind = ConditionType::Applied;
        let all = [
            Missing::Readable,
            Missing::Rendered,
            Missing::Session,
            Missing::OpenSession,
            Missing::FreshSession,
            Missing::Answer,
            Missing::AnswerInSession,
            Missing::Signature,
            Missing::Success,
            Missing::OwnPolicyGone,
            Missing::Latest,
            Missing::SameContent,
            Missing::Held,
            Missing::Report,
            Missing::ReportInTime,
            Missing::NewerReport,
            Missing::Trial,
            Missing::Condition(kind, Holds::False),
            Missing::Condition(kind, Holds::Unknown),
            Missing::Degrading(kind),
        ];
        let views = all.map(MissingView::of);
        let texts: std::collections::BTreeSet<&str> = views.iter().map(|view| view.text.as_str()).collect();
        assert_eq!(texts.len(), all.len());
        assert!(MissingView::of(Missing::FreshSession).text.contains(&format!("{} s", FRESH_MS / 1_000)));
        assert!(MissingView::of(Missing::ReportInTime).text.contains(&format!("{} min", REPORT_LATE_MS / 60_000)));
        assert_eq!(MissingView::of(Missing::Condition(kind, Holds::False)).condition.as_deref(), Some("Applied"));
        assert_eq!(MissingView::of(Missing::Latest).condition, None);
    }

    #[test]
    fn every_outcome_of_a_bootstrap_has_words_of_its_own() {
        let of = |bootstrap| InitializedView::of(Initialized { bootstrap, component: Some(Component::Settings) });
        let views = Bootstrap::ALL.map(of);
        let texts: std::collections::BTreeSet<&str> = views.iter().map(|view| view.text.as_str()).collect();
        let outcomes: std::collections::BTreeSet<&str> = views.iter().map(|view| view.outcome.as_str()).collect();
        assert_eq!((texts.len(), outcomes.len()), (views.len(), views.len()));
    }
}
