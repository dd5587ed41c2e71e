//! Documents as they are given to `plan` and `apply`: files, folders, stdin. What is in them is the API's business.
//!
//! - Never more is read than one apply takes, whatever it is read from: a pipe or a device need not end.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use holdfast_api::object::{APPLY_BODY_BYTES_MAX, ApplyRequest, Source};

use crate::args::Documents;
use crate::error::Error;

/// The largest body that the API takes.
const BYTES_MAX: u64 = APPLY_BODY_BYTES_MAX as u64;

/// Reads them all, in the order in which they were given.
///
/// # Errors
/// A file that cannot be read, a folder without any, and more than one apply takes: see [`Error`].
pub(crate) fn request(documents: &Documents) -> Result<ApplyRequest, Error> {
    let (mut sources, mut bytes) = (Vec::new(), 0_u64);
    for path in &documents.files {
        for file in files(path, documents.recursive)? {
            let text = read(&file, BYTES_MAX - bytes)?;
            bytes += text.len() as u64;
            sources.push(Source { name: name(&file), text });
        }
    }
    Ok(ApplyRequest {
        sources,
        prune: documents.prune,
        expected_revision: documents.expected_revision,
        expected_plan: None,
        acknowledge: None,
        rollout: None,
    })
}

/// The flags that name the same documents again, as a shell reads them.
pub(crate) fn flags(documents: &Documents) -> String {
    let mut flags: Vec<String> =
        documents.files.iter().map(|file| format!("-f {}", quoted(&file.display().to_string()))).collect();
    flags.extend(documents.recursive.then(|| "-R".to_owned()));
    flags.extend(documents.prune.then(|| "--prune".to_owned()));
    flags.join(" ")
}

/// One word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { path.display().to_string() }
}

/// The text of a file, or of stdin for `-`, of at most so many bytes.
fn read(path: &Path, bytes_max: u64) -> Result<String, Error> {
    if is_stdin(path) {
        return text(std::io::stdin().lock(), path, bytes_max);
    }
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length > bytes_max {
        return Err(Error::TooMuch { path: path.to_owned(), bytes: Some(BYTES_MAX - bytes_max + length) });
    }
    text(file, path, bytes_max)
}

fn text(input: impl Read, path: &Path, bytes_max: u64) -> Result<String, Error> {
    let mut text = String::new();
    let failed = |source| Error::Read { path: name(path).into(), source };
    // One more than there is room for shows that it goes on.
    input.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > bytes_max {
        return Err(Error::TooMuch { path: name(path).into(), bytes: None });
    }
    Ok(text)
}

/// The files that a path means, in the order of their names.
fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, Error> {
    if is_stdin(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    gather(path, recursive, &mut found)?;
    if found.is_empty() {
        return Err(Error::Empty { path: path.to_owned() });
    }
    found.sort();
    Ok(found)
}

fn gather(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = |source| Error::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        // A link to a folder is not followed: it may lead back.
        let is_link = entry.file_type().map_err(failed)?.is_symlink();
        if path.is_dir() {
            if recursive && !is_link {
                gather(&path, recursive, found)?;
            }
        } else if path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml" || ext == "json") {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_up_to_the_limit_is_read_and_one_byte_more_is_not() {
        let path = Path::new("-");
        assert_eq!(text(&b"1234"[..], path, 4).expect("fits"), "1234");
        let refused = text(&b"12345"[..], path, 4);
        assert!(matches!(refused, Err(Error::TooMuch { bytes: None, .. })), "{refused:?}");
    }

    #[test]
    fn what_never_ends_is_read_no_further_than_the_limit() {
        let refused = text(std::io::repeat(b'#'), Path::new("pipe"), 1 << 20);
        let words = refused.expect_err("it has no end").to_string();
        assert!(words.starts_with("pipe and what was read before it do not end within 64 MiB"), "{words}");
    }

    #[test]
    fn a_link_that_leads_back_into_its_folder_ends_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("below");
        std::fs::create_dir(&below).expect("is made");
        std::fs::write(below.join("a.yaml"), "").expect("is written");
        std::os::unix::fs::symlink("a.yaml", below.join("linked.yaml")).expect("is made");
        for name in ["one", "two"] {
            std::os::unix::fs::symlink(".", below.join(name)).expect("is made");
        }
        let found = files(folder.path(), true).expect("reads");
        assert_eq!(found, ["a.yaml", "linked.yaml"].map(|name| below.join(name)));
    }

    #[test]
    fn flags_name_the_same_documents_again() {
        let files = ["policies", "a b.yaml", "it's.yaml", "-"].map(PathBuf::from).to_vec();
        let documents = Documents { files, recursive: true, prune: true, expected_revision: Some(3) };
        assert_eq!(flags(&documents), r"-f policies -f 'a b.yaml' -f 'it'\''s.yaml' -f - -R --prune");
    }
}
