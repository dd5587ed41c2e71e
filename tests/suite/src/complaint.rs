//! What processes of ours complain of, and what a test may excuse.
//!
//! - An excuse names one line of one kind of process and why: whatever is like it, and is not it, stays a complaint.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// One line of a log that says that something is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    log: PathBuf,
    line: String,
}

impl Complaint {
    pub(crate) fn new(log: &Path, line: &str) -> Self {
        Self { log: log.to_owned(), line: line.to_owned() }
    }

    /// Whether an agent says only that there is no session with a gateway because it has no process there, or lost the one that it had: what the
    /// kill of that gateway provokes in whoever dials it before it is back.
    #[must_use]
    pub fn is_of_killed_gateway(&self, port: u16) -> bool {
        // Refused while nobody listens; the others where the kill met a connection that was just being made.
        const ENDS: [&str; 5] = [
            "cannot connect to the gateway: Connection refused",
            "cannot connect to the gateway: Connection reset by peer",
            "the handshake with the gateway failed: Connection reset by peer",
            "the handshake with the gateway failed: Broken pipe",
            "the handshake with the gateway failed: tls handshake eof",
        ];
        self.is_of_session(port, &ENDS)
    }

    /// The same of a gateway that was killed, or that the network lost: who dials it then waits in vain.
    #[must_use]
    pub fn is_of_lost_gateway(&self, port: u16) -> bool {
        self.is_of_killed_gateway(port) || self.is_of_session(port, &["the gateway does not answer"])
    }

    /// Whether an agent says only that the poll that it had at a gateway has no answer: what the kill of that gateway provokes in whoever polls it.
    #[must_use]
    pub fn is_of_killed_poll(&self, port: u16) -> bool {
        const SAID: &str = " WARN holdfast_agent::session::poll: a poll has no answer gateway=\"";
        let Some((_, said)) = self.line.split_once(SAID) else { return false };
        let Some((gateway, error)) = said.split_once("\" error=\"") else { return false };
        // It waited for an answer, or was just being made.
        const ENDS: [&str; 3] = ["the exchange with ", "cannot connect to ", "cannot agree on TLS with "];
        let hung_up = error.contains(" takes the connection and hangs up");
        let is_end = hung_up || ENDS.iter().any(|end| error.starts_with(end));
        self.is_of_agent() && gateway.ends_with(&format!(":{port}")) && is_end
    }

    fn is_of_session(&self, port: u16, ends: &[&str]) -> bool {
        let Some((_, said)) =
            self.line.split_once(" WARN holdfast_agent::session: no session with the gateway gateway=\"")
        else {
            return false;
        };
        let Some((gateway, error)) = said.split_once("\" error=\"") else { return false };
        self.is_of_agent() && gateway.ends_with(&format!(":{port}")) && ends.iter().any(|end| error.starts_with(end))
    }

    /// Whether an agent says only that another process changed its table, and that it put it right.
    #[must_use]
    pub fn is_of_drift(&self) -> bool {
        const SAID: [&str; 2] = [
            " WARN holdfast_agent::service::worker::thread: another process changed our table ",
            " WARN holdfast_agent::service::worker::thread: our table is repaired",
        ];
        self.is_of_agent() && SAID.iter().any(|said| self.line.contains(said))
    }

    /// Whether a service says only that it lost its connection to NATS.
    #[must_use]
    pub fn is_of_lost_nats(&self) -> bool {
        self.says(" WARN holdfast_bus::connect: disconnected from NATS; sessions live on and events wait")
    }

    /// Whether the renderer names a stream that another hand changed.
    #[must_use]
    pub fn is_of_foreign_stream(&self) -> bool {
        self.says("ERROR holdfast_renderer::leader::streams: a stream is not ours ")
    }

    /// Whether the relay or the audit service names a message of another hand in the event stream.
    #[must_use]
    pub fn is_of_foreign_event(&self) -> bool {
        self.says("ERROR holdfast_renderer::leader::relay: the event stream holds what this database never wrote;")
            || self.says(" WARN holdfast_audit::keeper: a message in the event stream is no event ")
    }

