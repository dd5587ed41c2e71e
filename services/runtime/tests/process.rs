//! A whole process, from its start over a real SIGTERM to its end.

use holdfast_runtime::Build;
use holdfast_runtime::admin::{self, healthcheck};
use holdfast_runtime::log::LogFormat;
use holdfast_runtime::process::{DRAIN_GRACE, Process};
use nix::sys::signal::{Signal, raise};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::oneshot;

const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn process_is_ready_once_all_its_parts_are_there_and_says_that_it_drains_until_its_last_task_has_ended() {
    let build = Build { service: "gateway", version: "1.2.3", commit: None };
    let listen = "127.0.0.1:0".parse().unwrap();
    let process = Process::start(build, "info", LogFormat::Json, Some(listen)).await.unwrap();
    let address = process.admin.unwrap();
    let shutdown = process.tasks.shutdown().clone();
    let (release, held) = oneshot::channel::<()>();
    process.tasks.critical("sessions", {
        let shutdown = shutdown.clone();
        async move {
            shutdown.asked().await;
            let _released = held.await;
            Ok::<_, Infallible>(())
        }
    });
    let early = healthcheck(address, LIMIT).await;
    assert!(matches!(early, Err(admin::Error::NotReady { .. })), "its parts are not all there: {early:?}");

    let finish = process.finish(DRAIN_GRACE);
    let ask_while_draining = async {
        healthcheck(address, LIMIT).await.unwrap();
        raise(Signal::SIGTERM).unwrap();
        shutdown.asked().await;
        let draining = healthcheck(address, LIMIT).await;
        release.send(()).unwrap();
        draining
    };
    let (finished, draining) = tokio::join!(finish, ask_while_draining);
    assert!(matches!(draining, Err(admin::Error::NotReady { .. })), "{draining:?}");
    assert!(finished.is_ok());
}
