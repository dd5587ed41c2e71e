//! Which estates a path names, and reading them.
//!
//! - A file is one estate: JSON of the public formats, or YAML of our own.
//! - A folder with an `estate.yaml` is one estate; any other folder is all the estates below it, in the order of their paths. Files below a folder
//!   that are no estates (an index, notes, raw inputs) are passed over; a file that is named is not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_documents::Source;
use holdfast_documents::estate::{self, CHURN_FORMAT, ESTATE_FORMAT, Estate, Input};

/// The file that makes a folder one estate.
const OWN_FILE: &str = "estate.yaml";

/// How deep folders are searched; the public catalogue has two levels.
const DEPTH_MAX: usize = 8;

/// Why a path names no estate.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file whose name says JSON is none.
    #[error("{} is not JSON", .path.display())]
    Json {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A folder without estates.
    #[error("there is no estate in {}", .0.display())]
    None(PathBuf),
    /// A file is no estate that can be read.
    #[error("{} is no estate", .path.display())]
    Estate {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<estate::Error>,
    },
}

/// One estate, or versions of one address list.
#[derive(Debug)]
pub enum Case {
    /// An estate.
    Estate(Box<Estate>),
    /// A churning list.
    Churn(estate::Churn),
}

/// The files of the estates that a path names.
///
/// # Errors
/// [`FindError::Read`], [`FindError::Json`], [`FindError::None`].
pub fn find(path: &Path) -> Result<Vec<PathBuf>, FindError> {
    let read = |source| FindError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(read)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    walk(path, DEPTH_MAX, &mut files)?;
    files.sort();
    if files.is_empty() { Err(FindError::None(path.to_owned())) } else { Ok(files) }
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), FindError> {
    let read = |source| FindError::Read { path: folder.to_owned(), source };
    let own = folder.join(OWN_FILE);
    if own.is_file() {
        files.push(own);
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "json") && is_estate(&path)? {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether a JSON file says that it is of a public format.
fn is_estate(path: &Path) -> Result<bool, FindError> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
    }
    let text = read_text(path)?;
    match serde_json::from_str::<Head>(&text) {
        Ok(head) => Ok(head.format == ESTATE_FORMAT || head.format == CHURN_FORMAT),
        // JSON of another kind, such as an index.
        Err(error) if error.is_data() => Ok(false),
        Err(source) => Err(FindError::Json { path: path.to_owned(), source }),
    }
}

fn read_text(path: &Path) -> Result<String, FindError> {
    fs::read_to_string(path).map_err(|source| FindError::Read { path: path.to_owned(), source })
}

/// Reads one estate.
///
/// # Errors
/// [`FindError::Read`], [`FindError::Estate`].
pub fn load(path: &Path) -> Result<Case, FindError> {
    let text = read_text(path)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut beside = |name: &str| {
        // A file beside an estate is in its folder: no way up, no other root.
        let inside = Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if inside { fs::read_to_string(folder.join(name)).ok() } else { None }
    };
    let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let case = if yaml {
        let source = Source { name: path.display().to_string(), text };
        estate::read_own(&source, &mut beside).map(|estate| Case::Estate(Box::new(estate)))
    } else {
        estate::read(&text, &mut beside).map(|input| match input {
            Input::Estate(estate) => Case::Estate(estate),
            Input::Churn(churn) => Case::Churn(churn),
        })
    };
    case.map_err(|source| FindError::Estate { path: path.to_owned(), source: Box::new(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_its_estates_passes_over_other_json_and_refuses_what_is_no_json() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("is written");
        write("index.json", "[1, 2]");
        write("notes.txt", "{");
        assert!(matches!(find(folder.path()), Err(FindError::None(_))));
        write("one.json", &format!("{{\"format\": \"{ESTATE_FORMAT}\"}}"));
        assert_eq!(find(folder.path()).expect("one estate").len(), 1);
        write("two.json", &format!("{{\"format\": \"{ESTATE_FORMAT}\", \"hosts\": ["));
        let refused = find(folder.path()).expect_err("a truncated file is no other file").to_string();
        assert!(refused.ends_with("two.json is not JSON"), "{refused}");
    }
}
