//! Tokens, enrolment, addresses and certificates.

use holdfast_events::{ApiTokenCreated, EnrolmentRefusal, Label128, NamespaceScope, Role};
use holdfast_model::ids::ApiTokenId;
use holdfast_model::numbers::{LeaseTerm, Revision};
use holdfast_store::Error;
use holdfast_store::request::{Decided, Decision, IssuedCertificate, RequestAnswer, RequestBody, TokenRefusal};
use holdfast_store::token::TokenHash;
use uuid::Uuid;

use crate::common::{Fleet, HASH, OPERATOR, mk_addresses, mk_certificate, mk_enrolment, mk_name, mk_serial};

#[tokio::test]
async fn a_token_enrols_within_its_scope_and_no_more_often_than_it_says() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 2).await;
    let asked = fleet.agents.request_enrolment(fleet.gateway, mk_enrolment("db-1", &["10.0.0.1", "192.0.2.1"])).await;
    let (id, host) = asked.expect("asks").expect("the token is good");
    let answers = fleet.agents.request_answers(vec![id]).await.expect("reads");
    assert_eq!(answers, vec![(id, host, RequestAnswer::Waiting)]);
    let request = fleet.renderer.waiting_requests(10).await.expect("reads").remove(0);
    let RequestBody::Enrolment { token, .. } = &request.body else { panic!("an enrolment") };
    assert_eq!(token.uses, 1);
    let grant = Decision::Grant(Some(mk_certificate("01")));
    let decided = fleet.renderer.decide_request(fleet.term, request.clone(), grant.clone()).await.expect("decides");
    assert_eq!(decided, Decided::Enrolled { revision: Revision::from_raw(1), host });
    let again = fleet.renderer.decide_request(fleet.term, request, grant.clone()).await.expect("decides");
    assert_eq!(again, Decided::AlreadyDecided);
    let granted = RequestAnswer::Granted { certificate_chain: Some(vec![9]) };
    assert_eq!(fleet.agents.request_answers(vec![id]).await.expect("reads"), vec![(id, host, granted)]);
    let intent = fleet.renderer.load_intent(None).await.expect("loads").1;
    let enrolled = intent.hosts.get(&host).expect("a host");
    assert_eq!(enrolled.addresses, mk_addresses(&["10.0.0.1"]));
    assert_eq!(enrolled.labels.get("app").map(String::as_str), Some("db"));
    assert_eq!(fleet.agents.host_identities(vec![host]).await.expect("loads").remove(0).name, mk_name("db-1"));

    let asked = fleet.agents.request_enrolment(fleet.gateway, mk_enrolment("db-1", &["10.0.0.2"])).await;
    let (id, second) = asked.expect("asks").expect("one use is left");
    let request = fleet.renderer.waiting_requests(10).await.expect("reads").remove(0);
    let decided = fleet.renderer.decide_request(fleet.term, request, grant).await.expect("decides");
    assert_eq!(decided, Decided::Refused(EnrolmentRefusal::NameTaken));
    let refused = RequestAnswer::Refused(EnrolmentRefusal::NameTaken);
    assert_eq!(fleet.agents.request_answers(vec![id]).await.expect("reads"), vec![(id, second, refused)]);
    let third = fleet.agents.request_enrolment(fleet.gateway, mk_enrolment("db-3", &["10.0.0.3"])).await;
    assert_eq!(third.expect("answers"), Err(TokenRefusal::Spent));
    assert_eq!(fleet.renderer.latest_revision().await.expect("reads"), Revision::from_raw(1));
}

#[tokio::test]
async fn the_same_request_once_more_is_the_one_that_is_there_and_takes_no_use() {
    let fleet = Fleet::start().await;
    let token = fleet.create_token("10.0.0.0/8", 1).await;
    let ask = async |enrolment| fleet.agents.request_enrolment(fleet.gateway, enrolment).await.expect("answers");
    let enrolment = mk_enrolment("db-1", &["10.0.0.1"]);
    let (first, second) = tokio::join!(ask(enrolment.clone()), ask(enrolment.clone()));
    let first = first.expect("the token is good");
    assert_eq!(second, Ok(first), "also at once");
    let request = fleet.renderer.waiting_requests(10).await.expect("reads").remove(0);
    let decided = fleet.renderer.decide_request(fleet.term, request, Decision::Grant(Some(mk_certificate("01")))).await;
    assert_eq!(decided.expect("decides"), Decided::Enrolled { revision: Revision::from_raw(1), host: first.1 });
    assert!(fleet.operators.revoke_enrol_token(OPERATOR, token).await.expect("revokes"));
    assert_eq!(ask(enrolment.clone()).await, Ok(first), "the answer that was lost is there");
    assert_eq!(fleet.operators.list_enrol_tokens().await.expect("lists").remove(0).uses, 1);
    // Another key is another request.
    let other = holdfast_store::request::Enrolment { csr: vec![4], ..enrolment };
    assert_eq!(ask(other).await, Err(TokenRefusal::Revoked));
}

