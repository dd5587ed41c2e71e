//! The thread that hears the kernel's notices of changes, and tells the worker of those of our table.
//!
//! - Where it hears nothing any more, the worker knows of it before anything is tried again: until it hears again only the slow tick finds changes,
//!   and that nobody writes is not seen but inferred.
//! - It listens anew by itself, at a pace that doubles up to a bound; what nobody heard meanwhile is looked for then.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_runtime::Chain;

use super::run::Error;
use super::worker::{StartError, Worker, WorkerGone};
use crate::nft::{self, Notice, Watch};

/// The first pause before it listens anew, and the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Begins to listen.
///
/// # Errors
/// [`Error`] if nothing can be heard from the start on.
pub(super) fn listen(worker: &Worker) -> Result<(), Error> {
    let worker = worker.clone();
    let (ready, opened) = sync_channel(1);
    let listen = move || match Watch::open() {
        Ok(watch) => {
            drop(ready.send(Ok(())));
            // Without a worker the process is ending.
            let Err(WorkerGone) = hear_for_ever(watch, &worker);
        }
        Err(error) => drop(ready.send(Err(error))),
    };
    let failed = |source| Error::Start(StartError::Thread(source));
    thread::Builder::new().name("notices".to_owned()).spawn(listen).map_err(failed)?;
    opened.recv().map_err(|gone| failed(std::io::Error::other(gone)))?.map_err(Error::Watch)
}

fn hear_for_ever(mut watch: Watch, worker: &Worker) -> Result<std::convert::Infallible, WorkerGone> {
    let mut pace = Pace::default();
    loop {
        let began = Instant::now();
        let mut error = pass_notices_on(watch, worker)?;
        let text = Chain(&error).to_string();
        tracing::error!(error = text, "kernel notices cannot be heard; the slow tick finds what others change");
        worker.hears(Some(text))?;
        pace.handle_heard_for(began.elapsed());
        watch = loop {
            thread::sleep(pace.next_pause());
            match Watch::open() {
                Ok(watch) => break watch,
                Err(again) => error = again,
            }
            tracing::debug!(%error, "kernel notices cannot be heard yet");
        };
        tracing::warn!("kernel notices are heard again");
        worker.hears(None)?;
    }
}

/// Tells the worker of each notice, until none can be heard any more: why.
fn pass_notices_on(mut watch: Watch, worker: &Worker) -> Result<nft::Error, WorkerGone> {
    loop {
        match watch.wait() {
            Ok(Notice::Quiet) => {}
            // What this agent itself wrote it has read back.
            Ok(Notice::Touched { pid, .. }) if pid == std::process::id() => {}
            Ok(Notice::Touched { pid, name }) => worker.noticed(Some((pid, &name)))?,
            Ok(Notice::Lost) => worker.noticed(None)?,
            Err(error) => return Ok(error),
        }
    }
}

/// How long it waits before it listens anew.
#[derive(Debug)]
struct Pace(Duration);

impl Default for Pace {
    fn default() -> Self {
        Self(PAUSE)
    }
}

impl Pace {
    /// The next pause; the one after it is twice as long.
    fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause
    }

    /// It had heard for so long: one that opens and fails at once is no better than one that does not open.
    fn handle_heard_for(&mut self, heard: Duration) {
        if heard >= PAUSE_MAX {
            self.0 = PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_heard_is_tried_less_and_less_often_also_where_it_opens_and_fails_at_once() {
        let mut pace = Pace::default();
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                pace.handle_heard_for(PAUSE_MAX - Duration::from_millis(1));
                pace.next_pause().as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        pace.handle_heard_for(PAUSE_MAX);
        assert_eq!(pace.next_pause(), PAUSE);
    }
}
