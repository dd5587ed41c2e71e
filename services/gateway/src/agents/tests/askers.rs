//! Several who ask the same at one door.

use holdfast_model::ids::EventId;
use tokio::task::AbortHandle;

use super::*;

/// One more who asks at the door until there is an answer.
fn ask(
    askers: &mut JoinSet<holdfast_identity::https::Response>,
    estate: &Estate,
    request: &EnrolRequest,
) -> AbortHandle {
    let url = format!("https://{}{ENROL_PATH}", estate.address);
    let client = Client::new(tls::enrolment(estate.ca.pin()).unwrap());
    let body = serde_json::to_vec(request).unwrap();
    askers.spawn(async move { client.request(Request::new(Method::POST, url).body(body)).await.unwrap() })
}

/// Until so many have asked and wait.
async fn waiting_until(estate: &Estate, asked: usize) {
    let wait = async {
        while estate.memory.asked() < asked {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Whoever asked waits at once; the second look from now began after that.
        let looks = estate.memory.looks() + 2;
        while estate.memory.looks() < looks {
            let hint = Hint::Answer { request: EventId::new(Uuid::nil()) };
            estate.wakes.send(Wake::Hint(hint)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("all of them ask");
}

#[tokio::test]
async fn who_asks_the_same_enrolment_at_one_gateway_gets_its_answer_each_and_who_leaves_takes_nobody_along() {
    let estate = Estate::start().await;
    let token = Token::generate(TokenKind::Enrol).unwrap();
    let hash = TokenHash(*token.hash().as_bytes());
    estate.memory.allow_token(hash, 2);
    estate.memory.set_undecided(true);
    let (leaf, outcome) = (LeafKey::generate().unwrap(), SigningKey::generate().unwrap());
    let request = mk_enrolment(token.reveal(), &leaf, &outcome);
    let mut askers = JoinSet::new();
    let mut handles = Vec::new();
    for asked in 1..=3 {
        handles.push(ask(&mut askers, &estate, &request));
        waiting_until(&estate, asked).await;
    }
    // The last one hangs up while all three wait; nobody was sent away meanwhile.
    handles.pop().unwrap().abort();
    assert!(askers.join_next().await.unwrap().unwrap_err().is_cancelled());
    waiting_until(&estate, 3).await;
    assert!(handles.iter().all(|asker| !asker.is_finished()), "somebody was sent away before there was an answer");

    estate.memory.set_undecided(false);
    let mut hosts = Vec::new();
    for response in tokio::time::timeout(DEADLINE, askers.join_all()).await.expect("answers") {
        assert_eq!(response.status, 200, "{:?}", response.body);
        let enrolled: EnrolResponse = serde_json::from_slice(&response.body).unwrap();
        leaf.credential(enrolled.certificate_chain.as_bytes()).unwrap();
        hosts.push(enrolled.host_id);
    }
    assert_eq!((hosts.len(), hosts[0]), (2, hosts[1]));
    assert_eq!(estate.memory.uses_left(hash), Some(1), "the three are one use");
}
