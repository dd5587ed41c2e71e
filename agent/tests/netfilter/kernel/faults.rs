//! The real binary on a host that fails it: a state folder that is full or read-only, files that are damaged, signals; and sets that are large or overlap.

use std::fs;
use std::path::Path;

use nix::mount::MsFlags;
use nix::sys::signal::Signal;

use super::flows::{CUT_PEER, KEPT_PEER, connect, host_port, world};
use super::steady::{NOTHING, Probes};
use crate::support::agent::Host;
use crate::support::disk::Tmpfs;
use crate::support::{listed, output_of};

/// Lets these peers ask on UDP 53 and connect to TCP 80.
fn policy(peers: &[String]) -> String {
    let peers: Vec<String> = peers.iter().map(|peer| format!("\"{peer}\"")).collect();
    let peers = peers.join(", ");
    format!(
        r#"{{"mode": "enforced", "ingress": {{"isolated": true, "rules": [
            {{"action": "allow", "protocol": "udp", "ports": [53], "peers": [{peers}]}},
            {{"action": "allow", "protocol": "tcp", "ports": [80], "peers": [{peers}]}}]}}}}"#
    )
}

fn of(peers: &[&str]) -> String {
    policy(&peers.iter().map(|peer| (*peer).to_owned()).collect::<Vec<_>>())
}

/// So many single addresses, none next to another.
fn addresses(count: u32) -> Vec<String> {
    (0..count).map(|n| std::net::Ipv4Addr::from(0x0a80_0000 + 2 * n).to_string()).collect()
}

/// Everything that the kernel holds, with handles.
fn ruleset(host: &Host) -> String {
    host.namespace.run(|| output_of("nft", &["--stateless", "--handle", "list", "ruleset"]))
}

#[test]
fn a_state_folder_that_is_full_or_read_only_fails_the_update_and_kernel_and_disk_agree_after_a_restart() {
    let host = Host::new(&of(&["10.0.0.1"]));
    let disk = Tmpfs::on(host.path("state"), 128);
    host.start();
    let good = ruleset(&host);
    disk.fill();
    // More than what the last page of the ledger may have room for.
    host.write_policy(&policy(&addresses(2_000)));
    for _ in 0..3 {
        let reload = host.ask(&["reload", "-o", "json"]);
        assert!(!reload.status.success());
        let outcome: serde_json::Value = serde_json::from_slice(&reload.stdout).unwrap();
        assert_eq!((&outcome["outcome"], &outcome["applied"]["version"]), (&"failed".into(), &1.into()), "{outcome}");
        assert_eq!(outcome["conditions"][1]["reason"], "not_durable", "{outcome}");
        assert_eq!(ruleset(&host), good);
    }
    assert_eq!((host.applied_version(), host.status()["policy"]["proven"].as_bool()), (Some(1), Some(true)));
    let found = host.troubles();
    let [(folder, room), (update, failed)] = found.as_slice() else { panic!("{found:?}") };
    assert!(folder == "state folder" && room.contains("0 MiB are free"), "{found:?}");
    assert!(update == "last update" && failed.contains("failed: not_durable"), "{found:?}");
    assert!(failed.contains("version 1 is still in force"), "{found:?}");

    // A start on a disk that takes nothing at all has no place for its lock and its socket: it says so, and opens nothing.
    host.end(Signal::SIGKILL);
    disk.make_room();
    disk.remount(MsFlags::MS_RDONLY);
    let found = host.troubles();
    assert!(
        found.iter().any(|(name, text)| name == "state folder" && text.contains("Read-only file system")),
        "{found:?}"
    );
    let refused = host.ask(&["run", "--standalone", &host.path("policy.json").display().to_string()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("[state-unusable]"), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert_eq!(ruleset(&host), good);

    // The disk and the kernel say the same, whatever the file says.
    disk.remount(MsFlags::empty());
    host.write_policy("no policy at all");
    host.start();
    assert_eq!((host.applied_version(), host.status()["policy"]["proven"].as_bool()), (Some(1), Some(true)));
    assert_eq!(ruleset(&host), good);
    host.write_policy(&of(&["10.0.0.2"]));
    assert!(host.ask(&["reload"]).status.success());
    assert_eq!(host.applied_version(), Some(2));
    host.end(Signal::SIGTERM);
}

#[test]
fn whatever_ends_the_agent_or_damages_its_files_leaves_the_rules_byte_for_byte() {
    let host = Host::new(&of(&["10.0.0.1", "fd00::/64"]));
    host.start();
    let good = ruleset(&host);
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT, Signal::SIGABRT] {
        host.end(signal);
        assert_eq!(ruleset(&host), good, "{signal}");
        host.start();
        assert_eq!(ruleset(&host), good, "started after {signal}");
    }
    // A policy file that says nothing usable, while it runs and at a start.
    for text in ["", "{", "{}", "[]", "\u{0}", r#"{"mode": "enforced", "ingress": {"isolated": "no"}}"#] {
        host.write_policy(text);
        assert!(!host.ask(&["reload"]).status.success(), "{text}");
        assert_eq!(ruleset(&host), good, "{text}");
    }
    host.end(Signal::SIGKILL);
    host.start();
    assert_eq!(ruleset(&host), good);
    // Settings that nobody knows, and a ledger of noise: it does not run, and it opens nothing.
    host.end(Signal::SIGKILL);
    let refused = host.ask(&["run", "--standalone", "/dev/null", "--no-such-setting"]);
    assert!(!refused.status.success());
    fs::write(host.ledger(), [0x5a; 300]).unwrap();
    host.spawn();
    assert!(!host.answers());
    assert_eq!(ruleset(&host), good);
}

#[test]
fn c51_a_ledger_that_is_cut_or_flipped_anywhere_changes_nothing_in_the_kernel_and_what_it_was_is_told() {
    let host = Host::new(&policy(&addresses(150)));
    host.start();
    let good = ruleset(&host);
    host.end(Signal::SIGKILL);
    let whole = fs::read(host.ledger()).unwrap();
    assert!(whole.len() > 600, "{} bytes", whole.len());
    host.write_policy("no policy at all");
    let (mut refused, mut loaded) = (0, 0);
    for at in (0..whole.len()).step_by(64) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        for (how, bytes) in [("cut", &whole[..at]), ("flipped", &flipped[..])] {
            restore(&host.ledger(), bytes);
            host.spawn();
            if host.answers() {
                loaded += 1;
                let status = host.status();
                assert_eq!(status["policy"]["proven"], true, "{how} at {at}: {status}");
                host.end(Signal::SIGKILL);
            } else {
                refused += 1;
            }
            assert_eq!(ruleset(&host), good, "{how} at {at}");
        }
    }
    assert!(refused > loaded && refused > 10, "{refused} refused, {loaded} loaded");
    restore(&host.ledger(), &whole);
    host.start();
    assert_eq!((host.applied_version(), ruleset(&host)), (Some(1), good));
}

