//! `audit tail --follow`: entries as they come, each once, over whatever interrupts the answer.
//!
//! - A followed answer has no end of its own: one that ends or breaks is asked for again, behind the last entry that was shown, and stderr says so.
//! - A refusal ends the command with an error, and so does an absence that lasts. The first answer is not waited for.

use std::time::{Duration, Instant};

use holdfast_api::audit::Entry;
use holdfast_api::problem::{Problem, ProblemType};

use super::Lines;
use super::tail::{Asked, Names, Row, show_one};
use crate::api::Api;
use crate::error::{End, Error};
use crate::output::{Format, word};

/// The first wait before an answer is asked for again; each is twice the one before.
const WAIT_MIN: Duration = Duration::from_millis(250);
/// The longest one. An answer that stood for longer than that was there.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Shows what comes until it is refused, or away for too long.
pub(super) async fn follow(api: &Api, asked: &Asked, format: Format) -> Result<End, Error> {
    let mut followed = Followed { api, format, names: None, from: asked.first(api).await? };
    let mut absence: Option<Absence> = None;
    let mut was_there = false;
    loop {
        let opened = Instant::now();
        let lost = match Lines::open(api, &asked.path(followed.from)).await {
            Ok(mut lines) => {
                was_there = true;
                if let Some(absence) = &mut absence {
                    absence.tell_end();
                }
                let shown = followed.show_all(&mut lines).await?;
                if shown.entries > 0 || opened.elapsed() > WAIT_MAX {
                    absence = None;
                }
                shown.lost
            }
            Err(error) => error,
        };
        if !was_there || !may_pass(&lost) {
            return Err(lost);
        }
        let absence = absence.get_or_insert_with(|| Absence::begin(followed.from, asked.retry_for));
        if absence.since.elapsed() + absence.wait > asked.retry_for {
            return Err(lost);
        }
        tokio::time::sleep(absence.wait).await;
        absence.wait = (absence.wait * 2).min(WAIT_MAX);
    }
}

/// Whether asking again may help.
fn may_pass(error: &Error) -> bool {
    let is_audit_away = |problem: &Problem| problem.known_type() == Some(ProblemType::AuditUnavailable);
    error.is_passing() || matches!(error, Error::Refused(problem) if is_audit_away(problem))
}

/// A time without an answer.
struct Absence {
    since: Instant,
    wait: Duration,
    told_end: bool,
}

impl Absence {
    fn begin(from: Option<u64>, retry_for: Duration) -> Self {
        let place = from.map_or_else(String::new, |from| format!(" from entry {from} on"));
        word(&format!("the answer that was followed broke off; asking again{place}, for {} s", retry_for.as_secs()));
        Self { since: Instant::now(), wait: WAIT_MIN, told_end: false }
    }

    fn tell_end(&mut self) {
        if !self.told_end {
            word("the audit log is followed again");
            self.told_end = true;
        }
    }
}

/// What one answer brought, and how it was lost.
struct Shown {
    entries: u64,
    lost: Error,
}

/// What is shown, and how far.
struct Followed<'a> {
    api: &'a Api,
    format: Format,
    names: Option<Names>,
    /// The entry that comes next, as far as that is known.
    from: Option<u64>,
}

impl Followed<'_> {
    /// Shows the entries of one answer until it is lost.
    async fn show_all(&mut self, lines: &mut Lines) -> Result<Shown, Error> {
        let mut entries = 0;
        loop {
            match lines.next().await {
                Ok(Some(bytes)) => {
                    self.show(&bytes).await?;
                    entries += 1;
                }
                Ok(None) => return Ok(Shown { entries, lost: Error::Ended }),
                Err(lost) => return Ok(Shown { entries, lost }),
            }
        }
    }

    async fn show(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let row = match self.format {
            // As it is kept: nothing is looked up for it.
            Format::Json => Row::of(bytes, &Names::default()),
            Format::Yaml | Format::Name | Format::Table | Format::Wide => self.row(bytes).await,
        };
        show_one(bytes, &row, self.format)?;
        let entry = std::str::from_utf8(bytes).ok().and_then(|text| Entry::parse(text).ok());
        self.from = entry.map(|entry| entry.n.saturating_add(1)).or(self.from);
        Ok(())
    }

    async fn row(&mut self, bytes: &[u8]) -> Row {
        let row = match &self.names {
            Some(names) => Some(Row::of(bytes, names)).filter(|row| !row.has_unknown_host),
            None => None,
        };
        match row {
            Some(row) => row,
            // What is unknown may have enrolled just now.
            None => Row::of(bytes, self.names.insert(Names::load(self.api).await)),
        }
    }
}
