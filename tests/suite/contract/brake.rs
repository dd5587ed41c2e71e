//! The brake of a real gateway that was set by its environment.

use std::process::Output;

use holdfast_identity::tls::install_crypto_provider;
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::peer::Peer;

/// A policy of so many rules for every host whose name begins so, which its `Host` document labels.
fn documents(ports: &[(&str, u16)]) -> String {
    let policy = |(app, count): &(&str, u16)| {
        let rules: String = (0..*count).map(|n| format!("  - services: [{{tcp: {}}}]\n", 1_000 + 2 * n)).collect();
        format!(
            "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: {app}}}\nspec:\n  hostSelector: \
             {{matchLabels: {{app: {app}}}}}\n  ingress:\n{rules}---\n"
        )
    };
    let host = |name: &str| {
        let app = name.split('-').next().unwrap_or(name);
        format!(
            "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {{name: {name}}}\nspec: {{labels: {{app: {app}}}}}\n---\n"
        )
    };
    ports.iter().map(policy).chain(["web-1", "web-2", "db-1"].into_iter().map(host)).collect()
}

/// A fifth of the rules of one host may go here, and no more than that of no more hosts: by default it is half, of ten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_brake_that_is_set_in_the_environment_of_a_real_gateway_is_the_one_that_judges() {
    install_crypto_provider();
    let settings = [("HOLDFAST_OPERATORS_BRAKE_HOSTS", "1"), ("HOLDFAST_OPERATORS_BRAKE_SHARE", "20")];
    let mut plane = ControlPlane::start_with(&settings.map(|(key, value)| (key, value.to_owned()))).await;
    for (n, name) in ["web-1", "web-2", "db-1"].into_iter().enumerate() {
        Peer::enrol(&plane, name, &format!("10.0.0.{}", n + 1)).await;
    }
    let apply = |ports: &[(&str, u16)], more: &[&str]| -> Output {
        let file = plane.file("documents.yaml", documents(ports)).display().to_string();
        plane.holdfast(&[&["apply", "-f", &file, "-o", "json"], more].concat())
    };
    let passes = |ports: &[(&str, u16)]| {
        let applied = apply(ports, &[]);
        assert!(applied.status.success(), "{ports:?}: {applied:?}");
    };
    passes(&[("web", 10), ("db", 10)]);
    passes(&[("web", 8), ("db", 10)]);
    passes(&[("web", 10), ("db", 10)]);
    // Nearly everything of as many hosts as may be.
    passes(&[("web", 10), ("db", 3)]);

    let refused = apply(&[("web", 7), ("db", 3)], &[]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let problem: Value = serde_json::from_slice(&refused.stderr).unwrap_or_else(|error| panic!("{error}: {refused:?}"));
    assert_eq!(problem["type"], "urn:holdfast:problem:blast-radius", "{problem}");
    let brake = &problem["brake"];
    assert_eq!(
        (&brake["hosts_losing"], &brake["hosts"]),
        (&2.into(), &vec!["default/web-1", "default/web-2"].into()),
        "{problem}"
    );
    let meant = format!("{}|three ports are closed", brake["acknowledge"].as_str().expect("a digest"));
    let applied = apply(&[("web", 7), ("db", 3)], &["--acknowledge", &meant]);
    assert!(applied.status.success(), "{applied:?}");
    plane.assert_runs();
}
