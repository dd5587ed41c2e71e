//! What must hold through every fault: packets, and what kernels hold.
//!
//! - What is allowed flows without a loss, what is denied does not come, from before the first fault to after the last.
//! - The kernels of the hosts that the edits touch are read again and again: each time they hold one of the two states that were rendered for them,
//!   as a whole; only sets that nothing asks for yet may come before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use holdfast_suite::plane::{Plane, wait_for};
use holdfast_suite::traffic::Traffic;
use serde_json::Value;

use super::super::fleet::AGENTS_PORTS;
use super::super::packets::{PACKETS, attempts, beacons, tcp, try_beacons, udp, whole};
use super::postgres::gateway_id;

/// How soon `holdfast doctor` tells what is wrong and what is right again: the renderer looks each five seconds, and what it says is good for one.
const DIAGNOSED: Duration = Duration::from_secs(20);
/// The hosts that edits touch.
pub(crate) const TOUCHED: [&str; 4] = ["api-1", "api-2", "jobs-1", "cache-1"];
/// Who has the permission, in turn.
const ROLES: [&str; 2] = ["[api, jobs]", "[api, jobs, cache]"];
/// How long an edit may take to be taken.
const EDITED: Duration = Duration::from_secs(60);
/// How long an agent may take to find a gateway that is there: it dials in turn, and by its sixth dial may have waited 1 + 2 + 4 + 8 + 16 + 32 s.
const SETTLES: Duration = Duration::from_secs(90);
/// How many flows of the traffic are denied; they come first.
const DENIED: usize = 2;

/// Looks at a plane from before the first fault to after the last.
#[derive(Debug)]
pub(crate) struct Watch {
    traffic: Traffic,
    kernels: Kernels,
    edits: AtomicU64,
}

impl Watch {
    /// Lets packets flow, and begins to read kernels.
    pub(crate) fn start(plane: &Plane) -> Self {
        let states = ROLES.map(|roles| {
            beacons(plane, roles, &["--wait"]);
            TOUCHED.map(|host| content(&plane.table(host)))
        });
        let known: Vec<_> = (0..TOUCHED.len()).map(|at| states.each_ref().map(|state| state[at].clone())).collect();
        assert!(known.iter().all(|[one, other]| one != other), "an edit touches these hosts");
        let places = plane.places();
        let host = |name: &str| places.host(name);
        let routes = vec![
            udp(host("web-1"), host("db-1"), 7000),
            attempts(host("web-1"), host("db-2"), 5432),
            udp(host("api-1"), host("api-2"), 7000),
            udp(places.host_v6("api-2"), places.host_v6("jobs-1"), 7000),
            udp(host("edge-1"), places.outside("10.71.0.53"), 53),
            tcp(host("api-1"), host("db-1"), 5432),
        ];
        let traffic = Traffic::start(routes);
        let kernels = Kernels::start(plane, known);
        Self { traffic, kernels, edits: AtomicU64::new(ROLES.len() as u64) }
    }

    /// Changes what the hosts are to hold: the permission goes to the other group of roles. A database that is away or slow is asked again.
    pub(crate) fn edit(&self, plane: &Plane) {
        let nth = self.edits.fetch_add(1, Ordering::Relaxed);
        let roles = ROLES[usize::try_from(nth % 2).expect("one of two")];
        let deadline = Instant::now() + EDITED;
        loop {
            let applied = try_beacons(plane, roles, &[]);
            let said = String::from_utf8_lossy(&applied.stderr);
            if applied.status.success() {
                return;
            }
            let is_known = ["database-unavailable", "outcome-unknown"].iter().any(|kind| said.contains(kind));
            assert!(is_known && Instant::now() < deadline, "{said}");
        }
    }

