//! The commands that every service's binary has: run, healthcheck, config.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Subcommand;

use crate::config::{self, Config, Loaded, Origin};
use crate::exit::{Exit, Fatal};
use crate::{Build, admin};

/// How long a healthcheck waits for an answer.
const HEALTHCHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// How long threads that block may take at the end: a name lookup without an answer takes 30 s and more, and everything that must be done has been
/// waited for by then.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(1);

/// What every service can be asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Subcommand)]
pub enum Common {
    /// Runs the service (the default).
    Run,
    /// Asks the running service whether it is ready; exit 0 if it is.
    Healthcheck,
    /// Prints the settings in force and where each came from.
    Config,
}

/// Why a service's binary ends otherwise than in order.
#[derive(Debug, thiserror::Error)]
pub enum Error<R: Fatal + 'static> {
    /// The settings.
    #[error("the settings cannot be used")]
    Config(#[from] config::Error),
    /// Showing them.
    #[error("the settings have no text form")]
    Show(#[from] toml::ser::Error),
    /// The answer of the running service.
    #[error("the service is not ready")]
    Healthcheck(#[from] admin::Error),
    /// The service itself.
    #[error("the {service} service stopped")]
    Run {
        /// Which.
        service: &'static str,
        /// Why.
        #[source]
        source: R,
    },
    /// Threads and timers.
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    /// Standard output.
    #[error("nothing can be printed")]
    Print(#[source] std::io::Error),
}

impl<R: Fatal + 'static> Fatal for Error<R> {
    fn exit(&self) -> Exit {
        match self {
            Self::Config(error) => error.exit(),
            Self::Healthcheck(error) => error.exit(),
            Self::Run { source, .. } => source.exit(),
            Self::Show(_) | Self::Runtime(_) | Self::Print(_) => Exit::Software,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Config(error) => error.rule(),
            Self::Healthcheck(error) => error.rule(),
            Self::Run { source, .. } => source.rule(),
            Self::Show(_) => "settings-form",
            Self::Runtime(_) => "runtime",
            Self::Print(_) => "print",
        }
    }
}

/// Does what was asked for.
///
/// # Errors
/// [`Error`], which knows the exit code.
pub fn perform<C: Config, R: Fatal + 'static, F: Future<Output = Result<(), R>>>(
    build: Build,
    command: Common,
    loaded: Loaded<C>,
    admin_listen: SocketAddr,
    run: impl FnOnce(Loaded<C>) -> F,
) -> Result<(), Error<R>> {
    match command {
        Common::Run => block_on(run(loaded))?.map_err(|source| Error::Run { service: build.service, source }),
        Common::Healthcheck => Ok(block_on(admin::healthcheck(admin_listen, HEALTHCHECK_TIMEOUT))??),
        Common::Config => print(&format!("# {}\n{}", build.service, loaded.show(Origin::Shown)?)),
    }
}

/// Runs a future on a runtime of its own. What its threads still block on at the end is not waited for.
///
/// # Errors
/// [`Error::Runtime`].
pub fn block_on<T, R: Fatal + 'static>(future: impl Future<Output = T>) -> Result<T, Error<R>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let done = runtime.block_on(future);
    runtime.shutdown_timeout(BLOCKED_TIMEOUT);
    Ok(done)
}

/// Writes to standard output.
///
/// # Errors
/// [`Error::Print`].
pub fn print<R: Fatal + 'static>(text: &str) -> Result<(), Error<R>> {
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::fmt;
    use std::sync::mpsc;

    use super::*;

    #[derive(Debug)]
    struct Never;

    impl fmt::Display for Never {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("never")
        }
    }

    impl std::error::Error for Never {}

    impl Fatal for Never {
        fn exit(&self) -> Exit {
            Exit::Software
        }

        fn rule(&self) -> &'static str {
            "never"
        }
    }

    #[test]
    fn thread_that_blocks_without_end_does_not_hold_up_the_end() {
        // The thread ends when `held` goes, which is after `block_on` has returned: else both wait for ever.
        let (held, waits) = mpsc::sync_channel::<Infallible>(1);
        let begun = block_on::<_, Never>(async {
            let (begins, begun) = tokio::sync::oneshot::channel();
            drop(tokio::task::spawn_blocking(move || {
                begins.send(()).unwrap();
                waits.recv()
            }));
            begun.await
        });
        begun.unwrap().unwrap();
        drop(held);
    }
}
