//! With the feature `test-hooks`: what a dishonest gateway sends is refused, and the refusal is recorded.

use super::*;

#[tokio::test]
async fn an_altered_body_and_a_swapped_host_are_refused_by_the_agent() {
    let hosts = [1, 2, 3].map(mk_host);
    let hooks = Hooks { altered: vec![hosts[0]], swapped: vec![(hosts[1], hosts[2])] };
    let estate = Estate::start_with(hooks).await;
    let enrolled: Vec<Host> = (1..=3).map(|n| estate.enrol(n)).collect();
    enrolled.iter().for_each(|host| _ = estate.memory.publish(host.id, &mk_body(0..5)));
    for (host, reason) in enrolled.into_iter().zip([
        holdfast_model::condition::Reason::WrongDigest,
        holdfast_model::condition::Reason::BadSignature,
        holdfast_model::condition::Reason::BadSignature,
    ]) {
        let mut agent = estate.connect(host.clone()).await;
        let refused = |fact: &&Fact| {
            matches!(&fact.seen, Seen::Outcome(report)
                if report.outcome.host == host.id
                    && report.outcome.component == Component::Policy
                    && report.reason == reason)
        };
        tokio::select! {
            _ = estate.facts_until(|facts| facts.iter().filter(refused).count() == 2) => {}
            () = agent.until(|_| false) => {}
        }
        assert_eq!(agent.policy, Body::default(), "nothing of it was applied");
    }
}
