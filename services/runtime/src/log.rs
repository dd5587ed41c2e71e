//! Logs: one line per event, to stderr, as text for people or as JSON for machines.
//!
//! - What a peer or an operator's document put into a field cannot forge a line or move a cursor: every control character
//!   is escaped, in both formats.
//! - JSON is the default where stderr is no terminal; each of its lines says which service and version wrote it.
//! - A panic is logged too, with its place.
//! - A filter that cannot be read stops the start.
//! - Nobody waits for the log: one thread writes what the others put into a queue of bounded size. A line that nobody takes, since the disk is full, the
//!   reader is gone or it does not read, is lost and counted, and ends and holds up nothing. The next one begins a line of its own.
//! - At the end what waits is written first, within a bounded time.
//!
//! What is logged at which level is decided where it is logged; no credential is, at any level.

mod queue;

use self::queue::{Lines, Queue};
use crate::Build;
use crate::exit::{Exit, Fatal};
use serde::{Deserialize, Serialize};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _, Write};
use std::panic::PanicHookInfo;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The filter where none is set.
pub const FILTER: &str = "info";

/// How long the end of a process waits for its last lines: with 25 s of draining and 1 s for threads that block, under the 30 s that supervisors are
/// told to wait.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// What waits to be written by this process.
static WAITING: OnceLock<Arc<Lines>> = OnceLock::new();

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is none.
    #[error("`{filter}` is no log filter")]
    Filter {
        /// The offending text.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// Somebody else logs already.
    #[error("logging was started before")]
    Started,
    /// The machine has no thread for it.
    #[error("the thread that writes the log cannot be started")]
    Thread(#[source] io::Error),
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Filter { .. } => Exit::Config,
            Self::Started | Self::Thread(_) => Exit::Software,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Filter { .. } => "log-filter",
            Self::Started => "log-started",
            Self::Thread(_) => "log-thread",
        }
    }
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines, one object a line.
    Json,
}

impl LogFormat {
    /// Text on a terminal, else JSON.
    #[must_use]
    pub fn of_terminal() -> Self {
        if io::stderr().is_terminal() { Self::Text } else { Self::Json }
    }
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("a log format is `text` or `json`"),
        }
    }
}

/// Starts logging for the whole process.
///
/// # Errors
/// [`Error::Filter`] for a filter that cannot be read, [`Error::Started`] for a second start, [`Error::Thread`] where there is no thread for it.
pub fn init(build: Build, filter: &str, format: LogFormat) -> Result<(), Error> {
    let queue = Queue::start(io::stderr()).map_err(Error::Thread)?;
    let waiting = Arc::clone(queue.lines());
    let dispatch = dispatch(build, filter, format, queue)?;
    dispatch.try_init().map_err(|_| Error::Started)?;
    WAITING.set(waiting).map_err(|_| Error::Started)?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Waits until what was logged is written, a bounded time: the process is about to end.
pub fn flush() {
    if let Some(waiting) = WAITING.get() {
        // What nobody has taken by then, nobody takes.
        let _written = waiting.flush(FLUSH_TIMEOUT);
    }
}

/// Says to stderr why the process ends, as it is and behind everything that was logged, and waits a bounded time for whoever reads.
pub fn say_last(text: &str) {
    match WAITING.get() {
        Some(waiting) => {
            // With no room left nobody reads; the exit code still says it.
            let _taken = waiting.put(format!("{text}\n").into_bytes());
            flush();
        }
        None => {
            // With stderr gone there is nobody left to tell.
            let _told = writeln!(io::stderr(), "{text}");
        }
    }
}

/// A panic is a line like any other, with its place; the usual hook would write raw text between JSON lines.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let captured = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        panic = panic.payload_as_str().unwrap_or("a value that is no text"),
        location = panic.location().map(tracing::field::display),
        backtrace = captured.then(|| tracing::field::display(&backtrace)),
        "panicked"
    );
    if std::thread::current().name() == Some("main") {
        // The process ends by it.
        flush();
    }
}