fn restore(ledger: &Path, bytes: &[u8]) {
    let folder = ledger.parent().unwrap();
    for file in fs::read_dir(folder).unwrap().flatten().map(|file| file.path()) {
        let is_of_ledger = file.file_name().unwrap().to_str().unwrap().starts_with("standalone.ledger");
        if is_of_ledger {
            fs::remove_file(&file).unwrap();
        }
    }
    fs::write(ledger, bytes).unwrap();
}

#[test]
fn a_prefix_within_another_comes_and_goes_with_the_right_verdicts_in_both_families() {
    let (near, far) = world();
    far.run(|| output_of("ip", &["address", "add", "fd77::3/64", "dev", "eth0", "nodad"]));
    let host = Host::within(near);
    let passes = |from: &'static str| {
        let to = if from.contains(':') { "[fd77::1]:80".parse().unwrap() } else { host_port(80) };
        let listener = host.namespace.run(move || std::net::TcpListener::bind(to).unwrap());
        let connected = far.run(move || connect(from, to).is_ok());
        drop(listener);
        connected
    };
    let (inner, outer) = ([KEPT_PEER, "fd77::2"], ["10.77.0.0/16", "fd77::/48"]);
    // The smaller alone, both in either order, both again, the smaller alone, the larger alone, nothing.
    let both = [inner[0], inner[1], outer[0], outer[1]];
    let steps: [(&[&str], bool, bool); 6] = [
        (&inner, true, false),
        (&both, true, true),
        (&inner, true, false),
        (&outer, true, true),
        (&both, true, true),
        (&["192.0.2.1"], false, false),
    ];
    for (step, (peers, kept, other)) in steps.into_iter().enumerate() {
        host.write_policy(&of(peers));
        if step == 0 {
            host.start();
        } else {
            assert!(host.ask(&["reload"]).status.success(), "step {step}");
        }
        assert_eq!(host.status()["policy"]["proven"], true, "step {step}");
        for (from, expected) in [(KEPT_PEER, kept), ("fd77::2", kept), (CUT_PEER, other), ("fd77::3", other)] {
            assert_eq!(passes(from), expected, "step {step}: {from} with {peers:?}");
        }
    }
}

#[test]
fn a_hundred_thousand_addresses_come_change_and_go_and_no_packet_sees_it() {
    let (near, far) = world();
    let host = Host::within(near);
    let small = of(&[KEPT_PEER]);
    host.write_policy(&small);
    host.start();
    let before = host.namespace.run(listed);
    let probes = Probes::start(&host.namespace, &far);
    let mut many = addresses(100_000);
    many.push(KEPT_PEER.to_owned());
    let mut version = 1;
    for text in [policy(&many), policy(&many[1..]), small] {
        host.write_policy(&text);
        let reload = host.ask(&["reload"]);
        assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
        version += 1;
        assert_eq!((host.applied_version(), host.status()["policy"]["proven"].as_bool()), (Some(version), Some(true)));
    }
    assert_eq!(host.namespace.run(listed), before);
    let sent = probes.sent();
    assert_eq!(probes.end(), NOTHING, "of {sent}");
}
