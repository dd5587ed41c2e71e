//! What a host says of itself as a whole, from its signed report through the database to what people and programs are shown.

use holdfast_model::condition::{Basis, ConditionType, Holds, Reason};
use holdfast_model::desired::Component;
use holdfast_model::report::{HostReport, StatedCondition};
use holdfast_model::statement::OutcomeKind;
use serde_json::Value;

use crate::plane::Plane;

/// A host that speaks the protocol that has words for reports, with an outcome of every component.
async fn mk_plane() -> Plane {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.file("policies.yaml", crate::intent::POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.speaks("db-1", 3);
    plane.says("db-1", OutcomeKind::Applied).await;
    plane
}

fn condition(report: &mut HostReport, kind: ConditionType) -> &mut StatedCondition {
    condition_of(report, Component::Policy, kind)
}

fn condition_of(report: &mut HostReport, component: Component, kind: ConditionType) -> &mut StatedCondition {
    let mut components = report.components.iter_mut().filter(|one| one.component == component);
    let conditions = &mut components.next().expect("every component").conditions;
    conditions.iter_mut().find(|one| one.condition.kind == kind).expect("every condition of it")
}

async fn shown(plane: &Plane) -> Value {
    plane.run(&["describe", "host", "db-1", "-o", "json"]).await.json()
}

async fn policy_of(plane: &Plane) -> (String, Option<String>) {
    let host = shown(plane).await;
    let policy = &host["components"][0];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    (text(&policy["state"]).expect("a state"), text(&policy["missing"]["fact"]))
}

#[tokio::test]
async fn a_host_that_can_report_is_converged_by_its_report_alone_and_is_shown_with_every_condition_and_its_age() {
    let mut plane = mk_plane().await;
    assert_eq!(policy_of(&plane).await, ("unknown".to_owned(), Some("report".to_owned())), "an outcome is not enough");
    let told = plane.run(&["explain", "host", "db-1"]).await.ended(0);
    assert!(told.contains("has said nothing of the host as a whole in this session"), "{told}");

    plane.reports("db-1", |_| {}).await;
    assert_eq!(policy_of(&plane).await, ("converged".to_owned(), None));
    let host = shown(&plane).await;
    let conditions = host["components"][0]["conditions"].as_array().expect("a list").clone();
    let kinds: Vec<&str> = conditions.iter().filter_map(|one| one["type"].as_str()).collect();
    assert_eq!(kinds, ConditionType::ALL.map(ConditionType::word));
    assert!(
        conditions.iter().all(|one| one["basis"] == "observed" && one["observed_at"].is_string()),
        "{conditions:?}"
    );
    assert_eq!((&host["report"]["signature_valid"], &host["report"]["in_this_session"]), (&true.into(), &true.into()));
    assert!(host["report"]["age_ms"].as_u64().is_some_and(|age| age < 60_000), "{host}");
    assert_eq!(host["initialized"]["outcome"], "complete");
    let words = plane.run(&["describe", "host", "db-1", "-o", "wide"]).await.ended(0);
    for line in [
        "Status:       said",
        "Initialized:  complete",
        "Confirmed         True     done",
        "NoDrift           True     done",
    ] {
        assert!(words.contains(line), "{line}: {words}");
    }

    // It answered something since: what it said of itself is older than that.
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(policy_of(&plane).await, ("progressing".to_owned(), Some("newer_report".to_owned())));
    plane.reports("db-1", |_| {}).await;
    assert_eq!(policy_of(&plane).await.0, "converged");

    // In its next session it starts from nothing.
    plane.speaks("db-1", 3);
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(policy_of(&plane).await, ("unknown".to_owned(), Some("report".to_owned())));
    let host = shown(&plane).await;
    assert_eq!(host["report"]["in_this_session"], false, "{host}");
    // A host of an earlier protocol is judged by what it can say.
    plane.speaks("db-1", 2);
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(policy_of(&plane).await, ("converged".to_owned(), None));
}

#[tokio::test]
async fn what_a_host_gave_up_again_is_shown_by_its_report_and_not_by_the_outcome_before_it() {
    let mut plane = mk_plane().await;
    let before = plane.policy_of("db-1").await.stamp;
    plane.file("policies.yaml", &crate::intent::POLICIES.replace("5432", "5433"));
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.says("db-1", OutcomeKind::Applied).await;
    let taken_back = |report: &mut HostReport| {
        report.components.first_mut().expect("the policy is first").applied = Some(before);
    };
    plane.reports("db-1", taken_back).await;
    assert_eq!(policy_of(&plane).await, ("progressing".to_owned(), Some("latest".to_owned())));
    let host = shown(&plane).await;
    assert_eq!(host["components"][0]["applied"]["version"], before.version.raw(), "{host}");
    let diff = plane.run(&["diff", "db-1", "-o", "json"]).await.json();
    assert_eq!(diff["applied_version"], before.version.raw(), "{diff}");
    // As after a restore of the database, or as a host lies: there is nothing here to compare that with.
    let strange = holdfast_model::desired::Stamp {
        version: before.version,
        digest: holdfast_model::desired::Component::Settings.empty_digest(),
    };
    let never = |report: &mut HostReport| {
        report.components.first_mut().expect("the policy is first").applied = Some(strange);
    };
    plane.reports("db-1", never).await;
    let diff = plane.run(&["diff", "db-1"]).await;
    assert!(diff.stderr.contains("never rendered") && diff.stderr.contains("not-rendered"), "{diff:?}");
}

/// Generated from the vocabulary, of every component: through report, database, derivation and API.
#[tokio::test]
async fn every_condition_that_blocks_and_was_not_seen_or_only_inferred_keeps_a_host_from_being_converged() {
    let mut plane = mk_plane().await;
    let of = |component: Component| ConditionType::of(component).iter().map(move |kind| (component, *kind));
    for (component, kind) in Component::ALL.into_iter().flat_map(of) {
        for (status, basis) in
            [(Holds::Unknown, Basis::Observed), (Holds::False, Basis::Observed), (Holds::True, Basis::Inferred)]
        {
            let change = |report: &mut HostReport| {
                let one = condition_of(report, component, kind);
                (one.condition.status, one.condition.reason, one.basis) = (status, Reason::NotReached, basis);
            };
            plane.reports("db-1", change).await;
            let counts = basis == Basis::Observed || kind.can_decay();
            let wanted = match (status, kind.is_blocking() && counts) {
                (Holds::False, true) => "failed",
                (Holds::False, false) => "degraded",
                (_, true) => "unknown",
                (_, false) => "converged",
            };
            let host = shown(&plane).await;
            assert_eq!(host["state"], wanted, "the host, by {component} {kind} {status:?} {basis:?}");
            let components = host["components"].as_array().expect("a list");
            assert_eq!(components.len(), Component::ALL.len());
            for one in components {
                let wanted = if one["component"] == component.word() { wanted } else { "converged" };
                assert_eq!(one["state"], wanted, "by {component} {kind} {status:?} {basis:?}: {one}");
                let condition = (wanted != "converged").then(|| kind.word());
                assert_eq!(one["missing"]["condition"].as_str(), condition, "{one}");
            }
        }
    }
}

#[tokio::test]
async fn a_revision_that_hosts_are_proven_to_have_stays_converged_while_a_later_one_fails() {
    let mut plane = mk_plane().await;
    plane.reports("db-1", |_| {}).await;
    let before = plane.policy_of("db-1").await.stamp;
    let state = async |plane: &Plane, revision: u64| {
        let shown = plane.run(&["get", "revision", &revision.to_string(), "-o", "json"]).await.json();
        assert_eq!(shown["has_hosts"], true, "{shown}");
        shown["status"]["state"].as_str().expect("a state").to_owned()
    };
    let first = plane.run(&["status", "-o", "json"]).await.json()["revision"].as_u64().expect("a number");
    assert_eq!(state(&plane, first).await, "converged");
    plane.file("policies.yaml", &crate::intent::POLICIES.replace("5432", "5433"));
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    let both = [state(&plane, first).await, state(&plane, first + 1).await];
    assert_eq!(both, ["converged", "progressing"]);
    plane.says("db-1", OutcomeKind::Failed).await;
    let last_good = |report: &mut HostReport| {
        let policy = report.components.first_mut().expect("the policy is first");
        policy.applied = Some(before);
        policy.conditions.iter_mut().for_each(|one| one.condition.observed_version = Some(before.version));
    };
    plane.reports("db-1", last_good).await;
    let both = [state(&plane, first).await, state(&plane, first + 1).await];
    assert_eq!(both, ["converged", "failed"]);
    // What it is not proven to have any more is not told of it.
    let lost = |report: &mut HostReport| {
        last_good(report);
        condition(report, ConditionType::Verified).condition.status = Holds::Unknown;
    };
    plane.reports("db-1", lost).await;
    assert_eq!(state(&plane, first).await, "failed");
}

#[tokio::test]
async fn what_a_condition_lacks_is_said_in_its_own_words() {
    let mut plane = mk_plane().await;
    let trial = |report: &mut HostReport| {
        let one = &mut condition(report, ConditionType::Confirmed).condition;
        (one.status, one.reason) = (Holds::Unknown, Reason::OnTrial);
    };
    plane.reports("db-1", trial).await;
    assert_eq!(policy_of(&plane).await, ("progressing".to_owned(), Some("trial".to_owned())));
    let told = plane.run(&["explain", "host", "db-1"]).await.ended(0);
    assert!(told.contains("still to prove that it leads to a gateway") && told.contains("needs: an echo"), "{told}");

    let forwards = |report: &mut HostReport| {
        let one = &mut condition(report, ConditionType::ForwardingCovered).condition;
        (one.status, one.reason) = (Holds::Unknown, Reason::ForwardedNotEnforced);
    };
    plane.reports("db-1", forwards).await;
    assert_eq!(policy_of(&plane).await.0, "converged", "it is told and blocks nothing");
    let words = plane.run(&["describe", "host", "db-1"]).await.ended(0);
    assert!(words.contains("ForwardingCovered Unknown  forwarded_not_enforced"), "{words}");

    let inferred = |report: &mut HostReport| condition(report, ConditionType::Verified).basis = Basis::Inferred;
    plane.reports("db-1", inferred).await;
    let words = plane.run(&["describe", "host", "db-1", "-o", "wide"]).await.ended(0);
    assert!(words.contains("Verified          True     done (inferred)"), "{words}");
}

#[tokio::test]
async fn a_host_is_initialized_once_every_component_is_in_force_and_until_then_says_why_not() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    let initialized = async |plane: &Plane| {
        let host = shown(plane).await;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        (text(&host["initialized"]["outcome"]), text(&host["initialized"]["component"]))
    };
    let is = |outcome: &str, component: Option<&str>| (Some(outcome.to_owned()), component.map(str::to_owned));
    assert_eq!(initialized(&plane).await, is("missing", Some("policy")), "it never had a session");
    plane.file("policies.yaml", crate::intent::POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    plane.says("db-1", OutcomeKind::Failed).await;
    assert_eq!(initialized(&plane).await, is("failed", Some("policy")));
    let told = plane.run(&["explain", "host", "db-1"]).await.ended(0);
    assert!(told.contains("not initialized (failed): the host did not take policy"), "{told}");
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(initialized(&plane).await, is("complete", None));
    // What fails later does not undo it; a session that begins anew does, until it has everything.
    plane.says("db-1", OutcomeKind::Failed).await;
    assert_eq!(initialized(&plane).await, is("complete", None));
    plane.speaks("db-1", 2);
    plane.opens("db-1").await;
    assert_eq!(initialized(&plane).await, is("pending", Some("policy")));
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(initialized(&plane).await, is("complete", None));
}

/// Every component is desired and none is in force: the clock alone, or what the host says, has the word.
#[tokio::test]
async fn a_bootstrap_that_is_late_and_one_of_other_bytes_are_told_by_lists_and_descriptions_until_it_is_complete() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.file("policies.yaml", crate::intent::POLICIES);
    plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0);
    plane.render().await;
    let initialized = async |plane: &Plane| {
        let listed = plane.run(&["get", "hosts", "-o", "json"]).await.json();
        let (listed, described) =
            (listed["items"][0]["initialized"].clone(), shown(plane).await["initialized"].clone());
        assert_eq!(listed, described, "the list and the host alone");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        (text(&listed["outcome"]), text(&listed["component"]))
    };
    let is = |outcome: &str, component: Option<&str>| (Some(outcome.to_owned()), component.map(str::to_owned));
    plane.opens("db-1").await;
    assert_eq!(initialized(&plane).await, is("pending", Some("policy")));
    let opened = |plane: &Plane, seconds: u32| {
        plane.postgres.sql(&format!("UPDATE sessions SET opened_at = clock_timestamp() - interval '{seconds} s'"));
    };
    opened(&plane, 40);
    assert_eq!(initialized(&plane).await, is("pending", Some("policy")), "it is not late yet");
    opened(&plane, 61);
    assert_eq!(initialized(&plane).await, is("timed_out", Some("policy")));
    let told = plane.run(&["explain", "host", "db-1"]).await.ended(0);
    assert!(told.contains("not initialized (timed_out)"), "{told}");

    plane.refuses("db-1", Reason::WrongDigest).await;
    assert_eq!(initialized(&plane).await, is("mismatched", Some("policy")));
    let told = plane.run(&["explain", "host", "db-1"]).await.ended(0);
    assert!(told.contains("not initialized (mismatched)"), "{told}");
    plane.says("db-1", OutcomeKind::Applied).await;
    assert_eq!(initialized(&plane).await, is("complete", None));
}