#[tokio::test]
async fn an_enrolment_that_is_finished_when_its_certificate_is_old_gets_a_new_one_for_the_same_host_and_use() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 1).await;
    let ask = async || {
        let enrolment = mk_enrolment("db-1", &["10.0.0.1"]);
        fleet.agents.request_enrolment(fleet.gateway, enrolment).await.expect("answers").expect("it is known")
    };
    let grant = async |serial: &str, chain: u8| {
        let request = fleet.renderer.waiting_requests(10).await.expect("reads").remove(0);
        let certificate = IssuedCertificate { chain: vec![chain], ..mk_certificate(serial) };
        let decision = Decision::Grant(Some(certificate));
        fleet.renderer.decide_request(fleet.term, request, decision).await.expect("decides")
    };
    let age = |hours: u32| {
        let change =
            format!("not_before = not_before - interval '{hours} h', not_after = not_after - interval '{hours} h'");
        fleet.server.sql(&format!("UPDATE certificates SET {change}"));
    };
    let (first, host) = ask().await;
    assert_eq!(grant("01", 1).await, Decided::Enrolled { revision: Revision::from_raw(1), host });
    age(15);
    assert_eq!(ask().await, (first, host), "nine hours are left");
    // A machine that was off over a weekend; its token is long over.
    age(33);
    fleet.server.sql("UPDATE enrol_tokens SET expires_at = now() - interval '1 h'");
    let (one, two) = tokio::join!(ask(), ask());
    assert_eq!(one, two, "also at once");
    assert!(one.0 != first && one.1 == host, "another request of the same host");
    assert_eq!(grant("02", 2).await, Decided::Certified { host });
    assert_eq!(ask().await, one, "whoever lost this one too asks again");
    let granted = RequestAnswer::Granted { certificate_chain: Some(vec![2]) };
    assert_eq!(fleet.agents.request_answers(vec![one.0]).await.expect("reads"), vec![(one.0, host, granted)]);
    age(48);
    let third = ask().await;
    assert!(third.0 != one.0 && third.1 == host, "and the next one when that is old");
    let serial: String = mk_serial(host).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(grant(&serial, 3).await, Decided::Certified { host });
    let counts = "SELECT (SELECT count(*) FROM hosts), (SELECT sum(uses) FROM enrol_tokens), \
                  (SELECT count(*) FROM requests), (SELECT count(*) FROM certificates)";
    assert_eq!(fleet.server.sql(counts), "1|1|3|3\n", "hosts, uses, requests, certificates");
    // A host that had a session has its identity: what it enrolled with makes no more certificates.
    fleet.open(host).await;
    age(48);
    assert_eq!(ask().await, (first, host));
}

#[tokio::test]
async fn an_address_out_of_range_an_unknown_a_revoked_and_an_old_token_enrol_nobody() {
    let fleet = Fleet::start().await;
    let token = fleet.create_token("10.0.0.0/8", 9).await;
    let asked = fleet.agents.request_enrolment(fleet.gateway, mk_enrolment("db-1", &["192.0.2.1"])).await;
    assert!(asked.expect("asks").is_ok());
    let request = fleet.renderer.waiting_requests(10).await.expect("reads").remove(0);
    let decided = fleet.renderer.decide_request(fleet.term, request, Decision::Grant(None)).await.expect("decides");
    assert_eq!(decided, Decided::Refused(EnrolmentRefusal::AddressOutOfScope));
    let mut unknown = mk_enrolment("db-2", &["10.0.0.2"]);
    unknown.hash = TokenHash([8; 32]);
    assert_eq!(
        fleet.agents.request_enrolment(fleet.gateway, unknown).await.expect("answers"),
        Err(TokenRefusal::Unknown)
    );
    assert!(fleet.operators.revoke_enrol_token(OPERATOR, token).await.expect("revokes"));
    assert!(!fleet.operators.revoke_enrol_token(OPERATOR, token).await.expect("answers"));
    let revoked = mk_enrolment("db-3", &["10.0.0.3"]);
    let answer = fleet.agents.request_enrolment(fleet.gateway, revoked.clone()).await.expect("answers");
    assert_eq!(answer, Err(TokenRefusal::Revoked));
    fleet.server.sql("UPDATE enrol_tokens SET revoked_at = NULL, expires_at = now() - interval '1 s'");
    let answer = fleet.agents.request_enrolment(fleet.gateway, revoked).await.expect("answers");
    assert_eq!(answer, Err(TokenRefusal::Expired));
    assert_eq!(fleet.operators.list_enrol_tokens().await.expect("lists").remove(0).uses, 1);
}