    /// Whether a service says only that NATS did not let it publish on this subject.
    #[must_use]
    pub fn is_of_denied_publish(&self, subject: &str) -> bool {
        let denied = format!("error=nats: Permissions Violation for Publish to \"{subject}\"");
        self.says(" WARN holdfast_bus::connect: NATS reports an error ") && self.says(&denied)
    }

    /// Whether a service says only that something came that is no hint.
    #[must_use]
    pub fn is_of_no_hint(&self) -> bool {
        self.says(" WARN holdfast_bus::hints: a message that is no hint is passed over ")
    }

    /// Whether a service says only that the database is away: what provokes that is a test's.
    #[must_use]
    pub fn is_of_absent_database(&self) -> bool {
        const WORDS: [&str; 7] = [
            // A lease is renewed in the database.
            " no longer leading term=",
            " the lease was not renewed ",
            "error occurred while testing the connection on-release",
            "the database does not answer",
            "the database took longer than",
            "the connection was lost while committing",
            "no database connection to be had; replacing the pool",
        ];
        // The pool's own word for a connection that ended while it was made ready.
        let is_unready = self.says("ERROR sqlx_core::pool::inner: error returned from after_connect ");
        is_unready || self.says(" WARN ") && WORDS.iter().any(|word| self.says(word))
    }

    /// Whether a service says only that a statement or a connection took long: a test's machine has other work too.
    #[must_use]
    pub fn is_of_slow_statement(&self) -> bool {
        self.says(" WARN sqlx::query: slow statement: ")
            || self.says(" WARN sqlx::pool::acquire: acquired connection, but ")
    }

    fn says(&self, text: &str) -> bool {
        self.line.contains(text)
    }

    /// Whether the agent of a host says only that it did not take a policy, for this reason.
    #[must_use]
    pub fn is_of_refused_policy(&self, host: &str, reason: &str) -> bool {
        self.is_of_agent_of(host)
            && self.says(" WARN holdfast_agent::service::worker::thread: policy is not in force ")
            && self.says(&format!(" reason={reason} "))
    }

    /// Whether the agent of a host began to say that it did not take a policy, and the line is cut before the reason: its log is on a disk that is full.
    #[must_use]
    pub fn is_of_refused_policy_and_cut(&self, host: &str) -> bool {
        self.is_of_agent_of(host)
            && self.says(" WARN holdfast_agent::service::worker::thread: policy")
            && !self.says(" reason=")
    }

    /// Whether the agent of a host says only that it cannot keep on its disk that a policy is confirmed; the line may be cut.
    #[must_use]
    pub fn is_of_unkept_trial(&self, host: &str) -> bool {
        self.is_of_agent_of(host)
            && self.says(" WARN holdfast_agent::service::worker::trials: that a policy is confirmed")
    }

    /// Whether the agent of a host says only that it refused an update as it came, for this reason.
    #[must_use]
    pub fn is_of_refused_update(&self, host: &str, reason: &str) -> bool {
        self.is_of_agent_of(host)
            && self.says(" WARN holdfast_agent::session::drive: an update is refused as it came ")
            && self.line.ends_with(&format!(" reason={reason}"))
    }

    /// Whether a service of this name says it.
    #[must_use]
    pub fn is_of_service(&self, service: &str) -> bool {
        !self.is_of_agent() && self.log.file_stem().is_some_and(|stem| stem == service)
    }

    /// Whether the agent of this host says it.
    #[must_use]
    pub fn is_of_agent_of(&self, host: &str) -> bool {
        let folder = self.log.parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or_default();
        self.is_of_agent() && folder.starts_with(&format!("{host}-"))
    }

