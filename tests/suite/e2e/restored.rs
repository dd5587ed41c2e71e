//! A database that was restored from a backup (P23): what happens until the authority has a command for it.
//!
//! - No host goes back, and none takes another content under a version that it knows: each keeps what it proved last, and says why.
//! - Once versions have passed what a host holds, it follows again.

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
fn a_database_restored_from_a_backup_moves_no_host_back_and_hosts_follow_once_versions_have_passed_theirs() {
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

    let restore = r#"as_postgres "$(postgres_bin)/psql" "${as[@]}" -qX -d postgres -c 'DROP DATABASE holdfast WITH (FORCE)'
        as_postgres "$(postgres_bin)/pg_restore" "${as[@]}" --create -d postgres "$folder/data/$2""#;
    in_postgres(&plane, restore, "backup");
    let deadline = Instant::now() + BACK_TIMEOUT;
    while !plane.holdfast(&["status"]).status.success() {
        assert!(Instant::now() < deadline, "nobody answers");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(rules_of(&plane), rules);
    // A session that was open all the time is not looked at again: gateways are started anew with the database.
    let gateways = ["gateway-agents-1", "gateway-agents-2"].map(|name| {
        let (program, settings) = (plane.program_of(name), plane.settings_of(name));
        plane.kill(name);
        plane.run_beside(&program, &settings, "the agents' door is open")
    });
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
    beacons(&plane, less, &["--wait"]);
    assert_ne!(rules_of(&plane), rules);

    // The copies of the events are of another history, and nobody calls them one.
    let log = fs::read_to_string(plane.folder().join("run/renderer.log")).expect("the renderer logs");
    assert!(log.contains("the event stream holds what this database never wrote"), "{log}");
    drop(gateways);
    plane.discard();
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