/// As a foreign hand, or a newer build, may have written it.
#[tokio::test]
async fn a_host_of_which_something_cannot_be_read_is_unknown_and_named_and_the_others_are_told_as_ever() {
    let mut plane = mk_plane().await;
    plane.enrol("web-1", "10.0.0.9").await;
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    let states = async || {
        let listed = plane.run(&["get", "hosts", "-o", "json"]).await.json();
        let listed = listed["items"].as_array().or_else(|| listed.as_array()).expect("a list").clone();
        let of = |name: &str| listed.iter().find(|host| host["name"] == name).expect("it is listed")["state"].clone();
        [of("db-1"), of("web-1")]
    };
    let web = states().await[1].clone();
    let of = "host_id = (SELECT host_id FROM hosts WHERE name = 'db-1') AND component = 1";
    plane.postgres.sql(&format!("UPDATE observed SET reason = 'moon_phase' WHERE {of}"));
    assert_eq!(states().await, ["unknown".into(), web], "one word is wrong");
    assert_eq!(policy_of(&plane).await, ("unknown".to_owned(), Some("readable".to_owned())));
    let described = plane.run(&["describe", "host", "db-1"]).await.ended(0);
    assert!(described.contains("UNREADABLE:   observed.reason in the database"), "{described}");
    let doctor = plane.run(&["doctor"]).await;
    assert!(doctor.stdout.contains("1 of 2 hosts converged, 1 unknown"), "{doctor:?}");

    // Neither can its name: its id stands there, for whoever reaches all; a token of its namespace alone is told of nothing else.
    let id = shown(&plane).await["id"].as_str().expect("an id").to_owned();
    plane.postgres.sql("UPDATE hosts SET name = 'No Name', namespace = '' WHERE name = 'db-1'");
    let listed = plane.run(&["get", "hosts", "-o", "json"]).await.json();
    let hosts = listed["items"].as_array().or_else(|| listed.as_array()).expect("a list");
    let named: Vec<_> = hosts.iter().map(|host| (host["name"].as_str(), host["state"].as_str())).collect();
    assert_eq!(named, [(Some(id.as_str()), Some("unknown")), (Some("web-1"), Some("converged"))], "{listed}");
    let described = plane.run(&["describe", "host", &id]).await.ended(0);
    assert!(described.contains("UNREADABLE:   hosts.namespace in the database"), "{described}");
    let scoped = ["api-token", "create", "v", "--role", "viewer", "--namespace", "default"];
    let scoped = plane.run(&scoped).await.ended(0);
    let seen = plane.run_as(scoped.trim(), &["get", "hosts", "-o", "name"]).await.ended(0);
    assert_eq!(seen, "host/default/web-1\n");
    assert_eq!(plane.run(&["status", "-o", "json"]).await.json()["hosts"]["total"], 2);
}
