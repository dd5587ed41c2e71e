//! The two doors under names that are not theirs, asked by the real programs.

use std::fs;
use std::process::{Command, Output};

use holdfast_identity::files;

use crate::control_plane::{ControlPlane, program};

/// Leads to 127.0.0.1, and stands in no certificate.
const ELSEWHERE: &str = "[::ffff:127.0.0.1]";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn enrol(plane: &ControlPlane, gateway: &str) -> Output {
    let pin = fs::read_to_string(plane.keys("public").join("ca.pin")).expect("init made it");
    let mut command = Command::new(program("holdfast-agent"));
    command.env_clear().arg("enrol").arg("--state").arg(plane.folder().join("state"));
    command.arg("--token-file").arg(plane.folder().join("late.token"));
    command.args(["--gateway", gateway, "--ca-pin", pin.trim(), "--name", "late"]).output().expect("it runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_door_under_a_name_that_is_not_its_own_or_in_the_place_of_the_other_gets_no_token() {
    let plane = ControlPlane::start().await;
    let made = plane.holdfast(&["enrol-token", "create", "--uses", "1"]);
    assert!(made.status.success(), "{made:?}");
    files::write_secret(&plane.folder().join("late.token"), &made.stdout).expect("the folder is ours");
    let agents = plane.agents_door().port();
    let operators = plane.api().rsplit_once(':').expect("a port").1.to_owned();

    // The right door by a wrong name, and another door of the same CA by a right one.
    for (gateway, why) in [
        (format!("https://{ELSEWHERE}:{agents}"), "not valid for name"),
        (format!("https://127.0.0.1:{operators}"), "GatewayOperators"),
    ] {
        let refused = enrol(&plane, &gateway);
        assert!(!refused.status.success() && said(&refused).contains("[tls-refused]"), "{gateway}: {}", said(&refused));
        assert!(said(&refused).contains(why), "{gateway}: {}", said(&refused));
        assert!(!plane.folder().join("state/identity").exists(), "{gateway}");
    }
    let api = format!("https://{ELSEWHERE}:{operators}");
    let refused = plane.holdfast_command().env("HOLDFAST_API", &api).args(["get", "hosts"]).output().expect("it runs");
    assert!(!refused.status.success() && said(&refused).contains("[tls-refused]"), "{}", said(&refused));
    assert!(said(&refused).contains("not valid for name"), "{}", said(&refused));
    assert_eq!(plane.postgres.sql("select sum(uses) from enrol_tokens").trim(), "0", "no token was shown");

    // By their own names they are who they are.
    let listed = plane.holdfast(&["get", "hosts"]);
    assert!(listed.status.success(), "{}", said(&listed));
    let enrolled = enrol(&plane, &format!("https://127.0.0.1:{agents}"));
    assert!(enrolled.status.success(), "{}", said(&enrolled));
}
