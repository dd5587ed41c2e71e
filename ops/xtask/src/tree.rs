//! The files of the project as a value: what a check reads instead of the disk.
//!
//! - Holds what git tracks or would track; nothing ignored, nothing binary.
//! - Paths are relative to the root and use `/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why the files could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("git could not be started")]
    Git(#[source] std::io::Error),
    #[error("git {what} failed: {stderr}")]
    Refused { what: &'static str, stderr: String },
    #[error("file {} could not be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
}

/// Text files by path, and the names of all files.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: PathBuf,
    texts: BTreeMap<String, String>,
    names: BTreeSet<String>,
}

impl Tree {
    /// Reads the project that the current folder is in.
    pub(crate) fn load() -> Result<Self, Error> {
        let root = find_root()?;
        let listing = git(&root, "ls-files", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let mut tree = Self { root, ..Self::default() };
        for name in listing.split('\0').filter(|name| !name.is_empty()) {
            let path = tree.root.join(name);
            // A file that git tracks and somebody has deleted, or a link to a folder.
            if !path.is_file() {
                continue;
            }
            let bytes = std::fs::read(&path).map_err(|source| Error::Read { path, source })?;
            tree.names.insert(name.to_owned());
            if let Ok(text) = String::from_utf8(bytes) {
                tree.texts.insert(name.to_owned(), text);
            }
        }
        Ok(tree)
    }

    /// The folder of the project.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether a file or a folder of this path exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        if path.is_empty() || self.names.contains(path) {
            return true;
        }
        let folder = format!("{path}/");
        self.names.range(folder.clone()..).next().is_some_and(|name| name.starts_with(&folder))
    }

    /// All text files.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Text files whose name ends in `.extension`.
    pub(crate) fn with_extension(&self, extension: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(move |(path, _)| path.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.')))
    }
}

/// The root of the project that the current folder is in.
pub(crate) fn find_root() -> Result<PathBuf, Error> {
    Ok(PathBuf::from(git(Path::new("."), "rev-parse", &["rev-parse", "--show-toplevel"])?.trim_end()))
}

fn git(folder: &Path, what: &'static str, arguments: &[&str]) -> Result<String, Error> {
    let output = Command::new("git").current_dir(folder).args(arguments).output().map_err(Error::Git)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Error::Refused { what, stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
    }
}

#[cfg(test)]
impl Tree {
    /// A tree made of the files given.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let texts: BTreeMap<String, String> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let names = texts.keys().cloned().collect();
        Self { root: PathBuf::new(), texts, names }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_exists_when_a_file_is_in_it_and_a_common_prefix_is_no_folder() {
        let tree = Tree::of(&[("docs/adr/0001-a.md", ""), ("docs/adrift.md", "")]);
        assert!(tree.exists("docs/adr"));
        assert!(tree.exists("docs/adrift.md"));
        assert!(!tree.exists("docs/ad"));
    }

    #[test]
    fn an_extension_is_not_the_end_of_a_name() {
        let tree = Tree::of(&[("a.rs", ""), ("bars", "")]);
        assert_eq!(tree.with_extension("rs").map(|(path, _)| path).collect::<Vec<_>>(), ["a.rs"]);
    }
}
