//! A database that was restored from a backup (P23), twice: nobody says so, and an operator says so.
//!
//! - No host goes back, and none takes another content under a version that it knows: each keeps what it proved last, and says why.
//! - Nobody says so: once versions have passed what a host holds, it follows again.
//! - Somebody says so: those that lose nothing follow at once, the others when as many were confirmed as go back, and not before.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_suite::plane::Plane;
use serde_json::Value;

use super::dishonest::policies_when;
use super::fleet::versions;
use super::packets::{beacons, rules_of};
use super::points::in_postgres;

/// Those whom the edits touch, the one last whom the least of them does not.
const TOUCHED: [&str; 4] = ["api-1", "api-2", "jobs-1", "cache-1"];
const BACK_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_restored_database_moves_no_host_back_until_versions_have_passed_or_an_operator_said_so_and_confirmed_it() {
    let plane = Plane::start(&[]);
    let [less, more, least] = ["[api, jobs]", "[api, jobs, cache]", "[api]"];
    beacons(&plane, less, &["--wait"]);
    let saved = versions(&plane);
    in_postgres(
        &plane,
        r#"as_postgres "$(postgres_bin)/pg_dump" "${as[@]}" -Fc -f "$folder/data/$2" holdfast"#,
        "backup",
    );
    for roles in [more, less, more] {
        beacons(&plane, roles, &["--wait"]);
    }
    let (known, rules) = (versions(&plane), rules_of(&plane));
    for name in TOUCHED {
        assert_eq!(known[&key(name)], saved[&key(name)] + 3, "{name}");
    }

    restore(&plane);
    assert_eq!(rules_of(&plane), rules);
    // Sessions that were open when the backup was made, and all the time since, are looked at too: nothing is started anew.
    refused(&plane, &TOUCHED, &saved, 0, "backward");
    assert_eq!(rules_of(&plane), rules);
    // Whatever is authored now gets a version that hosts know; the last of these does not touch the cache host.
    let steps = [
        (more, "backward", &TOUCHED[..]),
        (less, "backward", &TOUCHED),
        (least, "same_version_other_content", &TOUCHED[..3]),
    ];
    for (by, (roles, reason, touched)) in (1..).zip(steps) {
        beacons(&plane, roles, &[]);
        refused(&plane, touched, &saved, by, reason);
        assert_eq!(rules_of(&plane), rules, "{roles}");
    }
    beacons(&plane, more, &[]);
    let is_converged = |hosts: &BTreeMap<String, Value>| hosts.values().all(|policy| policy["state"] == "converged");
    policies_when(&plane, "hosts follow again", is_converged);
    said_and_confirmed(&plane, &saved);

    // The copies of the events are of another history, and nobody calls them one.
    let log = fs::read_to_string(plane.folder().join("run/renderer.log")).expect("the renderer logs");
    assert!(log.contains("the event stream holds what this database never wrote"), "{log}");
    plane.discard();
}

/// The backup once more, and this time an operator says so.
fn said_and_confirmed(plane: &Plane, saved: &BTreeMap<String, u64>) {
    let rules = rules_of(plane);
    restore(plane);
    refused(plane, &TOUCHED, saved, 0, "backward");
    let doctor = plane.holdfast(&["doctor", "-o", "json"]);
    let found: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let checks = found["checks"].as_array().expect("checks");
    let authority = checks.iter().find(|check| check["name"] == "authority").expect("it looks at the authority");
    assert_eq!(authority["state"], "trouble", "{authority}");
    assert!(authority["detail"].as_str().is_some_and(|detail| detail.contains("4 hosts hold")), "{authority}");
    assert_eq!(authority_when(plane, "four are ahead", |view| view["hosts"]["ahead"] == 4)["epoch"], 1);

    let bumped = plane.ask(&["authority", "bump", "--because", "a drill"]);
    assert_eq!(bumped["epoch"], 2, "{bumped}");
    let are_heard = |view: &Value| {
        view["hosts"] == serde_json::json!({ "ahead": 0, "going_back": 4, "unheard": 0, "following": 0 })
    };
    let view = authority_when(plane, "four wait and all others follow", are_heard);
    assert_eq!(view["waits_for_confirmation"], true, "{view}");
    assert_eq!(rules_of(plane), rules);
    let described = plane.holdfast(&["describe", "host", "booking/api-1"]);
    let described = String::from_utf8_lossy(&described.stdout).into_owned();
    assert!(described.contains("HELD BACK (policy): it holds version"), "{described}");
    assert_eq!(plane.holdfast(&["authority", "confirm", "--expect", "3"]).status.code(), Some(4), "four wait");
    assert_eq!(rules_of(plane), rules);

    assert_eq!(plane.ask(&["authority", "confirm", "--expect", "4"])["hosts"], 4);
    let is_back = |hosts: &BTreeMap<String, Value>| hosts.values().all(|policy| policy["state"] == "converged");
    let back = policies_when(plane, "hosts went back", is_back);
    for name in TOUCHED {
        assert_eq!(back[name]["latest"]["version"], saved[&key(name)], "{name}");
    }
    assert_ne!(rules_of(plane), rules);
    let told = authority_when(plane, "no host is between two lives", |view| {
        view["hosts"] == serde_json::json!({ "ahead": 0, "going_back": 0, "unheard": 0, "following": 0 })
    });
    assert_eq!(told["claims"], serde_json::json!([]));
    // And the new life goes on as any other.
    beacons(plane, "[api, jobs, cache]", &["--wait"]);
}

/// Puts the database back to what was saved, and waits until somebody answers by it.
fn restore(plane: &Plane) {
    let restore = r#"as_postgres "$(postgres_bin)/psql" "${as[@]}" -qX -d postgres -c 'DROP DATABASE holdfast WITH (FORCE)'
        as_postgres "$(postgres_bin)/pg_restore" "${as[@]}" --create -d postgres "$folder/data/$2""#;
    in_postgres(plane, restore, "backup");
    let deadline = Instant::now() + BACK_TIMEOUT;
    while !plane.holdfast(&["status"]).status.success() {
        assert!(Instant::now() < deadline, "nobody answers");
        thread::sleep(Duration::from_millis(100));
    }
}

/// What is said of the authority once it is so.
fn authority_when(plane: &Plane, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + BACK_TIMEOUT;
    loop {
        let view = plane.ask(&["authority", "show"]);
        if is_so(&view) {
            return view;
        }
        assert!(Instant::now() < deadline, "{what}: {view:#}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until the hosts have refused the version that is so far above the saved one.
fn refused(plane: &Plane, hosts: &[&str], saved: &BTreeMap<String, u64>, by: u64, reason: &str) {
    let have = |policies: &BTreeMap<String, Value>| {
        hosts.iter().all(|name| {
            let policy = &policies[*name];
            let is_latest = policy["latest"]["version"] == saved[&key(name)] + by;
            is_latest && policy["state"] == "failed" && policy["outcome"]["reason"] == reason
        })
    };
    policies_when(plane, &format!("{by} above the backup is refused as {reason}"), have);
}

fn key(host: &str) -> String {
    format!("booking/{host}")
}
