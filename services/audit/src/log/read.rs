//! Reading a log while it grows.

use std::path::{Path, PathBuf};

use super::segment::{Segment, first_line, lines_from, segments};
use super::{LogError, SEGMENT_BYTES_MAX};

/// The most bytes that one call reads. An event has at most 64 KiB, so every call gets at least some whole lines.
const READ_BYTES_MAX: u64 = 1 << 20;

/// A place in a log that moves forward, across segments and as entries come.
#[derive(Clone, Debug)]
pub struct Reader {
    folder: PathBuf,
    segment: Option<(u64, PathBuf)>,
    offset: u64,
}

impl Reader {
    /// Starts at the first entry.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), segment: None, offset: 0 }
    }

    /// Starts at the last segment whose first entry is `wanted` to be passed over: entries before it in the segment are the caller's to skip.
    ///
    /// # Errors
    /// [`LogError`] if the folder cannot be read.
    pub fn near(folder: &Path, passed_over: impl Fn(&str) -> bool) -> Result<Self, LogError> {
        let mut reader = Self::new(folder);
        for Segment { first, path } in segments(folder)? {
            match first_line(&path)? {
                Some(line) if passed_over(&line) => reader.segment = Some((first, path)),
                _ => break,
            }
        }
        Ok(reader)
    }

    /// The next lines; none if there are none yet.
    ///
    /// # Errors
    /// [`LogError`] if a file cannot be read.
    pub fn poll_lines(&mut self) -> Result<Vec<String>, LogError> {
        loop {
            if let Some((_, path)) = &self.segment {
                let (lines, offset) = lines_from(path, self.offset, READ_BYTES_MAX)?;
                self.offset = offset;
                if !lines.is_empty() {
                    return Ok(lines);
                }
            }
            let after = self.segment.as_ref().map_or(0, |(first, _)| *first);
            match segments(&self.folder)?.into_iter().find(|segment| segment.first > after) {
                Some(next) => {
                    self.segment = Some((next.first, next.path));
                    self.offset = 0;
                }
                None => return Ok(Vec::new()),
            }
        }
    }
}

/// Calls back with every line of a log, for a proof of the whole.
///
/// # Errors
/// [`LogError`] if a file cannot be read.
pub fn lines(folder: &Path, mut visit: impl FnMut(&str)) -> Result<(), LogError> {
    for Segment { path, .. } in segments(folder)? {
        let mut offset = 0;
        loop {
            let (lines, next) = lines_from(&path, offset, SEGMENT_BYTES_MAX)?;
            if lines.is_empty() {
                break;
            }
            offset = next;
            lines.iter().for_each(|line| visit(line));
        }
    }
    Ok(())
}
