//! That something is under way: a spinner or a bar on a terminal, a plain line now and then without one, nothing for programs.

use std::cell::Cell;
use std::future::Future;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{Format, word};

/// How long a wait is silent without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// What a spinner looks like.
const SPINNER: &str = "{spinner} {msg} ({elapsed})";
/// What a bar looks like.
const BAR: &str = "{spinner} {bar:24} {pos}/{len} {msg} ({elapsed})";

/// How it is shown.
enum Shown {
    /// Moving, on a terminal.
    Bar(ProgressBar),
    /// A line now and then.
    Lines,
    /// A program reads the answer; words would only stand in its log.
    Nothing,
}

/// Something under way.
pub(crate) struct Progress {
    shown: Shown,
    begun: Instant,
    told: Cell<Instant>,
}

impl Progress {
    /// Begins; what it is called is said at the first look.
    pub(crate) fn new(format: Format) -> Self {
        let shown = match format {
            Format::Json | Format::Yaml => Shown::Nothing,
            Format::Table | Format::Wide | Format::Name if std::io::stderr().is_terminal() => Shown::Bar(spinner()),
            Format::Table | Format::Wide | Format::Name => Shown::Lines,
        };
        let now = Instant::now();
        Self { shown, begun: now, told: Cell::new(now) }
    }

    /// Says how far it is; without a terminal at most one line in five seconds.
    pub(crate) fn say(&self, text: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(text.lines().next().unwrap_or_default().to_owned()),
            Shown::Lines if self.told.get().elapsed() >= LINE_EVERY => {
                self.told.set(Instant::now());
                word(&format!("{text} ({} s)", self.begun.elapsed().as_secs()));
            }
            Shown::Lines | Shown::Nothing => {}
        }
    }

    /// Says how much of how much is done: on a terminal the spinner becomes a bar.
    pub(crate) fn amount(&self, done: u64, total: u64) {
        let Shown::Bar(bar) = &self.shown else { return };
        if total > 0 {
            if bar.length().is_none()
                && let Ok(style) = ProgressStyle::with_template(BAR)
            {
                bar.set_style(style);
            }
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// Says it now: something went wrong and is tried again.
    pub(crate) fn warn(&self, text: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.println(text),
            Shown::Lines => word(text),
            Shown::Nothing => {}
        }
    }

    /// Shows that something is awaited whose middle cannot be seen.
    pub(crate) async fn during<T>(self, what: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        self.say(what);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.finish();
                    return done;
                }
                () = tokio::time::sleep(LINE_EVERY) => self.say(what),
            }
        }
    }

    /// Takes the spinner away.
    pub(crate) fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template(SPINNER) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinner_becomes_a_bar_once_it_is_known_how_much_there_is() {
        assert!([SPINNER, BAR].iter().all(|template| ProgressStyle::with_template(template).is_ok()));
        let now = Instant::now();
        let progress = Progress { shown: Shown::Bar(ProgressBar::hidden()), begun: now, told: Cell::new(now) };
        progress.amount(0, 0);
        let Shown::Bar(bar) = &progress.shown else { panic!("it is one") };
        bar.unset_length();
        progress.amount(97, 100);
        assert_eq!((bar.position(), bar.length()), (97, Some(100)));
    }
}
