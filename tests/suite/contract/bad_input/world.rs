//! A running control plane with something in it, and what of it nothing malformed may change.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Output;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{Client, Request, Response};
use holdfast_identity::tls::client::{AgentProtocol, agent, enrolment, https};
use holdfast_identity::tls::install_crypto_provider;
use holdfast_identity::{Ca, Credential, LeafKey, SigningKey, TrustRoots};
use holdfast_model::ids::HostId;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;

const DEADLINE: Duration = Duration::from_secs(30);

/// Everything that is kept, but for who is there now, and for what numbers, renders and settles a moment later.
const KEPT: &str = "select string_agg(md5(t), ' ' order by md5(t)) from (\
    select 'object' || x::text t from objects x union all select 'revision' || x::text from revisions x \
    union all select 'host' || x::text from hosts x union all select 'fact' || x::text from host_facts x \
    union all select 'state' || x::text from desired_states x union all select 'latest' || x::text from desired_latest x \
    union all select 'artifact' || md5(x.digest) from artifacts x union all select 'token' || x::text from api_tokens x \
    union all select 'hash' || x::text from api_token_hashes x union all select 'enrol' || (to_jsonb(x) - 'uses')::text from enrol_tokens x \
    union all select 'enrol hash' || x::text from enrol_token_hashes x union all select 'cert' || x::text from certificates x \
    union all select 'authority' || x::text from authority x) kept";
/// The events, but for the end of an operation, which comes when it comes; requests to the renderer; sessions.
const TRACES: &str = "select (select count(*) from events where kind not like 'operation%') || ' ' || (select count(*) from requests) || ' ' || (select sum(uses) from enrol_tokens) || ' ' || \
    (select count(*) from operations) || ' ' || (select coalesce(sum(session_epoch), 0) from sessions)";

/// What a malformed input may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaves {
    /// Not even an event.
    Nothing,
    /// Events that say that somebody did wrong: of a session, of a refused enrolment.
    Trace,
}

/// What was said of a malformed input.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) rules: Vec<String>,
    pub(crate) text: String,
}

impl Said {
    /// What a program said on stderr: the rules stand in brackets at the ends of lines.
    pub(crate) fn by_program(output: &Output) -> Self {
        if output.status.success() {
            return Self { rules: Vec::new(), text: format!("it was taken: {output:?}") };
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let rule = |line: &str| Some(line.trim_end().strip_suffix(']')?.rsplit_once('[')?.1.to_owned());
        Self { rules: text.lines().filter_map(rule).collect(), text }
    }

    /// What a door answered: the rules of the findings, or the type.
    pub(crate) fn by_door(status: u16, body: &[u8]) -> Self {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if problem["status"] != status {
            let text = format!("{status} without a problem: {}", String::from_utf8_lossy(body));
            return Self { rules: Vec::new(), text };
        }
        let findings = problem["findings"].as_array().cloned().unwrap_or_default();
        let mut rules: Vec<String> = findings.iter().map(|finding| word(&finding["rule"])).collect();
        if rules.is_empty() {
            rules.push(word(&problem["type"]).trim_start_matches("urn:holdfast:problem:").to_owned());
        }
        let places =
            findings.iter().map(|finding| format!("{}: {}", word(&finding["path"]), word(&finding["message"])));
        Self { rules, text: format!("{} {}", word(&problem["detail"]), places.collect::<Vec<_>>().join("; ")) }
    }
}

/// An enrolled host, as its agent would be.
pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) credential: Credential,
}

/// A control plane with a policy and a host in it.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) roots: TrustRoots,
    pub(crate) host: Host,
    /// The text of an enrolment token that is good.
    pub(crate) good: String,
    seen: BTreeSet<String>,
    wrong: Vec<String>,
    before: [String; 2],
}

impl World {
    pub(crate) async fn start() -> Self {
        install_crypto_provider();
        let plane = ControlPlane::start().await;
        let roots = TrustRoots::load(&plane.keys("public").join("ca.pem")).expect("init made it");
        let text = "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {name: kept}\nspec:\n  hostSelector: {all: true}\n  \
                    ingress: [{from: [{cidr: 192.0.2.0/24}]}]\n---\napiVersion: holdfast.dev/v1\nkind: Endpoint\n\
                    metadata: {name: both}\nspec: {addresses: [192.0.2.9]}\n";
        let file = plane.file("kept.yaml", text);
        let applied = plane.holdfast(&["apply", "-f", &file.display().to_string()]);
        assert!(applied.status.success(), "{applied:?}");
        let good = enrol_token(&plane, &["--uses", "100", "--address", "10.0.0.0/8"]);
        let host = enrol(&plane, &roots, &good, "both", "10.0.0.1").await;
        let mut world = Self {
            plane,
            roots,
            host,
            good,
            seen: BTreeSet::new(),
            wrong: Vec::new(),
            before: [String::new(), String::new()],
        };
        world.settle();
        world
    }