fn dispatch(build: Build, filter: &str, format: LogFormat, queue: Queue) -> Result<tracing::Dispatch, Error> {
    let filter = EnvFilter::try_new(filter).map_err(|source| Error::Filter { filter: filter.to_owned(), source })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    // It would tell of a line that cannot be written by another one, and panic where that one fails too.
    let lines = lines.log_internal_errors(false);
    Ok(match format {
        LogFormat::Text => lines.with_writer(Writer { queue, head: None }).into(),
        LogFormat::Json => {
            let head = format!(r#"{{"service":{:?},"version":{:?},"#, build.service, build.version);
            lines.json().flatten_event(true).with_writer(Writer { queue, head: Some(head) }).into()
        }
    })
}

/// Makes every write one clean line: `tracing-subscriber` writes each event by one call.
struct Writer {
    queue: Queue,
    head: Option<String>,
}

impl<'w> MakeWriter<'w> for Writer {
    type Writer = Line<'w>;

    fn make_writer(&'w self) -> Line<'w> {
        Line { to: self.queue.lines(), head: self.head.as_deref() }
    }
}

struct Line<'w> {
    to: &'w Lines,
    head: Option<&'w str>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut line = String::with_capacity(text.len() + 64);
        let rest = match self.head {
            Some(head) => {
                line.push_str(head);
                text.strip_prefix('{').unwrap_or(text)
            }
            None => text,
        };
        for char in rest.chars() {
            match (char.is_control(), self.head) {
                (false, _) => line.push(char),
                (true, None) => line.extend(char.escape_default()),
                // All of them are below U+0100, and a JSON string has no other escape for them.
                (true, Some(_)) => line.push_str(&format!("\\u{:04x}", u32::from(char))),
            }
        }
        line.push('\n');
        self.to.put(line.into_bytes()).map_err(|queue::Full| io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // The queue's thread does.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const BUILD: Build = Build { service: "gateway", version: "1.2.3", commit: None };

    #[test]
    fn json_line_carries_service_level_span_and_fields() {
        let text = capture(LogFormat::Json, "info", || {
            let span = tracing::info_span!("session", host = "ho_1");
            let _in_span = span.enter();
            tracing::info!(revision = 7, "published");
            tracing::debug!("below the filter");
        });
        let lines: Vec<&str> = text.lines().collect();
        let [line] = lines.as_slice() else { panic!("{text}") };
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["service"], "gateway");
        assert_eq!(value["version"], "1.2.3");
        assert_eq!(value["level"], "INFO");
        assert_eq!(value["message"], "published");
        assert_eq!(value["revision"], 7);
        assert_eq!(value["span"]["host"], "ho_1");
        assert!(value["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn forged_lines_and_terminal_sequences_are_escaped_in_both_formats() {
        let hostile = "x\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{9b}31m\r";
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = capture(format, "info", || tracing::warn!(detail = hostile, "the peer said {hostile}"));
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(!text.trim_end_matches('\n').chars().any(char::is_control), "{text:?}");
        }
        let json = capture(LogFormat::Json, "info", || tracing::warn!(detail = hostile, "x"));
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    }

    #[test]
    fn filter_that_cannot_be_read_is_named() {
        let refused = dispatch(BUILD, "holdfast=loud", LogFormat::Text, Queue::start(io::sink()).unwrap()).unwrap_err();
        assert!(matches!(&refused, Error::Filter { filter, .. } if filter == "holdfast=loud"));
        assert_eq!(refused.exit(), Exit::Config);
    }

    #[test]
    fn a_log_that_takes_nothing_ends_nobody_also_not_one_that_panics() {
        const CHILD: &str = "HOLDFAST_LOG_CHILD";
        if std::env::var_os(CHILD).is_some() {
            init(BUILD, "info", LogFormat::Text).unwrap();
            tracing::info!("nobody reads this");
            assert!(std::thread::spawn(|| panic!("nor this")).join().is_err());
            flush();
            return;
        }
        let name = "log::tests::a_log_that_takes_nothing_ends_nobody_also_not_one_that_panics";
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", name, "--nocapture"]).env(CHILD, "yes").stderr(full).output().unwrap();
        assert!(child.status.success(), "{}: {}", child.status, String::from_utf8_lossy(&child.stdout));
    }

    #[test]
    fn panic_is_one_json_line_with_its_place() {
        let text = capture(LogFormat::Json, "info", || {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(log_panic));
            assert!(std::panic::catch_unwind(|| panic!("out of\norder")).is_err());
            std::panic::set_hook(usual);
        });
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["panic"], "out of\norder");
        assert!(value["location"].as_str().unwrap().contains("log.rs:"), "{text}");
    }

    #[test]
    fn what_follows_a_line_that_was_cut_is_a_line_of_its_own() {
        let (captured, room) = (Captured::default(), Arc::new(Mutex::new(usize::MAX)));
        let to = Small { to: captured.clone(), room: Arc::clone(&room) };
        let queue = Queue::start(to).unwrap();
        let waiting = Arc::clone(queue.lines());
        let dispatch = dispatch(BUILD, "info", LogFormat::Json, queue).unwrap();
        tracing::dispatcher::with_default(&dispatch, || {
            for (free, said) in
                [(usize::MAX, "one"), (10, "cut"), (0, "lost"), (usize::MAX, "two"), (usize::MAX, "three")]
            {
                *room.lock().unwrap() = free;
                tracing::info!("{said}");
                assert!(waiting.flush(FLUSH_TIMEOUT));
            }
        });
        let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
        let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok().map(|line| line["message"].clone());
        let lines: Vec<_> = text.lines().map(of).collect();
        assert_eq!(lines, [Some("one".into()), None, Some("two".into()), Some("three".into())], "{text}");
    }

    /// Takes so many bytes more.
    struct Small {
        to: Captured,
        room: Arc<Mutex<usize>>,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut room = self.room.lock().map_err(|_| io::Error::other("poisoned"))?;
            let count = bytes.len().min(*room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= count;
            self.to.write(&bytes[..count])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().map_err(|_| io::Error::other("poisoned"))?.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn capture(format: LogFormat, filter: &str, work: impl FnOnce()) -> String {
        let captured = Captured::default();
        let queue = Queue::start(captured.clone()).unwrap();
        let waiting = Arc::clone(queue.lines());
        let dispatch = dispatch(BUILD, filter, format, queue).unwrap();
        tracing::dispatcher::with_default(&dispatch, work);
        assert!(waiting.flush(FLUSH_TIMEOUT));
        let bytes = captured.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }
}