    fn is_of_agent(&self) -> bool {
        self.log.file_name().is_some_and(|name| name == "agent.log")
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.log.display(), self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "2026-11-29T16:00:00.000000Z  WARN holdfast_agent::session: no session with the gateway \
         gateway=\"198.19.240.2:7443\" error=\"cannot connect to the gateway: Connection refused (os error 111)\"";

    #[test]
    fn only_an_agent_that_finds_the_killed_gateway_gone_is_excused() {
        let of = |log: &str, line: &str| Complaint::new(Path::new(log), line);
        let excused = |line: &str| of("hosts/web-1/agent.log", line).is_of_killed_gateway(7443);
        assert!(excused(REFUSED));
        assert!(excused(&REFUSED.replace(
            "cannot connect to the gateway: Connection refused (os error 111)",
            "the handshake with the gateway failed: tls handshake eof"
        )));
        assert!(!excused(&REFUSED.replace(":7443", ":7444")), "the other gateway was there");
        assert!(!excused(&REFUSED.replace("Connection refused", "No route to host")));
        assert!(!excused(&REFUSED.replace(" WARN ", " ERROR ")));
        assert!(!excused("2026-11-29T16:00:00.000000Z  WARN holdfast_agent::service: policy is not in force"));
        assert!(!of("run/renderer.log", REFUSED).is_of_killed_gateway(7443));
    }

    #[test]
    fn only_the_host_that_refused_for_that_reason_is_excused() {
        let line = "2026-11-29T16:00:00.000000Z  WARN holdfast_agent::service::worker::thread: policy is not in force version=7 \
                    digest=\"3b78d651b28b\" reason=wrong_digest detail=\"the content differs\"";
        let excused =
            |log: &str, line: &str| Complaint::new(Path::new(log), line).is_of_refused_policy("db-1", "wrong_digest");
        assert!(excused("hosts/db-1-8aca18/agent.log", line));
        assert!(!excused("hosts/db-2-8aca18/agent.log", line));
        assert!(!excused("hosts/db-1-8aca18/agent.log", &line.replace("wrong_digest", "read_back_differs")));
        assert!(!excused("run/renderer.log", line));
        let cut = |line: &str| {
            Complaint::new(Path::new("hosts/db-1-8aca18/agent.log"), line).is_of_refused_policy_and_cut("db-1")
        };
        assert!(cut(line.split_once(" reason=").expect("a reason").0) && !cut(line));
        let unkept = "2026-11-29T16:00:00.000000Z  WARN holdfast_agent::service::worker::trials: that a policy is confirmed cannot";
        let of = |log: &str, line: &str| Complaint::new(Path::new(log), line).is_of_unkept_trial("db-1");
        assert!(of("hosts/db-1-8aca18/agent.log", unkept) && !of("hosts/db-2-8aca18/agent.log", unkept));
        assert!(!of("hosts/db-1-8aca18/agent.log", line));
        let line = "2026-11-29T16:00:00.000000Z  WARN holdfast_agent::session::drive: an update is refused as it came \
                    gateway=\"10.71.0.1:7443\" component=policy version=7 digest=\"3b78d651b28b\" reason=bad_signature";
        let refused = Complaint::new(Path::new("hosts/web-1-8aca18/agent.log"), line);
        assert!(refused.is_of_refused_update("web-1", "bad_signature"));
        assert!(!refused.is_of_refused_update("web-2", "bad_signature"));
        assert!(!refused.is_of_refused_update("web-1", "backward"));
    }

    #[test]
    fn what_a_fault_provokes_in_a_service_is_excused_by_its_own_words_and_no_others() {
        let of =
            |line: &str| Complaint::new(Path::new("run/renderer.log"), &format!("2026-11-29T16:00:00.000000Z {line}"));
        let lost = of(" WARN holdfast_bus::connect: disconnected from NATS; sessions live on and events wait");
        assert!(lost.is_of_service("renderer") && !lost.is_of_service("audit") && !lost.is_of_agent_of("renderer"));
        assert!(lost.is_of_lost_nats() && !lost.is_of_absent_database() && !lost.is_of_foreign_stream());
        let foreign = of(" WARN holdfast_audit::keeper: a message in the event stream is no event sequence=603");
        assert!(foreign.is_of_foreign_event() && !lost.is_of_foreign_event());
        let denied = of(
            " WARN holdfast_bus::connect: NATS reports an error error=nats: Permissions Violation for Publish to \"holdfast.hint.host\"",
        );
        assert!(
            denied.is_of_denied_publish("holdfast.hint.host") && !denied.is_of_denied_publish("holdfast.hint.event")
        );
        let away = of(
            " WARN holdfast_renderer::leader: the lease cannot be claimed error=the database does not answer (connect): reset",
        );
        assert!(away.is_of_absent_database() && !away.is_of_slow_statement());
        assert!(!of("ERROR holdfast_renderer::leader: the database does not answer").is_of_absent_database());
        assert!(!of(" WARN holdfast_renderer::leader: a render did not come back").is_of_absent_database());
    }
}