#[tokio::test]
async fn c19_a_new_address_in_range_is_a_revision_and_the_same_report_is_none() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let host = fleet.enrol("db-1", "10.0.0.1").await;
    let report = async |addresses: &[&str]| {
        let reports = vec![(host, mk_addresses(addresses))];
        fleet.agents.report_addresses(fleet.gateway, reports).await.expect("reports").len()
    };
    for nothing_new in [&["10.0.0.1"][..], &["192.0.2.7", "10.0.0.1"], &["192.0.2.7"]] {
        assert_eq!(report(nothing_new).await, 0, "{nothing_new:?}");
    }
    // Two reports before the renderer looks: the second says nothing new by then.
    assert_eq!(report(&["10.0.0.2", "10.0.0.1"]).await, 1);
    assert_eq!(report(&["10.0.0.1", "10.0.0.2", "10.0.0.1"]).await, 1);
    let mut decided = Vec::new();
    for request in fleet.renderer.waiting_requests(10).await.expect("reads") {
        let decision = Decision::Grant(None);
        decided.push(fleet.renderer.decide_request(fleet.term, request, decision).await.expect("decides"));
    }
    assert_eq!(decided, [Decided::Moved { revision: Revision::from_raw(2), host }, Decided::NothingNew]);
    let changes = fleet.renderer.changes_since(Revision::from_raw(1)).await.expect("loads");
    let moved = changes.hosts.first().and_then(|change| change.now.clone()).expect("a host");
    assert_eq!(moved.addresses, mk_addresses(&["10.0.0.1", "10.0.0.2"]));
}

#[tokio::test]
async fn a_certificate_is_asked_for_and_answered_and_a_stale_renderer_decides_nothing() {
    let fleet = Fleet::start().await;
    fleet.create_token("10.0.0.0/8", 9).await;
    let host = fleet.enrol("db-1", "10.0.0.1").await;
    let id = fleet.agents.request_certificate(fleet.gateway, host, vec![4]).await.expect("asks");
    let request = fleet.renderer.waiting_requests(10).await.expect("reads").remove(0);
    assert_eq!(request.body, RequestBody::Certificate { csr: vec![4] });
    let grant = Decision::Grant(Some(mk_certificate("02")));
    let stale = LeaseTerm::from_raw(fleet.term.raw() + 1);
    let refused = fleet.renderer.decide_request(stale, request.clone(), grant.clone()).await;
    assert!(matches!(refused, Err(Error::Fenced { .. })));
    let decided = fleet.renderer.decide_request(fleet.term, request, grant).await.expect("decides");
    assert_eq!(decided, Decided::Certified { host });
    let granted = RequestAnswer::Granted { certificate_chain: Some(vec![9]) };
    assert_eq!(fleet.agents.request_answers(vec![id]).await.expect("reads"), vec![(id, host, granted)]);
    assert_eq!(fleet.server.sql("SELECT count(*) FROM certificates"), "2\n");
}

#[tokio::test]
async fn an_api_token_is_good_until_it_is_revoked() {
    let fleet = Fleet::start().await;
    let token = ApiTokenId::new(Uuid::now_v7());
    let created = ApiTokenCreated {
        token,
        name: Label128::new("ci"),
        role: Role::Editor,
        namespaces: NamespaceScope::Of(vec![mk_name("default")]),
        expires_at: None,
    };
    fleet.operators.create_api_token(OPERATOR, created, HASH).await.expect("creates");
    let grant = fleet.operators.authorize_api(HASH).await.expect("asks").expect("good");
    assert_eq!((grant.token, grant.role), (token, Role::Editor));
    assert_eq!(fleet.operators.authorize_api(TokenHash([0; 32])).await.expect("asks"), None);
    assert_eq!(fleet.operators.list_api_tokens().await.expect("lists").len(), 1);
    assert!(fleet.operators.revoke_api_token(OPERATOR, token).await.expect("revokes"));
    assert_eq!(fleet.operators.authorize_api(HASH).await.expect("asks"), None);
}
