//! Every service killed at every named point (F33): started again, and everything is as if it had not been.
//!
//! - At each point the process must die by SIGKILL: one that is not passed fails.
//! - After each, the fleet converges, every kernel holds what it holds whenever that state is in force, tables and audit log are proven.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_suite::fail_points::{Cause, FAIL_POINTS, FailPoint, Service};
use holdfast_suite::plane::{Plane, Running, root};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::dishonest::hooked;
use super::faults::is_rendered;
use super::packets::try_beacons;

/// How long a service may take to pass a point, from its start on.
const DEATH_TIMEOUT: Duration = Duration::from_secs(40);
/// How long an agent may take to be well.
const WELL_TIMEOUT: Duration = Duration::from_secs(30);
/// The host that a gateway under test serves.
const HOST: &str = "api-1";
/// The two states that everything goes to and fro between.
const STATES: [&str; 2] = ["[api, jobs]", "[api, jobs, cache]"];
/// Where gateways listen for agents, as `ops/lib/plane.sh` says.
const SECOND_PORT: u16 = 7444;

#[test]
fn every_service_is_killed_at_every_named_point_and_nothing_is_lost_or_done_twice() {
    let plane = Plane::start(&[]);
    let mut story = Story::begin(&plane);
    let is_last = |point: &&FailPoint| point.cause == Cause::Enrolment;
    // A host that enrols here has no agent afterwards: what comes before speaks of a fleet that converges as a whole.
    for point in FAIL_POINTS.iter().filter(|point| !is_last(point)) {
        story.die_at(point);
    }
    // What is asked for from now on waits for hosts that have no agent.
    story.has_finished();
    for point in FAIL_POINTS.iter().filter(is_last) {
        story.die_at(point);
    }
    // While what stands in for the plane's services runs: it is asked whether all is well.
    plane.wipe();
}

struct Story<'a> {
    plane: &'a Plane,
    kits: BTreeMap<&'static str, Kit>,
    /// What runs in the place of services of the plane.
    running: BTreeMap<&'static str, Running>,
    /// Which of [`STATES`] is asked for.
    state: usize,
    /// What every kernel holds in each.
    kernels: Vec<BTreeMap<String, Vec<String>>>,
    enrolled: usize,
}

/// How a service is run.
struct Kit {
    program: PathBuf,
    hooked: PathBuf,
    settings: Vec<(String, String)>,
}

impl<'a> Story<'a> {
    fn begin(plane: &'a Plane) -> Self {
        let services = [Service::Renderer, Service::Audit, Service::Operators, Service::Agents];
        let kits = services.map(|service| (name_of(service), Kit::of(plane, service)));
        let kits = BTreeMap::from(kits);
        let mut story = Self { plane, kits, running: BTreeMap::new(), state: 0, kernels: Vec::new(), enrolled: 0 };
        for state in [0, 1] {
            story.state = state;
            story.ask_for_state();
            story.converges();
            story.kernels.push(kernels(plane));
        }
        assert_ne!(story.kernels[0], story.kernels[1]);
        story
    }

    /// One service up to one point, and again without it.
    fn die_at(&mut self, point: &FailPoint) {
        let name = name_of(point.service);
        self.kill(name);
        if point.service != Service::Operators {
            self.change();
        }
        if point.cause == Cause::Connect || point.cause == Cause::Change && point.service == Service::Agents {
            self.reach_only_the_first();
        }
        let mut settings = self.kits[name].settings.clone();
        settings.push(("HOLDFAST_TEST_FAIL_POINT".to_owned(), format!("{}: {}", point.subject, point.moment)));
        let mut dying = self.plane.spawn_beside(&self.kits[name].hooked, &settings);
        let after = self.cause(point, &mut dying);
        let ended = dying.ended(DEATH_TIMEOUT);
        let killed = ended.and_then(|status| status.signal()) == Some(9);
        assert!(killed, "{point:?}: {ended:?}: {}", dying.said());
        drop(dying);
        if point.service == Service::Renderer {
            self.end_the_lease();
        }
        let kit = &self.kits[name];
        self.running.insert(name, self.plane.run_beside(&kit.program, &kit.settings, ready_words(point.service)));
        after.join(self, point);
        self.is_whole(point);
    }

