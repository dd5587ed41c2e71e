//! A log that is followed: over breaks of the answer, to the end of the token, and to the end of patience.

use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::stream;
use holdfast_gateway::operators::AuditDoor;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::audit::{mk_log, serve_router};
use crate::plane::Plane;

/// Longer than a token that is good no longer may read on.
const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_followed_log_goes_on_behind_its_last_entry_over_a_break_until_its_token_is_revoked_or_past_its_time() {
    let (lines, _) = mk_log(6);
    for end in ["revoked", "expired"] {
        let log = Log::start(&lines[..3]);
        let plane = Plane::start_with(Some(log.serve().await)).await;
        let made = plane.run(&["api-token", "create", "reader", "--role", "auditor", "-o", "json"]).await.json();
        let (secret, id) = (made["secret"].as_str().expect("a secret"), made["token"]["id"].as_str().expect("an id"));
        let mut reader = Follower::start(&plane, secret, &["--from", "1"]);
        assert_eq!(reader.next(3).await, lines[..3], "{end}");
        log.change(|state| state.breaks += 1);
        log.change(|state| state.lines = lines[..5].to_vec());
        assert_eq!(reader.next(2).await, lines[3..5], "each once, {end}");

        if end == "revoked" {
            plane.run(&["api-token", "revoke", id]).await.ended(0);
        } else {
            plane.postgres.sql("UPDATE api_tokens SET expires_at = now() WHERE name = 'reader'");
        }
        let (code, rest, said) = reader.ended().await;
        assert_eq!((code, rest.as_str()), (5, ""), "{end}: {said}");
        assert!(said.contains("broke off; asking again from entry 4 on"), "{said}");
        assert!(said.contains("the audit log is followed again"), "{said}");
        assert!(said.contains("the token is unknown, revoked or past its time"), "{said}");
    }
}

#[tokio::test]
async fn a_followed_log_that_stays_away_is_an_error_and_one_that_never_was_there_is_one_at_once() {
    let (lines, _) = mk_log(2);
    let log = Log::start(&lines);
    let plane = Plane::start_with(Some(log.serve().await)).await;
    let mut reader = Follower::start(&plane, plane.admin(), &["--from", "1", "--retry-for", "1s"]);
    assert_eq!(reader.next(2).await, lines);
    log.change(|state| state.away = true);
    let (code, rest, said) = reader.ended().await;
    assert_eq!((code, rest.as_str()), (1, ""), "{said}");
    assert!(said.contains("asking again from entry 3 on, for 1 s") && said.contains("audit-unavailable"), "{said}");

    let refused = plane.run(&["audit", "tail", "--from", "1", "--follow", "--retry-for", "1h"]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
}

/// The command, whose lines are read as they come.
struct Follower {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(plane: &Plane, token: &str, arguments: &[&str]) -> Self {
        let arguments = [&["audit", "tail", "--follow", "-o", "json"], arguments].concat();
        let mut command = plane.command(token, &arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Self { child, stdout }
    }

    /// The next lines, with their ends.
    async fn next(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < count {
            let line = timeout(DEADLINE, self.stdout.next_line()).await.expect("in time").expect("it is text");
            lines.push(line.expect("it goes on") + "\n");
        }
        lines
    }

    /// How it ended, what it printed since, and what it said on stderr.
    async fn ended(mut self) -> (i32, String, String) {
        let status =
            timeout(DEADLINE, self.child.wait()).await.expect("it ends in time").expect("it is a child of ours");
        let (mut rest, mut said) = (String::new(), String::new());
        while let Some(line) = self.stdout.next_line().await.expect("it is text") {
            rest += &line;
        }
        self.child.stderr.take().expect("it is a pipe").read_to_string(&mut said).await.expect("it is text");
        (status.code().expect("it ended by itself"), rest, said)
    }
}

/// What the stand-in for the audit service has.
#[derive(Clone, Default)]
struct State {
    lines: Vec<String>,
    /// How often answers broke off.
    breaks: u64,
    /// Whether it refuses everybody.
    away: bool,
}

/// A stand-in whose log grows, and whose answers break.
struct Log(watch::Sender<State>);

impl Log {
    fn start(lines: &[String]) -> Self {
        Self(watch::channel(State { lines: lines.to_vec(), ..State::default() }).0)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.0.send_modify(change);
    }

    async fn serve(&self) -> AuditDoor {
        let state = self.0.subscribe();
        let entries = async move |RawQuery(query): RawQuery| answer(state.clone(), &query.unwrap_or_default());
        serve_router(Router::new().route("/v1/audit/entries", get(entries))).await
    }
}

/// The entries from one on, and what comes, until the answers break.
fn answer(state: watch::Receiver<State>, query: &str) -> Response {
    let of = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let from: usize = of("from").and_then(|from| from.parse().ok()).expect("the command names an entry");
    assert_eq!(of("follow"), Some("true"));
    let begun = state.borrow().clone();
    if begun.away {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let next = move |(mut state, given): (watch::Receiver<State>, usize)| async move {
        let seen = state.wait_for(|now| now.lines.len() > given || now.breaks > begun.breaks || now.away).await;
        let seen = seen.ok()?.clone();
        if seen.breaks > begun.breaks || seen.away {
            return Some((Err(std::io::Error::other("it breaks")), (state, given)));
        }
        let more: String = seen.lines[given..].concat();
        Some((Ok(Bytes::from(more)), (state, seen.lines.len())))
    };
    Body::from_stream(stream::unfold((state, from - 1), next)).into_response()
}
