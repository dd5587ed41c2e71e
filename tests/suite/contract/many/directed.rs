//! What an agent does that is told to dial again, by the real machines of sessions and of dialling.

use holdfast_identity::tls::install_crypto_provider;
use holdfast_session::agent::CloseCause;

use super::world::{FIRST, World, apply};
use crate::control_plane::ControlPlane;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a23_an_agent_that_is_told_to_dial_again_dials_once_and_no_other_does() {
    install_crypto_provider();
    let mut world = World::start_in(ControlPlane::start().await).await;
    let asked = world.plane.holdfast(&["host", "reconnect", "web-1"]);
    assert!(asked.status.success(), "{asked:?}");
    world.agents[0].until("is back", |lived| lived.opened.len() == 2 && lived.is_whole).await;
    world.until_told(1, 1, "converged").await;
    // Whoever would dial once more for it had the time of a change for that.
    assert!(apply(&world.plane, &[FIRST, "198.51.100.0/24"]).status.success());
    world.until_held(2).await;
    world.until_told(2, 2, "converged").await;
    let [directed, others @ ..] = world.agents.as_slice() else { panic!("three") };
    let lived = directed.lived();
    let causes: Vec<CloseCause> = lived.ended.iter().map(|(_, cause)| *cause).collect();
    assert_eq!((lived.dials, causes), (2, vec![CloseCause::Directed]), "one more than before");
    for agent in others {
        assert_eq!(agent.lived().dials, 1, "{}", agent.who.name);
    }
    world.plane.assert_runs();
}
