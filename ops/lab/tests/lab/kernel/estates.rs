//! Estates by real packets: rendered, given to real agents, probed in both modes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use holdfast_documents::estate::At;
use holdfast_lab::lab::{HostState, Lab};
use holdfast_lab::packets::{Finding, Run, Silent, Standalone, cells_of};
use holdfast_lab::plan::plans_of;
use holdfast_lab::verify::{Case, load};
use holdfast_model::policy::Body;
use holdfast_render::{Index, render_all};
use serde_json::Value;

use super::stand::{agent, program};

/// The project's own estates.
const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/estates");

/// Twenty estates of the public catalogue that between them use every feature that it has, small enough for every run.
const SAMPLE: [&str; 20] = [
    "bugs/except-is-not-deny.json",
    "bugs/overlap-load.json",
    "bugs/port-range.json",
    "bugs/reuse-as-peer.json",
    "bugs/same-port-two-protocols.json",
    "bugs/v6-host-prefix.json",
    "graphs/online-boutique.json",
    "infra/kubespray-ha.json",
    "k8s-e2e/cidr-except-then-allowed-v4.json",
    "k8s-e2e/ingress-and-egress.json",
    "k8s-e2e/isolated-by-label.json",
    "k8s-e2e/named-port-egress.json",
    "k8s-e2e/pod-or-ns.json",
    "k8s-e2e/policy-deleted.json",
    "k8s-e2e/sctp-still-isolates.json",
    "k8s-e2e/udp-is-not-tcp.json",
    "np-guard/netpol-named-port-test.json",
    "recipes/04-other-namespaces.json",
    "recipes/14-external-egress.json",
    "tailnet-acl/acl-h07.json",
];

#[test]
fn our_own_estates_agree_packet_by_packet() {
    let reports = verify(&[Path::new(OWN).to_owned()]);
    assert_right(&reports);
    let harbour = reports.iter().filter(|report| report["id"] == "harbour").count();
    assert!(harbour > 1, "an estate with steps is judged after each");
}

#[test]
fn a_fixed_sample_of_the_catalogue_agrees_packet_by_packet() {
    let Some(catalogue) = catalogue() else { return };
    let reports = verify(&SAMPLE.map(|file| catalogue.join(file)));
    assert_right(&reports);
    let mut ids: Vec<&str> = reports.iter().filter_map(|report| report["id"].as_str()).collect();
    ids.dedup();
    assert_eq!(ids.len(), SAMPLE.len());
}

#[test]
fn a_host_that_enforces_less_than_was_rendered_is_found() {
    let Case::Estate(estate) = load(&Path::new(OWN).join("words/words-ipv6.json")).unwrap() else {
        panic!("no estate")
    };
    let state = &estate.states[0];
    let mut bodies: BTreeMap<String, Arc<Body>> = render_all(&Index::new(&state.intent))
        .into_iter()
        .map(|(id, body)| (estate.host_names[&id].clone(), body))
        .collect();
    let tampered = bodies.iter().find(|(_, body)| body.ingress.isolated).map(|(host, _)| host.clone()).unwrap();
    let opened = bodies.get_mut(&tampered).map(Arc::make_mut).unwrap();
    opened.ingress.isolated = false;

    let folder = tempfile::tempdir().unwrap();
    let (mut lab, _) = Lab::ensure(folder.path(), &plans_of(&estate, state)).unwrap();
    let mut fleet = Standalone::start(&mut lab, &agent(), &bodies).unwrap();
    let run = Run { lab: &lab, program: program(), fleet: &mut fleet, progress: &Silent };
    let report = run.verify(&cells_of(&estate, state, At::BothEnds).cells).unwrap();
    Lab::remove(folder.path(), HostState::Wipe).unwrap();

    assert!(!report.differences.is_empty());
    for difference in &report.differences {
        assert_eq!((difference.cell.to.to_string(), &difference.finding), (tampered.clone(), &Finding::Leaked));
    }
}

mod long_packets {
    use super::*;

    #[test]
    fn every_estate_of_up_to_forty_hosts_agrees_packet_by_packet() {
        let reports = verify(&[catalogue().unwrap_or_else(|| Path::new(OWN).to_owned())]);
        assert_right(&reports);
    }
}

/// The full catalogue, where the environment names one; a clone has the project's own estates, which are always judged.
fn catalogue() -> Option<PathBuf> {
    std::env::var_os("HOLDFAST_ESTATES").map(PathBuf::from)
}

/// Judges estates in a lab of their own.
fn verify(estates: &[PathBuf]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.arg("--lab").arg(folder.path()).args(["verify", "--standalone", "-o", "json", "--agent"]).arg(agent());
    estates.iter().for_each(|estate| {
        command.arg("--estate").arg(estate);
    });
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let reports = serde_json::from_slice(&output.stdout).unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "no verdict");
    reports
}

fn assert_right(reports: &[Value]) {
    assert!(!reports.is_empty());
    for report in reports {
        assert_eq!(report["differences"], Value::Array(Vec::new()), "{} step {}", report["id"], report["step"]);
        assert_eq!(report["agree"], report["cells"]);
        assert_eq!(report["unmet"], Value::Array(Vec::new()));
        let skipped = report["skipped"].as_array().unwrap();
        assert!(skipped.iter().all(|skipped| skipped["why"] == "no_address"), "{}: {skipped:?}", report["id"]);
    }
}
