//! Commit-confirm: a policy that was put into force proves that it leads to a gateway, or is taken back.
//!
//! - The proof is an echo over a connection of its own, before any TLS: packets of full size get there and back under the rules that are in force now.
//! - Only drops of packets to or from a gateway, which a rule of our own counts, are evidence against a policy. A gateway that is down, refuses or is
//!   held still leaves no such drop: the policy stays, unconfirmed, and is tried on.
//! - One echo confirms all that came before it was sent.
//!
//! It decides nothing about what is gone back to: the engine does.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_wire::echo::{ECHO_BYTES, MAGIC};
use holdfast_wire::limits::GATEWAYS_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::worker::{Worker, WorkerGone};

/// How long one gateway may take for an echo.
const ECHO_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is tried while the window is open, and after it.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_AFTER_WINDOW: Duration = Duration::from_secs(5);

/// Proves each policy that is put on trial, for as long as it is polled.
///
/// # Errors
/// [`WorkerGone`] when the process is about to end.
pub(super) async fn run(worker: Worker, window: Duration) -> Result<std::convert::Infallible, WorkerGone> {
    let mut trials = worker.trials();
    loop {
        while trials.borrow_and_update().is_none() {
            trials.changed().await.map_err(|_| WorkerGone)?;
        }
        prove(&worker, window).await?;
    }
}

/// Until nothing is on trial any more.
async fn prove(worker: &Worker, window: Duration) -> Result<(), WorkerGone> {
    let mut trials = worker.trials();
    // What cannot be read is no evidence: older drops would count against this policy.
    let mut drops_before = worker.gateway_drops().await?;
    let deadline = Instant::now() + window;
    loop {
        let Some(trial) = *trials.borrow_and_update() else { return Ok(()) };
        let gateways = worker.gateways().await?;
        let is_proven = echo_of_any(&gateways).await;
        let is_over = Instant::now() >= deadline;
        let is_ended = if is_proven {
            worker.confirm(trial).await?
        } else {
            let drops = if is_over { worker.gateway_drops().await? } else { None };
            let is_cut = drops.zip(drops_before).is_some_and(|(now, before)| now > before);
            drops_before = drops_before.or(drops);
            is_cut && worker.take_back(trial).await?
        };
        if is_ended {
            return Ok(());
        }
        // Not sooner when something newer is put on trial: one echo is of all that came before it, however much that was.
        sleep(if is_over { RETRY_AFTER_WINDOW } else { RETRY.min(window) }).await;
    }
}

/// Whether any gateway gives an echo: one is asked, and all others at once where that one gives none, so that a look takes twice one's time at most.
async fn echo_of_any(gateways: &[SocketAddr]) -> bool {
    let Some((first, others)) = gateways.split_first() else { return false };
    if has_echo(*first).await {
        return true;
    }
    let mut asked = JoinSet::new();
    for gateway in others.iter().copied().take(GATEWAYS_MAX) {
        asked.spawn(has_echo(gateway));
    }
    while let Some(answer) = asked.join_next().await {
        if answer.unwrap_or(false) {
            return true;
        }
    }
    false
}

async fn has_echo(gateway: SocketAddr) -> bool {
    match timeout(ECHO_TIMEOUT, echo(gateway)).await {
        Ok(Ok(is_same)) => return is_same,
        Ok(Err(error)) => tracing::debug!(%gateway, %error, "no echo of a gateway"),
        Err(_elapsed) => tracing::debug!(%gateway, "a gateway gives no echo in time"),
    }
    false
}

/// Whether a gateway gives back exactly what it is sent.
async fn echo(gateway: SocketAddr) -> std::io::Result<bool> {
    let mut sent = [0x5a; ECHO_BYTES];
    sent.iter_mut().zip(MAGIC).for_each(|(to, from)| *to = from);
    let mut stream = TcpStream::connect(gateway).await?;
    stream.write_all(&sent).await?;
    let mut back = [0; ECHO_BYTES];
    stream.read_exact(&mut back).await?;
    Ok(back == sent)
}