    /// Does what leads to the point.
    fn cause(&mut self, point: &FailPoint, dying: &mut Running) -> After {
        let is_up = |dying: &mut Running| assert!(dying.says(ready_words(point.service)), "{}", dying.said());
        match (point.service, point.cause) {
            // Nobody is told of a gateway's lease either.
            (Service::Agents, Cause::Start) | (_, Cause::StartUntold) => After::Change,
            (_, Cause::Start) => After::Nothing,
            (Service::Agents, Cause::Connect) => {
                is_up(dying);
                self.restart_agent();
                After::Reconnect
            }
            (Service::Agents, _) if point.cause == Cause::Change => {
                is_up(dying);
                self.restart_agent();
                self.converges();
                self.change();
                After::Reconnect
            }
            (_, Cause::End) => {
                is_up(dying);
                dying.ask_to_end();
                After::Nothing
            }
            (_, Cause::Enrolment) => {
                is_up(dying);
                After::Enrolled(self.enrol())
            }
            (_, Cause::Change | Cause::ChangeByClock) => {
                is_up(dying);
                self.state = 1 - self.state;
                // It may succeed before the service dies.
                drop(self.try_state());
                After::Again
            }
            (_, Cause::Token | Cause::TokenRevoked) => {
                is_up(dying);
                self.token(point.cause);
                After::Change
            }
            (_, Cause::Connect) => panic!("only agents connect: {point:?}"),
        }
    }

    /// Ends a service, the plane's own or what stands in for it.
    fn kill(&mut self, name: &'static str) {
        match self.running.remove(name) {
            Some(running) => drop(running),
            None => self.plane.kill(name),
        }
        if name == name_of(Service::Renderer) {
            self.end_the_lease();
        }
    }

    /// Asks for the other state.
    fn change(&mut self) {
        self.state = 1 - self.state;
        self.ask_for_state();
    }

    fn ask_for_state(&self) {
        let applied = self.try_state();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    }

    fn try_state(&self) -> Output {
        try_beacons(self.plane, STATES[self.state], &[])
    }

    /// The lease of a renderer that was killed, as it is 30 s later.
    fn end_the_lease(&self) {
        sql(self.plane, "UPDATE leases SET expires_at = clock_timestamp() WHERE name = 'renderer'");
    }

