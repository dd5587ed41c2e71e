//! Commit-confirm: a policy that was put into force proves that it leads to a gateway, or is taken back.
//!
//! - The proof is an echo over a connection of its own, before any TLS: packets of full size get there and back under the rules that are in force now.
//! - Only drops of packets to or from a gateway, which a rule of our own counts, are evidence against a policy. A gateway that is down, refuses or is
//!   held still leaves no such drop: the policy stays, unconfirmed, and is tried on.
//! - One echo confirms all that came before it was sent. Each policy has its own time, and is judged by the drops under it alone.
//! - What an earlier process confirmed is asked an echo for as well, and never taken back.
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

use super::starts::Windows;
use super::worker::{Unproven, Worker, WorkerGone};

/// How long one gateway may take for an echo.
const ECHO_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is tried while the window is open, and after it.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_AFTER_WINDOW: Duration = Duration::from_secs(5);

/// Proves each policy that has still to lead to a gateway, for as long as it is polled.
///
/// # Errors
/// [`WorkerGone`] when the process is about to end.
pub(super) async fn run(worker: Worker, windows: Windows) -> Result<std::convert::Infallible, WorkerGone> {
    let mut unproven = worker.unproven();
    loop {
        while unproven.borrow_and_update().is_none() {
            unproven.changed().await.map_err(|_| WorkerGone)?;
        }
        prove(&worker, windows).await?;
    }
}

/// What is held against one policy.
#[derive(Debug)]
struct Judged {
    of: Unproven,
    deadline: Instant,
    /// What had been dropped when it came; not known where it could not be read: older drops would count against it.
    drops_before: Option<u64>,
}

impl Judged {
    /// Whether anything of a gateway was dropped since it came, by what is counted now.
    fn is_cut(&mut self, drops: Option<u64>) -> bool {
        let Some(now) = drops else { return false };
        // A table that was replaced counts anew.
        let before = self.drops_before.map_or(now, |before| if now < before { 0 } else { before });
        self.drops_before = Some(before);
        now > before
    }
}

/// Until nothing has to be proven any more.
async fn prove(worker: &Worker, windows: Windows) -> Result<(), WorkerGone> {
    let mut unproven = worker.unproven();
    let mut judged: Option<Judged> = None;
    loop {
        let Some(of) = *unproven.borrow_and_update() else { return Ok(()) };
        let case = match judged.take().filter(|judged| judged.of == of) {
            Some(case) => case,
            None => {
                let deadline = Instant::now() + windows.of(of.stamp);
                Judged { of, deadline, drops_before: worker.gateway_drops().await? }
            }
        };
        let case = judged.insert(case);
        let gateways = worker.gateways().await?;
        let is_proven = echo_of_any(&gateways).await;
        let is_over = Instant::now() >= case.deadline;
        let is_ended = if is_proven {
            worker.confirm(of).await?
        } else if is_over && of.is_on_trial {
            case.is_cut(worker.gateway_drops().await?) && worker.take_back(of).await?
        } else {
            false
        };
        if is_ended {
            return Ok(());
        }
        tokio::select! {
            // In its time not sooner when something newer comes: one echo is of all that came before it, however much that was.
            () = sleep(if is_over { RETRY_AFTER_WINDOW } else { RETRY.min(windows.of(of.stamp)) }) => {}
            changed = unproven.changed(), if is_over => changed.map_err(|_| WorkerGone)?,
        }
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

#[cfg(test)]
mod tests {
    use holdfast_model::desired::{Component, Stamp};
    use holdfast_model::numbers::Version;

    use super::*;

    fn mk_judged(drops_before: Option<u64>) -> Judged {
        let stamp = Stamp { version: Version::FIRST, digest: Component::Policy.empty_digest() };
        Judged { of: Unproven { stamp, nth: 1, is_on_trial: true }, deadline: Instant::now(), drops_before }
    }

    #[test]
    fn a_policy_is_judged_by_what_was_dropped_since_it_came_also_by_a_table_that_counts_anew() {
        let mut judged = mk_judged(Some(7));
        assert!(!judged.is_cut(Some(7)) && !judged.is_cut(None));
        assert!(judged.is_cut(Some(8)));
        let mut replaced = mk_judged(Some(7));
        assert!(!replaced.is_cut(Some(0)) && replaced.is_cut(Some(2)), "it began at nothing");
        let mut unread = mk_judged(None);
        assert!(!unread.is_cut(Some(9)), "what was dropped before it is not known");
        assert!(!unread.is_cut(Some(9)) && unread.is_cut(Some(10)));
    }
}
