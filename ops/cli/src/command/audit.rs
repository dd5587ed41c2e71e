//! `audit`: reading the log, and proving it here instead of believing whoever hands it out.

mod follow;
mod tail;

use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use holdfast_api::audit::{Checkpoint, Head, Report, Verifier};
use holdfast_identity::https::Streaming;
use holdfast_identity::{Signature, VerifyingKey};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::api::{Api, read_text};
use crate::args::{Audit, Connection};
use crate::error::{End, Error};
use crate::output::{Answer, Format, line, word};
use crate::progress::Progress;
use crate::span::duration;
use crate::words::count;

/// How many entries are read before it is said how many there are.
const TOLD_EVERY: u64 = 1_000;

/// The audit log.
pub(super) async fn run(connection: &Connection, command: Audit, format: Format) -> Result<End, Error> {
    match command {
        Audit::Tail { lines, since, from, follow, retry_for } => {
            let since = since.map(|since| time_of(&since, OffsetDateTime::now_utc())).transpose()?;
            tail::tail(&Api::new(connection)?, &tail::Asked { lines, since, from, follow, retry_for }, format).await
        }
        Audit::Checkpoint => {
            let checkpoint: Value = Api::new(connection)?.get("/v1/audit/checkpoint").await?;
            // One line whatever the form: it is a thing to keep.
            line(&checkpoint.to_string())?;
            Ok(End::Done)
        }
        Audit::Verify { against, key, log } => {
            let checkpoints = proven_checkpoints(&against, key.as_deref())?;
            let verifier = Verifier::new(checkpoints);
            let report = match log {
                Some(path) => verify_file(verifier, &path)?,
                None => verify_served(verifier, &Api::new(connection)?, &Progress::new(format)).await?,
            };
            show(&report, format)
        }
    }
}

/// A time as the API takes it: as it was given, or so long ago.
fn time_of(text: &str, now: OffsetDateTime) -> Result<String, Error> {
    if OffsetDateTime::parse(text, &Rfc3339).is_ok() {
        return Ok(text.to_owned());
    }
    let wrong = |_| Error::Usage("time", format!("`{text}` is neither a duration such as 1h nor a time in RFC 3339"));
    let ago = duration(text).map_err(wrong)?;
    let before = time::Duration::try_from(ago).ok().and_then(|ago| now.checked_sub(ago));
    let before = before.ok_or_else(|| Error::Usage("time", format!("`{text}` is too long ago")))?;
    before.format(&Rfc3339).map_err(|error| Error::Usage("time", error.to_string()))
}

/// The heads of checkpoints whose signatures are the audit service's.
fn proven_checkpoints(files: &[PathBuf], key: Option<&str>) -> Result<Vec<Head>, Error> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let missing = Error::Missing {
        what: "without the audit service's public key a checkpoint proves nothing",
        variable: "HOLDFAST_AUDIT_KEY",
        flag: "--key",
    };
    let key = verifying_key(key.ok_or(missing)?)?;
    let mut heads = Vec::new();
    for path in files {
        for checkpoint in read_checkpoints(path)? {
            let n = checkpoint.head.n;
            let forged = |source| Error::Forged { n, source };
            key.verify(&checkpoint.statement(), &signature(&checkpoint)?).map_err(forged)?;
            heads.push(checkpoint.head);
        }
    }
    Ok(heads)
}

/// A key itself, or the file that holds it.
fn verifying_key(text: &str) -> Result<VerifyingKey, Error> {
    let text = if text.starts_with("ed25519:") { text.to_owned() } else { read_text(Path::new(text))? };
    text.trim()
        .parse()
        .map_err(|error: holdfast_identity::signing::Error| Error::Usage(error.rule(), error.to_string()))
}

/// One checkpoint, several one a line, or a list of them.
fn read_checkpoints(path: &Path) -> Result<Vec<Checkpoint>, Error> {
    let text = read_text(path)?;
    let no_checkpoint = |source| Error::Checkpoint { what: path.display().to_string(), source };
    let mut found = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let value = value.map_err(no_checkpoint)?;
        let items = if let Value::Array(items) = value { items } else { vec![value] };
        for item in items {
            found.push(serde_json::from_value(item).map_err(no_checkpoint)?);
        }
    }
    if found.is_empty() {
        return Err(Error::Usage("checkpoint-missing", format!("{} holds no checkpoint", path.display())));
    }
    Ok(found)
}

