//! What is applied once more while it is in force: no revision, and a wait that ends with what is true.

use std::time::{Duration, Instant};

use holdfast_model::statement::OutcomeKind;
use serde_json::Value;

use crate::intent::POLICIES;
use crate::plane::Plane;

#[tokio::test]
async fn h20_a_wait_on_what_is_in_force_already_ends_at_once_with_what_is_true_and_makes_no_revision() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("web-1", "10.0.0.2").await;
    plane.file("policies.yaml", POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    let again = ["apply", "-f", "policies.yaml", "--wait", "--timeout", "60s", "-o", "json"];
    let said = at_once(&plane, &again, 0).await;
    assert_eq!(
        (&said["unchanged"], &said["operation"], &said["status"]["wait"]),
        (&true.into(), &Value::Null, &"reached".into())
    );
    assert_eq!(said["status"]["hosts"]["converged"], 2, "{said}");
    let revision = said["revision"].clone();

    // In force by intent, and refused by a host: that is what is true now.
    plane.says("db-1", OutcomeKind::Failed).await;
    // For longer than its recovery may take.
    plane.postgres.sql("UPDATE observed SET outcome_at = outcome_at - interval '1 min'");
    let said = at_once(&plane, &again, 1).await;
    assert_eq!((&said["unchanged"], &said["status"]["wait"]), (&true.into(), &"failed".into()), "{said}");
    assert_eq!(said["revision"], revision, "no revision was made");
}

/// What a command says that must not take the time that it may wait.
async fn at_once(plane: &Plane, arguments: &[&str], code: i32) -> Value {
    let began = Instant::now();
    let ran = plane.run(arguments).await;
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    serde_json::from_str(&ran.stdout).expect("JSON")
}
