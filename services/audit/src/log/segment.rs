//! The files of a log.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use holdfast_api::audit::Entry;

use super::{LogError, entry_of, io};

/// One file, named by the number of its first entry.
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) path: PathBuf,
}

/// Names sort as their numbers do.
pub(super) fn file_name(first: u64) -> String {
    format!("{first:020}.jsonl")
}

/// The segments of a folder, ascending; other files are not looked at.
pub(super) fn segments(folder: &Path) -> Result<Vec<Segment>, LogError> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder).map_err(io("list", folder))? {
        let path = file.map_err(io("list", folder))?.path();
        let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jsonl"));
        if let Some(first) = number.filter(|digits| digits.len() == 20).and_then(|digits| digits.parse().ok()) {
            found.push(Segment { first, path });
        }
    }
    found.sort_by_key(|segment| segment.first);
    Ok(found)
}

/// Cuts off what follows the last line end and returns the last entry, if the segment has one.
pub(super) fn cut_torn_line(path: &Path) -> Result<Option<Entry>, LogError> {
    let mut file = File::options().read(true).write(true).open(path).map_err(io("open", path))?;
    let mut whole = 0;
    let mut last = String::new();
    let mut reader = BufReader::new(&mut file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(io("read", path))? > 0 {
        if line.last() != Some(&b'\n') {
            break;
        }
        whole += line.len() as u64;
        last = String::from_utf8_lossy(&line).into_owned();
        line.clear();
    }
    if file.metadata().map_err(io("read", path))?.len() > whole {
        file.set_len(whole).and_then(|()| file.sync_all()).map_err(io("cut", path))?;
    }
    if last.is_empty() { Ok(None) } else { entry_of(path, last.trim_end()).map(Some) }
}

/// The first whole line of a segment.
pub(super) fn first_line(path: &Path) -> Result<Option<String>, LogError> {
    let mut line = String::new();
    BufReader::new(File::open(path).map_err(io("open", path))?).read_line(&mut line).map_err(io("read", path))?;
    Ok(line.ends_with('\n').then(|| line.trim_end().to_owned()))
}

/// Whole lines of a file from an offset on, at most about `bytes_max` of them, and the offset after them.
pub(super) fn lines_from(path: &Path, offset: u64, bytes_max: u64) -> Result<(Vec<String>, u64), LogError> {
    let mut file = File::open(path).map_err(io("open", path))?;
    file.seek(SeekFrom::Start(offset)).map_err(io("read", path))?;
    let mut bytes = Vec::new();
    file.by_ref().take(bytes_max).read_to_end(&mut bytes).map_err(io("read", path))?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.truncate(end);
    let lines = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
    Ok((lines, offset + end as u64))
}