fn signature(checkpoint: &Checkpoint) -> Result<Signature, Error> {
    let wrong = || {
        let n = checkpoint.head.n;
        Error::Usage("checkpoint-signature", format!("the signature of the checkpoint of entry {n} is no signature"))
    };
    let text = checkpoint.signature.as_bytes();
    let mut bytes = [0_u8; 64];
    if text.len() != 2 * bytes.len() {
        return Err(wrong());
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(Signature(bytes))
}

fn verify_file(mut verifier: Verifier, path: &Path) -> Result<Report, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    let file: Box<dyn std::io::Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(read)?)
    };
    for line in std::io::BufReader::new(file).split(b'\n') {
        take(&mut verifier, &line.map_err(read)?);
    }
    Ok(verifier.finish())
}

async fn verify_served(mut verifier: Verifier, api: &Api, progress: &Progress) -> Result<Report, Error> {
    let mut lines = Lines::open(api, "/v1/audit/entries").await?;
    let mut read: u64 = 0;
    while let Some(line) = lines.next().await? {
        take(&mut verifier, &line);
        read += 1;
        if read.is_multiple_of(TOLD_EVERY) {
            progress.say(&format!("{read} entries read"));
        }
    }
    progress.finish();
    Ok(verifier.finish())
}

/// One line; bytes that are no text are no entry, which the verifier names.
fn take(verifier: &mut Verifier, line: &[u8]) {
    verifier.line(&String::from_utf8_lossy(line));
}

/// A body cut at its line ends.
pub(super) struct Lines {
    streaming: Streaming,
    held: Vec<u8>,
    /// Where in `held` the next line begins.
    at: usize,
}

impl Lines {
    pub(super) async fn open(api: &Api, path: &str) -> Result<Self, Error> {
        Ok(Self { streaming: api.open(path).await?, held: Vec::new(), at: 0 })
    }

    /// The next line without its end; nothing when the body has ended. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let rest = self.held.get(self.at..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.get(..end).unwrap_or_default().to_vec();
                self.at += end + 1;
                return Ok(Some(line));
            }
            self.held.drain(..self.at);
            self.at = 0;
            match self.streaming.next_chunk().await? {
                Some(bytes) => self.held.extend_from_slice(&bytes),
                None if self.held.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.held))),
            }
        }
    }
}

fn show(report: &Report, format: Format) -> Result<End, Error> {
    let ok = report.faults.is_empty();
    let value = json!({
        "ok": ok,
        "entries": report.entries,
        "head": report.head,
        "proven": report.proven,
        "tail_unproven": report.proven != Some(report.head.n),
        "faults": report.faults,
    });
    let mut lines: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    lines.push(words(report));
    let names = report.faults.iter().map(|fault| fault.n.to_string()).collect();
    Answer { value: &value, names, text: lines.join("\n") }.show(format)?;
    if !ok {
        let faults = count(report.faults.len() as u64, "fault");
        word(&format!("{faults}: this is not the log that was written"));
        return Ok(End::Failed);
    }
    Ok(End::Done)
}

fn words(report: &Report) -> String {
    let head = report.head.n;
    if !report.faults.is_empty() {
        return format!("{} entries read; the last entry is {head}", report.entries);
    }
    match report.proven {
        Some(proven) if proven == head => format!("entries 1 to {head} are proven by a checkpoint"),
        Some(proven) => {
            format!(
                "entries 1 to {proven} are proven by a checkpoint; {} to {head} are unbroken, but nothing proves the tail",
                proven + 1
            )
        }
        None if head == 0 => "the log is empty, and nothing proves that it should be".to_owned(),
        None => format!("entries 1 to {head} are one unbroken chain; without a checkpoint nothing proves the tail"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_duration_or_a_time() {
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::HOUR;
        assert_eq!(time_of("30m", now).expect("a time"), "1970-01-01T00:30:00Z");
        assert_eq!(time_of("2026-01-02T03:04:05Z", now).expect("a time"), "2026-01-02T03:04:05Z");
        assert!(time_of("yesterday", now).is_err());
    }

    #[test]
    fn the_words_say_what_is_proven_and_what_is_not() {
        let report = |n, proven| Report { entries: n, head: Head { n, ..Head::ORIGIN }, proven, faults: Vec::new() };
        assert_eq!(words(&report(9, Some(9))), "entries 1 to 9 are proven by a checkpoint");
        assert!(words(&report(9, Some(5))).contains("6 to 9 are unbroken, but nothing proves the tail"));
        assert!(words(&report(9, None)).contains("without a checkpoint nothing proves the tail"));
    }
}