    /// Stops after a change that lets through what was denied: the sockets did their part all the time.
    pub(crate) fn end(self, plane: &Plane) {
        self.traffic.wait_for_more(PACKETS);
        let denied: Vec<_> = self.traffic.flows().iter().take(DENIED).map(|flow| flow.tally().there).collect();
        self.kernels.end();
        beacons(plane, "[api, jobs, cache, db, web]", &["--wait"]);
        self.traffic.wait_until("what is allowed in the end flows", |flows| {
            flows.first().is_some_and(|flow| flow.tally().back.arrived > 0)
        });
        for (at, seen) in denied.iter().enumerate() {
            assert!(seen.sent > 0 && seen.arrived == 0, "denied, and came: flow {at}: {seen:?}");
        }
        for (flow, fate) in self.traffic.end().into_iter().skip(DENIED) {
            whole(&flow, fate);
        }
        beacons(plane, ROLES[0], &["--wait"]);
    }
}

/// Reads the kernels of some hosts until it is ended.
#[derive(Debug)]
struct Kernels {
    over: Arc<AtomicBool>,
    strange: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<u64>>,
}

impl Kernels {
    fn start(plane: &Plane, known: Vec<[BTreeSet<String>; 2]>) -> Self {
        let (over, strange) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let namespaces = TOUCHED.map(|host| plane.places().host(host).namespace);
        let reader = {
            let (over, strange) = (Arc::clone(&over), Arc::clone(&strange));
            thread::spawn(move || {
                let mut looks = 0;
                while !over.load(Ordering::Relaxed) {
                    for (namespace, known) in namespaces.iter().zip(&known) {
                        let held = content(&Plane::table_in(namespace));
                        looks += 1;
                        if !is_one_of(known, &held) {
                            let [one, other] = known.each_ref().map(|state| state.symmetric_difference(&held).count());
                            let said =
                                format!("{namespace}: differs by {one} from one state and by {other} from the other");
                            strange.lock().unwrap_or_else(PoisonError::into_inner).push(said);
                        }
                    }
                }
                looks
            })
        };
        Self { over, strange, reader: Some(reader) }
    }

    /// Nothing but what was rendered was ever seen.
    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        let looks =
            self.reader.take().expect("taken only here").join().expect("every host has its table at every moment");
        let strange = self.strange.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(looks > 20 && strange.is_empty(), "{looks} looks: {strange:?}");
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // One that panicked has said so.
            drop(reader.join());
        }
    }
}

/// Whether a table holds one of two states as a whole. Sets of the other one may be there already: they come in a batch before the one that changes
/// verdicts, and no rule asks for them yet.
fn is_one_of([one, other]: &[BTreeSet<String>; 2], held: &BTreeSet<String>) -> bool {
    let is = |state: &BTreeSet<String>, next: &BTreeSet<String>| {
        let is_early = |object: &String| next.contains(object) && object.starts_with("{\"set\":");
        state.is_subset(held) && held.difference(state).all(is_early)
    };
    is(one, other) || is(other, one)
}