    fn converges(&self) {
        if self.enrolled == 0 {
            let waited = self.plane.holdfast(&["wait", "--for", "converged", "--timeout", "60s"]);
            assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            // First whether the last change was rendered: until then a host may be converged with what was before it.
            let is_rendered = is_rendered(self.plane);
            let hosts = self.plane.ask(&["get", "hosts"])["items"].as_array().expect("a page of hosts").clone();
            let is_late = |host: &&Value| host["name"].as_str().is_some_and(|name| name.starts_with("late-"));
            let late = hosts.iter().filter(is_late).count();
            let waits: Vec<_> = hosts.iter().filter(|host| !is_late(host) && host["state"] != "converged").collect();
            if is_rendered && waits.is_empty() && late == self.enrolled {
                return;
            }
            let told = format!("rendered: {is_rendered}, {late} of {} late hosts", self.enrolled);
            assert!(Instant::now() < deadline, "{told}; not converged: {waits:#?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Nothing is missing, twice or other than it was rendered.
    fn is_whole(&self, point: &FailPoint) {
        self.converges();
        assert_eq!(kernels(self.plane), self.kernels[self.state], "{point:?}");
        assert_eq!(self.plane.proven(), Ok(()), "{point:?}");
    }

    /// The host's agent ends and cannot reach the second gateway.
    fn reach_only_the_first(&self) {
        self.end_agent();
        let cut = format!(
            "add table inet test_cut; add chain inet test_cut out {{ type filter hook output priority -400; }}; \
             add rule inet test_cut out tcp dport {SECOND_PORT} reject with tcp reset"
        );
        self.in_host(&["nft", &cut]);
    }

    fn restart_agent(&self) {
        self.end_agent();
        let agent = root().join(target()).join("release/holdfast-agent");
        let agent = agent.to_str().expect("a plain path");
        let path = format!("PATH={}", std::env::var("PATH").expect("there is a PATH"));
        let how =
            ["env", "-i", &path, "HOLDFAST_LOG=info", "HOLDFAST_LOG_FORMAT=text", "HOLDFAST_AGENT_FAILSAFE_PORTS="];
        let started =
            self.plane.lab(&[&["start", "--"], how.as_slice(), &[agent, "run", "--state", "{state}"]].concat());
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    }

    fn end_agent(&self) {
        let listed = self.plane.lab(&["hosts", "-o", "json"]);
        let hosts: Value = serde_json::from_slice(&listed.stdout).expect("a list of hosts");
        let mut hosts = hosts.as_array().expect("a list").iter();
        let host = hosts.find(|host| host["name"] == HOST).expect("the host of the estate");
        let Some(pid) = host["agent_pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()) else { return };
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the agent runs");
        let deadline = Instant::now() + WELL_TIMEOUT;
        while holdfast_lab::netns::find_process(pid).is_some() {
            assert!(Instant::now() < deadline, "the agent {pid} does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn in_host(&self, command: &[&str]) {
        let output = self.plane.lab(&[&["exec", HOST, "--"], command].concat());
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A host enrols with a token that is good once.
    fn enrol(&mut self) -> thread::JoinHandle<Output> {
        self.enrolled += 1;
        let name = format!("late-{}", self.enrolled);
        let token = self.plane.folder().join(&name);
        let text = self.plane.holdfast(&["enrol-token", "create", "--namespace", "booking", "--uses", "1"]);
        assert!(text.status.success(), "{}", String::from_utf8_lossy(&text.stderr));
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&token).expect("it is new");
        file.write_all(&text.stdout).expect("the folder is ours");
        let pin = fs::read_to_string(self.plane.folder().join("keys/public/ca.pin")).expect("init made it");
        let gateways = self.kits[name_of(Service::Agents)].setting("HOLDFAST_AGENTS_GATEWAYS");
        let gateway = format!("https://{}", gateways.split(',').next().expect("a gateway"));
        let state = self.plane.folder().join(format!("{name}-state"));
        let agent = root().join(target()).join("release/holdfast-agent");
        let mut command = Command::new(agent);
        command.arg("enrol").arg("--state").arg(state).arg("--token-file").arg(token);
        command.args(["--name", &name, "--gateway", &gateway, "--ca-pin", pin.trim()]);
        let control = self.plane.control();
        thread::spawn(move || {
            let output = holdfast_lab::netns::within(&control, || command.output());
            output.expect("the control namespace stands").expect("the agent can be run")
        })
    }

    /// A token that is made, and taken back.
    fn token(&self, cause: Cause) {
        // Whether it is answered depends on the point.
        let made = self.plane.holdfast(&["enrol-token", "create", "--namespace", "booking", "-o", "json"]);
        if cause == Cause::TokenRevoked {
            let said = String::from_utf8_lossy(&made.stderr);
            let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
            drop(self.plane.holdfast(&["enrol-token", "revoke", made["token"]["id"].as_str().expect("an id")]));
        }
    }

    /// Every operation comes to an end.
    fn has_finished(&self) {
        let deadline = Instant::now() + WELL_TIMEOUT;
        loop {
            let page = self.plane.ask(&["get", "operations"]);
            let operations = page["items"].as_array().expect("a page of operations").iter();
            let open: Vec<_> = operations.filter(|operation| operation["finished"] != true).collect();
            if open.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{open:#?}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What is left to do once the service runs again.
enum After {
    Nothing,
    /// A hint was lost with the service: the next one wakes whoever waits, or else their clocks do.
    Change,
    /// The same request.
    Again,
    /// The host finds the other gateway.
    Reconnect,
    /// The host that enrols has its answer.
    Enrolled(thread::JoinHandle<Output>),
}

impl After {
    fn join(self, story: &mut Story<'_>, point: &FailPoint) {
        match self {
            Self::Nothing => {}
            Self::Change => story.change(),
            Self::Again => {
                story.ask_for_state();
                if point.cause != Cause::ChangeByClock {
                    story.change();
                }
            }
            Self::Reconnect => story.in_host(&["nft", "delete table inet test_cut"]),
            Self::Enrolled(waiting) => {
                let output = waiting.join().expect("it waits for a program");
                assert!(output.status.success(), "{point:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
    }
}

impl Kit {
    fn of(plane: &Plane, service: Service) -> Self {
        let name = name_of(service);
        let binary = match service {
            Service::Renderer => "holdfast-renderer",
            Service::Audit => "holdfast-audit",
            Service::Operators | Service::Agents => "holdfast-gateway",
        };
        Self { program: plane.program_of(name), hooked: hooked(binary), settings: plane.settings_of(name) }
    }

    fn setting(&self, name: &str) -> &str {
        let found = self.settings.iter().find(|(set, _)| set == name);
        found.map_or_else(|| panic!("there is no {name}"), |(_, value)| value)
    }
}

const fn name_of(service: Service) -> &'static str {
    match service {
        Service::Renderer => "renderer",
        Service::Audit => "audit",
        Service::Agents => "gateway-agents-1",
        Service::Operators => "gateway-operators",
    }
}

const fn ready_words(service: Service) -> &'static str {
    match service {
        Service::Renderer => "leading",
        Service::Audit => "the audit log is open",
        Service::Agents => "the agents' door is open",
        Service::Operators => "the operators' door is open",
    }
}

/// What the kernel of every host holds, counters and handles left out.
fn kernels(plane: &Plane) -> BTreeMap<String, Vec<String>> {
    let listed = |host: String| {
        let output =
            plane.lab(&["exec", &host, "--", "nft", "--stateless", "--numeric", "list", "table", "inet", "holdfast"]);
        let text = String::from_utf8(output.stdout).expect("nft prints text");
        assert!(output.status.success() && !text.is_empty(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
        let held = text.strip_prefix("table inet holdfast {\n").and_then(|text| text.strip_suffix("}\n"));
        // The order of sets and chains is the order of their making, and means nothing.
        let mut blocks: Vec<String> =
            held.expect("one table").split("\n\n").map(|block| block.trim_end().to_owned()).collect();
        blocks.sort_unstable();
        (host, blocks)
    };
    plane.hosts().into_iter().map(listed).collect()
}

fn sql(plane: &Plane, statement: &str) {
    in_postgres(
        plane,
        r#"as_postgres "$(postgres_bin)/psql" "${as[@]}" -qAtX -v ON_ERROR_STOP=1 -d holdfast -c "$2""#,
        statement,
    );
}

/// Runs a line of shell with what `ops/lib` knows of the plane's Postgres: its `$folder`, and in `$as` how its superuser comes in. `$2` is the argument.
pub(crate) fn in_postgres(plane: &Plane, line: &str, argument: &str) {
    let script = format!(
        r#"for part in common install process postgres; do source "$0/$part.sh"; done
        folder="$(sed -n 's|^POSTGRES_FOLDER=||p' "$1/plane.env")"; as=(-h "$folder/socket" -U postgres)
        {line}"#
    );
    let mut command = Command::new("bash");
    command.args(["-euc", &script]).arg(root().join("ops/lib")).arg(plane.folder()).arg(argument);
    let output = command.output().expect("bash can be run");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