    /// Waits until what was done is rendered, numbered and at its end, and takes that for what must stay.
    pub(crate) fn settle(&mut self) {
        let busy = "select (select count(*) from events e left join event_order o using (event_id) where o.seq is null) \
                    + (select count(*) from hosts h where (select count(*) from desired_latest d where d.host_id = h.host_id) < 4) \
                    + (select max(revision) from revisions) - (select max(revision) from render_progress)";
        let deadline = Instant::now() + DEADLINE;
        let mut last = [String::new(), String::new()];
        loop {
            let now = self.state();
            if self.plane.postgres.sql(busy).trim() == "0" && now == last {
                break;
            }
            assert!(Instant::now() < deadline, "the control plane does not come to rest");
            last = now;
            std::thread::sleep(Duration::from_millis(100));
        }
        self.before = last;
    }

    fn state(&self) -> [String; 2] {
        let both = self.plane.postgres.sql(&format!("{KEPT}; {TRACES}"));
        let (kept, traces) = both.trim().split_once('\n').expect("one row each");
        [kept.to_owned(), traces.to_owned()]
    }

    /// Holds what was said against what must be said, and everything that is kept against what it was before.
    pub(crate) fn refused(&mut self, rule: &str, place: &str, leaves: Leaves, said: &Said) {
        self.refused_again(rule, place, leaves, said);
        self.hold(self.seen.contains(rule), || format!("two inputs break the rule {rule}"));
        self.seen.insert(rule.to_owned());
    }

    /// The same for one more input that breaks a rule that another one breaks too.
    pub(crate) fn refused_again(&mut self, rule: &str, place: &str, leaves: Leaves, said: &Said) {
        let named = said.rules.iter().any(|found| found == rule) && said.text.contains(place);
        self.hold(!named, || format!("wanted {rule} at {place}: {said:?}"));
        let now = self.state();
        self.hold(now[0] != self.before[0], || format!("{rule}: something was changed"));
        if leaves == Leaves::Nothing {
            let (before, after) = (self.before[1].clone(), now[1].clone());
            self.hold(before != after, || format!("{rule}: {before} became {after}"));
        }
        self.before = now;
        self.plane.assert_runs();
    }

    /// Keeps what is wrong, so that one run tells all of it.
    fn hold(&mut self, is_wrong: bool, what: impl FnOnce() -> String) {
        if is_wrong {
            let what = what();
            self.wrong.push(what);
        }
    }

    /// Fails if anything was wrong.
    pub(crate) fn assert_right(&self) {
        assert!(self.wrong.is_empty(), "{} are wrong:\n{}", self.wrong.len(), self.wrong.join("\n"));
    }

    /// The rules that were broken so far.
    pub(crate) const fn seen(&self) -> &BTreeSet<String> {
        &self.seen
    }

    /// Asks the API as it is said.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        token: &str,
        head: &[(HeaderName, &str)],
        body: &[u8],
    ) -> Response {
        let client = Client::new(https(&self.roots).expect("a configuration"));
        let mut request = Request::new(method, format!("{}{path}", self.plane.api())).bearer(token).expect("a header");
        for (name, value) in head {
            request = request.header(name.clone(), value).expect("a header");
        }
        client.request(request.body(body.to_vec())).await.expect("the API answers")
    }

    /// How the host's agent would begin TLS.
    pub(crate) fn agent_tls(&self, protocol: AgentProtocol) -> ClientConfig {
        agent(&self.host.credential, &self.roots, protocol).expect("a configuration")
    }

    /// The CA itself.
    pub(crate) fn ca(&self) -> Ca {
        Ca::load(&self.plane.keys("renderer")).expect("init made it")
    }
}

/// A new enrolment token.
pub(crate) fn enrol_token(plane: &ControlPlane, arguments: &[&str]) -> String {
    let made = plane.holdfast(&[&["enrol-token", "create"], arguments].concat());
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

/// What a host says to be enrolled, and the key of its certificate.
pub(crate) fn enrol_request(token: &str, name: &str, address: &str) -> (Value, LeafKey) {
    let key = LeafKey::generate().expect("a key");
    let address: IpAddr = address.parse().expect("an address");
    let request = json!({
        "token": token, "name": name, "hostname": name, "kernel": "6.1", "addresses": [address],
        "csr": STANDARD.encode(key.request().expect("a request")),
        "outcome_key": SigningKey::generate().expect("a key").verifying_key().to_string(),
    });
    (request, key)
}

/// Asks the agents' door without a certificate.
pub(crate) async fn ask_agents_door(plane: &ControlPlane, roots: &TrustRoots, path: &str, body: &[u8]) -> Response {
    let pin = holdfast_identity::CaPin::of(roots.certificates().first().expect("one CA")).expect("a pin");
    let client = Client::new(enrolment(pin).expect("a configuration"));
    let url = format!("https://{}{path}", plane.agents_door());
    let request = Request::new(Method::POST, url).header(CONTENT_TYPE, "application/json").expect("a header");
    client.request(request.body(body.to_vec())).await.expect("the door answers")
}

async fn enrol(plane: &ControlPlane, roots: &TrustRoots, token: &str, name: &str, address: &str) -> Host {
    let (request, key) = enrol_request(token, name, address);
    let response = ask_agents_door(plane, roots, "/agent/v1/enrol", request.to_string().as_bytes()).await;
    let answer: Value = serde_json::from_slice(&response.body).expect("JSON");
    let text = |field: &str| answer[field].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let credential = key.credential(text("certificate_chain").as_bytes()).expect("it is this key's");
    Host { id: text("host_id").parse().expect("an id"), credential }
}