/// What a table holds, without the numbers that the kernel gives and counts.
fn content(table: &Value) -> BTreeSet<String> {
    let objects = table["nftables"].as_array().expect("a list");
    let plain = |object: &Value| {
        let mut object = object.clone();
        strip(&mut object);
        object.to_string()
    };
    objects.iter().filter(|object| object.get("metainfo").is_none()).map(plain).collect()
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for counted in ["handle", "packets", "bytes"] {
                fields.remove(counted);
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Waits until every host is proven to hold the newest, and says how long that took.
pub(crate) fn converges(plane: &Plane, within: Duration) -> Duration {
    let begun = Instant::now();
    let timeout = format!("{}s", within.as_secs());
    let waited = plane.holdfast(&["wait", "--for", "converged", "--timeout", &timeout]);
    assert!(
        waited.status.success(),
        "not converged within {within:?}: {}\n{}",
        String::from_utf8_lossy(&waited.stderr),
        hosts_in_trouble(plane)
    );
    begun.elapsed()
}

/// The hosts, and everything that is known of each that is not converged.
fn hosts_in_trouble(plane: &Plane) -> String {
    let said = |arguments: &[&str]| String::from_utf8_lossy(&plane.holdfast(arguments).stdout).into_owned();
    let hosts = said(&["get", "hosts"]);
    let in_trouble = hosts.lines().skip(1).filter(|line| !line.contains(" converged "));
    let names: Vec<String> = in_trouble.filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    names.iter().fold(hosts, |told, name| told + "\n" + &said(&["describe", "host", name]))
}

/// The newest session of every host: its number, and the gateway that has it.
pub(crate) fn sessions(plane: &Plane) -> BTreeMap<String, (u64, String)> {
    let rows = plane.database().sql(
        "SELECT h.name, s.session_epoch, s.gateway_id FROM sessions s JOIN hosts h USING (host_id) WHERE s.closed_at IS NULL",
    );
    let row = |row: &str| {
        let fields: Vec<&str> = row.split('|').collect();
        let [name, epoch, gateway] = fields.as_slice() else { panic!("{row} is no row of three") };
        ((*name).to_owned(), (epoch.parse().expect("a number"), (*gateway).to_owned()))
    };
    rows.lines().map(row).collect()
}

/// Waits until every host is served by a gateway that runs: the sessions of one that was killed stay open until its lease ends.
pub(crate) fn everyone_is_served(plane: &Plane) {
    let running = [1, 2].map(|nth| gateway_id(plane, nth));
    wait_for("every host is at a gateway that runs", SETTLES, || {
        let sessions = sessions(plane);
        sessions.len() == 12 && sessions.values().all(|(_, gateway)| running.contains(gateway))
    });
}

/// Whether the last change of intent was rendered.
pub(crate) fn is_rendered(plane: &Plane) -> bool {
    let sql = "SELECT (SELECT revision FROM render_progress) >= (SELECT max(revision) FROM revisions)";
    plane.database().sql(sql).trim() == "t"
}

/// Makes the agents of some hosts come anew, to the gateway of this port.
pub(crate) fn settle_at(plane: &Plane, port: u16, hosts: &[&str]) {
    let other = AGENTS_PORTS.into_iter().find(|one| *one != port).expect("there are two");
    let command = plane.agent_command(hosts[0]);
    let before = sessions(plane);
    let refused: Vec<_> = hosts.iter().map(|host| plane.refuse_port(host, other)).collect();
    hosts.iter().for_each(|host| plane.kill_agent(host));
    plane.start_agents(&command);
    let is_newer = |host: &&str| {
        let (then, now) = (before.get(*host).map_or(0, |session| session.0), sessions(plane));
        now.get(*host).is_some_and(|session| session.0 > then)
    };
    wait_for("the agents have come", SETTLES, || hosts.iter().all(is_newer));
    drop(refused);
}

/// How many operations have not come to their end.
pub(crate) fn unfinished(plane: &Plane) -> u64 {
    let count = plane.database().sql("SELECT count(*) FROM operations WHERE finished_at IS NULL");
    count.trim().parse().expect("a number")
}

/// `holdfast doctor` finds this in trouble and nothing else; with nothing, nothing is.
pub(crate) fn diagnosed(plane: &Plane, wanted: &[&str]) {
    wait_for(&format!("doctor finds {wanted:?} in trouble, and nothing else"), DIAGNOSED, || {
        let output = plane.holdfast(&["doctor", "-o", "json"]);
        let Ok(found) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
        let checks = found["checks"].as_array().cloned().unwrap_or_default();
        let named: Vec<&Value> =
            checks.iter().filter(|check| check["state"] == "trouble").map(|check| &check["name"]).collect();
        !checks.is_empty() && named == wanted
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_whole_also_when_sets_of_the_next_one_came_early_and_not_when_anything_else_differs() {
        let mk = |objects: &[&str]| objects.iter().map(|object| (*object).to_owned()).collect::<BTreeSet<_>>();
        let (set, rule, other) = ("{\"set\":1}", "{\"rule\":1}", "{\"rule\":2}");
        let known = [mk(&[other]), mk(&[other, set, rule])];
        assert!(known.iter().all(|state| is_one_of(&known, state)));
        assert!(is_one_of(&known, &mk(&[other, set])));
        for wrong in [&[other, rule][..], &[set, rule], &[], &[other, "{\"set\":2}"], &[set]] {
            assert!(!is_one_of(&known, &mk(wrong)), "{wrong:?}");
        }
    }
}
