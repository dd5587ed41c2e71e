//! What a long test did and when: told as it happens, and kept in a file that outlives a run.
//!
//! - Each step has the seconds since the first; a test that fails shows them with its own words.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The steps of one test.
#[derive(Debug)]
pub struct Steps {
    begun: Instant,
    path: PathBuf,
    file: File,
}

impl Steps {
    /// Begins a file of this name in the folder that cargo keeps for what tests write; one of before is replaced.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn begin(folder: &str, name: &str) -> Self {
        let path = Path::new(folder).join(name);
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
        let file = File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { begun: Instant::now(), path, file }
    }

    /// Tells one step.
    ///
    /// # Panics
    /// When it cannot be written.
    #[expect(clippy::print_stderr, reason = "the words of a test, shown when it fails")]
    pub fn tell(&self, step: &str) {
        let line = format!("{:8.1} s  {step}", self.begun.elapsed().as_secs_f64());
        eprintln!("{line}");
        writeln!(&self.file, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
    }

    /// Where they are kept.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_kept_in_their_order_with_their_times_and_a_second_run_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().to_str().expect("a plain path");
        for words in [["one", "two"], ["three", "four"]] {
            let steps = Steps::begin(folder, "seed-1.log");
            words.iter().for_each(|step| steps.tell(step));
            let text = fs::read_to_string(steps.path()).expect("it was written");
            let told: Vec<_> = text.lines().filter_map(|line| line.trim_start().split_once(" s  ")).collect();
            assert_eq!(told.iter().map(|(_, step)| *step).collect::<Vec<_>>(), words);
            assert!(told.iter().all(|(seconds, _)| seconds.parse::<f64>().is_ok()), "{text}");
        }
    }
}
