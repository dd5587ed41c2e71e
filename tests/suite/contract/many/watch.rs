//! Looking at hosts through the API, the whole time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_identity::TrustRoots;
use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls::client::https;
use hyper::Method;
use hyper::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::task::JoinSet;

use super::agent::DEADLINE;

/// How far apart looks begin at least.
const LOOK: Duration = Duration::from_millis(20);

/// Every state that each host was seen in, in order, without repetition.
type Seen = BTreeMap<String, Vec<(tokio::time::Instant, String)>>;

/// The API, as an operator asks it.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
    url: String,
    token: String,
}

impl Api {
    pub(super) fn new(roots: &TrustRoots, url: String, token: String) -> Self {
        Self { client: Client::new(https(roots).expect("a configuration")), url, token }
    }

    /// Where it is.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The token that is shown to it.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// What a path answers; nothing if the API does not answer with 200.
    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::new(Method::GET, format!("{}{path}", self.url)).bearer(&self.token).expect("a header");
        let response = self.client.request(request).await.ok().filter(|response| response.status == 200)?;
        Some(serde_json::from_slice(&response.body).expect("JSON"))
    }

    /// The status and the answer of a change.
    pub(super) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.try_post(path, body).await.expect("it answers")
    }

    /// The same; nothing if the door lets nobody more in at the moment.
    pub(super) async fn try_post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let request = Request::new(Method::POST, format!("{}{path}", self.url)).bearer(&self.token).expect("a header");
        let request = request.header(CONTENT_TYPE, "application/json").expect("a header").body(body.to_string());
        let response = self.client.request(request).await.ok()?;
        Some((response.status.as_u16(), serde_json::from_slice(&response.body).expect("JSON")))
    }
}

/// One that looks, until it is dropped.
pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    looks: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Watch {
    pub(super) fn start(api: &Api) -> Self {
        let seen = Arc::new(Mutex::new(Seen::new()));
        let mut task = JoinSet::new();
        let looks = Arc::new(AtomicUsize::new(0));
        task.spawn(look(api.clone(), Arc::clone(&seen), Arc::clone(&looks)));
        Self { seen, looks, _task: task }
    }

    /// The states that a host was seen in, in order.
    pub(super) fn states(&self, host: &str) -> Vec<String> {
        self.history(host).into_iter().map(|(_, state)| state).collect()
    }

    /// The same with when each was seen first.
    pub(super) fn history(&self, host: &str) -> Vec<(tokio::time::Instant, String)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned().unwrap_or_default()
    }

    /// Waits until every one of these hosts is seen in a state.
    pub(super) async fn until_all(&self, hosts: &[String], state: &str) {
        let is_so = |host: &String| self.states(host).last().is_some_and(|last| last == state);
        let wait = async {
            while !hosts.iter().all(is_so) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        let others: Vec<_> = hosts.iter().filter(|host| !is_so(host)).map(|host| (host, self.states(host))).collect();
        assert!(waited.is_ok(), "not {state}: {others:?}");
    }

    /// Waits until the API has answered so many times more.
    pub(super) async fn more_looks(&self, count: usize) {
        let wanted = self.looks.load(Ordering::SeqCst) + count;
        let wait = async {
            while self.looks.load(Ordering::SeqCst) < wanted {
                tokio::time::sleep(LOOK).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "the API does not answer");
    }

    /// Forgets what was seen, but for how each host is now.
    pub(super) fn forget(&self) {
        for states in self.seen.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            states.drain(..states.len().saturating_sub(1));
        }
    }
}

async fn look(api: Api, seen: Arc<Mutex<Seen>>, looks: Arc<AtomicUsize>) {
    loop {
        let next = tokio::time::Instant::now() + LOOK;
        if let Some(page) = api.get("/v1/hosts?limit=500").await {
            let now = tokio::time::Instant::now();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            for host in page["items"].as_array().expect("a page of hosts") {
                let word = |field: &str| host[field].as_str().expect("text").to_owned();
                let states = seen.entry(word("name")).or_default();
                if states.last().is_none_or(|(_, last)| *last != word("state")) {
                    states.push((now, word("state")));
                }
            }
            looks.fetch_add(1, Ordering::SeqCst);
        }
        tokio::time::sleep_until(next).await;
    }
}
